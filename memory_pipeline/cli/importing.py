"""The command `import`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from memory_pipeline.cli.common import AgentMemory, Time, cli, common, given_ids, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.transfer import import_edits, import_one
from memory_pipeline.cli.write import conversation_options, print_ingestion
from memory_pipeline.errors import counted
from memory_pipeline.rendering import plain, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.importers import ImportReport
    from memory_pipeline.lake import Lake

#: Messages that a dry run shows, and characters of each.
_SHOWN, _WIDTH = 10, 300


@cli.command("import")
@click.option("--format", metavar="NAME", help="The format, if it is not recognised; see below.")
@click.option("--timezone", metavar="ZONE", help="Time zone of exports with local times, such as Europe/Berlin.")
@click.option(
    "--date-order",
    type=click.Choice(["dmy", "mdy", "ymd"]),
    help="Order of day, month and year in dates such as 3/4/24. [default: found in the file]",
)
@click.option("--at", type=Time(), metavar="TIME", help="Time of conversations without times. [default: their file's]")
@click.option("--me", metavar="NAME", help="In chats of several people: your name or id there. [default: none of them]")
@click.option("--editor", metavar="NAME", help="Who edited a folder of `export --markdown`.")
@click.option("--dry-run", is_flag=True, help="Show the first ten messages as they would be stored. Write nothing.")
@conversation_options
@common
def import_(
    files: tuple[Path, ...],
    agent: AgentMemory,
    now: datetime | None,
    format: str | None,  # noqa: A002  # the option's name
    at: datetime | None,
    date_order: str | None,
    me: str | None,
    editor: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import history from other products: FILES are their exports, as files, folders or zip archives.

    The format of each file is recognised by its content:

    \b
    chatgpt   claude   claude-code   codex   sharegpt   openai   messages   slack   discord   discord-package
    telegram   whatsapp   mail   gemini   gemini-cli   langchain
    mem0   zep   zep-thread   letta   langmem   hindsight   mcp-memory   cogx

    Times, speakers and conversations stay as they are. Each conversation has the source import:NAME, so that
    `memory-pipeline rollback --source import:NAME` withdraws it. An export may be imported again, or a later one: only
    what is new is added. What other memory products hold becomes durable memories and facts of the graph. System
    texts, thoughts of models and texts of programs are left out; results of tools are context. Records that cannot be
    read are moved to the lake's journal/quarantine, with the reason.

    An archive of `memory-pipeline export` is added under its own ids, or with --agent or --user as a copy. A folder of
    `export --markdown` is compared with the memory, and its edits become changes by --editor.

    \b
    Exit code: 0 something was read of each file
               1 all records of a file were quarantined
               2 invalid arguments, or a file cannot be read
    """
    from memory_pipeline.client.markdown import is_markdown
    from memory_pipeline.domain.conversations import Admission
    from memory_pipeline.importers import import_history
    from memory_pipeline.steps.dry_run import DryRunLake
    from memory_pipeline.transfer.archive import manifest_of

    settings = settings_of(agent.root)
    lake = agent.lake(must_exist=False)
    appended: list[Message] = []
    if dry_run:
        lake = DryRunLake(settings.root, settings.timezone, settings.start)
        appended = lake.journal.appended
    admission = Admission(lake.accepts_from, now or datetime.now(UTC), lake.calendar)
    fields = {"workspace_id": agent.workspace_id, "agent_id": agent.agent_id, **agent.audience_fields(lake)}
    defaults = {name: value for name, value in fields.items() if value is not None}
    reports: dict[str, ImportReport] = {}
    for path in files:
        if is_markdown(path):
            import_edits(path, agent, editor, now or datetime.now(UTC), dry_run=dry_run, as_json=as_json)
            continue
        if (manifest := manifest_of(path)) is not None:
            import_one(path, manifest, agent, now or datetime.now(UTC), dry_run=dry_run, as_json=as_json)
            continue
        with progress(quiet=as_json) as bar:

            def show(done: int, total: int, path: Path = path) -> None:
                bar.show(path.name, done, total)  # called inside the loop
                del appended[_SHOWN:]

            reports[str(path)] = import_history(
                lake, path, admission, format=format, timezone=agent.timezone, at=at, date_order=date_order, me=me,
                default_scope=given_ids(), defaults=defaults, progress=show,
            )  # fmt: skip
        if not as_json:
            _print(lake, path, reports[str(path)])
    if not reports:
        return
    messages = [message.to_record() for message in appended[:_SHOWN]]
    if as_json:
        click.echo(to_json({"files": reports, "messages": messages} if dry_run else reports))
    elif dry_run:
        for report in reports.values():
            for line in report.samples:
                click.echo(plain(line[:_WIDTH]))
        for one in messages:
            said_by = f"{one['role']} {one['name'] or ''}".rstrip()
            click.echo(plain(f"{one['timestamp']}  {one['conversation_id']}  {said_by}"))
            click.echo(plain(f"    {' '.join(str(one['content']).split())[:_WIDTH]}"))
        click.echo("nothing was written")
    if any(report.ingestion.is_refused for report in reports.values()):
        sys.exit(1)


def _print(lake: Lake, path: Path, report: ImportReport) -> None:
    for name, number in report.files.items():
        click.echo(plain(f"{path}: {counted(number, 'file')} of {name}"))
    print_ingestion(lake, path, report.ingestion)
    if report.memories or report.relations or report.memories_repeated:
        facts = counted(report.relations, "fact")
        known = f"{report.memories_repeated:,} already known"
        click.echo(f"  {counted(report.memories, 'new durable memory')}, {facts} of the graph; {known}")
    if report.first and report.last:
        click.echo(f"  from {report.first.isoformat(' ', 'seconds')} to {report.last.isoformat(' ', 'seconds')}")
    for reason, number in sorted(report.skipped.items()):
        if number:
            click.echo(f"  left out: {number:,} {reason}")
    for reason, number in report.unread.items():
        click.echo(plain(f"  {counted(number, 'file')} not read: {reason}"))
    for name in report.unknown:
        click.echo(plain(f"    {name}"))
    for reason, number in report.checks.items():
        click.echo(click.style(f"  check: {number:,} {reason}", bold=True))
    for name in report.files:
        if report.ingestion.conversations:
            click.echo(f"  `memory-pipeline rollback --source import:{name}` withdraws it")
        if report.memories:
            click.echo(f"  `memory-pipeline memories forget --tag import:{name}` revokes the memories")
        click.echo(f"  `memory-pipeline forget --source import:{name}` erases all of it from every file")
