"""Ingesting files: invalid records are set aside with a reason, and the rest is written."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.conversations import Admission, Rejection
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.journal import Journal
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import files
from memory_pipeline.writer.files import Ingestion, ingest_file
from memory_pipeline_tests.invoking import call, read

NOW = datetime(2024, 6, 1, tzinfo=UTC)
ADMISSION = Admission(date(2024, 1, 1), NOW)

Record = dict[str, Any]


def message(content: str = "I moved to Porto.", **fields: object) -> Record:
    return {"role": "user", "content": content, "timestamp": "2024-01-15T08:03:00+00:00", **fields}


def conversation(*messages: object, **fields: object) -> Record:
    header = {"workspace_id": "acme", "agent_id": "support", "conversation_id": "call"}
    return {**header, "messages": list(messages or [message()]), **fields}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(str(tmp_path / "lake"))


def ingest(lake: Lake, content: bytes | str | list[Any], name: str = "in.jsonl", **options: Any) -> Ingestion:
    """Ingest a file with this content. The items of a list become lines."""
    if isinstance(content, list):
        content = "".join(f"{json.dumps(record)}\n" for record in content)
    path = Path(lake.storage.uri).parent / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return ingest_file(lake, path, options.pop("admission", ADMISSION), **options)


def pending(lake: Lake) -> list[str]:
    held = [lake.journal.read(file)[0] for file in lake.journal.pending()]
    return sorted(message.content for messages in held for message in messages)


def run(lake: Lake) -> None:
    list(materialize(lake, default_models(), Grain.WORKING, lake.journal.pending_hours()))
    assert lake.journal.pending() == []


def test_jsonl_has_one_conversation_per_line(lake: Lake) -> None:
    result = ingest(lake, [conversation(message("one")), conversation(message("two"), conversation_id="c2")])
    assert (result.conversations, result.accepted, result.files, result.set_aside) == (2, 2, 1, 0)
    assert pending(lake) == ["one", "two"]


@pytest.mark.parametrize("name", ["in.json", "IN.JSON"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_one_conversation_or_a_list(lake: Lake, name: str, indent: int | None) -> None:
    one, two = conversation(message("one")), conversation(message("two"))
    assert ingest(lake, json.dumps(one, indent=indent), name).accepted == 1
    both = ingest(lake, "\n " + json.dumps([one, two], indent=indent), name)
    assert (both.accepted, both.repeated) == (1, 1)
    assert pending(lake) == ["one", "two"]


@pytest.mark.parametrize("name", ["in.jsonl", "in.txt", "in"])
def test_blank_lines_are_skipped_but_counted(lake: Lake, name: str) -> None:
    good = json.dumps(conversation())
    result = ingest(lake, f"\n  \n{good}\r\n\t\n\nbad\n{good}", name)
    assert (result.conversations, result.set_aside) == (2, 1)
    assert [rejection.where for rejection in result.rejections] == [f"{name}, line 6"]


@pytest.mark.parametrize(("name", "content"), [("in.jsonl", b""), ("in.jsonl", b"\n \n"), ("in.json", b"[]")])
def test_an_empty_file_creates_no_lake(lake: Lake, name: str, content: bytes) -> None:
    assert ingest(lake, content, name) == Ingestion()
    assert not Path(lake.storage.uri).exists()


def test_an_empty_json_file_is_set_aside(lake: Lake) -> None:
    result = ingest(lake, b"", "in.json")
    assert (result.accepted, result.set_aside) == (0, 1)
    assert result.rejections[0].reason.startswith("not valid JSON: 'Expecting value")


@pytest.mark.parametrize("name", ["in.jsonl", "in.json"])
def test_a_byte_order_mark_is_skipped(lake: Lake, name: str) -> None:
    result = ingest(lake, json.dumps(conversation()).encode("utf-8-sig"), name)
    assert (result.accepted, result.set_aside) == (1, 0)


def test_a_byte_order_mark_loses_no_record(lake: Lake) -> None:
    good = json.dumps(conversation()).encode()
    result = ingest(lake, b"\xef\xbb\xbf" + good + b"\n" + good)
    assert result.accepted + result.repeated + result.set_aside == 2
    assert all("BOM" in rejection.reason for rejection in result.rejections)


@pytest.mark.parametrize("name", ["missing.jsonl", "missing.json", "folder.jsonl", "folder.json"])
def test_a_file_that_cannot_be_opened_is_an_error(lake: Lake, tmp_path: Path, name: str) -> None:
    for folder in ("folder.jsonl", "folder.json"):
        (tmp_path / folder).mkdir()
    with pytest.raises(InputError, match=f"file .*{name} cannot be read: (No such file|Is a directory)"):
        ingest_file(lake, tmp_path / name, ADMISSION)
    assert not Path(lake.storage.uri).exists()


def test_the_file_is_not_changed(lake: Lake, tmp_path: Path) -> None:
    content = json.dumps(conversation()).encode() + b"\nbad\n"
    ingest(lake, content)
    assert (tmp_path / "in.jsonl").read_bytes() == content


TWICE = json.dumps(conversation()).replace('"content"', '"content": "I moved to Rome.", "content"')

BAD_LINES = [
    pytest.param(TWICE.encode(), "'content'", id="a key twice"),
    pytest.param(b"hello", "not valid JSON", id="no JSON"),
    pytest.param(b'{"messages": [', "not valid JSON", id="cut short"),
    pytest.param(b'{"content": "\xff\xfe"}', "not valid UTF-8 at byte 13", id="not UTF-8"),
    pytest.param(json.dumps(conversation()).encode("utf-16"), "not valid UTF-8 at byte 0", id="UTF-16"),
    pytest.param(b"[" * 100_000, "not valid JSON", id="too deep"),
    pytest.param(b'{"x": ' + b"9" * 10_000 + b"}", "not valid JSON", id="too many digits"),
    pytest.param(b"[]", "expected a JSON object, not []", id="a list"),
    pytest.param(b"null", "expected a JSON object, not None", id="null"),
    pytest.param(b"{}", "workspace_id None is not valid", id="empty"),
    pytest.param(json.dumps(conversation(agent_id="")).encode(), "agent_id '' is not valid", id="no agent"),
    pytest.param(json.dumps(conversation(conversation_id="x" * 10_000_000)).encode(), "conversation_id", id="10 MB id"),
    pytest.param(json.dumps(conversation(messages=[])).encode(), "messages must be a list of at least one", id="none"),
    pytest.param(json.dumps(conversation(message("a\ud800"))).encode(), "not valid Unicode text", id="surrogate"),
    pytest.param(json.dumps(conversation(message(id="\udc00"))).encode(), "broken Unicode", id="surrogate in an id"),
]


@pytest.mark.parametrize(("line", "reason"), BAD_LINES)
def test_an_invalid_line_is_set_aside_and_the_rest_is_written(lake: Lake, line: bytes, reason: str) -> None:
    good = [json.dumps(conversation(message(text))).encode() for text in ("before", "after")]
    line = line.replace(b"\n", b" ")
    result = ingest(lake, b"\n".join([good[0], line, good[1]]))
    assert (result.conversations, result.accepted, result.set_aside) == (2, 2, 1)
    assert pending(lake) == ["after", "before"]
    [rejection] = lake.journal.quarantined()
    assert reason in rejection.reason
    assert len(rejection.reason) < 400
    assert rejection.where.startswith("in.jsonl, line 2")
    assert rejection == result.rejections[0]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"content": None}, "content is missing; expected a text"),
        ({"timestamp": None}, "timestamp None is not a time"),
        ({"timestamp": "2024-01-15T08:03:00"}, "has no time zone"),
        ({"timestamp": "0001-01-01T00:00:00Z"}, "outside the years"),
        ({"timestamp": "9999-12-31T23:59:59Z"}, "outside the years"),
        ({"timestamp": "2023-01-01T00:00:00Z"}, "unset MEMORY_PIPELINE_START"),
        ({"timestamp": "2025-01-01T00:00:00Z"}, "is in the future"),
        ({"id": "good", "content": "something else"}, "was already used for other content"),
        ({"role": "robot"}, "accepted: user, assistant, system, tool"),
    ],
)
def test_a_bad_message_is_set_aside_with_its_conversation_around_it(lake: Lake, bad: Record, reason: str) -> None:
    record = conversation(message("good", id="good"), message("bad", id="bad") | bad, message("last"), tags=["t"])
    result = ingest(lake, [record])
    assert (result.conversations, result.accepted, result.set_aside) == (1, 2, 1)
    assert pending(lake) == ["good", "last"]
    [rejection] = lake.journal.quarantined()
    assert reason in rejection.reason
    assert rejection.where == "in.jsonl, line 1, conversation call, message 2"
    assert rejection.record == record | {"messages": [record["messages"][1]]}


def test_a_record_set_aside_can_be_corrected_and_ingested(lake: Lake) -> None:
    ingest(lake, [conversation(message("one"), message("two", timestamp="2024-01-15T09:00:00"))])
    [rejection] = lake.journal.quarantined()
    corrected = json.dumps(rejection.record).replace("T09:00:00", "T09:00:00Z")
    assert ingest(lake, corrected, "corrected.json").accepted == 1
    assert pending(lake) == ["one", "two"]


def test_a_list_item_with_a_repeated_key_is_set_aside_verbatim(lake: Lake) -> None:
    result = ingest(lake, f"[{json.dumps(conversation(message('one')))},\n {TWICE}, 5]", "in.json")
    assert (result.accepted, result.set_aside) == (1, 2)
    assert [(each.record, each.where) for each in result.rejections] == [
        (TWICE, "in.json, item 2"),
        (5, "in.json, item 3, conversation"),
    ]
    assert TWICE in [each.record for each in lake.journal.quarantined()]
    assert ingest(lake, TWICE, "in.json").set_aside == 1


def test_items_of_a_list_are_set_aside_one_by_one(lake: Lake) -> None:
    records = [conversation(message("one")), 5, None, conversation(agent_id=""), conversation(message("two"))]
    result = ingest(lake, json.dumps(records), "in.json")
    assert (result.accepted, result.set_aside) == (2, 3)
    places = [rejection.where.partition(", conv")[0] for rejection in result.rejections]
    assert places == ["in.json, item 2", "in.json, item 3", "in.json, item 4"]


@pytest.mark.parametrize("content", [b"[{]", b"[\xff]", b"[" * 100_000, b"  [1, 2", b"\xff\xfe"])
def test_an_invalid_list_is_set_aside_as_a_whole(lake: Lake, content: bytes) -> None:
    result = ingest(lake, content, "in.json")
    assert (result.accepted, result.set_aside) == (0, 1)
    assert result.rejections[0].where == "in.json"
    assert result.rejections[0].reason.startswith("not valid ")
    assert lake.journal.quarantined() == result.rejections


def test_deeply_nested_records_are_set_aside(lake: Lake) -> None:
    depths = range(900, 1000) if sys.version_info < (3, 12) else range(1000, 1500, 10)
    lines = [f'{{"x": {"[" * depth}{"]" * depth}}}' for depth in depths]
    result = ingest(lake, "\n".join([*lines, json.dumps(conversation())]))
    assert (result.accepted, result.set_aside) == (1, len(depths))


def test_the_result_has_twenty_rejections_and_the_quarantine_all(lake: Lake) -> None:
    result = ingest(lake, "".join(f"bad {number}\n" for number in range(30)))
    assert (result.set_aside, len(result.rejections)) == (30, 20)
    assert len(lake.journal.quarantined()) == 30


def test_the_quarantine_is_no_larger_than_the_input_and_is_not_read_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [message(f"bad {number}", role="robot") for number in range(30)]
    record = conversation(*bad, message("good"), notes="x" * 100_000, user_id="u-1", tags=["phone"])
    assert ingest(lake, [record]).set_aside == 30
    entries = lake.storage.list("journal/quarantine")
    assert len(entries) == 30
    assert sum(entry.size for entry in entries) < 100_000
    assert {rejection.record["user_id"] for rejection in lake.journal.quarantined()} == {"u-1"}  # type: ignore[index]
    tags = [entry.tag for entry in entries]
    read = Storage.read
    reads = list[str]()

    def noted(self: Storage, path: str) -> bytes | None:
        reads.append(path)
        return read(self, path)

    monkeypatch.setattr(Storage, "read", noted)
    assert ingest(lake, [record]).set_aside == 30
    ingest(lake, [conversation(message("other", id="m9"))], "other.jsonl")
    assert not [path for path in reads if "quarantine" in path]
    assert [entry.tag for entry in lake.storage.list("journal/quarantine")] == tags, "nor written again"


def test_a_conversation_with_too_many_tags_is_set_aside_once(lake: Lake) -> None:
    result = ingest(lake, [conversation(*[message(str(n)) for n in range(9)], tags=[f"t{n}" for n in range(101)])])
    assert (result.accepted, result.set_aside) == (0, 1)
    assert result.rejections[0].reason == "tags has 101 entries; at most 100 are accepted"


def test_unknown_keys_are_counted(lake: Lake) -> None:
    said = [message("one", mood="glad", id="a"), message("two", mood="sad", id="b")]
    result = ingest(lake, [conversation(*said, channel="phone")])
    assert result.ignored_keys == {"channel": 1, "messages.mood": 2}
    assert result.set_aside == 0


def test_the_default_scope_fills_in_missing_names(lake: Lake) -> None:
    bare = {"conversation_id": "call", "messages": [message()]}
    assert ingest(lake, [bare]).set_aside == 1
    scope = {"workspace_id": "w", "agent_id": "a"}
    assert ingest(lake, [bare, conversation(), bare | {"agent_id": "b"}], default_scope=scope).accepted == 3
    scopes = {scope.ids for scope in lake.journal.pending_scopes()}
    assert scopes == {("w", "a"), ("acme", "support"), ("w", "b")}


def test_an_unprintable_default_scope_is_refused(lake: Lake) -> None:
    bare = {"conversation_id": "call", "messages": [message()]}
    result = ingest(lake, [bare], default_scope={"workspace_id": "a\nb", "agent_id": "a"})
    assert (result.accepted, result.set_aside) == (0, 1)
    assert "workspace_id 'a\\nb' is not valid" in result.rejections[0].reason


@pytest.mark.parametrize("lands_first", [True, False])
def test_ingesting_three_times_adds_no_duplicates(lake: Lake, lands_first: bool) -> None:
    said = [message("yes"), message("yes", timestamp="2024-01-16T09:00:00Z"), message("I moved to Porto.", id="m1")]
    records: list[Any] = [conversation(*said), "bad"]

    def rows() -> list[Record]:
        run(lake)
        names = [name for name in FACTS.schema.names if name != "vector"]
        found: list[Record] = lake.tables.read(FACTS, columns=names).sort_by("id").to_pylist()
        return found

    ingest(lake, records)
    once = rows() if lands_first else []
    ingest(lake, records)
    ingest(lake, records)
    found = rows()
    assert [row["content"] for row in found if row["kind"] == "turn"].count("User: yes") == 2
    assert len([row for row in found if row["kind"] == "turn"]) == 3
    assert found == once or not lands_first
    assert len(rows_to_messages(lake.tables.read(MESSAGES))) == 3
    assert len(lake.journal.quarantined()) == 1


def test_loaded_messages_are_not_written_again(lake: Lake) -> None:
    ingest(lake, [conversation(message("one", id="m1"))])
    run(lake)
    result = ingest(lake, [conversation(message("one", id="m1"), message("two", id="m2"))])
    assert (result.accepted, result.repeated, result.set_aside) == (1, 1, 0)
    assert pending(lake) == ["two"]


def test_the_id_of_a_loaded_message_cannot_be_used_for_another_text(lake: Lake) -> None:
    ingest(lake, [conversation(message("one", id="m1"))])
    run(lake)
    result = ingest(lake, [conversation(message("other", id="m1"), message("two", id="m2"))])
    assert (result.accepted, result.set_aside) == (1, 1)
    run(lake)
    assert sorted(each.content for each in rows_to_messages(lake.tables.read(MESSAGES))) == ["one", "two"]
    [rejection] = lake.journal.quarantined()
    assert "message id 'm1' of conversation 'call' was already used for other content" in rejection.reason


@pytest.mark.parametrize("lands", [True, False])
def test_an_id_of_another_hour_cannot_be_used_for_another_text(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """Neither for loaded nor for pending messages, of another file or of an earlier batch of the same."""
    ingest(lake, [conversation(message("one", id="m1"), message("tool says", id="t1", role="tool"))])
    if lands:
        run(lake)
    monkeypatch.setattr(files, "_BATCH", 1)
    later = [message("other", id="m1"), message("one", id="m1"), message("two", id="m2"), message("2", id="t1")]
    result = ingest(lake, [conversation(each | {"timestamp": "2024-03-01T09:00:00Z"}) for each in later])
    assert (result.accepted, result.repeated, result.set_aside) == (1, 0, 3)
    reasons = [each.reason.partition(" of conversation 'call' was already ") for each in result.rejections]
    assert [(first, last[:9]) for first, _, last in reasons] == [
        ("message id 'm1'", "used for "),
        ("message id 'm1'", "sent with"),
        ("message id 't1'", "used for "),
    ]
    again = ingest(lake, [conversation(message("three", id="m2", timestamp="2024-03-01T10:00:00Z"))])
    assert (again.accepted, again.set_aside) == (0, 1)
    elsewhere = conversation(message("other", id="m1"), conversation_id="another call")
    assert ingest(lake, [elsewhere]).accepted == 1


def test_pending_files_are_read_once_for_many_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(lake, [conversation(message("one", id="m1"))])
    conversations = Journal.conversations
    reads = list[str]()

    def noted(self: Journal, path: str) -> frozenset[str]:
        reads.append(path)
        return conversations(self, path)

    monkeypatch.setattr(Journal, "conversations", noted)
    monkeypatch.setattr(files, "_BATCH", 1)
    ingest(lake, [conversation(message(f"{number}", id=f"n{number}")) for number in range(10)])
    assert len(reads) == 1


def test_a_repeated_record_is_quarantined_once(lake: Lake) -> None:
    bad = [conversation(message(role="robot")), conversation(agent_id="")]
    assert ingest(lake, [*bad, *bad]).set_aside == 4
    assert ingest(lake, bad, "other.jsonl").set_aside == 2
    assert len(lake.journal.quarantined()) == 2


def test_an_earlier_start_releases_records_that_were_too_old(lake: Lake) -> None:
    old = message("old", timestamp="2019-05-01T08:00:00Z")
    records = [conversation(message("new"), old, message("bad", role="robot"))]
    assert ingest(lake, records).set_aside == 2
    result = ingest(lake, records, admission=Admission(date(2018, 1, 1), NOW))
    assert (result.accepted, result.repeated, result.set_aside) == (1, 1, 1)
    assert [rejection.reason[:11] for rejection in lake.journal.quarantined()] == ["role 'robot"]
    run(lake)
    assert sorted(each.content for each in rows_to_messages(lake.tables.read(MESSAGES))) == ["new", "old"]


def test_a_later_clock_releases_records_from_the_future(lake: Lake) -> None:
    records = [conversation(message(timestamp="2024-06-05T08:00:00Z"))]
    assert ingest(lake, records).set_aside == 1
    assert ingest(lake, records, admission=Admission(date(2024, 1, 1), datetime(2024, 6, 6, tzinfo=UTC))).accepted == 1
    assert lake.journal.quarantined() == []


def test_another_file_releases_no_records_of_this_one(lake: Lake) -> None:
    ingest(lake, [conversation(message("bad", role="robot"))])
    ingest(lake, [conversation(message("good"))], "other.jsonl")
    assert len(lake.journal.quarantined()) == 1


def test_nothing_is_released_before_it_is_in_the_journal(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [conversation(message(timestamp="2019-05-01T08:00:00Z"))]
    ingest(lake, records)

    def crash(_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(lake.journal, "append", crash)
    with pytest.raises(OSError, match="disk full"):
        ingest(lake, records, admission=Admission(date(2018, 1, 1), NOW))
    assert len(lake.journal.quarantined()) == 1


def test_a_large_file_is_written_in_batches(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH", 2)
    seen: list[int] = []
    records = [conversation(message(f"{number}")) for number in range(5)]
    result = ingest(lake, records, progress=seen.append)
    assert len(set(seen)) == 5
    assert (result.accepted, result.files) == (5, 3)
    assert pending(lake) == ["0", "1", "2", "3", "4"]


TALK = [{"speaker": "Anna", "dia_id": "D1:1", "text": "Hi!"}]
TALKS = {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": TALK}


@pytest.mark.parametrize("content", [TALKS, [{"sample_id": "s", "conversation": TALKS}], {"conversation": TALKS}])
def test_a_raw_locomo_file_is_rejected_with_a_remedy(lake: Lake, content: object) -> None:
    result = ingest(lake, json.dumps(content), "in.json")
    assert (result.accepted, result.set_aside) == (0, 1)
    hint = "this looks like LoCoMo's format; run `memory-pipeline convert locomo FILE` first"
    assert [rejection.reason for rejection in lake.journal.quarantined()] == [hint]


def test_only_locomo_files_get_the_locomo_remedy(lake: Lake) -> None:
    result = ingest(lake, [conversation(message(timestamp="2024-01-15T08:00:00"), conversation="x")])
    assert "has no time zone" in result.rejections[0].reason


BLOCK = mark("- Anna: hello")


def test_recalled_text_is_dropped_and_counted(lake: Lake) -> None:
    records = [conversation(message(f"{BLOCK}\n\none"), message(BLOCK), message("two")), conversation(message(BLOCK))]
    result = ingest(lake, records)
    assert (result.conversations, result.accepted, result.recalled, result.set_aside) == (1, 2, 3, 0)
    assert pending(lake) == ["one", "two"]
    assert ingest(lake, [conversation(message("one"))]).recalled == 0


def test_a_file_of_recalled_text_alone_creates_no_lake(lake: Lake) -> None:
    assert ingest(lake, [conversation(message(BLOCK))]) == Ingestion(recalled=1)
    assert not Path(lake.storage.uri).exists()


def test_a_quarantined_record_of_recalled_text_alone_is_released(lake: Lake) -> None:
    record = conversation(message(BLOCK))
    lake.ensure()
    lake.journal.set_aside([Rejection("refused before", "elsewhere", record)])
    assert ingest(lake, [record]).recalled == 1
    assert lake.journal.quarantined() == []


def test_the_command_reports_dropped_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", str(tmp_path / "lake"))
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(conversation(message(f"one {BLOCK}"), message(BLOCK))))
    assert "recalled text dropped from 2 messages" in call("ingest", str(path)).output
    assert read("ingest", str(path))[str(path)]["recalled"] == 2
    path.write_text(json.dumps(conversation(message("one"))))
    assert "recalled" not in call("ingest", str(path)).output


@pytest.mark.parametrize("name", ["in.jsonl", "in.json"])
def test_what_is_too_large_is_refused_and_the_lines_after_it_are_read(
    lake: Lake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 5_000)
    monkeypatch.setattr(files, "_CHUNK", 700)
    large = conversation(message("A" * 50_000), conversation_id="large")
    result = ingest(lake, [conversation(), large, conversation(message("I like tea."), conversation_id="c2")], name)
    [rejection] = result.rejections
    assert result.set_aside == 1
    assert len(str(rejection.record)) == 1_000
    assert pending(lake) == (["I like tea.", "I moved to Porto."] if name == "in.jsonl" else [])


def test_a_line_that_never_ends_takes_little_memory(lake: Lake) -> None:
    endless = subprocess.Popen(
        [sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('A' * 2**20)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    program = f"""
import resource, sys
from memory_pipeline.cli import main
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
sys.argv = {["memory-pipeline", "ingest", "-", "--root", lake.storage.uri]!r}
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=endless.stdout, capture_output=True, text=True, check=False
    )
    endless.kill()
    endless.wait()
    assert done.returncode == 1, done.stderr
    assert "1 record quarantined" in done.stdout
    assert sum(entry.size for entry in lake.storage.list("journal")) < 10_000
