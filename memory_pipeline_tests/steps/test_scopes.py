"""The projection of scopes: runs, concurrent runs, kills, lost tables, erasure and retention."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure.forget import forget
from memory_pipeline.lake import Lake
from memory_pipeline.lake.journal import Journal
from memory_pipeline.lake.layout import SHARDS, shard_of
from memory_pipeline.lake.schemas import FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES, SUMMARIES
from memory_pipeline.lake.tables.tombstones import raise_marks
from memory_pipeline.steps import scopes
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.repair import find_damage, repair
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.scopes import drop_expired_scopes, enter_scopes, known_scopes
from memory_pipeline_tests.building import ACME, NOW, conversation, hours, run, table_rows, versions, write
from memory_pipeline_tests.domain.memories.histories import remember
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.erasure.lakes import edit

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

SALES = Scope("acme", "sales")
ELSEWHERE = Scope("other", "support")
#: Another scope of the same shard.
NEIGHBOUR = next(
    scope
    for number in range(1_000)
    for scope in [Scope("acme", f"agent-{number}")]
    if shard_of(scope.key, SHARDS) == shard_of(ACME.key, SHARDS)
)


#: A time after all that the lakes here are told.
AT = datetime(2024, 3, 4, tzinfo=UTC)


def run_hours(lake: Lake, models: Models) -> None:
    list(materialize(lake, models, Grain.WORKING, lake.journal.pending_hours()))


def times(lake: Lake) -> dict[str, tuple[str, str]]:
    """Return the first and last time of each agent, to the minute."""
    rows = lake.scopes.scan().to_pylist()
    assert all(row["id"] == row["scope"] == Scope(row["workspace_id"], row["agent_id"]).key for row in rows)
    return {row["agent_id"]: (f"{row['first_at']:%m-%dT%H:%M}", f"{row['last_at']:%m-%dT%H:%M}") for row in rows}


def test_a_run_lists_scopes_with_their_first_and_last_activity(lake: Lake, models: Models) -> None:
    write(lake, conversation("Hello.", "I like tea."), conversation("Hi.", scope=NEIGHBOUR, role="assistant"))
    run_hours(lake, models)
    assert times(lake) == {
        "support": ("01-15T08:00", "01-15T08:01"),
        NEIGHBOUR.agent_id: ("01-15T08:00", "01-15T08:00"),
    }
    before = versions(lake)["scopes"]
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T08")))
    enter_scopes(lake, hours("2024-01-15T08"))
    assert versions(lake)["scopes"] == before
    write(lake, conversation("Good morning.", at="2024-01-10T07:00", conversation_id="c2"))
    lake.journal.append([edit("Anna", "figs", at="2024-02-01T09:30")])
    lake.journal.append([remember("Bo likes figs.", scope=SALES)])
    lake.journal.append([remember("Bo likes tea.", scope=ELSEWHERE)])
    run_hours(lake, models)
    assert times(lake)["support"] == ("01-10T07:00", "02-01T09:30")
    assert known_scopes(lake) == {ACME, NEIGHBOUR, SALES, ELSEWHERE}
    assert known_scopes(lake, "other") == {ELSEWHERE}


def test_scopes_are_committed_before_the_journal_is_acknowledged(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, conversation("Hello."))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(scopes, "_changed", killed)
        with pytest.raises(KeyboardInterrupt):
            run_hours(lake, models)
    assert known_scopes(lake) == set()
    assert lake.journal.pending_scopes() == {ACME}
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "acknowledge", killed)
        with pytest.raises(KeyboardInterrupt):
            run_hours(lake, models)
    assert known_scopes(lake) == {ACME}
    run_hours(lake, models)
    assert (known_scopes(lake), lake.journal.pending()) == ({ACME}, [])


def test_concurrent_runs_lose_no_activity(lake: Lake, models: Models) -> None:
    days = range(10, 18)
    write(lake, *(conversation("Hello.", at=f"2024-01-{day}T08:00", conversation_id=f"c{day}") for day in days))
    run_hours(lake, models)
    expected = table_rows(lake)["scopes"]
    for attempt in range(3):
        lake.scopes.delete(f"scope = '{ACME.key}'")
        lakes = [Lake(lake.storage.uri) for _ in days]
        with ThreadPoolExecutor(len(lakes)) as pool:
            list(pool.map(lambda one, day: enter_scopes(one, hours(f"2024-01-{day}T08")), lakes, days))
        assert table_rows(lake)["scopes"] == expected, attempt


def spoilt(lake: Lake) -> Lake:
    [name] = lake.scopes.roster.present()
    for path in Path(lake.storage.uri, "projections", f"{name}.lance", "data").iterdir():
        path.write_bytes(b"")
    return Lake(lake.storage.uri)


def lost(lake: Lake) -> Lake:
    [name] = lake.scopes.roster.present()
    shutil.rmtree(Path(lake.storage.uri, "projections", f"{name}.lance"))
    return Lake(lake.storage.uri)


MENDS = ("a run of another hour", "repair", "the start of a run")


@pytest.mark.parametrize(
    ("spoil", "mend"),
    list(product((lost, spoilt), MENDS)) if IS_THOROUGH else list(zip((lost, spoilt, lost), MENDS, strict=True)),
)
def test_a_lost_or_damaged_table_is_rebuilt_from_the_records(lake: Lake, models: Models, spoil: Any, mend: str) -> None:
    write(lake, conversation("Hello."), conversation("I like tea.", at="2024-01-16T08:00", conversation_id="c2"))
    write(lake, conversation("Hi.", scope=NEIGHBOUR))
    run_hours(lake, models)
    expected = table_rows(lake)["scopes"]
    lake = spoil(lake)
    if mend == "repair":
        assert [damage.kind for damage in find_damage(lake)] == ["projection"]
        assert repair(lake, models, find_damage(lake)) == []
    elif mend == "the start of a run":
        assert len(restore_projections(lake, models.embedder, thoroughly=True)) == 1
        assert restore_projections(lake, models.embedder, thoroughly=True) == []
    else:
        list(materialize(lake, models, Grain.WORKING, hours("2024-01-16T08")))
    assert table_rows(lake)["scopes"] == expected


def test_scopes_are_rebuilt_from_what_outlives_the_messages(lake: Lake, models: Models) -> None:
    write(lake, conversation("I moved to Porto."), conversation("Hi.", at="2024-01-16T08:00", conversation_id="c2"))
    run(lake, models)
    expected = table_rows(lake)["scopes"]
    for spec in (MESSAGES, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS):
        lake.tables.remove(spec, None)
    assert restore_projections(lost(lake), models.embedder) == sorted(lake.scopes.roster.tables())
    assert table_rows(lake)["scopes"] == expected
    for grain in ("daily", "weekly", "monthly", "quarterly", "yearly"):
        lake.tables.remove(SUMMARIES, None, grain=grain)
    restore_projections(lost(lake), models.embedder)
    assert known_scopes(lake) == set()


def test_erasure_removes_a_scope_or_recomputes_it(lake: Lake, models: Models) -> None:
    write(
        lake,
        conversation("Hello."),
        conversation("I like figs.", at="2024-02-16T08:00", conversation_id="c2"),
        conversation("I like tea.", at="2024-01-20T08:00", conversation_id="c3"),
        conversation("Hi.", scope=NEIGHBOUR),
    )
    run(lake, models, AT)
    forget(lake, models, Subject.conversation(ACME, "c2"), AT)
    assert times(lake)["support"] == ("01-15T08:00", "01-20T08:00")
    forget(lake, models, Subject.agent(ACME), datetime(2024, 1, 18, tzinfo=UTC))
    assert times(lake)["support"] == ("01-20T08:00", "01-20T08:00")
    forget(lake, models, Subject.agent(ACME), AT)
    assert known_scopes(lake) == {NEIGHBOUR}
    [name] = lake.scopes.roster.present()
    files = Path(lake.storage.uri, "projections", f"{name}.lance").rglob("*")
    assert not any(ACME.key.encode() in path.read_bytes() for path in files if path.is_file())


def test_a_scope_is_dropped_when_nothing_is_left_of_it(lake: Lake, models: Models) -> None:
    write(lake, conversation("Hello."), conversation("Hi.", scope=SALES), conversation("Hi.", scope=NEIGHBOUR))
    write(lake, conversation("Hi.", scope=ELSEWHERE, at="2024-03-01T08:00"))
    lake.journal.append([remember("Bo likes figs.", scope=SALES)])
    run_hours(lake, models)
    before = times(lake)
    everyone = (ACME, SALES, NEIGHBOUR, ELSEWHERE)
    through = {(one.workspace_id, one.agent_id, RetentionClass.CONVERSATIONS): "2024-02-01T00" for one in everyone}
    raise_marks(lake.tables, through, NOW)
    drop_expired_scopes(lake)
    assert times(lake) == before
    for scope in (ACME, SALES, ELSEWHERE):
        lake.index.delete(f"scope = '{scope.key}'")
    drop_expired_scopes(lake)
    assert known_scopes(lake) == {SALES, NEIGHBOUR, ELSEWHERE}
