"""Errors of a disk are one line that names the path and the remedy."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.disk import disk_error
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.models.factory import Models
from memory_pipeline_tests.building import conversation, run, write

#: Permissions do not bind the superuser.
needs_permissions = pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to the superuser")


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_an_error_names_the_path_the_reason_and_the_remedy(code: int) -> None:
    reason = os.strerror(code)
    of_python = OSError(code, reason, "/lake/x.json")
    of_rust = DeltaError(f"Generic LocalFileSystem error: Unable to open file /lake/x.json: {reason} (os error {code})")
    said = {str(disk_error(error)) for error in (of_python, of_rust)}
    assert len(said) == 1
    assert said.pop().startswith(f"/lake/x.json: {reason}; ")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file", "/x"),
        FileExistsError(errno.EEXIST, "File exists", "/x"),
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        BrokenPipeError(errno.EPIPE, "broken"),
        DeltaError("Object at location /x not found: No such file or directory (os error 2)"),
        RuntimeError("commit conflict"),
        OSError("without a number"),
    ],
)
def test_other_errors_are_not_converted(error: Exception) -> None:
    assert disk_error(error) is None


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    root.write_text("x")
    for path in (root, root / "below"):
        with pytest.raises(LakeError, match=f"{path}.*MEMORY_PIPELINE_ROOT"):
            Lake(str(path))


def test_a_root_that_cannot_be_created_is_named() -> None:
    root = "/proc/memory-lake"  # no user can create a folder there
    with pytest.raises(LakeError, match=f"{root}.*MEMORY_PIPELINE_ROOT"):
        Lake(root).ensure()


def test_a_full_disk_is_reported_and_leaves_no_partial_file(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a", b"x" * 1_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, limits[1]))
    try:
        for write_file in (storage.write, storage.create):
            with pytest.raises(LakeError, match=f"{tmp_path}/b: File too large; raise the limit"):
                write_file("b", b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_command_line_prints_one_line_about_a_full_disk(root: str) -> None:
    """What deltalake's threads write about it is left out."""
    write(Lake(root), conversation("I like tea."))
    limits = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    command = f"{limits}; from memory_pipeline.cli import main; main()"
    arguments = ("run", "--root", root, "--now", "2024-01-16T12:00Z")
    done = subprocess.run([sys.executable, "-c", command, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "File too large" in done.stderr


@needs_permissions
@pytest.mark.parametrize("folder", ["tables/messages", "journal/pending", "projections", "."])
def test_a_folder_without_permission_is_named(root: str, models: Models, folder: str) -> None:
    lake = Lake(root)
    write(lake, conversation("I moved to Porto."))
    run(lake, models)
    write(lake, conversation("I moved to Rome.", conversation_id="c2"))
    hidden = Path(root, folder)
    hidden.chmod(0)
    try:
        with pytest.raises(LakeError, match=f"{hidden.resolve()}.*Permission denied; let this user"):
            _look(root, models)
    finally:
        hidden.chmod(0o700)
    _look(root, models)


def _look(root: str, models: Any) -> None:
    lake = Lake(root)
    run(lake, models)
    lake.tables.read(MESSAGES)
