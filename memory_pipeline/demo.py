"""The tour of `memory-pipeline demo`: run the pipeline on the sample year, and show the memory."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from memory_pipeline.defs.in_process import run_all
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.memories.record import shortened
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.rendering import hit_lines, to_json
from memory_pipeline.sample import AFTERWARDS, AGENT, HISTORY, WORKSPACE
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.results import RunResult
from memory_pipeline.writer.files import ingest_file

if TYPE_CHECKING:
    from memory_pipeline.reader import Hit
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.settings import Settings

_QUESTIONS = {
    Grain.WORKING: "Who is allergic to hazelnuts?",
    Grain.DAILY: "Who signed the loan?",
    Grain.WEEKLY: "the new oven",
    Grain.MONTHLY: "Who moved to another flat?",
    Grain.QUARTERLY: "Where is the second shop?",
    Grain.YEARLY: "Which award did they win?",
}
#: Maximum lines of the hot index, changes of consolidation, and characters of a line.
_HOT_LINES, _CHANGES, _WIDTH = 8, 3, 115
_MOMENT = timedelta(microseconds=1)
_SUBJECT = "Ruben"


def show_demo(settings: Settings, *, as_json: bool) -> None:
    """Ingest the sample, run the pipeline, and print the tour or one JSON object. A second run changes nothing."""
    say = (lambda _="": None) if as_json else click.echo
    lake = Lake(settings.root, settings.timezone, settings.start)
    models = default_models(lake.calendar.timezone)
    started = time.monotonic()
    before = {name: lake.tables.version(spec) for name, spec in TABLES.items()}

    say(f"1. Ingest: a year of conversations between Nadia, Ruben and their agent Juniper, into {lake.storage.uri}")
    result = ingest_file(lake, HISTORY, Admission(lake.accepts_from, AFTERWARDS, lake.calendar))
    known = f"; {result.repeated} already known" if result.repeated else ""
    count = f"{result.accepted} new messages of {result.conversations} conversations"
    say(f"   {count}, in {result.files} journal files{known}\n")

    say("2. Run: facts and summaries, grain by grain")
    for event in run_all(lake, settings, models, AFTERWARDS):
        if isinstance(event, RunResult):
            say(f"   {event.grain:<13} {len(event.periods):>4} periods, {event.rows:>5} rows, {event.changed} changed")
        elif isinstance(event, ConsolidationReport):
            changed = sum(day.changed for day in event.nights)
            say(f"   consolidation {len(event.nights):>4} days, {changed} durable memories changed")
    after = {name: lake.tables.version(spec) for name, spec in TABLES.items()}
    unchanged = " Nothing changed: the lake was up to date." if before == after else ""
    say(f"   done in {time.monotonic() - started:.1f} s.{unchanged}\n")

    say(f"3. Search, as of {AFTERWARDS:%d %B %Y}")
    reader = MemoryReader.open(settings.root, workspace_id=WORKSPACE, agent_id=AGENT)
    found: dict[Grain, list[Hit]] = {}
    for grain, question in _QUESTIONS.items():
        found[grain] = reader.search_memory(grain, max_results=1, maximum_days_ago=400, query=question, now=AFTERWARDS)
        say(f"\n   {grain}: {question}")
        for line in hit_lines(found[grain], question, lines=3):
            say(f"   {line}")

    say("\n4. Expand: a line of the yearly summary, down to the message it comes from")
    walk = _walk(reader, found[Grain.YEARLY])
    say("\n".join(f"   {line}" for line in walk.lines()) if walk else "   (no yearly summary)")

    say(f"\n5. Graph: facts about {_SUBJECT}, and since when they hold")
    facts = reader.graph.facts_about(_SUBJECT)
    say("\n".join(f"   {fact.line}" for fact in facts))

    say("\n6. Durable memories: the hot index, for a system prompt")
    hot = reader.hot_index()
    say("\n".join(f"   {shortened(line, _WIDTH)}" for line in str(hot).splitlines()[:_HOT_LINES]))
    if len(hot) > _HOT_LINES:
        say(f"   … {len(hot)} lines, {hot.tokens} tokens in all")
    say("\n   and the latest changes of consolidation, with reasons")
    changes = _last_changes(reader, lake)
    for change in changes:
        say(f"   {change['night']} {change['verb']}: {change['title']}\n     {change['reason']}")

    if as_json:
        shown = {"ingested": result, "found": found, "walk": walk, "facts": facts, "hot_index": hot, "nights": changes}
        click.echo(to_json(shown))
        return
    agent = f"--root {settings.root} --workspace {WORKSPACE} --agent {AGENT}"
    scope = f"{agent} --now {AFTERWARDS:%Y-%m-%d}"
    say(f"""
Next:
   .venv/bin/memory-pipeline search "sourdough starter" {scope}
   .venv/bin/memory-pipeline inject "What may Ruben not eat?" {scope}
   .venv/bin/memory-pipeline memories hot {agent}
   .venv/bin/memory-pipeline status --root {settings.root} --now {AFTERWARDS:%Y-%m-%d}
   .venv/bin/memory-pipeline sql memory_growth --run --root {settings.root}
   make dev                               open this lake in Dagster on http://localhost:3000
""")


def _last_changes(reader: MemoryReader, lake: Lake) -> list[dict[str, str]]:
    """Return the latest changes of consolidation, newest first."""
    found = [
        {
            "night": str(lake.calendar.day_of(event.event_at - _MOMENT)),
            "verb": event.verb.value,
            "title": memory.title,
            "reason": event.reason or "",
        }
        for memory in reader.memories.list(status=None)
        for event in reader.memories.explain(memory.id)
        if event.is_consolidation and event.memory_id == memory.id
    ]
    return sorted(found, key=lambda each: each["night"], reverse=True)[:_CHANGES]


def _walk(reader: MemoryReader, years: list[Hit]) -> Node | None:
    """Expand the line of the newest year that best answers its question, down to the messages."""
    if not years:
        return None
    question_terms = set(terms(_QUESTIONS[Grain.YEARLY]))
    lines = years[0].content.splitlines()
    best = max(range(len(lines)), key=lambda place: (len(question_terms & set(terms(lines[place]))), -place))
    return reader.expand(f"{years[0].id}#{best}")
