-- As of when tests judge; marts do not depend on it.
-- Row: there is one.
-- Owner: team:memory
-- Columns:
--   now - The time that the warehouse was given; without one, the end of the newest hour with facts.
SELECT now
FROM clock
