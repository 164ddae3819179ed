"""The command that deletes what is older than its workspace keeps it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import click

from memory_pipeline.cli.options import common, lake_of, now_option, settings_of
from memory_pipeline.cli.root import cli
from memory_pipeline.rendering import expiration_lines, orphan_lines, to_json


@cli.command()
@click.option("--dry-run", is_flag=True, help="Print what would go and why, and delete nothing.")
@click.option(
    "--grace",
    "grace_minutes",
    type=click.IntRange(0, 60 * 24 * 30),
    default=0,
    show_default=True,
    metavar="MINUTES",
    help="How long files stay that other programs may be reading; readers of this package need none.",
)
@now_option
@common
def expire(dry_run: bool, grace_minutes: int, now: datetime | None, root: str | None, as_json: bool) -> None:
    """Delete memory that is older than its workspace keeps it, so that its bytes leave the disk.

    For how long is set by `retention` in config/workspaces.yaml (`memory-pipeline config --example`): a plan (free,
    starter, pro, standard), durations of your own, or, if nothing is said, forever. Age counts from the end of a
    period, and nothing goes before its parent has been made from it: what is held back is printed with the reason.

    \b
        memory-pipeline expire --dry-run                     what would go today
        memory-pipeline expire --dry-run --now 2027-01-01    what will have gone by then
        memory-pipeline expire                               do it

    What processes left behind that were killed more than an hour ago (files that nothing names, claims, uploads that
    were not finished) goes as well, whatever the configuration says of retention.

    Safe to repeat and to interrupt. In Dagster the job `expire_memory` does the same every night.
    """
    from memory_pipeline.lake.orphans import collect_orphans
    from memory_pipeline.steps.expire import expire as delete_expired

    settings = settings_of(root)
    lake = lake_of(settings)
    grace = timedelta(minutes=grace_minutes)
    done = delete_expired(lake, lake.start, now or datetime.now(UTC), dry_run=dry_run, grace=grace)
    # By the clock, whatever --now says: somebody may be writing.
    left = collect_orphans(lake.storage, lake.tables, datetime.now(UTC), dry_run=dry_run)
    if as_json:
        record = {key: value for key, value in asdict(done).items() if key != "periods"}
        orphans = {kind: asdict(purged) for kind, purged in left.items()}
        click.echo(to_json({"dry_run": dry_run, **record, "left_behind": orphans}))
    else:
        click.echo("\n".join([*expiration_lines(done, dry_run=dry_run), *orphan_lines(left, dry_run=dry_run)]))
