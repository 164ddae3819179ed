"""Large partitions are made share by share: what comes of it is what one piece would have been."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import CommitConflictError, LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.lake.tables.partitions import PartialUpdate, StreamingWrite
from memory_pipeline.steps import batches
from memory_pipeline.steps import materialize as steps
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import RowDigests
from memory_pipeline.steps.shares import EVERYBODY, Share, cut
from memory_pipeline_tests.building import conversation, hours, versions, write
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline.steps.results import PartitionResult
    from memory_pipeline_tests.conftest import SharedFolder

HOUR = hours("2024-01-15T08")[0]
DAY = Period(Grain.DAILY, "2024-01-15")
AGENTS = [Scope(workspace, f"agent-{number}") for workspace in ("acme", "beta") for number in range(3)]


def talks() -> list[dict[str, Any]]:
    texts = ("I moved from Leeds to Porto.", "Please always answer in French.", "Anna is allergic to walnuts.")
    return [conversation(*texts, scope=scope, conversation_id=f"c-{scope.agent_id}") for scope in AGENTS]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a share take an agent or two."""
    monkeypatch.setattr(batches, "_SHARE_BYTES", 2_500)
    monkeypatch.setattr(batches, "_ROW_BYTES", 250)


@pytest.fixture(scope="module")
def hour_once(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake of which the hour was made in one piece, and nothing else. It is only read."""

    def fill(path: Path) -> None:
        lake = Lake(str(path))
        write(lake, *talks())
        list(materialize(lake, models, Grain.WORKING, [HOUR]))

    return shared_folder("shares-hour", fill)


@pytest.fixture
def hour(hour_once: Path, root: str) -> Lake:
    """A copy of it, the test's own."""
    return Lake(shutil.copytree(hour_once, root))


def make_all(lake: Lake, models: Models) -> list[PartitionResult]:
    return [*materialize(lake, models, Grain.WORKING, [HOUR]), *materialize(lake, models, Grain.DAILY, [DAY])]


def told(made: list[PartitionResult]) -> list[tuple[object, ...]]:
    """Return what does not depend on files and seconds."""
    return [
        (
            *(part.asset, part.period, part.input_digest, part.output_digest, part.rows, part.agents, part.messages),
            *(part.changed, part.unfinished, part.refused, part.expired, part.forgotten, part.compression),
        )
        for part in made
    ]


def shares_in(lake: Lake, grain: Grain, period: Period) -> int:
    weights = batches.weights_of(lake, grain, [period])
    return len(batches.shares_of(lake, weights, grain, [period]))


def test_shares_cover_everybody_once() -> None:
    weights = {scope: 1 + number % 3 for number, scope in enumerate(AGENTS)}
    shares = cut(weights, 3)
    assert len(shares) > 2
    strangers = [Scope("aaa", "z"), Scope("acme", "agent-1x"), Scope("zeta", "a")]
    for scope in [*AGENTS, *strangers]:
        assert sum(scope in share for share in shares) == 1
    assert all(sum(weights[scope] for scope in share.of(AGENTS)) <= 3 for share in shares)
    assert sum(weights.values()) > 3 * (len(shares) - 2), "shares are filled"


def test_a_share_selects_the_rows_of_its_agents() -> None:
    rows = pa.table({"scope": [scope.key for scope in AGENTS]})
    first, last = sorted(scope.key for scope in AGENTS)[1:5:3]
    for share in [EVERYBODY, *cut(dict.fromkeys(AGENTS, 1), 2), Share(first, last)]:
        found = rows if share.where is None else rows.filter(share.where)
        assert set(found["scope"].to_pylist()) == {scope.key for scope in share.of(AGENTS)}


def test_an_agent_that_is_too_large_stands_alone() -> None:
    in_order = sorted(AGENTS, key=lambda scope: scope.key)
    shares = cut(dict(zip(in_order, (1, 9, 1, 1, 9, 1), strict=True)), 3)
    assert [len(share.of(AGENTS)) for share in shares] == [1, 1, 2, 1, 1]


@pytest.mark.parametrize("count", [0, 1, 7, 25_000])
def test_digests_come_to_what_one_list_of_them_does(count: int) -> None:
    source = random.Random(count)
    digests = [f'{source.getrandbits(64):016x}/é"\\{number % 3}' for number in range(count)]
    pieces = [RowDigests(digests[start::3]) for start in range(3)]
    assert sum(pieces, RowDigests()).combined == digest_of_all(digests)


@pytest.mark.usefixtures("small")
def test_a_large_hour_and_its_day_are_what_one_piece_would_be(
    tmp_path: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_up, whole = Lake(str(tmp_path / "cut")), Lake(str(tmp_path / "whole"))
    for lake in (cut_up, whole):
        write(lake, *talks())
    assert shares_in(cut_up, Grain.WORKING, HOUR) > 2
    first = make_all(cut_up, models)
    assert shares_in(cut_up, Grain.DAILY, DAY) > 2
    versions_before = versions(cut_up)
    again = make_all(cut_up, models)
    assert versions(cut_up) == versions_before, "nothing has changed, so nothing is written"
    monkeypatch.setattr(batches, "_SHARE_BYTES", 10**9)
    assert told(first) == told(make_all(whole, models))
    assert told(again) == told(make_all(whole, models))
    assert not cut_up.journal.pending()
    assert differing(lake_digest(cut_up), lake_digest(whole)) == []
    for spec in (MESSAGES, FACTS):  # one commit, beside the one that makes the table
        assert cut_up.tables.version(spec) == whole.tables.version(spec) == 1


@pytest.mark.usefixtures("small")
def test_late_messages_of_one_share_leave_the_others_as_they_are(hour: Lake, models: Models) -> None:
    before = hour.tables.read(FACTS)
    late = conversation("I sold the violin.", at="2024-01-15T08:40", scope=AGENTS[4], conversation_id="late")
    write(hour, late)
    assert shares_in(hour, Grain.WORKING, HOUR) > 2
    list(materialize(hour, models, Grain.WORKING, [HOUR]))
    after = hour.tables.read(FACTS)
    new = set(after["id"].to_pylist()) - set(before["id"].to_pylist())
    assert after.num_rows == before.num_rows + len(new)
    assert {row["agent_id"] for row in after.to_pylist() if row["id"] in new} == {AGENTS[4].agent_id}


@pytest.mark.usefixtures("small")
def test_what_was_cut_short_at_one_stage_after_the_other_is_made_by_the_next_run(
    lake: Lake, hour_once: Path, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, *talks())
    for stage in ("extract_facts", "fold_graph", "fold_memories", "index_periods", "acknowledge"):

        def failing(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(steps, stage, failing)
            with pytest.raises(KeyboardInterrupt):
                list(materialize(lake, models, Grain.WORKING, [HOUR]))
        assert lake.journal.pending(), stage
    list(materialize(lake, models, Grain.WORKING, [HOUR]))
    assert differing(lake_digest(lake), lake_digest(Lake(str(hour_once)))) == []


def parts_of(conditions: list[Share], change: Any) -> PartialUpdate:
    return PartialUpdate([share.where for share in conditions if share.where is not None], change)


def test_a_rival_that_comes_first_has_all_parts_made_again(hour: Lake) -> None:
    lake = hour
    shares = cut(dict.fromkeys(AGENTS, 1), 2)
    rival = Lake(lake.storage.uri)
    seen: list[int] = []

    def shouted(number: int, old: pa.Table) -> pa.Table:
        seen.append(number)
        if len(seen) == 2:
            rival.tables.transform(MESSAGES, [HOUR.key], lambda rows: rows.slice(1))
        return old.set_column(old.schema.get_field_index("content"), old.schema.field("content"), old["source_id"])

    before = lake.tables.read(MESSAGES)
    assert lake.tables.transform_parts(MESSAGES, [HOUR.key], parts_of(shares, shouted)) == {HOUR.key}
    assert seen == [0, 1, 2, 0, 1, 2]
    rows = lake.tables.read(MESSAGES)
    assert rows.num_rows == before.num_rows - 1, "what the rival took away stays away"
    assert rows["content"].to_pylist() == rows["source_id"].to_pylist()


def test_a_part_that_fails_writes_nothing(hour: Lake) -> None:
    lake = hour
    before = lake.tables.version(MESSAGES)

    def failing(number: int, old: pa.Table) -> pa.Table:
        if number:
            raise CommitConflictError("the second part cannot be made")
        return old.slice(0, 0)

    with pytest.raises(CommitConflictError, match="second part"):
        lake.tables.transform_parts(MESSAGES, [HOUR.key], parts_of(cut(dict.fromkeys(AGENTS, 1), 2), failing))
    assert lake.tables.version(MESSAGES) == before


def test_a_disk_that_takes_no_more_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        closed = False

        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            pass

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Full())
    rows = pa.table({"period": [HOUR.key]})
    with (
        pytest.raises(LakeError, match=r"messages.*No space left.*TMPDIR"),
        StreamingWrite(MESSAGES, rows.schema) as spool,
    ):
        spool.add(rows)
