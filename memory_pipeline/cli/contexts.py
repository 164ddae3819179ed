"""The commands `contexts …`: named containers of durable memories, with snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory_pipeline.cli.common import AgentMemory, changer_options, cli, common, deleter_options, echo
from memory_pipeline.cli.verbs import VerbCommand, identified, nothing, verb, written
from memory_pipeline.errors import counted
from memory_pipeline.rendering import table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.memories.contexts import Context, Contexts


@cli.group()
def contexts() -> None:
    """Read or change an agent's contexts: named containers of durable memories, with snapshots.

    A context belongs to the user, to the group, or to the agent itself. Its entries are durable memories: `memories
    list` and `memories search` find them alone with --context, and `memories history` shows their versions.
    """


def _verb(method: str, shows: Callable[[Any], Iterable[str]], **attributes: Any) -> None:
    given = {"opened": _of, "options": changer_options, **attributes}
    verb(contexts, f"memories.contexts:Contexts.{method}", shows=shows, **given)


def _of(agent: AgentMemory) -> Contexts:
    agent.lake()  # it must exist
    return agent.granted_writer().contexts


def _counted(what: str) -> dict[str, Callable[[Any], Any]]:
    """Return how a number of entries is printed."""
    return {"record": lambda count: {what: count}, "shows": lambda count: [f"{what}: {counted(count, 'entry')}"]}


def _table(found: list[Context]) -> Iterable[str]:
    columns = ["name", "type", "scope", "archived", "created", "description"]
    rows = [
        [
            one.name,
            one.type,
            one.scope,
            one.is_archived,
            f"{one.created_at:%Y-%m-%d}",
            " ".join(one.description.split()),
        ]
        for one in found
    ]
    return table_lines(columns, rows) if found else ()


def _entries(found: Iterable[DurableMemory]) -> Iterator[str]:
    for one in found:
        yield f"{one.key or one.id}: {' '.join(one.content.split())}"


_verb("list", _table, note=nothing("there are no contexts"))
_verb(
    "create",
    lambda made: [f"context {made.name}: {made.type}"],
    opened=lambda agent: agent.granted_writer().contexts,
)
_verb("put", written, record=identified, without={"editor"})
_verb(
    "get",
    lambda found: [found.content],
    unknown="context {name} has no entry {key}, or is archived; list contexts with `memory-pipeline contexts list`, "
    "and entries with `memory-pipeline contexts entries NAME`",
)
_verb(
    "remove",
    lambda was_there: ["removed" if was_there else "there was no such entry"],
    record=lambda was_there: {"removed": was_there},
    without={"editor"},
)
_verb("entries", _entries, note=nothing("there are no such entries"))
_verb(
    "search",
    lambda found: _entries(one.memory for one in found),
    record=lambda found: [one.memory for one in found],
    note=nothing("there are no such entries"),
)
_verb(
    "snapshots",
    lambda found: [f"{at:%Y-%m-%d %H:%M}  {label}" for label, at in found.items()],
    note=nothing("it has no snapshots"),
)
for _name, _done in (("restore", "restored"), ("archive", "archived"), ("unarchive", "unarchived")):
    _verb(_name, **_counted(_done), without={"editor"})
_verb("delete", **_counted("deleted"), options=deleter_options)


@contexts.command(cls=VerbCommand, method="memories.contexts:Contexts.snapshot")
@changer_options
@common
def snapshot(agent: AgentMemory, as_json: bool, name: str, label: str, **given: Any) -> None:
    """Name the present state of a context, to restore it later."""
    _of(agent).snapshot(name, label, **given)
    echo({"name": name, "label": label}, [f"{name} has the snapshot {label}"], as_json=as_json)
