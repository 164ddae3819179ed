"""Write ``docs/api.md`` from the code: the signatures and docstrings of the classes that programs use.

``make docs`` runs it. A test fails when the page is out of date.
"""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from generate_reference import escaped

from memory_pipeline import AsyncMemory, ContextWindow, Memory, errors
from memory_pipeline.client.conversations import Conversation, Conversations
from memory_pipeline.client.facts import FactStore
from memory_pipeline.client.history import AddedReceipt
from memory_pipeline.client.listing import Page
from memory_pipeline.client.sharing import AgentAccess, AgentPool
from memory_pipeline.client.tiers import TierStatistics, TierValue
from memory_pipeline.domain.access import AccessEvent
from memory_pipeline.domain.fields import RECORDS
from memory_pipeline.domain.memories.record import DurableMemory
from memory_pipeline.erasure import ErasureReport
from memory_pipeline.memories.contexts import Context, Contexts
from memory_pipeline.reader import Hit, Hits, MemoryReader
from memory_pipeline.reader.packing.items import InjectedContext, Recalled
from memory_pipeline.sessions.transcript import Transcript
from memory_pipeline.sessions.views import (
    PoolStatistics,
    ScratchPad,
    SessionMemory,
    ShortTermEntry,
    ShortTermMemory,
)
from memory_pipeline.writer import MemoryWriter, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).with_name("api.md")

_HEAD = """\
# API

This page is generated from the code. Run `make docs` to write it again; do not edit it by hand. [Agents](agents.md)
has examples.

"""
#: Each class with the line that imports it, or that tells where its objects come from.
_MAIN = {
    Memory: "from memory_pipeline import Memory",
    AsyncMemory: "from memory_pipeline import AsyncMemory",
    ContextWindow: "from memory_pipeline import ContextWindow",
    Conversations: "memory.conversations",
    FactStore: "memory.facts",
    SessionMemory: 'memory.session("s1")',
    ShortTermMemory: 'memory.session("s1").short_term',
    Transcript: 'memory.transcript("s1")',
    ScratchPad: 'memory.session("s1").scratch_pad',
    AgentPool: 'memory.pool("board")',
    Contexts: "memory.contexts",
    AgentAccess: 'memory.of_agent("planner")',
    MemoryReader: "from memory_pipeline.reader import MemoryReader",
    MemoryWriter: "from memory_pipeline.writer import MemoryWriter",
}
_RESULTS = (
    *(Hit, Hits, Page, Receipt, AddedReceipt, InjectedContext, Recalled, Conversation, DurableMemory, ErasureReport),
    *(TierValue, TierStatistics, ShortTermEntry, PoolStatistics, Context, AccessEvent),
)
_ALIASES = {
    "Entries": "list[DurableMemory]",
    "Found": "list[Conversation]",
    "Listed": "list[Context]",
    "Matches": "list[RecalledMemory]",
    "Messages": "list[Message]",
    "Results": "list[RunResult | ConsolidationReport]",
}
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):\n((?:(?: {4}.*)?\n?)+)", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}(\S[^:]*): (.*(?:\n {8}.*)*)", re.MULTILINE)
_WIDTH = 100


def page() -> str:
    """Return the text of the page."""
    lines: list[str] = []
    for cls, origin in _MAIN.items():
        lines += _class(cls, origin)
    lines += ["## Arguments", "", "Arguments that several methods take, each by its name.", ""]
    for record in RECORDS:
        lines += [f"### {record.__name__}", "", *_described(record)]
    lines += ["## Results", "", "What the methods return.", ""]
    for cls in _RESULTS:
        lines += [f"### {cls.__name__}", "", *_described(cls), *_methods(cls, level=4)]
    lines += ["## Errors", "", "Import them from `memory_pipeline.errors`.", ""]
    tree = (inspect.getdoc(errors) or "").partition("::\n\n")[2].partition("\n\nEvery")[0]
    lines += ["```text", *inspect.cleandoc(tree).splitlines(), "```", ""]
    lines += ["Every message names the argument or setting, the given value and the accepted values.", ""]
    heads = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    contents = [f"- [{head}](#{head.lower()})" for head in heads]
    return _HEAD + "\n".join([*contents, "", *lines])


def _class(cls: type, origin: str) -> Iterator[str]:
    yield from (f"## {cls.__name__}", "", "```py", origin, "```", "", *_described(cls))
    if cls is AsyncMemory:
        names = [f"Memory.{name}" for name in vars(cls) if not name.startswith("_")]
        yield from (f"Methods: {', '.join(map(_linked, names))}.", "")
        return
    if cls in {Memory, ContextWindow}:
        yield from _callable(cls.__name__, cls.__init__)
    yield from _methods(cls, level=3)


def _described(cls: type) -> Iterator[str]:
    """Yield the docstring of a class, with its properties among the attributes."""
    *lines, last = _text(inspect.getdoc(cls) or "")
    yield from lines
    getters = {name: getattr(member, "fget", getattr(member, "func", None)) for name, member in _public(cls)}
    properties = {name: getter for name, getter in getters.items() if getter is not None}
    if properties and "Attributes:" not in lines:
        yield from ("", "Attributes:", "")
    for name, getter in properties.items():
        text = " ".join((inspect.getdoc(getter) or "").split())
        yield f"- `{name}`: {_marked(text[:1].lower() + text[1:])}"
    yield last


def _methods(cls: type, level: int) -> Iterator[str]:
    """Yield the public methods of a class; of a result, no constructors."""
    for name, member in _public(cls):
        function = member.__func__ if isinstance(member, classmethod) else member
        if isinstance(function, FunctionType) and not (isinstance(member, classmethod) and cls in _RESULTS):
            title = f"{cls.__name__}.{name}"
            yield from (f"{'#' * level} {title}", "", *_callable(title, function))


def _public(cls: type) -> list[tuple[str, Any]]:
    """Return the public members of a class and of its bases."""
    found: dict[str, Any] = {}
    for base in filter(_is_ours, cls.__mro__):
        found = {**found, **{name: member for name, member in vars(base).items() if name not in found}}
    # An old name of a method is not listed.
    return [(name, one) for name, one in found.items() if name[0] != "_" and getattr(one, "__name__", name) == name]


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("memory_pipeline.")


def _callable(name: str, function: Any) -> Iterator[str]:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1:]  # without self
    returned = "" if function.__name__ == "__init__" else f" -> {_annotation(signature.return_annotation)}"
    parts: list[str] = []
    for place, parameter in enumerate(parameters):
        is_first_by_name = parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts
        if is_first_by_name and not any(one.kind is one.VAR_POSITIONAL for one in parameters[:place]):
            parts.append("*")
        parts += _named(parameter) if parameter.kind is parameter.VAR_KEYWORD else [_parameter(parameter)]
    line = f"{name}({', '.join(parts)}){returned}"
    if len(line) > _WIDTH:
        line = "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returned}"])
    yield from ("```py", line, "```", "", *_text(inspect.getdoc(function) or ""))


def _named(parameter: inspect.Parameter) -> list[str]:
    """Return the arguments that a record stands for, as ``**filters: Unpack[SearchFilters]``."""
    record = next((one for one in RECORDS if parameter.annotation == f"Unpack[{one.__name__}]"), None)
    if record is None:
        return [_parameter(parameter)]
    return [f"{name}: {hint.__forward_arg__} = None" for name, hint in record.__annotations__.items()]


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {_annotation(parameter.annotation)}"
    default = parameter.default
    if default is parameter.empty:
        return text
    if isinstance(default, Enum):
        default = default.value
    return f"{text} = {default.__name__ if isinstance(default, FunctionType) else repr(default)}"


def _annotation(annotation: str) -> str:
    """Return an annotation, which is a text because the modules postpone it, without names for type checkers alone."""
    return _ALIASES.get(annotation, annotation)


def _text(doc: str) -> Iterator[str]:
    """Yield a docstring as Markdown: paragraphs, examples, and a list for each of its sections."""
    body = _SECTION.sub("", doc).strip()
    for paragraph in re.split(r"\n\n(?! )", body):
        prose, mark, code = paragraph.partition("::\n")
        if text := " ".join(prose.split()):
            yield from (_marked(text), "")
        if mark:
            yield from ("```py", *inspect.cleandoc(code).splitlines(), "```", "")
    for title, content in _SECTION.findall(doc):
        entries = _ENTRY.findall(content)
        if title == "Raises":
            yield from (f"Raises `{name}`: {_marked(' '.join(text.split()))}" + "\n" for name, text in entries)
            continue
        yield from ({"Args": "Arguments:", "Attributes": "Attributes:", "Returns": "Returns:"}[title], "")
        for names, text in entries:
            code = ", ".join(f"`{name}`" for name in names.split(", "))
            yield f"- {code}: {_marked(' '.join(text.split()))}"
        yield ""


def _marked(text: str) -> str:
    """Return prose with links to what this page describes, and other names as code."""
    return re.sub(r":\w+:`~?([\w.]+)`", lambda match: _linked(match[1]), escaped(text.replace("``", "`")))


def _linked(name: str) -> str:
    """Return the name of a class, or of a method as ``Class.method``, with a link if this page describes it."""
    name = re.sub(r"^memory_pipeline\.(\w+\.)*(?=[A-Z])", "", name)
    owner, _, member = name.partition(".")
    found = next((cls for cls in (*_MAIN, *_RESULTS, *RECORDS) if cls.__name__ == owner), None)
    method = getattr(found, member, None) if member else None
    is_described = found is not None and (not member or inspect.isfunction(method) or inspect.ismethod(method))
    return f"[`{name}`](#{name.lower().replace('.', '')})" if is_described else f"`{name}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
