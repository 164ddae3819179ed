"""Tombstones are written in one commit, read once for each change, and contain no names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_pipeline.domain.erasure import Tombstone
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import TOMBSTONES
from memory_pipeline.lake.tables.tombstones import Tombstones
from memory_pipeline_tests.building import ACME

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SALT = "0123456789abcdef" * 2
ANNA = Tombstone.of(Subject.person("acme", ["Anna Kovács", "Annie"]), NOON, SALT)
SUPPORT = Tombstone.of(Subject.agent(ACME), NOON, SALT)


@pytest.fixture
def tombstones(lake: Lake) -> Tombstones:
    return Tombstones(lake.tables)


def by_id(tombstones: list[Tombstone]) -> tuple[Tombstone, ...]:
    return tuple(sorted(tombstones, key=lambda one: (one.kind, one.id)))


@pytest.mark.on_s3
def test_without_erasures_there_are_no_tombstones(lake: Lake, tombstones: Tombstones) -> None:
    assert tombstones.all() == ()
    assert not tombstones.forgotten()
    assert tombstones.state() == frozenset()
    tombstones.put([])
    assert lake.tables.version(TOMBSTONES) == -1
    assert not Path(lake.storage.uri).exists()


def test_tombstones_round_trip_without_clear_names(lake: Lake, root: str, tombstones: Tombstones) -> None:
    other = Tombstones(Lake(root).tables)
    assert other.all() == ()
    tombstones.put([*ANNA, *SUPPORT])
    assert tombstones.all() == other.all() == by_id([*ANNA, *SUPPORT])
    assert bool(other.forgotten())
    assert other.forgotten().reaches(ACME, NOON, texts=["I met Annie."])
    assert b"Annie" not in b"".join(path.read_bytes() for path in Path(root).rglob("*") if path.is_file())


@pytest.mark.on_s3(always=True)
def test_a_tombstone_replaces_one_with_the_same_id_in_one_commit(lake: Lake, tombstones: Tombstones) -> None:
    tombstones.put([*ANNA, *SUPPORT])
    version = lake.tables.version(TOMBSTONES)
    done = [replace(one, is_done=True, hours=("2024-01-15T08", "2024-01-15T09")) for one in ANNA]
    tombstones.put(done)
    assert lake.tables.version(TOMBSTONES) == version + 1
    assert tombstones.all() == by_id([*done, *SUPPORT])
    tombstones.put(done)
    assert lake.tables.version(TOMBSTONES) == version + 1


def test_the_state_changes_only_when_more_is_forgotten(lake: Lake, tombstones: Tombstones) -> None:
    tombstones.put(ANNA)
    state, forgotten = tombstones.state(), tombstones.forgotten()
    lake.tables.purge(TOMBSTONES)
    assert tombstones.state() == state
    assert tombstones.forgotten() is forgotten
    tombstones.put([replace(one, is_done=True) for one in ANNA])
    assert tombstones.state() == state
    tombstones.put([replace(one, forgotten_at=NOON + timedelta(seconds=1)) for one in ANNA])
    later = tombstones.state()
    tombstones.put(SUPPORT)
    assert len({state, later, tombstones.state()}) == 3
