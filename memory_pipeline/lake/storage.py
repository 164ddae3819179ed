"""Files under the lake's root: the only door to fsspec. A root is a local folder or ``s3://bucket/prefix``.

For S3, credentials, region and endpoint come from the standard chain (:mod:`memory_pipeline.lake.object_store`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from pyarrow.fs import FSSpecHandler, LocalFileSystem, PyFileSystem
from ulid import ULID

from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

#: How often S3 is asked to create a file that other requests are after as well.
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its path below the root, its size in bytes, and a tag that changes when its content does.

    Attributes:
        modified_at: when it was last written, UTC.
    """

    path: str
    size: int
    tag: str
    modified_at: datetime


class Storage:
    """Reads and writes whole files under one root. Paths are relative to it, with forward slashes."""

    def __init__(self, uri: str) -> None:
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme == "file":
            self.is_local = True
            self._base = str(Path(rest if separator else uri).expanduser().absolute())
            self._fs: Any = fsspec.filesystem("file")
            #: What deltalake and lancedb need to know to reach the root.
            self.options: dict[str, str] | None = None
        elif scheme == "s3":
            self.is_local = False
            self._base = rest.strip("/")
            from memory_pipeline.lake.object_store import ObjectStore

            store = ObjectStore.from_chain()
            self.options = store.for_rust
            # A cached listing would hide files that another process wrote.
            self._fs = fsspec.filesystem("s3", use_listings_cache=False, **store.for_fsspec)
        else:
            raise ConfigurationError(f"lake root {shown(uri)} is not accepted; expected a folder or s3://bucket/prefix")

    @property
    def uri(self) -> str:
        """The root, as other libraries take it."""
        return self.locate("")

    def locate(self, path: str) -> str:
        """Return the full address of `path`, as other libraries take it."""
        full = f"{self._base}/{path}".rstrip("/")
        return full if self.is_local else f"s3://{full}"

    def file_path(self, path: str) -> str:
        """Return the address of `path` as :meth:`arrow_filesystem` takes it: without a scheme."""
        return f"{self._base}/{path}"

    def arrow_filesystem(self) -> Any:
        """Return the pyarrow filesystem that reads below the root."""
        return LocalFileSystem() if self.is_local else PyFileSystem(FSSpecHandler(self._fs))

    def write(self, path: str, data: bytes) -> None:
        """Write a file so that it is whole and durable when this returns, and never seen in part."""
        if not self.is_local:
            self._fs.pipe_file(f"{self._base}/{path}", data)  # one PUT is atomic
            return
        self._write_local(path, data, lambda partial, target: partial.replace(target))

    def create(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Write a file as :meth:`write` does, unless there is one; return whether it was written.

        Args:
            path: where.
            data: what.
            durable: False spares the disk a flush, for a file whose loss in a power cut does no harm.
        """
        try:
            if self.is_local:
                self._write_local(path, data, lambda partial, target: target.hardlink_to(partial), durable=durable)
            else:
                self._create_remote(path, data)
        except FileExistsError:
            return False
        return True

    def _create_remote(self, path: str, data: bytes) -> None:
        for attempt in range(_ATTEMPTS):
            try:
                self._fs.pipe_file(f"{self._base}/{path}", data, mode="create")
            except OSError as error:
                code = _s3_code(error)
                if code == "PreconditionFailed":  # s3fs knows it by a field that not every server sends
                    raise FileExistsError(path) from None
                # S3 says so when another request for the same name is under way, whatever becomes of it.
                if code != "ConditionalRequestConflict" or attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
            else:
                return

    def _write_local(
        self, path: str, data: bytes, publish: Callable[[Path, Path], object], *, durable: bool = True
    ) -> None:
        target = Path(self._base, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{ULID()}")
        try:
            with partial.open("wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            publish(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        if not durable:
            return
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # without it a power cut may forget the new name
        finally:
            os.close(folder)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None where there is no such file."""
        try:
            data: bytes = self._fs.cat_file(f"{self._base}/{path}")
        except FileNotFoundError:
            return None
        return data

    def list(self, prefix: str) -> list[Entry]:
        """Return all files below the folder `prefix`, sorted by path; none where it does not exist.

        Files whose names begin with a dot are writes in progress and are left out.
        """
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(f"{self._base}/{prefix}", detail=True)
        except FileNotFoundError:
            return []
        cut = len(self._base) + 1
        entries = [
            Entry(
                path=path[cut:],
                size=info["size"],
                tag=str(info.get("ETag") or f"{info['size']}-{info.get('mtime')}"),
                modified_at=_modified_at(info),
            )
            for path, info in found.items()
            if not path.rpartition("/")[2].startswith(".")
        ]
        return sorted(entries, key=lambda entry: entry.path)

    def sizes(self, paths: Collection[str], folder: str) -> dict[str, int]:
        """Return the bytes of those of the files at `paths`, all below `folder`, that exist."""
        if not self.is_local:
            wanted = set(paths)
            return {entry.path: entry.size for entry in self.list(folder) if entry.path in wanted} if wanted else {}
        found = {}
        for path in paths:
            with suppress(FileNotFoundError):
                found[path] = Path(self._base, path).stat().st_size
        return found

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file by a shorter one without its name ever being absent from a listing.

        Who reads it meanwhile may find `data` before the rest of what it held.
        """
        if not self.is_local:
            self._fs.pipe_file(f"{self._base}/{path}", data)
            return
        with Path(self._base, path).open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate()

    def has(self, folder: str) -> bool:
        """Tell whether there is a folder, be it empty; on an object store, whether there are files below it."""
        return bool(self._fs.exists(f"{self._base}/{folder}"))

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders in a folder, sorted; none where it does not exist."""
        try:
            found = self._fs.ls(f"{self._base}/{folder}", detail=True)
        except FileNotFoundError:
            return []
        return sorted(info["name"].rstrip("/").rpartition("/")[2] for info in found if info["type"] == "directory")

    def remove(self, folder: str) -> None:
        """Delete a folder and all that is below it, as far as it is there."""
        with suppress(OSError):  # others may put files into it while it is emptied
            self._fs.rm(f"{self._base}/{folder}", recursive=True)

    def prune(self, folder: str) -> None:
        """Remove folders below `folder` that hold nothing: where partitions were, their names would stay.

        A writer that has just made one makes it again. Object stores know no folders.
        """
        if self.is_local:
            top = str(Path(self._base, folder))
            for path, _, files in os.walk(top, topdown=False):
                if path != top and not files:
                    with suppress(OSError):  # something is in it
                        os.rmdir(path)  # noqa: PTH106  # there may be many thousands, of which paths are made slowly

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; those that are gone already are passed over."""
        for path in paths:
            try:
                self._fs.rm_file(f"{self._base}/{path}")
            except FileNotFoundError:
                continue


def _modified_at(info: dict[str, Any]) -> datetime:
    """Return when a file was written, of what fsspec knows of it."""
    written = info.get("LastModified", info.get("mtime"))
    return written.astimezone(UTC) if isinstance(written, datetime) else datetime.fromtimestamp(written or 0, UTC)


def _s3_code(error: OSError) -> str | None:
    """Return what S3 calls an error; None where it did not come from there."""
    code: str | None = getattr(error.__cause__, "response", {}).get("Error", {}).get("Code")
    return code
