-- The calendar of the deployment, in its time zone.
-- Row: one period that holds messages, facts or summaries, or that such a period rolls up into.
-- Owner: team:memory
-- Columns:
--   grain - working (an hour in UTC), daily, weekly, monthly, quarterly or yearly.
--   period - Its name, as 2024-01-15T08, 2024-01-15, 2024-W03, 2024-01, 2024-Q1 or 2024.
--   parent - The period that it rolls up into; none for a year.
--   month - Month of its first day; of an hour, of the day that it rolls up into. As 2024-01.
--   starts_at - Its first instant.
--   ends_at - The first instant after it.
--   ends_on - The date of that instant in the deployment's zone.
--   closes_at - From when on nothing new can fall into it, or into a period that it is made from.
SELECT grain, period, parent, month, starts_at, ends_at, ends_on, closes_at
FROM periods
