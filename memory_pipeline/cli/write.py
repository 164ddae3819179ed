"""The commands `ingest`, `extract`, `convert` and `capture`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import (
    FILES,
    AgentMemory,
    agent_options,
    cli,
    common,
    given_ids,
    id_option,
    lake_of,
    now_option,
    settings_of,
)
from memory_pipeline.cli.terminal import progress
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.errors import counted
from memory_pipeline.rendering import estimate_lines, plain, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.lake import Lake
    from memory_pipeline.reader.captures import StoredConversation
    from memory_pipeline.steps.dry_run import DryRunLake, Learned
    from memory_pipeline.writer.files import Ingestion


def conversation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add FILES, and the options that name the agent and the audience of conversations that name none."""
    for option in (
        now_option,
        click.option(
            "--group", "group_id", metavar="ID", help="Group of conversations that name no user. Needs --users if new."
        ),
        click.option(
            "--users", multiple=True, metavar="ID", help="Users of conversations that name none; repeat it for each."
        ),
        id_option("--user", "user_id", "User of conversations that name no user."),
        partial(
            agent_options,
            workspace="Workspace of conversations that name none.",
            agent="Agent of conversations that name none.",
        ),
        FILES,
    ):
        command = option(command)
    return command


def ingested(
    lake: Lake,
    agent: AgentMemory,
    files: Sequence[Path],
    now: datetime | None,
    *,
    as_json: bool,
) -> dict[str, Ingestion]:
    """Ingest files and print what became of them; in a dry-run lake, what would become of them."""
    from memory_pipeline.domain.conversations import Admission
    from memory_pipeline.writer.files import ingest_file

    admission = Admission(lake.accepts_from, now or datetime.now(UTC), lake.calendar)
    fields = {"workspace_id": agent.workspace_id, "agent_id": agent.agent_id, **agent.audience_fields(lake)}
    defaults = {name: value for name, value in fields.items() if value is not None}
    results: dict[str, Ingestion] = {}
    for path in files:
        size = path.stat().st_size if path.is_file() else None
        with progress(quiet=as_json) as bar:
            show = partial(bar.show, path.name, total=size)
            results[str(path)] = ingest_file(lake, path, admission, given_ids(), show, defaults)
        if not as_json:
            print_ingestion(lake, path, results[str(path)])
    return results


def print_ingestion(lake: Lake, path: Path, result: Ingestion) -> None:
    """Print what became of the records of a file."""
    files = f", in {counted(result.files, 'journal file')}" if result.files else ""
    click.echo(
        f"{path}: {counted(result.accepted, 'new message')} of {counted(result.conversations, 'conversation')}{files}; "
        f"{result.repeated:,} already known; {counted(result.set_aside, 'record')} quarantined"
    )
    if result.edited:
        click.echo(f"  {counted(result.edited, 'known message')} with a later text")
    if result.not_captured:
        click.echo(f"  {counted(result.not_captured, 'conversation')} not captured: nothing of them was stored")
    if result.recalled:
        click.echo(f"  recalled text dropped from {counted(result.recalled, 'message')}")
    if result.forgotten:
        click.echo(f"  {result.forgotten:,} messages or records dropped: they were erased before")
    if result.expired:
        click.echo(f"  {counted(result.expired, 'message')} dropped: older than the retention of the agent")
    for place in result.left_out:
        click.echo(plain(f"    {place}"))
    for rejection in result.rejections:
        click.echo(f"  quarantined: {rejection.where}: {rejection.reason}", err=True)
    if result.set_aside > len(result.rejections):
        more = result.set_aside - len(result.rejections)
        click.echo(f"  … and {more:,} more, in {lake.storage.locate('journal/quarantine')}", err=True)
    if result.ignored_keys:
        keys = ", ".join(f"{key} ({count:,}×)" for key, count in result.ignored_keys.most_common(8))
        click.echo(f"  unknown keys, ignored: {keys}", err=True)


@cli.command()
@conversation_options
@common
def ingest(files: tuple[Path, ...], agent: AgentMemory, now: datetime | None, as_json: bool) -> None:
    """Append conversations from FILES to the journal.

    A *.json file holds one conversation or a list of them, any other file one conversation per line; - is standard
    input. A conversation:

    \b
    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "c1",
     "user_id": "u17", "tags": ["phone"],        (optional; a group: "users": ["u17", "u18"], "group_id": "team")
     "source": "cron:nightly", "capture": "full",                                (optional; or "read", or "none")
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
    results = ingested(agent.lake(must_exist=False), agent, files, now, as_json=as_json)
    if as_json:
        click.echo(to_json(results))
    if any(result.is_refused for result in results.values()):
        sys.exit(1)


@cli.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say that nothing may change; this command never changes anything.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Conversations to list.")
@common
def capture(file: Path | None, dry_run: bool, limit: int, root: str | None, as_json: bool) -> None:
    """Show what the rules of `capture` keep and drop.

    It counts and lists stored conversations. The rules are those of FILE, a configuration to try, or else of the
    lake's config/workspaces.yaml. They apply to conversations that are written from now on, and to those that are
    not processed yet. `memory-pipeline forget` drops what is stored already; `memory-pipeline config --put FILE`
    puts the rules to use.
    """
    from collections import Counter

    from memory_pipeline.domain.capture import Capture
    from memory_pipeline.lake.lake import configuration_in
    from memory_pipeline.reader.captures import stored_conversations

    del dry_run  # for those who want to be sure
    lake = lake_of(settings_of(root))
    configuration = lake.configuration() if file is None else configuration_in(file)
    found = stored_conversations(lake, configuration)
    dropped = [one for one in found if one.capture is not Capture.FULL]
    totals = {mode: [one for one in found if one.capture is mode] for mode in Capture}
    if as_json:
        fitting = Counter(str(one.rule) for one in dropped)
        click.echo(
            to_json(
                {
                    **{mode.value: _totals(ones) for mode, ones in totals.items()},
                    "rules": fitting,
                    "dropped": [
                        {
                            "workspace_id": one.scope.workspace_id,
                            "agent_id": one.scope.agent_id,
                            "user": one.scope.identity or None,
                            "conversation_id": one.talk.conversation_id,
                            "tags": one.talk.tags,
                            "source": one.talk.source,
                            "messages": one.messages,
                            "rule": str(one.rule),
                        }
                        for one in dropped[:limit]
                    ],
                }
            )
        )
        return
    for mode, ones in totals.items():
        numbers = _totals(ones)
        click.echo(f"{mode:5} {numbers['conversations']:>9,} conversations {numbers['messages']:>11,} messages")
    for one in dropped[:limit]:
        click.echo(
            plain(
                f"  {one.scope}  {one.talk.conversation_id}  {counted(one.messages, 'message')}  by the rule {one.rule}"
            )
        )
    if len(dropped) > limit:
        click.echo(f"  … and {len(dropped) - limit:,} more; list them with --limit {len(dropped)}")


def _totals(found: Sequence[StoredConversation]) -> dict[str, int]:
    conversations = {(one.scope, one.talk.conversation_id) for one in found}
    return {"conversations": len(conversations), "messages": sum(one.messages for one in found)}


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


#: The fields that JSON has.
_OF_FACTS = (
    "kind", "content", "speaker", "entities", "importance", "confidence", "event_at", "mentioned_at", "message_ids",
)  # fmt: skip
_OF_TRIPLES = ("verb", "subject", "predicate", "object", "confidence", "message_ids")


@cli.command()
@click.option("--dry-run", is_flag=True, help="Say that nothing may change; this command never changes anything.")
@click.option("--call-model", is_flag=True, help="Call the configured model and show what it finds. This costs money.")
@conversation_options
@common
def extract(
    files: tuple[Path, ...],
    agent: AgentMemory,
    now: datetime | None,
    dry_run: bool,
    call_model: bool,
    as_json: bool,
) -> None:
    """Show what would be learned from FILES of conversations. Writes nothing.

    FILES are in the format of `memory-pipeline ingest`. For each conversation, the output lists the facts, the changes
    of the graph (triples) and the durable memories that `ingest` and `run` would make of it, in the lake as it is. It
    also lists records that would be quarantined, with the reasons, and conversations that would not be captured.

    Rules find the facts, unless the lake's config/workspaces.yaml names a model for extraction. Then the output is an
    estimate of what its calls cost; with --call-model it is also what the model finds. Its answers are not stored, so
    that a run asks again. Summaries are not estimated: see `memory-pipeline run --estimate`.
    """
    from memory_pipeline.models.factory import configured_models
    from memory_pipeline.steps.dry_run import learn

    del dry_run  # for those who want to be sure
    lake, results = _dry_run(agent, files, now, as_json=as_json)
    learned, expected = _expected(lake)
    if expected and call_model:
        lake, _ = _dry_run(agent, files, now, as_json=True)  # the other one holds placeholders
        with progress(quiet=as_json) as bar:
            bar.show("model")
            models = configured_models(lake.configuration(), None, lake.calendar.timezone, lambda: datetime.now(UTC))
            learned = learn(lake, models.extractor)
    is_known = call_model or not expected
    if as_json:
        click.echo(to_json({"files": results, "estimate": expected, **(_record(learned) if is_known else {})}))
        return
    for line in _lines(learned) if is_known else ():
        click.echo(plain(line))
    if expected:
        click.echo("\n".join(estimate_lines(expected)))
    if not is_known:
        click.echo("a model would extract the facts; --call-model calls it and shows them")
    click.echo("nothing was written")


def _dry_run(
    agent: AgentMemory, files: Sequence[Path], now: datetime | None, *, as_json: bool
) -> tuple[DryRunLake, dict[str, Ingestion]]:
    from memory_pipeline.steps.dry_run import DryRunLake

    settings = settings_of(agent.root)
    lake = DryRunLake(settings.root, settings.timezone, settings.start)
    return lake, ingested(lake, agent, files, now, as_json=as_json)


def _expected(lake: DryRunLake) -> tuple[Learned, list[dict[str, Any]]]:
    """Return what rules find, and the expected calls of a model. Where a model is expected, facts are placeholders."""
    from memory_pipeline.models.factory import default_models, dry_run_models
    from memory_pipeline.steps.dry_run import learn

    configuration, zone = lake.configuration(), lake.calendar.timezone
    if not configuration.uses_models:
        return learn(lake, default_models(zone).extractor), []
    models, executor = dry_run_models(configuration, lake.calls, zone, lambda: datetime.now(UTC))
    return learn(lake, models.extractor), executor.expected_records()


def _record(learned: Learned) -> dict[str, Any]:
    def fields(one: object, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(one, name) for name in names}

    triples = [(fact, one) for fact in learned.facts for one in fact.operations]
    return {
        "facts": [{**_owner(fact), **fields(fact, _OF_FACTS)} for fact in learned.facts],
        "triples": [{**_owner(fact), **fields(one, _OF_TRIPLES)} for fact, one in triples],
        "memories": [
            {**_owner(event), **event.changes.to_record(), "message_ids": event.evidence} for event in learned.events
        ],
        "expired": learned.expired,
    }


def _owner(one: Fact | MemoryEvent) -> dict[str, Any]:
    scope = one.scope
    ids = {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id, "identity": scope.identity}
    return {**ids, "conversation_id": one.conversation_id}


def _lines(learned: Learned) -> Iterator[str]:
    events = sorted(learned.events, key=_conversation)
    memories = {key: list(own) for key, own in groupby(events, key=_conversation)}
    for key, own in groupby(learned.facts, key=_conversation):
        facts = list(own)
        yield f"{facts[0].scope}, conversation {facts[0].conversation_id}"
        for fact in facts:
            if fact.kind is not FactKind.TURN:
                yield f"  fact    {fact.kind:<12} {_one_line(fact.content)}"
        for one in (one for fact in facts for one in fact.operations):
            yield f"  triple  {one.verb.lower():<12} {one.subject} | {one.predicate} | {one.object}"
        for event in memories.get(key, ()):
            yield f"  memory  {event.changes.kind:<12} {_one_line(event.changes.content or '')}"
    turns = sum(fact.kind is FactKind.TURN for fact in learned.facts)
    triples = sum(len(fact.operations) for fact in learned.facts)
    memory = counted(len(learned.events), "durable memory")
    found = f"{counted(len(learned.facts) - turns, 'fact')}, {counted(triples, 'triple')}, {memory}"
    yield f"{found}; {counted(turns, 'message')} searchable word for word"
    if learned.expired:
        yield f"{counted(learned.expired, 'message')} dropped: older than the retention of the agent"


def _conversation(one: Fact | MemoryEvent) -> tuple[Any, ...]:
    return one.scope.ids, one.conversation_id


def _one_line(text: str) -> str:
    return " ".join(text.split())
