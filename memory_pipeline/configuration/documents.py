"""YAML, read strictly: what people would not expect is an error, and no text can make much of little.

Against plain YAML, refused are: a key that is given twice; keys that YAML takes for numbers, dates or truth values;
dates as values; numbers that are not decimal (``010`` is 8 in YAML, ``1:30`` is 90); anchors, aliases, merge keys and
tags; several documents; deep nesting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import Reader
from yaml.resolver import Resolver

from memory_pipeline.configuration.checks import described
from memory_pipeline.configuration.faults import Fault, Path, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.errors import ConfigurationError

#: Longest text, in characters.
MAX_TEXT = 1_000_000
#: Deepest nesting; an agent's parameters lie six deep.
_MAX_DEPTH = 16

#: libyaml's parser is ten times as fast; both give the same events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,17})")
_FLOAT = re.compile(r"[-+]?[0-9_.]{1,30}([eE][-+]?[0-9]{1,4})?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_KINDS = {
    "null": "nothing",
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "timestamp": "a date",
}
#: Stands for a value that a fault was noted for.
_UNUSABLE = object()


@dataclass(frozen=True, slots=True)
class Document:
    """What a text holds.

    Attributes:
        tree: mappings, lists, texts, numbers, truth values and None.
        lines: the line of each key, by the keys that lead to it.
        faults: what was wrong, and left out of the tree.
    """

    tree: object
    lines: dict[Path, int]
    faults: list[Fault]


def read_document(text: str, source: str) -> Document:
    """Read a YAML text.

    Args:
        text: the text; an empty one holds None.
        source: the file's address, for messages.

    Raises:
        ConfigurationError: it cannot be read at all; the message says where.
    """
    if len(text) > MAX_TEXT:
        raise refusal(source, [Fault((), f"{len(text):,} characters are too many; accepted are {MAX_TEXT:,}")])
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable:
        before = text[: unprintable.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"not YAML: character U+{ord(unprintable[0]):04X} is not accepted"
        raise refusal(source, [Fault((), problem, line, column)])
    reading = _Reading(source)
    try:
        tree = reading.document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        # The error itself quotes the text around the place, in which a key may stand.
        problem = re.sub(r"'[^'\s]{4,}'", "…", error.problem or "it cannot be read")
        mark = error.problem_mark or error.context_mark
        fault = Fault((), f"not YAML: {problem}")
        raise refusal(source, [replace(fault, line=mark.line + 1, column=mark.column + 1) if mark else fault]) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise refusal(source, [Fault((), "not YAML: it holds characters that cannot be read")]) from None
    return Document(tree, reading.lines, reading.faults)


@dataclass(slots=True)
class _Reading:
    """The state of reading one document."""

    source: str
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    resolver: Resolver = field(default_factory=Resolver)

    def document(self, events: Iterator[Any]) -> object:
        next(events)
        event = next(events)
        if isinstance(event, yaml.StreamEndEvent):
            return None
        tree = self._value(events, next(events), ())
        next(events)
        event = next(events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._refused(event, "a second document begins here; expected one")
        return None if tree is _UNUSABLE else tree

    def _value(self, events: Iterator[Any], event: Any, path: Path, depth: int = 0) -> object:
        self._check(event, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            entries = []
            while not isinstance(entry := next(events), yaml.SequenceEndEvent):
                entries.append(self._value(events, entry, path, depth + 1))
            return [None if entry is _UNUSABLE else entry for entry in entries]
        return self._scalar(event, path)

    def _check(self, event: Any, depth: int) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._refused(event, "anchors (&name) and aliases (*name) are not accepted; write texts in quotes")
        if event.tag is not None:
            raise self._refused(event, "tags (!name) are not accepted; write texts in quotes")
        if depth > _MAX_DEPTH:
            raise self._refused(event, f"it is nested too deep; accepted are {_MAX_DEPTH} levels")

    def _mapping(self, events: Iterator[Any], path: Path, depth: int) -> dict[str, object]:
        mapping: dict[str, object] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._key(events, event, path, depth + 1)
            if key is None:
                self._value(events, next(events), path, depth + 1)
                continue
            if key in lines:
                self._note(event, path, f"the key {described(key)} is given twice, first in line {lines[key]}")
            lines.setdefault(key, line)
            self.lines.setdefault((*path, key), line)
            mapping.setdefault(key, self._value(events, next(events), (*path, key), depth + 1))
        return {key: value for key, value in mapping.items() if value is not _UNUSABLE}

    def _key(self, events: Iterator[Any], event: Any, path: Path, depth: int) -> str | None:
        """Return a key, or None after noting why it is none."""
        if not isinstance(event, yaml.ScalarEvent):
            self._value(events, event, path, depth)
            self._note(event, path, "a mapping or a list cannot be a key; expected a name")
            return None
        self._check(event, depth)
        kind = self._kind(event)
        if kind in _KINDS:
            self._note(event, path, f"the key {described(event.value)} is {_KINDS[kind]} to YAML; write it in quotes")
            return None
        return str(event.value)

    def _scalar(self, event: Any, path: Path) -> object:
        """Return the value of a scalar. No fault shows it: it may be the digits of a key."""
        text, kind = str(event.value), self._kind(event)
        match kind:
            case "null":
                value: object = None
            case "bool":
                value = SafeConstructor.bool_values[text.lower()]
            case "int" if _INTEGER.fullmatch(text):
                value = int(text)
            case "float" if _FLOAT.fullmatch(text):
                value = float(text.lower().replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
            case "int" | "float":
                value = _UNUSABLE
                self._note(event, path, "it is a number that is too long or not decimal; write a text in quotes")
            case "timestamp":
                value = _UNUSABLE
                self._note(event, path, "it is a date to YAML; write a text in quotes")
            case _:
                value = text
        return value

    def _kind(self, event: Any) -> str:
        """Return what YAML takes a scalar for; whatever is in quotes is a text."""
        plain, _ = event.implicit
        if not plain:
            return "str"
        tag: str = self.resolver.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
        return tag.removeprefix(_TAG)

    def _note(self, event: Any, path: Path, text: str) -> None:
        self.faults.append(Fault(path, text, event.start_mark.line + 1))

    def _refused(self, event: Any, text: str) -> ConfigurationError:
        mark = event.start_mark
        return refusal(self.source, [Fault((), text, mark.line + 1, mark.column + 1)])
