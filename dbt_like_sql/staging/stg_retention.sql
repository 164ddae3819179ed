-- Configured retention.
-- Row: one retention class of a workspace in the configuration, or of all other workspaces ('').
-- Owner: team:memory
-- Columns:
--   workspace_id - Workspace; empty for all workspaces without a setting of their own.
--   kept - Retention class: conversations, facts, preferences, daily, weekly, monthly, quarterly, yearly or graph.
--   duration - Configured duration: 48h, 30d, 6w, 6mo, 4q, 2y or forever.
--   hours - Duration in hours; null for other units.
--   days - Duration in days, also for weeks; null for other units.
--   months - Duration in months, also for quarters and years; null for other units.
SELECT workspace_id, kept, duration, hours, days, months
FROM retention
