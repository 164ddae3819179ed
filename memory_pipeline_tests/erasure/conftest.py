"""A lake that is built once and copied for each test."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.erasure import Subject
from memory_pipeline.erasure import Receipt, forget
from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import NOW
from memory_pipeline_tests.erasure.lakes import SALES, built

if TYPE_CHECKING:
    from memory_pipeline.models.selection import Models


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory, models: Models) -> Path:
    folder = tmp_path_factory.mktemp("erasure") / "lake"
    built(Lake(str(folder)), models)
    return folder


@pytest.fixture
def lake(original: Path, tmp_path: Path) -> Lake:
    shutil.copytree(original, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


@dataclass(frozen=True)
class Erased:
    """A lake from which a person and an agent were erased, and their receipts."""

    folder: Path
    person: Receipt
    agent: Receipt


@pytest.fixture(scope="package")
def erased_once(original: Path, tmp_path_factory: pytest.TempPathFactory, models: Models) -> Erased:
    folder = tmp_path_factory.mktemp("erased") / "lake"
    shutil.copytree(original, folder)
    lake = Lake(str(folder))
    person = forget(lake, models, Subject.person("acme", ["Anna", "u-17"]), NOW)
    agent = forget(lake, models, Subject.agent(SALES), NOW)
    return Erased(folder, person, agent)


@pytest.fixture
def erased(erased_once: Erased, tmp_path: Path) -> Erased:
    """Return a copy, in which a test may leave what it likes."""
    shutil.copytree(erased_once.folder, tmp_path / "erased")
    return replace(erased_once, folder=tmp_path / "erased")
