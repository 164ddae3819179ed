"""The parameters of a verb, read from the signature and the docstring of the function that declares it.

Options of the command line, schemas of tools and, of both, the help are made of them, so that each is written once.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum, EnumType
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from memory_pipeline.domain.fields import RECORDS
from memory_pipeline.domain.json_text import read_json
from memory_pipeline.errors import InputError, shown

Kind = Literal["string", "integer", "number", "boolean", "time", "file", "json"]

_KINDS: Final[tuple[tuple[type, Kind], ...]] = (
    (date, "time"), (bool, "boolean"), (int, "integer"), (float, "number"), (Path, "file"), (str, "string"),
    (object, "json"),
)  # fmt: skip
#: Longest arguments of one call, in characters.
MAX_ARGUMENTS: Final = 200_000
_TRUTH: Final = {"true": True, "false": False}
_SECTION = re.compile(r"^(?:Args|Attributes|Raises|Returns):\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\S[^:]*): (.*(?:\n {8}.*)*)", re.MULTILINE)
_REFERENCE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`|``(.+?)``", re.DOTALL)


class Within(NamedTuple):
    """The bounds of a number, or of the length of a text in characters, as the annotation of a parameter."""

    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a verb.

    Attributes:
        description: from the docstring; empty if it has none.
        default: value if it is missing.
        least, most: bounds of a number, or of a text's length in characters.
        choices: accepted texts; empty if all are accepted.
        is_list: whether it takes several values.
    """

    name: str
    kind: Kind
    description: str
    default: object = None
    is_required: bool = False
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    is_list: bool = False

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        """Return the JSON schema. In OpenAI's `strict` mode, optional values may be null and lengths are left out."""
        is_nullable = strict and not self.is_required
        described: dict[str, Any] = {
            "type": [self.kind, "null"] if is_nullable else self.kind,
            "description": self.description,
        }
        if self.choices:
            described["enum"] = [*self.choices, *([None] if is_nullable else [])]
        elif self.kind in {"integer", "number"}:
            described |= {"minimum": self.least, "maximum": self.most}
        elif self.kind == "string" and not strict:
            described |= {"minLength": self.least} if self.least else {}
            described["maxLength"] = self.most
        if not strict and not self.is_required and self.default is not None:
            described["default"] = self.default
        return described

    def read(self, value: object) -> Any:
        """Validate and convert a value. Raise InputError if it is invalid.

        Models write arguments loosely: numbers in quotes, names in capitals. What is unambiguous is accepted.
        """
        if self.kind == "string":
            return self._text(value)
        if self.kind == "boolean":
            truth = _TRUTH.get(value.strip().casefold()) if isinstance(value, str) else value
            if not isinstance(truth, bool):
                raise InputError(f"{self.name} {shown(value)} is not accepted; expected true or false")
            return truth
        number = _number(value)
        if number is None or not self.least <= number <= self.most or (self.kind == "integer" and number % 1):
            expected = "a whole number" if self.kind == "integer" else "a number"
            raise InputError(f"{self.name} {shown(value)} is not accepted; expected {expected} {self._range}")
        return int(number) if self.kind == "integer" else number

    def _text(self, value: object) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
            value = str(value)
        if not isinstance(value, str):
            raise InputError(f"{self.name} {shown(value)} is not a text")
        if self.choices:
            word = value.strip().casefold()
            if word not in self.choices:
                raise InputError(f"{self.name} {shown(value)} is unknown; accepted: {', '.join(self.choices)}")
            return word
        if len(value) > self.most:
            raise InputError(f"{self.name} has {len(value):,} characters; at most {self.most:,} are accepted")
        if self.least and not value.strip():
            raise InputError(f"{self.name} is blank; expected a text of at most {self.most:,} characters")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{self.name} {shown(value)} is not valid Unicode text") from None
        return value

    @property
    def _range(self) -> str:
        return f"from {self.least:,} to {self.most:,}"


def parameters_of(function: Callable[..., object], *, only_described: bool = False) -> Iterator[Parameter]:
    """Yield the parameters of a function but ``self`` or ``access``, the object that it belongs to.

    If `only_described`, those that the docstring does not describe are left out.

    Raises:
        NameError: the type of a parameter has a name that is only known to the type checker.
    """
    function = inspect.unwrap(function)
    described = described_in(function)
    parameters = inspect.signature(function).parameters.values()
    given = [
        one for one in parameters if one.name in described or not (only_described or one.name in {"self", "access"})
    ]
    hints = hints_of({one.name: one.annotation for one in given}, function.__module__)
    for one in given:
        if one.kind is not one.VAR_KEYWORD:
            yield _parameter(one.name, hints[one.name], one.default, described.get(one.name, ""))
            continue
        [record] = get_args(hints[one.name])
        inherited = [
            described_in(base) for base in RECORDS if base.__annotations__.keys() <= record.__annotations__.keys()
        ]
        fields = {name: text for entries in (*inherited, described_in(record)) for name, text in entries.items()}
        for name, hint in record_hints(record).items():
            yield _parameter(name, hint, None, fields.get(name, ""))


def record_hints(record: type) -> dict[str, Any]:
    """Return the types of the fields of a record of this package, with those that it inherits."""
    hints: dict[str, Any] = {}
    for base in reversed(record.__mro__):
        if base.__module__.startswith(f"{__package__}."):
            hints |= hints_of(vars(base).get("__annotations__", {}), base.__module__)
    return hints


def hints_of(annotations: Mapping[str, object], module: str) -> dict[str, Any]:
    """Return the types that annotations of a module mean, also those that it imports for the type checker alone."""
    holder = SimpleNamespace(__annotations__=dict(annotations))
    return get_type_hints(holder, vars(sys.modules[module]), _Imports(module), include_extras=True)


class _Imports(dict[str, Any]):
    """Finds what a module imports for the type checker alone."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._imports = _imports_of(module)

    def __missing__(self, name: str) -> Any:
        module, original = self._imports[name]
        return getattr(import_module(module), original)


@cache
def _imports_of(module: str) -> Mapping[str, tuple[str, str]]:
    """Return the module and the name there of each name that a module imports."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and one.module]
    return {name.asname or name.name: (str(one.module), name.name) for one in found for name in one.names}


def prose_of(function: object) -> str:
    """Return what the docstring of a function says before its sections, as plain text."""
    return plain_text(_SECTION.split(inspect.getdoc(function) or "")[0])


def plain_text(text: str) -> str:
    """Return the text of a docstring without its marks."""
    return _REFERENCE.sub(lambda found: found[1] or found[2], text).replace("`", "").strip()


def _parameter(name: str, hint: Any, default: object, description: str) -> Parameter:
    alternatives, bounds = _alternatives(hint)
    lists = [one for one in alternatives if get_origin(one) in {Collection, Sequence}]
    types = [*(one for one in alternatives if one not in lists), *(get_args(one)[0] for one in lists)]
    choices = (
        each
        for one in types
        for each in (one if isinstance(one, EnumType) else get_args(one) if get_origin(one) is Literal else ())
    )
    kind = next(kind for known, kind in _KINDS if any(issubclass(_class_of(one), known) for one in types))
    is_required = default is inspect.Parameter.empty
    default = default.value if isinstance(default, Enum) else default
    return Parameter(
        name, kind, description, None if is_required else default, is_required, *bounds,
        choices=tuple(str(one) for one in choices), is_list=bool(lists),
    )  # fmt: skip


def _class_of(hint: Any) -> type:
    return str if get_origin(hint) is Literal else hint if isinstance(hint, type) else object


def _alternatives(hint: Any) -> tuple[list[Any], Within]:
    """Return the types that a hint allows besides None, and its bounds."""
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return _alternatives(inner)[0], next((one for one in notes if isinstance(one, Within)), Within())
    if get_origin(hint) not in {Union, UnionType}:
        return [] if hint is NoneType else [hint], Within()
    found = [_alternatives(one) for one in get_args(hint)]
    return [one for types, _ in found for one in types], max(bounds for _, bounds in found)


def described_in(of: object) -> dict[str, str]:
    """Return the description of each name in the sections of a docstring, such as ``Args`` and ``Attributes``."""
    sections = _SECTION.findall(inspect.getdoc(of) or "")
    found = {names: " ".join(text.split()) for one in sections for names, text in _ENTRY.findall(f"{one}\n")}
    return {name: plain_text(text) for names, text in found.items() for name in names.split(", ")}


def schema_of(parameters: Sequence[Parameter], *, strict: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, an object. In `strict` mode all arguments are required."""
    return {
        "type": "object",
        "properties": {parameter.name: parameter.schema(strict=strict) for parameter in parameters},
        "required": [parameter.name for parameter in parameters if strict or parameter.is_required],
        "additionalProperties": False,
    }


def arguments_of(parameters: Sequence[Parameter], given: object) -> dict[str, Any]:
    """Return all arguments of a call, validated, with defaults. `given` is a mapping, or JSON of one.

    Null counts as missing. Raise InputError if an argument is unknown, missing or invalid.
    """
    accepted = ", ".join(parameter.name for parameter in parameters)
    arguments = {name: value for name, value in _object(given).items() if value is not None}
    known = {parameter.name: parameter for parameter in parameters}
    for name in arguments:
        if name not in known:
            raise InputError(f"argument {shown(name)} is unknown; accepted: {accepted}")
    for parameter in parameters:
        if parameter.is_required and parameter.name not in arguments:
            raise InputError(f"argument {parameter.name} is missing; accepted: {accepted}")
    return {
        parameter.name: parameter.read(arguments[parameter.name]) if parameter.name in arguments else parameter.default
        for parameter in parameters
    }


def _object(given: object) -> Mapping[object, object]:
    if isinstance(given, str | bytes):
        if len(given) > MAX_ARGUMENTS:
            raise InputError(f"the arguments have {len(given):,} characters; at most {MAX_ARGUMENTS:,} are accepted")
        try:
            given = read_json(given) if given.strip() else {}
        except (ValueError, RecursionError) as error:
            why = "they are nested too deeply" if isinstance(error, RecursionError) else str(error)[:100]
            raise InputError(f"the arguments are not valid JSON: {why}; expected an object") from None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"the arguments must be an object, not {shown(given)}")
    return given


def _number(value: object) -> float | None:
    if isinstance(value, str) and len(value) <= 30:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # An int may be too large for a float.
    return value if isinstance(value, int) or math.isfinite(value) else None
