"""The files of an export: one file, a folder, or a zip archive, which is read in place and never unpacked."""

from __future__ import annotations

import codecs
import io
import json
import os
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.errors import InputError
from memory_pipeline.importers.json_stream import MAX_VALUE, BadValueError, JsonStream, beginning_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Most files of an export.
_MAX_FILES: Final = 200_000
#: A file in an archive that is larger than the first, and compressed more than the second, is a bomb. Text is
#: compressed 5 to 50 times.
_LARGE: Final = 10 * 2**20
_MAX_RATIO: Final = 200
#: Bytes at the beginning of a file by which its format is recognised.
_HEAD: Final = 2**18
_PIECE: Final = 2**14
#: Reading a damaged file or archive raises one of these.
UNREADABLE: Final = (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
#: Most records of the beginning that are looked at.
_SAMPLE: Final = 20
_BEGINNING: Final = 1_000
_LINE_ENDINGS: Final = (".jsonl", ".ndjson")


@dataclass
class ExportFile:
    """A file of an export, read as text or JSON.

    Attributes:
        name: its path inside the export, with ``/``.
        size: bytes of its content.
        modified: when it was last changed.
        export: all files of the export.
    """

    name: str
    size: int
    modified: datetime
    export: Export
    opened: Callable[[], BinaryIO]

    @property
    def path(self) -> PurePosixPath:
        """The name as a path."""
        return PurePosixPath(self.name)

    def beside(self, name: str) -> ExportFile | None:
        """Return the file at a path relative to the folder of this one, if there is one."""
        return self.export.files.get(os.path.normpath(self.path.parent / name).replace(os.sep, "/"))

    def open(self) -> BinaryIO:
        """Open the content. Reading it moves the progress."""
        return io.BufferedReader(_Counted(self.opened(), self.export.read), 2**16)

    def text(self) -> TextIO:
        """Open the content as text. A byte order mark is left out; invalid bytes become U+FFFD."""
        return io.TextIOWrapper(self.open(), self.encoding, "replace", newline="\n")

    @cached_property
    def head(self) -> bytes:
        """The first bytes; none if the file cannot be read."""
        head = b""
        try:
            with self.opened() as file:
                while len(head) < _HEAD and (more := file.read(_PIECE)):
                    head += more
        except UNREADABLE:  # its reader finds out, too
            pass
        return head

    @cached_property
    def encoding(self) -> str:
        """UTF-8; or UTF-16 or Windows-1252, if the first bytes say so."""
        head = self.head
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if len(head) > 3 and 0 in head[:2]:
            return "utf-16-be" if head[0] == 0 else "utf-16-le"
        try:
            codecs.getincrementaldecoder("utf-8")().decode(head)
        except UnicodeDecodeError:
            return "cp1252"
        return "utf-8-sig"

    @cached_property
    def beginning(self) -> str:
        """The beginning of the text."""
        return self.head.decode(self.encoding, "ignore")

    @cached_property
    def value(self) -> Any:
        """The JSON value with which the file begins, as far as the beginning goes; None if it is not JSON."""
        return beginning_of(self.beginning) if self.beginning.lstrip()[:1] in ("[", "{") else None

    @cached_property
    def is_list(self) -> bool:
        """Whether it is a JSON list."""
        return isinstance(self.value, list)

    @cached_property
    def has_lines(self) -> bool:
        """Whether it has a JSON object on each line."""
        if not isinstance(self.value, dict):
            return False
        if self.path.suffix.lower() in _LINE_ENDINGS:
            return True
        first, _, rest = self.beginning.lstrip().partition("\n")
        return rest.lstrip().startswith("{") and isinstance(_object_in(first), dict)

    @cached_property
    def sample(self) -> list[dict[str, Any]]:
        """The first objects: of a list, of lines, or the only one."""
        if self.has_lines:
            found = [_object_in(line) for line in self.beginning.split("\n", _SAMPLE)[:_SAMPLE]]
        else:
            found = self.value[:_SAMPLE] if isinstance(self.value, list) else [self.value]
        return [one for one in found if isinstance(one, dict)] or [one for one in [self.value] if isinstance(one, dict)]

    def forget_beginning(self) -> None:
        """Free what was read to recognise the format, but keep what it says of the file as a whole."""
        _ = self.encoding, self.is_list, self.has_lines
        for name in ("head", "beginning", "value", "sample"):
            self.__dict__.pop(name, None)

    def stream(self) -> JsonStream:
        """Open the content as JSON, to read it piece by piece."""
        return JsonStream(self.text())

    def records(self) -> Iterator[tuple[str, Any]]:
        """Yield the place of each object with the object, or its rejection: of a list, of lines, or the only one."""
        if self.has_lines:
            yield from self._lines()
            return
        stream = self.stream()
        if not self.is_list:
            yield self.name, self.taken(stream, self.name)
            return
        number = 0
        try:
            for number, _ in enumerate(stream.items(), start=1):
                where = f"{self.name}, item {number}"
                yield where, self.taken(stream, where)
        except InputError as error:
            yield self.name, Rejection(str(error), f"{self.name}, after item {number}", self.name)

    def inside(self, *keys: str) -> list[dict[str, Any]]:
        """Return the first objects of the lists under some keys of the only object; else those of :attr:`sample`."""
        if isinstance(self.value, dict) and not self.has_lines:
            found = [one for key in keys if isinstance(self.value.get(key), list) for one in self.value[key][:_SAMPLE]]
            return [one for one in found if isinstance(one, dict)]
        return self.sample

    def objects(self, *keys: str) -> Iterator[tuple[str, str, Any]]:
        """Yield the place, the key and each object of lists under some keys, or as :meth:`records` without a key."""
        if self.is_list or self.has_lines:
            yield from ((where, "", record) for where, record in self.records())
            return
        stream = self.stream()
        for key in stream.fields():
            if key in keys and stream.peek() == "[":
                for number, _ in enumerate(stream.items(), start=1):
                    where = f"{self.name}, {key} {number}"
                    yield where, key, self.taken(stream, where)
            else:
                stream.skip()

    def taken(self, stream: JsonStream, where: str) -> Any:
        """Return the next value of a stream, or its rejection."""
        try:
            return stream.value()
        except BadValueError as error:
            return Rejection(str(error), where, error.beginning)

    def _lines(self) -> Iterator[tuple[str, Any]]:
        with self.text() as file:
            number = 0
            while line := file.readline(MAX_VALUE):
                number += 1
                where = f"{self.name}, line {number}"
                if not line.endswith("\n") and len(line) == MAX_VALUE:
                    while (rest := file.readline(2**20)) and not rest.endswith("\n"):
                        pass
                    yield where, Rejection(f"larger than {MAX_VALUE // 2**20} MB", where, line[:_BEGINNING])
                elif line.strip():
                    value = self.taken(JsonStream(io.StringIO(line)), where)
                    yield where, value


def _object_in(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


class _Counted(io.RawIOBase):
    """Tells how many bytes were read."""

    def __init__(self, file: BinaryIO, read: Callable[[int], None]) -> None:
        self._file, self._read = file, read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._read(len(data))
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass
class Export:
    """The files of an export by name, and those that are not read, with the reasons.

    `read` is called with the number of bytes whenever some were read.
    """

    files: dict[str, ExportFile] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    read: Callable[[int], None] = lambda _: None

    def refuse(self, reason: str) -> None:
        """Count a file that is not read."""
        self.refused[reason] += 1

    def add(self, name: str, size: int, modified: datetime, opened: Callable[[], BinaryIO]) -> None:
        """Add a file. Raise InputError if there are too many."""
        if len(self.files) >= _MAX_FILES:
            raise InputError(f"there are more than {_MAX_FILES:,} files; import parts of them, one after the other")
        self.files[name] = ExportFile(name, size, modified, self, opened)


def export_at(path: Path) -> Export:
    """Return the files at a path: itself, all in a folder, or all in a zip archive. Links in a folder are not followed.

    Raises:
        InputError: it does not exist, cannot be read, or has too many files.
    """
    export = Export()
    try:
        if path.is_dir():
            for folder, folders, names in os.walk(path, onerror=lambda _: export.refuse("the folder cannot be read")):
                folders.sort()
                for name in sorted(names):
                    _add(export, Path(folder, name), Path(folder, name).relative_to(path).as_posix())
                for name in folders:
                    if Path(folder, name).is_symlink():
                        export.refuse("it is a symbolic link")
        elif path.exists():
            _add(export, path.resolve(), path.name)
        else:
            raise InputError(f"{path} does not exist")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return export


def _add(export: Export, path: Path, name: str) -> None:
    found = path.lstat()
    if not S_ISREG(found.st_mode):
        export.refuse("it is a symbolic link" if path.is_symlink() else "it is no file")
        return
    if path.suffix.lower() == ".zip" or _is_zip(path):
        _add_archive(export, path, name)
        return
    export.add(name, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC), partial(_open_file, path))


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _add_archive(export: Export, path: Path, name: str) -> None:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        export.refuse(f"the archive cannot be read: {error}")
        return
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        if entry.flag_bits & 1:
            export.refuse("it is encrypted in its archive")
        elif entry.file_size > _LARGE and entry.file_size > _MAX_RATIO * max(entry.compress_size, 1):
            export.refuse(f"it is compressed more than {_MAX_RATIO} times, as an attack would be")
        else:
            try:
                modified = datetime(*entry.date_time, tzinfo=UTC)
            except ValueError:
                modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            inner = os.path.normpath("/" + entry.filename.replace("\\", "/")).lstrip("/")
            export.add(f"{name}/{inner}", entry.file_size, modified, partial(_open_entry, archive, entry))


def _open_file(path: Path) -> BinaryIO:
    return path.open("rb")


def _open_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> BinaryIO:
    return archive.open(entry)  # type: ignore[return-value]  # it has what is needed
