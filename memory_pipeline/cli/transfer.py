"""Commands that copy memory: rebuild and export."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import Time, cli, json_option, lake_of, models_of, now_option, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from memory_pipeline.transfer.rebuilding import RebuildReport


@cli.command()
@click.argument("old")
@click.argument("new")
@click.option("--shards", type=int, metavar="NUMBER", help="Number of shards of the new lake, 1 to 1,000.")
@click.option(
    "--config", "configuration", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="Configuration of the new lake, such as one with another per_user.",
)  # fmt: skip
@click.option("--until", type=Time(), metavar="TIME", help="Only what had been received by this time.")
@now_option
@json_option
def rebuild(
    old: str,
    new: str,
    shards: int | None,
    configuration: Path | None,
    until: datetime | None,
    now: datetime | None,
    as_json: bool,
) -> None:
    """Write all that the lake OLD holds to a new lake NEW: folders, or s3://bucket/prefix.

    For what is fixed when a lake is created: the number of shards, whether users have a memory of their own (per_user
    in --config), the place; and for lakes of an older format. With --until, NEW is the lake as it stood at a time.
    OLD is only read. No model is asked: answers and vectors are copied, and rules stand in for others until the next
    run. Let writers rest meanwhile, then give them NEW.

    Safe to repeat and to interrupt: the same command continues.

    \b
        memory-pipeline rebuild ./lake ./lake-of-64-shards --shards 64
        memory-pipeline rebuild ./lake ./march --until 2025-04-01
        memory-pipeline rebuild ./lake s3://bucket/lake
    """
    from memory_pipeline.transfer.rebuilding import rebuild as rebuilt

    lake = lake_of(settings_of(old))
    with progress(quiet=as_json) as bar:
        report = rebuilt(
            lake, new, models_of(lake).embedder, now or datetime.now(UTC),
            shards=shards, configuration=configuration, until=until, progress=bar.show,
        )  # fmt: skip
    if as_json:
        click.echo(to_json(report))
    else:
        _print(report, new)


def _print(report: RebuildReport, new: str) -> None:
    for name, count in report.copied.items():
        click.echo(f"{count:,} {name.replace('_', ' ')}")
    for name in report.not_copied:
        click.echo(plain(f"not copied: {name}"))
    click.echo(plain(f"done; `memory-pipeline status --root {new}` says what a next run would change"))
