"""The judge reports each kind of violation."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.authority import SESSION
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import MEMORY_EVENTS, MESSAGES
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import conversation, write
from memory_pipeline_tests.harnesses.soak import plan as plans
from memory_pipeline_tests.harnesses.soak.generated import word
from memory_pipeline_tests.harnesses.soak.judging import Judge, Verdict
from memory_pipeline_tests.harnesses.soak.operating import make_all
from memory_pipeline_tests.harnesses.soak.plan import FIRST, Plan
from memory_pipeline_tests.harnesses.soak.reading import Reader
from memory_pipeline_tests.harnesses.soak.shared import GUEST, SHARING, Clock, Log, SharedFolder
from memory_pipeline_tests.harnesses.soak.writing import Writer

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(11, agents=2, writers=1, readers=1)
TICK = 1
#: Short-term entries have expired.
LATER = PLAN.now(TICK) + timedelta(hours=2)


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a soak of two ticks without faults, with its lake."""
    folder = tmp_path_factory.mktemp("soaked")
    shared = SharedFolder.make(folder, str(folder / "lake"), PLAN)
    lake = shared.lake()
    lake.ensure()
    lake.storage.write(CONFIGURATION, plans.CONFIGURATION)
    shared.set_clock(Clock(TICK, PLAN.now(TICK), is_over=True))
    Writer(shared, 0).run()
    make_all(lake, LATER)
    return folder


@pytest.fixture
def shared(soaked: Path, tmp_path: Path) -> SharedFolder:
    """A writable copy of the folder."""
    shutil.copytree(soaked, tmp_path / "soak")
    settings = tmp_path / "soak" / "plan.json"
    settings.write_text(settings.read_text().replace(str(soaked), str(tmp_path / "soak")))
    return SharedFolder(tmp_path / "soak")


def said() -> dict[str, Any]:
    """Return a conversation that no writer has sent."""
    return conversation("Nobody has said this.", at="2024-01-27T07:00", scope=Scope("keeper", "agent-0"))


def verdicts(shared: SharedFolder) -> dict[str, Verdict]:
    """Return the verdicts, except for slow ones."""
    judge = Judge(shared, Lake(shared.root), PLAN.now(TICK))
    return {
        "there": judge._acknowledged(), "else": judge._nothing_else(), "garbage": judge._garbage(),
        "journal": judge._journal(), "orphans": judge._orphans(), "sessions": judge._sessions(),
    }  # fmt: skip


def violated(shared: SharedFolder) -> set[str]:
    return {name for name, verdict in verdicts(shared).items() if verdict.wrong}


def test_an_intact_lake_violates_nothing(shared: SharedFolder) -> None:
    assert violated(shared) == set()


def test_a_lost_message_is_reported(shared: SharedFolder) -> None:
    lake = Lake(shared.root)
    lost = lake.tables.read(MESSAGES)["id"][0].as_py()
    lake.tables.drop_rows(MESSAGES, None, lambda rows: pc.equal(rows["id"], lost).combine_chunks(), ["id"])
    found = verdicts(shared)["there"].wrong
    assert len(found) == 1
    assert lost in found[0]


def test_a_message_that_no_writer_sent_is_reported(shared: SharedFolder) -> None:
    lake = Lake(shared.root)
    write(lake, said())
    assert violated(shared) == {"journal"}
    make_all(lake, PLAN.now(TICK))
    assert violated(shared) == {"else"}
    judge = Judge(shared, lake, PLAN.now(TICK))
    assert [verdict for verdict in judge._rebuilt() if verdict.wrong]


def test_only_acknowledged_writes_must_be_present(shared: SharedFolder) -> None:
    """A dropped action may be in the lake or not. An acknowledged one must be."""
    [message] = read_messages(said(), Admission(FIRST.date(), PLAN.now(TICK))).messages
    log = Log(shared.oracle("w0"))
    log.append({"action": "w0/t9/a9", "is": "writing", "records": [message.to_record()]})
    assert violated(shared) == set()
    log.append({"action": "w0/t9/a9", "is": "written"})
    assert violated(shared) == {"there"}


def test_an_orphan_is_collected(shared: SharedFolder) -> None:
    lake = Lake(shared.root)
    orphan = f"tables/messages/period=2024-01-25T08/part-{'0' * 8}.parquet"
    lake.storage.write(orphan, b"PAR1 cut off")
    verdict = verdicts(shared)["orphans"]
    assert not verdict.wrong
    assert lake.storage.read(orphan) is None


def used() -> list[str]:
    """Return the keys of the actions whose short-term entries are promoted."""
    said = [action for tick in range(TICK + 1) for action in PLAN.actions(0, tick) if action.kind == "talk"]
    return [action.key for action in said if PLAN.note(action).reads]


def test_a_note_of_an_erased_subject_that_is_left_is_reported(shared: SharedFolder) -> None:
    assert not verdicts(shared)["sessions"].wrong
    shared.receipt(0).write_text("{}")
    action = PLAN.action("w0/t0/a0")
    assert action.subject == 0
    assert any(PLAN.note(action).word in one for one in verdicts(shared)["sessions"].wrong)


def test_a_promoted_memory_that_is_lost_is_reported(shared: SharedFolder) -> None:
    lake = Lake(shared.root)
    rows = lake.tables.read(MEMORY_EVENTS)
    lost = rows.filter(pc.equal(rows["editor"], SESSION))["id"].to_pylist()
    assert len(lost) == len(used())
    lake.tables.drop_rows(MEMORY_EVENTS, None, lambda rows: pc.equal(rows["id"], lost[0]).combine_chunks(), ["id"])
    assert len(verdicts(shared)["sessions"].wrong) == 1


def test_an_entry_that_is_promoted_twice_is_reported(shared: SharedFolder) -> None:
    action = PLAN.action(used()[0])
    scope, note = action.scope, PLAN.note(action)
    memory = Memory(shared.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, user_id=note.user_id)
    short = memory.session(note.session_id).short_term
    short.store(action.key, note.text, now=note.now)
    assert len(verdicts(shared)["sessions"].wrong) == 1
    for _ in range(note.reads):
        short.retrieve(action.key, now=note.now)
    make_all(Lake(shared.root), LATER)
    assert not verdicts(shared)["sessions"].wrong, "the same entry"
    short.store(action.key, note.text, now=note.now + timedelta(minutes=1))
    for _ in range(note.reads):
        short.retrieve(action.key, now=note.now + timedelta(minutes=1))
    make_all(Lake(shared.root), LATER)
    assert len(verdicts(shared)["sessions"].wrong) == 1


def test_a_promoted_memory_that_nobody_noted_is_reported(shared: SharedFolder) -> None:
    stranger = f"{word('b', 'stranger')} was here."
    scope = Scope("keeper", "agent-0")
    MemoryWriter(Lake(shared.root), scope).remember(stranger, editor=SESSION, now=PLAN.now(TICK))
    make_all(Lake(shared.root), PLAN.now(TICK))
    assert len(verdicts(shared)["sessions"].wrong) == 1


def test_a_read_of_the_guest_after_a_revoke_that_is_not_denied_is_reported(shared: SharedFolder) -> None:
    reader = Reader(shared, 0)
    assert reader._read_shared() == (True, []), "it was granted in the first tick and revoked in the second one"
    writer = MemoryWriter(Lake(shared.root), PLAN.shared(0))
    writer.grant(GUEST)
    is_denied, wrong = reader._read_shared()
    assert not is_denied
    assert len(wrong) == 1
    log = Log(shared.oracle("w0"))
    log.append({"is": "sharing"})
    assert reader._read_shared() == (False, []), "another change has begun"
    log.append({"is": SHARING[0]})
    assert reader._read_shared() == (False, [])
    writer.revoke(GUEST)
    is_denied, wrong = reader._read_shared()
    assert is_denied
    assert len(wrong) == 1
