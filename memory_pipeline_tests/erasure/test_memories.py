"""Erasure of durable memories: events, consolidation, and the folded memories."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import ErasureReport, forget, preview
from memory_pipeline.erasure.changes import text_in, texts_in
from memory_pipeline.erasure.subject_matcher import SubjectMatcher, leaves
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import (
    ANSWERS,
    CONSOLIDATION,
    CONSOLIDATION_EVENTS,
    EVENTS,
    FACTS,
    MEMORIES,
    MEMORY_EVENTS,
    SCOPES,
)
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import (
    ACME,
    START,
    conversation,
    event_rows,
    hours,
    memory_rows,
    run,
    table_rows,
    write,
)
from memory_pipeline_tests.erasure.lakes import (
    ANNA,
    END,
    NOTED,
    OTHER,
    SALES,
    assert_verified,
    done,
    held,
    kept,
    memory_of,
    remembered,
    written,
)

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder
    from memory_pipeline_tests.erasure.conftest import Erased

#: After all that the lakes here are told, but for those of other tests.
AT = datetime(2024, 3, 10, tzinfo=UTC)
TABLES = (MEMORY_EVENTS, CONSOLIDATION_EVENTS, MEMORIES, CONSOLIDATION)


@pytest.fixture
def lake(shared_folder: SharedFolder, tmp_path: Path, models: Models) -> Lake:
    """A writable copy of a complete lake with hours and consolidation, without summaries."""

    def fill(path: Path) -> None:
        written(Lake(str(path)))
        remembered(Lake(str(path)), models, AT)

    return Lake(str(shutil.copytree(shared_folder("erasure-memories", fill), tmp_path / "lake")))


def memories(lake: Lake, scope: Any = ACME) -> dict[str, dict[str, Any]]:
    """Return the newest version of each memory of an agent, by content."""
    rows = memory_rows(lake, scope).to_pylist()
    return {row["content"]: row for row in rows if row["is_newest"]}


def verbs(lake: Lake, scope: Any = ACME) -> Counter[str]:
    """Return the number of an agent's consolidation events by verb."""
    return Counter(event_rows(lake, scope, is_consolidation=True)["verb"].to_pylist())


def test_memories_that_quote_a_person_are_recomputed_without_the_quote(erased_once: Erased) -> None:
    lake = Lake(str(erased_once.stages["original"]))
    # Consolidation had merged two duplicate memories into one that names Anna, with a reason.
    (merged,) = [
        content for content in memories(lake) if "says Anna" in content and "Dora is allergic to nuts." in content
    ]
    assert memories(lake)[merged]["status"] == "active"
    assert verbs(lake)["MERGE"] == 1
    counts = preview(lake, ANNA, END).counts
    assert counts["notes of events"] == 1
    assert counts["memory_events"] == 4 + 4  # what agents did, and what messages said; not what they did to that
    receipt, lake = erased_once.person, Lake(str(erased_once.stages["person"]))
    after = memories(lake)
    assert after["Dora is allergic to nuts."]["status"] == "active"
    assert after["Dora is allergic to nuts."]["merged_ids"] == []
    rows = (str(row) for spec in TABLES for row in table_rows(lake)[spec.name] if row["workspace_id"] == "acme")
    assert not any("Anna" in row or "Bob" in row for row in rows)
    assert verbs(lake)["MERGE"] == 0
    assert verbs(lake)["HEAT"] > 0  # consolidation was repeated
    assert not pending_days(lake, START, END)
    removed = {(part.place, part.what): part for part in receipt.removed}
    assert removed["memory_events", "rows"].count == 8 + 2
    assert removed["memory_events", "rows"].partitions[0] == "2024-01-15T08"
    assert removed["memory_events", "rows that lost a note"].count == 1
    assert after[NOTED.changes.content or ""]["editor"] == "agent"
    assert removed["memories", "rows"].count >= 8
    assert removed["consolidation_events", "rows"].count > 0
    assert memories(lake, OTHER) == memories(Lake(str(erased_once.stages["original"])), OTHER)
    assert_verified(lake, receipt)


def test_an_agent_that_only_noted_things_is_forgotten(lake: Lake, models: Models) -> None:
    scope = replace(SALES, agent_id="notes")
    lake.journal.append([done("REMEMBER", content="The key to the safe is with the porter.", scope=scope)])
    remembered(lake, models, AT)
    assert verbs(lake, scope)["HEAT"] == 1
    lake.journal.append([done("REMEMBER", "2024-03-01T10:00", content="The safe was moved upstairs.", scope=scope)])
    before = held(lake)
    receipt = forget(lake, models, Subject.agent(scope), AT)
    assert {part.place for part in receipt.removed} >= {spec.name for spec in TABLES} | {"journal"}
    for spec in TABLES:
        assert not any(row["agent_id"] == "notes" for row in table_rows(lake)[spec.name])
    own = {spec.name for spec in (*TABLES, EVENTS, SCOPES)}
    after = held(lake)
    assert "notes" in {row["agent_id"] for row in before["scopes"]}
    assert after["scopes"] == [row for row in before["scopes"] if row["agent_id"] != "notes"]
    assert {name: rows for name, rows in after.items() if name not in own} == {
        name: rows for name, rows in before.items() if name not in own
    }
    assert_verified(lake, receipt)


def test_a_memory_from_two_conversations_outlives_one_of_them(root: str, models: Models) -> None:
    lake = Lake(root)
    said = "I like window seats on long flights."
    write(lake, conversation(said, name="Dora", at="2024-02-01T08:00", conversation_id="c8"))
    write(lake, conversation(said, "I like Quetzal Airways.", name="Dora", at="2024-02-02T08:00",
                             conversation_id="c9"))  # fmt: skip
    remembered(lake, models, AT)
    both = memories(lake)[f"Dora: {said}"]
    assert (both["version"], both["conversation_ids"]) == (2, ["c8", "c9"])
    # An agent's own work on what only the forgotten conversation said goes with it; on what both said, it stays.
    alone = memories(lake)["Dora: I like Quetzal Airways."]["memory_id"]
    lake.journal.append([
        done("UPDATE", "2024-02-03T08:00", to=alone, content="Dora flies with Quetzal."),
        done("BOOST", "2024-02-03T08:01", to=both["memory_id"]),
    ])  # fmt: skip
    remembered(lake, models, AT)
    lake.journal.append([done("CONFIRM", "2024-02-04T08:00", to=alone), done("CONFIRM", to=both["memory_id"])])

    receipt = forget(lake, models, Subject.conversation(ACME, "c9"), AT)
    left = memories(lake)[f"Dora: {said}"]
    assert (left["version"], left["conversation_ids"], left["memory_id"]) == (1, ["c8"], both["memory_id"])
    assert left["importance"] > both["importance"]
    assert not any("Quetzal" in content for content in memories(lake))
    assert [event.memory_id for file in lake.journal.pending() for event in lake.journal.read(file).events] == [
        both["memory_id"]
    ]
    assert_verified(lake, receipt)


def test_revoked_memories_stay_revoked_after_an_erasure(root: str, models: Models) -> None:
    lake = Lake(root)
    said = "From now on, always answer in Portuguese."
    talks = [("c8", "2024-02-01T08:00"), ("c9", "2024-02-02T08:00")]
    write(lake, *(conversation(said, name="Dora", at=at, conversation_id=named) for named, at in talks))
    harbour = done("REMEMBER", "2024-02-03T08:00", kind="instruction", content="Ship to the harbour.")
    lake.journal.append([harbour])
    remembered(lake, models, AT)
    instruction = next(row for content, row in memories(lake).items() if "Portuguese" in content)
    lake.journal.append([
        done("FORGET", "2024-02-04T08:00", to=instruction["memory_id"], reason="Milo wants it so"),
        done("FORGET", "2024-02-04T08:01", to=harbour.memory_id, editor="Milo"),
    ])  # fmt: skip
    remembered(lake, models, AT)
    # As above, but not landed yet.
    pier = done("REMEMBER", "2024-02-05T08:00", kind="instruction", content="Ship to the pier.")
    lake.journal.append([
        pier,
        done("FORGET", "2024-02-05T08:01", to=pier.memory_id, reason="Milo has moved"),
        done("UPDATE", "2024-02-05T08:02", to=instruction["memory_id"], content="Answer in Greek.", reason="says Milo"),
        done("FORGET", "2024-02-05T08:03", to=instruction["memory_id"]),
    ])  # fmt: skip
    receipts = [
        forget(lake, models, Subject.person("acme", ["Milo"]), AT),
        forget(lake, models, Subject.conversation(ACME, "c8"), AT),
    ]
    successor = next(row for content, row in memories(lake).items() if "Portuguese" in content)
    assert successor["memory_id"] != instruction["memory_id"]
    assert (successor["status"], successor["status_reason"]) == ("deprecated", "forgotten by agent")
    assert memories(lake)["Ship to the harbour."]["status"] == "deprecated"
    waiting = [event for file in lake.journal.pending() for event in lake.journal.read(file).events]
    assert {event.memory_id for event in waiting} == {pier.memory_id, successor["memory_id"]}
    remembered(lake, models, AT)
    assert memories(lake)["Answer in Greek."]["status"] == "deprecated"
    assert memories(lake)["Ship to the pier."]["status"] == "deprecated"
    for receipt in receipts:
        assert_verified(lake, receipt)


def test_generated_words_are_not_mistaken_for_names(lake: Lake, models: Models) -> None:
    before = held(lake)
    person = Subject.person("acme", ["Key", "Tags", "Remember"])
    assert not preview(lake, person, AT).counts
    assert_verified(lake, forget(lake, models, person, AT))
    # Reasons of nights have it: they are made again, once.
    forget(lake, models, Subject.person("acme", ["Importance"]), AT)
    assert held(lake) == before


def test_pending_records_and_answers_for_later_days_are_removed(lake: Lake, models: Models) -> None:
    idle = {"agent_id": "idle", "scope": Scope("acme", "idle").key}
    asked = {
        "grain": "daily", "workspace_id": "acme", "agent_id": "support", "identity": "", "scope": ACME.key,
        "model": "m", "prompt_version": "p",
        "tokens_in": 7, "tokens_out": 1, "cost": 0.5, "answer": "One content of two.",
    }  # fmt: skip
    rows = [
        {**asked, "key": key * 32, "period": period, "purpose": purpose, **own}
        for key, period, purpose, own in [
            ("1", "2024-01-14", "consolidation", {}),
            ("2", "2024-01-20", "consolidation", {}),
            ("3", "2024-01-20", "summary", {}),
            ("4", "2024-01-20", "consolidation", idle),
            ("5", "2024-01-14", "consolidation", {"answer": "Anna likes tea, and Dora does.", **idle}),
        ]
    ]
    table = pa.Table.from_pylist(rows, schema=ANSWERS.schema)
    lake.tables.replace(ANSWERS, ["2024-01-14", "2024-01-20"], table, grain="daily")
    first = lake.tables.keys(FACTS)[0]
    hours = [f"{first[:10]}T00", "2024-01-01T00"]  # an earlier hour of a day with a touched one, and another day
    of_hours = [{**asked, "key": key * 32, "grain": "working", "period": hour, "purpose": "extraction"}
                for key, hour in zip("67", hours, strict=True)]  # fmt: skip
    table = pa.Table.from_pylist(of_hours, schema=ANSWERS.schema)
    lake.tables.replace(ANSWERS, hours, table, grain="working")
    lake.journal.append(
        [
            done("REMEMBER", "2024-02-01T08:00", content="Ask ANNA first."),
            done("REMEMBER", "2024-02-01T08:01", kind="preference", content="x", user_id="u-17", key="k", value="1"),
            done("REMEMBER", "2024-02-01T08:02", content="Ask Bob first.", reason="Anna is away"),
            done("REMEMBER", "2024-02-01T08:03", content="Ask Carl first."),
            done("FORGET", "2024-02-01T08:04", to=memory_of("Dora is allergic to nuts.")),
        ]
    )
    receipt = forget(lake, models, ANNA, AT)
    left = [event for file in lake.journal.pending() for event in lake.journal.read(file).events]
    assert sorted(event.changes.content or event.verb for event in left) == [
        "Ask Bob first.", "Ask Carl first.", "FORGET",
    ]  # fmt: skip
    assert all(event.reason is None for event in left)
    assert {part.count for part in receipt.removed if part.place == "journal"} == {3}
    assert_verified(lake, receipt)
    assert sorted(row["key"][0] for row in lake.tables.read(ANSWERS, grain="daily").to_pylist()) == ["1", "3", "4"]
    assert [row["key"][0] for row in lake.tables.read(ANSWERS, grain="working").to_pylist()] == ["7"]


def test_a_concurrent_consolidation_does_not_restore_forgotten_data(root: str, models: Models) -> None:
    lake = Lake(root)
    lake.ensure()
    lake.journal.append([
        done("REMEMBER", "2024-02-01T08:00", content="Eve likes jam.", subject="Eve", predicate="likes", object="jam"),
        done("REMEMBER", "2024-02-01T08:01", content="Eve likes jam, says Anna.", subject="Eve", predicate="likes",
             object="jam"),
    ])  # fmt: skip
    list(materialize(lake, models, Grain.WORKING, hours("2024-02-01T08")))
    receipts: list[ErasureReport] = []

    class Forgetting(RuleCurator):
        def merge(self, *arguments: Any) -> str:
            if not receipts:
                receipts.append(forget(Lake(lake.storage.uri), models, ANNA, AT))
            return super().merge(*arguments)

    consolidate(lake, replace(models, curator=Forgetting()), pending_days(lake, START, AT), START)
    assert receipts
    # Files that the run wrote and never committed are taken for a writer's under way until they are an hour old.
    for path in Path(lake.storage.uri).rglob("*.parquet"):
        os.utime(path, (0, 0))
    assert "Eve likes jam." in memories(lake)
    assert_verified(lake, forget(lake, models, ANNA, AT))
    for spec in TABLES:
        for row in table_rows(lake)[spec.name]:
            assert row["workspace_id"] == "other" or "Anna" not in str(row)


def test_verification_finds_remnants_of_memories_and_events() -> None:
    at = END.replace(year=2027)
    person, talk = SubjectMatcher(ANNA, at), SubjectMatcher(Subject.conversation(ACME, "c4"), at)
    scope = {"workspace_id": ["acme"], "agent_id": ["support"]}

    def found(matcher: SubjectMatcher, **columns: list[Any]) -> bool:
        return bool(matcher.in_rows(pa.table({**scope, **columns})))

    assert found(person, changes=['{"kind":"fact","content":"Ask \\u0041nna"}'])
    assert found(person, changes=['{"tags":["anna"]}'])
    assert not found(person, changes=['{"kind":"anna"}'])
    assert found(person, memory_id=["memory:x"], key=["Anna's tea"])
    assert not found(person, key=["Anna"])  # of answers: a hash
    assert found(person, user_id=["u-17"])
    assert found(person, status_reason=["“Anna likes tea” says the same"])
    assert found(talk, conversation_ids=[["c1", "c4"]])
    assert not found(talk, conversation_ids=[["c1", "c40"]])
    line = {"workspace_id": "acme", "agent_id": "support", "memory": "UPDATE", "timestamp": "2024-01-15T08:00+00:00"}
    assert person.in_record({**line, "changes": {"key": "birthday of Anna"}})
    assert person.in_record({**line, "changes": {"user_id": "u-17"}})
    assert not person.in_record({**line, "changes": {"key": "birthday of Bob"}})
    assert not person.in_record({**line, "workspace_id": "other", "changes": {"content": "Anna"}})


def test_texts_of_changes_are_their_values() -> None:
    assert texts_in('{"kind":"fact","content":"a","tags":["b","c"],"importance":0.5,"value":"{\\"d\\":1}"}') == [
        "a", "b", "c", '{"d":1}',
    ]  # fmt: skip
    for broken in ("", "{", "[" * 100_000, "no JSON"):
        assert texts_in(broken) == [broken]
        assert text_in(broken, "content") is None
    assert text_in('{"content":"a"}', "content") == "a"
    assert [text_in(text, "content") for text in ('["a"]', '{"content":1}', "{}")] == [None] * 3


@pytest.mark.parametrize("text", ["plain", 'He said "no" \\ left\n', "Zoë met Łukasz in 東京", '{"d":1}', "[" * 50])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_texts_that_are_looked_for_are_found_in_all_columns(text: str, is_ascii: bool) -> None:
    changes = [json.dumps({"content": "x", "tags": ["y", text]}, ensure_ascii=is_ascii), '{"content":"z"}', text]
    columns = {"changes": changes, "content": ["x", text, None], "key_points": [[{"sentence": text}], [], None]}
    found = {path: set(texts) for path, texts in leaves(pa.table(columns), pa.array([text, "not there"]))}
    assert {path for path, texts in found.items() if text in texts} == {"changes", "content", "key_points.sentence"}
    assert "z" not in found["changes"]


def test_the_experiences_links_and_contexts_of_a_user_are_erased(root: str, models: Models) -> None:
    at, later = datetime(2024, 1, 15, 10, tzinfo=UTC), datetime(2024, 1, 20, tzinfo=UTC)
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support", user_id="dora-55", start=START)
    own = MemoryWriter.open(root, workspace_id="acme", agent_id="support", start=START)
    for number, one in enumerate((writer, own)):
        lost = one.remember(f"The transfer over line {number}71 failed.", outcome_success=False, now=at)
        cause = one.remember(f"Line {number}71 closes at night.", now=at)
        one.link(lost, cause, "caused_by", 0.7, now=at)
        one.contexts.create("tariffs", "knowledge_base", now=at)
        one.contexts.put("tariffs", "basic", f"The basic tariff is {number}713.", now=at)
        one.contexts.snapshot("tariffs", "january", now=at + timedelta(minutes=1))
        one.contexts.put("tariffs", "basic", f"The basic tariff is {number}714.", now=at + timedelta(minutes=2))
    kept(Lake(root), models, later)
    writer.contexts.archive("tariffs", now=later)  # pending
    report = forget(Lake(root), models, Subject.user("acme", "dora-55"), later + timedelta(hours=1))
    assert_verified(Lake(root), report)
    for text in (b"dora-55", b"line 071", b"tariff is 0713"):
        assert not [path for path in Path(root).rglob("*") if path.is_file() and text in path.read_bytes()]
    assert MemoryWriter.open(root, workspace_id="acme", agent_id="support", user_id="dora-55").contexts.list() == []
    # The agent's own are whole, and still verified after another run.
    memories = MemoryReader(Lake(root), ACME, models.embedder).memories
    [failed] = memories.list(outcome_success=False)
    assert [(one.relation, one.weight) for one in memories.links(failed.id)] == [("caused_by", 0.7)]
    assert own.contexts.restore("tariffs", "january", now=later + timedelta(hours=2)) == 1
    assert [one.content for one in memories.list(context="tariffs")] == ["The basic tariff is 1713."]
    run(Lake(root), models, later + timedelta(hours=3))
    assert_verified(Lake(root), report)


def test_a_link_and_an_entry_that_name_a_person_are_erased_with_them(root: str, models: Models) -> None:
    at, later = datetime(2024, 1, 15, 10, tzinfo=UTC), datetime(2024, 1, 20, tzinfo=UTC)
    own = MemoryWriter.open(root, workspace_id="acme", agent_id="support", start=START)
    about = own.remember("Zelda's order is late.", now=at)
    plain, other = own.remember("Orders ship on Monday.", now=at), own.remember("The depot is closed.", now=at)
    own.link(plain, about, "explains", now=at)
    own.link(plain, other, "told_by_zelda", now=at)
    link = {"memory": "LINK", "memory_id": other, "other_id": plain, "relation": "explains"}
    own.change_memories([{**link, "editor": "Zelda", "reason": "Zelda says so"}], now=at)
    own.contexts.create("zelda", "project_context", now=at)
    own.contexts.put("zelda", "status", "It is late.", now=at)
    own.contexts.create("orders", now=at)
    entry = own.contexts.put("orders", "status", "They are late.", editor="Zelda", now=at)
    kept(Lake(root), models, later)
    own.contexts.snapshot("orders", "for Zelda", now=later)  # pending
    report = forget(Lake(root), models, Subject.person("acme", ["Zelda"]), later + timedelta(hours=1))
    assert_verified(Lake(root), report)
    assert not [path for path in Path(root).rglob("*") if path.is_file() and b"zelda" in path.read_bytes().lower()]
    memories = MemoryReader(Lake(root), ACME, models.embedder).memories
    assert [(one.source_id, one.target_id, one.relation) for one in memories.links(plain)] == [
        (other, plain, "explains")
    ]
    contexts = MemoryWriter.open(root, workspace_id="acme", agent_id="support", start=START).contexts
    assert [one.name for one in contexts.list()] == ["orders"]
    assert contexts.snapshots("orders") == {}
    assert [(one.id, one.editor) for one in memories.list(context="orders")] == [(entry, "agent")]
