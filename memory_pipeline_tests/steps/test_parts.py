"""Large periods are processed and stored shard by shard. The result is that of a period processed at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure.forget import forget
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.layout import shard_of
from memory_pipeline.lake.schemas import EXPIRATIONS, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables import tables as delta
from memory_pipeline.steps import batches, extract
from memory_pipeline.steps import materialize as steps
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import RowDigests
from memory_pipeline_tests.building import NOW, conversation, hours, versions, write
from memory_pipeline_tests.lake_digest import differing, lake_digest
from memory_pipeline_tests.steps.test_graph import at_once

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.results import PartitionResult
    from memory_pipeline_tests.conftest import SharedFolder

HOUR = hours("2024-01-15T08")[0]
DAY = Period(Grain.DAILY, "2024-01-15")
AGENTS = [Scope(workspace, f"agent-{number}") for workspace in ("acme", "beta") for number in range(3)]
OF_HOURS = (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS)


def talks() -> list[dict[str, Any]]:
    texts = ("I moved from Leeds to Porto.", "Please always answer in French.", "Anna is allergic to walnuts.")
    return [conversation(*texts, scope=scope, conversation_id=f"c-{scope.agent_id}") for scope in AGENTS]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every period for a large one, and extract few messages at a time."""
    monkeypatch.setattr(batches, "_LARGE_BYTES", 0)
    monkeypatch.setattr(extract, "_MESSAGES_AT_ONCE", 4)


@pytest.fixture(scope="module")
def hour_once(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake with the hour, processed at once. It is only read."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, *talks())
        list(materialize(lake, models, Grain.WORKING, [HOUR]))

    return shared_folder("parts-hour", fill)


@pytest.fixture
def hour(hour_once: Path, root: str) -> Lake:
    """A copy of it, the test's own."""
    return Lake(shutil.copytree(hour_once, root))


@pytest.fixture
def by_shard(large: None, shared_folder: SharedFolder, models: Models, root: str) -> Lake:
    """A copy of a lake whose hour and day were processed shard by shard."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, *talks())
        run(lake, models)

    return Lake(shutil.copytree(shared_folder("parts-by-shard", fill), root))


def run(lake: Lake, models: Models) -> list[PartitionResult]:
    return [*materialize(lake, models, Grain.WORKING, [HOUR]), *materialize(lake, models, Grain.DAILY, [DAY])]


def comparable(results: list[PartitionResult]) -> list[tuple[object, ...]]:
    """Return what does not depend on files and seconds."""
    return [
        (
            *(part.asset, part.period, part.input_digest, part.output_digest, part.rows, part.agents, part.messages),
            *(part.changed, part.unfinished, part.refused, part.expired, part.forgotten, part.tokens),
        )
        for part in results
    ]


def parts(lake: Lake, spec: Any) -> dict[str, str]:
    """Return the part of each file."""
    paths = lake.tables.state(spec, lake.tables.keys(spec))
    return {path: path.split("part=")[1].split("/")[0] for path in paths}


def scopes_of(lake: Lake, spec: Any, part: str) -> set[int]:
    """Return the shards of the rows of a part."""
    files = [path for path, own in parts(lake, spec).items() if own == part]
    root = lake.storage.file_path(f"tables/{spec.name}")
    keys = [key for path in files for key in pq.read_table(f"{root}/{path}", columns=["scope"])["scope"].to_pylist()]
    return {shard_of(key, lake.shards) for key in keys}


def test_digests_of_parts_add_up() -> None:
    digests = [f"{number:016x}/é{number % 3}" for number in range(1_000)]
    pieces = [RowDigests(digests[start::3]) for start in range(3)]
    assert sum(pieces, RowDigests()).combined == RowDigests(reversed(digests)).combined
    assert RowDigests.of(*(piece.combined for piece in pieces)).combined == RowDigests(digests).combined
    assert RowDigests([*digests, digests[0]]).combined != RowDigests(digests).combined


@pytest.mark.usefixtures("large")
def test_large_periods_have_the_rows_of_periods_processed_at_once(
    tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_shard, whole = Lake(str(tmp_path / "shards")), Lake(str(tmp_path / "whole"))
    for lake in (by_shard, whole):
        write(lake, *talks())
    first = run(by_shard, models)
    before = versions(by_shard)
    again = run(by_shard, models)
    assert versions(by_shard) == before, "nothing has changed, so nothing is written"
    monkeypatch.setattr(batches, "_LARGE_BYTES", 10**9)
    assert comparable(first) == comparable(run(whole, models))
    assert comparable(again) == comparable(run(whole, models))
    assert not by_shard.journal.pending()
    assert differing(lake_digest(by_shard), lake_digest(whole)) == []
    for spec in (*OF_HOURS, SUMMARIES):
        assert set(parts(whole, spec).values()) == {"all"}
        found = set(parts(by_shard, spec).values())
        assert found == {f"{shard_of(scope.key, 16):03d}" for scope in AGENTS}
        assert all(scopes_of(by_shard, spec, part) == {int(part)} for part in found)


def processed_shards(monkeypatch: pytest.MonkeyPatch, step: str) -> list[int]:
    """Return a list to which a step adds each shard that it processes."""
    shards: list[int] = []
    original = getattr(steps, step)

    def noted(*given: Any, **named: Any) -> Any:
        shards.append(given[-1])
        return original(*given, **named)

    monkeypatch.setattr(steps, step, noted)
    return shards


def test_late_messages_have_one_shard_processed(
    by_shard: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = by_shard
    hourly, daily = (processed_shards(monkeypatch, step) for step in ("extract_facts", "summarize_periods"))
    write(lake, conversation("I sold the violin.", at="2024-01-15T08:40", scope=AGENTS[4], conversation_id="late"))
    late = run(lake, models)
    assert hourly == daily == [shard_of(AGENTS[4].key, lake.shards)]
    assert all(part.changed for part in late if part.asset in ("messages", "working_facts", "daily_summaries"))
    assert [entry.input_digest for entry in lake.ledger.entries("daily_summaries").values()] == [
        entry.output_digest for entry in lake.ledger.entries("working_facts").values()
    ]
    hourly.clear()
    verified = run(lake, models)
    assert hourly == list(range(16)), "a run without new data checks all shards"
    assert [(part.rows, part.output_digest, part.tokens) for part in verified] == [
        (part.rows, part.output_digest, part.tokens) for part in late
    ]


@pytest.mark.parametrize("change", ["configuration", "tombstone", "expiration", "rows", "cache"])
def test_shards_are_processed_again_if_anything_they_depend_on_changed(
    by_shard: Lake, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    lake = by_shard
    write(lake, conversation("I sold the violin.", at="2024-01-15T08:40", scope=AGENTS[4], conversation_id="late"))
    expected = set(range(16))
    if change == "configuration":
        (tmp_path / "workspaces.yaml").write_text("defaults: {memories: {hot_entries: 7}}")
        lake.put_configuration(tmp_path / "workspaces.yaml")
    elif change == "tombstone":
        # The erasure has processed all shards since its tombstone; the late message is of another agent.
        forget(lake, models, Subject.conversation(AGENTS[0], "c-agent-0"), NOW.replace(year=2024, day=17))
        expected = {shard_of(AGENTS[4].key, lake.shards)}
    elif change == "expiration":
        rows = [{"workspace_id": "acme", "agent_id": "other", "kept": "daily", "through": "2023-01-01", "at": NOW}]
        lake.tables.replace(EXPIRATIONS, ["daily"], pa.Table.from_pylist(rows, EXPIRATIONS.schema))
    elif change == "rows":
        shard = shard_of(AGENTS[1].key, lake.shards)
        lake.tables.transform(FACTS, [HOUR.key], lambda old: old.slice(1), shard=shard)
        expected = {shard, shard_of(AGENTS[4].key, lake.shards)}
    else:
        lake.storage.write(f"state/shards/working/{HOUR.key}.json", b"{broken")
    shards = processed_shards(monkeypatch, "extract_facts")
    list(materialize(lake, models, Grain.WORKING, [HOUR]))
    assert set(shards) == expected


def test_late_messages_in_a_large_hour_replace_the_files_of_one_shard(
    hour: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_LARGE_BYTES", 0)
    write(hour, conversation("I sold the violin.", at="2024-01-15T08:40", scope=AGENTS[4], conversation_id="late"))
    run(hour, models)
    assert "all" not in parts(hour, FACTS).values(), "the first write by shard divides the file"
    before, rows = parts(hour, FACTS), hour.tables.read(FACTS)
    write(hour, conversation("I sold the cello.", at="2024-01-15T08:50", scope=AGENTS[4], conversation_id="later"))
    run(hour, models)
    new = {path: part for path, part in parts(hour, FACTS).items() if path not in before}
    assert set(new.values()) == {f"{shard_of(AGENTS[4].key, 16):03d}"}
    added = hour.tables.read(FACTS).filter(~pc.field("id").isin(rows["id"].combine_chunks()))
    assert set(added["agent_id"].to_pylist()) == {AGENTS[4].agent_id}
    assert hour.tables.read(FACTS).num_rows == rows.num_rows + added.num_rows


@pytest.mark.usefixtures("large")
def test_a_run_that_was_interrupted_in_any_step_is_completed_by_the_next(
    lake: Lake, hour_once: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, *talks())
    for number, step in enumerate(("extract_facts", "fold_graph", "fold_memories", "index_periods", "acknowledge")):
        original, calls = getattr(steps, step), iter(range(100))

        def failing(*given: Any, original: Any = original, calls: Any = calls, last: int = number, **named: Any) -> Any:
            if next(calls) >= last:
                raise KeyboardInterrupt
            return original(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(steps, step, failing)
            with pytest.raises(KeyboardInterrupt):
                list(materialize(lake, models, Grain.WORKING, [HOUR]))
        assert lake.journal.pending(), step
    list(materialize(lake, models, Grain.WORKING, [HOUR]))
    assert differing(lake_digest(lake), lake_digest(Lake(str(hour_once)))) == []


def test_runs_at_once_by_shard_and_as_a_whole_give_the_same_rows(
    root: str, hour_once: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(root)
    write(lake, *talks())
    real = batches.shards_of
    turns = iter(range(1_000_000))

    def alternately(lake: Lake, *_: Any) -> Any:
        return range(lake.shards) if next(turns) % 2 else (None,)

    monkeypatch.setattr(steps, "shards_of", alternately)
    at_once(*(lambda: list(materialize(Lake(root), models, Grain.WORKING, [HOUR])) for _ in range(2)))
    monkeypatch.setattr(steps, "shards_of", real)
    list(materialize(lake, models, Grain.WORKING, [HOUR]))
    assert differing(lake_digest(lake), lake_digest(Lake(str(hour_once)))) == []


# --- tables ----------------------------------------------------------------------------------------------------------


def of(shard: int) -> Any:
    return pc.field("scope").isin([scope.key for scope in AGENTS if shard_of(scope.key, 16) == shard])


def test_a_change_of_a_shard_gets_its_rows_and_leaves_those_of_others(hour: Lake) -> None:
    before = hour.tables.read(MESSAGES)
    shard, other = (shard_of(AGENTS[number].key, hour.shards) for number in (0, 1))
    own = before.filter(of(shard))
    given: list[pa.Table] = []

    def shortened(old: pa.Table) -> pa.Table:
        given.append(old)
        return old.slice(1)

    for number in range(own.num_rows + 2):
        hour.tables.transform(MESSAGES, [HOUR.key], shortened, shard=shard)
        assert given[-1].equals(own.slice(number))
        rows = hour.tables.read(MESSAGES)
        assert rows.filter(of(shard)).num_rows == max(0, own.num_rows - number - 1)
        assert rows.filter(~of(shard)).num_rows == before.filter(~of(shard)).num_rows
    assert hour.tables.read(MESSAGES, shard=shard).num_rows == 0
    assert hour.tables.read(MESSAGES, shard=other).equals(before.filter(of(other)))


def test_a_whole_partition_replaces_its_parts(hour: Lake) -> None:
    rows = hour.tables.read(MESSAGES)
    hour.tables.transform(MESSAGES, [HOUR.key], lambda old: old.slice(1), shard=shard_of(AGENTS[0].key, hour.shards))
    assert "all" not in parts(hour, MESSAGES).values()
    hour.tables.replace(MESSAGES, [HOUR.key], rows)
    assert set(parts(hour, MESSAGES).values()) == {"all"}
    assert hour.tables.read(MESSAGES).num_rows == rows.num_rows


def test_many_rows_are_stored_by_shard(hour: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "LARGE_FROM", 5)
    rows = hour.tables.read(MESSAGES)
    hour.tables.replace(MESSAGES, [HOUR.key], rows.slice(1))
    assert len(set(parts(hour, MESSAGES).values()) - {"all"}) == len({shard_of(scope.key, 16) for scope in AGENTS})


def test_concurrent_writes_of_shards_lose_nothing(hour: Lake) -> None:
    rows = hour.tables.read(MESSAGES)
    shards = sorted({shard_of(scope.key, hour.shards) for scope in AGENTS})

    def drop_first(shard: int) -> None:
        own = Lake(hour.storage.uri)
        for _ in range(2):
            own.tables.transform(MESSAGES, [HOUR.key], lambda old: old.slice(1), shard=shard)

    at_once(*(lambda shard=shard: drop_first(shard) for shard in shards))
    left = Lake(hour.storage.uri).tables.read(MESSAGES)
    assert left.num_rows == rows.num_rows - 2 * len(shards)
    assert len(set(left["id"].to_pylist())) == left.num_rows


def damage(lake: Lake, paths: list[str]) -> Lake:
    for path in paths:
        (Path(lake.storage.uri) / "tables" / "messages" / path).write_bytes(b"damaged")
    return Lake(lake.storage.uri)


def test_a_read_of_scopes_opens_only_the_part_with_their_rows(hour: Lake) -> None:
    rows = hour.tables.read(MESSAGES)
    scope = AGENTS[0].key
    hour.tables.transform(MESSAGES, [HOUR.key], lambda old: old.slice(1), shard=shard_of(scope, hour.shards))
    own = hour.tables.read(MESSAGES, scopes=[scope])
    assert own.equals(hour.tables.read(MESSAGES, where=pc.field("scope") == scope))
    assert 0 < own.num_rows < rows.num_rows
    assert hour.tables.read(MESSAGES, scopes=[one.key for one in AGENTS]).num_rows == rows.num_rows - 1
    assert hour.tables.read(MESSAGES, scopes=[scope], where=pc.field("turn") < 0).num_rows == 0
    part = f"{shard_of(scope, hour.shards):03d}"
    damaged = damage(hour, [path for path, found in parts(hour, MESSAGES).items() if found != part])
    assert damaged.tables.read(MESSAGES, scopes=[scope], columns=["id"])["id"].equals(own["id"])
    with pytest.raises(DamagedError):
        damaged.tables.read(MESSAGES)


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_read_of_scopes_opens_no_file_with_other_scopes_only(hour: Lake, rewritten: bool) -> None:
    first, *others = sorted(scope.key for scope in AGENTS)
    rows = hour.tables.read(MESSAGES)
    if rewritten:
        hour.tables.drop_rows(MESSAGES, None, lambda old: pc.equal(old["scope"], first), ["scope"])
    else:
        hour.tables.replace(MESSAGES, [HOUR.key], rows.filter(pc.field("scope") != first))
    other = hours("2024-01-15T09")[0]
    place = rows.schema.get_field_index("period")
    later = rows.set_column(place, rows.schema.field(place), pa.repeat(other.key, rows.num_rows))
    hour.tables.replace(MESSAGES, [other.key], later)
    assert set(hour.tables.read(MESSAGES, scopes=[first])["period"].to_pylist()) == {other.key}
    assert set(hour.tables.read(MESSAGES, scopes=others)["period"].to_pylist()) == {HOUR.key, other.key}
    damaged = damage(hour, [path for path in parts(hour, MESSAGES) if HOUR.key in path])
    assert damaged.tables.read(MESSAGES, scopes=[first]).num_rows == rows.filter(pc.field("scope") == first).num_rows
    with pytest.raises(DamagedError):
        damaged.tables.read(MESSAGES, scopes=others[:1])


def test_the_log_has_the_range_of_scopes_and_times_of_each_file(hour: Lake) -> None:
    from deltalake import DeltaTable

    for spec, time in ((MESSAGES, "sent_at"), (FACTS, "event_at"), (MEMORY_EVENTS, "event_at")):
        [file] = pa.table(
            DeltaTable(hour.storage.locate(f"tables/{spec.name}")).get_add_actions(flatten=True)
        ).to_pylist()
        rows = hour.tables.read(spec)
        for column in ("scope", time):
            found = pc.min_max(rows[column]).as_py()
            assert (file[f"min.{column}"], file[f"max.{column}"]) == (found["min"], found["max"])
        assert not any(name.startswith("min.") and "content" in name for name in file), "no words in the log"
