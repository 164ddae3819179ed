"""The journal of a simulated year of one agent, with a case for each task of consolidation.

Conversations give instructions; the agent's own notes give the rest. Days begin in Lisbon.
"""

from __future__ import annotations

import os
import random
import signal
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.tables import handles
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.consolidation import consolidate
from memory_pipeline.steps.consolidation.days import days_between
from memory_pipeline_tests.building import ACME, NOW, START, conversation, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline.domain.periods import Period

ZONE = "Europe/Lisbon"
FIRST, LAST = date(2024, 1, 3), date(2024, 12, 31)

#: Standing instructions by day of the year; none is revoked.
INSTRUCTIONS = {
    date(2024, 1, 3): "Please always answer in English.",
    date(2024, 1, 4): "Never send an invoice without a purchase order.",
    date(2024, 6, 30): "Always greet the night shift by name.",
}
#: Paraphrased duplicates: pairs that are merged, each with a sentence that only the older one has.
DOUBLES = [
    (
        "The printer on the second floor beside the stairs jams quite often on rainy mornings when the paper is damp.",
        "The printer on the second floor beside the stairs jams often on rainy mornings when the paper is damp. Look!",
    ),
    (
        "The north gate of the old yard closes at dusk in winter when the last tram has left the depot.",
        "The north gate of the old yard closes at dusk in the winter when the last tram has left the depot. Ask!",
    ),
]
#: Values of single-valued predicates: the last one is valid.
CITIES = ["Porto", "Lisbon", "Coimbra", "Faro"]
SNAPSHOT = "The queue holds {} tickets at the moment."
OBSERVED = "It seems that Ruben usually takes the early tram."
FACTS = [
    "Mira repairs bicycles.", "Paulo designs lamps.", "Ines audits ledgers.", "Tom paints fences.",
    "Rui delivers parcels.", "Eva cleans windows.", "Lea guards archives.", "Max waters orchids.", "Ana sorts letters.",
    "Leo packs boxes.", "Zoe grinds lenses.", "Ivo tunes organs.", "Nuno welds pipes.", "Gil maps roads.",
    "Sara roasts coffee.", "Rita builds violins.", "Hugo inspects bridges.", "Luis polishes stairs.",
    "Olga frames mirrors.", "Yara flies kites.",
]  # fmt: skip
REVOKED = "Call the help desk before every restart."


def noted(
    at: datetime, verb: MemoryVerb = MemoryVerb.REMEMBER, scope: Scope = ACME, memory_id: str | None = None, **said: Any
) -> MemoryEvent:
    """Return an event by the agent itself."""
    return MemoryEvent.of(scope, verb, at, Changes.of(said), memory_id=memory_id, received_at=at)


def at(day: date, hour: int = 9, minute: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)


def year_of(seed: int = 7, scope: Scope = ACME) -> list[MemoryEvent]:
    """Return the agent's events of the year."""
    rng = random.Random(seed)
    events = [
        noted(at(day, 10), scope=scope, kind="instruction", content=text)
        for day, text in INSTRUCTIONS.items()
        if not text.startswith("Please")  # that one is said in a conversation
    ]
    for number, (newer, older) in enumerate(DOUBLES):
        day = date(2024, 2 + 3 * number, 6)
        events.append(noted(at(day), scope=scope, content=older))
        events.append(noted(at(day + timedelta(days=9)), scope=scope, content=newer))
    for number, city in enumerate(CITIES):
        day = date(2024, 1 + 3 * number, 20)
        triple: dict[str, Any] = {"subject": "Anna", "predicate": "lives_in", "object": city}
        events.append(noted(at(day), scope=scope, content=f"Anna lives in {city}.", **triple))
    # A fact is more certain than an observation, however new the observation is.
    rumour: dict[str, Any] = {"subject": "anna", "predicate": "lives_in", "object": "Madeira", "kind": "observation"}
    events.append(noted(at(date(2024, 11, 5)), scope=scope, content="Anna seems to live in Madeira.", **rumour))
    for month in range(1, 13):
        day = date(2024, month, rng.randint(1, 28))
        content = SNAPSHOT.format(rng.randint(100, 900) + 1_000 * month)
        events.append(noted(at(day, 23, 30), scope=scope, content=content, is_point_in_time=True))
    revoked = noted(at(date(2024, 3, 3)), scope=scope, kind="instruction", content=REVOKED)
    events += [revoked, noted(at(date(2024, 4, 4)), MemoryVerb.FORGET, scope, revoked.memory_id)]
    for number, theme in enumerate(("dark", "light")):
        value: dict[str, Any] = {"user_id": "anna", "key": "theme", "value": f'"{theme}"', "kind": "preference"}
        events.append(noted(at(date(2024, 2, 2 + number)), scope=scope, content=f"Theme: {theme}.", **value))
    facts = [
        noted(
            at(FIRST + timedelta(days=rng.randrange(330)), rng.randrange(7, 20), number),
            scope=scope,
            content=text,
            kind=rng.choice(["fact", "decision", "procedure", "plan"]),
            importance=rng.choice([0.15, 0.3, 0.5, 0.8]),
        )
        for number, text in enumerate(FACTS)
    ]
    events += facts
    for fact in rng.sample(facts, 8):
        for _ in range(rng.randint(1, 3)):
            when = fact.event_at + timedelta(days=rng.randint(1, 40), minutes=rng.randint(1, 50))
            verb = rng.choice([MemoryVerb.ACCESS, MemoryVerb.BOOST, MemoryVerb.REDUCE, MemoryVerb.CONFIRM])
            events.append(noted(min(when, at(LAST)), verb, scope, fact.memory_id))
    return events


def fill(lake: Lake, events: list[MemoryEvent], scope: Scope = ACME) -> None:
    """Write a year of events and conversations into the journal."""
    lake.ensure()
    observed = [at(date(2024, 5, 2)), at(date(2024, 5, 20)), at(date(2024, 6, 11))]
    seen = Changes.of({"content": OBSERVED, "kind": "observation"})
    events = events + [
        MemoryEvent.of(scope, MemoryVerb.REMEMBER, when, seen, conversation_id=f"c{when:%m%d}", received_at=when)
        for when in observed
    ]
    lake.journal.append(events)
    said = {"Please always answer in English.": ["2024-01-03T09:00"]}
    write(
        lake,
        *(
            conversation(text, at=when, scope=scope, conversation_id=f"c{when[:10]}")
            for text, times in said.items()
            for when in times
        ),
        now=NOW,
    )


def nights(lake: Lake, first: date, last: date) -> list[Period]:
    return days_between(lake, first, last, NOW)


def keep_until_killed(root: str, commits: int) -> None:
    """Consolidate all days with one agent per batch, and die by SIGKILL after a number of commits and files."""
    left = commits

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any, **named: Any) -> Any:
            nonlocal left
            result = write(*args, **named)
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return done

    handles.write_deltalake = counted(handles.write_deltalake)  # type: ignore[attr-defined]
    Storage.write = counted(Storage.write)  # type: ignore[method-assign]
    consolidate._BATCH_AGENTS = 1
    lake = Lake(root)
    consolidate.consolidate(lake, default_models(lake.calendar.timezone), nights(lake, FIRST, LAST), START)
