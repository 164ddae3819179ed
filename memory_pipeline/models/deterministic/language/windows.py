"""Date ranges in a question: "in May", "the first week of 2024", "4月29日", "letzte Woche".

English dates, and "yesterday" or "last week" in other languages, are resolved by
:mod:`memory_pipeline.models.deterministic.language.dates`. This module adds parts of months and years, seasons, numeric
dates (15.01.2024), and dates in German, Chinese and Japanese.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.errors import InputError
from memory_pipeline.models.deterministic.language.dates import dates_in
from memory_pipeline.models.deterministic.language.grammar import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DAY: Final = timedelta(days=1)
_LONGEST: Final = 2_000


class DateRange(NamedTuple):
    """A range of days in a text: first and last day (inclusive), and the span of its words."""

    first: date
    last: date
    start: int
    end: int


def date_ranges(text: str, today: date) -> list[DateRange]:
    """Return the date ranges that a question mentions, in order and without overlaps.

    A month or day without a year is the nearest one in the direction of the question's tense. Open ranges ("before
    May", "since Friday") are left out. A question longer than 2,000 characters gives none.
    """
    if len(text) > _LONGEST:
        return []
    found: list[DateRange] = []
    for span in (*_by_rules(text, today), *_english(text, today)):
        is_open = _OPEN.search(text[max(span.start - 16, 0) : span.start]) or _OPEN_AFTER.match(text[span.end :])
        if not is_open and not any(span.start < other.end and other.start < span.end for other in found):
            found.append(span)
    return sorted(found, key=lambda span: span.start)


#: Words before a date that make it the bound of an open range; in Chinese and Japanese they follow it.
_OPEN = re.compile(r"\b(?:after|before|since|till|until|by|nach|vor|seit|bis)(?: the| dem| zum)? $", re.IGNORECASE)
_OPEN_AFTER = re.compile("以前|之前|以后|之后|以後|より前|まで|から")


def _english(text: str, today: date) -> Iterator[DateRange]:
    for mention in dates_in(Sentence.of(text), today):
        # `dates_in` includes "since" and "by" in an expression such as "since Friday".
        if not _OPEN.match(f"{text[mention.start : mention.end].partition(' ')[0]} "):
            first, last = _days(mention.label)
            yield DateRange(first, last, mention.start, mention.end)


def _days(label: str) -> tuple[date, date]:
    day, slash, last = label.partition("/")
    if slash:
        first = date.fromisoformat(day)
        return first, first.replace(day=int(last)) if int(last) >= first.day else first + _DAY
    for grain in (Grain.DAILY, Grain.WEEKLY, Grain.MONTHLY, Grain.YEARLY):
        try:
            period = Period.parse(grain, label)
        except InputError:
            continue
        return period.first_day, period.end_day - _DAY
    raise AssertionError(label)


_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar", "february feb februar", "march mar märz", "april apr", "may mai", "june jun juni",
            "july jul juli", "august aug", "september sep sept", "october oct oktober okt", "november nov",
            "december dec dezember dez",
        ),
        start=1,
    )
    for name in names.split()
}  # fmt: skip
_MONTH: Final = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_GERMAN_MONTH: Final = (
    r"(?P<month>Januar|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)
_YEAR: Final = r"(?P<year>(?:19|20)[0-9]{2})"
_DECEMBER: Final = 12
_PARTS: Final = {"first": 0, "second": 1, "third": 2, "fourth": 3}
_SEASONS: Final = {
    "spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12,
    "frühling": 3, "frühjahr": 3, "sommer": 6, "herbst": 9,
}  # fmt: skip


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_Range = tuple[date, date] | None


def _by_rules(text: str, today: date) -> Iterator[DateRange]:
    taken: list[tuple[int, int]] = []
    for pattern, resolve in _RULES:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(start < other and begin < end for begin, other in taken):
                continue
            days = resolve(match, today)
            if days is not None:
                taken.append((start, end))
                yield DateRange(*days, start, end)


def _year_of(match: re.Match[str], today: date, month: int) -> int:
    return int(match["year"]) if match["year"] else today.year - (month > today.month)


def _month_number(match: re.Match[str]) -> int:
    name = match["month"].lower()
    return int(name) if name.isdecimal() else _MONTHS[name]


def _whole_month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


def _one_day(match: re.Match[str], today: date) -> _Range:
    month = _month_number(match)
    try:
        day = date(_year_of(match, today, month), month, int(match["day"]))
    except ValueError:
        return None
    return day, day


def _one_month(match: re.Match[str], today: date) -> _Range:
    month = _month_number(match)
    return _whole_month(_year_of(match, today, month), month) if 1 <= month <= 12 else None


def _one_year(match: re.Match[str], today: date) -> _Range:
    del today
    return date(int(match["year"]), 1, 1), date(int(match["year"]), 12, 31)


def _part(match: re.Match[str], today: date) -> _Range:
    """Resolve "the first week of January", "the last week of 2023", "the second half of May"."""
    days = _one_month(match, today) if match["month"] else _one_year(match, today) if match["year"] else None
    if days is None:
        return None
    first, last = days
    which, unit = match["which"].lower(), match["unit"].lower()
    if unit == "half":
        middle = first + (last - first) // 2
        return {"first": (first, middle)}.get(which, (middle + _DAY, last))
    if which == "last":
        return last - 6 * _DAY, last
    return first + 7 * _PARTS[which] * _DAY, first + (7 * _PARTS[which] + 6) * _DAY


def _season(match: re.Match[str], today: date) -> _Range:
    """Resolve "summer 2021", "last summer", "letzten Sommer". Winter 2021 begins in December 2020."""
    start = _SEASONS[match["season"].lower()]
    year = int(match["year"]) - (start == _DECEMBER) if match["year"] else today.year - (start >= today.month)
    years, month = divmod(year * 12 + start + 2, 12)
    return date(year, start, 1), date(years, month + 1, 1) - _DAY


def _rule(
    pattern: str, resolve: Callable[[re.Match[str], date], _Range]
) -> tuple[re.Pattern[str], Callable[..., _Range]]:
    return re.compile(pattern, re.IGNORECASE), resolve


_RULES: Final = (
    _rule(
        rf"\b(?P<which>first|second|third|fourth|last) (?P<unit>week|half) of (?:{_MONTH})?(?:,? ?{_YEAR}\b)?", _part
    ),
    _rule(r"\b(?P<day>[0-9]{1,2})[./](?P<month>[0-9]{1,2})[./](?P<year>(?:19|20)[0-9]{2})\b", _one_day),
    _rule(rf"\b(?P<day>[0-9]{{1,2}})\. ?{_GERMAN_MONTH}(?: {_YEAR}\b)?", _one_day),
    _rule(rf"\b(?:im|letzten) {_GERMAN_MONTH}(?: {_YEAR}\b)?", _one_month),
    _rule(rf"\b(?:last|letzten|this|in|im) (?P<season>{_any_of(_SEASONS)})\b(?: (?:of )?{_YEAR}\b)?", _season),
    _rule(rf"\b(?P<season>{_any_of(_SEASONS)}) (?:of )?{_YEAR}\b", _season),
    _rule(rf"(?:{_YEAR}年)?(?<![0-9])(?P<month>[0-9]{{1,2}})月(?P<day>[0-9]{{1,2}})[日号號]", _one_day),
    _rule(rf"(?:{_YEAR}年)?(?<![0-9])(?P<month>[0-9]{{1,2}})月", _one_month),
    _rule(r"(?P<year>(?:19|20)[0-9]{2})年", _one_year),
)  # fmt: skip
