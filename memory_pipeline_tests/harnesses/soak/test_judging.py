"""The judge finds and names each kind of fault that is planted in a lake."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from memory_pipeline.domain.conversations import Admission, Scope, read_messages
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline_tests.building import conversation, write
from memory_pipeline_tests.harnesses.soak import course as courses
from memory_pipeline_tests.harnesses.soak.course import FIRST, Course
from memory_pipeline_tests.harnesses.soak.judging import Judge, Verdict
from memory_pipeline_tests.harnesses.soak.operating import make_all
from memory_pipeline_tests.harnesses.soak.station import Clock, Log, Station
from memory_pipeline_tests.harnesses.soak.writing import Writer

if TYPE_CHECKING:
    from pathlib import Path

COURSE = Course(11, agents=2, writers=1, readers=1)
TICK = 1


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a faultless soak of two ticks, with its lake."""
    folder = tmp_path_factory.mktemp("soaked")
    station = Station.make(folder, str(folder / "lake"), COURSE)
    lake = station.lake()
    lake.ensure()
    lake.storage.write(CONFIGURATION, courses.CONFIGURATION)
    station.set_clock(Clock(TICK, COURSE.now(TICK), is_over=True))
    Writer(station, 0).run()
    make_all(lake, COURSE.now(TICK))
    return folder


@pytest.fixture
def station(soaked: Path, tmp_path: Path) -> Station:
    """A writable copy of the folder."""
    shutil.copytree(soaked, tmp_path / "soak")
    settings = tmp_path / "soak" / "course.json"
    settings.write_text(settings.read_text().replace(str(soaked), str(tmp_path / "soak")))
    return Station(tmp_path / "soak")


def said() -> dict[str, Any]:
    """Return a conversation of none of the writers."""
    return conversation("Nobody has said this.", at="2024-01-27T07:00", scope=Scope("keeper", "agent-0"))


def verdicts(station: Station) -> dict[str, Verdict]:
    """Return the verdicts, except for slow ones."""
    judge = Judge(station, Lake(station.root), COURSE.now(TICK))
    quick = (judge._acknowledged(), judge._nothing_else(), judge._garbage(), judge._journal(), judge._orphans())
    return dict(zip(("there", "else", "garbage", "journal", "orphans"), quick, strict=True))


def violated(station: Station) -> set[str]:
    return {name for name, verdict in verdicts(station).items() if verdict.wrong}


def test_an_intact_lake_violates_nothing(station: Station) -> None:
    assert violated(station) == set()


def test_a_lost_message_is_reported(station: Station) -> None:
    lake = Lake(station.root)
    lost = lake.tables.read(MESSAGES)["id"][0].as_py()
    lake.tables.drop_rows(MESSAGES, None, lambda rows: pc.equal(rows["id"], lost).combine_chunks(), ["id"])
    found = verdicts(station)["there"].wrong
    assert len(found) == 1
    assert lost in found[0]


def test_a_message_that_no_writer_sent_is_reported(station: Station) -> None:
    lake = Lake(station.root)
    write(lake, said())
    assert violated(station) == {"journal"}
    make_all(lake, COURSE.now(TICK))
    assert violated(station) == {"else"}
    judge = Judge(station, lake, COURSE.now(TICK))
    assert [verdict for verdict in judge._made_again() if verdict.wrong]


def test_only_acknowledged_writes_must_be_present(station: Station) -> None:
    """An action that a writer dropped may be in the lake or not. An acknowledged one must be."""
    [message] = read_messages(said(), Admission(FIRST.date(), COURSE.now(TICK))).messages
    log = Log(station.oracle("w0"))
    log.append({"action": "w0/t9/a9", "is": "writing", "records": [message.to_record()]})
    assert violated(station) == set()
    log.append({"action": "w0/t9/a9", "is": "written"})
    assert violated(station) == {"there"}


def test_an_orphan_is_collected(station: Station) -> None:
    lake = Lake(station.root)
    orphan = f"tables/messages/period=2024-01-25T08/part-{'0' * 8}.parquet"
    lake.storage.write(orphan, b"PAR1 cut off")
    verdict = verdicts(station)["orphans"]
    assert not verdict.wrong
    assert lake.storage.read(orphan) is None
