"""Measure which known answers the memory of each grain still contains.

An answer is looked up in all text of its agent at a grain, without search: no search can find an answer that is missing
here. It is an upper bound: the words of an answer may be present without answering its question.

The share by text size rates a lossy summary. Compare Lin, "ROUGE" (2004), which counts the words of a reference that a
summary contains; here the reference is an answer to a question instead of a human summary.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import InputError
from memory_pipeline.lake.schemas import table_of
from memory_pipeline.models.deterministic.language.dates import dates_in
from memory_pipeline.models.deterministic.language.grammar import Sentence, sentences_of
from memory_pipeline.models.deterministic.language.names import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from memory_pipeline.lake import Lake

    #: Returns the rows of a grain with some columns.
    RowsOfGrain = Callable[[Grain, Sequence[str]], pa.Table]

_DAY = timedelta(days=1)
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), start=2)
}
_NUMBER = re.compile(rf"\b(?:[0-9]+(?:[.,:][0-9]+)*|{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
#: A date in the format of :func:`~memory_pipeline.models.deterministic.language.dates.with_dates`.
_LABEL = re.compile(r"\[([0-9]{4}(?:-W[0-9]{2}|-[0-9]{2}(?:-[0-9]{2}(?:/[0-9]{2})?)?)?)\]")
_YEAR = re.compile(r"(?<![0-9.,:/-])(?:19|20)[0-9]{2}(?![0-9%:/-]|[.,][0-9])")
#: A date relative to another: "the week before 9 June 2023" is "last week" on that day.
_FROM_DATE = re.compile(r"\b(\w+) (before|after|of) (?:the )?\Z", re.IGNORECASE)
_WHICH = {"before": "last", "after": "next", "of": "this"}
_NEIGHBOURS = {"day before": "yesterday", "day after": "tomorrow"}


class Span(NamedTuple):
    """A range of days, both included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class Remains:
    """The answers that one grain still contains. ``working`` includes all facts and turns.

    Attributes:
        characters: size of the grain's text, of the agents of the answers, without the dates before points.
        answers: number of answers looked up.
        verbatim: share of answers with all words in one text (:meth:`GrainContent.contains_words`), 0 to 1; 0 without
            answers.
        values: of the answers with a number, date or name, the share with all these values in the texts
            (:meth:`GrainContent.contains_values`), 0 to 1; 0 without such answers.
    """

    grain: Grain
    characters: int
    answers: int
    verbatim: float
    values: float


@dataclass(frozen=True, slots=True)
class Values:
    """The values in a text: numbers as digits, dates as days, and names as folded words."""

    numbers: frozenset[str]
    dates: frozenset[Span]
    names: frozenset[tuple[str, ...]]

    def __bool__(self) -> bool:
        return bool(self.numbers or self.dates or self.names)

    @classmethod
    def of_answer(cls, text: str) -> Values:
        """Return the values of an answer. Only dates with a year count, since its context is unknown."""
        sentence = Sentence.of(text)
        dates: set[Span | None] = set()
        rest = list(text)
        # The reference date is unknown; it matters only for incomplete mentions, which are skipped.
        for mention in dates_in(sentence, date(2000, 1, 1)):
            if mention.is_complete:
                dates.add(_relative_span(text[: mention.start], mention.day) or _span(mention.label))
                rest[mention.start : mention.end] = " " * (mention.end - mention.start)
        for match in _YEAR.finditer("".join(rest)):
            dates.add(_span(match.group()))
            rest[match.start() : match.end()] = " " * (match.end() - match.start())
        (names,) = names_in([sentence])
        folded = (tuple(terms(name)) for name in names)
        return cls(_numbers("".join(rest)), frozenset(filter(None, dates)), frozenset(filter(None, folded)))


class GrainContent:
    """The texts of one agent at one grain, indexed for lookups.

    `texts` has the day of each, from which "yesterday" is resolved.
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

    def contains_words(self, words: Sequence[str]) -> bool:
        """Return whether one text, a fact or a sentence of a summary, contains all `words` in any order.

        `words` are terms of ``ranking.terms``.
        """
        places = [self._places.get(word, set()) for word in words]
        return bool(places) and bool(set.intersection(*places))

    def contains_values(self, values: Values) -> bool:
        """Return whether the texts contain all `values`, each in any text.

        Numbers are compared as digits, "two" as "2". A date is found if a text mentions days within it, in any form
        ("yesterday", "[2023-05-07]", "7 May"), or if it is at most a week long and a text is from these days. A name is
        found if one text has all its words.
        """
        return (
            values.numbers <= self._numbers
            and all(map(self._contains_date, values.dates))
            and all(map(self.contains_words, values.names))
        )

    def _contains_date(self, target: Span) -> bool:
        if any(target.first <= span.first and span.last <= target.last for span in self._dates):
            return True
        return (target.last - target.first).days < 7 and any(target.first <= day <= target.last for day in self._days)


def survival(lake: Lake, answers: Mapping[Scope, Sequence[str]]) -> list[Remains]:
    """Return the share of answers that each grain contains, from working memory to the year. Reads no vectors.

    `answers` are short answers per agent ("7 May 2023", "Porto"). Answers of stop words alone ("Yes") are skipped: they
    would be found anywhere.
    """
    stored = partial(_stored, lake)
    return [remains(grain, _memories(lake, grain, set(answers), stored), answers) for grain in Grain]


@dataclass(frozen=True, slots=True)
class Loss:
    """The answers of an evaluation that one grain contains, and how many of them it would lose.

    An answer is contained if one text has all its words. `grain` is None for all grains together: an answer is lost
    there if no grain keeps it.
    """

    grain: Grain | None
    answers: int
    contained: int
    lost: int


def losses(lake: Lake, kept: RowsOfGrain, answers: Mapping[Scope, Sequence[str]]) -> list[Loss]:
    """Return the answers that each grain would lose, and all grains together, if it had only the rows `kept`.

    `kept` returns the remaining rows of a grain, with at least the given columns. `answers` are as in
    :func:`survival`; durable memories and the graph, which retention does not delete by default, are not read.
    """
    asked = [(scope, words) for scope, texts in answers.items() for words in map(terms, texts) if words]
    nothing = GrainContent(())

    def contained(grain: Grain, rows: RowsOfGrain) -> set[int]:
        memories = _memories(lake, grain, set(answers), rows)
        places = enumerate(asked)
        return {place for place, (scope, words) in places if memories.get(scope, nothing).contains_words(words)}

    before = {grain: contained(grain, partial(_stored, lake)) for grain in Grain}
    after = {grain: contained(grain, kept) for grain in Grain}
    found = [Loss(grain, len(asked), len(before[grain]), len(before[grain] - after[grain])) for grain in Grain]
    ever, still = set().union(*before.values()), set().union(*after.values())
    return [*found, Loss(None, len(asked), len(ever), len(ever - still))]


def remains(grain: Grain, memories: Mapping[Scope, GrainContent], answers: Mapping[Scope, Sequence[str]]) -> Remains:
    """Return the share of `answers` in the memories of one grain. An agent without memories contains none."""
    count = verbatim = with_values = complete = 0
    nothing = GrainContent(())
    for scope, texts in answers.items():
        memory = memories.get(scope, nothing)
        for text in texts:
            words = terms(text)
            if not words:
                continue
            count += 1
            verbatim += memory.contains_words(words)
            if values := Values.of_answer(text):
                with_values += 1
                complete += memory.contains_values(values)
    characters = sum(memories[scope].characters for scope in answers if scope in memories)
    return Remains(grain, characters, count, verbatim / max(count, 1), complete / max(with_values, 1))


def _stored(lake: Lake, grain: Grain, columns: Sequence[str]) -> pa.Table:
    spec, fixed = table_of(grain)
    return lake.tables.read(spec, columns=columns, shard=None, **fixed)


def _memories(lake: Lake, grain: Grain, scopes: set[Scope], rows: RowsOfGrain) -> dict[Scope, GrainContent]:
    texts: defaultdict[Scope, list[tuple[str, date]]] = defaultdict(list)
    ids = ["workspace_id", "agent_id"]
    columns = ["content", "event_at"] if grain is Grain.WORKING else ["key_points"]
    for row in rows(grain, [*ids, *columns]).select([*ids, *columns]).to_pylist():
        scope = Scope(row["workspace_id"], row["agent_id"])
        if scope not in scopes:
            continue
        points = row.get("key_points") or [{"sentence": row.get("content", ""), "event_at": row.get("event_at")}]
        texts[scope] += [(point["sentence"], lake.calendar.day_of(point["event_at"])) for point in points]
    return {scope: GrainContent(found) for scope, found in texts.items()}


def _numbers(text: str) -> frozenset[str]:
    """Return the numbers in a text as digits, without thousands separators."""
    found = (match.group().lower() for match in _NUMBER.finditer(text))
    return frozenset(_NUMBER_WORDS.get(number) or re.sub(r",(?=[0-9]{3}\b)", "", number) for number in found)


def _dates(text: str, said_on: date) -> Iterator[Span]:
    """Yield the dates in a text: in brackets, in words, and single years."""
    labels = _LABEL.findall(text)
    text = _LABEL.sub(" ", text)
    labels += [mention.label for sentence in sentences_of(text) for mention in dates_in(sentence, said_on)]
    labels += _YEAR.findall(text)
    yield from filter(None, map(_span, labels))


def _relative_span(before: str, day: date) -> Span | None:
    """Resolve words before a date, such as "the week before" or "the Friday after". None without such words."""
    match = _FROM_DATE.search(before)
    if not match:
        return None
    unit, which = match[1].lower(), match[2].lower()
    words = _NEIGHBOURS.get(f"{unit} {which}", f"{_WHICH[which]} {unit.title() if unit.endswith('day') else unit}")
    mentions = dates_in(Sentence.of(words), day)
    return _span(mentions[0].label) if mentions else None


def _span(label: str) -> Span | None:
    """Return the days of a ``DateMention.label``, or None if it is not a date: users write brackets, too."""
    try:
        if len(label) < 10:
            period = Period.parse({4: Grain.YEARLY, 7: Grain.MONTHLY, 8: Grain.WEEKLY}[len(label)], label)
            return Span(period.first_day, period.end_day - _DAY)
        first = date.fromisoformat(label[:10])
        # The second day of a weekend may be the first of the next month.
        last = first.replace(day=int(label[11:])) if int(label[11:] or 0) > first.day else first
        return Span(first, max(last, first + _DAY) if len(label) > 10 else first)
    except (ValueError, InputError):
        return None
