"""Concurrent runs, erasures, expirations and consolidations have the same result as consecutive ones."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from memory_pipeline.cli import cli
from memory_pipeline.domain.erasure import without_note
from memory_pipeline.erasure import forget
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.retention import expire
from memory_pipeline_tests.building import START, conversation, run, write
from memory_pipeline_tests.concurrency.rivals import event_of
from memory_pipeline_tests.erasure.lakes import ANNA, NOTED, built, held, written
from memory_pipeline_tests.erasure.test_forget import is_annas
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.concurrency.rivals import Rivals

#: After the end of the weeks, the month and the quarter that the lakes are told of.
NOW = datetime(2024, 4, 2, 9, tzinfo=UTC)
#: With this plan, hours of January have expired and days have not.
SOON = datetime(2024, 2, 5, 9, tzinfo=UTC)
PLAN = b"workspaces: {acme: {retention: {plan: free}}}"
LATE = [
    conversation(f"I will fly to Oslo with {name}.", at="2024-01-15T08:20", conversation_id=f"late {name}", name=name)
    for name in ("Ines", "Rui", "Tom", "Eva")
]


def make_all(root: str, now: datetime = NOW) -> None:
    """Run all pending periods."""
    run(Lake(root), default_models(), now)


def write_and_make(root: str, number: int, now: datetime = NOW) -> None:
    """Write a conversation, and run all pending periods."""
    lake = Lake(root)
    write(lake, LATE[number], now=SOON)
    lake.journal.append([event_of(number, each) for each in range(3)])
    make_all(root, now)


def make_by_command(root: str) -> None:
    """Run all pending periods with the command, which materializes assets in Dagster."""
    result = CliRunner().invoke(cli, ["run", "--root", root, "--now", NOW.isoformat()], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def consolidate_days(root: str) -> None:
    """Consolidate the pending days."""
    lake = Lake(root)
    consolidate(lake, default_models(), pending_days(lake, START, NOW), START)


def expire_soon(root: str) -> None:
    """Delete expired rows."""
    expire(Lake(root), START, SOON)


def forget_anna(root: str) -> None:
    forget(Lake(root), default_models(), ANNA, NOW)


def settled(root: str) -> dict[str, str]:
    """Return the contents of a lake after all pending work."""
    make_all(root)
    consolidate_days(root)
    lake = Lake(root)
    assert lake.journal.pending() == []
    return lake_digest(lake)


@pytest.fixture(scope="module")
def pending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with only a journal."""
    folder = tmp_path_factory.mktemp("runs") / "pending"
    written(Lake(str(folder)))
    return folder


@pytest.fixture(scope="module")
def once(pending: Path) -> dict[str, str]:
    """The result of a single run in one process."""
    folder = pending.with_name("once")
    shutil.copytree(pending, folder)
    return settled(str(folder))


def copied(folder: Path, name: str) -> str:
    return str(shutil.copytree(folder, folder.with_name(name)))


def test_runs_by_step_and_command_beside_consolidation_equal_one_run(
    rivals: Rivals, pending: Path, once: dict[str, str]
) -> None:
    root = copied(pending, "same")
    works = (make_all, make_by_command, consolidate_days)
    rivals.do([partial(work, root) for work in works])
    assert differing(settled(root), once) == []


def test_runs_that_write_different_data_of_the_same_hours_lose_nothing(rivals: Rivals, pending: Path) -> None:
    root, alone = copied(pending, "others"), copied(pending, "others, alone")
    rivals.do([partial(write_and_make, root, number) for number in range(3)])
    for number in range(3):
        write_and_make(alone, number)
    assert differing(settled(root), settled(alone)) == []


def test_a_person_can_be_erased_during_runs(rivals: Rivals, pending: Path, models: Models) -> None:
    root, never = copied(pending, "forgotten"), str(pending.with_name("never"))
    make_all(root)
    rivals.do([partial(forget_anna, root), partial(write_and_make, root, 0), partial(consolidate_days, root)])
    settled(root)
    built(Lake(never), models, lambda record: not is_annas(record), [without_note(NOTED)], NOW)
    write_and_make(never, 0)
    settled(never)
    assert held(Lake(root)) == held(Lake(never))


def test_hours_can_expire_during_runs(rivals: Rivals, pending: Path) -> None:
    roots = copied(pending, "expired"), copied(pending, "expired, alone")
    for root in roots:
        Lake(root).storage.write(CONFIGURATION, PLAN)
        make_all(root, SOON)
    racing, alone = roots
    rivals.do([partial(expire_soon, racing), partial(write_and_make, racing, 0, SOON), partial(expire_soon, racing)])
    write_and_make(alone, 0, SOON)
    found = []
    for root in roots:
        make_all(root, SOON)
        expire_soon(root)
        make_all(root, SOON)
        found.append(lake_digest(Lake(root)))
    assert differing(*found) == []
