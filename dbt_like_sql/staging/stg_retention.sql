-- Configured retention.
-- Row: one retention class of a configured workspace; '' is for all other workspaces.
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace; empty for all that are not configured.
--   kept - Retention class: conversations, facts, preferences, daily, weekly, monthly, quarterly, yearly or graph.
--   duration - Duration as configured: 48h, 30d, 6w, 6mo, 4q, 2y or forever.
--   hours - Duration in hours, if configured in hours.
--   days - Duration in days, if configured in days or weeks.
--   months - Duration in months, if configured in months, quarters or years.
SELECT workspace_id, kept, duration, hours, days, months
FROM retention
