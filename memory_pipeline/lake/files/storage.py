"""Files under the lake's root: a local folder or ``s3://bucket/prefix``.

Credentials, region and endpoint of S3 come from the standard chain (:mod:`memory_pipeline.lake.files.s3_options`);
:mod:`memory_pipeline.lake.files.s3_files` sends the requests.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from pyarrow.fs import LocalFileSystem
from ulid import ULID

from memory_pipeline.errors import ConfigurationError, require, shown
from memory_pipeline.lake.files.disk import disk_error
from memory_pipeline.operating_system import create_private, flush, flush_folder, give_to_group, is_open_to_all
from memory_pipeline.settings import lake_group

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from memory_pipeline.lake.files.s3_files import Bucket
    from memory_pipeline.lake.files.s3_options import ObjectStore

#: Names of files that are being written, by this module and by the table libraries.
_PARTIAL = re.compile(r"\..+\.[0-9A-HJKMNP-TV-Z]{26}|.+#\d+")
#: Modes of new files and folders: for their user only, or for a group, which folders pass on to their contents.
_OWN_FOLDER, _GROUPS_FILE, _GROUPS_FOLDER = 0o700, 0o660, 0o2770
#: Attempts to create a folder that others keep removing.
_LOOKS = 100
_ROOTS = "expected a folder, or the text s3://bucket/prefix"
#: The manifest, present in every lake.
MANIFEST = "lake.json"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file: path relative to the root, bytes, a tag that changes with the content, modification time in UTC."""

    path: str
    size: int
    tag: str
    modified_at: datetime


class Storage:
    """Reads and writes whole files under one root. Paths are relative to it, with forward slashes."""

    def __init__(self, uri: str | os.PathLike[str]) -> None:
        # A path has only one slash after the scheme.
        if not isinstance(uri := os.fspath(uri), str) or "\0" in uri or re.match("s3:/[^/]", uri):
            raise ConfigurationError(f"lake root {shown(uri)} is not accepted; {_ROOTS}")
        scheme, separator, rest = uri.partition("://")
        self._bucket: Bucket | None = None
        self._store: ObjectStore | None = None
        if not separator or scheme == "file":
            self._base = Path(rest if separator else uri).expanduser().absolute().as_posix()
            self._group = lake_group()
        elif scheme == "s3":
            require("s3", "s3fs")
            from memory_pipeline.lake.files.s3_files import Bucket
            from memory_pipeline.lake.files.s3_options import ObjectStore

            name, _, prefix = rest.partition("/")
            self._prefix = "/".join(part for part in prefix.split("/") if part)
            self._base = f"{name}/{self._prefix}".rstrip("/")
            self._store = ObjectStore.from_chain(name)
            self._bucket = Bucket(self._store)
        else:
            raise ConfigurationError(f"lake root {shown(uri)} is not accepted; {_ROOTS}")

    def problems(self) -> list[str]:
        """Return why the root cannot be written, if it is a folder, or does not exist yet."""
        if not self.is_local:
            return []
        root = Path(self._base)
        nearest = next(path for path in (root, *root.parents) if path.exists())
        if not nearest.is_dir():
            return [f"{nearest} is not a folder"]
        return [] if os.access(nearest, os.W_OK | os.X_OK) else [f"{nearest} cannot be written by this user"]

    @property
    def is_local(self) -> bool:
        """Return whether the root is a local folder."""
        return self._bucket is None

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options of deltalake and lancedb. They change when credentials are renewed."""
        return None if self._store is None else self._store.for_rust

    @property
    def uri(self) -> str:
        """The root, as other libraries expect it."""
        return self.locate("")

    def locate(self, path: str) -> str:
        """Return the full address of `path`, as other libraries expect it."""
        full = f"{self._base}/{path}".rstrip("/")
        return full if self.is_local else f"s3://{full}"

    def file_path(self, path: str) -> str:
        """Return the address of `path` without a scheme, as :meth:`arrow_filesystem` expects it."""
        return f"{self._base}/{path}"

    def arrow_filesystem(self) -> Any:
        """Return the pyarrow filesystem that reads below the root."""
        return LocalFileSystem() if self._bucket is None else self._bucket.filesystem()

    def write(self, path: str, data: bytes) -> None:
        """Write a file atomically. It is durable when this returns."""
        if self._bucket is not None:
            self._bucket.write(self._key(path), data)
            return
        with self._reaching(path):
            self._write_local(path, [data], lambda partial, target: partial.replace(target))

    def write_parts(self, path: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write a file of a local root in parts, atomically. A power cut may lose or damage it."""
        with self._reaching(path):
            self._write_local(path, parts, lambda partial, target: partial.replace(target), durable=False)

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a file unless it exists. Return whether it was written. A power cut may lose it if not `durable`."""
        try:
            if self._bucket is None:
                with self._reaching(path):
                    link = Path.hardlink_to
                    self._write_local(path, [data], lambda partial, target: link(target, partial), durable=durable)
            else:
                self.require_creating()
                if self._bucket.store.is_single_writer and self._bucket.is_there(self._key(path)):
                    return False  # some servers do not refuse
                self._bucket.create(self._key(path), data)
        except FileExistsError:
            return False
        return True

    def _write_local(
        self,
        path: str,
        parts: Iterable[bytes | memoryview],
        publish: Callable[[Path, Path], object],
        *,
        durable: bool = True,
    ) -> None:
        target = Path(self._base, path)
        partial = target.with_name(f".{target.name}.{ULID()}")
        new: set[Path] = set()
        try:
            with self._opened(partial, new) as file:
                file.writelines(parts)
                if durable:
                    file.flush()
                    flush(file.fileno())
            publish(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        if not durable:
            return
        for named in {target, *new}:  # otherwise a power cut may lose the new names
            with suppress(FileNotFoundError):  # others have read and deleted it, and removed the folder
                flush_folder(named.parent)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        if self._bucket is not None:
            return self._bucket.read(self._key(path))
        try:
            with self._reaching(path):
                return Path(self._base, path).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> list[FileInfo]:
        """Return all files below a folder, sorted by path; none if it does not exist.

        Symbolic links and names with a leading dot, which are writes in progress, are omitted.
        """
        entries = self._list_local(prefix) if self._bucket is None else self._list_remote(prefix)
        found = [entry for entry in entries if not entry.path.rpartition("/")[2].startswith(".")]
        return sorted(found, key=lambda entry: entry.path)

    def _list_local(self, prefix: str) -> Iterator[FileInfo]:
        cut = len(self._base) + 1
        folders = [f"{self._base}/{prefix}".rstrip("/")]
        while folders:
            folder = folders.pop()
            with self._reaching(prefix), suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"  # `entry.path` has a backslash on Windows
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        with suppress(FileNotFoundError):  # deleted since
                            info = entry.stat(follow_symlinks=False)
                            changed_at = datetime.fromtimestamp(info.st_mtime, UTC)
                            yield FileInfo(path[cut:], info.st_size, f"{info.st_size}-{info.st_mtime}", changed_at)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder, sorted, as :meth:`list` does; much faster on a disk."""
        if self._bucket is not None:
            return [
                entry.path.rpartition("/")[2]
                for entry in self.list(folder)
                if entry.path.count("/") == folder.count("/") + 1
            ]
        with self._reaching(folder), suppress(FileNotFoundError), os.scandir(f"{self._base}/{folder}") as entries:
            files = (entry.name for entry in entries if entry.is_file(follow_symlinks=False))
            return sorted(name for name in files if not name.startswith("."))
        return []

    def links(self, folder: str) -> Sequence[str]:
        """Return the paths of all symbolic links below a folder, sorted; none in an object store."""
        found = []
        for path, folders, names in os.walk(Path(self._base, folder)) if self.is_local else ():
            links = (Path(path, name) for name in (*folders, *names) if Path(path, name).is_symlink())
            found += [link.relative_to(self._base).as_posix() for link in links]
        return sorted(found)

    def leads_elsewhere(self, path: str, top: str) -> bool:
        """Return whether `path`, or one of its folders below `top`, is a symbolic link."""
        if not self.is_local:
            return False
        parts = path.removeprefix(f"{top}/").split("/")
        return any(Path(self._base, top, *parts[:end]).is_symlink() for end in range(1, len(parts) + 1))

    def _list_remote(self, prefix: str) -> Iterator[FileInfo]:
        assert self._bucket is not None  # noqa: S101  # nosec B101  # it is asked before
        cut = len(self._key(""))
        for file in self._bucket.files(self._folder(prefix)):
            # Some bucket browsers create files with a trailing slash as folders.
            if not file.key.endswith("/"):
                yield FileInfo(file.key[cut:], file.size, file.tag, file.modified_at.astimezone(UTC))

    def sizes(self, paths: Collection[str], folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the files at `paths` that exist, all below `folder`."""
        if not self.is_local:
            names = set(paths)
            return {entry.path: entry.size for entry in self.list(folder) if entry.path in names} if names else {}
        found = {}
        for path in paths:
            with suppress(FileNotFoundError):
                found[path] = os.stat(f"{self._base}/{path}").st_size  # noqa: PTH116  # Path objects are slow
        return found

    def _opened(self, path: Path, new: set[Path]) -> BinaryIO:
        """Open a new file, in a folder that others may remove while it is empty. Add created folders to `new`.

        Other users of the machine get no access to the file, nor to the root if it is created here. The latter also
        protects files of the table libraries, which accept no mode.

        Raises:
            LakeError: the folder cannot be created, or others kept removing it.
        """
        for look in range(_LOOKS):
            try:
                for folder in reversed([folder for folder in path.parents if not folder.exists()]):
                    self._make_folder(folder)
                    new.add(folder)
                file = create_private(path)
            except FileExistsError as error:  # a file is in the folder's place
                raise disk_error(error, str(path.parent)) or error from error
            except FileNotFoundError as error:
                if look == _LOOKS - 1:
                    raise disk_error(error, str(path.parent)) or error from error
                continue
            if self._group is not None:
                self._open_to_group(path, _GROUPS_FILE)
            return file
        raise AssertionError("unreachable")

    def _make_folder(self, folder: Path) -> None:
        is_root = folder.as_posix() == self._base
        folder.mkdir(_OWN_FOLDER if is_root else 0o777, exist_ok=True)
        if self._group is not None and (is_root or folder.is_relative_to(self._base)):
            self._open_to_group(folder, _GROUPS_FOLDER)

    def _open_to_group(self, path: Path, mode: int) -> None:
        """Give the lake's group access to a file or folder that this process created.

        Raises:
            ConfigurationError: the system does not allow it.
        """
        assert self._group is not None  # noqa: S101  # nosec B101  # it is asked before
        try:
            give_to_group(path, self._group, mode)
        except PermissionError as error:
            raise ConfigurationError(
                f"MEMORY_PIPELINE_GROUP {error.filename} cannot own files of the lake: this "
                "process's user is not a member of it; add the user to the group, or set another group"
            ) from None

    def is_open_to_all(self) -> bool:
        """Return whether every user of this machine may read the root."""
        return self.is_local and is_open_to_all(self._base)

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file by a shorter one, while its name stays in listings.

        A concurrent reader may find `data` followed by the rest of the old content.
        """
        if self._bucket is not None:
            self._bucket.write(self._key(path), data)
            return
        with self._reaching(path), Path(self._base, path).open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate()

    def has(self, folder: str) -> bool:
        """Return whether a folder exists; in an object store, whether there are files below it."""
        if self._bucket is not None:
            return self._bucket.has(self._folder(folder))
        return Path(self._base, folder).exists()

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders in a folder, sorted; none if it does not exist."""
        if self._bucket is not None:
            return self._bucket.folders(self._folder(folder))
        try:
            with self._reaching(folder), os.scandir(Path(self._base, folder)) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def remove(self, folder: str) -> None:
        """Delete a folder and everything below it, if it exists."""
        if self._bucket is not None:
            self._bucket.delete([file.key for file in self._bucket.files(self._folder(folder))])
            return
        path = Path(self._base, folder)
        with suppress(OSError):  # others may add files meanwhile
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def partial(self) -> Sequence[FileInfo]:
        """Return the local files of unfinished writes, running or killed. On S3 these are never visible."""
        found = []
        for path, _, names in os.walk(self._base) if self.is_local else ():
            for name in names:
                if _PARTIAL.fullmatch(name):
                    with suppress(FileNotFoundError):  # the write has finished
                        file = Path(path, name)
                        info = file.stat()
                        where = file.relative_to(self._base).as_posix()
                        found.append(FileInfo(where, info.st_size, "", datetime.fromtimestamp(info.st_mtime, UTC)))
        return found

    def abandoned_uploads(self, before: datetime, *, abort: bool) -> Sequence[str]:
        """Return the paths of unfinished multipart uploads that started before a time (UTC). Always none on a disk.

        `abort` deletes the uploaded parts, which cost money until then.
        """
        if self._bucket is None:
            return []
        cut = len(self._key(""))
        return [key[cut:] for key in self._bucket.uploads(self._key(""), before, abort=abort)]

    def prune(self, folder: str) -> None:
        """Remove empty folders below `folder`, so that names of deleted partitions disappear.

        A concurrent writer creates such a folder again. Object stores have no folders.
        """
        if self.is_local:
            top = str(Path(self._base, folder))
            for path, _, files in os.walk(top, topdown=False):
                if path != top and not files:
                    with suppress(OSError):  # not empty
                        os.rmdir(path)  # noqa: PTH106  # there may be many thousands, and Path objects are slow

    def leave(self, folders: Iterable[str]) -> None:
        """Remove the empty ones of the given folders, to speed up listings. A concurrent writer creates them again."""
        if self.is_local:
            for folder in folders:
                with suppress(OSError):  # not empty, or already removed
                    Path(self._base, folder).rmdir()

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files. Missing ones are ignored."""
        if self._bucket is not None:
            self._bucket.delete([self._key(path) for path in paths])
            return
        for path in paths:
            with suppress(FileNotFoundError), self._reaching(path):
                Path(self._base, path).unlink()

    def is_there(self, path: str) -> bool:
        """Return whether there is a file at `path`, by the cheapest request."""
        if self._bucket is not None:
            return self._bucket.is_there(self._key(path))
        return Path(self._base, path).is_file()

    def is_versioned(self) -> bool | None:
        """Return whether the storage keeps deleted and overwritten versions, or None if unknown."""
        return False if self._bucket is None else self._bucket.is_versioned()

    def require_creating(self) -> None:
        """Refuse storage that cannot create a file only if it is absent. Checked before a process's first write.

        Raises:
            ConfigurationError: see :mod:`memory_pipeline.lake.files.s3_probe`.
        """
        if self._bucket is not None:
            from memory_pipeline.lake.files.s3_probe import require_creating

            require_creating(self._bucket, self._key(""), MANIFEST)

    @contextmanager
    def _reaching(self, path: str) -> Iterator[None]:
        """Raise the disk's errors as LakeErrors, except for files that exist or are missing."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise disk_error(error, self.locate(path)) or error from error

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _folder(self, path: str) -> str:
        key = self._key(path).rstrip("/")
        return f"{key}/" if key else ""
