"""Dates in questions: all those of statements, and "the first week of 2024", "at Christmas", "el 31 de diciembre"."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.date_words import FEASTS, MONTHS
from memory_pipeline.models.deterministic.language.dates import (
    CJK_YEAR,
    DAY,
    MONTH,
    NUMBER,
    OF_YEAR,
    SATURDAY,
    WEEK,
    WHICH,
    YEAR,
    DateMention,
    calendar_day,
    found_in,
    month_of,
    months_from,
    one_day,
    rule,
    shifted,
    valid_date,
    year_of,
)
from memory_pipeline.models.deterministic.language.grammar import Sentence, Tense

if TYPE_CHECKING:
    from memory_pipeline.models.deterministic.language.dates import DateContext, Span

_LONGEST_QUESTION: Final = 2_000
_LONGEST_MONTH: Final = 31
#: Words before a date that make it the bound of an open range; in Chinese and Japanese they follow it.
_OPEN: Final = re.compile(
    r"\b(?:after|before|since|till|until|by|nach|vor|seit|bis)(?: the| dem| zum)? $", re.IGNORECASE
)
_OPEN_AFTER: Final = re.compile("以前|之前|以后|之后|以後|より前|まで|から")
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "frühling": 3, "frühjahr": 3,
                   "sommer": 6, "herbst": 9}  # fmt: skip
_PLACES: Final = {"first": 0, "beginning": 0, "start": 0, "second": 1, "middle": 1, "third": 2, "fourth": 3,
                  "last": -1, "end": -1, "erste": 0, "ersten": 0, "zweiten": 1,
                  "dritten": 2, "letzte": -1, "letzten": -1, "early": 0, "mid": 1, "late": -1,
                  "anfang": 0, "mitte": 1, "ende": -1,
                  "初": 0, "上旬": 0, "中旬": 1, "下旬": -1, "底": -1, "末": -1}  # fmt: skip
#: Without a unit these name a third of a month or year.
_THIRDS: Final = word_set("beginning start middle end early mid late anfang mitte ende 初 上旬 中旬 下旬 底 末")


def date_ranges(text: str, today: date) -> list[DateMention]:
    """Return the date ranges that a question mentions, in order and without overlaps.

    A month or day without a year is the nearest one in the direction of the question's tense; without a tense, the
    latest one. Open ranges ("before May", "since Friday") are left out. A question longer than 2,000 characters gives
    none.
    """
    found = found_in(Sentence.of(text), today, _RULES) if len(text) <= _LONGEST_QUESTION else ()
    return sorted(
        (
            # The name of a feast is a word to search for, too.
            replace(one, end=one.start) if _IS_FEAST.search(text[one.start : one.end]) else one
            for one in found
            if not _OPEN.search(text[max(one.start - 16, 0) : one.start])
            and not _OPEN.match(f"{text[one.start : one.end].partition(' ')[0]} ")
            and not _OPEN_AFTER.match(text, one.end)
        ),
        key=lambda one: one.start,
    )


def _part(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "the first week of January", "the end of 2023", "the second half of last year"."""
    said = match.groupdict()
    unit = said.get("unit")
    if unit is None and said["which"].lower() not in _THIRDS:
        return None  # the first of May is a day
    if said["month"]:
        span = month_of(match, context)
    elif said["year"]:
        span = year_of(match, context)
    elif said["whole"] is None:
        return None
    else:
        span = shifted(context.said_on, said["whole"].lower(), WHICH.get((said["which_whole"] or "").lower(), 0))
    if span is None:
        return None
    first, last, _ = span
    place, unit = _PLACES[said["which"].lower()], (unit or "third").lower()
    count = {"half": 2, "hälfte": 2, "third": 3, "quarter": 4}.get(unit)
    if count:
        place %= count
        months, days = 12 // count, ((last - first).days + 1) // count
        is_year = (last - first).days > _LONGEST_MONTH
        starts = [months_from(first, months * n) if is_year else first + n * days * DAY for n in range(count)]
        first, last = starts[place], [*starts[1:], last + DAY][place] - DAY
    elif unit == "weekend":
        saturday = first + (SATURDAY - first.weekday()) % 7 * DAY
        saturday = last - (last.weekday() - SATURDAY) % 7 * DAY if place < 0 else saturday + place * WEEK
        first, last = saturday, saturday + DAY
    elif place < 0:
        first = last - 6 * DAY
    else:
        first += place * WEEK
        last = first + 6 * DAY
    return first, last, f"{first}/{last}"


def _weekend(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "the weekend of 5 May"."""
    span = calendar_day(match, context)
    return span and shifted(span[0] - (span[0].weekday() == SATURDAY + 1) * DAY, "weekend", 0)


def _day_of_month(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "on the 3rd": of this month or, of a past one, of the last."""
    today, number = context.said_on, int(match["day"])
    months = (months_from(today, count) for count in ((0, 1) if context.tense is Tense.FUTURE else (0, -1)))
    days = [day for month in months if (day := valid_date(month.year, month.month, number))]
    fitting = [day for day in days if (day >= today if context.tense is Tense.FUTURE else day <= today)]
    return one_day(fitting[0]) if fitting else None


def _hours_ago(match: re.Match[str], context: DateContext) -> Span:
    """Resolve "two hours ago" to today and yesterday: the time of day is not known here."""
    first = context.said_on - (match["unit"].lower() in _HOURS) * DAY
    return first, context.said_on, f"{first}/{context.said_on}"


def _feast(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "at Christmas", "New Year's Eve 2023", "last Halloween", "Silvester"."""
    name, said = match["month"], match.groupdict()
    month, day, days = next(key for key, names in FEASTS.items() if re.fullmatch(names, name, re.IGNORECASE))
    every = [date(context.said_on.year + count, month, day) for count in (-1, 0, 1)]
    which = WHICH.get((said["which"] or "").lower(), 0)
    if said["year"]:
        first = date(int(said["year"]), month, day)
    elif which:
        first = (
            [one for one in every if one <= context.said_on][-1]
            if which < 0
            else (next(one for one in every if one > context.said_on))
        )
    else:
        first = context.nearest(every, match)
    last = first + (days - 1) * DAY
    return (first, last, f"{first}/{last}") if days > 1 else one_day(first)


def _season(match: re.Match[str], context: DateContext) -> Span:
    """Resolve "summer 2021", "last summer", "letzten Sommer". Winter 2021 begins in December 2020."""
    start, today = _SEASONS[match["season"].lower()], context.said_on
    year = int(match["year"]) - (start == 12) if match["year"] else today.year - (start >= today.month)
    first = date(year, start, 1)
    last = months_from(first, 3) - DAY
    return first, last, f"{first}/{last}"


_HOURS: Final = word_set("hour 小时")
_IS_FEAST: Final = re.compile("|".join(FEASTS.values()), re.IGNORECASE)
_SEASON: Final = rf"(?P<season>{'|'.join(_SEASONS)})\b"
_FOREIGN_MONTH: Final = rf"(?P<month>{'|'.join(MONTHS)})(?!\w)"
_FOREIGN_YEAR: Final = r"(?: (?:de |del |of )?(?P<year>(?:19|20)[0-9]{2})\b)?"
_OF_WHOLE: Final = (
    rf"(?:of|in|im|des|von)(?: the| dem)?(?: {MONTH}| (?P<which_whole>last |this |next )?(?P<whole>month|year|week)\b)?"
    rf"(?:,? {YEAR}| (?P<which_year>last|this|next) year\b)?"
)
#: In statements these are seldom dates.
_RULES: Final = [
    rule(rf"(?P<which>{'|'.join(_PLACES)}) (?:(?P<unit>week|weekend|half|quarter|woche|hälfte) )?{_OF_WHOLE}",
          _part),
    rule(rf"(?P<which>early|mid|late|anfang|mitte|ende)[ -]{MONTH}{OF_YEAR}(?! ?[0-9])", _part),
    (re.compile(rf"{CJK_YEAR}(?P<month>[0-9]{{1,2}})月(?P<which>初|[上中下]旬|底|末)"), _part),
    rule(rf"weekend of (?:the )?{NUMBER}(?: of | ){MONTH}{OF_YEAR}", _weekend),
    rule(rf"weekend of {MONTH} {NUMBER}{OF_YEAR}", _weekend),
    rule(rf"on the (?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)\b(?! (?:of|{MONTH.replace('?P<month>', '?:')}))",
          _day_of_month),
    rule(rf"between (?P<first>[0-9]{{1,2}})(?:st|nd|rd|th)? and {NUMBER}(?: of |\. ?| ){MONTH}{OF_YEAR}",
          calendar_day),
    rule(rf"(?:(?P<which>last|next|this|letzte[sn]?) )?(?P<month>{'|'.join(FEASTS.values())})"
          rf"(?![^\W\u2e80-\uffdc])(?! resolution)(?:,? (?:of )?{YEAR})?", _feast),
    rule(r"(?:about |around )?(?:[0-9]{1,2}|an?|half an|one|two|three|four|five|six|eight|ten|twelve) "
         r"(?P<unit>hour|minute)s?(?:,?\s(?:and )?(?:[0-9]{1,2} minutes?|a half))?\s{1,2}ago\b", _hours_ago),
    (re.compile(r"(?:[0-9]{1,2}|[一二两三四五六])个?半?(?P<unit>小时|分钟)(?:之?前)"), _hours_ago),
    rule(rf"(?:last|letzten|this|in|im) {_SEASON}(?: (?:of )?{YEAR})?", _season),
    rule(rf"{_SEASON} (?:of )?{YEAR}", _season),
    rule(rf"(?:(?P<first>[0-9]{{1,2}}) ?- ?)?(?P<day>[0-9]{{1,2}})(?:º|er)? (?:de )?{_FOREIGN_MONTH}{_FOREIGN_YEAR}",
          calendar_day),
    rule(rf"(?:en|in|em|в) {_FOREIGN_MONTH}{_FOREIGN_YEAR}", month_of),
]  # fmt: skip
