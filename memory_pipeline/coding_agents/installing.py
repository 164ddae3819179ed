"""Write the plugin of a coding agent, with a backup of what it changes, and take it back.

The backup is a folder in the user's state: ``record.json`` lists the files that were written, with digests, and beside
it is what they were before. It is written first, so that an installation that was killed can be undone.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from difflib import unified_diff
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from memory_pipeline.coding_agents.plugin import CodingAgent, codex_home, files_of, folder_of, hooks_of, to_text
from memory_pipeline.coding_agents.shared_files import with_hooks, with_server, without_hooks, without_server
from memory_pipeline.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memory_pipeline.coding_agents.plugin import Target

_RECORD: Final = "record.json"


class Change(NamedTuple):
    """A change of a file: its text before and after, None if it is not there."""

    path: Path
    before: str | None
    after: str | None

    @property
    def lines(self) -> list[str]:
        """The change as a unified diff."""
        old, new = (
            os.devnull if self.before is None else str(self.path),
            os.devnull if self.after is None else str(self.path),
        )
        texts = (self.before or "").splitlines(), (self.after or "").splitlines()
        return list(unified_diff(*texts, old, new, lineterm=""))


def installation(agent: CodingAgent, target: Target, home: Path) -> list[Change]:
    """Return the changes that install the plugin, or bring an installed one up to date.

    Raises:
        InputError: a file of the user is damaged, or is in the way.
    """
    folder, known = folder_of(agent, home), _record(agent, home)
    texts = {folder / name: text for name, text in files_of(agent, target).items()}
    for path in texts:
        if path.exists() and str(path) not in known:
            raise InputError(f"{path} was written by others; remove it first")
    if agent is CodingAgent.CODEX:
        hooks, configuration = _removers(agent, home)
        texts[hooks] = with_hooks(hooks, _read(hooks) or "", hooks_of(agent, target))
        texts[configuration] = with_server(configuration, _read(configuration) or "", target.server(agent))
    return _changes(texts)


def removal(agent: CodingAgent, home: Path) -> list[Change]:
    """Return the changes that undo the installation. Files that nobody changed since become what they were before.

    In files that were changed since, only the plugin's own entries go.

    Raises:
        InputError: a file of the user is damaged.
    """
    known, without = _record(agent, home), _removers(agent, home)
    texts: dict[Path, str | None] = {}
    for path in {*map(Path, known), *without}:
        now, entry = _read(path), known.get(str(path))
        if now is None:
            continue
        if entry is not None and entry["written"] == _digest(now):
            texts[path] = None if entry["backup"] is None else _read(_folder(agent, home) / entry["backup"])
        else:
            texts[path] = without[path](path, now) or None if path in without else None
    return _changes(texts)


def apply(agent: CodingAgent, changes: Sequence[Change], home: Path, *, is_removal: bool = False) -> None:
    """Make changes.

    Raises:
        ConfigurationError: a file cannot be written.
    """
    backups, known = _folder(agent, home), _record(agent, home)
    try:
        if not is_removal:
            backups.mkdir(parents=True, exist_ok=True)
            for change in changes:
                entry = known.setdefault(str(change.path), {"backup": None, "written": None})
                if change.before is not None and _digest(change.before) != entry["written"]:
                    # What the user has changed since an earlier installation is kept, too.
                    entry["backup"] = _backed_up(change, agent, home)
                entry["written"] = _digest(change.after or "")
            _write(backups / _RECORD, to_text(known))
        for change in changes:
            if change.after is not None:
                _write(change.path, change.after)
            else:
                change.path.unlink(missing_ok=True)
                _prune(change.path.parent, folder_of(agent, home))
        if is_removal:
            shutil.rmtree(backups, ignore_errors=True)
    except OSError as error:
        remedy = "" if is_removal else "; undo what was written with --undo"
        raise ConfigurationError(f"{error.filename or backups} cannot be written: {error.strerror}{remedy}") from None


def _changes(texts: Mapping[Path, str | None]) -> list[Change]:
    changes = (Change(path, _read(path), text) for path, text in sorted(texts.items()))
    return [change for change in changes if change.before != change.after]


def _removers(agent: CodingAgent, home: Path) -> dict[Path, Callable[[Path, str], str]]:
    """Return the files that the user has too, each with the function that removes the plugin's entries."""
    if agent is not CodingAgent.CODEX:
        return {}
    return {codex_home(home) / "hooks.json": without_hooks, codex_home(home) / "config.toml": without_server}


def _backed_up(change: Change, agent: CodingAgent, home: Path) -> str | None:
    """Write what a file has without the plugin to the backup; return its name there, or None if there was none."""
    remove = _removers(agent, home).get(change.path)
    if remove is None or change.before is None:
        return None  # a file of the plugin
    text = remove(change.path, change.before)
    if text != change.before and not text:
        return None
    _write(_folder(agent, home) / change.path.name, text)
    return change.path.name


def _folder(agent: CodingAgent, home: Path) -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "memory-pipeline" / "install" / agent


def _record(agent: CodingAgent, home: Path) -> dict[str, dict[str, Any]]:
    text = _read(_folder(agent, home) / _RECORD)
    try:
        return dict(json.loads(text or "{}"))
    except ValueError:
        return {}  # a record that cannot be read is as none: entries are found without it


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}; nothing was changed") from None


def _write(path: Path, text: str) -> None:
    """Replace a file in one step. A link stays one, and the rights stay."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(text.encode())
        if path.exists():
            shutil.copymode(path, new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _prune(folder: Path, top: Path) -> None:
    """Remove empty folders, up to that of the plugin."""
    with suppress(OSError):
        while folder == top or top in folder.parents:
            folder.rmdir()
            folder = folder.parent


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
