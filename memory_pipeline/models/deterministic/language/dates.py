"""Dates in text: "yesterday", "last Friday", "in three weeks", "on 7 May", resolved against the day of the message.

English is ambiguous. These rules decide:

- "last Friday" is the latest Friday before the day, "next Friday" that of the next ISO week, "this Friday" the coming
  one, today included. "on Friday" follows the tense of its sentence; in the present tense it is not resolved, since
  "we close on Friday" may be a habit.
- A date without a year is the nearest one. A date against the tense of its sentence counts as further away, by the
  factors in :data:`_AGAINST`; after "by" or "until", and in "we meet on 14 March", the tense is the future. A weekday
  ("Sunday 12 October") overrides this: it selects the year in which it fits.
- In sentences with words of habit ("every", "usually") neither of the two is resolved.
- In twelve other languages "yesterday", "last week", "next Monday" and the like are resolved, from one table. German,
  Chinese and Japanese dates with a month ("7. Mai", "5月7日") follow the rules for English ones.
- All days are calendar days in the zone of the day that the caller passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.date_words import AFFIXES, MONTHS, NOUNS, PHRASES
from memory_pipeline.models.deterministic.language.grammar import Sentence, Tense, tense_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
SATURDAY: Final = 5


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date that a text mentions. `start` and `end` delimit its words in the text.

    Attributes:
        day: the day, or the first day of the week, weekend, month, year or other range.
        last: the last day of the range; `day` if it is one day.
        label: the date at its precision: ``2023-05-07``, ``2023-05-06/07`` (a weekend or another range of days, as an
            ISO 8601 interval), ``2023-W18``, ``2023-06``, ``2022``.
        is_complete: whether the text itself is unambiguous ("7 May 2023").
    """

    start: int
    end: int
    day: date
    last: date
    label: str
    is_complete: bool = False

    @property
    def instant(self) -> datetime:
        """The day at 00:00 UTC."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)


def dates_in(sentence: Sentence, said_on: date) -> list[DateMention]:
    """Return the dates that a sentence mentions on the day `said_on`, in order and without overlaps."""
    return sorted(found_in(sentence, said_on), key=lambda mention: mention.start)


def with_dates(text: str, mentions: Sequence[DateMention]) -> str:
    """Return `text` with each date in brackets after its words, as in "I went yesterday [2023-05-07].".

    Complete dates are not annotated. Of two adjacent equal dates ("next Tuesday, 4 February") only the second is.
    """
    pieces: list[str] = []
    done = 0
    for mention, following in zip_longest(mentions, mentions[1:]):
        repeated = following is not None and following.label == mention.label and following.start - mention.end <= 3
        if mention.is_complete or repeated or text.startswith(" [", mention.end):
            continue
        pieces += (text[done : mention.end], f" [{mention.label}]")
        done = mention.end
    return "".join([*pieces, text[done:]])


def found_in(sentence: Sentence, said_on: date, of_questions: Sequence[Rule] = ()) -> Iterator[DateMention]:
    """Yield the dates of a sentence, or of a question if there are rules of questions, in order of the rules."""
    text, parts = sentence.text, sentence.parts
    rules = list(of_questions)
    if any(part in _HINTS or part[:3] in _NAMES for part in parts) or any(map(str.isdigit, text)):
        rules += _RULES
    if not text.isascii() or any(part.startswith(_FOREIGN_HINTS) for part in parts):
        rules += _foreign()
    if not rules:
        return
    context = DateContext(said_on, tense_of(parts), not _HABIT.isdisjoint(parts), bool(of_questions))
    taken: list[tuple[int, int]] = []
    for pattern, resolve in rules:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(start < last and first < end for first, last in taken) or not _LOOKALIKES.isdisjoint(match.group()):
                continue  # an earlier, more specific rule matched
            near = _AMBIGUOUS.get(match.group().lower())
            span = resolve(match, context) if near is None or not near.isdisjoint(parts) else None
            if span is not None:
                taken.append((start, end))
                if span[-1]:
                    yield DateMention(start, end, *span, is_complete=bool(match.groupdict().get("year")))


#: First day, last day and label; an empty label for words that look like a date and are none.
Span = tuple[date, date, str]


@dataclass(frozen=True, slots=True)
class DateContext:
    """What a date is resolved against. `is_habit`: the sentence has a word such as "every"."""

    said_on: date
    tense: Tense
    is_habit: bool
    is_question: bool

    def nearest(self, days: Sequence[date], match: re.Match[str]) -> date:
        """Return the nearest of `days`; days against the tense count as further away."""
        before = match.string[max(match.start("month") - 40, 0) : match.start("month")]
        is_meeting = self.tense is Tense.PRESENT and match.string[: match.start()].lower().endswith(("on ", "on the "))
        is_ahead = is_meeting or (_DEADLINE.search(before) and not (self.is_question and self.tense is Tense.PAST))
        tense = Tense.FUTURE if is_ahead else self.tense
        tense = Tense.PAST if self.is_question and tense is Tense.NONE else tense
        factor = _IN_QUESTIONS if self.is_question and tense is Tense.PAST else _AGAINST[tense]

        def distance(day: date) -> int:
            days = (day - self.said_on).days
            against = days > 0 if tense is Tense.PAST else days < 0 and tense is not Tense.NONE
            return abs(days) * (factor if against else 1)

        return min(days, key=distance)


#: Factor on the distance of a date without a year that is against the tense of its sentence.
_AGAINST: Final = {Tense.PAST: 6, Tense.PRESENT: 2, Tense.FUTURE: 12, Tense.NONE: 1}
#: The same for a question about the past, which asks for no future date.
_IN_QUESTIONS: Final = 1_000

_MONTHS: Final = {"jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7, "aug": 8,
                  "sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12}  # fmt: skip
_WEEKDAYS: Final = {"mon": 0, "tue": 1, "wed": 2, "thu": 3, "fri": 4, "sat": 5, "sun": 6}
_NAMES: Final = frozenset([*_MONTHS, *_WEEKDAYS])
_COUNTS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "four": 4, "five": 5, "six": 6,
                  "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip
WHICH: Final = {"last": -1, "letzten": -1, "this past": -1, "since": -1, "去年": -1, "昨年": -1, "next": 1, "明年": 1,
                 "来年": 1}  # fmt: skip

#: Months and weekdays that are other words unless capitalized.
_NEEDS_CAPITAL: Final = word_set("may march mar sat sun wed")
#: Letters that IGNORECASE treats as i, s and k: "Frıday" is not a weekday.
_LOOKALIKES: Final = frozenset("ıİſ\N{KELVIN SIGN}")
_HABIT: Final = word_set("every each usually often always sometimes normally")
#: An English sentence without one of these, a month, a weekday or a digit has no date.
_HINTS: Final = word_set(
    "today tonight yesterday tomorrow ago last next week weekend month year day days weeks months years morning"
    " afternoon evening night"
)
#: Words before a date in the future, whatever the tense: "I promised to pay by the end of July", "we booked the hall
#: for 7 May".
_DEADLINE: Final = re.compile(
    r"\b(?:(?:by|until|till|due)\b[a-z0-9 ]{0,24}"
    r"|(?:ends|starts|begins|expires|finishes|opens|reopens|closes) (?:on |in |from )?(?:[a-z]{3,6}day,? )?(?:the )?"
    r"(?:[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?)?"
    r"|(?:for|to|from) (?:[a-z]{3,6}day,? )?(?:the )?(?:[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?)?)\Z",
    re.IGNORECASE,
)


def one_day(day: date) -> Span:
    """Return the span of a day."""
    return day, day, day.isoformat()


def in_period(grain: Grain, day: date) -> Span:
    """Return the span of the period that contains a day."""
    period = Period.containing(grain, day)
    return period.first_day, period.end_day - DAY, period.key


def valid_date(year: int, month: int, day: int) -> date | None:
    """Return a date, or None if there is no such day."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def months_from(day: date, months: int) -> date:
    """Return the first day of the month that is so many months after the one of a day."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, 1)


def shifted(day: date, unit: str, count: int) -> Span:
    """Return the day, week, weekend, month or year that is `count` after the one of a day.

    Of a weekday ("0" is Monday): the latest before the day (-1), the coming one or the day itself (0), or that of the
    next week (1). Without a unit there is no label.
    """
    match unit:
        case "":
            span = day, day, ""
        case "day":
            span = one_day(day + count * DAY)
        case "week":
            span = in_period(Grain.WEEKLY, day + count * WEEK)
        case "weekend":
            saturday = day + (SATURDAY - day.weekday()) * DAY + count * WEEK
            span = saturday, saturday + DAY, f"{saturday}/{saturday + DAY:%d}"
        case "month":
            span = in_period(Grain.MONTHLY, months_from(day, count))
        case "year":
            span = in_period(Grain.YEARLY, date(day.year + count, 1, 1))
        case _:
            ahead = (int(unit) - day.weekday()) % 7
            span = one_day(day + (7 - day.weekday() + int(unit) if count > 0 else ahead - 7 * (count < 0)) * DAY)
    return span


def _number(name: str, numbers: dict[str, int]) -> int | None:
    """Return the number of a month or weekday, or None if the name may be another word."""
    if name.isdecimal():
        return int(name)
    if name in _NEEDS_CAPITAL:
        return None
    if (short := name[:3].lower()) in numbers:
        return numbers[short]
    return next(place for place, names in enumerate(MONTHS, start=1) if re.fullmatch(names, name, re.IGNORECASE))


def _fixed(unit: str, count: int, match: re.Match[str], context: DateContext) -> Span:  # noqa: ARG001  # a rule's shape
    return shifted(context.said_on, unit, count)


def calendar_day(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "7 May", "9 to 13 June", "Sunday, October 12th", "16 May next year", "2023-05-07", "5月7日"."""
    said, today = match.groupdict(), context.said_on
    month = _number(said["month"], _MONTHS)
    if month is None:
        return None
    if said.get("year"):
        years = [int(said["year"])]
    elif said.get("which_year"):
        years = [today.year + WHICH.get(said["which_year"].lower(), 0)]
    elif context.is_habit:
        return None
    else:
        # Wide enough for a 29 February on either side, in any century.
        years = list(range(max(today.year - 8, 1), today.year + 9))
    days = [day for year in years if (day := valid_date(year, month, int(said["day"])))]
    weekday = said.get("weekday") and _number(said["weekday"], _WEEKDAYS)
    near = [day for day in days if day.weekday() == weekday and abs(day.year - today.year) <= 1]
    if not days:
        return None
    last = context.nearest(near or days, match)
    first = int(said.get("first") or last.day)
    day = last.replace(day=first) if 0 < first < last.day else last
    return (day, last, f"{day}/{last:%d}") if day < last else one_day(last)


def month_of(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "in March", "late March", "since March 2024", "March next year", "last March", "5月"."""
    said, today = match.groupdict(), context.said_on
    month = _number(said["month"], _MONTHS)
    if month is None or not 1 <= month <= 12:
        return None
    which, which_year = (said.get("which") or "").lower(), (said.get("which_year") or "").lower()
    if said.get("year"):
        year = int(said["year"])
    elif which_year or which == "this":
        year = today.year + WHICH.get(which_year, 0)
    elif which in WHICH:
        year = today.year - (month >= today.month) if WHICH[which] < 0 else today.year + (month <= today.month)
    elif context.is_habit:
        return None
    else:
        # The current month is at distance 0.
        months = [today if n == 0 and month == today.month else date(today.year + n, month, 1) for n in (-1, 0, 1)]
        year = context.nearest(months, match).year
    return in_period(Grain.MONTHLY, date(year, month, 1))


def year_of(match: re.Match[str], context: DateContext) -> Span:  # noqa: ARG001  # a rule's shape
    """Resolve "in 2024", "2024年"."""
    return in_period(Grain.YEARLY, date(int(match["year"]), 1, 1))


def _unit(match: re.Match[str], context: DateContext) -> Span:
    """Resolve "last week", "this month", "next year", "this past weekend"."""
    which, unit, today = match["which"].lower(), match["unit"].lower(), context.said_on
    is_now = which == "this past" and unit == "weekend" and today.weekday() >= SATURDAY
    return shifted(today, unit, 0 if is_now else WHICH.get(which, 0))


def _weekday(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "last Friday", "next Friday", "this coming Friday"; "on Friday", "by Friday", "since Friday"."""
    which, weekday, today = match["which"].lower(), _number(match["weekday"], _WEEKDAYS), context.said_on
    if weekday is None:
        return None
    if which == "on":
        if context.is_habit or context.tense not in (Tense.PAST, Tense.FUTURE):
            return None
        which = "last" if context.tense is Tense.PAST else "this coming"
    if which == "this coming" and weekday == today.weekday():
        return one_day(today + WEEK)
    return shifted(today, str(weekday), WHICH.get(which, 0))


def _counted(match: re.Match[str], context: DateContext) -> Span | None:
    """Resolve "two days ago", and "in three weeks", which in the past tense is a duration."""
    is_ago = match[0].lower().endswith("ago")
    if not is_ago and (context.is_habit or context.tense is Tense.PAST):
        return None
    count = _COUNTS.get(match["count"].lower()) or int(match["count"])
    return shifted(context.said_on, match["unit"].lower(), -count if is_ago else count)


Rule = tuple[re.Pattern[str], "Callable[[re.Match[str], DateContext], Span | None]"]


def rule(pattern: str, resolve: Callable[[re.Match[str], DateContext], Span | None]) -> Rule:
    """Return a rule for words that match a pattern, in any case."""
    # A possessive belongs to the expression: "yesterday's [2023-05-07] meeting".
    return re.compile(rf"\b(?:{pattern})(?:['’]s\b)?", re.IGNORECASE), resolve


MONTH: Final = (
    r"(?P<month>Jan(?:uary?)?|Feb(?:ruary?)?|Mar(?:ch)?|März|Apr(?:il)?|Ma[iy]|Jun[ei]?|Jul[iy]?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)\b"
)
_WEEKDAY: Final = (
    r"(?P<weekday>Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:r(?:s(?:day)?)?)?|Fri(?:day)?|Sat(?:urday)?"
    r"|Sun(?:day)?)\b"
)
_RANGE: Final = r"(?:(?P<first>[0-9]{1,2})(?:st|nd|rd|th)?(?: to | - | – |-|–))?"
NUMBER: Final = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_COUNT: Final = rf"(?P<count>[0-9]{{1,3}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT: Final = r"(?P<unit>day|week|month|year)s?\b"
YEAR: Final = r"(?P<year>(?:19|20)[0-9]{2})\b"
OF_YEAR: Final = rf"(?:,? {YEAR}| (?P<which_year>last|this|next) year\b)?"
_WHEN: Final = r"(?:in|im|since|until|till|by|from|of|before|after|during|early|late|mid)[ -]"
CJK_YEAR: Final = r"(?:(?:(?P<year>(?:19|20)[0-9]{2})年|(?P<which_year>去年|昨年|今年|明年|来年)の?))?(?<![0-9])"

_ENGLISH_DAYS: Final = {-2: "day before yesterday", 2: "day after tomorrow", -1: "yesterday|last night", 1: "tomorrow",
                        0: "today|tonight|this (?:morning|afternoon|evening)"}  # fmt: skip

#: In order of precedence: words that one rule has matched are not matched again.
_RULES: Final = [
    rule(rf"{YEAR}-(?P<month>[0-9]{{2}})-{NUMBER}\b", calendar_day),
    rule(rf"{NUMBER}\.(?P<month>[0-9]{{1,2}})\.{YEAR}", calendar_day),
    rule(
        rf"(?:{_WEEKDAY},? (?:the )?)?{_RANGE}{NUMBER}(?: of |\. ?| ){MONTH}{OF_YEAR}", calendar_day
    ),
    rule(rf"(?:{_WEEKDAY},? )?{MONTH} {NUMBER}\b(?![.:][0-9]){OF_YEAR}", calendar_day),
    *(rule(rf"(?:{words})\b", partial(_fixed, "day", count)) for count, words in _ENGLISH_DAYS.items()),
    rule(rf"{_COUNT} {_UNIT} ago\b", _counted),
    rule(rf"(?<!once )(?<!twice )(?<!times )in {_COUNT} {_UNIT}", _counted),
    rule(r"(?P<which>last|next|this past|this coming|this) (?P<unit>weekend|week|month|year)\b", _unit),
    rule(rf"(?P<which>last|next|this past|this coming|this|on|by|until|till|since) {_WEEKDAY}", _weekday),
    rule(rf"(?:(?P<which>last|letzten|next|this) |{_WHEN}){MONTH}{OF_YEAR}(?! ?[0-9])", month_of),
    rule(rf"{MONTH},? {YEAR}", month_of),
    rule(rf"(?:in|since|until|by|from|of|before|after|during) {YEAR}(?! ?[a-z%€$£])", year_of),
    (re.compile(rf"{CJK_YEAR}(?P<month>[0-9]{{1,2}})月(?P<day>[0-9]{{1,2}})[日号號]"), calendar_day),
    (re.compile(rf"{CJK_YEAR}(?P<month>[0-9]{{1,2}})月"), month_of),
    (re.compile(r"(?P<year>(?:19|20)[0-9]{2})年"), year_of),
]  # fmt: skip
#: A phrase that is a common word of another language, and words of its own language, one of which must be near.
_AMBIGUOUS: Final = {"hier": word_set("je j'ai nous vous elle les une est et avec chez ma mon mes a ont était suis")}

#: Letters of scripts with blanks between words: a phrase is not within a longer word.
_LETTER: Final = "[a-zà-öø-ÿа-яё\u0621-\u064a]"


@cache
def _foreign() -> list[Rule]:
    """Return the rules for other languages in order of precedence. Most processes read no text that needs them."""
    return [
        (
            re.compile(rf"(?<!{_LETTER})(?:{phrases})(?!{_LETTER})", re.IGNORECASE),
            partial(_fixed, unit, count),
        )
        for unit, count, phrases in (
            *(
                (noun, count, rf"(?:{before})\s?(?:{names})|(?:{names})\s?(?:{after})")
                for noun, names in reversed(NOUNS.items())
                for count, (before, after) in AFFIXES.items()
            ),
            *((*key, phrases) for key, phrases in PHRASES.items()),
        )
    ]


#: An ASCII sentence without a word that begins with one of these has none of the phrases.
_FOREIGN_HINTS: Final = tuple(
    {
        word
        for phrases in (*PHRASES.values(), *(affix for affixes in AFFIXES.values() for affix in affixes))
        for word in re.findall(r"(?<![a-zà-ÿ(:\[])[a-z]{3,}(?![à-ÿ?])", phrases)
    }
)
