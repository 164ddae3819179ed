"""The journal: append-only files, one for each write of an agent, deleted when all their hours are acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import InputError, LakeError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.lake.journal import Contents, Journal, JournalFile, folder_of
from memory_pipeline_tests.building import hours
from memory_pipeline_tests.domain.memories.histories import do, histories, remember
from memory_pipeline_tests.effort import examples

SCOPE = Scope("acme", "support")
PENDING = f"lake/{folder_of(SCOPE)}"


@pytest.fixture
def journal(root: str) -> Journal:
    return Journal(Storage(root))


def message(content: str = "hello", at: str = "2024-01-15T08:03:00+00:00", **fields: object) -> Message:
    record: dict[str, object] = {
        "workspace_id": "acme",
        "agent_id": "support",
        "conversation_id": "call",
        "turn": 0,
        "role": "user",
        "content": content,
        "timestamp": at,
        "received_at": "2024-06-01T00:00:00+00:00",
    }
    return Message.from_record(record | fields)


def agent_of(journal: Journal, file: JournalFile) -> str:
    scope = journal.scope_of(file)
    assert scope is not None
    return scope.agent_id


def all_messages(journal: Journal, scope: Scope | None = None) -> list[Message]:
    return [each for file in journal.pending(scope) for each in journal.read(file)[0]]


def all_rejections(journal: Journal) -> list[Rejection]:
    return [each for file in journal.pending() for each in journal.read(file).rejected]


# --- append and read -------------------------------------------------------------------------------------------------


def test_appended_records_are_pending(journal: Journal, tmp_path: Path) -> None:
    first, second = message(id="m1"), message(id="m2", name="Anna", tags=["t"])
    [path] = journal.append([first, second])
    [file] = journal.pending()
    assert (file.path, journal.scope_of(file), [str(hour) for hour in file.hours]) == (path, SCOPE, ["2024-01-15T08"])
    assert file.size == (tmp_path / "lake" / path).stat().st_size
    assert journal.read(file) == Contents([first, second], [], [], [])


def test_a_file_is_named_by_its_hour_and_readable_by_anyone(journal: Journal, tmp_path: Path) -> None:
    [path] = journal.append([message("Zoë: 你好")])
    assert path.startswith(f"{folder_of(SCOPE)}/2024-01-15T08__")
    assert path.endswith(".jsonl")
    [line] = (tmp_path / "lake" / path).read_text("utf-8").splitlines()
    assert json.loads(line)["content"] == "Zoë: 你好"
    assert "Zoë: 你好" in line


@pytest.mark.on_s3
def test_a_write_of_one_agent_creates_one_file(journal: Journal) -> None:
    said = [
        message(at="2024-01-15T23:59:59+00:00"),
        message(at="2024-01-16T00:00:00+00:00"),
        message(at="2024-01-16T00:30:00+01:00"),  # 23:30 UTC
        message(at="2024-01-16T00:00:00+00:00", agent_id="sales"),
    ]
    assert len(journal.append(said)) == 2
    held = {(agent_of(journal, file), file.hours): len(journal.read(file)[0]) for file in journal.pending()}
    night, morning = hours("2024-01-15T23", "2024-01-16T00")
    assert held == {("support", (night, morning)): 3, ("sales", (morning,)): 1}


@pytest.mark.on_s3
@pytest.mark.parametrize(
    ("offsets", "name"),
    [
        ([0], "2024-01-15T22"),
        ([0, 1, 2, 11, 12], "2024-01-15T22.1.1.9.1"),
        ([0, 24 * 366], "2024-01-15T22.8784"),
        (range(0, 136, 2), "2024-01-15T22" + 67 * ".2"),
        (range(0, 3000, 7), "2024-01-15T22.more"),
    ],
)
def test_the_name_of_a_file_lists_its_hours(journal: Journal, offsets: Sequence[int], name: str) -> None:
    start = datetime(2024, 1, 15, 22, 30, tzinfo=UTC)
    said = [message(at=(start + timedelta(hours=offset)).isoformat()) for offset in offsets]
    [path] = journal.append(said[::-1])
    assert path.rpartition("/")[2].partition("__")[0] == name
    assert len(path.rpartition("/")[2]) < 200
    [file] = journal.pending()
    assert file.hours == file.pending_hours == tuple(each.hour for each in said)
    assert journal.read(file, [said[-1].hour]).messages == said[-1:]
    assert sorted(journal.read(file).messages, key=lambda each: each.sent_at) == said


def test_appending_nothing_creates_no_file(journal: Journal) -> None:
    assert journal.append([]) == []
    assert journal.pending() == []


def test_every_append_creates_a_new_file(journal: Journal) -> None:
    """Two writers in one millisecond do not overwrite each other."""
    paths = [path for number in range(50) for path in journal.append([message(f"{number}")])]
    assert len(set(paths)) == 50
    assert sorted(each.content for each in all_messages(journal)) == sorted(map(str, range(50)))


@pytest.mark.on_s3
def test_pending_is_sorted_by_agent_and_hour(journal: Journal) -> None:
    for agent, hour in [("b", 9), ("a", 9), ("b", 8), ("a", 8)]:
        journal.append([message(at=f"2024-01-15T{hour:02}:00:00+00:00", agent_id=agent)])
    found = [(agent_of(journal, file), file.hours[0].number) for file in journal.pending()]
    assert found == [("a", 8), ("a", 9), ("b", 8), ("b", 9)]


@given(st.lists(st.text(st.characters(exclude_characters="\x00", codec="utf-8")), max_size=4))
def test_any_text_round_trips(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Line separators of other scripts do not end a line."""
    journal = Journal(Storage(str(tmp_path_factory.mktemp("journal"))))
    said = [message(f"{text} \u2028 \x85 \x0c \x1c \r\n.", id=f"m{number}") for number, text in enumerate(texts)]
    journal.append(said)
    assert all_messages(journal) == said
    assert all_rejections(journal) == []


# --- edits -----------------------------------------------------------------------------------------------------------


def edit(value: str = "Porto", at: str = "2024-01-15T08:30:00+00:00", **fields: object) -> Edit:
    record: dict[str, object] = {
        "workspace_id": "acme",
        "agent_id": "support",
        "edit": "UPDATE",
        "subject": "Anna",
        "predicate": "lives_in",
        "object": value,
        "timestamp": at,
        "received_at": "2024-06-01T00:00:00+00:00",
    }
    return Edit.from_record(record | fields)


def test_edits_and_messages_share_a_file_and_are_read_separately(journal: Journal) -> None:
    said, first, second = message(id="m1"), edit(), edit("Rome", replaces="Porto", weight=0.5)
    [path] = journal.append([first, said, second])
    [file] = journal.pending()
    assert file.path == path
    assert journal.read(file) == Contents([said], [first, second], [], [])


def test_edits_are_in_the_files_of_their_agent(journal: Journal) -> None:
    edits = [edit(), edit(at="2024-01-15T09:00:00+00:00"), edit(agent_id="sales")]
    assert len(journal.append(edits)) == 2
    held = {agent_of(journal, file): journal.read(file).edits for file in journal.pending()}
    assert held == {"support": edits[:2], "sales": edits[2:]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"edit": "UPSERT"}, "operation 'UPSERT' is unknown"),
        ({"subject": "\ud800"}, "subject '\\ud800' is not valid Unicode"),
        ({"agent_id": "sales"}, "expected the scope and hours of its file"),
        ({"timestamp": "2024-01-15T09:00:00+00:00"}, "expected the scope and hours of its file"),
        ({"timestamp": None}, "timestamp None is not a time"),
    ],
)
def test_an_unreadable_edit_does_not_affect_other_records(
    journal: Journal, tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    [path] = journal.append([edit(), message()])
    with (tmp_path / "lake" / path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(edit("Rome").to_record() | changes) + "\n")
    [own] = journal.pending()
    held = journal.read(own)
    assert (held.messages, held.edits) == ([message()], [edit()])
    [rejection] = held.rejected
    assert rejection.reason.startswith(reason)
    assert rejection.where == f"{path}, line 3"


# --- events of durable memories --------------------------------------------------------------------------------------


def test_events_share_a_file_with_messages_and_edits_and_are_read_separately(journal: Journal) -> None:
    said, edited = message(id="m1"), edit()
    tea = remember("Zoë likes tea: 你好.", -4, tags=["t"])
    events = [tea, do("BOOST", tea, -3.9, amount=0.2), do("FORGET", tea, -3.8, reason="as asked")]
    [path] = journal.append([events[0], said, edited, *events[1:]])
    [file] = journal.pending()
    assert file.path == path
    assert journal.read(file) == Contents([said], [edited], [], events)


@settings(max_examples=examples(15), deadline=None)
@given(histories(with_consolidation=False))
def test_events_round_trip(events: list[MemoryEvent]) -> None:
    with TemporaryDirectory() as folder:
        journal = Journal(Storage(folder))
        own = [replace(event, editor="agent", evidence=(), conversation_id=None) for event in events]
        own = [MemoryEvent.from_record(event.to_record()) for event in own]
        journal.append(own)
        found = [event for file in journal.pending() for event in journal.read(file).events]
    assert sorted(found, key=lambda event: event.id) == sorted(own, key=lambda event: event.id)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"memory": "MERGE"}, "memory 'MERGE' is unknown"),
        ({"changes": {"content": "\ud800"}}, "content '\\ud800' is not a text"),
        ({"editor": "consolidation"}, "editor 'consolidation' is reserved for the pipeline"),
        ({"agent_id": "sales"}, "expected the scope and hours of its file"),
        ({"timestamp": "2024-01-15T09:00:00+00:00"}, "expected the scope and hours of its file"),
        ({"received_at": None}, "received_at None is not a time"),
    ],
)
def test_an_unreadable_event_does_not_affect_other_records(
    journal: Journal, tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    tea = remember("Anna likes tea.", -4)
    [path] = journal.append([tea, message()])
    with (tmp_path / "lake" / path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(tea.to_record() | changes) + "\n")
    [own] = journal.pending()
    held = journal.read(own)
    assert (held.messages, held.edits, held.events) == ([message()], [], [tea])
    [rejection] = held.rejected
    assert rejection.reason.startswith(reason)
    assert rejection.where == f"{path}, line 3"


def test_events_not_made_by_an_agent_are_refused(journal: Journal) -> None:
    tea = remember("Anna likes tea.")
    with pytest.raises(InputError, match=r"received_at of event:2024-01-15T12:\w+ is missing"):
        journal.append([do("COOL", tea, 0)])
    assert journal.pending() == []


# --- recalled memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", ["{0}", "\n\n{0}\n", "> {0}", "{0}\n{0}"])
def test_a_line_of_only_recalled_memory_is_skipped(journal: Journal, tmp_path: Path, wrapped: str) -> None:
    """Such a line is neither a message nor an error."""
    [path] = journal.append([message(id="m1")])
    record = message(id="m2").to_record() | {"content": wrapped.format(mark("Anna lives in Porto."))}
    with (tmp_path / "lake" / path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    [own] = journal.pending()
    assert journal.read(own) == Contents([message(id="m1")], [], [], [])
    (tmp_path / "lake" / path).write_text(json.dumps(record) + "\n")
    assert journal.read(own) == Contents([], [], [], [])


def test_text_around_recalled_memory_is_kept(journal: Journal, tmp_path: Path) -> None:
    [path] = journal.append([message(id="m1")])
    record = message(id="m2").to_record() | {"content": f"{mark('Anna lives in Porto.')}\nI live in Rome."}
    (tmp_path / "lake" / path).write_text(json.dumps(record) + "\n")
    [own] = journal.pending()
    [found] = journal.read(own).messages
    assert found.content == "I live in Rome."


# --- isolation -------------------------------------------------------------------------------------------------------


@pytest.mark.on_s3(always=True)
def test_an_agent_sees_its_own_files(journal: Journal) -> None:
    others = [("acme", "sales"), ("acme", "support2"), ("acme2", "support"), ("support", "acme")]
    for workspace, agent in [("acme", "support"), *others]:
        journal.append([message(f"{workspace}/{agent}", workspace_id=workspace, agent_id=agent)])
    assert [each.content for each in all_messages(journal, SCOPE)] == ["acme/support"]
    assert len(all_messages(journal)) == 5


@pytest.mark.parametrize(
    "foreign",
    [{"agent_id": "sales"}, {"workspace_id": "other"}, {"timestamp": "2024-01-15T09:00:00+00:00"}],
)
def test_a_line_of_another_agent_or_hour_is_rejected(
    journal: Journal, tmp_path: Path, foreign: dict[str, object]
) -> None:
    """Write access to one agent's folder does not allow writing in another agent's name."""
    [path] = journal.append([message(id="m1")])
    with (tmp_path / "lake" / path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(message(id="m2").to_record() | foreign) + "\n")
    assert [each.source_id for each in all_messages(journal)] == ["m1"]
    [rejection] = all_rejections(journal)
    assert "expected the scope and hours of its file" in rejection.reason
    assert rejection.where == f"{path}, line 2"


# --- foreign files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        ".2024-01-15T08__01HK.jsonl.123",
        ".2024-01-15T08__01HK.jsonl",
        "README.md",
        "2024-01-15T08.jsonl",
        "2024-01-15T08__01HK.json",
        "2024-01-15T08__01HK.jsonl.tmp",
        "2024-01-15T24__01HK.jsonl",
        "2024-01-15__01HK.jsonl",
        "2024-W03__01HK.jsonl",
        "notanhour__01HK.jsonl",
        "2024-01-15T08.__01HK.jsonl",
        "2024-01-15T08.0__01HK.jsonl",
        "2024-01-15T08.-1__01HK.jsonl",
        "2024-01-15T08.1.more__01HK.jsonl",
        "2024-01-15T08.9999999__01HK.jsonl",
        "2024-01-15T08.\u0661__01HK.jsonl",
        "__.jsonl",
        "deeper/2024-01-15T08__01HK.jsonl",
        "../2024-01-15T08__01HK.jsonl",
        "../../2024-01-15T08__01HK.jsonl",
        "../not a scope/2024-01-15T08__01HK.jsonl",
        "../it's/2024-01-15T08__01HK.jsonl",
    ],
)
def test_files_with_foreign_names_are_left_alone(journal: Journal, tmp_path: Path, name: str) -> None:
    journal.append([message()])
    foreign = tmp_path / PENDING / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign = foreign.resolve()  # the agent's folder is deleted with its last file
    foreign.write_bytes(b"not a message\n")
    assert len(journal.pending()) == 1
    journal.acknowledge(journal.pending())
    assert foreign.read_bytes() == b"not a message\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"hello", "not valid JSON"),
        (b'{"turn": 0', "not valid JSON"),  # truncated
        (b"[" * 100_000, "not valid JSON"),
        (b'{"turn": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b'{"content": "\xff"}', "not valid UTF-8 at byte 13"),
        (b"[]", "expected a JSON object, not []"),
        (b"null", "expected a JSON object, not None"),
        (b'"text"', "expected a JSON object, not 'text'"),
        (b"{}", "workspace_id None is not valid"),
    ],
    ids=["brace", "word", "cut", "deep", "digits", "utf-8", "list", "null", "text", "empty"],
)
def test_an_unreadable_line_does_not_affect_others(journal: Journal, tmp_path: Path, line: bytes, reason: str) -> None:
    [path] = journal.append([message(id="m1")])
    file = tmp_path / "lake" / path
    file.write_bytes(line + b"\n\n  \n" + file.read_bytes())
    assert [each.source_id for each in all_messages(journal)] == ["m1"]
    [rejection] = all_rejections(journal)
    assert rejection.reason.startswith(reason)
    assert rejection.where == f"{path}, line 1"
    assert len(rejection.reason) < 400
    with pytest.raises(InputError):
        Message.from_record(parse_json(line))


@pytest.mark.parametrize(
    "field", ["workspace_id", "conversation_id", "role", "content", "timestamp", "received_at", "turn"]
)
def test_a_line_without_a_field_is_rejected(journal: Journal, tmp_path: Path, field: str) -> None:
    [path] = journal.append([message()])
    record = message().to_record()
    del record[field]
    (tmp_path / "lake" / path).write_text(json.dumps(record))
    assert all_messages(journal) == []
    assert field.partition("_")[0] in all_rejections(journal)[0].reason


def test_any_line_ending_is_accepted(journal: Journal, tmp_path: Path) -> None:
    [path] = journal.append([message(id="m1")])
    line = (tmp_path / "lake" / path).read_bytes().strip()
    other = line.replace(b'"m1"', b'"m2"')
    (tmp_path / "lake" / path).write_bytes(line + b"\r\n" + other)
    assert [each.source_id for each in all_messages(journal)] == ["m1", "m2"]


# --- symbolic links --------------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder outside of the lake, with files named like the journal's."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "2024-01-15T08__01HK.jsonl").write_text("root:x:0:0\n" + json.dumps(message("theirs").to_record()))
    (folder / "bad.json").write_text(json.dumps({"reason": "r", "where": "w", "record": "theirs"}))
    return folder


@pytest.mark.parametrize(
    ("link", "target"),
    [
        (f"{folder_of(SCOPE)}/2024-01-15T09__01HK.jsonl", "2024-01-15T08__01HK.jsonl"),
        (f"{folder_of(SCOPE)}/2024-01-15T09__01HZ.jsonl", "nowhere"),
        ("journal/pending/linked", ""),
        ("journal/quarantine/bad.json", "bad.json"),
        ("journal/quarantine", ""),
    ],
)
def test_a_symbolic_link_is_reported_and_not_followed(
    journal: Journal, tmp_path: Path, outside: Path, link: str, target: str
) -> None:
    journal.append([message("mine")])
    place = tmp_path / "lake" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside / target)
    for scope in (None, SCOPE, Scope("acme", "linked"), Scope("linked", "outside")):
        assert [each.content for each in all_messages(journal, scope)] in (["mine"], [])
    assert all_rejections(journal) == []
    [reported] = journal.quarantined()
    assert (reported.where, reported.record) == (link, None)
    before = sorted(path.read_bytes() for path in outside.iterdir())
    journal.acknowledge(journal.pending())
    assert sorted(path.read_bytes() for path in outside.iterdir()) == before
    place.unlink()
    assert journal.quarantined() == []


@pytest.mark.parametrize("link", ["pending", folder_of(SCOPE).removeprefix("journal/"), "quarantine"])
def test_nothing_is_written_through_a_symbolic_link(journal: Journal, tmp_path: Path, outside: Path, link: str) -> None:
    place = tmp_path / "lake/journal" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    work: Callable[[], object] = partial(journal.append, [message()])
    if link == "quarantine":
        work = partial(journal.set_aside, [Rejection("why", "here", {})])
    with pytest.raises(LakeError, match=r"/lake/journal/.* is, or is in, a symbolic link"):
        work()
    assert len(list(outside.iterdir())) == 2


def test_the_root_may_be_a_symbolic_link(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "lake").symlink_to(outside)
    journal = Journal(Storage(str(tmp_path / "lake")))
    journal.append([message()])
    assert all_messages(journal) == [message()]
    assert journal.quarantined() == []


# --- acknowledging ---------------------------------------------------------------------------------------------------


def test_acknowledged_files_are_deleted(journal: Journal, tmp_path: Path) -> None:
    journal.append([message(at="2024-01-15T08:00:00+00:00")])
    journal.append([message(at="2024-01-15T09:00:00+00:00")])
    first, second = journal.pending()
    journal.acknowledge([first])
    assert journal.pending() == [second]
    assert not (tmp_path / "lake" / first.path).exists()


def spanning(journal: Journal, count: int = 4, first: int = 8) -> list[Message]:
    """Write one message per hour in one call. Return the messages."""
    said = [message(f"{number}", at=f"2024-01-15T{first + number:02}:00:00+00:00") for number in range(count)]
    journal.append(said)
    return said


@pytest.mark.on_s3(always=True)
def test_a_file_is_deleted_when_all_its_hours_are_acknowledged(journal: Journal) -> None:
    said = spanning(journal)
    for done in ([1, 2], [1], [3]):
        journal.acknowledge(journal.pending(), [said[number].hour for number in done])
    [file] = journal.pending()
    assert (len(file.hours), file.pending_hours) == (4, (said[0].hour,))
    assert journal.read(file).messages == said, "nothing of the file is gone"
    assert journal.read(file, file.pending_hours).messages == said[:1]
    journal.acknowledge([file], [said[0].hour])
    assert journal.pending() == []
    assert journal._storage.list("journal") == [], "no mark is left"


def test_concurrent_acknowledgements_of_all_hours_delete_the_file(journal: Journal) -> None:
    """Each process has listed the file before the others acknowledge anything."""
    said = spanning(journal)
    files = journal.pending()
    for each in said:
        assert journal.pending()
        journal.acknowledge(files, [each.hour])
    assert journal._storage.list("journal") == []
    journal.acknowledge(files, [said[0].hour])  # a run that is retried
    journal.acknowledge(files, [said[1].hour])
    assert journal.pending() == []
    assert journal._storage.list("journal") == [], "a mark of a file that is gone goes as well"


def test_a_process_killed_before_it_deletes_the_file_leaves_it_pending(journal: Journal) -> None:
    said = spanning(journal, 2)
    files = journal.pending()
    journal.acknowledge(files, [said[0].hour])
    [mark] = [entry.path for entry in journal._storage.list("journal") if entry.path.endswith(".done")]
    journal._storage.write(mark.replace(str(said[0].hour), str(said[1].hour)), b"")
    [file] = journal.pending()
    assert file.pending_hours == file.hours
    journal.acknowledge([file], [said[1].hour])
    assert journal._storage.list("journal") == []


def test_acknowledging_a_file_does_not_affect_a_copy(journal: Journal, tmp_path: Path) -> None:
    said = spanning(journal)
    [file] = journal.pending()
    journal.acknowledge([file], [said[0].hour])
    copy = tmp_path / "lake" / file.path.replace(".1.1.1__", ".1.1.1.1__")
    copy.write_bytes((tmp_path / "lake" / file.path).read_bytes())
    assert [len(each.pending_hours) for each in journal.pending()] == [5, 3]
    journal.acknowledge([journal.pending()[1]])
    [left] = journal.pending()
    assert (left.path.rpartition("/")[2], len(left.pending_hours)) == (copy.name, 5)


def test_a_malformed_line_is_read_with_its_hour_or_with_every_hour_if_it_has_none(
    journal: Journal, tmp_path: Path
) -> None:
    said = spanning(journal)
    [file] = journal.pending()
    late = json.dumps(message(at="2024-01-15T08:30:00+00:00").to_record() | {"role": "robot"})
    foreign = json.dumps(message(at="2024-01-16T08:30:00+00:00").to_record())
    with (tmp_path / "lake" / file.path).open("a", encoding="utf-8") as lines:
        lines.write(f"{{cut short\n{late}\n{foreign}\n")
    rejected = [len(journal.read(file, [each.hour]).rejected) for each in said]
    assert (rejected, len(journal.read(file).rejected)) == ([3, 2, 2, 2], 3)


@pytest.mark.on_s3
def test_acknowledging_twice_is_harmless(journal: Journal) -> None:
    journal.append([message()])
    files = journal.pending()
    journal.acknowledge(files)
    journal.acknowledge(files)
    assert journal.pending() == []


@pytest.mark.on_s3(always=True)
def test_a_file_deleted_after_the_listing_is_empty(journal: Journal) -> None:
    """The pipeline acknowledges while a reader reads; missing records are in the index."""
    journal.append([message()])
    [file] = journal.pending()
    journal.acknowledge([file])
    assert journal.read(file) == Contents([], [], [], [])


# --- quarantine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record", [{"a": [1, None, "é"]}, "{cut short", "\ud800 \\xff", None, 5, [], {"": {"": ""}}, {"x": "y" * 100_000}]
)
def test_a_record_is_set_aside_with_its_reason(journal: Journal, record: object) -> None:
    rejection = Rejection("no time zone", "file.jsonl, line 3", record)
    journal.set_aside([rejection])
    assert journal.quarantined() == [rejection]


@pytest.mark.on_s3(always=True)
def test_a_repeated_record_is_quarantined_once(journal: Journal) -> None:
    journal.set_aside([Rejection("why", "here", {"a": 1, "b": 2}), Rejection("why", "there", {"b": 2, "a": 1})])
    journal.set_aside([Rejection("another reason", "here", {"a": 1, "b": 2})])
    assert [each.record for each in journal.quarantined()] == [{"a": 1, "b": 2}]
    journal.set_aside([Rejection("why", "here", {"a": 1})])
    assert len(journal.quarantined()) == 2


@pytest.mark.on_s3
def test_accepted_records_are_removed_from_quarantine(journal: Journal) -> None:
    journal.set_aside([Rejection("why", "here", {"a": 1}), Rejection("why", "here", {"a": 2})])
    journal.release(iter([digest({"a": 1}), digest({"never": "set aside"})]))
    assert [each.record for each in journal.quarantined()] == [{"a": 2}]


@pytest.mark.on_s3
def test_quarantined_records_are_not_pending(journal: Journal) -> None:
    journal.set_aside([Rejection("why", "here", {})])
    assert journal.pending() == []
    assert journal.quarantined() != []


@pytest.mark.on_s3
def test_values_that_are_not_json_are_quarantined_as_text(journal: Journal) -> None:
    journal.set_aside([Rejection("why", "here", {"at": datetime(2024, 1, 15, tzinfo=UTC)})])
    assert [each.record for each in journal.quarantined()] == [{"at": "2024-01-15 00:00:00+00:00"}]


@pytest.mark.parametrize("content", [b"notes", b"", b"[]", b"{}", b"\xff"])
def test_foreign_files_in_the_quarantine_are_left_alone(journal: Journal, tmp_path: Path, content: bytes) -> None:
    journal.set_aside([Rejection("why", "here", {"a": 1})])
    (tmp_path / "lake/journal/quarantine/README.txt").write_bytes(content)
    assert [each.record for each in journal.quarantined()] == [{"a": 1}]


def test_different_malformed_lines_are_quarantined_separately(journal: Journal, tmp_path: Path) -> None:
    [path] = journal.append([message()])
    (tmp_path / "lake" / path).write_bytes(b"\xff\n\xfe\n")
    journal.set_aside(all_rejections(journal))
    assert len(journal.quarantined()) == 2
