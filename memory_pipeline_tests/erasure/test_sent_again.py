"""Erased data that is sent again is neither written, quarantined nor found."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.lake import Lake
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.files import ingest_file
from memory_pipeline_tests.building import ACME, NOW, START, conversation, write
from memory_pipeline_tests.erasure.lakes import SALES, assert_verified

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models


def made(lake: Lake, models: Models) -> None:
    """Make the hours that are pending."""
    list(materialize(lake, models, Grain.WORKING, lake.journal.pending_hours()))


def unreadable(record: dict[str, Any]) -> list[str]:
    """Return lines of a conversation that cannot be read: one that was cut off, and one with a bad message."""
    whole = json.dumps(record)
    return [whole[:-40], json.dumps(record | {"messages": [record["messages"][0] | {"role": "robot"}]})]


@pytest.mark.parametrize(
    ("subject", "names_its_scope"),
    [
        pytest.param(Subject.agent(ACME), True, id="agent"),
        pytest.param(Subject.agent(ACME), False, id="agent of the command line"),
        pytest.param(Subject.conversation(ACME, "c-secret"), True, id="conversation"),
        pytest.param(Subject.person("acme", ["Anna"]), False, id="person"),
        pytest.param(Subject.person("acme", ["u-9"], "support"), True, id="user of one agent"),
    ],
)
def test_ingesting_a_file_again_does_not_restore_forgotten_data(
    tmp_path: Path, models: Models, subject: Subject, names_its_scope: bool
) -> None:
    lake = Lake(str(tmp_path / "lake"))
    theirs = {"user_id": "u-9"} | conversation("I moved to Porto.", "I like tea.", conversation_id="c-secret")
    others = conversation("Bob likes figs.", name="Dora", conversation_id="c2", scope=SALES)
    lines = [json.dumps(theirs), *unreadable(theirs), json.dumps(others), *unreadable(others)]
    default = {"workspace_id": "acme", "agent_id": "support"}
    if not names_its_scope:
        lines = [line.replace('"workspace_id": "acme", "agent_id": "support", ', "") for line in lines]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(lines))
    first = ingest_file(lake, path, Admission(START, NOW), default)
    assert (first.accepted, first.set_aside, first.forgotten) == (3, 4, 0)
    made(lake, models)
    receipt = forget(lake, models, subject, NOW)
    assert_verified(lake, receipt)
    again = ingest_file(lake, path, Admission(START, NOW), default)
    assert (again.accepted, again.repeated, again.set_aside, again.forgotten) == (0, 1, 2, 4)
    assert lake.journal.pending() == []
    assert_verified(lake, receipt)
    later = NOW + timedelta(days=1)
    theirs["messages"] = [theirs["messages"][0] | {"timestamp": later.isoformat(), "id": "m9"}]
    path.write_text("\n".join([json.dumps(theirs), *unreadable(theirs)[1:]]))
    said_later = ingest_file(lake, path, Admission(START, later), default)
    assert (said_later.accepted, said_later.set_aside, said_later.forgotten) == (1, 1, 0)


def test_a_writer_drops_forgotten_records_that_are_sent_again(tmp_path: Path, models: Models) -> None:
    lake = Lake(str(tmp_path / "lake"))
    talk = conversation("I moved to Porto.", "Ask Bob.", name="Dora")
    write(lake, talk)
    made(lake, models)
    receipt = forget(lake, models, Subject.person("acme", ["Bob", "u-9"]), NOW)
    writer = MemoryWriter(lake, ACME)
    sent = writer.write(talk, now=NOW)
    assert (len(sent.message_ids), sent.files, sent.forgotten) == (1, (), 1)
    writer.graph.apply(
        [{"edit": "INSERT", "subject": "Bob", "predicate": "likes", "object": "tea", "timestamp": "2024-01-15T08:10Z"}],
        now=NOW,
    )
    writer.change_memories(
        [{"memory": "REMEMBER", "content": "Bob likes tea.", "timestamp": "2024-01-15T08:10Z"}], now=NOW
    )
    assert lake.journal.pending() == []
    assert_verified(lake, receipt)


def test_unreadable_pending_lines_of_the_subject_are_not_quarantined(tmp_path: Path, models: Models) -> None:
    lake = Lake(str(tmp_path / "lake"))
    theirs = conversation("I moved to Porto.", conversation_id="c-secret")
    write(lake, theirs)
    receipt = forget(lake, models, Subject.conversation(ACME, "c-secret"), NOW)
    path = f"{folder_of(ACME)}/2024-01-15T08.1__01HNGZ0000000000000000000A.jsonl"
    lake.storage.write(path, json.dumps(theirs)[:-20].encode())
    made(lake, models)
    assert lake.storage.list("journal") == []
    assert_verified(lake, receipt)


def test_forgotten_records_are_removed_from_a_partly_acknowledged_file(tmp_path: Path, models: Models) -> None:
    lake = Lake(str(tmp_path / "lake"))
    talk = conversation("Ask Bob.", "Ask Carl.", "Ask Bob again.", "Ask Dora.", name="Dora")
    for number, message in enumerate(talk["messages"]):
        message["timestamp"] = f"2024-01-15T{8 + number:02}:00:00Z"
    write(lake, talk)
    [file] = lake.journal.pending()
    list(materialize(lake, models, Grain.WORKING, file.hours[:2]))
    receipt = forget(lake, models, Subject.person("acme", ["Bob"]), NOW)
    assert_verified(lake, receipt)
    left = [message.content for file in lake.journal.pending() for message in lake.journal.read(file).messages]
    assert sorted(left) == ["Ask Carl.", "Ask Dora."]
    made(lake, models)
    assert lake.storage.list("journal") == []
    assert sorted(lake.tables.read(MESSAGES)["content"].to_pylist()) == ["Ask Carl.", "Ask Dora."]
