-- The calendar of the deployment, in its time zone.
-- Row: one period with messages, facts or summaries, or one that such a period rolls up into.
-- Owner: team:memory
-- Columns:
--   grain - working (an hour in UTC), daily, weekly, monthly, quarterly or yearly.
--   period - Name, such as 2024-01-15T08, 2024-01-15, 2024-W03, 2024-01, 2024-Q1 or 2024.
--   parent - Period that it rolls up into; null for a year.
--   month - Month of its first day, such as 2024-01; for an hour, of the day that it rolls up into.
--   starts_at - Start, inclusive.
--   ends_at - End, exclusive.
--   ends_on - Date of ends_at in the deployment's time zone.
--   closes_at - Time from which no new data can be part of it, or of the periods that it is computed from.
SELECT grain, period, parent, month, starts_at, ends_at, ends_on, closes_at
FROM periods
