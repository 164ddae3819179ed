"""Files in a folder that is not on a disk: entries of a context, whose keys are their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from memory_pipeline.adapters.entries import ContextEntries
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline import Memory

#: The folder of all files, and the field of an entry's value that has the text of the file.
ROOT: Final = "/memories"
_TEXT: Final = "text"


class MemoryFiles:
    """The files of one user or agent. A folder is there while a file is in it."""

    def __init__(self, memory: Memory, context: str) -> None:
        self._entries = ContextEntries(memory, context, "memory tool")

    def read(self) -> dict[str, str]:
        """Return the texts of all files by path."""
        values = self._entries.values().items()
        return {f"{ROOT}/{key}": str(value[_TEXT]) for key, value in values if _TEXT in value}

    def change(self, texts: Mapping[str, str | None]) -> None:
        """Write files, and delete those whose text is None: all of them with one write.

        Raises:
            InputError: a path or a text is not accepted; nothing was written.
        """
        keys = {path.removeprefix(f"{ROOT}/"): text for path, text in texts.items()}
        puts = {key: (text, {_TEXT: text}) for key, text in keys.items() if text is not None}
        self._entries.change(puts, [key for key, text in keys.items() if text is None])


def path_of(text: str) -> str:
    """Return a path without empty names and without a slash at its end.

    Raises:
        InputError: it is not below the root.
    """
    names = [name for name in text.split("/") if name]
    if not text.startswith("/") or names[:1] != [ROOT[1:]] or not {".", ".."}.isdisjoint(names):
        raise InputError(f"Path must be {ROOT} or below it, got: {text}")
    return "/" + "/".join(names)


def below(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    """Return the files in a folder and in the folders below it."""
    return {path: text for path, text in files.items() if path.startswith(f"{folder}/")}


def text_of(path: str, files: Mapping[str, str]) -> str:
    """Return the text of a file.

    Raises:
        InputError: there is no such file.
    """
    if path in files:
        return files[path]
    if path == ROOT or below(path, files):
        raise InputError(f"The path {path} is not a file.")
    raise InputError(f"The path {path} does not exist. Please provide a valid path.")


def moved_with(path: str, files: Mapping[str, str], verb: str) -> dict[str, str]:
    """Return the files that the change of a file or a folder concerns. `verb` says what the change is.

    Raises:
        InputError: there is none, or it is the root.
    """
    if path == ROOT:
        raise InputError(f"Cannot {verb} the {ROOT} directory itself")
    found = {path: files[path]} if path in files else below(path, files)
    if not found:
        raise InputError(f"The path {path} does not exist")
    return found


def refuse_target(path: str, files: Mapping[str, str]) -> None:
    """Raise InputError if there is a file or a folder at a path, or a file in place of one of its folders."""
    if path == ROOT or path in files or below(path, files):
        raise InputError(f"File {path} already exists")
    if any(path.startswith(f"{one}/") for one in files):
        raise InputError(f"A part of the path {path} is a file")
