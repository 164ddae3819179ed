"""Generate short, varied conversations from small word lists and a seed. No data set is used.

A message has one to three sentences. Some assert something (a move, a plan, a price, a liking), others are small talk,
so that the extractor finds facts in about two of three.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Conversation = dict[str, object]

WORKSPACE = "bench"
#: A Monday, and the first day of an ISO year, a quarter and a month.
START = datetime(2024, 1, 1, tzinfo=UTC)

_FIRST = (
    "Nadia Ruben Iris Tomas Leila Oskar Priya Hugo Maren Jonas Alba Farid Greta Simon Yuki Clara Bruno Elif".split()
)
_LAST = "Okafor Lindqvist Moreau Tanaka Haddad Kowalski Ferreira Novak Sato Brandt Osei Marchetti".split()
_PLACES = (
    "Porto Leeds Graz Turin Bergen Nantes Cork Ghent Lagos Quito Osaka Tampere Malaga Tartu Utrecht Split Aarhus Basel"
).split()
_THINGS = (
    "bicycle|guitar|tent|oven|camera|kayak|sewing machine|lamp|telescope|printer|sofa|violin|drill|boat|piano|scooter"
).split("|")
_ACTIONS = (
    "repaired|sold|bought|borrowed|painted|lost|found|cleaned|packed|ordered|returned|photographed|tested|rented"
).split("|")
_HOBBIES = "pottery|fencing|rowing|baking bread|chess|climbing|bird watching|knitting|jazz|gardening|judo".split("|")
_JOBS = "nurse|carpenter|teacher|surveyor|pharmacist|translator|welder|librarian|engineer|gardener|pilot".split("|")
_FOODS = "hazelnuts|oysters|rye bread|lentils|goat cheese|ginger|olives|mangoes|beetroot|saffron|walnuts".split("|")
_DAYS = "yesterday|last Tuesday|on Friday|this morning|two weeks ago|last month|in March|on the weekend".split("|")
_TALK = (
    "That sounds good.|Thanks for asking.|How are you?|Let me think about it.|Sure, no problem.|What do you think?"
).split("|")

_SENTENCES = (
    "I {action} the {thing} in {place} {day}.",
    "{first} {last} moved from {place} to {place2}.",
    "We paid {number} euros for the {thing}.",
    "My sister {first} works as a {job} in {place}.",
    "I would like to start {hobby} with {first}.",
    "{first} is allergic to {food}.",
    "The appointment in {place} is at {hour} o'clock, room {number}.",
    "I prefer {food} to {food2}.",
    "{first} and {first2} {action} a {thing} {day}.",
    "Please remind me to call {first} {last} about the {thing}.",
    "Order {number} from {place} has not arrived.",
    "Do you know whether {first} still has the {thing}?",
    "I have been doing {hobby} for {hour} years.",
)


def sentence(source: random.Random) -> str:
    """Return a sentence that asserts something."""
    pick = source.choice
    return pick(_SENTENCES).format(
        action=pick(_ACTIONS),
        day=pick(_DAYS),
        first=pick(_FIRST),
        first2=pick(_FIRST),
        food=pick(_FOODS),
        food2=pick(_FOODS),
        hobby=pick(_HOBBIES),
        hour=source.randint(2, 12),
        job=pick(_JOBS),
        last=pick(_LAST),
        number=source.randint(13, 9870),
        place=pick(_PLACES),
        place2=pick(_PLACES),
        thing=pick(_THINGS),
    )


def text(source: random.Random) -> str:
    """Return the text of a message."""
    parts = [sentence(source) for _ in range(source.choice((1, 1, 2)))]
    if source.random() < 0.4:
        parts.insert(0, source.choice(_TALK))
    return " ".join(parts)


def query(source: random.Random) -> str:
    """Return a typical query of an agent."""
    pick = source.choice
    first, thing, place, food = pick(_FIRST), pick(_THINGS), pick(_PLACES), pick(_FOODS)
    return pick(
        (
            f"What happened to the {thing} in {place}?",
            f"Where does {first} {pick(_LAST)} live?",
            f"Is {first} allergic to {food}?",
            f"how much did the {thing} cost",
            f"{first} {pick(_HOBBIES)}",
        )
    )


def agent_name(number: int) -> str:
    """Return the id of an agent."""
    return f"agent-{number:03}"


def conversation(source: random.Random, agent: str, hour: datetime, messages: int) -> Conversation:
    """Return a conversation of `messages` messages within one hour, between a user and an assistant."""
    name = source.choice(_FIRST)
    step = timedelta(hours=1) / (messages + 1)
    return {
        "workspace_id": WORKSPACE,
        "agent_id": agent,
        "conversation_id": f"{agent}-{hour:%Y%m%dT%H}",
        "messages": [
            {
                "id": f"m{number}",
                "role": "assistant" if number % 2 else "user",
                "name": agent if number % 2 else name,
                "content": text(source),
                "timestamp": (hour + step * number).isoformat(),
            }
            for number in range(messages)
        ],
    }


def busy(agents: int, hours: int, messages: int, *, first_hour: int = 0, seed: int = 1) -> Iterator[Conversation]:
    """Yield about `messages` messages in which every agent speaks in every hour, as in an import or a busy service."""
    source = random.Random(f"busy {seed} {first_hour}")
    each = max(1, round(messages / (agents * hours)))
    for number in range(first_hour, first_hour + hours):
        for agent in range(agents):
            yield conversation(source, agent_name(agent), START + timedelta(hours=number), each)


def sparse(agents: int, weeks: int, *, hours_a_week: int = 3, seed: int = 1) -> Iterator[Conversation]:
    """Yield weeks in which agents speak a few daytime hours a week, two or three messages each time."""
    source = random.Random(f"sparse {seed}")
    waking = [day * 24 + hour for day in range(7) for hour in range(8, 22)]
    for week in range(weeks):
        for agent in range(agents):
            for hour in sorted(source.sample(waking, hours_a_week)):
                begin = START + timedelta(weeks=week, hours=hour)
                yield conversation(source, agent_name(agent), begin, source.choice((2, 3, 3)))
