"""Small pending files are merged: nothing is lost, doubled or read differently, whatever happens meanwhile."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.erasure import Forgotten
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.journal import Journal, facts_path, level_of
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.factory import default_models
from memory_pipeline.overlay import PendingJournal, segments
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

SINCE = datetime(2026, 3, 2, 9, tzinfo=UTC)
NOW = SINCE + timedelta(days=30)
CITIES = ("Porto", "Lisbon", "Braga", "Faro", "Evora", "Coimbra", "Aveiro", "Setubal", "Sintra", "Tomar")
#: Messages of most tests; each second file of them is an edit or an event.
COUNT = 30


@pytest.fixture(autouse=True)
def _few_files_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "LEAST", (6, 3))


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return opened(tmp_path / "lake")


def opened(folder: Path) -> Memory:
    Lake(str(folder), start=date(2026, 1, 1), secret="0" * 64).ensure()
    return Memory(folder, user_id="anna")


def talk(memory: Memory, count: int = COUNT, first: int = 0) -> None:
    """Add statements, instructions, edits of messages, and durable memories."""
    for number in range(first, first + count):
        at = SINCE + timedelta(minutes=25 * number)
        city = CITIES[number % len(CITIES)]
        said = (f"I live in {city}.", f"My sister Maria visited {city} number {number}.", f"Always greet in {city}.")
        message, conversation_id = {"role": "user", "id": f"m{number}"}, f"talk {number // 4}"
        memory.add([{**message, "content": said[number % 3]}], conversation_id=conversation_id, now=at)
        if number % 5 == 4:
            memory.add([{**message, "content": f"I live in {city} again."}], conversation_id=conversation_id, now=at)
        if number % 7 == 6:
            memory.remember(f"Anna keeps bees in {city}.", now=at)


def found(memory: Memory) -> list[Any]:
    """Return what reads find: hits, the context of a prompt, the graph and durable memories."""
    pages = [memory.search(query, limit=50, now=NOW) for query in ("Where do I live?", "Maria", "bees", "")]
    return [
        *([(hit.id, hit.content, round(hit.score, 6)) for hit in page] for page in pages),
        str(memory.context("Where does Anna live?", now=NOW)),
        sorted(map(str, memory.graph.facts())),
        sorted((one.id, one.content) for one in memory.reader.memories.list(limit=100, now=NOW)),
    ]


def run(memory: Memory) -> dict[str, str]:
    """Process everything, and return digests of the lake."""
    memory.run(now=NOW)
    assert memory.lake.journal.pending() == []
    assert memory.lake.storage.names("journal/pending") == []
    return lake_digest(memory.lake)


@pytest.fixture
def single(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """A memory of the same messages, each in a file of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(segments, "LEAST", (10_000, 10_000))
        memory = opened(tmp_path / "single")
        talk(memory)
    return memory


def paths(memory: Memory) -> list[str]:
    return memory.lake.journal.paths(memory.writer.scope)


def segments_of(memory: Memory) -> list[str]:
    return [path for path in paths(memory) if level_of(path)]


def test_the_number_of_files_stays_small(memory: Memory) -> None:
    talk(memory, 120)
    assert {level_of(path) for path in paths(memory)} >= {0, 2}
    assert len(paths(memory)) < 160 / 3


def test_reads_and_runs_find_the_same_as_without_segments(memory: Memory, single: Memory) -> None:
    talk(memory)
    assert segments_of(memory)
    assert not segments_of(single)
    assert found(memory) == found(single)
    assert found(Memory(memory.lake.storage.uri, user_id="anna")) == found(single)
    assert differing(run(memory), run(single)) == []
    assert found(memory) == found(single)


def test_stored_facts_are_not_extracted_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        memory.add(f"I live in {CITIES[number]}.", now=SINCE)
    read = list[str]()
    facts_of = DeterministicExtractor.facts_of

    def noted(self: DeterministicExtractor, messages: Sequence[Any]) -> list[Any]:
        read.extend(message.content for message in messages)
        return facts_of(self, messages)

    monkeypatch.setattr(DeterministicExtractor, "facts_of", noted)
    assert len(Memory(memory.lake.storage.uri, user_id="anna").search("Porto", now=NOW)) == 8
    assert len(read) == len(paths(memory)) - 1


@pytest.mark.parametrize("damage", [b"", b"no Arrow file", None])
def test_the_rules_replace_facts_that_cannot_be_read(memory: Memory, single: Memory, damage: bytes | None) -> None:
    talk(memory)
    folder = Path(memory.lake.storage.locate("journal"))
    files = list(folder.rglob("*.facts"))
    assert files
    for file in files:
        if damage is None:
            file.unlink()
        else:
            file.write_bytes(damage)
    assert found(memory) == found(single)


def test_other_rules_read_the_messages_again(memory: Memory, single: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DeterministicExtractor, "name", "earlier rules")
        talk(memory)
    assert found(memory) == found(single)


def test_a_process_that_dies_while_it_merges_loses_and_doubles_nothing(
    memory: Memory, single: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before it deletes the files that it has merged: their records are in two files."""
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "delete", lambda _self, _paths: None)
        talk(memory)
    assert len(paths(memory)) > len(paths(single))
    assert found(memory) == found(single)
    memory.add([{"role": "user", "id": "m0", "content": "I live in Porto."}], conversation_id="talk 0", now=NOW)
    assert differing(run(memory), run(single)) == []


def test_known_messages_are_found_in_segments(memory: Memory) -> None:
    talk(memory)
    before = {hit.id for hit in memory.search("", limit=100, now=NOW)}
    other = Memory(memory.lake.storage.uri, user_id="anna")
    again = {"role": "user", "id": "m1", "content": "My sister Maria visited Lisbon number 1."}
    assert other.add([again], conversation_id="talk 0", now=NOW).accepted == ()
    assert {hit.id for hit in other.search("", limit=100, now=NOW)} == before
    with pytest.raises(InputError, match="m1"):
        other.writer.write(
            {"conversation_id": "talk 0", "messages": [{**again, "content": "Other.", "timestamp": SINCE.isoformat()}]},
            now=NOW,
        )


def test_acknowledged_hours_of_a_segment_are_not_pending(memory: Memory, single: Memory) -> None:
    talk(memory)
    for one in (memory, single):
        hours = grain_status(one.lake, Grain.WORKING, date(2026, 1, 1), NOW).pending
        list(materialize(one.lake, default_models(), Grain.WORKING, hours[: len(hours) // 2]))
    assert segments_of(memory)
    assert found(memory) == found(single)
    assert differing(run(memory), run(single)) == []


def test_a_reader_that_listed_files_before_they_were_merged_finds_them(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        memory.add(f"I live in {CITIES[number]}.", now=SINCE)
    pending, read = PendingJournal(memory.lake, memory.writer.scope), Journal.read

    def merging(self: Journal, *arguments: Any) -> Any:
        monkeypatch.setattr(Journal, "read", read)
        memory.add("I live in Tomar.", now=SINCE)
        return read(self, *arguments)

    monkeypatch.setattr(Journal, "read", merging)
    rows = [file.rows for file in pending.files().values()]
    assert [len(one) for one in rows if one is not None] == [12]


def test_a_file_with_a_broken_line_is_not_merged_and_is_set_aside(memory: Memory) -> None:
    memory.add("I live in Porto.", now=SINCE)
    [path] = paths(memory)
    memory.lake.storage.overwrite(path, (memory.lake.storage.read(path) or b"") + b"broken\n")
    talk(memory)
    assert path in paths(memory)
    memory.run(now=NOW)
    assert [one.record for one in memory.lake.journal.quarantined()] == ["broken"]


def holding(folder: Path, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def erase(memory: Memory) -> None:
    memory.forget(conversation_id="talk 1", now=NOW)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_an_erasure_reaches_segments_and_their_facts(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    """Also if it comes after a merge has read the files, and before the segment is written."""
    if meanwhile:
        write_segment = Journal.write_segment

        def erasing(self: Journal, *arguments: Any) -> str:
            monkeypatch.setattr(Journal, "write_segment", write_segment)
            erase(Memory(memory.lake.storage.uri, user_id="anna"))
            return write_segment(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(segments, "LEAST", (10_000, 10_000))
            talk(memory, 9)
        assert holding(tmp_path, "visited Evora")
        monkeypatch.setattr(Journal, "write_segment", erasing)
        memory.add("I live in Tomar.", now=NOW)
    else:
        talk(memory)
        assert any(path.endswith(".jsonl") for path in holding(tmp_path, "visited Evora"))
        erase(memory)
    assert holding(tmp_path, "visited Evora") == []
    facts = {facts_path(path) for path in segments_of(memory)}
    folder = memory.lake.storage.locate(paths(memory)[0].rpartition("/")[0])
    assert {one.name for one in Path(folder).glob("*.facts")} <= {path.rpartition("/")[2] for path in facts}
    contents = [hit.content for hit in Memory(memory.lake.storage.uri, user_id="anna").search("", limit=100, now=NOW)]
    assert not any("visited Evora" in one for one in contents)
    assert any("visited Lisbon" in one for one in contents)


def test_a_larger_segment_has_the_facts_of_a_segment_of_which_a_message_is_erased(
    memory: Memory, single: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure that comes between the writing of two segments leaves its message to the merge."""
    with monkeypatch.context() as patch:
        patch.setattr(segments, "LEAST", (6, 10_000))
        talk(memory)
    assert {level_of(path) for path in segments_of(memory)} == {1}
    covers = Forgotten.covers

    def covering(self: Forgotten, record: Any) -> bool:
        return getattr(record, "source_id", None) == "m1" or covers(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(Forgotten, "covers", covering)
        patch.setattr(Forgotten, "filter", lambda self, records: [one for one in records if not self.covers(one)])
        segments.merge(memory.lake, memory.writer.scope, None)
    assert {level_of(path) for path in segments_of(memory)} >= {2}
    expected = [hit.id for hit in single.search("", limit=100, now=NOW) if "number 1." not in hit.content]
    assert [hit.id for hit in memory.search("", limit=100, now=NOW)] == expected


def test_two_processes_that_merge_the_same_files_write_one_segment(
    memory: Memory, single: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Journal.delete

    def again(self: Journal, gone: Sequence[str]) -> None:
        monkeypatch.setattr(Journal, "delete", delete)
        segments.merge(memory.lake, memory.writer.scope, None)
        delete(self, gone)

    monkeypatch.setattr(Journal, "delete", again)
    talk(memory)
    assert found(memory) == found(single)


_ADDING = """
import sys
from datetime import UTC, datetime
from memory_pipeline import Memory
from memory_pipeline.overlay import segments
segments.LEAST = (4, 2)
memory = Memory(sys.argv[1], user_id="anna")
for number in range(int(sys.argv[2]), 100_000):
    memory.add(f"I bought {number} apples.", now=datetime(2026, 3, 2, 9, tzinfo=UTC))
    print(number, flush=True)
"""


def test_kills_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "lake")
    source, written, first = random.Random(5), set[int](), 0
    for _ in range(4):
        command = [sys.executable, "-c", _ADDING, str(tmp_path / "lake"), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            written.add(int(process.stdout.readline()))
            time.sleep(source.uniform(0.05, 0.3))
            process.send_signal(signal.SIGKILL)
            written |= {int(line) for line in process.stdout.read().split()}
        first = max(written) + 2  # the write after the last printed one may be done, too
    memory, hits = Memory(tmp_path / "lake", user_id="anna"), list[str]()
    while page := memory.reader.search_memory("working", 0, 3650, 100, offset=len(hits), now=NOW):
        hits += [hit.content for hit in page]
    assert len(written) > 20
    assert len(hits) == len(set(hits))
    assert written <= {int(one.split("bought ")[1].split()[0]) for one in hits}
