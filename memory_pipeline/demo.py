"""The tour of `memory-pipeline demo`: run the pipeline on the sample year, and show the memory."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING

import click

from memory_pipeline.client.memory import Memory
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.memories.record import shortened
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import counted
from memory_pipeline.in_process import run_all
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.models.factory import default_models
from memory_pipeline.rendering import WITHOUT_A_MODEL, to_json
from memory_pipeline.sample import AFTERWARDS, AGENT, HISTORY, WORKSPACE
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline.steps.results import RunResult
from memory_pipeline.writer.files import ingest_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.reader import Hit
    from memory_pipeline.reader.lineage import Node
    from memory_pipeline.settings import Settings

_QUESTIONS = {
    Grain.WORKING: "Who is allergic to hazelnuts?",
    Grain.WEEKLY: "When was the new oven installed?",
    Grain.MONTHLY: "Who moved to another flat?",
    Grain.YEARLY: "Which award did they win?",
}
_SUBJECT = "Ruben"
#: Facts whose earlier values are shown: subject and predicate.
_CHANGED = (("Ruben", "address"), ("Elise", "works_at"))
_PROMPT = "May Clara's cake have hazelnuts?"
#: The users, and a question that each of them answers in a conversation of their own.
_USERS = ("nadia", "ruben", "milo")
_PRIVATE = "Where is my spare key?"
#: A secret of the first user; and a question whose answer only the group of the first two knows.
_PIN, _ASKED_FOR = "7305", "my bank card PIN"
_SHARED, _AMONG_OWNERS = "What do we offer Saskia?", "ten percent of the bakery"
#: Maximum lines of the hot index, tokens of the context, and characters of a line.
_HOT_LINES, _TOKENS, _WIDTH = 6, 200, 115
_EVERYTHING = 100


#: Tables that a read changes.
_OF_READS = frozenset(["access_log", "read_receipts"])


def show_demo(settings: Settings, *, as_json: bool) -> None:
    """Ingest the sample, run the pipeline, and print the tour or one JSON object. A second run changes nothing."""
    say: Callable[[str], None] = (lambda _: None) if as_json else click.echo
    memory = Memory(settings.root, workspace_id=WORKSPACE, agent_id=AGENT)
    shown: dict[str, object] = {"ingested": _build(settings, memory, say)}

    say(f"\n3. SEARCH what was said, or its summaries (as of {AFTERWARDS:%d %B %Y})")
    found = {
        grain: memory.search(query, limit=1, grain=grain, now=AFTERWARDS)[:1] for grain, query in _QUESTIONS.items()
    }
    for grain, query in _QUESTIONS.items():
        argument = "" if grain is Grain.WORKING else f', grain="{grain}"'
        for hit in found[grain]:
            lines = hit.content.splitlines()
            place = hit.date if grain is Grain.WORKING else f"{hit.period}, the best of {len(lines)} lines"
            say(f'   memory.search("{query}"{argument})   # {place}')
            _wrapped(lines[_best(lines, query)], say)

    say("\n4. LINEAGE: that line of the yearly summary, down to the message it comes from")
    walk = _walk(memory, found[Grain.YEARLY])
    if walk is not None:
        steps = [*_first_sources(walk)]
        say(f"   {' ← '.join(step.period for step in steps)}, messages of that hour:")
        _wrapped(" ".join(steps[-1].content.split()), say)

    say(f"\n5. FACTS about {_SUBJECT}, and since when; what ended, and what replaced it")
    facts = memory.graph.facts_about(_SUBJECT)
    history = {changed: memory.graph.history(*changed) for changed in _CHANGED}
    say(f'   memory.graph.facts_about("{_SUBJECT}")')
    say("\n".join(f"      {fact.line}" for fact in facts))
    for (subject, predicate), versions in history.items():
        say(f'   memory.graph.history("{subject}", "{predicate}")')
        say("\n".join(f"      {fact.line}" for fact in versions))

    hot = memory.reader.hot_index()
    say(f"\n6. THE HOT INDEX: durable memories for each system prompt ({len(hot)} lines, {hot.tokens} tokens)")
    say("\n".join(f"   {shortened(line, _WIDTH)}" for line in str(hot).splitlines()[:_HOT_LINES]))

    say("\n7. A CONTEXT BLOCK for a prompt")
    say(f'   memory.context("{_PROMPT}", max_tokens={_TOKENS})')
    context = memory.context(_PROMPT, _TOKENS, now=AFTERWARDS)
    say("\n".join(f"      {shortened(line, _WIDTH)}" for line in str(context).splitlines()))

    say("\n8. USERS of one agent stay apart:")
    say(f"   {', '.join(_USERS)} = (Memory(…, user_id=name) for name in {_USERS})")
    users = {user: Memory(settings.root, workspace_id=WORKSPACE, agent_id=AGENT, user_id=user) for user in _USERS}
    shown |= {"found": found, "walk": walk, "facts": facts, "history": [*history.values()], "hot_index": hot}
    shown |= {"context": context, "users": _users(users, say)}

    if as_json:
        click.echo(to_json(shown))
        return
    agent = f"--root {settings.root} --workspace {WORKSPACE} --agent {AGENT}"
    scope = f"{agent} --now {AFTERWARDS:%Y-%m-%d}"
    say(f"""
Next:
   .venv/bin/memory-pipeline search "sourdough starter" {scope}
   .venv/bin/memory-pipeline memories hot {agent}
   .venv/bin/memory-pipeline sql memory_growth --run --root {settings.root}
   make dev                               open this lake in Dagster on http://localhost:3000""")


def _build(settings: Settings, memory: Memory, say: Callable[[str], None]) -> object:
    """Ingest the sample and run the pipeline; return the result of the ingestion."""
    lake = memory.lake
    models = default_models(lake.calendar.timezone)
    started = time.monotonic()
    before = {name: lake.tables.version(spec) for name, spec in TABLES.items() if name not in _OF_READS}
    say(f"1. INGEST a year of two bakers, Nadia and Ruben, with their agent Juniper, into {lake.storage.uri}")
    result = ingest_file(lake, HISTORY, Admission(lake.accepts_from, AFTERWARDS, lake.calendar))
    known = f"; {result.repeated} already known" if result.repeated else ""
    say(f"   {result.accepted} new messages of {result.conversations} conversations{known}")

    say("\n2. RUN: facts, then summaries, each grain from the one before")
    for event in run_all(lake, settings, models, AFTERWARDS):
        if isinstance(event, RunResult):
            what = "messages and facts" if event.grain == Grain.WORKING else "summaries"
            say(f"   {event.grain:<13} {event.rows:>5,} {what} of {counted(len(event.periods), 'period')}")
        elif isinstance(event, ConsolidationReport):
            changed = sum(day.changed for day in event.nights)
            say(f"   consolidation {changed:>5,} changes of durable memories in {counted(len(event.nights), 'day')}")
    after = {name: lake.tables.version(spec) for name, spec in TABLES.items() if name not in _OF_READS}
    unchanged = " Nothing changed: the lake was up to date." if before == after else ""
    say(f"   done in {time.monotonic() - started:.1f} s, without a model or a network.{unchanged}")
    say(f"   {WITHOUT_A_MODEL}")
    return result


def _users(users: dict[str, Memory], say: Callable[[str], None]) -> dict[str, object]:
    """Ask the same as each user; return what they found."""
    own = {user: memory.search(_PRIVATE, limit=1, now=AFTERWARDS)[:1] for user, memory in users.items()}
    pins = {user: _containing(memory, _ASKED_FOR, _PIN) for user, memory in users.items()}
    shared = {user: _containing(memory, _SHARED, _AMONG_OWNERS) for user, memory in users.items()}
    for user in users:
        for hit in own[user]:
            call = f'{user}.search("{_PRIVATE}")'
            say(f"   {call:<39} # {hit.content}")
    say(f"   Nadia's PIN is {_PIN}. How many of the first {_EVERYTHING} results for it contain it:")
    say(f"      {', '.join(f'{user} {count}' for user, count in pins.items())}")
    say("   Nadia and Ruben are a group. How many results contain what they decided about Saskia there:")
    say(f"      {', '.join(f'{user} {count}' for user, count in shared.items())}")
    return {"own": own, "pins": pins, "shared": shared}


def _containing(memory: Memory, query: str, text: str) -> int:
    """Return how many results of a search contain a text."""
    hits = memory.search(f"{query} {text}", limit=_EVERYTHING, now=AFTERWARDS)
    return sum(text in hit.content for hit in hits)


def _walk(memory: Memory, years: list[Hit]) -> Node | None:
    """Expand the line of the newest year that best answers its question, down to the messages."""
    if not years:
        return None
    return memory.reader.expand(f"{years[0].id}#{_best(years[0].content.splitlines(), _QUESTIONS[Grain.YEARLY])}")


def _first_sources(node: Node) -> Iterator[Node]:
    """Yield a node, its first source, the first source of that, and so on."""
    yield node
    for source in node.sources[:1]:
        yield from _first_sources(source)


def _wrapped(text: str, say: Callable[[str], None]) -> None:
    indent = " " * 6
    say(textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent))


def _best(lines: list[str], query: str) -> int:
    """Return the position of the line that shares most words with a query, else the first."""
    words = set(terms(query))
    return max(range(len(lines)), key=lambda place: (len(words & set(terms(lines[place]))), -place))
