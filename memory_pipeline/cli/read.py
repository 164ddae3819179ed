"""Commands that read memory: search, recall, inject and expand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import Day, cli, common, is_from_environment, now_option, reader_options, scope_options
from memory_pipeline.domain.facts import SOURCES, FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError, counted
from memory_pipeline.rendering import hit_lines, plain, to_json

if TYPE_CHECKING:
    from memory_pipeline.cli.common import AgentMemory, Command
    from memory_pipeline.reader.all_users import AllUsersReader


MINIMUM_SCORE = click.option(
    "--min-score",
    "minimum_score",
    type=float,
    help="Minimum score, 0 to 1: how well a result fits QUERY. Default of search: none; of recall and inject: 0.11, "
    "which nothing reaches if QUERY is about something else.",
)


def filter_options(command: Command) -> Command:
    """Add the filters of a search, except ages and kinds."""
    for option in reversed(
        [
            click.option("--since", type=Day(), metavar="DATE", help="Earliest date (included)."),
            click.option("--until", type=Day(), metavar="DATE", help="Latest date (included)."),
            click.option("--person", help="Speaker or person mentioned; one word of the name is enough."),
            click.option("--tag", help="Tag of the conversation."),
            click.option("--min-importance", "minimum_importance", type=float, help="Minimum importance, 0 to 1."),
            MINIMUM_SCORE,
        ]
    ):
        command = option(command)
    return command


@cli.command()
@click.argument("query", required=False)
@reader_options
@click.option(
    "--all-users",
    is_flag=True,
    help="For operators: list the newest entries of all users and groups that hold every word of QUERY, with their "
    "users. Nothing is ranked.",
)
@click.option(
    "--grain",
    default="working",
    show_default=True,
    type=click.Choice([grain.value for grain in Grain]),
    help="Grain to search.",
)
@click.option("--min-days-ago", default=0.0, show_default=True, help="Minimum age in days.")
@click.option("--max-days-ago", default=365.0, show_default=True, help="Maximum age in days.")
@filter_options
@click.option(
    "--source",
    "sources",
    multiple=True,
    type=click.Choice(SOURCES),
    help="What to search: turns (what was said), memories (durable ones), contexts (their entries). May be repeated.  "
    "[default: all]",
)
@click.option("--kind", type=click.Choice([kind.value for kind in FactKind]), help="Kind of fact.")
@click.option("--conversation", "conversation_id", help="Id of the conversation.")
@click.option("--max-results", default=10, show_default=True, help="Maximum number of results, 1 to 100.")
@click.option("--offset", default=0, show_default=True, help="Results to skip, e.g. 10 for the second page of 10.")
@click.option("--explain", is_flag=True, help="Show the parts of each score.")
@click.option("--full", is_flag=True, help="Show all lines of summaries.")
@now_option
@common
def search(
    query: str | None,
    agent: AgentMemory,
    all_users: bool,
    min_days_ago: float,
    max_days_ago: float,
    full: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Search an agent's memory for QUERY. Without QUERY, show the newest entries.

    With QUERY, durable memories and entries of contexts are ranked with what was said. Ranges of days, --kind and
    --conversation apply to what was said alone: days leave durable memories in, the others leave them out.

    Results match all given filters. --since replaces --max-days-ago, and --until replaces --min-days-ago. The age of a
    summary counts from the end of its period. Messages that the pipeline has not processed yet are found too.
    """
    grain = options["grain"]
    ages: dict[str, Any] = {"minimum_days_ago": min_days_ago, "maximum_days_ago": max_days_ago}
    if all_users:
        del options["minimum_score"], options["sources"]  # nothing is ranked
        hits = _reader_of_all(agent, explain=options.pop("explain")).search_memory(query=query, **ages, **options)
    else:
        options["sources"] = options["sources"] or "all"
        hits = agent.reader().search_memory(query=query, **ages, **options)
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
    elif query and hits.total and options.get("minimum_score"):
        click.echo(
            f"no results: none of {counted(hits.total, 'memory')} of {agent} in range has a score of "
            f"{options['minimum_score']:g}; lower --min-score",
            err=True,
        )
    else:
        click.echo(
            f"no results in {grain} memory of {agent}; memories that pass the filters: "
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


@cli.command()
@click.argument("query")
@reader_options
@click.option("--max-tokens", default=1_000, show_default=True, help="Token budget, at 4 bytes a token.")
@filter_options
@now_option
@common
def recall(query: str, agent: AgentMemory, as_json: bool, **options: Any) -> None:
    """Collect memory about QUERY for a prompt. Reads all grains, within a token budget and without repetition.

    Facts come first. Points of summaries are added if no fact covers them.
    """
    found = agent.reader().recall(query, **options)
    if as_json:
        click.echo(to_json({"tokens": found.tokens, "items": found}))
    elif found:
        click.echo(plain(str(found)))
    else:
        click.echo(
            f"no memory of {agent} matches; compare the ids with `memory-pipeline agents`, or see "
            "`memory-pipeline status`",
            err=True,
        )


@cli.command()
@click.argument("query")
@click.option(
    "--document",
    "documents",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text file to include; may be repeated, most relevant first.",
)
@reader_options
@click.option(
    "--max-results", type=int, help="Maximum number of items, 1 to 50. [default: the configuration's, else 5]"
)
@click.option(
    "--max-tokens", type=int, help="Token budget, at 4 bytes a token. [default: the configuration's, else 1000]"
)
@click.option("--speaker", help='Name of the speaker, to resolve "I".')
@MINIMUM_SCORE
@now_option
@common
def inject(
    query: str,
    documents: tuple[Path, ...],
    agent: AgentMemory,
    as_json: bool,
    **options: Any,
) -> None:
    """Print a block of context for QUERY. It contains memories, summaries, graph facts and documents.

    The block is marked as recalled: if it comes back in a conversation, ingestion drops it. Set its size and the
    selection under `injection` in config/workspaces.yaml (see `memory-pipeline config --example`).
    """
    try:
        snippets = [{"id": str(file), "content": file.read_text(encoding="utf-8")} for file in documents]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--document cannot be read: {error}; give a readable UTF-8 text file") from None
    reader = agent.reader()
    known = reader.inject_knowledge(query, snippets, **options)
    if as_json:
        record = {"block": known.block, "tokens": known.tokens, "left_out": known.left_out}
        click.echo(to_json({**record, "troubles": known.troubles, "parts": known.parts}))
        return
    click.echo(plain(known.block) if known.parts else f"no memory of {agent} matches", err=not known.parts)
    for source, reason in known.troubles.items():
        click.echo(f"{source} failed and was skipped: {reason}", err=True)


@cli.command()
@click.argument("id")
@scope_options
@common
def expand(id: str, agent: AgentMemory, as_json: bool) -> None:  # noqa: A002
    """Show the sources of a summary or fact. ID is the id that search prints; the output ends with the messages.

    ID#3 follows only point 3 of a summary; points count from 0.
    """
    node = agent.reader().expand(id)
    click.echo(to_json(node) if as_json else "\n".join(node.lines()))
