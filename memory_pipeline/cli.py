"""The command line: `memory-pipeline --help`."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memory_pipeline.domain.grains import Grain
from memory_pipeline.domain.periods import FIRST_YEAR, LAST_YEAR
from memory_pipeline.errors import InputError, MemoryPipelineError
from memory_pipeline.rendering import hit_lines, status_lines, to_json
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.lake import Lake

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_FILES = click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))


class _Time(click.ParamType[datetime]):
    """A time with its zone, or a date (midnight UTC)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a time such as 2024-01-15T08:30:00+00:00 or 2024-01-15", param, ctx)
        if not FIRST_YEAR < moment.year < LAST_YEAR:
            self.fail(f"{value!r} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1}", param, ctx)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _common(command: _Command) -> _Command:
    """Add what every command takes: the lake, and JSON output."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(command)
    return click.option(
        "--root",
        metavar="URI",
        help="The lake: a folder, or s3://bucket/prefix. [env MEMORY_PIPELINE_ROOT; default ./memory-lake]",
    )(command)


def _now(command: _Command) -> _Command:
    return click.option(
        "--now", type=_Time(), metavar="TIME", help="Act as of this time instead of the clock's, as 2025-01-31T12:00Z."
    )(command)


def _scope(command: _Command) -> _Command:
    command = click.option("--agent", "agent_id", required=True, help="Whose memory: the agent's id.")(command)
    return click.option("--workspace", "workspace_id", required=True, help="The agent's workspace.")(command)


def _settings(root: str | None) -> Settings:
    settings = Settings.from_environment()
    return replace(settings, root=root or settings.root)


def _lake(settings: Settings, *, must_exist: bool = True) -> Lake:
    from memory_pipeline.lake import Lake

    lake = Lake(settings.root, settings.timezone)
    if must_exist and not lake.exists:
        raise InputError(
            f"there is no memory lake at {lake.storage.uri}; name it with --root or MEMORY_PIPELINE_ROOT, "
            "or fill it with `memory-pipeline ingest FILE`"
        )
    return lake


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Long-term memory for AI agents, as a data pipeline.

    Conversations go into a journal (ingest), become facts and daily to yearly summaries (run), and are found again
    (search, expand). Try `memory-pipeline demo`.

    \b
    Settings: MEMORY_PIPELINE_ROOT      the lake, if --root is not given
              MEMORY_PIPELINE_START     first day of the memory, default 2024-01-01
              MEMORY_PIPELINE_TIMEZONE  the zone in which days begin, default UTC
    """


@cli.command()
@_FILES
@click.option("--workspace", "workspace_id", help="Workspace of conversations that do not name theirs.")
@click.option("--agent", "agent_id", help="Agent of conversations that do not name theirs.")
@_now
@_common
def ingest(
    files: tuple[Path, ...],
    workspace_id: str | None,
    agent_id: str | None,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Write conversations from FILES into the journal.

    A *.json file holds one conversation or a list of them, any other one conversation a line. A conversation:

    \b
    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "c1",
     "user_id": "u17", "tags": ["phone"],                                          (optional)
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}                     (id, name: optional)

    Roles: user, assistant, system, tool. Times need their zone. What is not accepted is set aside in the lake's
    journal/quarantine with its reason, and the rest goes on. Ingesting a file twice doubles nothing.
    """
    from memory_pipeline.domain.conversations import Admission
    from memory_pipeline.writer.files import ingest_file

    settings = _settings(root)
    lake = _lake(settings, must_exist=False)
    admission = Admission(settings.start, now or datetime.now(UTC), lake.calendar)
    defaults = {"workspace_id": workspace_id, "agent_id": agent_id}
    scope = {name: value for name, value in defaults.items() if value}
    results = {}
    for path in files:
        result = results[str(path)] = ingest_file(lake, path, admission, scope, _report_batches(path))
        if as_json:
            continue
        click.echo(
            f"{path}: {result.messages:,} new messages of {result.conversations:,} conversations, in "
            f"{result.files:,} journal files; {result.known:,} known already; {result.rejections:,} records set aside"
        )
        for rejection in result.rejected:
            click.echo(f"  set aside: {rejection.where}: {rejection.reason}", err=True)
        if result.rejections > len(result.rejected):
            more = result.rejections - len(result.rejected)
            click.echo(f"  … and {more:,} more, in {lake.storage.locate('journal/quarantine')}", err=True)
        if result.ignored_keys:
            keys = ", ".join(f"{key} ({count:,}×)" for key, count in result.ignored_keys.most_common(8))
            click.echo(f"  keys that memory has no place for, ignored: {keys}", err=True)
    if as_json:
        click.echo(to_json(results))


def _report_batches(path: Path) -> Callable[[Any], None]:
    return lambda result: click.echo(f"{path}: {result.messages:,} messages …", err=True)


@cli.group()
def convert() -> None:
    """Turn other formats into conversations, as JSONL on standard output."""


@convert.command()
@_FILES
@click.option(
    "--workspace", "workspace_id", default="locomo", show_default=True, help="Workspace of the conversations."
)
@click.option("--agent", "agent_id", help="Their agent; each file's name if not given.")
@_common
def locomo(files: tuple[Path, ...], workspace_id: str, agent_id: str | None, root: str | None, as_json: bool) -> None:
    """Convert FILES in LoCoMo's format (Maharana et al., ACL 2024). The output is JSON lines with or without --json.

    Both people become users with their names; a turn's time is its talk's, plus a minute for each turn before it.
    """
    import json

    from memory_pipeline.writer.locomo import read_locomo

    del root, as_json  # taken for uniformity
    for path in files:
        for conversation in read_locomo(path, workspace_id, agent_id):
            click.echo(json.dumps(conversation, ensure_ascii=False))


@cli.command()
@click.option("--from", "since", type=_Time(), metavar="DATE", help="First day to make again, with all above it.")
@click.option("--to", "until", type=_Time(), metavar="DATE", help="Last day to make again (included).")
@_now
@_common
def run(since: datetime | None, until: datetime | None, now: datetime | None, root: str | None, as_json: bool) -> None:
    """Make what is pending, through Dagster, in this process.

    Without --from and --to: the hours of pending journal files, and every closed day, week, month, quarter and year
    whose sources are new or have changed. With them: all of that range again. A period that has not closed is left
    for later. Running it twice changes nothing; interrupting it loses nothing. Runs are kept in the Dagster
    instance of DAGSTER_HOME, if that is set.
    """
    from memory_pipeline.defs.runs import GrainRun, run_all
    from memory_pipeline.models.selection import default_models

    settings = _settings(root)
    lake = _lake(settings)
    if (since is None) != (until is None):
        raise InputError("--from and --to go together; give both, or neither for what is pending")
    between = None
    if since is not None and until is not None:
        if since.date() < settings.start:
            raise InputError(
                f"--from {since.date()} is before the first day of this memory, {settings.start}; "
                "set MEMORY_PIPELINE_START to an earlier one"
            )
        between = _days(lake, since.date(), until.date())
    _show_progress(quiet=as_json)
    done = []
    started = time.monotonic()
    for event in run_all(lake, settings, default_models(lake.calendar.timezone), now or datetime.now(UTC), between):
        if isinstance(event, GrainRun):
            done.append(
                {
                    "grain": event.grain.value,
                    "periods": [str(period) for period in event.periods],
                    "rows": event.rows,
                    "changed": event.changed,
                }
            )
            if not as_json:
                seconds = time.monotonic() - started
                click.echo(
                    f"{event.grain:<10} {len(event.periods):>6,} periods made, {event.changed:>6,} partitions "
                    f"changed  ({seconds:.1f} s)"
                )
        else:
            started = time.monotonic()
    if as_json:
        click.echo(to_json(done))


def _days(lake: Lake, first: date, last: date) -> tuple[datetime, datetime]:
    from memory_pipeline.domain.periods import Period

    if last < first:
        raise InputError(f"--to {last} is before --from {first}")
    return (
        lake.calendar.bounds(Period.containing(Grain.DAILY, first))[0],
        lake.calendar.bounds(Period.containing(Grain.DAILY, last + timedelta(days=1)))[0],
    )


def _show_progress(*, quiet: bool) -> None:
    """Print a line for each batch that is made; nothing of other libraries."""
    log = logging.getLogger("memory_pipeline")
    if not quiet and not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("  %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


@cli.command()
@click.argument("query", required=False)
@_scope
@click.option(
    "--grain",
    default="working",
    show_default=True,
    type=click.Choice([grain.value for grain in Grain]),
    help="What to search.",
)
@click.option("--min-days-ago", default=0.0, show_default=True, help="Age of the newest memory wanted.")
@click.option("--max-days-ago", default=365.0, show_default=True, help="Age of the oldest memory wanted.")
@click.option("--max-results", default=10, show_default=True, help="1 to 100.")
@click.option("--full", is_flag=True, help="Show summaries whole.")
@_now
@_common
def search(
    query: str | None,
    workspace_id: str,
    agent_id: str,
    grain: str,
    min_days_ago: float,
    max_days_ago: float,
    max_results: int,
    full: bool,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Search an agent's memory for QUERY, or show the newest of it.

    A summary's age counts from the end of its period. What was written a moment ago is found too.
    """
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.models.selection import default_models
    from memory_pipeline.reader import MemoryReader

    lake = _lake(_settings(root))
    reader = MemoryReader(lake, Scope(workspace_id, agent_id), default_models(lake.calendar.timezone))
    hits = reader.search_memory(grain, min_days_ago, max_days_ago, max_results, query, now=now)
    if as_json:
        click.echo(to_json(hits))
    elif hits:
        click.echo("\n".join(hit_lines(hits, None if full else query, lines=None if full else 5)))
    else:
        click.echo(
            f"nothing in {grain} memory of {workspace_id}/{agent_id}, {min_days_ago:g} to {max_days_ago:g} days ago; "
            "--max-days-ago widens the range, `memory-pipeline status` tells what there is",
            err=True,
        )


@cli.command()
@click.argument("id")
@_scope
@_common
def expand(id: str, workspace_id: str, agent_id: str, root: str | None, as_json: bool) -> None:  # noqa: A002
    """Walk from a summary or a fact (its ID, as search prints it) down to the messages that it rests on.

    ID#3 follows the summary's point 3 alone; points count from 0.
    """
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.models.selection import default_models
    from memory_pipeline.reader import MemoryReader

    lake = _lake(_settings(root))
    node = MemoryReader(lake, Scope(workspace_id, agent_id), default_models(lake.calendar.timezone)).expand(id)
    click.echo(to_json(node) if as_json else "\n".join(node.lines()))


@cli.command()
@_now
@_common
def status(now: datetime | None, root: str | None, as_json: bool) -> None:
    """Say for each grain what is there, what is pending (to be made) and what of it is missing (never made).

    Open periods have material and have not closed yet. Coarser grains show as pending once the finer are made.
    """
    from memory_pipeline.steps.plan import grain_status

    settings = _settings(root)
    lake = _lake(settings)
    statuses = [grain_status(lake, grain, settings.start, now or datetime.now(UTC)) for grain in Grain]
    quarantined = lake.journal.quarantined()
    if as_json:
        files = [file.path for file in lake.journal.pending()]
        click.echo(to_json({"grains": statuses, "journal_files": files, "quarantined": quarantined}))
    else:
        click.echo("\n".join(status_lines(statuses, [rejection.reason for rejection in quarantined])))


@cli.command()
@click.argument("model", required=False)
@click.option("--show", is_flag=True, help="Print the SQL instead of running it.")
@_common
def sql(model: str | None, show: bool, root: str | None, as_json: bool) -> None:
    """Run a MODEL of dbt_like_sql over the lake and print its rows; without one, list them."""
    from memory_pipeline.analytics import Warehouse, models_of

    if model is None:
        listed = [{"folder": m.folder, "name": m.name, "description": m.description} for m in models_of()]
        lines = (f"{m['folder']:<8} {m['name']:<40} {m['description'].splitlines()[0]}" for m in listed)
        click.echo(to_json(listed) if as_json else "\n".join(lines))
        return
    warehouse = Warehouse(_lake(_settings(root)))
    if show:
        click.echo(warehouse.model(model).sql)
        return
    rows = warehouse.query(model)
    if as_json:
        click.echo(to_json(rows.to_pylist()))
    else:
        import polars as pl

        with pl.Config(tbl_rows=50, tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True):
            click.echo(str(pl.from_arrow(rows)))
        click.echo(f"{rows.num_rows:,} rows")


@cli.command()
@_common
def demo(root: str | None, as_json: bool) -> None:
    """Show all of it on a year of conversations that comes with the package. Default root: ./demo-lake."""
    from memory_pipeline.demo import show_demo

    settings = Settings.from_environment()
    _show_progress(quiet=as_json)
    show_demo(replace(settings, root=root or "./demo-lake"), as_json=as_json)


def main() -> None:
    """Run the command line; an error of this package is one line and exit code 2."""
    try:
        cli(standalone_mode=True)
    except MemoryPipelineError as error:
        click.echo(f"memory-pipeline: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
