"""Change the embedder in the text of a configuration, and leave all else as its author wrote it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import yaml

from memory_pipeline.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECTION, _KEY = "defaults", "embedding"


def with_embedding(text: str, settings: Mapping[str, Any]) -> str:
    """Return a valid configuration with other settings of the embedder.

    Comments inside the old settings are lost.

    Raises:
        ConfigurationError: the text is of a form that this does not change.
    """
    value = json.dumps(settings, ensure_ascii=False)
    root = yaml.compose(text, yaml.SafeLoader)
    section = _value(root, _SECTION)
    if root is None or not _is_filled(root):
        changed = f"{text.rstrip()}\n{_SECTION}:\n  {_KEY}: {value}\n".lstrip()
    elif section is None:
        changed = _inserted(text, root, f"{_SECTION}: {{{_KEY}: {value}}}")
    elif not _is_filled(section):
        changed = _replaced(text, section, f"{{{_KEY}: {value}}}")
    elif (old := _value(section, _KEY)) is None:
        changed = _inserted(text, section, f"{_KEY}: {value}")
    else:
        changed = _replaced(text, old, value)
    expected = yaml.safe_load(text) or {}
    expected[_SECTION] = {**(expected.get(_SECTION) or {}), _KEY: dict(settings)}
    found: object = None
    with suppress(yaml.YAMLError):
        found = yaml.safe_load(changed)
    if found != expected:
        raise ConfigurationError(
            f"the embedder cannot be set in a file of this form; set {_SECTION}.{_KEY} to {value} with "
            "`memory-pipeline config --put FILE`"
        )
    return changed


def _is_filled(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode) and bool(node.value)


def _value(node: Any, key: str) -> Any:
    """Return the value of a key, or None."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _inserted(text: str, mapping: Any, entry: str) -> str:
    """Return the text with an entry before the others of a mapping."""
    first = mapping.value[0][0].start_mark
    between = ", " if mapping.flow_style else "\n" + " " * first.column
    return text[: first.index] + entry + between + text[first.index :]


def _replaced(text: str, node: Any, value: str) -> str:
    start, end = node.start_mark, _end(node)
    if isinstance(node, yaml.MappingNode) and not node.flow_style:  # it begins on a line of its own
        return text[: start.index].rstrip() + f" {value}" + text[end:]
    return text[: start.index] + (" " if start.index == end else "") + value + text[end:]


def _end(node: Any) -> int:
    """Return where a value ends: a block ends with its last value, and not where the next key begins."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)
