"""The course of a soak: messages, operations, kills and faults over time. It depends on the seed alone.

Simulated time advances in ticks: some hours of each day, the last one at night. Real time decides the number of ticks,
and the work that a kill or a fault interrupts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Admission, Message, Scope, read_messages
from memory_pipeline.domain.erasure import Forgotten, Subject, Tombstone
from memory_pipeline_tests.harnesses.soak import sayings

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Of the soak's own tombstones; the lake's have salts of their own.
_SALT = "0" * 32
#: A Saturday: a week closes in the second night, so that a short soak sees it too, and a month in the fifth.
FIRST = datetime(2024, 1, 27, tzinfo=UTC)
#: The hours since the start of the day of each tick; the last one is in the night after the day.
TIMES = (8, 10, 12, 15, 18, 21, 26)
#: What the workspaces keep: `keeper` everything, `shop` hours of two days, days of eight, weeks of two.
CONFIGURATION = b"workspaces: {shop: {retention: {plan: free, daily: 8d, weekly: 2w}}}\n"
#: An agent that is forgotten now and then.
_PASSING = Scope("keeper", "passing")
#: What is late by more than that is late for good in the shop: its day may have expired.
_LATE_IN_SHOP, _LATE = timedelta(hours=20), timedelta(days=12)
#: Of so many ticks the last is one at which all rests and is looked at.
LOOK_EVERY = 28
_FORGET_EVERY = 9
_KINDS = (("500", 0.02), ("503", 0.03), ("reset", 0.02), ("lost", 0.02), ("half", 0.02), ("slow", 0.02))


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a writer.

    Attributes:
        key: its name: ``w1/t13/a2`` is the third thing that the second writer does at tick 13.
        kind: ``talk``, ``compact``, ``refused``, ``garbage``, ``edits``, ``memories``, ``later`` or ``echo``.
        scope: whose memory.
        now: when it is written.
        body: what; a conversation or a list of changes.
        words: those that searches find it by.
        subject: the number of who or what it is about and will be forgotten.
        is_dropped: whether a writer that was killed at it, or failed, lets it be. Nobody knows then whether it was
            written.
        is_looked_for: whether the writer looks for it at once.
    """

    key: str
    kind: str
    scope: Scope
    now: datetime
    body: Any
    words: tuple[str, ...] = ()
    subject: int | None = None
    is_dropped: bool = False
    is_looked_for: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that runs as a process.

    Attributes:
        lane: operations of one lane follow each other.
        kind: a command: ``run``, ``upkeep``, ``expire``, ``forget``, ``check``; ``steps`` is `run` without Dagster, and
            ``process`` is `run` in a process of its own.
        kills: after how many seconds it is killed, started again, killed again, and so on.
        subject: who or what is to be forgotten.
    """

    tick: int
    lane: str
    kind: str
    now: datetime
    kills: tuple[float, ...] = ()
    subject: int | None = None

    @property
    def name(self) -> str:
        """A unique name."""
        return f"t{self.tick}/{self.lane}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The kills and faults of a tick.

    Attributes:
        kills: which writers (``w0``) and readers (``r1``) are killed, and after how many seconds.
        faults: of the network: kind and probability.
        latency: of each request, in seconds.
    """

    kills: tuple[tuple[str, float], ...] = ()
    faults: tuple[tuple[str, float], ...] = ()
    latency: float = 0.0


@dataclass(frozen=True)
class Course:
    """A soak's course.

    Args:
        seed: decides all of it.
        agents: how many write; every other one is in the workspace `shop`, of which memory expires.
        writers: how many processes write, each for all agents.
        readers: how many read.
    """

    seed: int
    agents: int = 4
    writers: int = 2
    readers: int = 2
    scopes: tuple[Scope, ...] = field(init=False)

    def __post_init__(self) -> None:
        named = [Scope("shop" if number % 2 else "keeper", f"agent-{number}") for number in range(self.agents)]
        object.__setattr__(self, "scopes", (*named, _PASSING))

    def letter(self, scope: Scope) -> str:
        """Return the letter of an agent's words."""
        return chr(ord("b") + self.scopes.index(scope))

    def now(self, tick: int) -> datetime:
        """Return the time of a tick; tick -1 is the night before the first day."""
        day, place = divmod(tick, len(TIMES))
        return FIRST + timedelta(days=day, hours=TIMES[place])

    def is_night(self, tick: int) -> bool:
        """Return whether a tick is the last one of a day."""
        return tick % len(TIMES) == len(TIMES) - 1

    def looks(self, tick: int) -> bool:
        """Return whether the soak pauses after a tick for checks."""
        return tick % LOOK_EVERY == LOOK_EVERY - 1

    def actions(self, writer: int, tick: int) -> list[Action]:
        """Return the actions of a writer at a tick, in order."""
        return list(_actions(self, writer, tick))

    def action(self, key: str) -> Action:
        """Return an action by its name."""
        writer, tick, place = (int(part[1:]) for part in key.split("/"))
        return _actions(self, writer, tick)[place]

    def operations(self, tick: int) -> list[Operation]:
        """Return the operations of a tick, in order."""
        chance = self._chance("operations", tick)
        now = self.now(tick)

        def kills(share: float) -> tuple[float, ...]:
            often = 0 if chance.random() >= share else chance.choice((1, 1, 2))
            return tuple(round(chance.uniform(0.2, 1.0) ** 2 * 8, 2) for _ in range(often))

        [kind] = chance.choices(("process", "run", "steps"), (1, 4, 35))
        found = [Operation(tick, "make", kind, now, kills(0.35))]
        if chance.random() < 0.2:
            found.append(Operation(tick, "also", "steps", now, kills(0.3)))
        if self.is_night(tick):
            found.append(Operation(tick, "remove", "expire", now, kills(0.5)))
            if chance.random() < 0.4:
                found.append(Operation(tick, "also", "upkeep", now, kills(0.3)))
        if tick % _FORGET_EVERY == _FORGET_EVERY - 1:
            found.append(Operation(tick, "remove", "forget", now, kills(0.6), tick // _FORGET_EVERY))
        return found

    def trouble(self, tick: int) -> Trouble:
        """Return the kills and faults of a tick."""
        chance = self._chance("trouble", tick)
        names = [f"w{number}" for number in range(self.writers)] + [f"r{number}" for number in range(self.readers)]
        kills = tuple((name, round(chance.uniform(0, 3), 2)) for name in names if chance.random() < 0.08)
        faults: tuple[tuple[str, float], ...] = ()
        latency = 0.0
        if chance.random() < 0.5:
            chosen = chance.sample(_KINDS, chance.choice((1, 2)))
            faults = tuple((kind, round(share * chance.uniform(0.2, 1), 4)) for kind, share in chosen)
        if chance.random() < 0.15:
            latency = chance.choice((0.01, 0.03))
        return Trouble(kills, faults, latency)

    def subject(self, number: int) -> Subject:
        """Return the n-th subject to forget: a person, a conversation, or now and then an agent."""
        kind = number % 5
        if kind == 4:
            return Subject.agent(_PASSING)
        scope = self._scope_of(number)
        if kind == 2:
            return Subject.conversation(scope, f"secret-{number}")
        name, user_id = sayings.stranger(number)
        return Subject.person(scope.workspace_id, [name, user_id], scope.agent_id if kind == 3 else None)

    def forgotten(self, numbers: Iterable[int]) -> Forgotten:
        """Return the tombstones of these subjects."""
        return Forgotten(
            tombstone
            for number in numbers
            for tombstone in Tombstone.of(self.subject(number), self.forgotten_at(number), _SALT)
        )

    def forgotten_at(self, number: int) -> datetime:
        """Return the cutoff of the n-th subject."""
        return self.now(number * _FORGET_EVERY + _FORGET_EVERY - 1)

    def messages(self, action: Action) -> list[Message]:
        """Return the messages of a conversation."""
        own = {"workspace_id": action.scope.workspace_id, "agent_id": action.scope.agent_id}
        return read_messages({**action.body, **own}, Admission(FIRST.date(), action.now)).messages

    def _scope_of(self, number: int) -> Scope:
        """Return the agent that a person to be forgotten talks to."""
        return self.scopes[:-1][number % (len(self.scopes) - 1)]

    def _chance(self, *parts: object) -> random.Random:
        return random.Random(repr((self.seed, self.agents, self.writers, self.readers, *parts)))


@lru_cache(maxsize=2048)
def _actions(course: Course, writer: int, tick: int) -> tuple[Action, ...]:
    chance = course._chance("actions", writer, tick)
    count = chance.choice((1, 2)) if course.is_night(tick) else chance.choice((3, 4, 5, 6))
    return tuple(_action(course, chance, writer, tick, place) for place in range(count))


_WEIGHTS = {
    "talk": 40, "late": 10, "again": 14, "secret": 12, "compact": 3, "refused": 4, "garbage": 3, "edits": 8,
    "memories": 10, "later": 6, "echo": 4,
}  # fmt: skip


def _action(course: Course, chance: random.Random, writer: int, tick: int, place: int) -> Action:
    key = f"w{writer}/t{tick}/a{place}"
    [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    if kind == "again":
        return _again(course, chance, key, tick)
    if kind == "secret":
        return _secret(course, chance, key, tick)
    scope = chance.choice(course.scopes)
    if kind in _NOT_SAID:
        return _change(course, chance, key, tick, kind, scope)
    since, now = course.now(tick - 1), course.now(tick)
    if kind == "late":
        by = (_LATE_IN_SHOP if scope.workspace_id == "shop" else _LATE) * chance.random() ** 2
        since, kind = max(since - by, FIRST), "talk"
        now = min(since + timedelta(hours=2), now)
    said = sayings.conversation(chance, key.replace("/", "-"), course.letter(scope), since, now)
    words = _words(said)
    body = sayings.spoilt(chance, said) if kind == "refused" else said
    return Action(key, kind, scope, course.now(tick), body, words, _passes(scope), **_fate(chance, scope))


#: What is no conversation.
_NOT_SAID = ("garbage", "edits", "memories", "later", "echo")


def _change(course: Course, chance: random.Random, key: str, tick: int, kind: str, scope: Scope) -> Action:
    """Change the graph or durable memories, or try something that must have no effect."""
    since, now = course.now(tick - 1), course.now(tick)
    letter = course.letter(scope)
    at = since + (now - since) * chance.uniform(0.1, 0.9)
    body: Any
    words: tuple[str, ...] = ()
    fate: dict[str, Any] = {}
    if kind == "edits":
        body, fate = sayings.edits(chance, at), _fate(chance, scope)
    elif kind == "memories":
        body, fate = sayings.memories(chance, letter, key, at), _fate(chance, scope)
        words = tuple(found[0] for one in body if (found := sayings.WORD.search(str(one.get("content", "")))))
    elif kind == "later":
        # Of what this writer has noted for this agent, the newest: the writer knows its id.
        body, fate = {"timestamp": at.isoformat()}, _fate(chance, scope)
    elif kind == "garbage":
        words = (sayings.word(letter, key),)
        body = {"line": sayings.garbage(chance, words[0]), "at": at.isoformat()}
    else:
        body = {"query": chance.choice(sayings.PLACES)}
    return Action(key, kind, scope, now, body, words, _passes(scope), **fate)


def _fate(chance: random.Random, scope: Scope) -> dict[str, Any]:
    """Return what becomes of an action. What expires is never let be: of it nobody could say whether it was there."""
    is_dropped = scope.workspace_id == "keeper" and chance.random() < 0.3
    return {"is_dropped": is_dropped, "is_looked_for": chance.random() < 0.3}


def _again(course: Course, chance: random.Random, key: str, tick: int) -> Action:
    """Resend a conversation of this or another writer."""
    now = course.now(tick)
    earlier = max(0, tick - chance.choice((1, 1, 1, 2, 3)))
    other = chance.randrange(course.writers)
    if earlier < tick:
        talks = [one for one in _actions(course, other, earlier) if one.kind == "talk"]
        if talks:
            one = chance.choice(talks)
            return Action(key, "talk", one.scope, now, one.body, one.words, one.subject)
    scope = course.scopes[0]
    said = sayings.conversation(chance, key.replace("/", "-"), course.letter(scope), course.now(tick - 1), now)
    return Action(key, "talk", scope, now, said, _words(said))


def _secret(course: Course, chance: random.Random, key: str, tick: int) -> Action:
    """Talk with, or about, whom will be forgotten next, or was forgotten last; who comes back is remembered anew."""
    since, now = course.now(tick - 1), course.now(tick)
    number = tick // _FORGET_EVERY - (1 if chance.random() < 0.2 and tick >= _FORGET_EVERY else 0)
    kind = number % 5
    scope = _PASSING if kind == 4 else course._scope_of(number)
    about = sayings.stranger(number) if kind in (0, 1, 3) else None
    talk = f"secret-{number}" if kind == 2 else key.replace("/", "-")
    said = sayings.conversation(chance, talk, course.letter(scope), since, now, about=about)
    if kind == 2:
        # Several actions write to the one conversation, so that their messages need ids of their own.
        words = {}
        for place, message in enumerate(said["messages"]):
            message["id"] = f"{key.replace('/', '-')}-m{place}"
            old = sayings.WORD.search(message["content"])
            assert old is not None
            words[old[0]] = sayings.word(course.letter(scope), key, place)
            message["content"] = message["content"].replace(old[0], words[old[0]])
    return Action(key, "talk", scope, now, said, _words(said), number)


def _passes(scope: Scope) -> int | None:
    """Return the number of the next subject of an agent that is forgotten as a whole; the exact one does not matter."""
    return 4 if scope == _PASSING else None


def _words(said: dict[str, Any]) -> tuple[str, ...]:
    """Return the words of a conversation's accepted messages, in order."""
    found = (sayings.WORD.search(message["content"]) for message in said["messages"])
    return tuple(one[0] for one in found if one is not None)
