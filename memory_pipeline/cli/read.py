"""Commands that read memory: search, recall, inject, expand and trace; and correct it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    AgentMemory,
    agent_options,
    cli,
    common,
    echo,
    is_from_environment,
    reader_options,
    user_option,
)
from memory_pipeline.cli.verbs import VerbCommand, nothing, verb
from memory_pipeline.domain.facts import SOURCES
from memory_pipeline.errors import InputError, counted
from memory_pipeline.rendering import hit_lines, plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from memory_pipeline.domain.corrections import Correction
    from memory_pipeline.reader.all_users import AllUsersReader


@cli.command(
    cls=VerbCommand,
    method="reader:MemoryReader.search_memory",
    arguments={"query"},
    without={"sources", "query_text"},
)
@reader_options
@click.option(
    "--all-users",
    is_flag=True,
    help="For operators: list the newest entries of all users and groups that hold every word of QUERY, with their "
    "users. Nothing is ranked.",
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(SOURCES),
    help="What to search: turns (what was said), memories (durable ones), contexts (their entries). May be repeated.  "
    "[default: all]",
)
@click.option("--full", is_flag=True, help="Show all lines of summaries.")
@common
def search(
    agent: AgentMemory, all_users: bool, full: bool, as_json: bool, sources: tuple[str, ...], **given: Any
) -> None:
    """Search an agent's memory for QUERY. Without QUERY, show the newest entries.

    With QUERY, durable memories and entries of contexts are ranked with what was said. Ranges of days, --kind and
    --conversation apply to what was said alone: days leave durable memories in, the others leave them out.

    Results match all given filters. --since replaces --max-days-ago, and --until replaces --min-days-ago. The age of a
    summary counts from the end of its period. Messages that the pipeline has not processed yet are found too.
    """
    query = given.get("query")
    if all_users:
        found = {name: value for name, value in given.items() if name not in {"minimum_score", "explain"}}
        hits = _reader_of_all(agent, explain=given["explain"]).search_memory(**found)
    else:
        hits = agent.reader().search_memory(sources=sources or "all", **given)
    if as_json:
        click.echo(to_json({"total": hits.total, "offset": hits.offset, "older": hits.older, "hits": hits}))
    elif hits:
        shown_for = None if full or all_users else query
        for line in hit_lines(hits, shown_for, lines=None if full else 5, first=hits.offset + 1):
            click.echo(click.style(line, dim=True) if line.startswith("    ") else line)
        if hits.offset + len(hits) < hits.total:
            click.echo(
                f"… of {counted(hits.total, 'memory')}; see the next with --offset {hits.offset + len(hits)}", err=True
            )
    elif query and hits.total and given.get("minimum_score"):
        click.echo(
            f"no results: none of {counted(hits.total, 'memory')} of {agent} in range has a score of "
            f"{given['minimum_score']:g}; lower --min-score",
            err=True,
        )
    else:
        click.echo(
            f"no results in {given['grain']} memory of {agent}; memories that pass the filters: "
            f"{hits.total:,}; raise --max-days-ago, compare the ids with `memory-pipeline agents`, or list the periods "
            "with `memory-pipeline status`",
            err=True,
        )
    if not as_json and hits.older:
        click.echo(f"{hits.older:,} more, older than that; raise --max-days-ago or set --since", err=True)


def _reader_of_all(agent: AgentMemory, *, explain: bool) -> AllUsersReader:
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.reader.all_users import AllUsersReader

    is_for_user = agent.user_id is not None and not is_from_environment("user_id")
    given = {"--explain": explain, "--user": is_for_user, "--on-behalf-of": agent.on_behalf_of is not None}
    if others := [name for name, is_given in given.items() if is_given]:
        raise InputError(f"{others[0]} and --all-users do not go together; give one of them")
    return AllUsersReader(agent.lake(), Scope(agent.workspace_id, agent.agent_id))


def _receipt_note(receipt_id: str) -> str:
    return f"receipt: {receipt_id}" if receipt_id else ""


@cli.command(cls=VerbCommand, method="reader:MemoryReader.recall", without={"exclude"})
@reader_options
@common
def recall(agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Collect memory about QUERY for a prompt. Reads all grains, within a token budget and without repetition.

    Facts come first. Points of summaries are added if no fact covers them.
    """
    found = agent.reader().recall(**given)
    nothing = (
        f"no memory of {agent} matches; compare the ids with `memory-pipeline agents`, or see `memory-pipeline status`"
    )
    record = {"tokens": found.tokens, "receipt_id": found.receipt_id, "items": found}
    echo(record, [str(found)], as_json=as_json, note=_receipt_note(found.receipt_id) if found else nothing)


@cli.command(
    cls=VerbCommand,
    method="reader:MemoryReader.inject_knowledge",
    without={"documents", "exclude", "conversation"},
)
@click.option(
    "--document",
    "documents",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text file to include; may be repeated, most relevant first.",
)
@reader_options
@common
def inject(documents: tuple[Path, ...], agent: AgentMemory, as_json: bool, **given: Any) -> None:
    """Print a block of context for QUERY. It contains memories, summaries, graph facts and documents.

    The block is marked as recalled: if it comes back in a conversation, ingestion drops it. Set its size and the
    selection under `injection` in config/workspaces.yaml (see `memory-pipeline config --example`).
    """
    try:
        snippets = [{"id": str(file), "content": file.read_text(encoding="utf-8")} for file in documents]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--document cannot be read: {error}; give a readable UTF-8 text file") from None
    reader = agent.reader()
    known = reader.inject_knowledge(documents=snippets, **given)
    if as_json:
        record = {"block": known.block, "tokens": known.tokens, "left_out": known.left_out}
        record["receipt_id"] = known.receipt_id
        click.echo(to_json({**record, "troubles": known.troubles, "parts": known.parts}))
        return
    click.echo(plain(known.block) if known.parts else f"no memory of {agent} matches", err=not known.parts)
    if known.receipt_id:
        click.echo(_receipt_note(known.receipt_id), err=True)
    for source, reason in known.troubles.items():
        click.echo(f"{source} failed and was skipped: {reason}", err=True)


verb(
    cli,
    "reader:MemoryReader.expand",
    AgentMemory.reader,
    lambda node: node.lines(),
    help="Show the sources of a summary or fact, down to the messages. ID is the id that search prints.\n\n"
    "ID#3 follows only point 3 of a summary; points count from 0.",
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a memory that is corrected or traced: of another agent it cannot be."""
    return agent_options(user_option(command))


verb(
    cli,
    "client.memory:Memory.trace",
    AgentMemory.memory,
    lambda found: (line for one in found for line in one.lines()),
    options=_options,
    help="Show what became of a message, or of each message of a conversation. ID is that of either.\n\n"
    "Whether it waits or is loaded, what read it, what was learned from it and in which summaries it is, when a memory "
    "was last used, or why nothing was learned.",
)


def _corrected(found: Iterable[Correction]) -> Iterator[str]:
    for one in found:
        what = f"undoes {one.undoes}" if one.undoes else " … ".join(quote.strip() for quote in one.quotes)
        replaced = "" if one.text is None else f", replaced by: {one.text}"
        yield f"{one.at:%Y-%m-%d %H:%M}  {one.id}  {what}{replaced}{f'  ({one.reason})' if one.reason else ''}"


verb(
    cli,
    "client.memory:Memory.correct",
    AgentMemory.memory,
    lambda done: done.lines(),
    options=_options,
    help="Withdraw a statement that is wrong, or replace it, and make again everything that rests on it.\n\n"
    "ID is that of a message, a fact, a memory, a graph fact, or of a line of a summary (its id with # and the number "
    "of the line). The message stays as it was said; the statement is not found, and not learned again. See first what "
    "would be made again with --dry-run.",
)
verb(
    cli,
    "client.memory:Memory.rollback",
    AgentMemory.memory,
    lambda done: (line for one in done for line in one.lines()),
    options=_options,
    note=nothing("no message was received from there, or then"),
)
verb(
    cli,
    "client.memory:Memory.restore",
    AgentMemory.memory,
    lambda done: done.lines(),
    options=_options,
    note=nothing("nothing of it is archived"),
)
verb(
    cli,
    "client.memory:Memory.corrections",
    AgentMemory.memory,
    _corrected,
    options=_options,
    note=nothing("nothing was corrected"),
)
verb(
    cli,
    "client.memory:Memory.undo",
    AgentMemory.memory,
    lambda _: ["undone"],
    options=_options,
    record=lambda _: {"undone": True},
    help="Undo a correction. ID is that of the correction.",
)
verb(
    cli,
    "reader:MemoryReader.receipt",
    AgentMemory.reader,
    lambda receipt: receipt.lines(),
    unknown="receipt {id} is unknown, of another agent or user, or no longer kept; see `memory-pipeline receipts`",
)
verb(cli, "reader:MemoryReader.receipts", AgentMemory.reader, lambda ids: ids, note=nothing("no receipts"))
