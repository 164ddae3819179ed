"""Entries of the plugin in files that the user has too: Codex's ``hooks.json`` and ``config.toml``."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.coding_agents.plugin import HOOK_MODULE, MARK, SERVER, SERVER_MODULE, to_text
from memory_pipeline.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The header of any table, and that of the plugin's server or of a table in it. Codex writes the file anew when it
#: changes a setting, and moves comments: they cannot mark what belongs to the plugin.
_HEADER: Final = re.compile(r"\s*\[")
_OWN_HEADER: Final = re.compile(rf"""\s*\[\s*mcp_servers\s*\.\s*["']?{SERVER}["']?\s*[.\]]""")


def with_hooks(path: Path, text: str, hooks: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return the text of a file of hooks with those of the plugin, in place of earlier ones. Others stay.

    Raises:
        InputError: the file is damaged.
    """
    document = _document(path, text)
    _remove(path, document)
    for name, groups in hooks.items():
        document.setdefault("hooks", {}).setdefault(name, []).extend(groups)
    return to_text(document)


def without_hooks(path: Path, text: str) -> str:
    """Return the text of a file of hooks without those of the plugin; nothing if no others are left.

    Raises:
        InputError: the file is damaged.
    """
    document = _document(path, text)
    if not _remove(path, document):
        return text
    return to_text(document) if document.get("hooks") or document.keys() - {"hooks"} else ""


def with_server(path: Path, text: str, server: Mapping[str, Any]) -> str:
    """Return the text of Codex's configuration with the MCP server of the plugin, in place of an earlier one.

    Raises:
        InputError: the file is damaged, or has another server of this name.
    """
    own = without_server(path, text)
    if SERVER in _table(path, _configuration(path, own).get("mcp_servers", {})):
        raise InputError(f"{path} has another MCP server {SERVER!r}; rename or remove it first")
    fields = "\n".join(f"{name} = {_toml(value)}" for name, value in server.items())
    before = f"{own.rstrip()}\n\n" if own.strip() else ""
    changed = f"{before}[mcp_servers.{SERVER}]\n{fields}\n"
    _configuration(path, changed)
    return changed


def without_server(path: Path, text: str) -> str:
    """Return the text of Codex's configuration without the MCP server of the plugin; nothing if nothing is left.

    Raises:
        InputError: the file is damaged, or the server is written in a form that cannot be removed.
    """
    document = _configuration(path, text)
    servers = _table(path, document.get("mcp_servers", {}))
    if not _is_own(_table(path, servers.get(SERVER, {}))):
        return text
    kept: list[str] = []
    own: list[str] | None = None
    for line in [*text.splitlines(keepends=True), "["]:
        if _HEADER.match(line):
            if own is not None:
                kept += _after_values(own)
            own = [] if _OWN_HEADER.match(line) else None
        (kept if own is None else own).append(line)
    changed = "".join(kept[:-1])
    del servers[SERVER]
    if not servers:
        del document["mcp_servers"]
    found = _configuration(path, changed)
    if found != document and {"mcp_servers": {}, **found} != {"mcp_servers": {}, **document}:
        raise InputError(f"{path}: remove the table mcp_servers.{SERVER} by hand; nothing was changed")
    return changed if changed.strip() else ""


def _is_own(server: Mapping[str, Any]) -> bool:
    name, value = MARK
    return SERVER_MODULE in server.get("args", []) or server.get("http_headers", {}).get(name) == value


def _toml(value: object) -> str:
    """Return a text, a list of texts or a mapping of texts as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _after_values(lines: Sequence[str]) -> Sequence[str]:
    """Return the blank lines and comments at the end of a table: they belong to the next one."""
    count = len(lines)
    while count and (not lines[count - 1].strip() or lines[count - 1].lstrip().startswith("#")):
        count -= 1
    return lines[count:]


def _document(path: Path, text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {one_line(error)}; repair it, nothing was changed") from None
    for name, groups in _table(path, _table(path, document).get("hooks", {})).items():
        if not isinstance(groups, list):
            raise InputError(f"{path}: hooks of {name!r} are no list; repair it, nothing was changed")
    return document


def _configuration(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {one_line(error)}; repair it, nothing was changed") from None


def _table(path: Path, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path} has another form than expected; repair it, nothing was changed")
    return value


def _remove(path: Path, document: dict[str, Any]) -> bool:
    """Remove the plugin's hooks from a file of hooks; return whether there were any."""
    hooks, has_changed = document.get("hooks", {}), False
    for name, groups in list(hooks.items()):
        kept = []
        for group in groups:
            entries = _table(path, group).get("hooks", [])
            others = [one for one in entries if HOOK_MODULE not in str(_table(path, one).get("command"))]
            has_changed = has_changed or len(others) < len(entries)
            if others or not entries:
                kept.append({**group, "hooks": others} if len(others) < len(entries) else group)
        if kept or not groups:
            hooks[name] = kept
        else:
            del hooks[name]
    return has_changed
