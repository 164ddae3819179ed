"""Knowledge of libraries beyond their APIs was verified for the installed versions."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from memory_pipeline.lake.index.lance_internals import LANCEDB
from memory_pipeline.lake.tables.delta_log import DELTALAKE

_OF_DELTALAKE = """
- names of commits and checkpoints: lake/tables/test_vacuum.py;
- whether a writer or a reader that is at a version of which the log holds no commit any more, stops: concurrency/;
- whether `DeltaTable.cleanup_metadata` can keep no names and lose no commits: then delete `Log.purge`"""
_OF_LANCEDB = """
- names of data, indices, marks of deleted rows and manifests, and how these name files: lake/test_orphans.py;
- row ids, of which the upper half is a file's number: lake/index/test_lance_tables.py and test_index_rows.py;
- messages of conflicts, missing and damaged files: concurrency/ and faults/;
- whether `AsyncTable` can delete old versions without `optimize`, and list files: then delete `LanceFiles.unneeded`"""


@pytest.mark.parametrize(
    ("library", "known", "what"), [("deltalake", DELTALAKE, _OF_DELTALAKE), ("lancedb", LANCEDB, _OF_LANCEDB)]
)
def test_the_installed_version_is_one_with_known_internals(library: str, known: tuple[str, ...], what: str) -> None:
    installed = version(library)
    assert installed in known, (
        f"{library} {installed} is installed, and its internals are known of {', '.join(known)}. Run all tests, look "
        f"at the following, and add the version to the constant:{what}"
    )
