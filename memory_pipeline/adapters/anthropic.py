"""Anthropic's memory tool, ``memory_20250818``: files below ``/memories`` that the model keeps itself.

::

    tool = MemoryTool(Memory("./my-lake", user_id="anna"))
    client.beta.messages.tool_runner(model=…, max_tokens=…, messages=…, tools=[tool])

A file is an entry of a context (:attr:`memory_pipeline.Memory.contexts`). So a file has a history, searches find it,
and an erasure of the user reaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.adapters.files import ROOT, MemoryFiles, below, moved_with, path_of, refuse_target, text_of
from memory_pipeline.errors import InputError, require

require("anthropic", "anthropic.lib.tools")

from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memory_pipeline import Memory

#: Levels that the view of a folder lists, and the width of line numbers, as in Anthropic's own implementation.
_LEVELS, _WIDTH = 2, 6


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool on the memory of one user or agent. It answers as Anthropic's own implementation does.

    Args:
        memory: whose memory it is. Each user has files of their own.
        context: the name of the context with the files.
        options: see the base class.
    """

    def __init__(self, memory: Memory, context: str = "memories", **options: Any) -> None:
        super().__init__(**options)
        self._files = MemoryFiles(memory, context)

    def execute(self, command: Any) -> Any:
        """Run a command.

        Raises:
            ToolError: it cannot be run; the model reads why.
        """
        try:
            return super().execute(command)
        except InputError as error:
            raise ToolError(str(error)) from error

    def view(self, command: Any) -> str:
        """Return a file with line numbers, or the names in a folder."""
        path, files = path_of(command.path), self._files.read()
        if path not in files:
            if path != ROOT and not below(path, files):
                raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
            return _listed(path, below(path, files))
        lines, first = files[path].split("\n"), 1
        if command.view_range and len(command.view_range) == 2:
            first, last = max(1, command.view_range[0]), command.view_range[1]
            lines = lines[first - 1 : None if last == -1 else last]
        return f"Here's the content of {path} with line numbers:\n{_numbered(lines, first)}"

    def create(self, command: Any) -> str:
        """Create a file."""
        path = path_of(command.path)
        refuse_target(path, self._files.read())
        self._files.change({path: command.file_text})
        return f"File created successfully at: {path}"

    def str_replace(self, command: Any) -> str:
        """Replace a text that a file has once."""
        path, old = path_of(command.path), command.old_str
        text = text_of(path, self._files.read())
        lines = [text.count("\n", 0, place) for place in range(len(text)) if old and text.startswith(old, place)]
        if not lines:
            raise ToolError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
        if len(lines) > 1:
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
                f"{', '.join(str(line + 1) for line in lines)}. Please ensure it is unique"
            )
        changed = text.replace(old, command.new_str)
        self._files.change({path: changed})
        first = max(0, lines[0] - 2)
        near = _numbered(changed.split("\n")[first : lines[0] + 3], first + 1)
        return f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{near}"

    def insert(self, command: Any) -> str:
        """Insert text after a line; after line 0 it is at the beginning."""
        path = path_of(command.path)
        text = text_of(path, self._files.read())
        lines = text.removesuffix("\n").split("\n") if text else []
        if not 0 <= command.insert_line <= len(lines):
            within = f"It should be within the range [0, {len(lines)}]."
            raise ToolError(f"Invalid `insert_line` parameter: {command.insert_line}. {within}")
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._files.change({path: "\n".join(lines) + "\n"})
        return f"The file {path} has been edited."

    def delete(self, command: Any) -> str:
        """Delete a file, or a folder with all files in it."""
        path = path_of(command.path)
        self._files.change(dict.fromkeys(moved_with(path, self._files.read(), "delete")))
        return f"Successfully deleted {path}"

    def rename(self, command: Any) -> str:
        """Rename or move a file or a folder."""
        path, target, files = path_of(command.old_path), path_of(command.new_path), self._files.read()
        moved = moved_with(path, files, "rename")
        refuse_target(target, files)
        written = {target + one.removeprefix(path): text for one, text in moved.items()}
        self._files.change({**dict.fromkeys(moved), **written})
        return f"Successfully renamed {path} to {target}"

    def clear_all_memory(self) -> str:
        """Delete all files."""
        self._files.change(dict.fromkeys(self._files.read()))
        return "All memory cleared"


def _numbered(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def _listed(folder: str, files: Mapping[str, str]) -> str:
    """Return the sizes and paths of what is in a folder."""
    sizes: dict[str, int] = {}
    for path, text in files.items():
        names = path.removeprefix(f"{folder}/").split("/")
        for level in range(1, min(len(names), _LEVELS) + 1):
            is_folder = level < len(names)
            place = f"{folder}/{'/'.join(names[:level])}{'/' if is_folder else ''}"
            sizes[place] = sizes.get(place, 0) + len(text.encode())
    shown = [(folder, sum(len(text.encode()) for text in files.values())), *sorted(sizes.items())]
    header = f"Here're the files and directories up to {_LEVELS} levels deep in {folder}, excluding hidden items:"
    return "\n".join([header, *(f"{_size(size)}\t{path}" for path, size in shown if "/." not in path)])


def _size(size: int) -> str:
    if size < 1024:
        return f"{size}B"
    return f"{size / 1024:.1f}K" if size % 1024 else f"{size // 1024}K"
