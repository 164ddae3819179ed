"""Transcripts: items of conversations, word for word and in order, in SQLite and in PostgreSQL."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.sessions import MAX_VALUE
from memory_pipeline.errors import InputError
from memory_pipeline_tests.building import PROCESSES
from memory_pipeline_tests.sessions.racing import extend_transcript, extend_transcript_and_die

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.sessions.transcript import Transcript

pytestmark = pytest.mark.usefixtures("database")

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "  Where is it?\n\n"},
    {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"what":"e\u0301"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "Porto 🔑"},
]


@pytest.fixture
def transcript(root: str) -> Transcript:
    return Memory(root, user_id="anna").transcript("c1")


def test_items_come_back_word_for_word_and_in_order(transcript: Transcript, root: str) -> None:
    transcript.extend([])
    assert transcript.read() == []
    transcript.extend(ITEMS[:1])
    transcript.extend(ITEMS[1:])
    for number in range(12):  # keys stay in order beyond one digit
        transcript.extend([number])
    assert Memory(root, user_id="anna").transcript("c1").read() == [*ITEMS, *range(12)]
    assert transcript.read(2) == [10, 11]
    assert transcript.read(0) == []
    assert transcript.read(99) == [*ITEMS, *range(12)]


def test_the_last_items_are_popped_in_turn(transcript: Transcript) -> None:
    transcript.extend([1, 2])
    transcript.extend([3])
    assert [transcript.pop() for _ in range(4)] == [3, 2, 1, None]
    transcript.extend([4])
    assert transcript.read() == [4]
    transcript.clear()
    assert (transcript.read(), transcript.pop()) == ([], None)


def test_a_replacement_hides_what_was_there(transcript: Transcript, monkeypatch: pytest.MonkeyPatch) -> None:
    transcript.extend([1, 2])
    transcript.replace([5, 6])
    transcript.extend([7])
    assert transcript.read() == [5, 6, 7]
    # A process that is killed before it has removed the old items leaves them behind.
    with monkeypatch.context() as killed:
        killed.setattr("memory_pipeline.sessions.store.Entries.discard", lambda *_: False)
        transcript.replace([8])
    assert transcript.read() == [8]
    assert [transcript.pop() for _ in range(2)] == [8, None]
    assert transcript.read() == []
    transcript.replace([])
    transcript.extend([9])
    assert transcript.read() == [9]


def test_many_and_large_items_are_stored_in_several_entries(transcript: Transcript) -> None:
    large = ["x" * (MAX_VALUE // 3)] * 7
    transcript.extend(large)
    assert transcript.read() == large
    transcript.replace([*large, "end"])
    assert transcript.read() == [*large, "end"]
    with pytest.raises(InputError, match="1,000,"):
        transcript.extend(["small", "x" * MAX_VALUE])
    with pytest.raises(InputError, match="JSON value"):
        transcript.replace([object()])
    assert transcript.read() == [*large, "end"]


def test_items_live_for_their_time(root: str) -> None:
    transcript = Memory(root).transcript("c1", ttl=timedelta(days=30))
    transcript.extend([1], now=START)
    transcript.extend([2], now=START + timedelta(days=1))
    assert transcript.read(now=START + timedelta(days=30)) == [2]
    forever = Memory(root).transcript("c2")
    forever.extend([1], now=START)
    assert forever.read(now=START + timedelta(days=9_999)) == [1]


def test_transcripts_belong_to_a_user_and_an_agent(root: str) -> None:
    anna, ben = Memory(root, user_id="anna"), Memory(root, user_id="ben")
    other = Memory(root, user_id="anna", agent_id="other")
    for memory, item in ((anna, "a"), (ben, "b"), (other, "o")):
        memory.transcript("c1").extend([item])
    anna.transcript("c0").extend(["0"])
    anna.transcript("c0").extend(["Porto"])
    anna.session("c9").store("k", "Porto")
    assert [one.transcript("c1").read() for one in (anna, ben, other)] == [["a"], ["b"], ["o"]]
    assert (anna.transcripts(), ben.transcripts()) == (["c0", "c1"], ["c1"])
    anna.session("c1").clear()
    assert anna.transcript("c1").read() == ["a"]
    assert [hit.content for hit in anna.search("Porto", tiers=["session"])] == ["k Porto"]


def test_the_erasure_of_a_conversation_and_of_a_user_reaches_transcripts(root: str) -> None:
    anna, ben = Memory(root, user_id="anna"), Memory(root, user_id="ben")
    for memory in (anna, ben):
        memory.transcript("c1").extend(["said"])
        memory.transcript("c2").extend(["said"])
    anna.forget(conversation_id="c1")
    assert (anna.transcript("c1").read(), anna.transcript("c2").read()) == ([], ["said"])
    anna.forget(everything=True)
    assert (anna.transcript("c2").read(), ben.transcript("c2").read()) == ([], ["said"])


def test_items_that_processes_add_at_once_all_stay(root: str) -> None:
    url = os.environ.get("MEMORY_PIPELINE_SESSIONS")
    Memory(root).transcript("c1").extend([])
    barrier = PROCESSES.Barrier(3)
    processes = [
        PROCESSES.Process(target=extend_transcript, args=(root, url, f"p{number}", 20, barrier)) for number in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = [tuple(item) for item in Memory(root).transcript("c1").read()]
    assert sorted(found) == sorted((f"p{number}", each) for number in range(3) for each in range(20))
    for number in range(3):
        assert [each for name, each in found if name == f"p{number}"] == [*range(20)]


def test_what_was_acknowledged_survives_a_kill(root: str, tmp_path: Path) -> None:
    url, told = os.environ.get("MEMORY_PIPELINE_SESSIONS"), tmp_path / "told"
    process = PROCESSES.Process(target=extend_transcript_and_die, args=(root, url, str(told)))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    acknowledged = int(told.read_text())
    assert Memory(root).transcript("c1").read()[: acknowledged + 1] == [*range(acknowledged + 1)]
