"""YAML, read strictly: what people would not expect is an error, and no text can make much of little.

Against plain YAML, refused are: a key that is given twice; keys that YAML takes for numbers, dates or truth values;
dates as values; numbers that are not decimal (``010`` is 8 in YAML, ``1:30`` is 90); anchors, aliases, merge keys and
tags; several documents; deep nesting.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import yaml
from yaml.constructor import SafeConstructor
from yaml.reader import Reader
from yaml.resolver import Resolver

from memory_pipeline.configuration.model_settings import Record
from memory_pipeline.configuration.validators import described, hidden
from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pydantic import ValidationError


# What is wrong with a configuration, all of it, in words: where, what stands there, and what is accepted.


Path = tuple[str, ...]

#: Most faults of one message.
_MOST = 20
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
#: Names of keys that a person mistyped; what is longer may be a key of a model in the wrong place.
_KEY_NAME = re.compile(r"[A-Za-z0-9_. -]{1,30}")
#: Under these a key may have been written out, so no value of theirs is shown.
_MAY_HOLD_KEYS = frozenset({"api_key", "api_base", "parameters"})
#: Where a key belongs that is written in another place than its own.
_BELONGS = {
    "agents": "agents stand under a workspace",
    "api_key": "an api_key is set in completion, extraction, summaries.GRAIN, injection or embedding",
    "budget": "a budget is set for a workspace, or in defaults for each",
    "embedding": "the embedder is set in defaults, and its api_key for a workspace",
    "entities": "entities is set in injection",
    "hot_entries": "hot_entries is set in memories",
    "hot_tokens": "hot_tokens is set in memories",
    "imagining": "imagining is set in memories",
    "kinds": "kinds are listed in memories",
    "length": "a length is set in summaries.GRAIN",
    "max_concurrency": "it is set once for the lake, in defaults",
    "max_results": "max_results is set in injection",
    "max_tokens": "max_tokens is set in injection; the length of a model's answer is max_output_tokens",
    "model": "a model is set in completion, extraction, summaries.GRAIN, injection or embedding",
    "multi_valued": "predicates are declared in graph",
    "plan": "a plan is set in retention",
    "point_in_time": "point_in_time is set in memories",
    "previews": "previews are switched for a workspace, or in defaults for each",
    "prompt": "a prompt is set in extraction or summaries.GRAIN",
    "rerank": "rerank is set in injection",
    "retention": "retention is set for a workspace, or in defaults for each",
    "selection": "selection is set in memories",
    "single_valued": "predicates are declared in graph",
    "temperature": "a temperature is set in completion, extraction, summaries.GRAIN or injection",
    "upkeep": "upkeep is set in memories",
    "working": "working memory is made by extraction",
    "workspaces": "workspaces stand beside defaults",
}


@dataclass(frozen=True, slots=True)
class ConfigurationFault:
    """One thing that is wrong, at the place that `path` leads to; no path for the file itself."""

    path: Path
    text: str
    line: int | None = None
    column: int | None = None


def refusal(source: str, faults: Iterable[ConfigurationFault]) -> ConfigurationError:
    """Return the error that lists `faults`, one a line, in the order of the file."""
    ordered = sorted(faults, key=lambda fault: (fault.line or 0, fault.path))
    lines = [_line(source, fault) for fault in ordered[:_MOST]]
    if len(ordered) > _MOST:
        lines.append(f"{source}: and {len(ordered) - _MOST:,} more")
    return ConfigurationError("\n".join(lines))


def faults_of(error: ValidationError, root: type[Record], lines: Mapping[Path, int]) -> list[ConfigurationFault]:
    """Say what pydantic found in terms of the file.

    Args:
        error: of checking the file's tree.
        root: the record that was checked.
        lines: the line of each path.
    """
    faults = []
    for found in error.errors(include_url=False):
        # Of a list only the line of its key is known; what is wrong in it is said of the whole.
        path = tuple(part for part in found["loc"] if isinstance(part, str))
        is_unknown = found["type"] == "extra_forbidden"
        is_id = path[-1:] == ("[key]",) and not is_unknown
        path = path[:-1] if is_id else path
        # What is wrong with an id, or with a key that may be anything, is said of the section that it stands in.
        is_named_inside = is_id or (is_unknown and not _KEY_NAME.fullmatch(path[-1]))
        place = path[:-1] if is_named_inside else path
        faults.append(ConfigurationFault(place, _text(root, path, found), line_of(path, lines)))
    return faults


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """Return the line of a path, or of the nearest section around it that the file has."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def _line(source: str, fault: ConfigurationFault) -> str:
    where = source
    if fault.line is not None:
        where += f", line {fault.line}"
    if fault.column is not None:
        where += f", column {fault.column}"
    path = ".".join(_part(fault.path, index) for index in range(len(fault.path)))
    return f"{where}: {path}: {fault.text}" if path else f"{where}: {fault.text}"


def _part(path: Path, index: int) -> str:
    """Return one part of a path: an id, in quotes if it has a dot, or the name of a key."""
    name = path[index]
    if path[0] == "workspaces" and index in (1, 3) and _ID.fullmatch(name):
        return shown(name, 100) if "." in name else name
    return name if _KEY_NAME.fullmatch(name) else "…"


def _said(found: Any) -> str:
    return str(found["ctx"]["error"])


def _text(root: type[Record], path: Path, found: Any) -> str:
    value, kind = found["input"], found["type"]
    if kind == "value_error":
        return _said(found)
    record = _record(root, path[:-1])
    if kind == "extra_forbidden" and record is not None:
        return _no_such_key(record, path[-1])
    if kind == "missing":
        return f"it is missing; expected {_expected(root, path)}"
    may_hold_key = bool(_MAY_HOLD_KEYS & set(path)) or (kind in ("model_type", "dict_type") and isinstance(value, str))
    seen = hidden(value) if may_hold_key else described(value)
    text = f"{seen} is not accepted; expected {_expected(root, path)}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        text += "; in quotes it is a text"
    return text


def _no_such_key(record: type[Record], name: str) -> str:
    """Say that a key is unknown. Its value is not shown: it may be a key of a model under a mistyped name."""
    accepted = f"accepted: {', '.join(record.model_fields)}"
    if not _KEY_NAME.fullmatch(name):
        return f"there is no such key as one of {len(name):,} characters here; {accepted}"
    hint = record.elsewhere or _BELONGS.get(name)
    near = get_close_matches(name, record.model_fields, n=1)
    if not hint and near:
        hint = f"is {near[0]} meant?"
    return f"there is no such key; {accepted}{f'; {hint}' if hint else ''}"


def _record(root: type[Record], path: Path) -> type[Record] | None:
    """Return the record at a path; None where there is a mapping of ids, or a value."""
    annotation = _annotation(root, path)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Record) else None


def _annotation(root: type[Record], path: Path) -> Any:
    current: Any = root
    for name in path:
        if isinstance(current, type) and issubclass(current, Record):
            current = _bare(current.model_fields[name].annotation)
        else:
            current = _bare(get_args(current)[1])
    return current


def _bare(annotation: Any) -> Any:
    """Return what is annotated, and of an optional type the type."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    others = [option for option in get_args(annotation) if option is not type(None)]
    return _bare(others[0]) if type(None) in get_args(annotation) else annotation


def _expected(root: type[Record], path: Path) -> str:
    """Say what is accepted at a path."""
    if not path:
        return f"a mapping of {', '.join(root.model_fields)}"
    record = _record(root, path[:-1])
    schema = _schema(record)["properties"].get(path[-1], {}) if record else {}
    if "description" in schema and "$ref" not in schema:
        return str(schema["description"])
    section = _record(root, path)
    if section is not None:
        return f"a mapping with keys of {', '.join(section.model_fields)}"
    if schema.get("type") == "object":
        return "a mapping of ids to sections"
    return " or ".join(_words(option) for option in schema.get("anyOf", [schema]))


@cache
def _schema(record: type[Record]) -> dict[str, Any]:
    return record.model_json_schema()


def _words(schema: dict[str, Any]) -> str:
    """Say in words what a JSON schema of a single value says."""
    if "enum" in schema:
        return " or ".join(schema["enum"])
    nouns = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null"}
    noun = nouns.get(schema.get("type", ""), "a text")
    if "exclusiveMinimum" in schema:
        noun += f" greater than {schema['exclusiveMinimum']:,.12g}"
    if "minimum" in schema and "maximum" in schema:
        return f"{noun} from {schema['minimum']:,.12g} to {schema['maximum']:,.12g}"
    if "minimum" in schema:
        return f"{noun} of at least {schema['minimum']:,.12g}"
    return f"{noun}, at most {schema['maximum']:,.12g}" if "maximum" in schema else noun


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
class YamlDocument:
    """What a text holds.

    Attributes:
        tree: mappings, lists, texts, numbers, truth values and None.
        lines: the line of each key, by the keys that lead to it.
        faults: what was wrong, and left out of the tree.
    """

    tree: object
    lines: dict[Path, int]
    faults: list[ConfigurationFault]


def read_document(text: str, source: str) -> YamlDocument:
    """Read a YAML text.

    Args:
        text: the text; an empty one holds None.
        source: the file's address, for messages.

    Raises:
        ConfigurationError: it cannot be read at all; the message says where.
    """
    if len(text) > MAX_TEXT:
        raise refusal(
            source, [ConfigurationFault((), f"{len(text):,} characters are too many; accepted are {MAX_TEXT:,}")]
        )
    unprintable = Reader.NON_PRINTABLE.search(text)
    if unprintable:
        before = text[: unprintable.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = f"not YAML: character U+{ord(unprintable[0]):04X} is not accepted"
        raise refusal(source, [ConfigurationFault((), problem, line, column)])
    reading = _YamlReader(source)
    try:
        tree = reading.document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        # The error itself quotes the text around the place, in which a key may stand.
        problem = re.sub(r"'[^'\s]{4,}'", "…", error.problem or "it cannot be read")
        mark = error.problem_mark or error.context_mark
        fault = ConfigurationFault((), f"not YAML: {problem}")
        raise refusal(source, [replace(fault, line=mark.line + 1, column=mark.column + 1) if mark else fault]) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise refusal(source, [ConfigurationFault((), "not YAML: it holds characters that cannot be read")]) from None
    return YamlDocument(tree, reading.lines, reading.faults)


@dataclass(slots=True)
class _YamlReader:
    """The state of reading one document."""

    source: str
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[ConfigurationFault] = field(default_factory=list)
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
        self.faults.append(ConfigurationFault(path, text, event.start_mark.line + 1))

    def _refused(self, event: Any, text: str) -> ConfigurationError:
        mark = event.start_mark
        return refusal(self.source, [ConfigurationFault((), text, mark.line + 1, mark.column + 1)])
