"""A lake of an older format says what to do, and is rebuilt."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline_tests import old_lakes
from memory_pipeline_tests.invoking import call, read

NOW = "2026-12-01T00:00+00:00"


@pytest.fixture(params=[2, 3])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A lake of an older format: four messages of two users and the agent, two memories, an edit; some are pending."""
    with tarfile.open(Path(old_lakes.__file__).parent / f"formats/format-{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path / "old", filter="data")
    return tmp_path / "old"


def texts(folder: Path, user: str | None) -> set[str]:
    memory = Memory(folder, agent_id="support", user_id=user)
    return {hit.content for hit in memory.with_now(NOW).search("", 50) if hit.kind == "turn"}


def test_opening_it_names_the_command(old: Path) -> None:
    with pytest.raises(LakeError, match=f"memory-pipeline rebuild .*{old.name} NEW"):
        _ = Lake(old).exists


def test_it_is_rebuilt_with_all_records(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    done = read("rebuild", str(old), str(new), "--now", NOW)
    assert done["copied"]["messages"] == 5
    assert texts(new, None) == {"User: The office closes at six."}
    assert texts(new, "anna") == {
        "User: The office closes at six.",
        "User: I live in Porto and my dog is called Bruno.",
        "Agent: Nice.",
        "User: I like figs.",
    }
    assert texts(new, "ben") == {"User: The office closes at six.", "User: I work at Contoso."}
    memory = Memory(new, agent_id="support")
    remembered = {one.content for one in memory.reader.memories.list(now=NOW)}
    assert {"The manager is called Mara", "The office has a cat"} <= remembered
    assert [str(fact.line) for fact in memory.graph.facts_about("Mara")]
    assert memory.check(now=NOW) == ()
    assert "is complete" in str(call("rebuild", str(old), str(new)).exception)


def test_an_unknown_format_is_refused(old: Path, tmp_path: Path) -> None:
    (old / "lake.json").write_text('{"format": 1, "timezone": "UTC", "shards": 16}')
    assert "has format 1" in str(call("rebuild", str(old), str(tmp_path / "new")).exception)
