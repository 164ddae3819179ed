"""Random records of a soak: conversations, changes of graph and memories, and invalid records.

Every message has a unique word, which identifies the message and its agent.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

_LETTERS = "bcdfghjklmnpqrtvwz"
#: Matches the result of :func:`word`.
WORD = re.compile(r"\bq([b-z])x[bcdfghjklmnpqrtvwz]{9}\b")

CAST = ("Anna", "Bruno", "Carla", "Dario", "Elif", "Farid", "Greta", "Hugo")
PLACES = "Porto Leeds Graz Turin Bergen Nantes Cork Ghent Quito Osaka Riga Malmö".split()
THINGS = "hazelnuts walnuts oysters rye coffee jazz chess kayaks tulips saffron".split()
_FIRST = "Ilvar Orsen Tavish Mirel Yoska Brenna Corvin Delphe Ezgi Fenno Guntra Hesper".split()
_LAST = "Quenby Rastell Sorvino Tamsin Ulbricht Vexley Wendell Yarrow Zelmer Abelard".split()

_TEXTS = (
    "I moved to {place}. The parcel is {word}.",
    "{other} likes {thing}, see {word}.",
    "I'm allergic to {thing}; the case is {word}.",
    "My sister {other} lives in {place}, ticket {word}.",
    "From now on, put {word} on my invoices.",
    "I no longer live in {place}, as {word} says.",
    "It seems that {other} usually takes the early tram {word}.",
    "I like {thing} in the morning, {word} told me so.",
    "On the 12th I fly to {place}. The booking is {word}.",
    "The important thing: {other} works at {word} in {place}.",
    "Never send {word} without a purchase order.",
    "We decided to order {thing} from {place} under {word}. {other} pays.",
    "Robert'); DROP TABLE facts;-- {word} \\ \" ' %s {{}} <b>&amp;</b>",
    "🦊 naïve Ænima ﬁ \u202ereversed\u202c {word} \u200b\u0301 x\u0000".replace("\u0000", ""),
    "{word}\n\n  - {thing}\n\t- {place}\n\n" + "And so on, and so on. " * 40,
)
_ANSWERS = ("Noted as {word}.", "I shall remember {word} for {other}.", "Is {word} about {place}, {other}?")

#: Values that make a conversation invalid, by field.
_SPOILT: tuple[dict[str, Any], ...] = (
    {"messages": []},
    {"messages": "no list"},
    {"conversation_id": "a\nb"},
    {"conversation_id": "x" * 257},
    {"agent_id": "somebody-else"},
    {"user_id": "\ud800"},
)
_SPOILT_MESSAGES: tuple[dict[str, Any], ...] = (
    {"timestamp": "2024-02-30T08:00:00+00:00"},
    {"timestamp": "2024-01-30T08:00:00"},
    {"timestamp": "2031-01-01T00:00:00+00:00"},
    {"timestamp": "1969-01-01T00:00:00+00:00"},
    {"role": "owner"},
    {"content": "   "},
    {"content": None},
    {"content": "x" * 1_000_001},
    {"content": "\ud83d alone"},
    {"name": "line\nbreak"},
    {"id": "a\u2028b"},
)
#: Invalid lines that another program may have put into a journal file.
_GARBAGE = (
    '{{"content": "{word}, and then',
    "{word} is no JSON",
    '["{word}"]',
    '{{"workspace_id": "keeper", "agent_id": "{word}"}}',
    '{{"memory": "PROMOTE", "reason": "{word}"}}',
    '{{"edit": "INSERT", "subject": "{word}"}}',
    "[" * 300 + '"{word}"' + "]" * 300,
)


def word(letter: str, *parts: object) -> str:
    """Return a unique word for the parts. Its second letter is the given one."""
    number = int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest())
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return f"q{letter}x{''.join(letters)}"


def person(number: int) -> tuple[str, str]:
    """Return the name and the user id of a person to erase."""
    first, last = _FIRST[number % len(_FIRST)], _LAST[(number // len(_FIRST) + number) % len(_LAST)]
    return f"{first} {last}", f"u-{first.lower()}-{last.lower()}-{number}"


def conversation(
    chance: random.Random,
    conversation_id: str,
    letter: str,
    since: datetime,
    until: datetime,
    *,
    about: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Return a conversation between two times.

    Args:
        chance: the random generator.
        conversation_id: the id of the conversation.
        letter: the letter of the agent.
        since: the exclusive start.
        until: the inclusive end.
        about: name and user id of a person to erase, who speaks or is mentioned in some of the messages.
    """
    count = chance.choice((1, 1, 2, 3, 4, 6))
    at = since + (until - since) * chance.uniform(0.05, 0.6)
    step = (until - at) / (count + 1)
    speaker = chance.choice(CAST)
    has_ids = chance.random() < 0.8
    messages = []
    for number in range(count):
        is_answer = number % 2 == 1
        name = speaker
        other = chance.choice([one for one in CAST if one != speaker])
        if about is not None and chance.random() < 0.6:
            name, other = (about[0], other) if chance.random() < 0.5 else (name, about[0])
        template = chance.choice(_ANSWERS if is_answer else _TEXTS)
        text = template.format(
            word=word(letter, conversation_id, number),
            other=other,
            place=chance.choice(PLACES),
            thing=chance.choice(THINGS),
        )
        message: dict[str, Any] = {
            "role": "assistant" if is_answer else "user",
            "name": None if is_answer else name,
            "content": text,
            "timestamp": (at + step * number).replace(microsecond=0).isoformat(),
        }
        if has_ids:
            message["id"] = f"m{number}"
        messages.append(message)
    said: dict[str, Any] = {"conversation_id": conversation_id, "messages": messages}
    if about is not None and chance.random() < 0.3:
        said["user_id"] = about[1]
    elif chance.random() < 0.5:
        said["user_id"] = f"u-{speaker.lower()}"
    if chance.random() < 0.2:
        first, second = said.pop("user_id", None) or f"u-{speaker.lower()}", f"u-{chance.choice(CAST).lower()}"
        said["users"] = sorted({first, second})
        said |= {"group_id": "team"} if chance.random() < 0.5 else {}
    if chance.random() < 0.3:
        said["tags"] = [chance.choice(("phone", "mail", "shop"))]
    return said


def invalidated(chance: random.Random, good: dict[str, Any]) -> dict[str, Any]:
    """Return the conversation with an invalid field; it must be refused as a whole."""
    if chance.random() < 0.4:
        return {**good, **chance.choice(_SPOILT)}
    messages = [dict(message) for message in good["messages"]]
    messages[-1] |= chance.choice(_SPOILT_MESSAGES)
    return {**good, "messages": messages}


def garbage(chance: random.Random, own: str) -> str:
    """Return an invalid line that contains the word."""
    return chance.choice(_GARBAGE).format(word=own)


def edits(chance: random.Random, at: datetime) -> list[dict[str, Any]]:
    """Return changes of the graph around a time."""
    changes = []
    for place in range(chance.choice((1, 1, 2, 3))):
        verb = chance.choice(("INSERT", "INSERT", "UPDATE", "DELETE"))
        predicate = chance.choice(("lives_in", "works_at", "knows", "likes"))
        target = chance.choice(CAST if predicate == "knows" else THINGS if predicate == "likes" else PLACES)
        change = {"edit": verb, "subject": chance.choice(CAST), "predicate": predicate, "object": target}
        changes.append({**change, "timestamp": (at + timedelta(seconds=place)).isoformat()})
    return changes


def memories(chance: random.Random, letter: str, key: str, at: datetime) -> list[dict[str, Any]]:
    """Return an agent's durable memories around a time."""
    changes: list[dict[str, Any]] = []
    for place in range(chance.choice((1, 1, 2))):
        own = word(letter, key, place)
        content = chance.choice(
            (
                f"{chance.choice(CAST)} collects {own}.",
                f"The order {own} of {chance.choice(CAST)} waits in {chance.choice(PLACES)}.",
                f"Always quote {own} to {chance.choice(CAST)}.",
            )
        )
        change: dict[str, Any] = {
            "memory": "REMEMBER",
            "content": content,
            "kind": chance.choice(("fact", "rule", "observation", "procedure", "decision", "plan")),
            "importance": chance.choice((0.1, 0.4, 0.5, 0.9)),
            "timestamp": (at + timedelta(seconds=place)).isoformat(),
        }
        if chance.random() < 0.2:
            change["is_point_in_time"] = True
        if chance.random() < 0.2:
            triple = {"subject": chance.choice(CAST), "predicate": "lives_in", "object": chance.choice(PLACES)}
            change |= triple
        changes.append(change)
    if chance.random() < 0.3:
        who = chance.choice(CAST).lower()
        value = {"word": word(letter, key, "preference"), "weekly": chance.random() < 0.5}
        preference = {"memory": "REMEMBER", "user_id": f"u-{who}", "key": chance.choice(("news", "theme"))}
        changes.append({**preference, "value": value, "timestamp": (at + timedelta(seconds=9)).isoformat()})
    return changes


def later(chance: random.Random, memory_id: str, at: datetime) -> dict[str, Any]:
    """Return a change of an existing memory."""
    verb = chance.choice(("BOOST", "REDUCE", "CONFIRM", "ACCESS", "FORGET", "UPDATE"))
    change: dict[str, Any] = {"memory": verb, "memory_id": memory_id, "timestamp": at.isoformat()}
    return {**change, "importance": chance.choice((0.2, 0.7))} if verb == "UPDATE" else change
