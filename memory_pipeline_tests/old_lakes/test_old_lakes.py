"""Lakes written by earlier versions open, read as they did, and need no more work than was pending."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.lake import Lake
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest
from memory_pipeline_tests.old_lakes.saved_reads import digests, saved_digests
from memory_pipeline_tests.old_lakes.small_lake import READ_AT, pending, reads

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

HERE = Path(__file__).parent
COMMITS = [file.name.partition(".")[0] for file in sorted(HERE.glob("*.tar.xz"))]


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def root(commit: str, shared_folder: SharedFolder, tmp_path: Path) -> str:
    def extract(path: Path) -> None:
        with tarfile.open(HERE / f"{commit}.tar.xz") as archive:
            archive.extractall(path, filter="data")

    return str(shutil.copytree(shared_folder(f"lake-of-{commit}", extract) / commit, tmp_path / "lake"))


@pytest.fixture
def saved(commit: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / f"{commit}.json").read_text("utf-8"))
    return found


def test_an_old_lake_reads_equally_before_and_after_a_run(root: str, saved: dict[str, Any]) -> None:
    assert pending(root) == saved["pending"]
    assert _plain(reads(root)) == saved["reads"]
    Memory(root).run(now=READ_AT)
    lake = Lake(root)
    assert lake.journal.pending() == []
    done = lake_digest(lake)
    Memory(root).run(now=READ_AT)
    assert differing(done, lake_digest(Lake(root))) == []
    assert _unsorted(reads(root)) == _unsorted(saved["reads"])


@pytest.mark.parametrize(
    "commit", [file.name.partition(".")[0] for file in sorted(HERE.glob("*.reads.json"))], indirect=True
)
def test_what_is_read_is_what_was_saved(root: str, commit: str) -> None:
    found, expected = digests(root), saved_digests(commit)
    assert len(found) > 500
    assert [name for name in found | expected if found.get(name) != expected.get(name)] == []


def test_facts_of_older_rules_are_counted_and_made_anew_on_demand(root: str) -> None:
    anna, ben = (Memory(root, agent_id="helper", user_id=user) for user in ("anna", "ben"))
    (moved,) = (hit for hit in anna.list(kind="memory") if "Faro" in hit.content)
    (tea,) = (hit for hit in ben.list(kind="memory") if "green tea" in hit.content)
    anna.writer.update(moved.id, content="Anna moved to Olhão.", now=READ_AT)
    ben.forget(tea.id, now=READ_AT)
    anna.run(now=READ_AT)
    known = read("status", "--root", root)["older_facts"]
    assert known == {"facts": 12, "first": "2024-01-08", "last": "2024-12-29", "is_all": True}
    (line,) = (line for line in call("status", "--root", root).output.splitlines() if "older rules" in line)
    (command,) = re.findall(r"`memory-pipeline (run --from \S+ --to \S+)`", line)
    assert call(*command.split(), "--root", root).exit_code == 0
    assert read("status", "--root", root)["older_facts"] is None
    assert "Anna moved to Olhão." in [hit.content for hit in anna.list(kind="memory")]
    assert not any("Faro" in hit.content for hit in anna.list(kind="memory"))
    assert not any("green tea" in hit.content for hit in ben.list(kind="memory"))
    assert "User works_as nurse (since 2024-02-29)" in [fact.line for fact in ben.graph.facts()]


def _plain(found: dict[str, Any]) -> Any:
    return json.loads(json.dumps(found, default=str))


def _unsorted(found: dict[str, Any]) -> Any:
    """Return reads without the order of lists of equal times, which the run may change."""
    plain = _plain(found)
    for user in ("None", "anna", "ben"):
        plain[user]["list"].sort()
    return plain
