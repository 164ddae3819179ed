"""Commands that copy memory: rebuild and export."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    Time,
    agent_options,
    cli,
    common,
    echo,
    given_ids,
    id_option,
    json_option,
    lake_of,
    models_of,
    now_option,
    settings_of,
)
from memory_pipeline.cli.terminal import progress
from memory_pipeline.errors import InputError
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from memory_pipeline.cli.common import AgentMemory
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
    from memory_pipeline.transfer.old_formats import OLD, format_of, records_of
    from memory_pipeline.transfer.rebuilding import rebuild as rebuilt

    with progress(quiet=as_json) as bar, TemporaryDirectory() as folder:
        is_old = format_of(old) in OLD
        lake, problems = records_of(old, Path(folder), new) if is_old else (lake_of(settings_of(old)), [])
        report = rebuilt(
            lake, new, models_of(lake).embedder, now or datetime.now(UTC), old_uri=old if is_old else None,
            shards=shards, configuration=configuration, until=until, progress=bar.show,
        )  # fmt: skip
        report.not_copied += problems
    if as_json:
        click.echo(to_json(report))
    else:
        _print(report, new)


def export_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --workspace and --agent, and --user."""
    return agent_options(id_option("--user", "user_id", "Export this user's memory alone.")(command))


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--markdown", "folder", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write Markdown for people to this folder: a file for each memory, day and month.",
)  # fmt: skip
@export_options
@now_option
@common
def export(file: Path | None, folder: Path | None, agent: AgentMemory, now: datetime | None, as_json: bool) -> None:
    """Write the memory of an agent, or of one user, to the archive FILE, a zip, or to a folder of Markdown.

    It holds messages, facts, summaries with their sources, graph, durable memories with their history, sessions,
    contexts, grants, corrections, answers and costs of models, and receipts of reads: as Parquet, and as JSON Lines to
    read. `manifest.json` in it lists the files. Removed secrets stay removed.

    `memory-pipeline import FILE` adds it to a lake: under the same ids, or with --agent or --user as a copy.

    A folder of Markdown can be read, edited and kept in git. `memory-pipeline import DIR --editor NAME` turns edits
    into new versions of memories and corrections of messages. Export again to update the folder.

    \b
        memory-pipeline export support.zip --agent support
        memory-pipeline export u17.zip --agent support --user u17
        memory-pipeline export --markdown ./u17 --agent support --user u17
    """
    if (file is None) is (folder is None):
        raise InputError("export takes a FILE or --markdown DIR; give one of them")
    if folder is not None:
        from memory_pipeline.client.markdown import export_markdown

        counts = export_markdown(agent.memory(), folder, now or datetime.now(UTC))
        text = ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"
        echo({"folder": str(folder), "files": counts}, [f"{text} written to {folder}"], as_json=as_json)
        return
    from memory_pipeline.transfer.archive import export_archive

    assert file is not None  # noqa: S101  # nosec B101  # for types
    with progress(quiet=as_json) as bar:
        report = export_archive(
            agent.lake(), file, agent.workspace_id, agent.agent_id, agent.user_id, now or datetime.now(UTC), bar.show
        )
    if as_json:
        click.echo(to_json(report))
        return
    print_counts(report.rows, report.not_included)
    click.echo(plain(f"written to {file}"))


def print_counts(counts: Mapping[str, int], left_out: Iterable[str]) -> None:
    """Print numbers of rows and records by kind, and what was left out."""
    for name, count in counts.items():
        click.echo(f"{count:,} {name.replace('_', ' ')}")
    for name in left_out:
        click.echo(plain(f"not included: {name}"))


def _print(report: RebuildReport, new: str) -> None:
    print_counts(report.copied, report.not_copied)
    click.echo(plain(f"done; `memory-pipeline status --root {new}` says what a next run would change"))


def import_one(
    file: Path, manifest: Mapping[str, Any], agent: AgentMemory, now: datetime, *, dry_run: bool, as_json: bool
) -> None:
    """Add an archive to the lake, under its own ids unless options name others, and print what was added."""
    from memory_pipeline.transfer.archive import import_archive

    lake = agent.lake(must_exist=False)
    if dry_run:
        echo_rows = {name: one["rows"] for name, one in manifest["files"].items() if not name.startswith("json/")}
        owner = {name: manifest[name] for name in ("workspace_id", "agent_id", "user_id", "exported_at")}
        click.echo(to_json({**owner, "rows": echo_rows}))
        click.echo("nothing was written", err=as_json)
        return
    with progress(quiet=as_json) as bar:
        report = import_archive(
            file, lake, models_of(lake).embedder, now, **given_ids(), user_id=agent.user_id, progress=bar.show
        )
    if as_json:
        click.echo(to_json(report))
        return
    print_counts(report.rows, report.not_included)
    if report.is_copy:
        click.echo("records have new ids, because ids name the agent, the user and the days")
    if report.differing:
        click.echo(f"{report.differing:,} facts and summaries differ: this lake has more of their time")
    click.echo(plain(f"imported {file}"))


def import_edits(
    folder: Path, agent: AgentMemory, editor: str | None, now: datetime, *, dry_run: bool, as_json: bool
) -> None:
    """Turn the edits of a folder of Markdown into changes of the memory, and print them."""
    from memory_pipeline.client.markdown import import_markdown

    if editor is None:
        raise InputError(f"--editor is needed to import the edits of {folder}; give your name")
    done = import_markdown(agent.memory(), folder, editor, now, dry_run=dry_run)
    if as_json:
        click.echo(to_json(done))
    else:
        for name in ("updated", "remembered", "forgotten", "corrected"):
            for one in getattr(done, name):
                click.echo(plain(f"{name} {one}"))
        for file, reason in done.refused.items():
            click.echo(plain(f"not applied, {file}: {reason}"))
        click.echo("nothing was written" if dry_run else f"{folder} is up to date")
    if done.refused:
        click.get_current_context().exit(1)
