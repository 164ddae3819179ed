"""The command `extract`, which shows what would be learned from conversations."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from memory_pipeline.cli.common import AgentMemory, cli, common, settings_of
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.write import conversation_options, ingested
from memory_pipeline.domain.facts import FactKind
from memory_pipeline.errors import counted
from memory_pipeline.rendering import estimate_lines, plain, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from memory_pipeline.domain.facts import Fact
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.steps.dry_run import DryRunLake, Learned
    from memory_pipeline.writer.files import Ingestion


@cli.command()
@click.option("--dry-run", is_flag=True, help="Say that nothing may change; this command never changes anything.")
@click.option("--call-model", is_flag=True, help="Call the configured model and show what it finds. This costs money.")
@conversation_options
@common
def extract(
    files: tuple[Path, ...],
    agent: AgentMemory,
    given: dict[str, str],
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
    lake, results = _dry_run(agent, given, files, now, as_json=as_json)
    learned, expected = _expected(lake)
    if expected and call_model:
        lake, _ = _dry_run(agent, given, files, now, as_json=True)  # the other one holds placeholders
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
    agent: AgentMemory, given: dict[str, str], files: Sequence[Path], now: datetime | None, *, as_json: bool
) -> tuple[DryRunLake, dict[str, Ingestion]]:
    from memory_pipeline.steps.dry_run import DryRunLake

    settings = settings_of(agent.root)
    lake = DryRunLake(settings.root, settings.timezone, settings.start)
    return lake, ingested(lake, agent, given, files, now, as_json=as_json)


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
    return {
        "facts": [
            {
                **_owner(fact),
                "kind": fact.kind,
                "content": fact.content,
                "speaker": fact.speaker,
                "entities": fact.entities,
                "importance": fact.importance,
                "confidence": fact.confidence,
                "event_at": fact.event_at,
                "mentioned_at": fact.mentioned_at,
                "message_ids": fact.message_ids,
            }
            for fact in learned.facts
        ],
        "triples": [
            {
                **_owner(fact),
                "verb": one.verb,
                "subject": one.subject,
                "predicate": one.predicate,
                "object": one.object,
                "confidence": one.confidence,
                "message_ids": one.message_ids,
            }
            for fact in learned.facts
            for one in fact.operations
        ],
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
