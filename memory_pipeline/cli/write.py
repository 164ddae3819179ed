"""The commands `ingest` and `convert`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import FILES, cli, common, lake_of, now_option, settings_of
from memory_pipeline.errors import counted
from memory_pipeline.rendering import to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@cli.command()
@FILES
@click.option("--workspace", "workspace_id", help="Workspace of conversations that name none.")
@click.option("--agent", "agent_id", help="Agent of conversations that name none.")
@click.option("--user", "user_id", metavar="ID", help="User of conversations that name no user.")
@now_option
@common
def ingest(
    files: tuple[Path, ...],
    workspace_id: str | None,
    agent_id: str | None,
    user_id: str | None,
    now: datetime | None,
    root: str | None,
    as_json: bool,
) -> None:
    """Append conversations from FILES to the journal.

    A *.json file holds one conversation or a list of them, any other file one conversation per line. A conversation:

    \b
    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "c1",
     "user_id": "u17", "tags": ["phone"],        (optional; a group: "users": ["u17", "u18"], "group_id": "team")
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}                     (id, name: optional)

    It becomes memory of its user or group, or else of the users that its messages name as "user_id"; without users, of
    the agent itself. Roles: user, assistant, system, tool. Times need a time zone. Invalid records are moved to the
    lake's journal/quarantine with a reason, and ingestion continues. Ingesting a file twice adds no duplicates.

    \b
    Exit code: 0 each file has records that were accepted or already known
               1 all records of a file were quarantined
               2 invalid arguments, or a file cannot be read
    """
    from memory_pipeline.domain.conversations import Admission
    from memory_pipeline.writer.files import ingest_file

    settings = settings_of(root)
    lake = lake_of(settings, must_exist=False)
    admission = Admission(lake.accepts_from, now or datetime.now(UTC), lake.calendar)
    defaults = {"workspace_id": workspace_id, "agent_id": agent_id, "user_id": user_id}
    scope = {name: value for name, value in defaults.items() if value}
    results = {}
    for path in files:
        result = results[str(path)] = ingest_file(lake, path, admission, scope, _report_batches(path))
        if as_json:
            continue
        click.echo(
            f"{path}: {counted(result.messages, 'new message')} of {counted(result.conversations, 'conversation')}, in "
            f"{counted(result.files, 'journal file')}; {result.known:,} already known; "
            f"{counted(result.rejections, 'record')} quarantined"
        )
        if result.recalled:
            click.echo(f"  recalled text dropped from {counted(result.recalled, 'message')}")
        if result.forgotten:
            click.echo(f"  {result.forgotten:,} messages or records dropped: they were erased before")
        for rejection in result.rejected:
            click.echo(f"  quarantined: {rejection.where}: {rejection.reason}", err=True)
        if result.rejections > len(result.rejected):
            more = result.rejections - len(result.rejected)
            click.echo(f"  … and {more:,} more, in {lake.storage.locate('journal/quarantine')}", err=True)
        if result.ignored_keys:
            keys = ", ".join(f"{key} ({count:,}×)" for key, count in result.ignored_keys.most_common(8))
            click.echo(f"  unknown keys, ignored: {keys}", err=True)
    if as_json:
        click.echo(to_json(results))
    if any(result.is_refused for result in results.values()):
        sys.exit(1)


def _report_batches(path: Path) -> Callable[[Any], None]:
    return lambda result: click.echo(f"{path}: {counted(result.messages, 'message')} …", err=True)


@cli.group()
def convert() -> None:
    """Convert other formats to conversations. Prints JSONL."""


@convert.command()
@FILES
@click.option(
    "--workspace", "workspace_id", default="locomo", show_default=True, help="Workspace of the conversations."
)
@click.option("--agent", "agent_id", help="Agent of the conversations. [default: the file's name]")
def locomo(files: tuple[Path, ...], workspace_id: str, agent_id: str | None) -> None:
    """Convert FILES in LoCoMo's format (Maharana et al., ACL 2024) to JSONL.

    Both speakers become users with their names. A turn's time is its session's time plus a minute per earlier turn.
    """
    import json

    from memory_pipeline.evaluation.formats import read_locomo

    for path in files:
        for conversation in read_locomo(path, workspace_id, agent_id):
            click.echo(json.dumps(conversation, ensure_ascii=False))
