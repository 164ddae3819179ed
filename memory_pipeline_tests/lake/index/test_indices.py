"""The indices of a lake: one for each embedder."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_pipeline.errors import ConfigurationError, DamagedError
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.indices import Indices
from memory_pipeline.models.deterministic.embedding import HashingEmbedder

FIRST, SECOND = HashingEmbedder(64), HashingEmbedder(128)


def indices(root: Path) -> Indices:
    return Indices(Storage(root), 4)


def test_another_embedder_is_refused_with_the_command_that_changes_it(tmp_path: Path) -> None:
    indices(tmp_path).of(FIRST)  # there is no index yet
    indices(tmp_path).adopt(FIRST)
    indices(tmp_path).adopt(FIRST)
    for other in (SECOND, HashingEmbedder()):
        for refused in (indices(tmp_path).of, indices(tmp_path).adopt):
            with pytest.raises(
                ConfigurationError, match=r"cannot be compared with .*; set `embedding`.* back.*reembed"
            ):
                refused(other)


def test_an_index_that_another_process_makes_meanwhile_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Indices.find

    def found(self: Indices, embedder: HashingEmbedder) -> object:
        missing = find(self, embedder)
        monkeypatch.setattr(Indices, "find", find)
        indices(tmp_path).adopt(FIRST)
        return missing

    monkeypatch.setattr(Indices, "find", found)
    assert indices(tmp_path).of(FIRST).embedder() == (FIRST.name, FIRST.dimension)


def test_an_index_is_used_once_it_is_complete(tmp_path: Path) -> None:
    indices(tmp_path).adopt(FIRST)
    begun = indices(tmp_path).begin(SECOND)
    assert begun.name != indices(tmp_path).of(FIRST).name
    with pytest.raises(ConfigurationError, match=r"not complete.*reembed"):
        indices(tmp_path).of(SECOND)
    assert [index.embedder() for index in indices(tmp_path).all()] == [
        (one.name, one.dimension) for one in (FIRST, SECOND)
    ]
    begun.describe({"is_complete": True})
    assert indices(tmp_path).adopt(SECOND).name == begun.name
    assert indices(tmp_path).begin(SECOND).is_complete, "it stays complete"


def test_a_dropped_index_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    indices(tmp_path).adopt(FIRST)
    indices(tmp_path).begin(SECOND).describe({"is_complete": True})
    first = indices(tmp_path).of(FIRST)
    first.drop()
    first.drop()
    with pytest.raises(ConfigurationError, match="reembed"):
        indices(tmp_path).adopt(FIRST)
    assert indices(tmp_path).any.embedder() == (SECOND.name, SECOND.dimension)
    again = indices(tmp_path).begin(FIRST)
    assert (again.name != first.name, again.is_complete, again.is_dropped) == (True, False, False)
    assert len(indices(tmp_path).all()) == 2


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    indices(tmp_path).adopt(FIRST)
    indices(tmp_path).begin(SECOND)
    assert indices(tmp_path).damaged() == {}
    paths = [tmp_path / "projections/_embedder.json", *tmp_path.glob("state/embedders/*.json")]
    assert len(paths) == 2
    for path in paths:
        path.write_bytes(b"{")
    assert set(indices(tmp_path).damaged()) == {str(path.relative_to(tmp_path)) for path in paths}
    with pytest.raises(DamagedError, match="repair"):
        indices(tmp_path).of(FIRST)
