"""What is wrong with a configuration, all of it, in words: where, what stands there, and what is accepted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from memory_pipeline.configuration.checks import described, hidden
from memory_pipeline.configuration.endpoints import Record
from memory_pipeline.errors import ConfigurationError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError

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
class Fault:
    """One thing that is wrong, at the place that `path` leads to; no path for the file itself."""

    path: Path
    text: str
    line: int | None = None
    column: int | None = None


def refusal(source: str, faults: Iterable[Fault]) -> ConfigurationError:
    """Return the error that lists `faults`, one a line, in the order of the file."""
    ordered = sorted(faults, key=lambda fault: (fault.line or 0, fault.path))
    lines = [_line(source, fault) for fault in ordered[:_MOST]]
    if len(ordered) > _MOST:
        lines.append(f"{source}: and {len(ordered) - _MOST:,} more")
    return ConfigurationError("\n".join(lines))


def faults_of(error: ValidationError, root: type[Record], lines: Mapping[Path, int]) -> list[Fault]:
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
        faults.append(Fault(place, _text(root, path, found), line_of(path, lines)))
    return faults


def line_of(path: Path, lines: Mapping[Path, int]) -> int | None:
    """Return the line of a path, or of the nearest section around it that the file has."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return None


def _line(source: str, fault: Fault) -> str:
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
