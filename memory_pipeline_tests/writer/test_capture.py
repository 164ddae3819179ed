"""Conversations that are not captured: nothing of them is stored, and nothing is injected if their capture is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.capture import Capture
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline.writer.files import Ingestion, ingest_file
from memory_pipeline_tests.building import NOW, START, run
from memory_pipeline_tests.invoking import call, read

IDS: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support"}
RULES = """
defaults:
  capture:
    - {source: "cron:*", mode: none}
workspaces:
  acme:
    capture:
      - {tag: internal, mode: read}
    agents:
      support:
        capture:
          - {conversation: "cron:kept-*", mode: full}
      bot:
        capture:
          - {mode: none}
"""
#: A word that is in messages of conversations that are not captured, and nowhere else.
SECRET = "zebrafinch"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    configure(lake, RULES)
    return lake


def configure(lake: Lake, text: str) -> None:
    file = Path(lake.storage.uri).parent / "rules.yaml"
    file.write_text(text)
    lake.put_configuration(file)


def talk(text: str = f"I have a {SECRET}.", **fields: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text, "timestamp": "2024-01-15T08:03:00+00:00"}
    return {**IDS, "conversation_id": "c1", "messages": [message], **fields}


def writer_of(lake: Lake, **ids: Any) -> MemoryWriter:
    return MemoryWriter.open(lake.storage.uri, **{**IDS, **ids})


def bytes_with(lake: Lake, word: str = SECRET) -> list[str]:
    files = [path for path in Path(lake.storage.uri).rglob("*") if path.is_file()]
    return [str(path) for path in files if word.encode() in path.read_bytes() or word in path.name]


def ingest(lake: Lake, *lines: object) -> Ingestion:
    file = Path(lake.storage.uri).parent / "in.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return ingest_file(lake, file, Admission(START, NOW))


@pytest.mark.parametrize(
    "fields",
    [
        {"capture": "read"},
        {"capture": "none"},
        {"source": "cron:nightly"},
        {"tags": ["phone", "internal"]},
        {"source": "cron:nightly", "capture": "full"},  # a rule is not overridden by a conversation
        {"conversation_id": "cron:kept-1", "source": "cron:nightly", "capture": "none"},  # nor the other way
        {"capture": "none", "conversation_id": "a\nb"},  # it would be refused if it were captured
        {"capture": "read", "messages": [{"role": "owner", "content": SECRET}]},
    ],
)
def test_nothing_is_stored_of_a_conversation_that_is_not_captured(lake: Lake, fields: dict[str, Any]) -> None:
    receipt = writer_of(lake).write(talk(**fields), now=NOW)
    assert (receipt.accepted, receipt.files, receipt.not_captured) == ((), (), 1)
    result = ingest(lake, talk(**fields))
    assert (result.accepted, result.set_aside, result.not_captured) == (0, 0, 1)
    run(lake, default_models())
    assert bytes_with(lake) == []


@pytest.mark.parametrize("fields", [{}, {"capture": "full"}, {"source": "slack"}, {"conversation_id": "cron:kept-1"}])
def test_other_conversations_are_stored(lake: Lake, fields: dict[str, Any]) -> None:
    receipt = writer_of(lake).write(talk(**fields), now=NOW)
    assert (len(receipt.accepted), receipt.repeated, receipt.not_captured) == (1, (), 0)
    again = writer_of(lake).write(talk(**fields), now=NOW)
    assert (again.accepted, again.repeated) == ((), receipt.accepted)
    [message] = lake.journal.read(lake.journal.pending()[0]).messages
    assert message.source == fields.get("source")


def test_a_writer_refuses_an_unknown_capture(lake: Lake) -> None:
    with pytest.raises(InputError, match=r"^capture 'quiet' is unknown; accepted: full, read, none$"):
        writer_of(lake).write(talk(capture="quiet"), now=NOW)
    assert bytes_with(lake) == []


def test_an_unknown_capture_in_a_file_is_set_aside_without_the_messages(lake: Lake) -> None:
    result = ingest(lake, talk(capture="quiet"))
    assert (result.accepted, result.set_aside, result.not_captured) == (0, 1, 0)
    [rejection] = lake.journal.quarantined()
    assert rejection.reason == "capture 'quiet' is unknown; accepted: full, read, none"
    assert rejection.record == {**IDS, "conversation_id": "c1", "capture": "quiet"}
    assert bytes_with(lake) == []


@pytest.mark.parametrize("fields", [{"capture": "none"}, {"source": "cron:x"}, {"agent_id": "bot"}])
def test_a_broken_line_is_not_set_aside_if_its_text_says_that_it_is_not_captured(
    lake: Lake, fields: dict[str, Any]
) -> None:
    result = ingest(lake, json.dumps(talk(**fields))[:-1], json.dumps([talk(**fields)]))
    assert (result.accepted, result.set_aside, result.not_captured) == (0, 0, 2)
    assert bytes_with(lake) == []


def test_a_rule_counts_for_messages_that_are_not_processed_yet(lake: Lake) -> None:
    configure(lake, "{}")
    writer = writer_of(lake)
    writer.write(talk(source="cron:nightly"), now=NOW)
    writer.write(talk("I moved to Porto.", conversation_id="c2"), now=NOW)
    configure(Lake(lake.storage.uri), RULES)
    fresh = Lake(lake.storage.uri)
    results = list(materialize(fresh, default_models(), Grain.WORKING, fresh.journal.pending_hours()))
    assert [one.not_captured for one in results if one.asset == "messages"] == [1]
    assert fresh.journal.pending() == []
    assert {fact.split(": ")[1] for fact in fresh.tables.read(FACTS)["content"].to_pylist()} == {"I moved to Porto."}
    assert bytes_with(fresh) == []


def test_of_541_conversations_the_73_that_fit_no_rule_leave_facts(lake: Lake) -> None:
    talks = [
        talk(
            f"I have {number} {SECRET if number % 541 < 468 else 'canaries'}.",
            conversation_id=f"c{number}",
            source="cron:hourly" if number < 468 else "slack",
        )
        for number in range(541)
    ]
    result = ingest(lake, *talks)
    assert (result.accepted, result.not_captured, result.set_aside) == (73, 468, 0)
    run(lake, default_models())
    facts = lake.tables.read(FACTS, columns=["conversation_id"])["conversation_id"].to_pylist()
    assert set(facts) == {f"c{number}" for number in range(468, 541)}
    assert bytes_with(lake) == []


def test_memory_is_injected_into_a_read_conversation_and_not_into_one_without_memory(lake: Lake) -> None:
    writer_of(lake).write(talk("I moved to Porto."), now=NOW)
    reader = MemoryReader.open(lake.storage.uri, **IDS)

    def injected(**conversation: Any) -> bool:
        found = reader.inject_knowledge("Where do I live?", conversation=conversation, now=NOW)
        assert found.troubles == ({} if found.block else {"injection": "capture of the conversation is none"})
        return "Porto" in (found.block or "")

    assert injected()
    assert injected(capture="read")
    assert injected(tags=["internal"])
    assert not injected(capture="none")
    assert not injected(source="cron:hourly")
    assert not injected(source="cron:hourly", capture="full")
    assert injected(source="cron:hourly", conversation_id="cron:kept-1")
    for wrong in ({"capture": "quiet"}, [("capture", "none")]):
        with pytest.raises(InputError, match=r"^(capture|conversation) .* (unknown|not accepted)"):
            reader.inject_knowledge("Where do I live?", conversation=wrong, now=NOW)


def test_a_conversation_that_is_not_captured_is_compacted_by_rules(lake: Lake) -> None:
    turns = [
        {"role": "user", "content": f"I have {number} {SECRET}s.", "timestamp": f"2024-01-15T08:{number:02}:00+00:00"}
        for number in range(10)
    ]
    short = writer_of(lake).compact(talk(capture="none", messages=turns), keep=2, now=NOW)
    assert [one["role"] for one in short["messages"]] == ["system", "user", "user"]  # type: ignore[attr-defined]
    assert bytes_with(lake) == []


def test_the_command_capture_shows_what_rules_keep_and_drop(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", lake.storage.uri)
    configure(lake, "{}")
    ingest(lake, talk(conversation_id="old", source="cron:nightly", tags=["a", "b"]), talk(conversation_id="kept"))
    run(lake, default_models())
    ingest(lake, talk(conversation_id="new", source="cron:hourly"), talk(conversation_id="noted", tags=["internal"]))
    before = read("capture")
    assert (before["full"], before["none"]) == (
        {"conversations": 4, "messages": 4},
        {"conversations": 0, "messages": 0},
    )
    file = Path(lake.storage.uri).parent / "try.yaml"
    file.write_text(RULES)
    tried = read("capture", str(file), "--dry-run")
    assert [tried[mode]["conversations"] for mode in Capture] == [1, 1, 2]
    assert tried["rules"] == {"source cron:* → none": 2, "tag internal → read": 1}
    assert [(one["conversation_id"], one["rule"]) for one in tried["dropped"]] == [
        ("new", "source cron:* → none"),
        ("noted", "tag internal → read"),
        ("old", "source cron:* → none"),
    ]
    shown = call("capture", str(file), "--limit", "1").output
    assert "none          2 conversations           2 messages" in shown
    assert "acme/support  new  1 message  by the rule source cron:* → none" in shown
    assert "… and 2 more; list them with --limit 3" in shown
    assert read("capture")["full"]["conversations"] == 4
    file.write_text("defaults: {capture: [{mode: some}]}")
    assert isinstance(call("capture", str(file)).exception, ConfigurationError)
