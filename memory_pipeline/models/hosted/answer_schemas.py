"""JSON schemas of models' answers, and the parsers that check them.

An answer without the expected structure is invalid and gets one correction. In a valid answer, bad items are rejected
one by one. Field descriptions and the messages of InvalidAnswerError go to the model.

Every ``read_`` function raises InvalidAnswerError if the answer has no such object, or if more of its items are invalid
than valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.domain.memories.record import MAX_CONTENT, MemoryKind
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.models.hosted.prompts import object_in
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_Item = TypeVar("_Item", bound=BaseModel)
_Value = TypeVar("_Value")
MOST_NAMES = 20
_Number = Annotated[int, Field(ge=1)]


def _one_line(text: str) -> str:
    """Return a text on one line; reject one without visible characters."""
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise ValueError("it is blank")
    return " ".join(text.split())


_Text = Annotated[str, AfterValidator(_one_line), Field(min_length=1)]


class _Model(BaseModel):
    # Numbers become strings where a text is expected: the object of an operation may be an age.
    model_config = ConfigDict(coerce_numbers_to_str=True, str_strip_whitespace=True, allow_inf_nan=False)


#: A number of this size or larger is not a term.
_LARGEST = 1e18
#: Kinds of durable memory that a model may assign; only agents use the others.
_DURABLE = ("fact", "rule", "instruction", "preference", "decision", "procedure", "observation")


def _durable(value: object) -> str | None:
    """Return the kind, or None if it is unknown, so that the fact is not lost."""
    kind = value.strip().lower() if isinstance(value, str) else None
    return kind if kind in _DURABLE else None


def _term(value: object) -> str | None:
    """Return a text or number as a term, or None if it is neither, so that the fact is not lost."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return str(value)
    if not isinstance(value, str) or not is_unicode(value):
        return None
    text = " ".join(value.split())
    return text if any(char.isprintable() and not char.isspace() for char in text) else None


_Term = Annotated[str | None, BeforeValidator(_term)]


def _all_required(schema: dict[str, Any]) -> None:
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        field.pop("default", None)


class FoundFact(_Model):
    """A fact in a model's answer."""

    model_config = ConfigDict(json_schema_extra=_all_required)

    content: _Text = Field(max_length=2_000, description="One sentence that can be understood alone.")
    kind: Literal["statement", "event", "plan", "preference", "instruction"]
    importance: float = Field(ge=0, le=1)
    confidence: float = Field(ge=0, le=1)
    entities: list[str] = Field(description="Names of people, places and things in it.")
    date: str | None = Field(description="The day it speaks of, as 2024-01-14, if it names one.")
    messages: list[_Number] = Field(min_length=1, description="Numbers of the messages that it rests on.")
    # Added later: stored answers to older prompts have no such fields.
    durable: Annotated[
        Literal["fact", "rule", "instruction", "preference", "decision", "procedure", "observation"] | None,
        BeforeValidator(_durable),
    ] = Field(default=None, description="As what it is kept for good, or null.")
    point_in_time: Annotated[bool, BeforeValidator(lambda value: value is True)] = Field(
        default=False, description="Whether it says how things stand at one moment."
    )
    subject: _Term = Field(default=None, description="Of a durable fact, if three terms say it.")
    predicate: _Term = None
    object: _Term = None

    @property
    def durable_kind(self) -> MemoryKind | None:
        """Kind of the durable memory; None if the fact is not durable."""
        return None if self.durable is None else MemoryKind(self.durable)


class FoundOperation(_Model):
    """A graph operation in a model's answer."""

    operation: Literal["INSERT", "ADD", "UPDATE", "DELETE"]
    subject: _Text
    predicate: _Text
    object: str
    confidence: float = Field(ge=0, le=1)
    messages: list[_Number] = Field(min_length=1, description="Numbers of the messages that it rests on.")


class ExtractionAnswer(_Model):
    """The answer to an extraction."""

    summary: str = Field(min_length=1, max_length=2_000)
    facts: list[FoundFact]
    operations: list[FoundOperation]


class FoundPoint(_Model):
    """A point of a summary in a model's answer."""

    sentence: _Text
    sources: list[_Number] = Field(min_length=1, description="Numbers of the lines that it rests on.")
    importance: float = Field(ge=0, le=1)


class SummaryAnswer(_Model):
    """The answer to a summary."""

    points: list[FoundPoint] = Field(min_length=1)


_Name = Annotated[_Text, Field(max_length=MAX_TERM)]


class NamesAnswer(_Model):
    """The names in a prompt."""

    names: list[_Name] = Field(max_length=MOST_NAMES, description="Names of people, places and things.")


class OrderAnswer(_Model):
    """The order of search results."""

    order: list[_Number] = Field(description="Numbers of the lines, most useful first.")


class ChosenAnswer(_Model):
    """The headers of the memories to read."""

    chosen: list[_Number] = Field(description="Numbers of the lines, most useful first; perhaps none.")


_Query = Annotated[_Text, Field(max_length=500)]


class QueriesAnswer(_Model):
    """The queries that a conversation calls for."""

    queries: list[_Query] = Field(description="Short searches, most useful first; perhaps none.")


class MergeAnswer(_Model):
    """The merged content of two memories."""

    content: str = Field(min_length=1, max_length=MAX_CONTENT, description="All that the two say, in one text.")


class FoundStale(_Model):
    """A stale memory in a model's answer."""

    number: _Number = Field(description="Number of the line.")
    reason: _Text = Field(max_length=300, description="Why, in a few words.")


class StaleAnswer(_Model):
    """The stale ones among old memories."""

    stale: list[FoundStale] = Field(description="Those that are stale; perhaps none.")


_QUERY: TypeAdapter[str] = TypeAdapter(_Query, config=ConfigDict(coerce_numbers_to_str=True))
_NAME: TypeAdapter[str] = TypeAdapter(_Name, config=ConfigDict(coerce_numbers_to_str=True))
_ANY_NUMBER: TypeAdapter[int] = TypeAdapter(int)


def schema_of(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer for the prompt, without pydantic's titles and docstrings."""
    schema = answer.model_json_schema()
    _strip(schema)
    return schema


def read_extraction(text: str) -> tuple[str, list[FoundFact], list[FoundOperation], int]:
    """Return the summary, facts and operations of an answer, and the number of rejected items."""
    answer = object_in(text, "facts")
    summary, listed = answer.get("summary", ""), answer.get("facts")
    operations = answer.get("operations", [])
    if not isinstance(listed, list) or not isinstance(operations, list) or not isinstance(summary, str):
        raise InvalidAnswerError('it must have "summary" (a text), "facts" (a list) and "operations" (a list)')
    facts, problems = _items(FoundFact, listed)
    changes, more = _items(FoundOperation, [_in_upper_case(item) for item in operations])
    _check([*facts, *changes], problems + more)
    # Pydantic does not check the summary. Lone surrogates cannot be stored.
    summary = summary.encode("utf-8", "replace").decode()
    return " ".join(summary.split())[:2_000], facts, changes, len(problems) + len(more)


def read_points(text: str) -> tuple[list[FoundPoint], int]:
    """Return the points of an answer, at least one, and the number of rejected points."""
    listed = object_in(text, "points").get("points")
    if not isinstance(listed, list) or not listed:
        raise InvalidAnswerError('it must have "points": a list of at least one point')
    points, problems = _items(FoundPoint, listed)
    _check(points, problems)
    return points, len(problems)


def read_names(text: str) -> list[str]:
    """Return the distinct names of an answer, ignoring case; at most :data:`MOST_NAMES`."""
    listed = object_in(text, "names").get("names")
    if not isinstance(listed, list):
        raise InvalidAnswerError('it must have "names": a list of texts, which may be empty')
    names: dict[str, str] = {}
    for name in _values(_NAME, listed):
        names.setdefault(name.casefold(), name)
    return list(names.values())[:MOST_NAMES]


def read_order(text: str) -> list[int]:
    """Return the numbers of an answer as given, including duplicates and numbers without a line."""
    return _numbers_of(text, "order", "a list of numbers of lines")


def read_chosen(text: str) -> list[int]:
    """Return the numbers of an answer as given; see :func:`read_order`."""
    return _numbers_of(text, "chosen", "a list of numbers of lines, which may be empty")


def _numbers_of(text: str, name: str, expected: str) -> list[int]:
    listed = object_in(text, name).get(name)
    if not isinstance(listed, list):
        raise InvalidAnswerError(f'it must have "{name}": {expected}')
    return _values(_ANY_NUMBER, listed)


def read_queries(text: str) -> list[str]:
    """Return the distinct queries of an answer, ignoring case."""
    listed = object_in(text, "queries").get("queries")
    if not isinstance(listed, list):
        raise InvalidAnswerError('it must have "queries": a list of texts, which may be empty')
    return list({query.casefold(): query for query in reversed(_values(_QUERY, listed))}.values())[::-1]


def read_merge(text: str) -> str:
    """Return the content of an answer, which must not be blank or too long."""
    try:
        content = MergeAnswer.model_validate(object_in(text, "content")).content
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidAnswerError(f'it must have "content": a text; {problem}') from None
    if not any(char.isprintable() and not char.isspace() for char in content):
        raise InvalidAnswerError('"content" is blank')
    return content.encode("utf-8", "replace").decode()


def read_stale(text: str) -> dict[int, str]:
    """Return the numbers of an answer as given, each with its reason."""
    listed = object_in(text, "stale").get("stale")
    if not isinstance(listed, list):
        raise InvalidAnswerError('it must have "stale": a list of numbers with reasons, which may be empty')
    found, problems = _items(FoundStale, listed)
    _check(found, problems)
    return {each.number: each.reason.encode("utf-8", "replace").decode() for each in found}


def _values(kind: TypeAdapter[_Value], listed: Sequence[object]) -> list[_Value]:
    """Return the valid values of a list; raise if more are invalid."""
    found: list[_Value] = []
    problems: list[str] = []
    for number, value in enumerate(listed):
        try:
            # Pydantic would take true for the number 1.
            found.append(kind.validate_python(None if isinstance(value, bool) else value))
        except ValidationError as error:
            problems.append(f"item {number + 1}: {error.errors(include_url=False, include_input=False)[0]['msg']}")
    _check(found, problems)
    return found


def _items(kind: type[_Item], listed: Sequence[object]) -> tuple[list[_Item], list[str]]:
    found: list[_Item] = []
    problems: list[str] = []
    for number, item in enumerate(listed):
        try:
            found.append(kind.model_validate(item))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            problems.append(f"item {number + 1}{f', {where}' if where else ''}: {first['msg']}")
    return found, problems


def _check(found: Sequence[object], problems: Sequence[str]) -> None:
    if len(problems) > len(found):
        raise InvalidAnswerError("; ".join(problems[:5]))


def _in_upper_case(item: object) -> object:
    verb = item.get("operation") if isinstance(item, dict) else None
    return {**item, "operation": verb.strip().upper()} if isinstance(item, dict) and isinstance(verb, str) else item


def _strip(schema: dict[str, Any]) -> None:
    """Drop titles, and the descriptions that come from docstrings."""
    is_properties = "properties" in schema
    schema.pop("title", None)
    if is_properties:
        schema.pop("description", None)
    for value in schema.values():
        for part in _parts(value):
            _strip(part)


def _parts(value: object) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        nested = [part for part in value.values() if isinstance(part, dict)]
        return nested if nested and len(nested) == len(value) else [value]
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
