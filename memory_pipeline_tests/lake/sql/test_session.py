"""SQL that agents write: refused statements have no effect, allowed ones work, and all are bounded."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory_pipeline.errors import InputError, LakeError
from memory_pipeline.lake.sql import session as door
from memory_pipeline.lake.sql.session import QueryResult, Session, connect
from memory_pipeline_tests.effort import IS_THOROUGH, examples

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "the-secret-of-the-house-7241"
NOON = dt.datetime(2024, 1, 15, 12, tzinfo=dt.UTC)

FACTS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "text": ["Anna likes tea", "Bob moved to Porto", None, "Anna has a dog"],
        "since": pa.array([NOON, NOON + dt.timedelta(days=1), None, NOON], pa.timestamp("us", "UTC")),
        "score": [0.5, math.nan, None, 2.0],
        "tags": [["tea", "food"], [], None, ["dog"]],
        "about": [{"who": "Anna", "in": [{"year": 2024}]}] * 4,
        "subject": ["anna", "bob", "bob", "anna"],
    }
)


def ask(tables: door.Tables, sql: str, *, max_rows: int = 100, max_seconds: float = 5.0) -> QueryResult:
    """Answer one query over exactly these tables."""
    with closing(Session(tables)) as session:
        return session.ask(sql, max_rows=max_rows, max_seconds=max_seconds)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that queries must not read."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "secret.csv").write_text(f"a,b\n{SECRET},1\n", encoding="utf-8")
    (folder / "secret.txt").write_text(SECRET, encoding="utf-8")
    (folder / "secret.json").write_text(f'{{"a": "{SECRET}"}}', encoding="utf-8")
    connect().execute(f"COPY (SELECT '{SECRET}' AS a) TO '{folder}/secret.parquet'")
    connect().execute(f"ATTACH '{folder}/secret.db' AS other; CREATE TABLE other.t AS SELECT '{SECRET}' AS a")
    return folder


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOUSE_SECRET", SECRET)
        with closing(Session({"facts": FACTS, "empty": FACTS.slice(0, 0)})) as opened:
            yield opened


WRITES = """
CREATE TABLE t AS SELECT 1
CREATE TEMP TABLE t (a INT)
CREATE OR REPLACE VIEW facts AS SELECT 1
CREATE MACRO f(a) AS a
CREATE SEQUENCE s
CREATE SECRET (TYPE s3, KEY_ID 'a', SECRET 'b')
CREATE SCHEMA s
CREATE TYPE mood AS ENUM ('a')
DROP VIEW facts
DROP TABLE IF EXISTS facts
ALTER TABLE facts RENAME TO other
INSERT INTO facts SELECT * FROM facts
UPDATE facts SET id = 1
DELETE FROM facts
TRUNCATE facts
MERGE INTO facts USING facts f ON facts.id = f.id WHEN MATCHED THEN DELETE
WITH x AS (INSERT INTO facts SELECT * FROM facts RETURNING *) SELECT * FROM x
WITH x AS (DELETE FROM facts RETURNING *) SELECT * FROM x
WITH x AS (UPDATE facts SET id = 2 RETURNING id) SELECT * FROM x
COMMENT ON VIEW facts IS 'x'
BEGIN
COMMIT
CHECKPOINT
VACUUM
ANALYZE
COPY facts TO '{house}/made.csv'
COPY (SELECT 1) TO '{house}/made.parquet' (FORMAT parquet)
COPY facts FROM '{house}/secret.csv'
EXPORT DATABASE '{house}/made'
IMPORT DATABASE '{house}'
ATTACH '{house}/made.db' AS made
ATTACH '{house}/secret.db' AS other
ATTACH ':memory:' AS other
DETACH memory
USE memory
INSTALL httpfs
FORCE INSTALL httpfs FROM 'http://127.0.0.1:1'
LOAD httpfs
LOAD '{house}/x.duckdb_extension'
UPDATE EXTENSIONS
SET enable_external_access = true
SET GLOBAL lock_configuration = false
SET VARIABLE x = 1
SET memory_limit = '100GB'
RESET ALL
RESET lock_configuration
PRAGMA database_list
PRAGMA enable_profiling
PRAGMA table_info('facts')
PRAGMA threads = 100
CALL pragma_version()
CALL range(3)
EXPLAIN SELECT 1
EXPLAIN ANALYZE SELECT * FROM facts
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE p
SELECT 1; SELECT 2
SELECT 1; DROP VIEW facts
SELECT 1; SET threads = 1; SELECT 2
PIVOT facts ON subject USING count(*)
SELECT * FROM (PIVOT facts ON subject USING count(*))
UNPIVOT facts ON id INTO NAME n VALUE v
"""
READS = """
SELECT * FROM read_csv('{house}/secret.csv')
SELECT * FROM read_csv_auto('{house}/secret.csv')
SELECT * FROM READ_CSV('{house}/secret.csv')
SELECT * FROM "read_csv"('{house}/secret.csv')
SELECT * FROM system.main.read_csv('{house}/secret.csv')
SELECT * FROM main.read_text('{house}/secret.txt')
SELECT * FROM read_text('{house}/secret.txt')
SELECT * FROM read_blob('{house}/*')
SELECT * FROM read_parquet('{house}/secret.parquet')
SELECT * FROM parquet_scan(['{house}/secret.parquet'])
SELECT * FROM parquet_metadata('{house}/secret.parquet')
SELECT * FROM parquet_schema('{house}/secret.parquet')
SELECT * FROM read_json('{house}/secret.json')
SELECT * FROM read_json_auto('{house}/secret.json')
SELECT * FROM read_ndjson('{house}/secret.json')
SELECT * FROM read_json_objects('{house}/secret.json')
SELECT * FROM read_duckdb('{house}/secret.db')
SELECT * FROM sniff_csv('{house}/secret.csv')
SELECT * FROM glob('{house}/*')
SELECT * FROM glob('/proc/self/*')
SELECT * FROM '{house}/secret.csv'
SELECT * FROM "{house}/secret.csv"
SELECT * FROM '{house}/secret.parquet'
FROM '{house}/secret.json'
TABLE '{house}/secret.csv'
SELECT * FROM 'http://127.0.0.1:1/x.csv'
SELECT * FROM 's3://bucket/x.parquet'
SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')
SELECT * FROM read_text('/proc/self/environ')
SELECT (SELECT content FROM read_text('{house}/secret.txt'))
SELECT * FROM facts WHERE text IN (SELECT content FROM read_text('{house}/secret.txt'))
SELECT * FROM facts, LATERAL (SELECT * FROM read_text('{house}/secret.txt'))
WITH x AS MATERIALIZED (SELECT * FROM read_text('{house}/secret.txt')) SELECT * FROM x
WITH "{house}/secret.csv" AS (SELECT 1) SELECT * FROM "{house}/secret.csv"
SELECT * FROM (WITH "{house}/secret.csv" AS (SELECT 1) SELECT 1), "{house}/secret.csv"
WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r, read_text('{house}/secret.txt')) SELECT * FROM r
SELECT 1 UNION ALL SELECT content FROM read_text('{house}/secret.txt')
SELECT 1 ORDER BY (SELECT content FROM read_text('{house}/secret.txt'))
SELECT 1 LIMIT (SELECT size FROM read_text('{house}/secret.txt'))
SELECT sum(id) OVER (ORDER BY (SELECT size FROM read_text('{house}/secret.txt'))) FROM facts
SELECT sum(id) FILTER ((SELECT size FROM read_text('{house}/secret.txt')) > 1) FROM facts
SELECT list_transform([1], lambda x: (SELECT size FROM read_text('{house}/secret.txt')))
SELECT * REPLACE ((SELECT content FROM read_text('{house}/secret.txt')) AS id) FROM facts
VALUES ((SELECT content FROM read_text('{house}/secret.txt')))
SELECT * FROM range((SELECT size FROM read_text('{house}/secret.txt')))
SELECT getenv('HOUSE_SECRET')
SELECT current_setting('home_directory')
SELECT current_setting('HOUSE_SECRET')
SELECT getvariable('x')
SELECT current_query()
SELECT current_database()
SELECT current_schemas(true)
SELECT version()
SELECT * FROM query('SELECT 1')
SELECT * FROM query_table('facts')
SELECT * FROM query_table(['facts'])
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT json_serialize_sql('SELECT 1')
SELECT json_serialize_plan('SELECT 1')
SELECT list_aggregate([1], 'sum')
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_functions()
SELECT * FROM duckdb_extensions()
SELECT * FROM duckdb_views
SELECT * FROM duckdb_logs
SELECT * FROM which_secret('s3://x', 's3')
SELECT * FROM pragma_version()
SELECT * FROM pragma_database_list
SELECT * FROM pragma_user_agent()
SELECT * FROM pragma_storage_info('facts')
SELECT * FROM information_schema.tables
SELECT * FROM pg_catalog.pg_settings
SELECT * FROM pg_settings
SELECT * FROM pg_tables
SELECT * FROM sqlite_master
SELECT * FROM system.information_schema.schemata
SELECT * FROM memory.main.facts
SELECT * FROM temp.facts
SELECT * FROM (WITH duckdb_settings AS (SELECT 1) SELECT 1), duckdb_settings
SELECT * FROM (WITH sqlite_master AS (SELECT 1) SELECT 1), SQLITE_MASTER
SHOW TABLES
SHOW ALL TABLES
SHOW DATABASES
SHOW memory_limit
DESCRIBE facts
SUMMARIZE facts
SELECT * FROM (SHOW TABLES)
SELECT * FROM (DESCRIBE facts)
SELECT nextval('s')
SELECT setseed(0.5)
SELECT random()
SELECT uuid()
SELECT now()
SELECT current_date
SELECT current_timestamp
SELECT localtimestamp
SELECT age(since) FROM facts
SELECT ago(INTERVAL 1 DAY)
SELECT current_user
SELECT session_user
SELECT sleep_ms(10)
SELECT pg_sleep(1)
SELECT write_log('x')
SELECT error('x')
SELECT stats(id) FROM facts
SELECT txid_current()
SELECT inet_server_addr()
SELECT pg_get_viewdef(1)
SELECT parse_path('/a')
SELECT in_search_path('memory', 'main')
SELECT cast_to_type('1', NULL::INT)
SELECT __internal_compress_string_ubigint('a')
SELECT * FROM arrow_scan(1, 2, 3)
SELECT * FROM python_arrow_scan(1, 2, 3)
SELECT * FROM pandas_scan(1)
SELECT * FROM python_map_function(1)
SELECT * FROM seq_scan('facts')
SELECT * FROM test_all_types()
SELECT * FROM enable_logging()
SELECT * FROM force_checkpoint()
SELECT * FROM repeat_row(1, num_rows = 3)
SELECT * FROM duckdb_temporary_files()
SELECT * FROM FACTS_TABLE
SELECT * FROM house
SELECT * FROM session
SELECT * FROM SECRET
SELECT * FROM range
SELECT $1
SELECT ?
SELECT $name
SELECT main.lower('A')
SELECT system.main.lower('A')
SELECT 'POINT(1 1)'::GEOMETRY
SELECT 'a'::pg_catalog.regclass
SELECT * FROM facts AT (VERSION => 1)
SELECT DEFAULT
SELECT
SELECT FROM
nonsense
;
-- only a comment
SELECT nothing FROM facts
SELECT id / text FROM facts
SELECT 'x'::INT
"""
REFUSED = [line for line in (WRITES + READS).splitlines() if line]


def listing(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*"))


@pytest.mark.parametrize("statement", REFUSED)
def test_a_hostile_statement_is_refused_without_effect(session: Session, house: Path, statement: str) -> None:
    before = listing(house)
    with pytest.raises(InputError) as caught:
        session.ask(statement.replace("{house}", str(house)))
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert listing(house) == before
    assert session.ask("SELECT count(*) FROM facts").rows == [(4,)]


def test_a_second_statement_after_a_select_is_refused(session: Session, house: Path) -> None:
    for statement in WRITES.strip().splitlines():
        with pytest.raises(InputError):
            session.ask(f"SELECT 1;\n{statement.replace('{house}', str(house))}")


def test_sql_that_passes_the_rules_is_still_sandboxed(house: Path) -> None:
    """DuckDB's settings and the process's limits each suffice without the rules."""
    attacks = [
        line.replace("{house}", str(house)) for line in REFUSED if re.search(r"house|http|SET|LOAD|INSTALL", line)
    ]
    attacks = [line for line in attacks if not re.search(r"SECRET|VARIABLE|SHOW|ROM house|WITH|USE memory", line)]
    code = f"""
import pyarrow as pa, socket, sys
from memory_pipeline.lake.sql import worker
from memory_pipeline.operating_system import confine_process
import duckdb
attacks, is_locked = {attacks!r}, sys.argv[1] == "process"
if is_locked:
    connection = duckdb.connect()
    connection.execute("SELECT 1").fetchall()
    confine_process(worker.HEADROOM)
else:
    connection = worker.QueryWorker({{"facts": pa.table({{"id": [1], "text": ["a"]}})}})._connection
for attack in attacks:
    if is_locked and attack.startswith(("SET", "RESET")):
        continue
    try:
        rows = connection.execute(attack).fetchall()
    except duckdb.Error as error:
        assert {SECRET!r} not in str(error), error
    else:
        assert is_locked and {SECRET!r} not in str(rows), (attack, rows)
if is_locked:
    for reach in (lambda: open({str(house / "secret.txt")!r}), socket.socket):
        try:
            reach()
        except OSError:
            continue
        raise SystemExit("reached")
"""
    before = listing(house)
    assert len(attacks) > 40
    for layer in ("settings", "process"):
        result = subprocess.run([sys.executable, "-c", code, layer], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        if layer == "process" and (house / "made").exists():
            (house / "made").rmdir()  # an empty folder has no files; the settings reject it
        assert listing(house) == before


def test_the_process_has_no_environment(session: Session) -> None:
    session.ask("SELECT 1")
    process = door_process(session)
    if not Path("/proc").exists():
        pytest.skip("needs /proc")
    assert SECRET not in Path(f"/proc/{process}/environ").read_text(encoding="utf-8")


def door_process(session: Session) -> int:
    process = session._process
    assert process is not None
    return process._process.pid


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("SELECT 1 " + "-" * 20_000, "at most 20,000"),
        ("SELECT '\x00'", r"'\\x00'"),
        ("SELECT 1\x1b", r"'\\x1b'"),
        ("SELECT '\x85'", r"'\\x85'"),
        ("SELECT '\ud800'", r"'\\ud800'"),
        (None, "is not accepted; expected a text"),
        (b"SELECT 1", "is not accepted; expected a text"),
        (1, "is not accepted; expected a text"),
    ],
)
def test_invalid_queries_are_refused_before_they_are_sent(session: Session, sql: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        session.ask(sql)


@pytest.mark.parametrize("max_rows", [0, -1, 10_001, True, 1.0, "5", None, 10**400])
def test_an_invalid_row_limit_is_refused(session: Session, max_rows: Any) -> None:
    with pytest.raises(InputError, match="max_rows"):
        session.ask("SELECT 1", max_rows=max_rows)


@pytest.mark.parametrize("max_seconds", [0, -1.0, 61, math.nan, math.inf, True, "5", None])
def test_an_invalid_time_limit_is_refused(session: Session, max_seconds: Any) -> None:
    with pytest.raises(InputError, match="max_seconds"):
        session.ask("SELECT 1", max_seconds=max_seconds)


LEGITIMATE: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("SELECT 1", [(1,)]),
    ("SELECT id FROM facts ORDER BY id DESC LIMIT 2 OFFSET 1; -- the end", [(3,), (2,)]),
    ("/* first */ SELECT 'a;b', \"id\" FROM FACTS WHERE id = 1", [("a;b", 1)]),
    ("FROM facts SELECT count(*)", [(4,)]),
    ("VALUES (1, 'a'), (2, 'b')", [(1, "a"), (2, "b")]),
    ("TABLE empty", []),
    ("SELECT count(*), max(id) FROM empty", [(0, None)]),
    ("WITH x AS (SELECT * FROM facts WHERE id > 2), y AS (SELECT count(*) n FROM x) SELECT n FROM y", [(2,)]),
    ("WITH x AS (SELECT 1 a) SELECT * FROM X", [(1,)]),
    ("WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT sum(n) FROM r", [(55,)]),
    ("SELECT subject, count(*) n FROM facts GROUP BY ALL HAVING n > 1 ORDER BY subject", [("anna", 2), ("bob", 2)]),
    ("SELECT count(DISTINCT subject), max_by(text, id), median(id) FROM facts", [(2, "Anna has a dog", 2.5)]),
    ("SELECT string_agg(id::VARCHAR, ', ' ORDER BY id DESC) FROM facts", [("4, 3, 2, 1",)]),
    ("SELECT list(id ORDER BY id) FILTER (subject = 'bob') FROM facts", [([2, 3],)]),
    ("SELECT id FROM facts QUALIFY row_number() OVER (PARTITION BY subject ORDER BY id) = 1 ORDER BY id", [(1,), (2,)]),
    ("SELECT lag(id, 1, 0) OVER w FROM facts WINDOW w AS (ORDER BY id) LIMIT 2", [(0,), (1,)]),
    ("SELECT sum(id) OVER (ORDER BY id ROWS 1 PRECEDING) FROM facts ORDER BY id", [(1,), (3,), (5,), (7,)]),
    ("SELECT a.id, b.id FROM facts a JOIN facts b ON a.id = b.id + 3", [(4, 1)]),
    ("SELECT count(*) FROM facts a LEFT JOIN empty b USING (id) WHERE b.text IS NULL", [(4,)]),
    ("SELECT id FROM facts f SEMI JOIN (SELECT 1 id) o USING (id)", [(1,)]),
    ("SELECT count(*) FROM facts CROSS JOIN range(10)", [(40,)]),
    ("SELECT x FROM (SELECT 1 a) CROSS JOIN LATERAL (SELECT a + 1 x)", [(2,)]),
    ("SELECT id FROM facts WHERE text LIKE 'Anna%' AND text ILIKE '%TEA'", [(1,)]),
    ("SELECT id FROM facts WHERE text NOT LIKE 'Anna%' OR text IS NULL ORDER BY 1", [(2,), (3,)]),
    ("SELECT id FROM facts WHERE regexp_matches(text, 'd.g$')", [(4,)]),
    ("SELECT CASE WHEN id < 3 THEN 'low' ELSE 'high' END, count(*) FROM facts GROUP BY 1 ORDER BY 1",
     [("high", 2), ("low", 2)]),
    ("SELECT 1 UNION ALL SELECT 2 UNION SELECT 1 ORDER BY 1", [(1,), (2,)]),
    ("(SELECT 1 INTERSECT SELECT 1) EXCEPT SELECT 2", [(1,)]),
    ("SELECT unnest(tags) t FROM facts ORDER BY t", [("dog",), ("food",), ("tea",)]),
    ("SELECT id, t FROM facts, unnest(tags) u(t) WHERE t = 'dog'", [(4, "dog")]),
    ("SELECT list_transform([1, 2], lambda x: x * 2), [x + 1 FOR x IN [1, 2] IF x > 1]", [([2, 4], [3])]),
    ("SELECT len(tags), tags[1], list_contains(tags, 'tea'), tags || ['x'] FROM facts WHERE id = 1",
     [(2, "tea", True, ["tea", "food", "x"])]),
    ("SELECT about.who, about['in'][1].year FROM facts LIMIT 1", [("Anna", 2024)]),
    ("SELECT strftime(since, '%Y-%m'), date_trunc('month', since), since + INTERVAL 3 DAY FROM facts WHERE id = 1",
     [("2024-01", dt.datetime(2024, 1, 1, tzinfo=dt.UTC), NOON + dt.timedelta(days=3))]),
    ("SELECT extract(dow FROM since), since::DATE - DATE '2024-01-01', year(since) FROM facts WHERE id = 1",
     [(1, 14, 2024)]),
    ("SELECT date_diff('day', min(since), max(since)), last_day(DATE '2024-02-01') FROM facts",
     [(1, dt.date(2024, 2, 29))]),
    ("SELECT count(*) FROM facts WHERE since >= '2024-01-16'", [(1,)]),
    ("SELECT timezone('Asia/Tokyo', since)::VARCHAR FROM facts WHERE id = 1", [("2024-01-15 21:00:00",)]),
    ("SELECT -id, id % 2, id // 2, 2 ** 3, ~1, 1 << 2, NOT true, id BETWEEN 1 AND 2 FROM facts WHERE id = 1",
     [(-1, 1, 0, 8.0, -2, 4, False, True)]),
    ("SELECT TRY_CAST('x' AS INT), 1.50::DECIMAL(4, 2), coalesce(NULL, 2), nullif(1, 1), ifnull(NULL, 3)",
     [(None, decimal.Decimal("1.50"), 2, None, 3)]),
    ("SELECT upper('a'), substring('abc' FROM 2 FOR 1), position('b' IN 'abc'), trim(' a '), 'a' || 'b', 'abc'[2:]",
     [("A", "b", 2, "a", "ab", "bc")]),
    ("""SELECT '{"a": [1, 2]}'::JSON -> '$.a' ->> '$[1]', json_extract_string('{"b": "x"}', '$.b')""", [("2", "x")]),
    ("SELECT id FROM facts WHERE id IN (SELECT max(id) FROM facts) AND EXISTS (SELECT 1) AND id > ANY (SELECT 1)",
     [(4,)]),
    ("SELECT count(*) FROM facts o WHERE score = (SELECT max(score) FROM facts i WHERE i.subject = o.subject)", [(2,)]),
    ("SELECT subject, count(*) FROM facts GROUP BY ROLLUP (subject) ORDER BY ALL",
     [("anna", 2), ("bob", 2), (None, 4)]),
    ("SELECT * EXCLUDE (text, since, score, tags, about), COLUMNS('sub.*') FROM facts WHERE id = 1",
     [(1, "anna", "anna")]),
    ("SELECT DISTINCT ON (subject) subject, id FROM facts ORDER BY subject, id DESC", [("anna", 4), ("bob", 3)]),
    ("SELECT text COLLATE NOCASE FROM facts WHERE id = 1", [("Anna likes tea",)]),
    ("SELECT NULL, [], '\u200dé😀'", [(None, [], "\u200dé😀")]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "rows"), LEGITIMATE)
def test_typical_queries_are_answered(session: Session, statement: str, rows: list[tuple[Any, ...]]) -> None:
    answer = session.ask(statement)
    assert (answer.rows, answer.is_cut) == (rows, False)


def test_values_of_all_types_become_plain_python_values(session: Session) -> None:
    answer = session.ask(
        "SELECT TIMESTAMP '2024-01-15 12:00', TIMESTAMPTZ '2024-01-15 14:00+02', [TIMESTAMP '2024-01-15 12:00'], "
        "'infinity'::TIMESTAMPTZ, DATE '2024-01-15', '12000-01-01'::DATE, TIME '10:00', "
        "'1605f065-6eb7-4dc2-9aa7-6ef56fc3dc8b'::UUID, '\\x80'::BLOB, MAP {[1]: 2}, MAP {'a': 1}, {'a': {'b': [1]}}, "
        "(1, 'x'), INTERVAL 36 HOUR, 'nan'::DOUBLE, '-inf'::DOUBLE, 170141183460469231731687303715884105727::HUGEINT"
    )
    [row] = answer.rows
    assert row[:4] == (NOON, NOON, [NOON], dt.datetime.max.replace(tzinfo=dt.UTC))
    assert all(time.tzinfo is dt.UTC for time in (row[0], row[1], row[2][0], row[3]))
    assert row[4:9] == (
        dt.date(2024, 1, 15),
        "12000-01-01",
        "10:00:00",
        "1605f065-6eb7-4dc2-9aa7-6ef56fc3dc8b",
        b"\x80",
    )
    assert row[9:14] == (
        {"key": [[1]], "value": [2]}, {"a": 1}, {"a": {"b": [1]}}, (1, "x"), dt.timedelta(hours=36),
    )  # fmt: skip
    assert math.isnan(row[14])
    assert row[15:] == (-math.inf, 2**127 - 1)


def test_columns_may_share_a_name(session: Session) -> None:
    answer = session.ask('SELECT 1 AS a, 2 AS a, 3 AS "a\'b"')
    assert (answer.columns, answer.rows) == (("a", "a", "a'b"), [(1, 2, 3)])


def test_tables_may_have_unusual_column_names() -> None:
    columns = [pa.array([1]), pa.array([2]), pa.array([3]), pa.array(["x"]).dictionary_encode()]
    table = pa.Table.from_arrays(columns, names=["a", "a", 'say "so"\n', "order"])
    assert ask({"odd": table}, "SELECT * FROM odd").rows == [(1, 2, 3, "x")]
    assert ask(lambda: {"odd": table}, 'SELECT "order" FROM odd').rows == [("x",)]


def test_a_column_may_be_named_like_a_clock_function() -> None:
    table = pa.table({"user": ["anna"], "current_date": [1]})
    assert ask({"t": table}, "SELECT user, current_date FROM t").rows == [("anna", 1)]


@pytest.mark.parametrize("name", ["", "a b", "a.b", 'a"', "é", "1a", "a" * 65, None])
def test_an_invalid_table_name_is_refused(name: Any) -> None:
    with pytest.raises(InputError, match="letters, digits and _"):
        Session({name: FACTS})


@pytest.mark.parametrize("tables", [{"a": None}, {"a": pa.table({})}, {"a": [1]}, {"a": FACTS, "A": FACTS}])
def test_values_that_are_not_tables_are_refused(tables: Any) -> None:
    with pytest.raises(InputError, match=r"table '[aA]'"):
        Session(tables)


def test_the_number_of_rows_is_limited(session: Session) -> None:
    exactly = session.ask("SELECT * FROM range(5)", max_rows=5)
    assert (len(exactly.rows), exactly.is_cut) == (5, False)
    more = session.ask("SELECT * FROM range(1000000000000)", max_rows=5)
    assert (more.rows, more.is_cut) == ([(0,), (1,), (2,), (3,), (4,)], True)


def test_a_long_text_is_cut_and_marked(session: Session) -> None:
    answer = session.ask("SELECT repeat('é', 30000), 'short', {'a': [repeat('b', 20001)]}, repeat('c', 20000)")
    assert answer.rows == [("é" * 20_000 + "…", "short", {"a": ["b" * 20_000 + "…"]}, "c" * 20_000)]
    assert answer.is_cut


def test_the_size_of_an_answer_is_limited(session: Session) -> None:
    answer = session.ask("SELECT repeat('a', 19000) FROM range(1000)", max_rows=1000)
    assert (len(answer.rows), answer.is_cut) == (52, True)
    with pytest.raises(InputError, match="first row has more than 1,000,000 characters"):
        session.ask("SELECT list(i) FROM range(200000) r(i)")
    with pytest.raises(InputError, match="first row has more than 1,000,000 characters"):
        session.ask("SELECT " + ", ".join(f"repeat('a', 20000) c{number}" for number in range(60)))


#: Queries with their time limits. Those that exhaust memory need some time to reach the limit. The usual run has every
#: third.
ENDLESS = [
    *[
        (0.2, statement)
        for statement in [
            "SELECT count(*) FROM range(1000000) a(i), range(1000000) b(j) WHERE i + j = -1",
            "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
            "SELECT median(i) OVER (ORDER BY i ROWS UNBOUNDED PRECEDING) FROM range(20000000) r(i)",
            # These do not check for interrupts.
            "SELECT len(list_distinct(range(30000000)))",
            "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000))",
            "SELECT jaccard(repeat('a', 900000000), 'b')",
            "SELECT length(rpad('a', 1000000000, 'b'))",
            "SELECT len(range(TIMESTAMP '1000-01-01', TIMESTAMP '9000-01-01', INTERVAL 1 MICROSECOND))",
            # These keep the parser and the planner busy.
            "SELECT " + "(" * 19_000,
            "SELECT * FROM " + "(" * 6_000 + "facts" + ")" * 6_000,
            "WITH a0 AS NOT MATERIALIZED (SELECT 1 x), "
            + ", ".join(f"a{n} AS NOT MATERIALIZED (SELECT l.x FROM a{n - 1} l, a{n - 1} r)" for n in range(1, 25))
            + " SELECT count(*) FROM a24",
        ]
    ],
    *[
        (0.5, statement)
        for statement in [
            # These exhaust memory.
            "SELECT i FROM range(100000) r(i) ORDER BY repeat('a', (i + 9000000)::INT)",
            "SELECT list(repeat('a', 1000000)) FROM range(1000000)",
            "SELECT string_agg(repeat('a', 10000), '') FROM range(10000000)",
            "SELECT length(list_reduce(list_transform(range(40), lambda x: 'aaaa'), lambda a, b: a || a))",
            "SELECT format('{:1000000000}', 'a')",
            "SELECT regexp_replace(repeat('a', 1000000), 'a', repeat('b', 100000), 'g')",
            "SELECT count(*) FROM " + ", ".join(f"range(10000) t{number}" for number in range(12)),
        ]
    ],
]


@pytest.mark.parametrize(("seconds", "statement"), ENDLESS if IS_THOROUGH else ENDLESS[::3])
def test_the_time_and_memory_of_a_query_are_limited(session: Session, seconds: float, statement: str) -> None:
    started = time.monotonic()
    with pytest.raises(InputError, match=rf"took longer than {seconds} s|took more|Out of Range") as caught:
        session.ask(statement, max_seconds=seconds)
    assert time.monotonic() - started < 10
    assert len(str(caught.value)) < 500
    assert session.ask("SELECT count(*) FROM facts", max_seconds=30).rows == [(4,)]


@pytest.mark.parametrize("nested", ["NOT ", "- ", "[", "(SELECT ", "abs(", "CASE WHEN 1 THEN ", "{'a': ", "1 + "])
def test_deep_nesting_does_not_break_the_session(session: Session, nested: str) -> None:
    for depth in (240, 1_200):
        try:
            answer = session.ask("SELECT * FROM facts WHERE " + nested * depth + "1", max_seconds=5)
        except InputError:
            continue
        assert answer.columns
    assert session.ask("SELECT 1").rows == [(1,)]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.lists(
        st.one_of(
            st.sampled_from(
                "SELECT FROM WHERE facts id ( ) , * ; ' \" -- /* */ $$ $a$ read_text query '/etc/passwd' WITH AS x . "
                ":: UNION JOIN INTO COPY TO SET PRAGMA [ ] { } lambda : -> ? $1 AT VALUES LIMIT duckdb_settings() IN "
                "range(9) unnest([1])".split()
            ),
            st.text(max_size=3),
        ),
        max_size=25,
    ).map(" ".join)
)
def test_any_text_is_answered_or_refused(session: Session, text: str) -> None:
    try:
        said = str(answer := session.ask(text, max_rows=3, max_seconds=10))
    except InputError as error:
        said = str(error)
    else:
        assert len(answer.rows) <= 3
    assert "root:" not in said


def test_threads_may_share_a_session(session: Session) -> None:
    def asked(number: int) -> list[tuple[Any, ...]]:
        if number % 4 == 3:
            with pytest.raises(InputError):
                session.ask(f"SELECT nothing{number} FROM facts")
        return session.ask(f"SELECT {number}, count(*) FROM facts", max_seconds=30).rows

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(asked, range(80))) == [[(number, 4)] for number in range(80)]


def test_many_sessions_run_concurrently() -> None:
    def asked(number: int) -> list[tuple[Any, ...]]:
        return ask({"own": pa.table({"n": [number]})}, "SELECT n FROM own", max_seconds=30).rows

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(asked, range(4))) == [[(number,)] for number in range(4)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_sessions_leave_no_files_threads_or_processes() -> None:
    ask({"facts": FACTS}, "SELECT 1")
    gc.collect()
    files, threads = open_files(), threading.active_count()
    processes = []
    for number in range(2):
        session = Session({"facts": FACTS})
        session.ask("SELECT 1")
        processes.append(door_process(session))
        if number % 2:
            session.close()
        del session
    gc.collect()
    assert (open_files(), threading.active_count()) == (files, threads)
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]


def test_a_killed_process_is_restarted() -> None:
    with closing(Session({"facts": FACTS})) as session:
        session.ask("SELECT 1")
        os.kill(door_process(session), signal.SIGKILL)
        time.sleep(0.2)
        assert session.ask("SELECT count(*) FROM facts").rows == [(4,)]


def test_a_closed_session_reports_that_it_is_closed() -> None:
    session = Session({"facts": FACTS})
    session.close()
    session.close()
    with pytest.raises(LakeError, match="closed"):
        session.ask("SELECT 1")


class Bad:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.getenv, ("HOME",)


def test_only_plain_values_are_unpickled() -> None:
    import io

    values = (
        True,
        ("a",),
        [(NOON, dt.date(2024, 1, 1), dt.timedelta(1), decimal.Decimal(1), None, b"x", {"a": [1.5]})],
    )
    assert door._Unpickler(io.BytesIO(pickle.dumps(values))).load() == values
    with pytest.raises(pickle.UnpicklingError, match="not a plain value"):
        door._Unpickler(io.BytesIO(pickle.dumps((True, Bad())))).load()


def test_the_session_of_the_warehouse_is_in_utc_and_sees_no_variables() -> None:
    import duckdb

    facts = FACTS
    assert facts.num_rows
    connection = connect()
    assert connection.execute("SELECT TIMESTAMPTZ '2024-01-15 12:00+00'::VARCHAR").fetchall() == [
        ("2024-01-15 12:00:00+00",)
    ]
    with pytest.raises(duckdb.CatalogException):
        connection.execute("SELECT * FROM facts")
