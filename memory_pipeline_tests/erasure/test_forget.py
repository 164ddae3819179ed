"""Erasure: removed data, remaining data, and data that must not come back."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.erasure import without_note
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.erasure import forget, preview
from memory_pipeline.lake import Lake, VectorCollection, VectorItem
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import ANSWERS, FACTS, MESSAGES, MODEL_CALLS, SUMMARIES
from memory_pipeline.lake.tables.tombstones import raise_marks
from memory_pipeline.steps import materialize
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.ingest import acknowledge
from memory_pipeline.steps.retention import expire
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.building import ACME, START, conversation, hours, versions, write
from memory_pipeline_tests.erasure.conftest import FORGOTTEN
from memory_pipeline_tests.erasure.lakes import (
    ANNA,
    ANNAS_EVENTS,
    EARLY,
    END,
    NOTED,
    SALES,
    UNATTACHED,
    assert_verified,
    built,
    edit,
    held,
    interrupt,
    kept,
    written,
)

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.erasure.conftest import Erased
    from memory_pipeline_tests.erasure.lakes import Record


def is_annas(record: Record) -> bool:
    if isinstance(record, MemoryEvent):
        return record in [*ANNAS_EVENTS, NOTED]
    if record.scope.workspace_id != "acme":
        return False
    if isinstance(record, Message):
        return record.user_id == "u-17" or Mentions(["Anna"]).mentioned_in(f"{record.name} {record.content}")
    return any("Anna" in (one.subject, one.object) for one in record.operations)


def is_of_conversation(record: Record) -> bool:
    return isinstance(record, Message) and (record.scope, record.conversation_id) == (ACME, "c4")


def is_of_sales(record: Record) -> bool:
    return record.scope == SALES


def test_a_forgotten_subject_is_found_before_and_not_after_and_no_period_is_pending(erased_once: Erased) -> None:
    for (before, after), (name, subject) in zip(pairwise(erased_once.stages.values()), FORGOTTEN.items(), strict=True):
        assert preview(Lake(str(before)), subject, END).counts, name
        lake = Lake(str(after))
        assert not preview(lake, subject, END).counts, name
        for grain in Grain:
            assert not grain_status(lake, grain, START, END).pending, (name, grain)


def test_the_remaining_lake_equals_one_without_the_forgotten_records(
    erased: Erased, models: Models, tmp_path: Path
) -> None:
    lake = Lake(str(erased.folder))
    gone = (is_annas, is_of_conversation, is_of_sales)
    never = built(Lake(str(tmp_path / "never")), models, lambda record: not any(is_gone(record) for is_gone in gone),
                  [without_note(NOTED)])  # fmt: skip
    assert held(lake) == held(never)

    assert not pending_days(lake, START, END)
    before = versions(lake)
    kept(lake, models)
    assert versions(lake) == before
    again = forget(lake, models, ANNA, END)
    assert not again.remade
    assert {part.what for part in again.removed} == {"files"}

    # A writer that sends everything again, as after a restore, brings nothing back.
    written(lake, lambda record: record not in UNATTACHED)
    kept(lake, models)
    assert not lake.journal.pending()
    assert held(lake) == held(never)
    forget(lake, models, Subject.agent(SALES), END)  # the folder in which its journal files were
    for receipt in (erased.person, erased.conversation, erased.agent):
        assert_verified(lake, receipt)


def test_a_receipt_lists_the_removed_items(erased_once: Erased) -> None:
    receipt = erased_once.person
    counts = {(part.place, part.what): part.count for part in receipt.removed}
    assert counts["messages", "rows"] == 6
    assert set(receipt.remade["working"]) == {"2024-01-15T08", "2024-01-16T09", "2024-01-16T10"}
    assert receipt.remade["yearly"] == ("2024",)
    assert receipt.ids
    assert receipt.contents
    assert receipt.files > 0
    assert receipt.bytes > 0
    assert receipt.at == END
    assert any("Dagster" in part for part in receipt.not_covered)


def put_items(lake: Lake) -> None:
    """Put items into a collection of agent acme/support, one with a name in its content, one in its metadata."""
    VectorCollection(lake, ACME, 2).upsert(
        [
            VectorItem(id="doc-1", vector=[1.0, 0.0], content="About Anna.", metadata={"page": "3"}),
            VectorItem(id="doc-2", vector=[1.0, 0.5], content="Signed.", metadata={"author": "Anna"}),
            VectorItem(id="doc-3", vector=[0.0, 1.0], content="About Bob.", metadata={}),
        ]
    )


def test_journal_quarantine_and_collections_lose_only_the_persons_records(lake: Lake, models: Models) -> None:
    put_items(lake)
    write(lake, conversation("Ask Anna.", "Ask Bob.", name="Dora", at="2024-02-01T08:00", conversation_id="c9"))
    lake.journal.append([edit("Anna", "Eve", "2024-02-01T08:10"), edit("Bob", "Eve", "2024-02-01T08:10")])
    folder = f"{folder_of(ACME)}/2024-02-01T08"
    broken = ['{"content": "to Anna, and then', '{"content": "to Bob, and then']
    lake.storage.write(f"{folder}__01HNGZ0000000000000000000A.jsonl", "\n".join([*broken, ""]).encode())
    for name, record in enumerate(
        [
            {"workspace_id": "acme", "messages": [{"content": "Anna?", "timestamp": "?"}]},
            {"workspace_id": "other", "messages": [{"content": "Anna?", "timestamp": "?"}]},
            {"workspace_id": "acme", "messages": [{"content": "Bob?", "timestamp": "?"}]},
            "line with Anna, cut off",
        ]
    ):
        text = json.dumps({"reason": "r", "where": "w", "record": record})
        lake.storage.write(f"journal/quarantine/{name}.json", text.encode())
    receipt = forget(lake, models, ANNA, EARLY.replace(month=2, day=2))

    held = [lake.journal.read(file) for file in lake.journal.pending()]
    assert sorted(message.content for one in held for message in one.messages if one.messages) == ["Ask Bob."]
    assert [one.operations[0].subject for each in held for one in each.edits] == ["Bob"]
    left = [lake.storage.read(entry.path) or b"" for entry in lake.storage.list("journal/quarantine")]
    assert sum(b"Anna" in data for data in left) == 1  # another workspace's
    assert sum(b"Bob" in data for data in left) == 2
    assert [match.id for match in VectorCollection(lake, ACME, 2).search([1.0, 1.0])] == ["doc-3"]
    assert_verified(lake, receipt)


def test_an_agent_loses_its_answers_and_collection_but_spending_stays(lake: Lake, models: Models) -> None:
    use = {
        "workspace_id": "acme",
        "agent_id": "support",
        "identity": "",
        "scope": ACME.key,
        "purpose": "extraction",
        "model": "m",
        "prompt_version": "p",
    }
    numbers = {"tokens_in": 7, "tokens_out": 1, "cost": 0.5}
    asked = {**use, **numbers, "grain": "working", "period": "2024-01-16T10"}

    def rows(spec: Any, **own: Any) -> Any:
        import pyarrow as pa

        return pa.Table.from_pylist([{**asked, **own}], schema=spec.schema)

    lake.tables.replace(ANSWERS, ["2024-01-16T10"], rows(ANSWERS, key="1" * 32, answer="{}"), grain="working")
    call = {"hour": "2024-01-17T00", "id": "i", "request_id": "i", "key": "1" * 32, "called_at": END}
    call |= {"texts": 1, "seconds": 1.0, "outcome": "ok"}
    lake.tables.replace(MODEL_CALLS, ["2024-01-17T00"], rows(MODEL_CALLS, **call))
    put_items(lake)
    # Its id is a common word: agent sales speaks of it.
    receipt = forget(lake, models, Subject.agent(ACME), EARLY)
    assert not lake.tables.read(ANSWERS).num_rows
    (known,) = lake.tables.read(MODEL_CALLS).to_pylist()
    assert (known["agent_id"], known["cost"]) == ("erased", 0.5)
    assert VectorCollection(lake, ACME, 2).stats().items == 0
    assert_verified(lake, receipt)


def test_an_interrupted_erasure_starts_over(
    lake: Lake, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(lake, models, ANNA, EARLY, monkeypatch)
    assert not all(one.is_done for one in lake.tombstones.all())
    receipt = forget(lake, models, ANNA, EARLY)
    assert all(one.is_done for one in lake.tombstones.all())
    never = built(
        Lake(str(tmp_path / "never")), models, lambda one: not is_annas(one), [without_note(NOTED)], now=EARLY
    )
    assert held(lake) == held(never)
    assert_verified(lake, receipt)


def test_a_concurrent_run_does_not_restore_forgotten_data(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(root)
    names = {"extracting": "Anna", "indexing": "Milo", "acknowledging": "Nora"}
    for day, (moment, name) in enumerate(names.items(), 15):
        at = f"2024-01-{day}T08:00"
        write(
            lake, conversation(f"{name} moved to Rome.", "I moved to Oslo.", name="Dora", at=at, conversation_id="c9")
        )
        write(lake, conversation("I live in Rome.", name=name, at=at, conversation_id="c8", scope=SALES))
        begun: list[str] = []

        def forgetting_once(step: Any, name: str = name, begun: list[str] = begun) -> Any:
            def done(*arguments: Any, **named: Any) -> Any:
                if not begun:
                    begun.append(name)
                    forget(Lake(root), models, Subject.person("acme", [name]), EARLY)
                return step(*arguments, **named)

            return done

        class Extractor:
            method = staticmethod(models.extractor.method)
            extract = staticmethod(forgetting_once(models.extractor.extract))

        with monkeypatch.context() as patch:
            if moment == "indexing":
                patch.setattr(lake.index, "replace", forgetting_once(lake.index.replace))
            elif moment == "acknowledging":
                patch.setattr(materialize, "acknowledge", forgetting_once(acknowledge))
            own = replace(models, extractor=Extractor()) if moment == "extracting" else models
            list(materialize.materialize(lake, own, Grain.WORKING, hours(at[:13])))
        assert begun, moment
        contents = lake.tables.read(FACTS, [hour.key for hour in hours(at[:13])])["content"].to_pylist()
        assert sum("Oslo" in content for content in contents) == 2, moment  # the message and its fact
        assert not any(name in content for content in contents), moment
        assert not any("Rome" in row["content"] for row in held(lake)[str((SALES, Grain.WORKING))]), moment
    # Files that a run wrote and never committed are taken for a writer's under way until they are an hour old.
    for path in Path(root).rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert_verified(lake, forget(lake, models, Subject.person("acme", names.values()), EARLY))


def test_summaries_of_expired_sources_lose_points_that_name_the_person(lake: Lake, models: Models) -> None:
    day = lake.calendar.bounds(hours("2024-01-15T08")[0])[0]
    keys = [hour.key for hour in hours("2024-01-15T08")]
    through = {
        ("acme", "support", kept): keys[0]
        for kept in (RetentionClass.CONVERSATIONS, RetentionClass.FACTS, RetentionClass.PREFERENCES)
    }
    raise_marks(lake.tables, through, END)
    gone = {spec: lake.tables.read(spec, keys).num_rows for spec in (MESSAGES, FACTS)}
    assert all(gone.values())
    lake.ledger.note_expired({("working_facts", keys[0]): 0, ("messages", keys[0]): 0})
    for spec in gone:
        lake.tables.remove(spec, keys)
    before = lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()[0]
    assert "Anna" in before["content"]
    assert "landlord" in before["content"]

    receipt = forget(lake, models, ANNA, END)
    (after,) = lake.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()
    assert "Anna" not in after["content"]
    assert "landlord" in after["content"]
    assert after["vector"] is not None
    assert len(after["key_points"]) < len(before["key_points"])
    for grain in Grain:
        assert not grain_status(lake, grain, START, EARLY).pending, grain
    assert_verified(lake, receipt)
    assert any("expired" in part for part in receipt.not_covered)
    assert day < END

    of_conversation = forget(lake, models, FORGOTTEN["conversation"], END)
    assert any("cannot be told apart" in part for part in of_conversation.not_covered)


def test_an_hour_with_expired_rows_of_others_is_not_pending_after_an_agent_is_erased(
    tmp_path: Path, models: Models
) -> None:
    lake, other = Lake(str(tmp_path)), Scope("other", "support")
    lake.ensure()
    lake.storage.write(CONFIGURATION, b"workspaces: {acme: {retention: {plan: free}}}\n")
    for scope in (ACME, other):
        write(lake, conversation("Anna lives in Porto.", at="2024-01-15T08:00", scope=scope))
    list(run_all(lake, models, EARLY))
    later = EARLY + timedelta(days=40)
    list(run_all(lake, models, later))
    assert expire(lake, START, later).rows
    receipt = forget(lake, models, Subject.agent(other), later)
    for grain in Grain:
        assert not grain_status(lake, grain, START, later).pending, grain
    assert_verified(lake, receipt)
