-- For how long memory is kept, as configured.
-- Row: one class of memory of one workspace that the configuration names; '' stands for all others.
-- Owner: team:memory
-- Columns:
--   workspace_id - The workspace; empty for all that are not named.
--   kept - The class: conversations, facts, preferences, daily, weekly, monthly, quarterly, yearly or graph.
--   duration - As it is written: 48h, 30d, 6w, 6mo, 4q, 2y or forever.
--   hours - The duration, if it is one of hours.
--   days - The duration in days, if it is one of days or weeks.
--   months - The duration in months, if it is one of months, quarters or years.
SELECT workspace_id, kept, duration, hours, days, months
FROM retention
