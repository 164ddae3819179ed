-- No two rows of messages have the same id.
-- Row: one id that more than one message has.
-- Owner: team:memory
-- Checks: messages
-- Severity: error
SELECT id, count(*) AS rows
FROM stg_messages
GROUP BY id
HAVING count(*) > 1
ORDER BY id
