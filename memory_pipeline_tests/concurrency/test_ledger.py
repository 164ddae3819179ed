"""The ledger matches each partition, however two runs with different rows interleave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.ledger import LedgerEntry
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import conversation, hours, table_rows, write

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

HOUR = hours("2024-01-15T08")


def entry(output: str, period: str = "2024-01-15T08") -> LedgerEntry:
    return LedgerEntry("messages", period, "in", output, 1, 1)


def test_concurrent_entries_are_not_replaced(lake: Lake) -> None:
    before = lake.ledger.seen(["messages"], HOUR)
    assert lake.ledger.record([entry("ours")], before)
    assert not lake.ledger.record([entry("older"), entry("other", "2024-01-15T09")], before)
    assert {key: own.output_digest for key, own in lake.ledger.entries("messages").items()} == {HOUR[0].key: "ours"}
    assert lake.ledger.record([entry("ours")], before), "an equal entry is accepted"
    assert lake.ledger.record([entry("newer")], lake.ledger.seen(["messages"], HOUR))
    assert lake.ledger.record([entry("newest")]), "without a previous read, any entry is replaced"


@pytest.mark.parametrize("moment", ["before", "in between"])
def test_the_last_run_to_record_includes_the_results_of_the_other(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The other run finishes before this one records its result, or after this one has read the ledger for that."""
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    overtaken: list[bool] = []

    def other() -> None:
        if not overtaken:
            overtaken.append(True)
            theirs = Lake(root)
            write(theirs, conversation("I like tea.", conversation_id="newer"))
            list(materialize(theirs, models, Grain.WORKING, HOUR))

    original = lake.tables.transform

    def slow(spec: Any, keys: Any, change: Any, **fixed: Any) -> Any:
        if spec is not LEDGER:
            return original(spec, keys, change, **fixed)
        if moment == "before":
            other()

        def changed(old: Any) -> Any:
            made = change(old)
            other()
            return made

        return original(spec, keys, changed, **fixed)

    monkeypatch.setattr(lake.tables, "transform", slow)
    made = list(materialize(lake, models, Grain.WORKING, HOUR))
    assert overtaken
    assert {part.messages for part in made if part.asset == "messages"} == {2}
    alone = Lake(f"{root} alone")
    write(alone, conversation("I moved to Porto."), conversation("I like tea.", conversation_id="newer"))
    list(materialize(alone, models, Grain.WORKING, HOUR))
    assert table_rows(lake)["ledger"] == table_rows(alone)["ledger"]
    assert lake.journal.pending() == []
