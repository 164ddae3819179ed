"""JSON schemas of models' answers, and their validation.

An answer without the expected structure is invalid and gets one correction. In a valid answer, invalid items are
rejected one by one. The schemas and the messages of InvalidAnswerError go to the model; prompts explain the fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memory_pipeline.domain.graph.operations import MAX_TERM
from memory_pipeline.domain.memories.record import MAX_CONTENT, MemoryKind
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.models.hosted.prompts import object_in
from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

_Answer = TypeVar("_Answer", bound=BaseModel)
MOST_NAMES = 20
#: Longest summary of an extraction, in characters.
_LONGEST_SUMMARY = 2_000
#: A number of this size or larger is not a term.
_LARGEST = 1e18
#: Problems that a correction names.
_MOST_PROBLEMS = 5
#: Kinds of durable memory that a model may assign; only agents use the others.
_Durable = Literal["fact", "rule", "instruction", "preference", "decision", "procedure", "observation"]


def _visible(text: str) -> str:
    """Reject a text without visible characters."""
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise ValueError("it is blank")
    return text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(value: object) -> object:
    """Cut a summary that is too long, and replace its lone surrogates, which pydantic rejects."""
    if not isinstance(value, str):
        return value
    return _one_line(value.encode("utf-8", "replace").decode())[:_LONGEST_SUMMARY]


def _no_boolean(value: object) -> object:
    """Reject booleans, which pydantic reads as the numbers 0 and 1."""
    if isinstance(value, bool):
        raise ValueError("it is no number")  # pydantic reports only a ValueError
    return value


def _upper_case(value: object) -> object:
    return value.strip().upper() if isinstance(value, str) else value


def _durable(value: object) -> str | None:
    """Return the kind, or None if it is unknown, so that the fact is not lost."""
    kind = value.strip().lower() if isinstance(value, str) else None
    return kind if kind in get_args(_Durable) else None


def _term(value: object) -> str | None:
    """Return a text or number as a term, or None if it is neither, so that the fact is not lost."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST:
        return str(value)
    if not isinstance(value, str) or not is_unicode(value):
        return None
    text = _one_line(value)
    return text if any(char.isprintable() and not char.isspace() for char in text) else None


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return texts, each once; case does not count. The first one of equal texts is returned."""
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(text.casefold(), text)
    return list(found.values())


_Number = Annotated[int, Field(ge=1), BeforeValidator(_no_boolean)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Text = Annotated[str, AfterValidator(_visible), AfterValidator(_one_line), Field(min_length=1)]
_Term = Annotated[str | None, BeforeValidator(_term)]
_Name = Annotated[_Text, Field(max_length=MAX_TERM)]
_Query = Annotated[_Text, Field(max_length=500)]


def _plain_schema(schema: dict[str, Any]) -> None:
    """Drop titles and docstrings from the schema of a model, and make all of its fields required."""
    schema.pop("title", None)
    schema.pop("description", None)
    schema["required"] = list(schema["properties"])
    for field in schema["properties"].values():
        field.pop("title", None)
        field.pop("default", None)


class _Model(BaseModel):
    model_config = ConfigDict(
        coerce_numbers_to_str=True,  # the object of an operation may be an age
        str_strip_whitespace=True,
        allow_inf_nan=False,
        json_schema_extra=_plain_schema,
    )


class FoundFact(_Model):
    """A fact in a model's answer."""

    content: _Text = Field(max_length=2_000)
    kind: Literal["statement", "event", "plan", "preference", "instruction"]
    importance: _Share
    confidence: _Share
    entities: list[str]
    date: str | None
    messages: list[_Number] = Field(min_length=1)
    # Added later: stored answers to older prompts have no such fields.
    durable: Annotated[_Durable | None, BeforeValidator(_durable)] = Field(default=None)
    point_in_time: Annotated[bool, BeforeValidator(lambda value: value is True)] = Field(default=False)
    subject: _Term = None
    predicate: _Term = None
    object: _Term = None

    @property
    def durable_kind(self) -> MemoryKind | None:
        """Kind of the durable memory; None if the fact is not durable."""
        return None if self.durable is None else MemoryKind(self.durable)

    @property
    def instructs(self) -> bool:
        """Whether it tells an agent what to do."""
        return self.kind == "instruction" or self.durable in ("instruction", "rule", "procedure")


class FoundOperation(_Model):
    """A graph operation in a model's answer."""

    operation: Annotated[Literal["INSERT", "ADD", "UPDATE", "DELETE"], BeforeValidator(_upper_case)]
    subject: _Text
    predicate: _Text
    object: str | None
    confidence: _Share
    messages: list[_Number] = Field(min_length=1)
    known: _Number | None = None


class ExtractionAnswer(_Model):
    """The answer to an extraction."""

    summary: Annotated[str, BeforeValidator(_short)] = Field(
        default="", json_schema_extra={"minLength": 1, "maxLength": _LONGEST_SUMMARY}
    )
    facts: list[FoundFact]
    operations: list[FoundOperation] = []


class FoundPoint(_Model):
    """A point of a summary in a model's answer."""

    sentence: _Text
    sources: list[_Number] = Field(min_length=1)
    importance: _Share


class SummaryAnswer(_Model):
    """The answer to a summary."""

    points: list[FoundPoint] = Field(min_length=1)


class NamesAnswer(_Model):
    """The names in a prompt. Those after the first 20 are left out."""

    names: Annotated[list[_Name], AfterValidator(lambda names: _distinct(names)[:MOST_NAMES])] = Field(
        description="Names of people, places and things.", json_schema_extra={"maxItems": MOST_NAMES}
    )


class OrderAnswer(_Model):
    """The order of search results: numbers of lines, perhaps some twice, and some without a line."""

    order: list[_Number] = Field(description="Numbers of the lines, most useful first.")


class ChosenAnswer(_Model):
    """The headers of the memories to read; see :class:`OrderAnswer`."""

    chosen: list[_Number] = Field(description="Numbers of the lines, most useful first; perhaps none.")


class QueriesAnswer(_Model):
    """The queries that a conversation calls for."""

    queries: Annotated[list[_Query], AfterValidator(_distinct)] = Field(
        description="Short searches, most useful first; perhaps none."
    )


class MergeAnswer(_Model):
    """The merged content of two memories."""

    content: Annotated[str, AfterValidator(_visible)] = Field(
        min_length=1, max_length=MAX_CONTENT, description="All that the two say, in one text."
    )


class NamedLine(_Model):
    """A line that a model names, with its reason."""

    number: _Number = Field(description="Number of the line.")
    reason: _Text = Field(max_length=300, description="Why, in a few words.")


class StaleAnswer(_Model):
    """The stale ones among old memories."""

    stale: list[NamedLine] = Field(description="Those that are stale; perhaps none.")


class ContradictionAnswer(_Model):
    """The pairs of memories of which the later one contradicts the earlier one."""

    pairs: list[NamedLine] = Field(description="Those that contradict each other; perhaps none.")


def schema_of(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer for the prompt."""
    return answer.model_json_schema()


def read_answer(kind: type[_Answer], text: str) -> tuple[_Answer, int]:
    """Return the answer in a text without its invalid items, and the number of these.

    Raises:
        InvalidAnswerError: there is no such object, or more of its items are invalid than valid.
    """
    given = object_in(text, next(name for name, field in kind.model_fields.items() if field.is_required()))
    try:
        return kind.model_validate(given), 0
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)

    problems = {each["loc"][:2]: each for each in reversed(found)}  # the first one of each item
    lists = {
        name: [item for place, item in enumerate(given[name]) if (name, place) not in problems]
        for name in kind.model_fields.keys() & given.keys()
        if isinstance(given[name], list)
    }
    if any(len(place) == 1 for place in problems) or len(problems) > sum(map(len, lists.values())):
        raise InvalidAnswerError("; ".join(map(_described, list(problems.values())[::-1][:_MOST_PROBLEMS])))
    return kind.model_validate({**given, **lists}), len(problems)


def _described(problem: ErrorDetails) -> str:
    name, *item = problem["loc"]
    where = [f'"{name}"', *(f"item {one + 1}" if isinstance(one, int) else one for one in item)]
    return f"{', '.join(where)}: {problem['msg']}"
