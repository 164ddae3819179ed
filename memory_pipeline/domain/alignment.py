"""Align a list of messages, as an agent sends it, with the messages that its conversation holds.

Agents send the whole conversation each turn, or its end, or a summary and its end. People say the same words again. A
list is a *history* if it goes on after the last stored message, if it begins with the first one or has all of them, or
if it ends with another answer to the last stored question. Then the messages that it shares with the conversation, in
order, are repeated; others are new. In any other list all messages are new, except those with a known id.

Only messages of users and assistants decide: instructions may change each turn, and tools answer many times the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.conversations import same_id_other_content
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.messages import Message, Role
from memory_pipeline.domain.scopes import label_of
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.erasure import Forgotten


_EARLIEST = datetime.min.replace(tzinfo=UTC)


class Alignment(NamedTuple):
    """The messages of a list that are not new, by their places in it.

    Attributes:
        repeated: the stored messages that they repeat; of an instruction that stands twice in the list, the first one.
        edited: the stored messages whose text they replace.
    """

    repeated: dict[int, Message]
    edited: dict[int, Message]


def align(sent: Sequence[Message], stored: Sequence[Message], *, history: bool | None = None) -> Alignment:
    """Align a list with the stored messages of its conversation, oldest first: with the last ones, or with all.

    `history` says whether the list repeats what is stored; by default the list shows it.
    """
    repeated, edited = _known_by_id(sent, stored)
    free = [place for place in range(len(sent)) if sent[place].source_id is None]
    by_text = {one.text: one for one in reversed(stored) if one.role is Role.SYSTEM}
    for place in free:
        if sent[place].role is Role.SYSTEM:
            first = by_text.setdefault(sent[place].text, sent[place])
            if first is not sent[place]:
                repeated[place] = first
    if history is False or not free:
        return Alignment(repeated, edited)
    pairs = _pairs([sent[place] for place in free], stored)
    matched = {free[place]: position for place, position in pairs.items()}
    replaced = _regenerated(sent, stored, matched)
    if history or _is_history(sent, stored, {*repeated, *matched}, matched, replaced):
        matched |= _moved(sent, stored, matched, {*replaced, *edited})
        repeated |= {place: stored[position] for place, position in matched.items()}
        edited |= {place: stored[position] for place, position in replaced.items()}
    return Alignment(repeated, edited)


class Continuation(NamedTuple):
    """What a list adds to its conversation.

    Attributes:
        new: the messages to store, with their turns and times.
        fresh: the turns of those that are new even if an equal message is stored.
        edits: edits of stored messages.
        repeated: ids of the stored messages that the list repeats.
        erased: number of messages that are left out, because they may be older than an erasure.
    """

    new: list[Message]
    fresh: set[int]
    edits: list[Message]
    repeated: tuple[str, ...]
    erased: int


def continuation(
    sent: Sequence[Message],
    keyed: Sequence[Message],
    stored: Sequence[Message],
    untimed: Collection[int],
    at: datetime,
    forgotten: Forgotten,
    *,
    history: bool | None = None,
) -> Continuation:
    """Return what a list adds to the stored messages of its conversation, oldest first: the last ones, or all.

    `keyed` are the messages as they are stored, `untimed` the places of those without a time, which are received `at`.
    """
    repeated, edited = align(sent, stored, history=history)
    erased: set[int] = set()
    if history is not False and forgotten:
        erased = _before_erasure(sent, {**repeated, **edited}, untimed, forgotten)
    turn = max((message.turn for message in stored), default=-1) + 1
    # Not before the last stored message, if the clock stands still.
    earliest = min(at, max((message.sent_at for message in stored), default=_EARLIEST))
    new: list[Message] = []
    fresh: set[int] = set()
    for place, message in enumerate(sent):
        if place in repeated or place in edited or place in erased:
            continue
        if history is False or place in untimed:
            fresh.add(turn + len(new))
        sent_at = max(message.sent_at, earliest) if place in untimed else message.sent_at
        new.append(keyed[place].identified(turn=turn + len(new), sent_at=sent_at))
    edits = [edited[place].edit(sent[place].content, at) for place in sorted(edited)]
    return Continuation(new, fresh, edits, tuple(repeated[place].id for place in sorted(repeated)), len(erased))


def _before_erasure(
    sent: Sequence[Message], known: Mapping[int, Message], untimed: Collection[int], forgotten: Forgotten
) -> set[int]:
    """Return the places of messages of a list that may be older than an erasure that covers them.

    `untimed` are the places of messages without a time, `known` those of stored messages. A message without a time may
    be as old as the stored message before it. From its last message of a user on, a list is new.
    """
    asked = max((place for place, message in enumerate(sent) if message.role is Role.USER), default=0)
    oldest = _EARLIEST
    found: set[int] = set()
    for place, message in enumerate(sent[:asked]):
        if place in known:
            oldest = max(oldest, known[place].sent_at) if message.role is not Role.SYSTEM else oldest
        elif place in untimed and forgotten.covers(replace(message, sent_at=oldest)):
            found.add(place)
    return found


def in_order(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of a conversation in the order in which they were added.

    That is the order of their turns, whatever the clocks of their writers said. Where each write has counted its own
    turns, it is the order of their times.
    """
    has_turns = len({message.turn for message in messages}) == len(messages)
    return sorted(messages, key=lambda one: (one.turn,) if has_turns else (one.sent_at, one.turn))


def keyed(messages: Sequence[Message], key: str) -> list[Message]:
    """Return messages with ids: their own, or one that the idempotency key of their write gives them."""
    prefix = digest("idempotency_key", label_of("idempotency_key", key))
    return [
        message if message.source_id else message.identified(source_id=f"{prefix}:{place}", occurrence=None)
        for place, message in enumerate(messages)
    ]


def written_before(messages: Sequence[Message], keyed: Sequence[Message], stored: Sequence[Message]) -> tuple[str, ...]:
    """Return the ids of the messages that an earlier write with the same idempotency key has stored."""
    ids = {new.source_id for message, new in zip(messages, keyed, strict=True) if message.source_id != new.source_id}
    return tuple(one.id for one in stored if one.source_id in ids)


def numbered(messages: list[Message], stored: Iterable[Message], fresh: Collection[int]) -> list[Message]:
    """Return messages of which those with the turns `fresh` differ from equal ones that are stored, by their number."""
    counts: Counter[object] = Counter()
    for message in stored:
        counts[message.identity] = max(counts[message.identity], message.occurrence or 1)
    numbered = []
    for message in messages:
        number = counts[message.identity] + 1
        if message.turn in fresh and not message.source_id:
            counts[message.identity] = number
            message = message.identified(occurrence=number if number > 1 else None)  # noqa: PLW2901  # another id
        numbered.append(message)
    return numbered


def not_stored(messages: list[Message], known: list[Message]) -> list[Message]:
    """Return the messages that are not stored yet. Raise InputError if one has the id of another text."""
    said = {(message.conversation_id, message.source_id): message for message in messages if message.source_id}
    for message in known:
        new = said.get((message.conversation_id, message.source_id or ""))
        if new is not None and not new.says_the_same_as(message):
            raise InputError(f"{same_id_other_content(new, message)}; nothing was written")
    stored = {(message.identity, message.occurrence) for message in known}
    return [message for message in messages if (message.identity, message.occurrence) not in stored]


def _known_by_id(sent: Sequence[Message], stored: Sequence[Message]) -> tuple[dict[int, Message], dict[int, Message]]:
    known = {one.source_id: one for one in stored if one.source_id is not None}
    repeated: dict[int, Message] = {}
    edited: dict[int, Message] = {}
    for place, message in enumerate(sent):
        one = None if message.source_id is None else known.get(message.source_id)
        if one is not None and one.role is message.role:
            (repeated if one.text == message.text else edited)[place] = one
    return repeated, edited


def _is_history(
    sent: Sequence[Message],
    stored: Sequence[Message],
    known: set[int],
    matched: dict[int, int],
    replaced: dict[int, int],
) -> bool:
    spoken, heard = _spoken(sent), _spoken(stored)
    if not spoken or not heard:
        return False
    ends_at = next((place for place, position in matched.items() if position == heard[-1]), None)
    if ends_at is not None and any(
        place > ends_at and place not in known and message.role is not Role.SYSTEM for place, message in enumerate(sent)
    ):
        return True
    starts = _said(sent[spoken[0]]) == _said(stored[heard[0]]) or set(heard) <= set(matched.values())
    # One exchange that is said word for word again is as likely to be a repetition: "run the tests", "passed".
    asked = [place for place in spoken if sent[place].role is Role.USER]
    if starts:
        return len(asked) > 1 or bool(replaced)
    # The last answer was made again, by a client that holds less than the conversation, or more (after an erasure).
    if len(asked) < 2 or not replaced or min(replaced) < asked[-1]:
        return False
    return spoken[spoken.index(asked[-1]) - 1] in matched or matched.get(asked[-1]) == heard[0]


def _regenerated(sent: Sequence[Message], stored: Sequence[Message], matched: dict[int, int]) -> dict[int, int]:
    """Return the answers of the last stored exchange that have another text after the same message."""
    heard = _spoken(stored)
    asked = max((n for n, position in enumerate(heard) if stored[position].role is Role.USER), default=len(heard))
    number = {position: n for n, position in enumerate(heard)}
    taken = set(matched.values())
    replaced: dict[int, int] = {}
    last: int | None = None
    for place in _spoken(sent):
        if place in matched:
            last = number[matched[place]]
            continue
        following = None if last is None or last < asked or last + 1 == len(heard) else heard[last + 1]
        last = None
        if following is None or following in taken or sent[place].source_id is not None:
            continue
        if sent[place].role is stored[following].role is Role.ASSISTANT:
            replaced[place] = following
            last = number[following]
    return replaced


def _moved(
    sent: Sequence[Message], stored: Sequence[Message], matched: Mapping[int, int], known: Collection[int]
) -> dict[int, int]:
    """Return which messages of a history are stored at another place, as a summary is that stands before older turns.

    These are before the last message that is the same at its place: later ones may be said again.
    """
    taken = {*matched.values()}
    left: dict[tuple[Role, str], list[int]] = {}
    for position in _spoken(stored)[::-1]:
        if position not in taken:
            left.setdefault(_said(stored[position]), []).append(position)
    last = max(matched, default=0)
    moved: dict[int, int] = {}
    for place in _spoken(sent):
        is_open = place < last and place not in matched and place not in known and sent[place].source_id is None
        if is_open and (same := left.get(_said(sent[place]))):
            moved[place] = same.pop()
    return moved


def _pairs(sent: Sequence[Message], stored: Sequence[Message]) -> dict[int, int]:
    """Return which messages of users, assistants and tools are the same, in order."""
    spoken, heard = _spoken(sent), _spoken(stored)
    said = [_said(sent[place]) for place in spoken]
    found = common_subsequence(said, [_said(stored[position]) for position in heard])
    if found and found[0][1] == 0 < found[0][0] and found[-1][1] == len(heard) - 2 and len(said) > 1:
        # The list begins before what is left of the conversation, and may end with another answer to its last question.
        found[-1] = (len(said) - 2, found[-1][1]) if said[-2] == said[found[-1][0]] else found[-1]
    # Of equal messages, the one just before the next match is it: earlier ones may have been erased.
    for number in range(len(found) - 2, -1, -1):
        before = found[number + 1][0] - 1
        if said[before] == said[found[number][0]]:
            found[number] = (before, found[number][1])
    pairs = {spoken[one]: heard[other] for one, other in found}
    # Tools are compared between two messages that are the same.
    bounds = [(-1, -1), *sorted(pairs.items()), (len(sent), len(stored))]
    for (place, position), (next_place, next_position) in pairwise(bounds):
        ours = [one for one in range(place + 1, next_place) if sent[one].role is Role.TOOL]
        theirs = [one for one in range(position + 1, next_position) if stored[one].role is Role.TOOL] if ours else []
        same = common_subsequence([_said(sent[n]) for n in ours], [_said(stored[n]) for n in theirs])
        pairs |= {ours[one]: theirs[other] for one, other in same}
    return pairs


def _spoken(messages: Sequence[Message]) -> list[int]:
    return [place for place, message in enumerate(messages) if message.role.is_memorable]


def _said(message: Message) -> tuple[Role, str]:
    return message.role, message.text


def common_subsequence(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, in order.

    Of several, it has early positions of `ours` and late ones of `theirs`. The bits of one number are a row of the
    table of lengths, so that thousands of messages take milliseconds (Hyyrö, "Bit-parallel LCS-length computation
    revisited", 2004).
    """
    if list(ours[: len(theirs)]) == list(theirs):
        return [(place, place) for place in range(len(theirs))]
    holding: dict[Hashable, int] = {}
    for place, one in enumerate(ours):
        holding[one] = holding.get(one, 0) | 1 << place
    whole = row = (1 << len(ours)) - 1
    rows = [row]
    for one in theirs:
        found = row & holding.get(one, 0)
        row = (row + found | row - found) & whole
        rows.append(row)
    return list(_traced(ours, theirs, rows))[::-1]


def _traced(ours: Sequence[Hashable], theirs: Sequence[Hashable], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Walk back through the table. A bit of a row is 0 where one more of `ours` makes the subsequence longer."""
    place, position = len(ours), len(theirs)
    while place and position:
        if rows[position] >> place - 1 & 1:
            place -= 1
        elif ours[place - 1] == theirs[position - 1]:
            place, position = place - 1, position - 1
            yield place, position
        else:
            position -= 1
