"""A strict YAML parser, and error messages with line numbers.

It rejects YAML's surprises: duplicate keys; keys that YAML reads as numbers, dates or booleans; dates as values;
numbers that are not decimal (``010`` is 8 in YAML, ``1:30`` is 90); anchors, aliases and merge keys, with which a small
text can expand to a huge one; tags; several documents; deep nesting.
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


Path = tuple[str, ...]

_MOST_FAULTS = 20
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
#: Plausible mistyped names. A longer name may be a misplaced API key.
_KEY_NAME = re.compile(r"[A-Za-z0-9_. -]{1,30}")
#: Values under these keys are never shown: they may contain an API key.
_MAY_HOLD_KEYS = frozenset({"api_key", "api_base", "parameters"})
#: Hints for known keys in the wrong section, beside those that :func:`_sections_with` finds.
_BELONGS = {
    "agents": "set agents in a workspace",
    "budget": "set budget in a workspace, or in defaults for all of them",
    "embedding": "set embedding in defaults, and its api_key in a workspace",
    "max_concurrency": "set max_concurrency once for the lake, in defaults",
    "archive": "set archive once for the lake, in defaults",
    "max_tokens": "set max_tokens in injection; the limit of a model's answer is max_output_tokens",
    "receipts": "set receipts in a workspace, or in defaults for all of them",
    "previews": "set previews in a workspace, or in defaults for all of them",
    "retention": "set retention in a workspace, or in defaults for all of them",
    "working": "set the model of working memory in extraction, and its retention in retention",
    "workspaces": "set workspaces at the top level",
}


@dataclass(frozen=True, slots=True)
class ConfigurationFault:
    """One fault at `path`; an empty path means the file itself."""

    path: Path
    text: str
    line: int | None = None
    column: int | None = None


def refusal(source: str, faults: Iterable[ConfigurationFault]) -> ConfigurationError:
    """Return the error that lists `faults`, one per line, in the order of the file."""
    ordered = sorted(faults, key=lambda fault: (fault.line or 0, fault.path))
    lines = [_line(source, fault) for fault in ordered[:_MOST_FAULTS]]
    if len(ordered) > _MOST_FAULTS:
        lines.append(f"{source}: and {len(ordered) - _MOST_FAULTS:,} more")
    return ConfigurationError("\n".join(lines))


def faults_of(error: ValidationError, root: type[Record], lines: Mapping[Path, int]) -> list[ConfigurationFault]:
    """Translate pydantic's errors into faults of the file.

    `root` is the validated model; `lines` has the line of each path.
    """
    faults = []
    for found in error.errors(include_url=False):
        # For a list only the line of its key is known, so a fault in an element is reported for the whole list.
        path = tuple(part for part in found["loc"] if isinstance(part, str))
        is_unknown = found["type"] == "extra_forbidden"
        is_id = path[-1:] == ("[key]",) and not is_unknown
        path = path[:-1] if is_id else path
        # A fault of an id, or of an implausible key, is reported for the section around it.
        is_named_inside = is_id or (is_unknown and not _KEY_NAME.fullmatch(path[-1]))
        place = path[:-1] if is_named_inside else path
        faults.append(ConfigurationFault(place, _text(root, path, found), line_of(path, lines)))
    return faults


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """Return the line of a path, or of the nearest enclosing section in the file."""
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
    """Return one part of a path for a message: a key or an id. Ids with a dot are quoted."""
    name = path[index]
    if path[0] == "workspaces" and index in (1, 3) and _ID.fullmatch(name):
        return shown(name, 100) if "." in name else name
    return name if _KEY_NAME.fullmatch(name) else "…"


def _reason(found: Any) -> str:
    return str(found["ctx"]["error"])


def _text(root: type[Record], path: Path, found: Any) -> str:
    value, kind = found["input"], found["type"]
    if kind == "value_error":
        return _reason(found)
    record = _record(root, path[:-1])
    if kind == "extra_forbidden" and record is not None:
        return _unknown_key(root, record, path[-1])
    if kind == "missing":
        return f"missing; expected {_expected(root, path)}"
    may_hold_key = bool(_MAY_HOLD_KEYS & set(path)) or (kind in ("model_type", "dict_type") and isinstance(value, str))
    seen = hidden(value) if may_hold_key else described(value)
    text = f"{seen} is not accepted; expected {_expected(root, path)}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        text += "; quote it to make it a text"
    return text


def _unknown_key(root: type[Record], record: type[Record], name: str) -> str:
    """Return the message about an unknown key, without its value: it may be an API key under a mistyped name."""
    accepted = f"accepted: {', '.join(record.model_fields)}"
    if not _KEY_NAME.fullmatch(name):
        return f"unknown key of {len(name):,} characters; {accepted}"
    hint = record.elsewhere or _BELONGS.get(name)
    if not hint and (sections := _sections_with(root, name)):
        hint = f"set {name} in {' or '.join(filter(None, [', '.join(sections[:-1]), sections[-1]]))}"
    near = get_close_matches(name, record.model_fields, n=1)
    if not hint and near:
        hint = f"did you mean {near[0]}?"
    return f"unknown key; {accepted}{f'; {hint}' if hint else ''}"


def _sections_with(root: type[Record], name: str) -> list[str]:
    """Return the sections of the defaults that have a key; none if the root is a section."""
    found: list[str] = []
    if "defaults" not in root.model_fields:
        return found
    for section in _record(root, ("defaults",)).model_fields:  # type: ignore[union-attr]  # it is one
        inner = ("daily",) if section == "summaries" else ()
        record = _record(root, ("defaults", section, *inner))
        if record is not None and name in record.model_fields:
            found.append(f"{section}.GRAIN" if inner else section)
    return found


def _record(root: type[Record], path: Path) -> type[Record] | None:
    """Return the model at a path, also that of a list's items; None for a mapping of ids and for a value."""
    annotation = _annotation(root, path)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Record) else None


def _annotation(root: type[Record], path: Path) -> Any:
    current: Any = root
    for name in path:
        if isinstance(current, type) and issubclass(current, Record):
            current = _unwrapped(current.model_fields[name].annotation)
        else:
            current = _unwrapped(get_args(current)[1])
        if get_origin(current) is list:  # paths have no places in lists
            current = _unwrapped(get_args(current)[0])
    return current


def _unwrapped(annotation: Any) -> Any:
    """Return a type without ``Annotated`` and without ``| None``."""
    if get_origin(annotation) is Annotated:
        return _unwrapped(get_args(annotation)[0])
    others = [option for option in get_args(annotation) if option is not type(None)]
    return _unwrapped(others[0]) if type(None) in get_args(annotation) else annotation


def _expected(root: type[Record], path: Path) -> str:
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


MAX_TEXT = 1_000_000
#: Deepest nesting; an agent's parameters are at depth six.
_MAX_DEPTH = 16

#: libyaml's parser is ten times as fast and produces the same events.
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
#: Placeholder for an invalid value, after recording its fault.
_UNUSABLE = object()


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed YAML document.

    `tree` has mappings, lists, strings, numbers, booleans and None; invalid values are left out.
    """

    tree: object
    lines: dict[Path, int]
    faults: list[ConfigurationFault]


def read_document(text: str, source: str) -> YamlDocument:
    """Parse a YAML text; an empty text is None. `source` is the file's address for messages.

    Raises:
        ConfigurationError: the text is not YAML; the message gives line and column.
    """
    if len(text) > MAX_TEXT:
        raise refusal(
            source, [ConfigurationFault((), f"{len(text):,} characters are too many; accepted: up to {MAX_TEXT:,}")]
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
        # The error itself quotes the surrounding text, which may contain an API key.
        problem = re.sub(r"'[^'\s]{4,}'", "…", error.problem or "it cannot be read")
        mark = error.problem_mark or error.context_mark
        fault = ConfigurationFault((), f"not YAML: {problem}")
        raise refusal(source, [replace(fault, line=mark.line + 1, column=mark.column + 1) if mark else fault]) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        raise refusal(
            source, [ConfigurationFault((), "not YAML: it contains characters that cannot be read")]
        ) from None
    return YamlDocument(tree, reading.lines, reading.faults)


@dataclass(slots=True)
class _YamlReader:
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
            raise self._error_at(event, "a second document begins here; expected one document")
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
            raise self._error_at(
                event,
                "anchors (&name) and aliases (*name) are not accepted; repeat the value, or quote a text with & or *",
            )
        if event.tag is not None:
            raise self._error_at(event, "tags (!name) are not accepted; quote a text that begins with !")
        if depth > _MAX_DEPTH:
            raise self._error_at(event, f"the text is nested too deep; accepted: up to {_MAX_DEPTH} levels")

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
                self._add_fault(event, path, f"duplicate key {described(key)}, first in line {lines[key]}")
            lines.setdefault(key, line)
            self.lines.setdefault((*path, key), line)
            mapping.setdefault(key, self._value(events, next(events), (*path, key), depth + 1))
        return {key: value for key, value in mapping.items() if value is not _UNUSABLE}

    def _key(self, events: Iterator[Any], event: Any, path: Path, depth: int) -> str | None:
        if not isinstance(event, yaml.ScalarEvent):
            self._value(events, event, path, depth)
            self._add_fault(event, path, "a mapping or a list is not accepted as a key; expected a name")
            return None
        self._check(event, depth)
        kind = self._kind(event)
        if kind in _KINDS:
            self._add_fault(event, path, f"YAML reads the key {described(event.value)} as {_KINDS[kind]}; quote it")
            return None
        return str(event.value)

    def _scalar(self, event: Any, path: Path) -> object:
        """Return the value of a scalar. Messages do not show it: digits may be an API key."""
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
                self._add_fault(event, path, "the number is too long or not decimal; quote it if it is a text")
            case "timestamp":
                value = _UNUSABLE
                self._add_fault(event, path, "YAML reads the value as a date; quote it to make it a text")
            case _:
                value = text
        return value

    def _kind(self, event: Any) -> str:
        """Return YAML's type of a scalar; quoted scalars are strings."""
        plain, _ = event.implicit
        if not plain:
            return "str"
        tag: str = self.resolver.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
        return tag.removeprefix(_TAG)

    def _add_fault(self, event: Any, path: Path, text: str) -> None:
        self.faults.append(ConfigurationFault(path, text, event.start_mark.line + 1))

    def _error_at(self, event: Any, text: str) -> ConfigurationError:
        mark = event.start_mark
        return refusal(self.source, [ConfigurationFault((), text, mark.line + 1, mark.column + 1)])
