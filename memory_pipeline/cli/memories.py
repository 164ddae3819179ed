"""The commands `memories …`, which read and change an agent's durable memories."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    AgentMemory,
    Json,
    agent_options,
    behalf_option,
    changer_options,
    cli,
    common,
    deleter_options,
    echo,
    now_option,
    reading_behalf_option,
    scope_options,
)
from memory_pipeline.cli.verbs import OWNER, VerbCommand, identified, nothing, verb, written
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories.search import MemorySearch, RecalledMemory

_LIMIT = 50
_UNKNOWN = "this agent has no memory with id {id}; list ids with `memory-pipeline memories list`"


@cli.group()
def memories() -> None:
    """Read or change an agent's durable memories. Kinds are fact, rule, instruction, preference and others.

    Durable memories outlive conversations and never expire. Changed, forgotten and merged versions stay available
    (`history`), with reasons (`explain`). `memory-pipeline consolidate` consolidates them once a day.
    """


def _reader(agent: AgentMemory) -> MemorySearch:
    return agent.reader().memories


def _texts(found: Iterable[DurableMemory]) -> Iterator[str]:
    for memory in found:
        yield from _lines(memory)


def _lines(memory: DurableMemory, more: str = "") -> Iterator[str]:
    yield f"[{memory.updated_at:%Y-%m-%d}] {_one_line(memory.content)}"
    said_by = f"said by {memory.said_by}"
    yield f"    {memory.kind}, {said_by}, version {memory.version}, {_status(memory)}{more}, id {memory.id}"


def _found(found: Iterable[RecalledMemory]) -> Iterator[str]:
    for one in found:
        yield from _lines(one.memory, f", score {one.score:.2f}")
        if one.warning:
            yield f"    warning: {one.warning}"
        yield from (f"    {_one_line(fact.line)}" for fact in one.facts)


def _versions(found: Sequence[DurableMemory]) -> Iterator[str]:
    for memory in found:
        head = f"{memory.version:3}. {memory.updated_at:%Y-%m-%d %H:%M} by {memory.editor}, {memory.kind}"
        yield f"{head}: {_one_line(memory.content)}"
    yield f"     {_status(found[-1])}"


def _fields(memory: DurableMemory) -> Iterator[str]:
    yield memory.content
    yield ""
    for name in memory.__dataclass_fields__:
        value = getattr(memory, name)
        if name == "content" or value is None or value == ():
            continue
        text = value.isoformat() if hasattr(value, "isoformat") else value
        yield f"{name + ':':18}{', '.join(value) if isinstance(value, tuple) else text}"
    yield f"{'said_by:':18}{memory.said_by}"


def _events(found: Iterable[MemoryEvent]) -> Iterator[str]:
    for event in found:
        other = f" {event.other_id}" if event.other_id else ""
        why = f": {_one_line(event.reason)}" if event.reason else ""
        yield f"{event.event_at:%Y-%m-%d %H:%M} {event.verb}{other} by {event.editor}{why}"
        if changes := event.changes.to_record():
            yield "    " + ", ".join(f"{name}={_one_line(str(value))}" for name, value in changes.items())


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _status(memory: DurableMemory) -> str:
    """Return a memory's status, temperature and reason in one line."""
    status = memory.temperature.value if memory.is_active else f"{memory.status}, {memory.temperature}"
    why = f" ({_one_line(memory.status_reason)})" if memory.status_reason else ""
    return f"{status}{why}"


@memories.command("list", cls=VerbCommand, method="memories.queries:DurableMemories.list", defaults={"limit": _LIMIT})
@scope_options
@common
def list_(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Show memories that match all given filters, newest first."""
    lake = agent.lake()
    found = agent.reader(lake).memories.list(user_id=given.pop(OWNER, None), **given)
    echo(found, _texts(found), as_json=as_json, note="" if found else "no memory matches")
    if not found and agent.is_unknown(lake):
        click.echo(f"{agent} has no memory at all: the user is unknown; see `memory-pipeline users`", err=True)


verb(
    memories, "memories.search:MemorySearch.about", _reader, _texts, note=nothing("no memory matches"),
    defaults={"limit": _LIMIT},
)  # fmt: skip
verb(memories, "memories.queries:DurableMemories.get", _reader, _fields, name="show", unknown=_UNKNOWN)
verb(memories, "memories.queries:DurableMemories.history", _reader, _versions, unknown=_UNKNOWN)
verb(memories, "memories.queries:DurableMemories.explain", _reader, _events, unknown=_UNKNOWN)


@memories.command(cls=VerbCommand, method="memories.queries:DurableMemories.links")
@scope_options
@common
def links(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Show the links from and to a memory, strongest first. Those of a merged memory are the survivor's."""
    known = _reader(agent)
    found = known.links(**given)
    if not found and known.get(**given) is None:
        raise InputError(_UNKNOWN.format(id=shown(given["id"])))
    ends = [f"{one.source_id} {one.relation} {one.target_id}" for one in found]
    lines = (
        f"{end}, weight {one.weight:g}, {one.linked_at:%Y-%m-%d} by {one.editor}"
        for end, one in zip(ends, found, strict=True)
    )
    echo(found, lines, as_json=as_json, note="" if found else "it has no links")


@memories.command(
    cls=VerbCommand,
    method="memories.search:MemorySearch.search",
    without={"exclude", "minimum_score", "vector"},
    defaults={"hops": 0},
)
@click.option("--archive", is_flag=True, help="Search stale, archived and superseded memories instead.")
@scope_options
@common
def search(agent: AgentMemory, archive: bool, as_json: bool, **given: Any) -> None:
    """Show the memories most relevant to QUERY. A warning marks one that may be out of date."""
    known = _reader(agent)
    if archive:
        del given["hops"]
    found = known.search_archive(**given) if archive else known.search(**given)
    echo(found, _found(found), as_json=as_json, note="" if found else "no memory matches")


verb(
    memories, "memories.queries:DurableMemories.hot_index", _reader, lambda index: map(str, index), name="hot",
    note=nothing("the hot index is empty; fill it with `memory-pipeline consolidate`"),
)  # fmt: skip

_WRITER = "memories.writer:MemoryEventWriter"
_changer = AgentMemory.granted_writer
for _name in ("remember", "update", "boost", "reduce", "confirm", "link", "unlink"):
    verb(memories, f"{_WRITER}.{_name}", _changer, written, record=identified, options=changer_options)
verb(
    memories, f"{_WRITER}.forget", _changer, lambda count: [f"forgotten: {count:,}"],
    record=lambda count: {"forgotten": count}, options=deleter_options, arguments={"id"}, without={"editor"},
)  # fmt: skip


@memories.command()
@click.argument("user_id", metavar="USER")
@agent_options
@reading_behalf_option
@common
def preferences(agent: AgentMemory, as_json: bool) -> None:
    """Show all preferences of a USER, with their values as JSON."""
    user_id = agent.user_id or ""
    found = _reader(agent).preferences(user_id)
    lines = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in found.items())
    echo(found, lines, as_json=as_json, note="" if found else f"no preferences are set for {user_id}")


@memories.command()
@click.argument("user_id", metavar="USER")
@click.argument("key")
@click.argument("value", type=Json(), required=False)
@click.option("--delete", is_flag=True, help="Delete the preference.")
@now_option
@agent_options
@behalf_option
@common
def prefer(key: str, value: object, agent: AgentMemory, delete: bool, as_json: bool, now: datetime | None) -> None:
    """Set or delete a preference of a USER. VALUE is parsed as JSON, or else taken as text. It never expires.

    \b
    memory-pipeline memories prefer u17 language Portuguese --workspace acme --agent support
    memory-pipeline memories prefer u17 opening '{"from": 9, "days": ["Mon", "Tue"]}' …
    """
    if (value is None) is not delete:
        raise click.UsageError("give either VALUE or --delete")
    writer, user_id = agent.granted_writer(), agent.user_id or ""
    if delete:
        is_gone = writer.delete_preference(user_id, key, now=now)
        echo({"deleted": is_gone}, ["deleted" if is_gone else "no such preference was set"], as_json=as_json)
        return
    memory_id = writer.set_preference(user_id, key, value, now=now)
    echo(identified(memory_id), written(memory_id), as_json=as_json)
