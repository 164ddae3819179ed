"""Entries of the plugin in files that the user has too: Codex's ``hooks.json`` and ``config.toml``."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.coding_agents.plugin import HOOK_MODULE, NAME, SERVER, to_text
from memory_pipeline.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BEGIN: Final = f"# {NAME}: begin"
_END: Final = f"# {NAME}: end"
_BLOCK: Final = re.compile(rf"\n*^{_BEGIN}\n.*?^{_END}$\n?", re.MULTILINE | re.DOTALL)


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
    fields = "\n".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in server.items())
    before = f"{own.rstrip()}\n\n" if own.strip() else ""
    changed = f"{before}{_BEGIN}\n[mcp_servers.{SERVER}]\n{fields}\n{_END}\n"
    found = _configuration(path, changed)
    if found["mcp_servers"][SERVER] != dict(server):
        raise InputError(f"the MCP server cannot be written to {path}")
    return changed


def without_server(path: Path, text: str) -> str:
    """Return the text of Codex's configuration without the MCP server of the plugin.

    Raises:
        InputError: the file is damaged.
    """
    _configuration(path, text)
    found = _BLOCK.sub("\n", text)
    return text if found == text else found.lstrip("\n") if found.strip() else ""


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
