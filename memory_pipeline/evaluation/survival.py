"""What survives of the past: which known answers can still be read in the memory of each grain.

An answer is looked for in all that remains of its agent at a grain, whoever asks: no search stands in between, so what
is missing here no search can find. It is an upper bound, too: that the words of an answer are there does not say that
they still answer its question.

The share that remains, by size, is how a forgetting summary is judged; compare Lin, "ROUGE" (2004), which counts the
words of a reference that a summary holds. Here the reference is what somebody asked for, not what somebody wrote.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.conversations import Scope
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import InputError
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.models.deterministic.language.dates import dates_in
from memory_pipeline.models.deterministic.language.grammar import Sentence, sentences_of
from memory_pipeline.models.deterministic.language.names import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.lake import Lake

_DAY = timedelta(days=1)
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), start=2)
}
_NUMBER = re.compile(rf"\b(?:[0-9]+(?:[.,:][0-9]+)*|{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
#: A date as :func:`~memory_pipeline.models.deterministic.language.dates.with_dates` writes it.
_LABEL = re.compile(r"\[([0-9]{4}(?:-W[0-9]{2}|-[0-9]{2}(?:-[0-9]{2}(?:/[0-9]{2})?)?)?)\]")
_YEAR = re.compile(r"(?<![0-9.,:/-])(?:19|20)[0-9]{2}(?![0-9%:/-]|[.,][0-9])")
#: A date told from another: "the week before 9 June 2023" is what "last week" is on that day.
_FROM_DATE = re.compile(r"\b(\w+) (before|after|of) (?:the )?\Z", re.IGNORECASE)
_WHICH = {"before": "last", "after": "next", "of": "this"}
_NEIGHBOURS = {"day before": "yesterday", "day after": "tomorrow"}


class Span(NamedTuple):
    """Days from the first to the last."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class Remains:
    """What remains at one grain.

    Attributes:
        grain: the grain; for ``working`` all facts, the turns as they were said among them.
        characters: size of all text that remains at that grain, of the agents asked about, without the dates that stand
            before points.
        answers: how many answers were looked for.
        verbatim: the share of them that are found as words, 0 to 1; 0 where there are none. See
        :meth:`GrainContent.says`.
        values: of those that have a number, a date or a name, the share all of whose values are found, 0 to 1; 0 where
            there are none. See :meth:`GrainContent.holds`.
    """

    grain: Grain
    characters: int
    answers: int
    verbatim: float
    values: float


@dataclass(frozen=True, slots=True)
class Values:
    """The concrete things in a text: numbers as digits, the days that it speaks of, and names as folded words."""

    numbers: frozenset[str]
    dates: frozenset[Span]
    names: frozenset[tuple[str, ...]]

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.numbers or self.dates or self.names)

    @classmethod
    def of_answer(cls, text: str) -> Values:
        """Return the values of an answer, which stands alone: its dates are those that say their year."""
        sentence = Sentence.of(text)
        dates: set[Span | None] = set()
        rest = list(text)
        # Nobody knows when it was said; the date matters only to mentions that are left out here.
        for mention in dates_in(sentence, date(2000, 1, 1)):
            if mention.is_complete:
                dates.add(_told_from(text[: mention.start], mention.day) or _span(mention.label))
                rest[mention.start : mention.end] = " " * (mention.end - mention.start)
        for match in _YEAR.finditer("".join(rest)):
            dates.add(_span(match.group()))
            rest[match.start() : match.end()] = " " * (match.end() - match.start())
        (names,) = names_in([sentence])
        folded = (tuple(terms(name)) for name in names)
        return cls(_numbers("".join(rest)), frozenset(filter(None, dates)), frozenset(filter(None, folded)))


class GrainContent:
    """The texts that remain of one agent at one grain, prepared for being looked through.

    Args:
        texts: each with the day on which it was said, from which "yesterday" is counted.
    """

    def __init__(self, texts: Iterable[tuple[str, date]]) -> None:
        self.characters = 0
        self._places: defaultdict[str, set[int]] = defaultdict(set)
        numbers: set[str] = set()
        dates: set[Span] = set()
        days: set[date] = set()
        for place, (text, said_on) in enumerate(texts):
            self.characters += len(text)
            for word in terms(text):
                self._places[word].add(place)
            numbers |= _numbers(_LABEL.sub(" ", text))
            dates.update(_dates(text, said_on))
            days.add(said_on)
        self._numbers, self._dates, self._days = numbers, dates, days

    def says(self, words: Sequence[str]) -> bool:
        """Tell whether all `words`, as ``ranking.terms`` returns them, stand in one text.

        A text is a sentence of a summary, or a fact. Their order there does not matter, nor what stands between: "a
        dog and two cats" says "two cats and a dog".
        """
        places = [self._places.get(word, set()) for word in words]
        return bool(places) and bool(set.intersection(*places))

    def holds(self, values: Values) -> bool:
        """Tell whether all `values` stand anywhere in the texts, each on its own.

        Numbers are compared as digits, "two" like "2". A date is there if a text speaks of days that all lie in it,
        however they are written ("yesterday", "[2023-05-07]", "7 May"); or if it is a week at most, and a text was
        said in it. A name is there if one text has all its words.
        """
        return (
            values.numbers <= self._numbers
            and all(map(self._holds_date, values.dates))
            and all(map(self.says, values.names))
        )

    def _holds_date(self, wanted: Span) -> bool:
        if any(wanted.first <= span.first and span.last <= wanted.last for span in self._dates):
            return True
        return (wanted.last - wanted.first).days < 7 and any(wanted.first <= day <= wanted.last for day in self._days)


def survival(lake: Lake, answers: Mapping[Scope, Sequence[str]]) -> list[Remains]:
    """Return what remains at each grain, from working memory to the year; it reads text alone, and no vectors.

    Args:
        lake: the lake.
        answers: short known answers of each agent ("7 May 2023", "Porto"). Those that hold nothing but stop words
            ("Yes") are not looked for: they are found anywhere.
    """
    return [remains(grain, _memories(lake, grain, set(answers)), answers) for grain in Grain]


def remains(grain: Grain, memories: Mapping[Scope, GrainContent], answers: Mapping[Scope, Sequence[str]]) -> Remains:
    """Return which of the `answers` are in the memories of one grain; an agent without memory has lost all of its."""
    asked = said = concrete = held = 0
    nothing = GrainContent(())
    for scope, texts in answers.items():
        memory = memories.get(scope, nothing)
        for text in texts:
            words = terms(text)
            if not words:
                continue
            asked += 1
            said += memory.says(words)
            if values := Values.of_answer(text):
                concrete += 1
                held += memory.holds(values)
    characters = sum(memories[scope].characters for scope in answers if scope in memories)
    return Remains(grain, characters, asked, said / max(asked, 1), held / max(concrete, 1))


def _memories(lake: Lake, grain: Grain, scopes: set[Scope]) -> dict[Scope, GrainContent]:
    texts: defaultdict[Scope, list[tuple[str, date]]] = defaultdict(list)
    own = ["workspace_id", "agent_id"]
    if grain is Grain.WORKING:
        rows = lake.tables.read(FACTS, columns=[*own, "content", "event_at"])
    else:
        rows = lake.tables.read(SUMMARIES, columns=[*own, "key_points"], grain=grain.value)
    for row in rows.to_pylist():
        scope = Scope(row["workspace_id"], row["agent_id"])
        if scope not in scopes:
            continue
        points = row.get("key_points") or [{"sentence": row.get("content", ""), "event_at": row.get("event_at")}]
        texts[scope] += [(point["sentence"], lake.calendar.day_of(point["event_at"])) for point in points]
    return {scope: GrainContent(found) for scope, found in texts.items()}


def _numbers(text: str) -> frozenset[str]:
    """Return the numbers in a text as digits without separators of thousands."""
    found = (match.group().lower() for match in _NUMBER.finditer(text))
    return frozenset(_NUMBER_WORDS.get(number) or re.sub(r",(?=[0-9]{3}\b)", "", number) for number in found)


def _dates(text: str, said_on: date) -> Iterator[Span]:
    """Yield the dates that a text speaks of: those in brackets, those in words, and years alone."""
    labels = _LABEL.findall(text)
    text = _LABEL.sub(" ", text)
    labels += [mention.label for sentence in sentences_of(text) for mention in dates_in(sentence, said_on)]
    labels += _YEAR.findall(text)
    yield from filter(None, map(_span, labels))


def _told_from(before: str, day: date) -> Span | None:
    """Return the days that words before a date tell from it: "the week before", "the Friday after"; None if none do."""
    match = _FROM_DATE.search(before)
    if not match:
        return None
    unit, which = match[1].lower(), match[2].lower()
    words = _NEIGHBOURS.get(f"{unit} {which}", f"{_WHICH[which]} {unit.title() if unit.endswith('day') else unit}")
    mentions = dates_in(Sentence.of(words), day)
    return _span(mentions[0].label) if mentions else None


def _span(label: str) -> Span | None:
    """Return the days of a ``DateMention.label``; None if it is none.

    Labels are also what somebody wrote in brackets, which need not be a date.
    """
    try:
        if len(label) < 10:
            period = Period.parse({4: Grain.YEARLY, 7: Grain.MONTHLY, 8: Grain.WEEKLY}[len(label)], label)
            return Span(period.first_day, period.end_day - _DAY)
        first = date.fromisoformat(label[:10])
        # A weekend may end on the first of the next month.
        last = first.replace(day=int(label[11:])) if int(label[11:] or 0) > first.day else first
        return Span(first, max(last, first + _DAY) if len(label) > 10 else first)
    except (ValueError, InputError):
        return None
