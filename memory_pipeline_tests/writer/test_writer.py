"""Writes are atomic, found at once and never duplicated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.facts import rows_to_messages
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter, Receipt
from memory_pipeline_tests.users import lake_of

NOW = datetime(2024, 6, 1, tzinfo=UTC)
AT = "2024-01-15T08:03:00+00:00"
LATER = "2024-01-15T08:04:00+00:00"

Record = dict[str, Any]


def message(content: str = "I moved to Porto.", **fields: object) -> Record:
    return {"role": "user", "content": content, "timestamp": AT, **fields}


def conversation(*messages: object, **fields: object) -> Record:
    return {"conversation_id": "call", "messages": list(messages or [message()]), **fields}


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def writer(root: str) -> MemoryWriter:
    return open_writer(root)


def open_writer(root: str, agent_id: str = "support", **options: Any) -> MemoryWriter:
    return MemoryWriter.open(root, workspace_id="acme", agent_id=agent_id, **options)


def write(writer: MemoryWriter, *messages: object, **fields: object) -> Receipt:
    return writer.write(conversation(*messages, **fields), now=NOW)


def run(root: str) -> None:
    lake = Lake(root)
    made = list(materialize(lake, default_models(), Grain.WORKING, lake.journal.pending_hours()))
    assert made != []
    assert lake.journal.pending() == []


def contents(root: str, agent_id: str = "support") -> list[str]:
    """Return the texts of an agent's journal, one per message."""
    lake = Lake(root)
    held = [lake.journal.read(file)[0] for file in lake.journal.pending(Scope("acme", agent_id))]
    return sorted(message.content for messages in held for message in messages)


def landed(root: str) -> list[str]:
    """Return the rows of the table of messages."""
    return sorted(message.content for message in rows_to_messages(Lake(root).tables.read(MESSAGES)))


def test_a_write_returns_a_receipt_and_writes_a_file(writer: MemoryWriter, root: str) -> None:
    receipt = write(writer, message(id="m1"), message("And you?", id="m2", timestamp=LATER))
    assert len(receipt.message_ids) == 2
    assert all(identifier.startswith("message:2024-01-15T08:") for identifier in receipt.message_ids)
    assert [(Path(root) / path).is_file() for path in receipt.files] == [True]
    assert contents(root) == ["And you?", "I moved to Porto."]


def test_a_conversation_may_name_its_own_agent(writer: MemoryWriter, root: str) -> None:
    write(writer, workspace_id="acme", agent_id="support")
    assert contents(root) == ["I moved to Porto."]


@pytest.mark.parametrize("foreign", [{"workspace_id": "other"}, {"agent_id": "sales"}, {"agent_id": None}])
def test_another_agents_conversation_is_refused(writer: MemoryWriter, root: str, foreign: Record) -> None:
    with pytest.raises(InputError, match=r"is not this writer's; expected (acme|support)"):
        write(writer, **foreign)
    assert not Path(root).exists()


@pytest.mark.parametrize("identifier", ["a\x00", "", " ", "a\u2028b", "\ud800", "x" * 257])
def test_unprintable_ids_are_refused_before_any_access(tmp_path: Path, identifier: str) -> None:
    for workspace, agent in [(identifier, "a"), ("a", identifier)]:
        with pytest.raises(InputError, match=r"_id .* is not valid"):
            MemoryWriter.open(str(tmp_path / "lake"), workspace_id=workspace, agent_id=agent)
    assert list(tmp_path.iterdir()) == []


def test_opening_writes_nothing(root: str) -> None:
    open_writer(root)
    assert not Path(root).exists()


def test_scope_keys_of_a_message_are_ignored(writer: MemoryWriter, root: str) -> None:
    write(writer, message(agent_id="sales", workspace_id="other"))
    assert contents(root) == ["I moved to Porto."]
    assert contents(root, "sales") == []


def test_a_conversation_across_midnight_is_one_file(writer: MemoryWriter, root: str) -> None:
    times = ["23:30", "23:59:59.999999"], ["00:00", "00:30"]
    said = [message(f"1 {at}", timestamp=f"2024-01-15T{at}Z") for at in times[0]]
    said += [message(f"2 {at}", timestamp=f"2024-01-16T{at}Z") for at in times[1]]
    receipt = write(writer, *said)
    [file] = Lake(root).journal.pending()
    assert receipt.files == (file.path,)
    assert [str(hour) for hour in file.hours] == ["2024-01-15T23", "2024-01-16T00"]
    assert len(Lake(root).journal.read(file).messages) == 4


def test_a_lake_keeps_its_first_time_zone(root: str) -> None:
    write(open_writer(root, timezone="Europe/Berlin"))
    assert Lake(root).calendar.timezone == "Europe/Berlin"
    with pytest.raises(ConfigurationError, match=r"does not fit the lake at .*, which has the time zone Europe/Berlin"):
        open_writer(root, timezone="UTC")
    write(open_writer(root), message("later", id="m9"))
    assert Lake(root).calendar.timezone == "Europe/Berlin"


def test_a_writer_opened_before_the_lake_keeps_the_lakes_time_zone(root: str) -> None:
    early, insisting = open_writer(root), open_writer(root, timezone="UTC")
    write(open_writer(root, timezone="Europe/Berlin"))
    write(early, message("later", id="m9"))
    with pytest.raises(ConfigurationError, match="does not fit the lake"):
        write(insisting, message("later", id="m10"))
    assert Lake(root).calendar.timezone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"content": ""}, "content '' is not valid; expected a text that is not blank"),
        ({"content": "a\ud800"}, "is not valid Unicode text"),
        ({"timestamp": None}, "timestamp None is not a time; expected an ISO 8601 time with its zone"),
        ({"timestamp": "9999-12-31T00:00:00Z"}, "outside the years 1901 to 2998"),
        ({"timestamp": "1972-12-31T23:00:00Z"}, "before the first day of this memory, 1973-01-01"),
        ({"timestamp": "2024-06-03T00:00:00Z"}, "is in the future (now is 2024-06-01T00:00:00+00:00)"),
        ({"role": "human"}, "accepted: user, assistant, system, tool"),
        ({"id": "a\nb"}, "control characters"),
        ({"id": "x" * 10_000_000}, "(10,000,000 characters) is not valid; expected a text of 1 to 256 characters"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else next(iter(value)),
)
def test_one_bad_message_refuses_the_whole_write(writer: MemoryWriter, root: str, bad: Record, reason: str) -> None:
    with pytest.raises(InputError) as refusal:
        write(writer, message(id="m1"), message("bad") | bad)
    text = str(refusal.value)
    assert text.startswith("conversation call, message 2: ")
    assert text.endswith("; nothing was written")
    assert reason in text
    assert len(text) < 500
    assert not Path(root).exists()


def test_further_errors_are_counted(writer: MemoryWriter) -> None:
    with pytest.raises(InputError, match=r"message 1: content .* \(and 2 more\); nothing was written"):
        write(writer, message(""), message(" "), message("\n"))


def test_a_naive_now_is_refused(writer: MemoryWriter) -> None:
    with pytest.raises(InputError, match="has no time zone"):
        writer.write(conversation(), now=NOW.replace(tzinfo=None))


def test_a_start_that_was_set_refuses_older_messages(root: str) -> None:
    old = message(timestamp="2019-05-01T08:00:00Z")
    for start in (date(2024, 1, 1), "2024-01-01"):
        with pytest.raises(InputError, match="unset MEMORY_PIPELINE_START, or set it to an earlier"):
            write(open_writer(root, start=start), old)
    write(open_writer(root, start=date(2018, 1, 1)), old)
    assert contents(root) == ["I moved to Porto."]


def test_a_memory_begins_with_its_oldest_record(root: str) -> None:
    write(open_writer(root), message())
    assert Lake(root).start == date(2024, 1, 1)
    write(open_writer(root), message(timestamp="2019-05-01T08:00:00Z"), conversation_id="c2")
    assert Lake(root).start == date(2018, 1, 1)
    open_writer(root).remember("Anna likes tea.", now="2016-05-01")
    assert Lake(root).start == date(2007, 1, 1)
    open_writer(root).graph.insert("Anna", "likes", "tea", now="2002-05-01")
    assert Lake(root).start == date(2001, 1, 1)
    write(open_writer(root), message(timestamp="2019-05-02T08:00:00Z"), conversation_id="c3")
    assert Lake(root).start == date(2001, 1, 1)
    assert Lake(root, start=date(2018, 1, 1)).start == date(2018, 1, 1)


def test_a_memory_begins_with_the_day_in_its_own_zone(root: str) -> None:
    writer = open_writer(root, timezone="Asia/Tokyo")
    write(writer, message(timestamp="2023-12-31T15:00:00Z"))  # 2024 in that zone
    assert Lake(root).start == date(2024, 1, 1)
    write(writer, message(timestamp="2023-12-31T14:59:59Z"), conversation_id="c2")
    assert Lake(root).start == date(2018, 1, 1)


def test_old_messages_go_through_the_pipeline(root: str) -> None:
    from memory_pipeline.steps.scheduling.planner import grain_status

    write(open_writer(root), message(timestamp="2019-05-01T08:00:00Z"))
    lake = Lake(root)
    status = grain_status(lake, Grain.WORKING, lake.start, NOW)
    assert ([hour.key for hour in status.pending], status.early) == (["2019-05-01T08"], [])
    run(root)
    assert landed(root) == ["I moved to Porto."]


def test_now_may_be_a_text(writer: MemoryWriter, root: str) -> None:
    said = conversation(message("x"))
    writer.write(said, now="2024-06-01")
    with pytest.raises(InputError, match="now 'soon' cannot be read"):
        writer.write(said, now="soon")
    writer.remember("Anna likes tea.", now="2024-06-01T10:00:00Z")
    writer.graph.insert("Anna", "likes", "tea", now="2024-06-01T11:00:00+01:00")
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support")
    assert len(reader.memories.search("tea", now="2024-06-02")) == 1
    assert len(reader.graph.facts_about("Anna", at="2024-06-02")) == 1


def test_without_now_the_clock_is_used(writer: MemoryWriter) -> None:
    soon, far = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 48))
    writer.write(conversation(message(timestamp=soon.isoformat())))
    with pytest.raises(InputError, match="is in the future"):
        writer.write(conversation(message(timestamp=far.isoformat())))


def test_messages_with_one_id_are_one_and_equal_ones_without_are_several(writer: MemoryWriter, root: str) -> None:
    assert len(write(writer, message(id="m1"), message(id="m1"), message(), message()).message_ids) == 3
    assert contents(root) == ["I moved to Porto."] * 3


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_conversation_sent_again_with_more_turns_adds_only_the_new_ones(
    writer: MemoryWriter, root: str, has_ids: bool
) -> None:
    said = [
        message(text, timestamp=f"2024-01-15T08:0{minute}:00Z") | ({"id": f"m{minute}"} if has_ids else {})
        for minute, text in enumerate(["Shall we?", "yes", "Really?", "yes", "Good."])
    ]
    write(writer, *said[:2])
    write(writer, *said[:4])
    run(root)
    assert landed(root) == ["Really?", "Shall we?", "yes", "yes"]
    write(writer, *said)
    write(writer, *said)
    run(root)
    assert landed(root) == ["Good.", "Really?", "Shall we?", "yes", "yes"]
    turns = [row for row in Lake(root).tables.read(FACTS).to_pylist() if row["kind"] == "turn"]
    assert Counter(row["content"] for row in turns)["User: yes"] == 2
    assert len(turns) == 5
    assert Lake(root).journal.quarantined() == []


REUSES: list[Record] = [
    {"content": "I moved to Lisbon."},
    {"role": "assistant"},
    {"name": "Ben"},
    {"timestamp": LATER},
]
ELSEWHEN = {"timestamp": "2024-02-20T10:00:00Z"}


REFUSAL = "message id 'm1' of conversation 'call' was already (used for other content|sent with the time)"


def test_a_second_use_of_an_id_is_refused_with_an_error_that_names_it(writer: MemoryWriter, root: str) -> None:
    """A message cannot be changed."""
    for reuse in (*REUSES, ELSEWHEN):  # in the same write
        with pytest.raises(InputError, match=REFUSAL):
            write(writer, message(id="m1"), message(id="m1") | reuse)
    assert not Path(root).exists()
    write(writer, message(id="m1"))
    for is_loaded in (False, True):
        if is_loaded:
            run(root)
        for reuse in (*REUSES, ELSEWHEN):
            # In the hour of the reuse, so that the write says nothing of the hour of the first.
            new = message("new", id="m2") | {name: reuse[name] for name in ("timestamp",) if name in reuse}
            for one in (writer, open_writer(root)):  # the writer that wrote it, and another process
                with pytest.raises(InputError, match=REFUSAL):
                    write(one, new, message(id="m1") | reuse)
        assert contents(root) == ([] if is_loaded else ["I moved to Porto."])


def test_a_damaged_index_does_not_block_writes(writer: MemoryWriter, root: str) -> None:
    write(writer, message(id="m1"))
    run(root)
    for file in Path(root, "projections").rglob("*.manifest"):
        file.write_bytes(b"")
    assert write(open_writer(root), message("Hello.", id="m2")).files


def test_many_turns_of_a_conversation_search_the_index_once(
    writer: MemoryWriter, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(writer, message(id="m1"))
    run(root)
    search = VectorIndex.hours_of
    searched = list[Scope]()

    def noted(self: VectorIndex, scope: Scope, conversations: Collection[str]) -> dict[str, frozenset[str]]:
        searched.append(scope)
        return search(self, scope, conversations)

    monkeypatch.setattr(VectorIndex, "hours_of", noted)
    for number in range(5):
        write(writer, message(f"Turn {number}.", id=f"n{number}"))
    assert len(searched) == 1


def test_the_same_text_again_is_accepted_before_and_after_loading(writer: MemoryWriter, root: str) -> None:
    first = write(writer, message(id="m1"))
    assert write(writer, message(id="m1")).message_ids == first.message_ids
    run(root)
    assert write(open_writer(root), message(id="m1")).message_ids == first.message_ids


def test_ids_are_unique_only_within_a_conversation_of_an_agent(writer: MemoryWriter, root: str) -> None:
    write(writer, message(id="m1"))
    write(writer, message("Hello.", id="m1"), conversation_id="another call")
    write(open_writer(root, "sales"), message("Good day.", id="m1"))
    run(root)
    assert landed(root) == ["Good day.", "Hello.", "I moved to Porto."]
    write(writer, message("Again.", id="m1"), conversation_id="a third call")
    assert contents(root) == ["Again."]
    write(open_writer(root, "billing"), message("Good evening.", id="m1"))  # the others are loaded
    assert contents(root, "billing") == ["Good evening."]


def test_a_contradiction_is_seen_by_a_writer_that_was_opened_first(root: str) -> None:
    early = open_writer(root)
    write(open_writer(root), message(id="m1"))
    with pytest.raises(InputError, match="was already used for other content"):
        write(early, message("I moved to Lisbon.", id="m1"))


def test_the_first_of_two_contradictions_in_the_journal_is_kept(root: str) -> None:
    """Two processes wrote at the same time: the pipeline keeps the first and sets the other aside."""
    write(open_writer(root), message("first", id="m1"))
    elsewhere = f"{root}-of-another"  # written elsewhere and moved, so that neither process sees the other
    later = NOW + timedelta(seconds=1)
    [path] = open_writer(elsewhere).write(conversation(message("second", id="m1")), now=later).files
    (Path(elsewhere) / path).rename(Path(root) / path)
    run(root)
    assert landed(root) == ["first"]
    [rejection] = Lake(root).journal.quarantined()
    assert "message id 'm1' of conversation 'call' was already used for other content" in rejection.reason
    assert isinstance(rejection.record, dict)
    assert rejection.record["content"] == "second"


def test_threads_can_create_a_lake_concurrently(root: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        for round_ in range(10):
            fresh = f"{root}-{round_}"
            written = [
                threads.submit(write, open_writer(fresh, f"agent-{n}"), message("I moved to Porto.")) for n in range(8)
            ]
            assert all(len(each.result().files) == 1 for each in written)
            assert len(Lake(fresh).journal.pending()) == 8


def test_the_first_of_two_time_zones_is_kept(root: str) -> None:
    first, second = Lake(root, "Europe/Berlin"), Lake(root, "America/New_York")
    first.ensure()
    with pytest.raises(ConfigurationError, match="has the time zone Europe/Berlin"):
        second.ensure()


def test_a_conversation_sent_again_after_each_turn_adds_a_file_per_turn(writer: MemoryWriter, root: str) -> None:
    turns = [message(f"Turn {n}.", id=f"m{n}", timestamp=f"2024-01-15T08:{n:02}:00Z") for n in range(10)]
    for n in range(1, 11):
        assert len(write(writer, *turns[:n]).message_ids) == n
    assert len(Lake(root).journal.pending()) == 10
    assert len(contents(root)) == 10


def test_messages_of_the_chat_api_with_tools_are_accepted(writer: MemoryWriter, root: str) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "note", "arguments": '{"text": "Anna moved to Rome."}'},
    }
    talk = [
        message("Anna moved to Lyon.", role="developer"),
        message([{"type": "text", "text": "I moved to Porto."}, {"type": "image_url", "image_url": {"url": "x"}}]),  # type: ignore[arg-type]
        message(None, role="assistant", tool_calls=[call]),  # type: ignore[arg-type]
        message("Anna moved to Oslo.", role="tool", tool_call_id="c1"),
        message("I shall note it.", role="assistant", tool_calls=[call]),
    ]
    assert len(write(writer, *talk).message_ids) == 6  # two of them are equal calls
    assert write(writer, *talk).files == ()
    run(root)
    assert sorted(landed(root)) == sorted(
        [
            "Anna moved to Lyon.",
            "Anna moved to Oslo.",
            "I moved to Porto.\n[image]",
            "I shall note it.",
            *['[tool call] note({"text": "Anna moved to Rome."})'] * 2,
        ]
    )
    facts = "\n".join(Lake(root).tables.read(FACTS)["content"].to_pylist())
    assert "Porto" in facts
    assert not any(city in facts for city in ("Lyon", "Rome", "Oslo"))


def test_message_objects_of_libraries_are_accepted(writer: MemoryWriter, root: str) -> None:
    class Reply(BaseModel):
        role: str
        content: str | None = None
        timestamp: str = AT

    replies = [Reply(role="assistant", content="Porto is in Portugal."), message("Thanks. I moved to Portugal.")]
    write(writer, *replies)
    assert sorted(contents(root)) == ["Porto is in Portugal.", "Thanks. I moved to Portugal."]
    short: Any = writer.compact(conversation(*replies), keep=0, now=NOW)
    assert "Portugal" in short["messages"][0]["content"]


def test_recalled_text_sent_back_adds_no_fact(writer: MemoryWriter, root: str) -> None:
    write(writer, message("I moved to Porto and I work for Acme.", id="m1", name="Anna"))
    run(root)
    reader = MemoryReader.open(root, workspace_id="acme", agent_id="support")
    block = mark("\n".join(str(hit) for hit in reader.search_memory(query="Where did Anna move?", now=NOW)))
    assert "Porto" in block
    before = Lake(root).tables.read(FACTS).to_pylist()
    sent = [
        message(content, role=role, id=f"{role}{number}", timestamp=LATER)
        for role in ("user", "assistant", "system", "tool")
        for number, content in enumerate([block, f"> {block}".replace("\n", "\n> "), f"```\n{block}\n```", block[:-20]])
    ]
    assert write(writer, *sent) == Receipt(recalled=16)
    assert write(writer, *sent, message("I moved to Porto and I work for Acme.", id="m1", name="Anna")).recalled == 16
    assert Lake(root).journal.pending() == []
    assert Lake(root).tables.read(FACTS).to_pylist() == before
    assert Lake(root).journal.quarantined() == []


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("fields", [{"id": "m1"}, {}])
def test_text_sent_with_recalled_text_is_stored_once(
    writer: MemoryWriter, root: str, lands: bool, fields: Record
) -> None:
    first = write(writer, message(**fields))
    if lands:
        run(root)
    again = write(writer, message(f"{mark('- Anna: hello')}\n\nI moved to Porto.", **fields))
    assert again == Receipt(repeated=first.accepted, recalled=1)
    assert contents(root) == ([] if lands else ["I moved to Porto."])


def test_a_conversation_of_recalled_text_alone_creates_no_lake(writer: MemoryWriter, root: str) -> None:
    assert write(writer, message(mark("- Anna: hello"))) == Receipt(recalled=1)
    assert not Path(root).exists()


def test_the_user_of_a_writer_speaks_also_where_users_share_one_memory(root: str) -> None:
    lake = lake_of(root, per_user=False)
    writer = open_writer(root, user_id="anna")
    write(writer)
    [said] = [said for file in lake.journal.pending() for said in lake.journal.read(file).messages]
    assert (said.user_id, said.scope.identity, list(writer.users)) == ("anna", "", ["anna"])
