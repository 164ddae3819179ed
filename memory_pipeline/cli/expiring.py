"""The commands that delete: memory that is older than its workspace keeps it, and files that nothing needs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.options import common, lake_of, now_option, settings_of
from memory_pipeline.cli.root import cli
from memory_pipeline.rendering import expiration_lines, housekeeping_lines, to_json

if TYPE_CHECKING:
    from memory_pipeline.steps.housekeeping import Cleaned


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

    Then it does what `memory-pipeline vacuum` does, whatever the configuration says of retention.

    Safe to repeat and to interrupt. In Dagster the job `expire_memory` does the same every night.
    """
    from memory_pipeline.lake.orphans import AGE
    from memory_pipeline.steps.housekeeping import clean_files
    from memory_pipeline.steps.retention import expire as delete_expired

    settings = settings_of(root)
    lake = lake_of(settings)
    grace = timedelta(minutes=grace_minutes)
    done = delete_expired(lake, lake.start, now or datetime.now(UTC), dry_run=dry_run, grace=grace)
    # By the clock, whatever --now says: somebody may be writing.
    cleaned = clean_files(lake, datetime.now(UTC), age=max(grace, AGE), dry_run=dry_run)
    if as_json:
        record = {key: value for key, value in asdict(done).items() if key != "periods"}
        click.echo(to_json({"dry_run": dry_run, **record, **_record(cleaned)}))
    else:
        click.echo("\n".join([*expiration_lines(done, dry_run=dry_run), *housekeeping_lines(cleaned, dry_run=dry_run)]))


@cli.command()
@click.option("--dry-run", is_flag=True, help="Print what would go, and delete nothing.")
@click.option(
    "--older-than",
    "minutes",
    type=click.IntRange(0, 60 * 24 * 365),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="How long ago files were replaced that go, by full hours for tables. Readers that began before may use them.",
)
@common
def vacuum(dry_run: bool, minutes: int, root: str | None, as_json: bool) -> None:
    """Delete files that nothing needs any more, and put small files of the index together where they pile up.

    Each run replaces files of tables and of the index. The replaced ones stay for readers that began before, and go
    here, with old entries of logs; so does what processes left behind that were killed more than an hour ago. No
    memory is deleted, and no search finds less.

    \b
        memory-pipeline vacuum --dry-run          what would go
        memory-pipeline vacuum                    do it
        memory-pipeline vacuum --older-than 0     where nothing else uses the lake: what was replaced just now goes, too

    Safe to repeat, to interrupt and to run beside writers and readers. In Dagster the job `expire_memory` does the same
    every night, and `memory-pipeline run` does it once a day.
    """
    from memory_pipeline.steps.housekeeping import clean_files

    lake = lake_of(settings_of(root))
    cleaned = clean_files(lake, datetime.now(UTC), age=timedelta(minutes=minutes), dry_run=dry_run)
    if as_json:
        record = {"dry_run": dry_run, **asdict(cleaned.gone), **_record(cleaned), "seconds": cleaned.seconds}
        click.echo(to_json(record))
        return
    gone = f"{cleaned.gone.files:,} files, {cleaned.gone.bytes:,} bytes"
    total = f"{gone} would go; nothing was deleted" if dry_run else f"{gone} left the disk ({cleaned.seconds:.1f} s)"
    click.echo("\n".join([*housekeeping_lines(cleaned, dry_run=dry_run), total]))


def _record(cleaned: Cleaned) -> dict[str, object]:
    return {
        "old_versions": {kind: asdict(gone) for kind, gone in cleaned.old_versions.items()},
        "left_behind": {kind: asdict(gone) for kind, gone in cleaned.left_behind.items()},
        "compacted": cleaned.compacted,
        "bytes_written": cleaned.bytes_written,
    }
