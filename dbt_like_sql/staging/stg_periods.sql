-- Calendar of the deployment, in its time zone.
-- Row: one period with messages, facts or summaries, or one of its parents.
-- Owner: team:memory
-- Columns:
--   grain - working (an hour in UTC), daily, weekly, monthly, quarterly or yearly.
--   period - Name: 2024-01-15T08, 2024-01-15, 2024-W03, 2024-01, 2024-Q1 or 2024.
--   parent - Period of the next coarser grain that it rolls up into; null for a year.
--   month - Month of the first day, such as 2024-01; for an hour, month of the day that it rolls up into.
--   starts_at - Start (UTC).
--   ends_at - End (UTC), exclusive.
--   ends_on - Date of ends_at in the deployment's time zone.
--   closes_at - Time (UTC) from which neither the period nor its sources receive new data.
SELECT grain, period, parent, month, starts_at, ends_at, ends_on, closes_at
FROM periods
