"""The command that changes the embedder: reembed."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import cli, echo_table, lake_of, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import table_lines, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.reembed import Reembedding

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 10.0


@command(cli)
def reembed(
    root: str | None,
    as_json: bool,
    to: str | None = None,
    dimension: int | None = None,
    configuration: Path | None = None,
    keep: bool = False,
    incomplete: bool = False,
    drop: str | None = None,
) -> None:
    """Change the embedder: make the vectors of another model, beside those in use.

    \b
        memory-pipeline reembed --to openai/text-embedding-3-large --dimension 1024
        memory-pipeline reembed                                           list the indices
        memory-pipeline reembed --to openai/text-embedding-3-small        go back
        memory-pipeline reembed --drop openai/text-embedding-3-large      delete an index

    Runs and readers go on with the present embedder until all rows have vectors of the new one. Then `embedding` in the
    lake's config/workspaces.yaml is replaced, in one step. Open readers keep the old embedder, which goes on working
    until its index is dropped; new rows are then found by words only: open them again.

    Safe to repeat and to interrupt: it continues where it was. Going back embeds only what is new.

    Args:
        to: the model, as in the configuration. Its other settings are those of its earlier index, or of the present
            embedder if the provider is the same.
        dimension: length of the vectors; required for a hosted model that the lake does not know.
        configuration: in place of --to: a workspaces.yaml with the new embedder, which becomes the configuration.
        keep: build the index, but keep the present embedder in use.
        incomplete: use the index even if some texts could not be embedded. Words find these rows.
        drop: delete the index of this embedder, which is not in use.
    """
    from memory_pipeline.client.reembedding import change_embedder, drop_embedder

    lake = lake_of(settings_of(root))
    if drop is not None:
        if to is not None or configuration is not None:
            raise InputError("--drop does not go together with --to and --config")
        dropped = drop_embedder(lake, _clock, drop)
        click.echo(to_json({"dropped": dropped}) if as_json else f"dropped the index of {', '.join(dropped)}")
        return
    if to is None and configuration is None:
        _list(lake, as_json=as_json)
        return
    last: Reembedding | None = None
    shown_at = -_SECONDS_BETWEEN_LINES
    with progress(quiet=as_json) as bar:
        for last in change_embedder(
            lake,
            _clock,
            to,
            dimension=dimension,
            configuration=configuration,
            switches=not keep,
            accepts_missing=incomplete,
        ):
            if time.monotonic() - shown_at >= _SECONDS_BETWEEN_LINES and not last.is_complete:
                shown_at = time.monotonic()
                _log.info("%s", _line(last), extra={"progress": ("embedding", last.done, last.total)})
                if sys.stderr.isatty() and not as_json:
                    bar.echo(_line(last), err=True)
    if last is None:
        return
    name = lake.configuration().embedding.model
    text = f"{_line(last)}; {'the index is complete' if keep else f'{name} is in use now'}"
    record = {name: getattr(last, name) for name in (*last.__dataclass_fields__, "rate")}
    click.echo(to_json(record) if as_json else text)


def _list(lake: Lake, *, as_json: bool) -> None:
    from memory_pipeline.models.factory import reading_embedder

    used = lake.indices.find(reading_embedder(lake.configuration(), _clock))
    rows: list[dict[str, object]] = []
    for index in lake.indices.all():
        made_by = index.embedder()
        if made_by is not None:
            state = "in use" if index is used else "complete" if index.is_complete else "being built"
            waiting = sum(index.waiting(name).num_rows for name in index.tables())
            rows.append({"embedder": made_by[0], "dimension": made_by[1], "state": state, "without_vectors": waiting})
    if as_json:
        click.echo(to_json(rows))
    elif rows:
        echo_table(table_lines([name.replace("_", " ") for name in rows[0]], [[*row.values()] for row in rows]))
    else:
        click.echo("there is no index yet; `memory-pipeline run` makes one")


def _line(at: Reembedding) -> str:
    """Return how far it is: ``2,048 of 20,000 rows, 250 a second, $0.0012, 1 min 12 s and $0.0105 left``."""
    parts = [f"{at.done:,} of {at.total:,} rows embedded", f"{at.rate:,.0f} a second"]
    if at.failed:
        parts.append(f"{at.failed:,} failed")
    if at.cost is not None:
        parts.append(f"${at.cost:,.4f}")
    if at.seconds_left and not at.is_complete:
        minutes, seconds = divmod(round(at.seconds_left), 60)
        cost = "" if at.cost_left is None else f" and about ${at.cost_left:,.4f}"
        parts.append(f"{minutes} min {seconds} s{cost} left")
    return ", ".join(parts)


def _clock() -> datetime:
    return datetime.now(UTC)
