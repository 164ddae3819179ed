"""The plan of a soak: actions, operations, kills and faults over simulated time, derived from a seed.

Simulated time advances in ticks: some hours of each day, the last one after midnight. Real time decides the number of
ticks, and which work a kill or a fault interrupts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.erasure import Forgotten, Tombstone
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope, scope_key
from memory_pipeline.domain.sessions import PROMOTED_FROM
from memory_pipeline.domain.subjects import Subject
from memory_pipeline_tests.harnesses.soak import generated

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The salt of the expected tombstones; those of the lake have other salts.
_SALT = "0" * 32
#: A Saturday, so that even a short soak closes a week (in the second night) and a month (in the fifth).
FIRST = datetime(2024, 1, 27, tzinfo=UTC)
#: The hour of each tick since the start of the day; the last one is after midnight.
TIMES = (8, 10, 12, 15, 18, 21, 26)
#: `keeper` keeps everything, and each of its users has a memory of its own. The users of `shop` share one, which keeps
#: hours for two days, days for eight, weeks for two.
CONFIGURATION = b"workspaces: {shop: {per_user: false, retention: {plan: free, daily: 8d, weekly: 2w}}}\n"
#: The secret of the lake and of the one that is rebuilt.
SECRET = "5e" * 32
#: An agent that is erased repeatedly.
_PASSING = Scope("keeper", "passing")
#: The maximum delay of late records. In the shop, the day of later ones may have expired.
_LATE_IN_SHOP, _LATE = timedelta(hours=20), timedelta(days=12)
#: The number of ticks between pauses for checks.
LOOK_EVERY = 28
_FORGET_EVERY = 9
_KINDS = (("500", 0.02), ("503", 0.03), ("reset", 0.02), ("lost", 0.02), ("half", 0.02), ("slow", 0.02))


def scope_of(workspace_id: str, agent_id: str, identity: str) -> Scope:
    """Return the scope of a write. The users of the shop's agents share a memory."""
    if workspace_id == "shop" or not identity:
        return Scope(workspace_id, agent_id)
    return Scope(workspace_id, agent_id, identity, scope_key(SECRET, workspace_id, agent_id, identity))


@dataclass(frozen=True, slots=True)
class Action:
    """An action of a writer.

    Attributes:
        key: the name; ``w1/t13/a2`` is the third action of the second writer at tick 13.
        kind: ``talk``, ``compact``, ``refused``, ``garbage``, ``edits``, ``memories``, ``later`` or ``echo``.
        scope: the agent.
        now: the simulated time of the write.
        body: a conversation, or a list of changes.
        words: unique words by which searches find the records.
        subject: the number of the subject that is mentioned and will be erased.
        is_dropped: whether an interrupted action is abandoned instead of retried. Its record may be present or not.
        is_looked_for: whether the writer searches for it at once.
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

    @property
    def user_id(self) -> str | None:
        """A user who takes part."""
        if self.kind not in ("talk", "compact"):
            return None
        users = self.body.get("users") or [self.body.get("user_id")]
        return str(users[0]) if users[0] else None


@dataclass(frozen=True, slots=True)
class Note:
    """What the writer of a conversation notes in session state.

    Attributes:
        session_id: the session, with the id of the conversation.
        user_id: the user whose session it is.
        text: names the subject if it is a person, and has the word.
        word: unique.
        reads: accesses of the short-term entry.
        now: the simulated time.
        pool_type: the type of a pool that has the text too.
    """

    session_id: str
    user_id: str | None
    text: str
    word: str
    reads: int
    now: datetime
    pool_type: str | None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that runs as a process.

    Attributes:
        lane: operations of one lane run one after the other.
        kind: a command (``run``, ``consolidate``, ``expire``, ``forget``, ``check``), ``steps`` for `run` without
            Dagster, or ``process`` for `run` in a new interpreter.
        kills: seconds after which each of the first attempts is killed.
        subject: the number of the subject to erase.
    """

    tick: int
    lane: str
    kind: str
    now: datetime
    kills: tuple[float, ...] = ()
    subject: int | None = None

    @property
    def name(self) -> str:
        return f"t{self.tick}/{self.lane}/{self.kind}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """The kills and faults of a tick.

    Attributes:
        kills: names of writers (``w0``) and readers (``r1``) to kill, with seconds.
        faults: kinds of network faults, with probabilities.
        latency: seconds added to each request.
    """

    kills: tuple[tuple[str, float], ...] = ()
    faults: tuple[tuple[str, float], ...] = ()
    latency: float = 0.0


@dataclass(frozen=True)
class Plan:
    """The plan of a soak.

    Args:
        seed: determines everything.
        agents: the number of agents; every other one is in the workspace `shop`, where memory expires.
        writers: the number of writing processes; each writes for all agents.
        readers: the number of reading processes.
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
        """Return the letter that identifies the agent in its unique words."""
        return chr(ord("b") + self.scopes.index(scope))

    def now(self, tick: int) -> datetime:
        """Return the time of a tick. Tick -1 is the night before the first day."""
        day, place = divmod(tick, len(TIMES))
        return FIRST + timedelta(days=day, hours=TIMES[place])

    def is_night(self, tick: int) -> bool:
        """Return whether a tick is the last one of a day."""
        return tick % len(TIMES) == len(TIMES) - 1

    def looks(self, tick: int) -> bool:
        """Return whether the soak pauses after a tick for checks."""
        return tick % LOOK_EVERY == LOOK_EVERY - 1

    def actions(self, writer: int, tick: int) -> list[Action]:
        return list(_actions(self, writer, tick))

    def action(self, key: str) -> Action:
        writer, tick, place = (int(part[1:]) for part in key.split("/"))
        return _actions(self, writer, tick)[place]

    def operations(self, tick: int) -> list[Operation]:
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
                found.append(Operation(tick, "also", "consolidate", now, kills(0.3)))
        if tick % _FORGET_EVERY == _FORGET_EVERY - 1:
            found.append(Operation(tick, "remove", "forget", now, kills(0.6), tick // _FORGET_EVERY))
        return found

    def trouble(self, tick: int) -> Trouble:
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
        """Return the n-th subject to erase: a person, a conversation or an agent."""
        kind = number % 5
        if kind == 4:
            return Subject.agent(_PASSING)
        scope = self._scope_of(number)
        if kind == 2:
            return Subject.conversation(scope, f"secret-{number}")
        name, user_id = generated.person(number)
        return Subject.person(scope.workspace_id, [name, user_id], scope.agent_id if kind == 3 else None)

    def forgotten(self, numbers: Iterable[int]) -> Forgotten:
        return Forgotten(
            tombstone
            for number in numbers
            for tombstone in Tombstone.of(self.subject(number), self.forgotten_at(number), _SALT)
        )

    def forgotten_at(self, number: int) -> datetime:
        """Return the time of the erasure of the n-th subject."""
        return self.now(number * _FORGET_EVERY + _FORGET_EVERY - 1)

    def messages(self, action: Action) -> list[Message]:
        own = {"workspace_id": action.scope.workspace_id, "agent_id": action.scope.agent_id}
        return read_messages({**action.body, **own}, Admission(FIRST.date(), action.now), scope_of).messages

    def shared(self, writer: int) -> Scope:
        """Return the agent whose memory a writer shares."""
        return self._scope_of(writer)

    def note(self, action: Action) -> Note:
        """Return the note of a conversation.

        It is a moment later than the tick. An erasure of that tick keeps it, whichever comes first.
        """
        chance = self._chance("note", action.key)
        kind = None if action.subject is None else action.subject % 5
        name = chance.choice(generated.CAST) if kind in (None, 2, 4) else generated.person(action.subject or 0)[0]
        word = generated.word(self.letter(action.scope), "note", action.key)
        # Agents share the other pools: they are not of a conversation, nor of a person at one agent.
        pool_type = {0: "shared", 1: "shared", 3: "agent_private", 4: "agent_private"}.get(-1 if kind is None else kind)
        session_id = str(action.body["conversation_id"])
        now = action.now + timedelta(seconds=1)
        reads = chance.choice((0, 0, PROMOTED_FROM, PROMOTED_FROM + 1))
        return Note(session_id, action.user_id, f"{name} asked for {word}.", word, reads, now, pool_type)

    def is_erased(self, action: Action, forgotten: Forgotten) -> bool:
        """Return whether the note of an action is erased."""
        note = self.note(action)
        return forgotten.reaches(
            action.scope, note.now, conversation_id=note.session_id, user_id=note.user_id, texts=[note.text]
        )

    def _scope_of(self, number: int) -> Scope:
        return self.scopes[:-1][number % (len(self.scopes) - 1)]

    def _chance(self, *parts: object) -> random.Random:
        return random.Random(repr((self.seed, self.agents, self.writers, self.readers, *parts)))


@lru_cache(maxsize=2048)
def _actions(plan: Plan, writer: int, tick: int) -> tuple[Action, ...]:
    chance = plan._chance("actions", writer, tick)
    count = chance.choice((1, 2)) if plan.is_night(tick) else chance.choice((3, 4, 5, 6))
    return tuple(_action(plan, chance, writer, tick, place) for place in range(count))


_WEIGHTS = {
    "talk": 40, "late": 10, "again": 14, "secret": 12, "compact": 3, "refused": 4, "garbage": 3, "edits": 8,
    "memories": 10, "later": 6, "echo": 4,
}  # fmt: skip


def _action(plan: Plan, chance: random.Random, writer: int, tick: int, place: int) -> Action:
    key = f"w{writer}/t{tick}/a{place}"
    [kind] = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
    if kind == "again":
        return _again(plan, chance, key, tick)
    if kind == "secret":
        return _secret(plan, chance, key, tick)
    scope = chance.choice(plan.scopes)
    if kind in _NOT_SAID:
        return _change(plan, chance, key, tick, kind, scope)
    since, now = plan.now(tick - 1), plan.now(tick)
    if kind == "late":
        by = (_LATE_IN_SHOP if scope.workspace_id == "shop" else _LATE) * chance.random() ** 2
        since, kind = max(since - by, FIRST), "talk"
        now = min(since + timedelta(hours=2), now)
    said = generated.conversation(chance, key.replace("/", "-"), plan.letter(scope), since, now)
    words = _words(said)
    body = generated.invalidated(chance, said) if kind == "refused" else said
    return Action(key, kind, scope, plan.now(tick), body, words, _passes(scope), **_fate(chance, scope))


_NOT_SAID = ("garbage", "edits", "memories", "later", "echo")


def _change(plan: Plan, chance: random.Random, key: str, tick: int, kind: str, scope: Scope) -> Action:
    """Change the graph or durable memories, or try something that must have no effect."""
    since, now = plan.now(tick - 1), plan.now(tick)
    letter = plan.letter(scope)
    at = since + (now - since) * chance.uniform(0.1, 0.9)
    body: Any
    words: tuple[str, ...] = ()
    fate: dict[str, Any] = {}
    if kind == "edits":
        body, fate = generated.edits(chance, at), _fate(chance, scope)
    elif kind == "memories":
        body, fate = generated.memories(chance, letter, key, at), _fate(chance, scope)
        words = tuple(found[0] for one in body if (found := generated.WORD.search(str(one.get("content", "")))))
    elif kind == "later":
        # It changes the newest memory of this agent, whose id only the writer knows.
        body, fate = {"timestamp": at.isoformat()}, _fate(chance, scope)
    elif kind == "garbage":
        words = (generated.word(letter, key),)
        body = {"line": generated.garbage(chance, words[0]), "at": at.isoformat()}
    else:
        body = {"query": chance.choice(generated.PLACES)}
    return Action(key, kind, scope, now, body, words, _passes(scope), **fate)


def _fate(chance: random.Random, scope: Scope) -> dict[str, Any]:
    """Return whether the action is dropped and looked for. Actions whose records expire are never dropped."""
    is_dropped = scope.workspace_id == "keeper" and chance.random() < 0.3
    return {"is_dropped": is_dropped, "is_looked_for": chance.random() < 0.3}


def _again(plan: Plan, chance: random.Random, key: str, tick: int) -> Action:
    """Resend a conversation of this or another writer."""
    now = plan.now(tick)
    earlier = max(0, tick - chance.choice((1, 1, 1, 2, 3)))
    other = chance.randrange(plan.writers)
    if earlier < tick:
        talks = [one for one in _actions(plan, other, earlier) if one.kind == "talk"]
        if talks:
            one = chance.choice(talks)
            return Action(key, "talk", one.scope, now, one.body, one.words, one.subject)
    scope = plan.scopes[0]
    said = generated.conversation(chance, key.replace("/", "-"), plan.letter(scope), plan.now(tick - 1), now)
    return Action(key, "talk", scope, now, said, _words(said))


def _secret(plan: Plan, chance: random.Random, key: str, tick: int) -> Action:
    """Talk with or about the next subject to be erased, or the last one, who is then remembered again."""
    since, now = plan.now(tick - 1), plan.now(tick)
    number = tick // _FORGET_EVERY - (1 if chance.random() < 0.2 and tick >= _FORGET_EVERY else 0)
    kind = number % 5
    scope = _PASSING if kind == 4 else plan._scope_of(number)
    about = generated.person(number) if kind in (0, 1, 3) else None
    talk = f"secret-{number}" if kind == 2 else key.replace("/", "-")
    said = generated.conversation(chance, talk, plan.letter(scope), since, now, about=about)
    if kind == 2:
        # Several actions write to the same conversation, so their messages need distinct ids.
        words = {}
        for place, message in enumerate(said["messages"]):
            message["id"] = f"{key.replace('/', '-')}-m{place}"
            old = generated.WORD.search(message["content"])
            assert old is not None
            words[old[0]] = generated.word(plan.letter(scope), key, place)
            message["content"] = message["content"].replace(old[0], words[old[0]])
    return Action(key, "talk", scope, now, said, _words(said), number)


def _passes(scope: Scope) -> int | None:
    """Return a subject number for the agent that is erased as a whole; the exact number does not matter."""
    return 4 if scope == _PASSING else None


def _words(said: dict[str, Any]) -> tuple[str, ...]:
    """Return the words of a conversation's messages, in order."""
    found = (generated.WORD.search(message["content"]) for message in said["messages"])
    return tuple(one[0] for one in found if one is not None)
