"""Files below a root are whole or absent."""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake.files.storage import Storage


@pytest.fixture
def storage(root: str) -> Storage:
    return Storage(root)


def files_below(root: Path) -> list[str]:
    """Return all files below a folder, including hidden ones."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_written_file_is_read_back(storage: Storage, tmp_path: Path) -> None:
    storage.write("a/b/c.bin", b"\x00\xff")
    assert storage.read("a/b/c.bin") == b"\x00\xff"
    assert (tmp_path / "lake/a/b/c.bin").read_bytes() == b"\x00\xff"
    assert files_below(tmp_path) == ["lake/a/b/c.bin"]


@pytest.mark.on_s3(always=True)
def test_an_empty_file_exists(storage: Storage) -> None:
    storage.write("empty", b"")
    assert storage.read("empty") == b""
    assert [(entry.path, entry.size) for entry in storage.list("")] == [("empty", 0)]


@pytest.mark.on_s3(always=True)
def test_a_file_is_replaced(storage: Storage) -> None:
    storage.write("a", b"one")
    storage.write("a", b"two")
    assert storage.read("a") == b"two"


@pytest.mark.on_s3(always=True)
def test_a_missing_file_is_none(storage: Storage) -> None:
    assert storage.read("missing") is None
    assert storage.read("no/such/folder/missing") is None
    assert storage.list("missing") == []


def test_opening_and_reading_write_nothing(storage: Storage, tmp_path: Path) -> None:
    storage.read("a")
    storage.list("")
    storage.delete(["a"])
    assert list(tmp_path.iterdir()) == []


def test_a_listing_includes_modification_times(storage: Storage, tmp_path: Path) -> None:
    storage.write("a/old", b"1")
    storage.write("a/new", b"22")
    os.utime(tmp_path / "lake/a/old", (0, 3600))
    old, new = storage.list("a")[1], storage.list("a")[0]
    assert old.modified_at == datetime(1970, 1, 1, 1, tzinfo=UTC)
    assert abs(new.modified_at - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.on_s3(always=True)
def test_sizes_omits_missing_files(storage: Storage) -> None:
    storage.write("a/b", b"123")
    assert storage.sizes(["a/b", "a/missing"], "a") == {"a/b": 3}
    assert storage.sizes([], "a") == {}


def test_a_file_is_overwritten_in_place(storage: Storage, tmp_path: Path) -> None:
    storage.write("a", b"a long text")
    before = (tmp_path / "lake/a").stat().st_ino
    storage.overwrite("a", b"short")
    assert storage.read("a") == b"short"
    assert (tmp_path / "lake/a").stat().st_ino == before


def test_folders_are_listed_removed_and_pruned(storage: Storage, tmp_path: Path) -> None:
    assert storage.folders("a") == []
    assert not storage.has("a")
    storage.remove("a")
    storage.prune("a")
    for path in ("a/b/c/d", "a/e/f", "a/g"):
        storage.write(path, b"x")
    assert storage.folders("a") == ["b", "e"]
    storage.delete(["a/b/c/d"])
    storage.prune("a")
    assert storage.folders("a") == ["e"]
    assert storage.has("a/e")
    storage.remove("a/e")
    assert not storage.has("a/e")
    assert files_below(tmp_path) == ["lake/a/g"]
    storage.delete(["a/g"])
    storage.prune("a")
    assert storage.has("a"), "the folder itself stays"


# --- atomic and durable ----------------------------------------------------------------------------------------------


def test_a_crash_before_the_rename_keeps_the_old_file(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("d/a", b"old")

    def crash(*_: object, **__: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr(os, "replace", crash)
    for name in ("d/a", "d/b"):
        with pytest.raises(OSError, match="power cut"):
            storage.write(name, b"new")
    assert storage.read("d/a") == b"old"
    assert storage.read("d/b") is None
    assert [entry.path for entry in storage.list("d")] == ["d/a"]


def test_a_crash_during_the_write_keeps_the_old_file(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.write("d/a", b"old")

    def crash(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        storage.write("d/a", b"new")
    assert storage.read("d/a") == b"old"
    assert [entry.path for entry in storage.list("d")] == ["d/a"]


def test_a_failed_write_leaves_nothing_behind(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        storage.write("d/a", b"secret")
    assert files_below(tmp_path) == []


def test_data_is_synced_before_the_rename_and_the_rename_before_returning(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("b", b"")  # creates the folder
    steps: list[str] = []
    replace, fsync = os.replace, os.fsync

    def noted_fsync(descriptor: int) -> None:
        mode = os.fstat(descriptor)
        steps.append(f"sync {'folder' if stat.S_ISDIR(mode.st_mode) else f'{mode.st_size} bytes'}")
        fsync(descriptor)

    def noted_replace(source: Path, target: Path) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    storage.write("a", b"data")
    assert steps == ["sync 4 bytes", "rename", "sync folder"]


def test_writing_leaks_no_file_handles(storage: Storage) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("needs /proc")
    storage.write("a", b"")
    before = len(list(descriptors.iterdir()))
    for number in range(20):
        storage.write(f"d/{number}", b"x")
        storage.read(f"d/{number}")
    assert len(list(descriptors.iterdir())) <= before + 2


def test_readers_see_one_whole_version_while_it_is_replaced(storage: Storage) -> None:
    versions = [bytes([number]) * 100_000 for number in range(2)]
    storage.write("a", versions[0])
    done = threading.Event()

    def write() -> None:
        for number in range(40):
            storage.write("a", versions[number % 2])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = {storage.read("a")}
    while not done.is_set():
        seen.add(storage.read("a"))
    writer.join()
    assert seen <= set(versions)


def test_files_of_a_killed_writer_are_not_listed(storage: Storage, tmp_path: Path) -> None:
    """A real process is killed between its write and its rename."""
    program = (
        "import os, sys; from memory_pipeline.lake.files.storage import Storage\n"
        "os.replace = lambda *_: os._exit(9)\n"
        "Storage(sys.argv[1]).write('d/a', b'half')\n"
    )
    root = str(tmp_path / "lake")
    package = Path(__file__).parents[2]
    died = subprocess.run([sys.executable, "-c", program, root], cwd=package, check=False)
    assert died.returncode == 9
    assert files_below(tmp_path) != []  # it had started
    assert storage.list("") == []
    assert storage.read("d/a") is None


# --- listing and deleting --------------------------------------------------------------------------------------------


@pytest.mark.on_s3(always=True)
def test_a_listing_is_sorted_and_recursive(storage: Storage) -> None:
    for path in ("p/b/2", "p/a", "p/b/1", "q/other", "p.txt"):
        storage.write(path, path.encode())
    assert [(entry.path, entry.size) for entry in storage.list("p")] == [("p/a", 3), ("p/b/1", 5), ("p/b/2", 5)]
    assert len(storage.list("")) == 5


@pytest.mark.on_s3(always=True)
def test_a_folder_is_not_a_prefix(storage: Storage) -> None:
    """The files of agent "a" do not include those of agent "ab"."""
    storage.write("w/a/1", b"")
    storage.write("w/ab/2", b"")
    assert [entry.path for entry in storage.list("w/a")] == ["w/a/1"]


def test_hidden_files_are_writes_in_progress(storage: Storage, tmp_path: Path) -> None:
    storage.write("d/a", b"x")
    (tmp_path / "lake/d/.a.123").write_bytes(b"half")
    assert [entry.path for entry in storage.list("d")] == ["d/a"]


def test_a_tag_changes_with_the_content(storage: Storage, tmp_path: Path) -> None:
    storage.write("a", b"one")
    [first] = storage.list("")
    assert storage.list("") == [first]
    storage.write("a", b"three")
    os.utime(tmp_path / "lake/a", (1, 1))
    [second] = storage.list("")
    storage.write("a", b"seven")
    [third] = storage.list("")
    assert len({first.tag, second.tag, third.tag}) == 3


@pytest.mark.on_s3(always=True)
def test_deleting_ignores_missing_files(storage: Storage) -> None:
    storage.write("a", b"")
    storage.write("b", b"")
    storage.delete(iter(["a", "missing", "no/folder/x", "b", "a"]))
    assert storage.list("") == []


def test_a_file_deleted_during_a_listing_hides_no_other(storage: Storage, tmp_path: Path) -> None:
    for number in range(10):
        storage.write(f"d/stays{number}", b"")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            path = tmp_path / "lake/d/goes"
            path.write_bytes(b"")
            path.unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        counts = {sum("stays" in entry.path for entry in storage.list("d")) for _ in range(100)}
    finally:
        done.set()
        other.join()
    assert counts == {10}


# --- roots -----------------------------------------------------------------------------------------------------------


def test_a_root_may_be_written_as_a_path_or_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in (str(tmp_path / "lake"), f"file://{tmp_path}/lake", "lake", "./lake", "~/lake", f"{tmp_path}/lake/"):
        storage = Storage(root)
        assert storage.is_local
        assert storage.uri == str(tmp_path / "lake")
        assert storage.locate("a/b") == storage.file_path("a/b") == str(tmp_path / "lake/a/b")


def test_a_relative_root_does_not_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = Storage("lake")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.write("a", b"x")
    assert (tmp_path / "lake/a").read_bytes() == b"x"


def test_a_root_may_contain_spaces_and_non_ascii_letters(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "mémoire of 100 % [x] #1"))
    storage.write("d/a", b"x")
    assert storage.read("d/a") == b"x"
    assert [entry.path for entry in storage.list("d")] == ["d/a"]


@pytest.mark.parametrize("uri", ["gs://bucket/x", "http://host/x", "memory://x", "://x", "S4://b", "lake\0"])
def test_another_kind_of_root_is_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="is not accepted; expected a folder, or the text s3://bucket/prefix"):
        Storage(uri)


# --- permissions -----------------------------------------------------------------------------------------------------


def modes(root: Path) -> dict[str, str]:
    """Return the permissions of a root and everything below it."""
    return {str(path.relative_to(root)): oct(path.stat().st_mode & 0o7777) for path in (root, *root.rglob("*"))}


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
def test_only_its_own_user_may_read_a_lake(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        storage = Storage(str(tmp_path / "deep/lake"))
        storage.write("lake.json", b"{}")
        storage.create("claims/a", b"")
        storage.overwrite("lake.json", b"{")
        assert os.umask(umask) == umask, "the process's own is left alone"
    finally:
        os.umask(before)
    found = modes(tmp_path / "deep/lake")
    assert (found["."], found["lake.json"], found["claims/a"]) == ("0o700", "0o600", "0o600")
    assert oct((tmp_path / "deep").stat().st_mode & 0o777) == oct(0o777 & ~umask), "what lies above is not the lake's"
    assert not storage.is_open_to_all()


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    storage = Storage(str(tmp_path))
    storage.write("lake.json", b"{}")
    assert modes(tmp_path) == {".": "0o755", "lake.json": "0o600"}
    assert storage.is_open_to_all()


def test_a_setting_gives_a_group_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = next((each for each in os.getgroups() if each != os.getegid()), None)
    if os.geteuid() == 0:
        number = next(each.gr_gid for each in grp.getgrall() if each.gr_gid != os.getegid())
    if number is None:
        pytest.skip("this user is a member of one group alone")
    monkeypatch.setenv("MEMORY_PIPELINE_GROUP", grp.getgrgid(number).gr_name)
    root = tmp_path / "deep/lake"
    Storage(str(root)).write("journal/pending/a/b/file", b"said")
    (root / "journal" / "of_another_library").mkdir()
    assert {path.stat().st_gid for path in (root, *root.rglob("*"))} == {number}
    found = modes(root)
    assert (found["."], found["journal/pending/a/b"], found["journal/pending/a/b/file"]) == (
        "0o2770",
        "0o2770",
        "0o660",
    )
    assert (tmp_path / "deep").stat().st_gid != number


def test_an_unknown_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no such group", "99999999999999999999", "4294967290"):
        monkeypatch.setenv("MEMORY_PIPELINE_GROUP", name)
        with pytest.raises(ConfigurationError, match=f"MEMORY_PIPELINE_GROUP '{name}' does not exist on this machine"):
            Storage(str(tmp_path / "lake"))
    assert list(tmp_path.iterdir()) == []
