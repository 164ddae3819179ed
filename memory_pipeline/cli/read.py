"""Commands that read memory: by search, and by lineage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import Day, cli, common, lake_of, now_option, reader_of, scope_options, settings_of
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import hit_lines, plain, to_json

if TYPE_CHECKING:
    from memory_pipeline.cli.common import Command


def filter_options(command: Command) -> Command:
    """Add what limits a search, besides ages."""
    for option in reversed(
        [
            click.option("--since", type=Day(), metavar="DATE", help="The oldest memory wanted, instead of an age."),
            click.option("--until", type=Day(), metavar="DATE", help="The newest memory wanted (included)."),
            click.option("--person", help="Who said it or is named in it; one word of the name is enough."),
            click.option("--tag", help="A tag of the conversation that a fact comes from."),
            click.option("--min-importance", "minimum_importance", type=float, help="0 to 1."),
        ]
    ):
        command = option(command)
    return command


@cli.command()
@click.argument("query", required=False)
@scope_options
@click.option(
    "--grain",
    default="working",
    show_default=True,
    type=click.Choice([grain.value for grain in Grain]),
    help="What to search.",
)
@click.option("--min-days-ago", default=0.0, show_default=True, help="Age of the newest memory wanted.")
@click.option("--max-days-ago", default=365.0, show_default=True, help="Age of the oldest memory wanted.")
@filter_options
@click.option("--kind", type=click.Choice([kind.value for kind in FactKind]), help="Kind of fact.")
@click.option("--conversation", "conversation_id", help="The conversation that a fact comes from.")
@click.option("--max-results", default=10, show_default=True, help="1 to 100.")
@click.option("--offset", default=0, show_default=True, help="Results to leave out: 10 shows the second page of 10.")
@click.option("--explain", is_flag=True, help="Show what each score is made of.")
@click.option("--full", is_flag=True, help="Show summaries whole.")
@now_option
@common
def search(
    query: str | None,
    workspace_id: str,
    agent_id: str,
    min_days_ago: float,
    max_days_ago: float,
    full: bool,
    root: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Search an agent's memory for QUERY, or show the newest of it.

    All filters that are given must be fulfilled. A summary's age counts from the end of its period. What was written a
    moment ago is found too.
    """
    reader = reader_of(lake_of(settings_of(root)), workspace_id, agent_id)
    grain = options["grain"]
    hits = reader.search_memory(
        minimum_days_ago=min_days_ago, maximum_days_ago=max_days_ago, query_text=query, **options
    )
    if as_json:
        click.echo(to_json({"total": hits.total, "offset": hits.offset, "hits": hits}))
    elif hits:
        click.echo(
            "\n".join(hit_lines(hits, None if full else query, lines=None if full else 5, first=hits.offset + 1))
        )
        if hits.offset + len(hits) < hits.total:
            click.echo(f"… of {hits.total:,} memories; --offset {hits.offset + len(hits)} shows the next", err=True)
    else:
        click.echo(
            f"nothing in {grain} memory of {workspace_id}/{agent_id} that passes, of {hits.total:,} memories; "
            "--max-days-ago widens the range, `memory-pipeline status` tells what there is",
            err=True,
        )


@cli.command()
@click.argument("query")
@scope_options
@click.option("--max-tokens", default=1_000, show_default=True, help="What the answer may take, at 4 bytes a token.")
@filter_options
@now_option
@common
def recall(query: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool, **options: Any) -> None:
    """Tell what all grains together remember of QUERY, within a budget of tokens and without telling anything twice.

    This is what an agent puts into its prompt. Facts come first; points of summaries tell of what only they remember.
    """
    found = reader_of(lake_of(settings_of(root)), workspace_id, agent_id).recall(query, **options)
    if as_json:
        click.echo(to_json({"tokens": found.tokens, "items": found}))
    elif found:
        click.echo(plain(str(found)))
    else:
        click.echo(
            f"{workspace_id}/{agent_id} remembers nothing; `memory-pipeline status` tells what there is", err=True
        )


@cli.command()
@click.argument("prompt")
@click.option(
    "--document",
    "documents",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text file whose content takes part; may be given several times, best first.",
)
@scope_options
@click.option("--max-results", type=int, help="Most things, 1 to 50; the configuration's if not given, 5 by default.")
@click.option("--max-tokens", type=int, help="What the block may take, at 4 bytes a token; likewise, 1,000.")
@click.option("--speaker", help='Who asks: what "I" means.')
@now_option
@common
def inject(
    prompt: str,
    documents: tuple[Path, ...],
    workspace_id: str,
    agent_id: str,
    root: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print what to put before a model with PROMPT: memories, summaries, facts of the graph, and documents.

    The block is marked as recalled, so that it is dropped when it is written back with a conversation. `injection` in
    config/workspaces.yaml sets its size and what helps to choose (`memory-pipeline config --example`).
    """
    try:
        snippets = [{"id": str(file), "content": file.read_text(encoding="utf-8")} for file in documents]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--document cannot be read: {error}") from None
    reader = reader_of(lake_of(settings_of(root)), workspace_id, agent_id)
    known = reader.inject_knowledge(prompt, snippets, **options)
    if as_json:
        record = {"block": known.block, "tokens": known.tokens, "left_out": known.left_out}
        click.echo(to_json({**record, "troubles": known.troubles, "parts": known.parts}))
        return
    click.echo(
        plain(known.block) if known.parts else f"{workspace_id}/{agent_id} knows nothing of it", err=not known.parts
    )
    for source, reason in known.troubles.items():
        click.echo(f"{source} did not help: {reason}", err=True)


@cli.command()
@click.argument("id")
@scope_options
@common
def expand(id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:  # noqa: A002
    """Walk from a summary or a fact (its ID, as search prints it) down to the messages that it rests on.

    ID#3 follows the summary's point 3 alone; points count from 0.
    """
    node = reader_of(lake_of(settings_of(root)), workspace_id, agent_id).expand(id)
    click.echo(to_json(node) if as_json else "\n".join(node.lines()))
