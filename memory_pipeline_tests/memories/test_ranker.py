"""Reads before and after a model selects memories, and the headers it gets."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.lake.index.scoped_rows import ScopedRows
from memory_pipeline_tests.memories.keeping import MONDAY, event, land, minute, remember, write
from memory_pipeline_tests.reader.test_kept import Choosing, helped, reading, said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader

TUESDAY = MONDAY + timedelta(days=1)
ASKED = "What is the price of item 7?"


class Read(NamedTuple):
    """One read of the table of memories: its columns, and the memories whose rows came back."""

    columns: frozenset[str]
    memory_ids: list[str]


class Noting(Choosing):
    """Returns the given choices, and records the reads of the table before and after its call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *places: int, error: Exception | None = None) -> None:
        super().__init__(*places, error=error)
        self.before: list[Read] = []
        self.after: list[Read] = []
        self.forget()
        read = ScopedRows.read

        def noting(projection: ScopedRows, scopes: Any, columns: Any = None, where: Any = None) -> Any:
            rows = read(projection, scopes, columns, where)
            if "match_keys" in projection.schema.names:
                ids = rows["memory_id"].to_pylist() if "memory_id" in rows.column_names else []
                (self.after if self._was_asked else self.before).append(Read(frozenset(rows.column_names), ids))
            return rows

        monkeypatch.setattr(ScopedRows, "read", noting)

    def forget(self) -> None:
        """Clear the recorded reads."""
        self._was_asked = False
        self.before.clear()
        self.after.clear()

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        self._was_asked = True
        return super().select(query, headers, most)


def contents_read(reads: Sequence[Read]) -> list[str]:
    """Return the ids of memories with contents that were read."""
    return [one for read in reads if "content" in read.columns for one in read.memory_ids]


def vectors_read(reads: Sequence[Read]) -> bool:
    return any("vector" in read.columns for read in reads)


def prices(lake: Lake, count: int, *more: MemoryEvent) -> list[str]:
    """Commit a memory for each item; return their ids."""
    told = [remember(f"The price of item {number} is {number} euros.", minute(number)) for number in range(count)]
    land(lake, *told, *more)
    return [one.memory_id for one in told]


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.memories.search(ASKED, now=TUESDAY),
        lambda reader: reader.recall(ASKED, now=TUESDAY),
        lambda reader: reader.recall(ASKED, now=TUESDAY, person="nobody", tag="none"),
        lambda reader: reader.inject_knowledge(ASKED, now=TUESDAY),
    ],
    ids=["search", "recall", "filtered", "inject"],
)
def test_only_contents_of_selected_memories_are_read_and_no_vectors(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch, ask: Callable[[MemoryReader], Any]
) -> None:
    prices(lake, 230)
    noting = Noting(monkeypatch, 0, 3, 5)
    reader = helped(reading(lake, models), selector=noting)
    ask(reader)
    assert noting.before
    assert not contents_read(noting.before)
    assert len(contents_read(noting.after)) == (3 if noting.headers else 0)
    assert not vectors_read([*noting.before, *noting.after])
    noting.forget()
    ask(reader)
    assert not [*noting.before, *noting.after]  # the same ones are selected again


def test_contents_and_vectors_are_read_once_the_model_has_failed(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = prices(lake, 230)
    noting = Noting(monkeypatch, error=RuntimeError("boom"))
    found = helped(reading(lake, models), selector=noting).memories.search(ASKED, now=TUESDAY)
    assert found[0].memory.id == ids[7]
    assert not contents_read(noting.before)
    assert not vectors_read(noting.before)
    assert vectors_read(noting.after)


def test_only_contents_of_revoked_memories_and_snapshots_are_read_first(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = remember("40 sacks are in stock.", is_point_in_time=True)
    code = remember("The code is 4411.", minute(1))
    prices(lake, 30, stock, code, event(MemoryVerb.FORGET, minute(99), code.memory_id))
    noting = Noting(monkeypatch, 0)
    helped(reading(lake, models), selector=noting).recall(ASKED, now=TUESDAY)
    assert set(contents_read(noting.before)) == {stock.memory_id, code.memory_id}
    assert len(contents_read(noting.after)) == 1


def test_only_memories_that_pending_events_change_are_read(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = prices(lake, 30)
    write(
        lake,
        event(MemoryVerb.UPDATE, minute(99), ids[4], content="Item 4 is free.", title="Item 4", hook="It is free."),
        event(MemoryVerb.FORGET, minute(99), ids[5]),
        remember("Item 99 is new.", minute(100)),
    )
    noting = Noting(monkeypatch, *range(5))
    reader = helped(reading(lake, models), selector=noting)
    found = said(reader.memories.search("Which item is free or new?", now=TUESDAY))
    assert {"Item 99 is new.", "Item 4 is free."} < set(found)
    assert "Item 4 (fact): It is free." in noting.headers
    assert len(noting.headers) == 30  # one added, one removed
    assert not any("item 5 " in header or "item 4 " in header for header in noting.headers)
    assert set(contents_read(noting.before)) == {ids[4], ids[5]}
    assert not vectors_read([*noting.before, *noting.after])


def test_rules_read_the_columns_that_they_rank_by(lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = prices(lake, 230)
    noting = Noting(monkeypatch)
    reader = reading(lake, models)
    assert reader.memories.search(ASKED, now=TUESDAY)[0].memory.id == ids[7]
    [ranking] = [read.columns for read in noting.before if "vector" in read.columns]
    assert {"content", "vector"} < ranking
    assert "match_keys" not in ranking
    noting.forget()
    reader.memories.search("And item 8?", now=TUESDAY)
    assert not noting.before


def test_headers_that_share_words_come_first_with_half_of_the_places_for_the_newest(lake: Lake, models: Models) -> None:
    tagged = remember("Bruno barks.", MONDAY - timedelta(days=2), tags=["zebra"], title="A dog", hook="What it does.")
    named = remember(
        "He came late.", MONDAY - timedelta(days=1), subject="Zebra", title="A guest", hook="Who was late."
    )
    ids = prices(lake, 300, tagged, named)
    choosing = Choosing(0, 1)
    found = helped(reading(lake, models), selector=choosing).memories.search("the price of a zebra", now=TUESDAY)
    assert {one.memory.id for one in found} == {tagged.memory_id, named.memory_id}
    assert len(choosing.headers) == len(set(choosing.headers)) == 200
    newest = [f"The price of item {number} is" for number in range(len(ids) - 100, len(ids))]
    assert all(any(line.startswith(start) for line in choosing.headers) for start in newest)


@pytest.mark.parametrize(
    "options", [{}, {"person": "bruno"}, {"tag": "home"}, {"minimum_importance": 0.8}, {"since": TUESDAY}, {"days": 1}]
)
def test_headers_pass_the_filters_that_memories_pass(lake: Lake, models: Models, options: dict[str, Any]) -> None:
    land(
        lake,
        remember("Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto", tags=["home"]),
        remember("Bruno: I moved to Porto.", minute(60 * 48), importance=0.9),
        remember("Porto has a port.", minute(60 * 50), importance=0.9, object="Bruno"),
    )
    now = MONDAY + timedelta(days=9)
    if "days" in options:
        options = {"until": now - timedelta(days=7)}
    choosing = Choosing(*range(9))
    by_rules = reading(lake, models).recall("Porto", now=now, **options)
    by_model = helped(reading(lake, models), selector=choosing).recall("Porto", now=now, **options)
    assert by_rules
    assert {one.id for one in by_model} == {one.id for one in by_rules}
    assert len(choosing.headers) == len(by_rules)


def test_cold_and_inactive_memories_have_no_headers(lake: Lake, models: Models) -> None:
    ids = prices(lake, 255)
    choosing = Choosing()
    reader = helped(reading(lake, models), selector=choosing)
    changes: list[tuple[MemoryVerb, Callable[[MemoryEvent], None]]] = [
        (MemoryVerb.COOL, lambda one: land(lake, consolidation=[one])),
        (MemoryVerb.ARCHIVE, lambda one: land(lake, consolidation=[one])),
        (MemoryVerb.FORGET, lambda one: land(lake, one)),
        (MemoryVerb.FORGET, lambda one: write(lake, one)),
    ]
    for verb, happens in changes:
        happens(event(verb, minute(300), ids.pop(), editor="agent" if verb is MemoryVerb.FORGET else "consolidation"))
        reader.memories.search("price", 5)
        assert len(choosing.headers) == 200
        shown = {int(header.partition(" is")[0].rpartition(" ")[2]) for header in choosing.headers}
        assert shown.issuperset(range(len(ids) - 100, len(ids)))
        assert not shown.intersection(range(len(ids), 255))


def test_memories_shown_in_another_form_are_replaced_by_others(lake: Lake, models: Models) -> None:
    ids = prices(lake, 12)
    memories = helped(reading(lake, models), selector=Choosing(*range(12))).memories
    shown = {ids[1], ids[10], ids[11]}
    asked = "the items 1, 10 and 11"
    assert shown < {one.memory.id for one in memories.fitting(asked, 5, frozenset(), TUESDAY)}
    found = memories.fitting(asked, 5, frozenset(["fact:1"]), TUESDAY, hides=lambda memory: memory.id in shown)
    assert len(found) == 5
    assert not shown & {one.memory.id for one in found}


def test_only_contents_of_excluded_memories_are_read(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = prices(lake, 30)
    noting = Noting(monkeypatch, 0)
    helped(reading(lake, models), selector=noting).recall(ASKED, exclude=[ids[7], ids[8]], now=TUESDAY)
    assert sorted(contents_read(noting.before)) == sorted([ids[7], ids[8]])
    assert len(contents_read(noting.after)) == 1


def test_a_memory_revoked_during_the_model_call_is_not_returned(lake: Lake, models: Models) -> None:
    ids = prices(lake, 3)

    class Slow(Choosing):
        def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
            land(lake, event(MemoryVerb.FORGET, minute(99), ids[7 % 3]))
            return super().select(query, headers, most)

    reader = helped(reading(lake, models), selector=Slow(0, 1, 2))
    assert {one.memory.id for one in reader.memories.search(ASKED)} == {ids[0], ids[2]}


def test_an_agent_without_memories_is_shown_none(lake: Lake, models: Models) -> None:
    lake.ensure()
    choosing = Choosing(0, 1)
    reader = helped(reading(lake, models), selector=choosing)
    assert reader.memories.search(ASKED) == []
    write(lake, remember("Item 7 is new."))
    assert said(reader.memories.search(ASKED)) == ["Item 7 is new."]
    assert choosing.headers == ["Item 7 is new. (fact): Item 7 is new."]
