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
- In questions (:func:`date_ranges`) also parts of months and years, and seasons: "the first week of 2024".
- All days are calendar days in the zone of the day that the caller passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.grammar import Sentence, Tense, tense_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DAY: Final = timedelta(days=1)
_WEEK: Final = timedelta(days=7)
_SATURDAY: Final = 5


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
    return sorted(_found(sentence, said_on, is_question=False), key=lambda mention: mention.start)


def date_ranges(text: str, today: date) -> list[DateMention]:
    """Return the date ranges that a question mentions, in order and without overlaps.

    A month or day without a year is the nearest one in the direction of the question's tense; without a tense, the
    latest one. Open ranges ("before May", "since Friday") are left out. A question longer than 2,000 characters gives
    none.
    """
    found = _found(Sentence.of(text), today, is_question=True) if len(text) <= _LONGEST_QUESTION else ()
    return sorted(
        (
            one
            for one in found
            if not _OPEN.search(text[max(one.start - 16, 0) : one.start])
            and not _OPEN.match(f"{text[one.start : one.end].partition(' ')[0]} ")
            and not _OPEN_AFTER.match(text, one.end)
        ),
        key=lambda one: one.start,
    )


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


def _found(sentence: Sentence, said_on: date, *, is_question: bool) -> Iterator[DateMention]:
    text, parts = sentence.text, sentence.parts
    rules = list(_QUESTIONS if is_question else ())
    if any(part in _HINTS or part[:3] in _NAMES for part in parts) or any(map(str.isdigit, text)):
        rules += _RULES
    if not text.isascii() or any(part.startswith(_FOREIGN_HINTS) for part in parts):
        rules += _FOREIGN
    if not rules:
        return
    context = _Context(said_on, tense_of(parts), not _HABIT.isdisjoint(parts), is_question)
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
_Span = tuple[date, date, str]


@dataclass(frozen=True, slots=True)
class _Context:
    said_on: date
    tense: Tense
    is_habit: bool
    is_question: bool

    def nearest(self, days: Sequence[date], match: re.Match[str]) -> date:
        """Return the nearest of `days`; days against the tense count as further away."""
        before = match.string[max(match.start("month") - 40, 0) : match.start("month")]
        is_meeting = self.tense is Tense.PRESENT and match.string[: match.start()].lower().endswith(("on ", "on the "))
        tense = Tense.FUTURE if is_meeting or _DEADLINE.search(before) else self.tense
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
_LONGEST_QUESTION: Final = 2_000

_MONTHS: Final = {"jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7, "aug": 8,
                  "sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12}  # fmt: skip
_WEEKDAYS: Final = {"mon": 0, "tue": 1, "wed": 2, "thu": 3, "fri": 4, "sat": 5, "sun": 6}
_NAMES: Final = frozenset([*_MONTHS, *_WEEKDAYS])
_COUNTS: Final = {"a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "four": 4, "five": 5, "six": 6,
                  "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip
_WHICH: Final = {"last": -1, "letzten": -1, "this past": -1, "since": -1, "去年": -1, "昨年": -1, "next": 1, "明年": 1,
                 "来年": 1}  # fmt: skip
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "frühling": 3, "frühjahr": 3,
                   "sommer": 6, "herbst": 9}  # fmt: skip

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
#: Words before a date that make it the bound of an open range; in Chinese and Japanese they follow it.
_OPEN: Final = re.compile(
    r"\b(?:after|before|since|till|until|by|nach|vor|seit|bis)(?: the| dem| zum)? $", re.IGNORECASE
)
_OPEN_AFTER: Final = re.compile("以前|之前|以后|之后|以後|より前|まで|から")


def _day(day: date) -> _Span:
    return day, day, day.isoformat()


def _in(grain: Grain, day: date) -> _Span:
    period = Period.containing(grain, day)
    return period.first_day, period.end_day - _DAY, period.key


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _months_from(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, 1)


def _shifted(day: date, unit: str, count: int) -> _Span:
    """Return the day, week, weekend, month or year that is `count` after the one of a day.

    Of a weekday ("0" is Monday): the latest before the day (-1), the coming one or the day itself (0), or that of the
    next week (1). Without a unit there is no label.
    """
    match unit:
        case "":
            span = day, day, ""
        case "day":
            span = _day(day + count * _DAY)
        case "week":
            span = _in(Grain.WEEKLY, day + count * _WEEK)
        case "weekend":
            saturday = day + (_SATURDAY - day.weekday()) * _DAY + count * _WEEK
            span = saturday, saturday + _DAY, f"{saturday}/{saturday + _DAY:%d}"
        case "month":
            span = _in(Grain.MONTHLY, _months_from(day, count))
        case "year":
            span = _in(Grain.YEARLY, date(day.year + count, 1, 1))
        case _:
            ahead = (int(unit) - day.weekday()) % 7
            span = _day(day + (7 - day.weekday() + int(unit) if count > 0 else ahead - 7 * (count < 0)) * _DAY)
    return span


def _number(name: str, numbers: dict[str, int]) -> int | None:
    """Return the number of a month or weekday, or None if the name may be another word."""
    return int(name) if name.isdecimal() else None if name in _NEEDS_CAPITAL else numbers[name[:3].lower()]


def _fixed(unit: str, count: int, match: re.Match[str], context: _Context) -> _Span:  # noqa: ARG001  # a rule's shape
    return _shifted(context.said_on, unit, count)


def _calendar_day(match: re.Match[str], context: _Context) -> _Span | None:
    """Resolve "7 May", "9 to 13 June", "Sunday, October 12th", "16 May next year", "2023-05-07", "5月7日"."""
    said, today = match.groupdict(), context.said_on
    month = _number(said["month"], _MONTHS)
    if month is None:
        return None
    if said.get("year"):
        years = [int(said["year"])]
    elif said.get("which_year"):
        years = [today.year + _WHICH.get(said["which_year"].lower(), 0)]
    elif context.is_habit:
        return None
    else:
        # Wide enough for a 29 February on either side, in any century.
        years = list(range(max(today.year - 8, 1), today.year + 9))
    days = [day for year in years if (day := _date(year, month, int(said["day"])))]
    weekday = said.get("weekday") and _number(said["weekday"], _WEEKDAYS)
    near = [day for day in days if day.weekday() == weekday and abs(day.year - today.year) <= 1]
    if not days:
        return None
    last = context.nearest(near or days, match)
    first = int(said.get("first") or last.day)
    day = last.replace(day=first) if 0 < first < last.day else last
    return (day, last, f"{day}/{last:%d}") if day < last else _day(last)


def _month(match: re.Match[str], context: _Context) -> _Span | None:
    """Resolve "in March", "late March", "since March 2024", "March next year", "last March", "5月"."""
    said, today = match.groupdict(), context.said_on
    month = _number(said["month"], _MONTHS)
    if month is None or not 1 <= month <= 12:
        return None
    which, which_year = (said.get("which") or "").lower(), (said.get("which_year") or "").lower()
    if said.get("year"):
        year = int(said["year"])
    elif which_year or which == "this":
        year = today.year + _WHICH.get(which_year, 0)
    elif which in _WHICH:
        year = today.year - (month >= today.month) if _WHICH[which] < 0 else today.year + (month <= today.month)
    elif context.is_habit:
        return None
    else:
        # The current month is at distance 0.
        months = [today if n == 0 and month == today.month else date(today.year + n, month, 1) for n in (-1, 0, 1)]
        year = context.nearest(months, match).year
    return _in(Grain.MONTHLY, date(year, month, 1))


def _year(match: re.Match[str], context: _Context) -> _Span:  # noqa: ARG001  # a rule's shape
    return _in(Grain.YEARLY, date(int(match["year"]), 1, 1))


def _unit(match: re.Match[str], context: _Context) -> _Span:
    """Resolve "last week", "this month", "next year", "this past weekend"."""
    which, unit, today = match["which"].lower(), match["unit"].lower(), context.said_on
    is_now = which == "this past" and unit == "weekend" and today.weekday() >= _SATURDAY
    return _shifted(today, unit, 0 if is_now else _WHICH.get(which, 0))


def _weekday(match: re.Match[str], context: _Context) -> _Span | None:
    """Resolve "last Friday", "next Friday", "this coming Friday"; "on Friday", "by Friday", "since Friday"."""
    which, weekday, today = match["which"].lower(), _number(match["weekday"], _WEEKDAYS), context.said_on
    if weekday is None:
        return None
    if which == "on":
        if context.is_habit or context.tense not in (Tense.PAST, Tense.FUTURE):
            return None
        which = "last" if context.tense is Tense.PAST else "this coming"
    if which == "this coming" and weekday == today.weekday():
        return _day(today + _WEEK)
    return _shifted(today, str(weekday), _WHICH.get(which, 0))


def _counted(match: re.Match[str], context: _Context) -> _Span | None:
    """Resolve "two days ago", and "in three weeks", which in the past tense is a duration."""
    is_ago = match[0].lower().endswith("ago")
    if not is_ago and (context.is_habit or context.tense is Tense.PAST):
        return None
    count = _COUNTS.get(match["count"].lower()) or int(match["count"])
    return _shifted(context.said_on, match["unit"].lower(), -count if is_ago else count)


def _part(match: re.Match[str], context: _Context) -> _Span | None:
    """Resolve "the first week of January", "the last week of 2023", "the second half of May"."""
    span = _month(match, context) if match["month"] else _year(match, context) if match["year"] else None
    if span is None:
        return None
    first, last, _ = span
    place = ["first", "second", "third", "fourth", "last"].index(match["which"].lower())
    if match["unit"].lower() == "half":
        middle = first + (last - first) // 2
        first, last = (first, middle) if place == 0 else (middle + _DAY, last)
    elif place == 4:
        first = last - 6 * _DAY
    else:
        first += place * _WEEK
        last = first + 6 * _DAY
    return first, last, f"{first}/{last}"


def _season(match: re.Match[str], context: _Context) -> _Span:
    """Resolve "summer 2021", "last summer", "letzten Sommer". Winter 2021 begins in December 2020."""
    start, today = _SEASONS[match["season"].lower()], context.said_on
    year = int(match["year"]) - (start == 12) if match["year"] else today.year - (start >= today.month)
    first = date(year, start, 1)
    last = _months_from(first, 3) - _DAY
    return first, last, f"{first}/{last}"


_Rule = tuple[re.Pattern[str], "Callable[[re.Match[str], _Context], _Span | None]"]


def _rule(pattern: str, resolve: Callable[[re.Match[str], _Context], _Span | None]) -> _Rule:
    # A possessive belongs to the expression: "yesterday's [2023-05-07] meeting".
    return re.compile(rf"\b(?:{pattern})(?:['’]s\b)?", re.IGNORECASE), resolve


_MONTH: Final = (
    r"(?P<month>Jan(?:uary?)?|Feb(?:ruary?)?|Mar(?:ch)?|März|Apr(?:il)?|Ma[iy]|Jun[ei]?|Jul[iy]?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|O[ck]t(?:ober)?|Nov(?:ember)?|De[cz](?:ember)?)\b"
)
_WEEKDAY: Final = (
    r"(?P<weekday>Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:r(?:s(?:day)?)?)?|Fri(?:day)?|Sat(?:urday)?"
    r"|Sun(?:day)?)\b"
)
_RANGE: Final = r"(?:(?P<first>[0-9]{1,2})(?:st|nd|rd|th)?(?: to | - | – |-|–))?"
_NUMBER: Final = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?"
_COUNT: Final = rf"(?P<count>[0-9]{{1,3}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT: Final = r"(?P<unit>day|week|month|year)s?\b"
_YEAR: Final = r"(?P<year>(?:19|20)[0-9]{2})\b"
_OF_YEAR: Final = rf"(?:,? {_YEAR}| (?P<which_year>last|this|next) year\b)?"
_WHEN: Final = r"(?:in|im|since|until|till|by|from|of|before|after|during|early|late|mid)[ -]"
_SEASON: Final = rf"(?P<season>{'|'.join(_SEASONS)})\b"
_CJK_YEAR: Final = r"(?:(?:(?P<year>(?:19|20)[0-9]{2})年|(?P<which_year>去年|昨年|今年|明年|来年)の?))?(?<![0-9])"

_ENGLISH_DAYS: Final = {-2: "day before yesterday", 2: "day after tomorrow", -1: "yesterday|last night", 1: "tomorrow",
                        0: "today|tonight|this (?:morning|afternoon|evening)"}  # fmt: skip

#: In order of precedence: words that one rule has matched are not matched again.
_RULES: Final = [
    _rule(rf"{_YEAR}-(?P<month>[0-9]{{2}})-{_NUMBER}\b", _calendar_day),
    _rule(rf"{_NUMBER}\.(?P<month>[0-9]{{1,2}})\.{_YEAR}", _calendar_day),
    _rule(
        rf"(?:{_WEEKDAY},? (?:the )?)?{_RANGE}{_NUMBER}(?: of |\. ?| ){_MONTH}{_OF_YEAR}", _calendar_day
    ),
    _rule(rf"(?:{_WEEKDAY},? )?{_MONTH} {_NUMBER}\b(?![.:][0-9]){_OF_YEAR}", _calendar_day),
    *(_rule(rf"(?:{words})\b", partial(_fixed, "day", count)) for count, words in _ENGLISH_DAYS.items()),
    _rule(rf"{_COUNT} {_UNIT} ago\b", _counted),
    _rule(rf"(?<!once )(?<!twice )(?<!times )in {_COUNT} {_UNIT}", _counted),
    _rule(r"(?P<which>last|next|this past|this coming|this) (?P<unit>weekend|week|month|year)\b", _unit),
    _rule(rf"(?P<which>last|next|this past|this coming|this|on|by|until|till|since) {_WEEKDAY}", _weekday),
    _rule(rf"(?:(?P<which>last|letzten|next|this) |{_WHEN}){_MONTH}{_OF_YEAR}(?! ?[0-9])", _month),
    _rule(rf"{_MONTH},? {_YEAR}", _month),
    _rule(rf"(?:in|since|until|by|from|of|before|after|during) {_YEAR}(?! ?[a-z%€$£])", _year),
    (re.compile(rf"{_CJK_YEAR}(?P<month>[0-9]{{1,2}})月(?P<day>[0-9]{{1,2}})[日号號]"), _calendar_day),
    (re.compile(rf"{_CJK_YEAR}(?P<month>[0-9]{{1,2}})月"), _month),
    (re.compile(r"(?P<year>(?:19|20)[0-9]{2})年"), _year),
]  # fmt: skip
#: Of questions only: in statements these are seldom dates.
_QUESTIONS: Final = [
    _rule(rf"(?P<which>first|second|third|fourth|last) (?P<unit>week|half) of (?:{_MONTH})?(?:,? ?{_YEAR})?", _part),
    _rule(rf"(?:last|letzten|this|in|im) {_SEASON}(?: (?:of )?{_YEAR})?", _season),
    _rule(rf"{_SEASON} (?:of )?{_YEAR}", _season),
]


# German, French, Spanish, Italian, Portuguese, Dutch, Russian, Arabic, Chinese, Japanese, Korean and Thai.

#: Phrases by how many days, weeks, months or years after today they are. Those without a unit name no date. The first
#: match counts.
_PHRASES: Final = {
    ("", 0): "(?:am|guten|jeden|nächsten|gestern) morgen|(?:la|cada|buena) mañana|اليوم التالي",
    ("day", 2): "übermorgen|après-demain|pasado mañana|dopodomani|depois de amanhã|overmorgen|послезавтра|بعد غد"
    "|后天|明後日|あさって|모레|มะรืนนี้",
    ("day", -2): "vorgestern|avant-hier|anteayer|antes de ayer|l['’]altro ieri|anteontem|eergisteren|позавчера|أول أمس"
    "|前天|一昨日|おととい|그저께|เมื่อวานซืน",
    ("day", -1): "gestern|hier|ayer|ieri|ontem|gisteren|вчера|أمس|昨天|昨日|きのう|어제|เมื่อวาน(?:นี้)?",
    ("day", 0): "heute(?: morgen)?|aujourd['’]hui|hoy|oggi|hoje|vandaag|сегодня|اليوم|今天|今日|きょう|오늘|วันนี้",
    ("day", 1): "morgen|demain|mañana|domani|amanhã|завтра|غد[اًا]+|明天|明日|あした|내일|พรุ่งนี้",
    ("week", -1): "先週", ("week", 0): "今週", ("week", 1): "来週",
    ("month", -1): "先月", ("month", 0): "今月", ("month", 1): "来月",
    ("year", -1): "去年|昨年|작년", ("year", 0): "今年|올해", ("year", 1): "明年|来年|내년",
}  # fmt: skip
#: Words before and after a noun of :data:`_NOUNS` that mean the last, this and the next one.
_AFFIXES: Final = {
    -1: ("letzte[nrs]?|vergangene[nrs]?|vorige[nrs]?|afgelopen|прошл(?:ый|ую|ое|ой|ом)|上(?:一?个)?|先週の|지난",
         "derni(?:er|ère)|pasad[oa]|passad[oa]|scors[oa]|الماضية?|ที่แล้ว"),
    0: ("diese[nrms]?|deze|dit|ce(?:tte)?|est[ea]|quest[oa]|эт(?:от|у|о|ой|ом)|这(?:一?个)?|本|今週の|이번",
        "الحالية?|هذا|นี้"),
    1: (r"nächste[nrs]?|kommende[nrs]?|volgende?|komende|próxim[oa]|prossim[oa]|следующ\w+|下(?:一?个)?|来週の|다음",
        "prochaine?|próxim[oa]|que viene|que vem|prossim[oa]|القادمة?|المقبلة?|หน้า"),
}  # fmt: skip
_NOUNS: Final = {
    "week": "woche|semaine|semana|settimana|week|недел[яюе]|الأسبوع|周|星期|주|สัปดาห์|อาทิตย์",
    "month": "monat|mois|mes|mese|mês|maand|месяце?|الشهر|月|달|เดือน",
    "year": "jahr|an|année|año|anno|ano|jaar|год[у]?|السنة|العام|해|ปี",
    "0": "montag|lundi|lunes|lunedì|segunda(?:-feira)?|maandag"
    "|понедельник|(?:يوم )?الاثنين|(?:周|星期)一|月曜日?|월요일|วันจันทร์",
    "1": "dienstag|mardi|martes|martedì|terça(?:-feira)?|dinsdag"
    "|вторник|(?:يوم )?الثلاثاء|(?:周|星期)二|火曜日?|화요일|วันอังคาร",
    "2": "mittwoch|mercredi|miércoles|mercoledì|quarta(?:-feira)?|woensdag"
    "|сред[ау]|(?:يوم )?الأربعاء|(?:周|星期)三|水曜日?|수요일|วันพุธ",
    "3": "donnerstag|jeudi|jueves|giovedì|quinta(?:-feira)?|donderdag"
    "|четверг|(?:يوم )?الخميس|(?:周|星期)四|木曜日?|목요일|วันพฤหัส(?:บดี)?",
    "4": "freitag|vendredi|viernes|venerdì|sexta(?:-feira)?|vrijdag"
    "|пятниц[ау]|(?:يوم )?الجمعة|(?:周|星期)五|金曜日?|금요일|วันศุกร์",
    "5": "samstag|sonnabend|samedi|sábado|sabato|zaterdag"
    "|суббот[ау]|(?:يوم )?السبت|(?:周|星期)六|土曜日?|토요일|วันเสาร์",
    "6": "sonntag|dimanche|domingo|domenica|zondag"
    "|воскресенье|(?:يوم )?الأحد|(?:周|星期)[日天]|日曜日?|일요일|วันอาทิตย์",
}  # fmt: skip
#: A phrase that is a common word of another language, and words of its own language, one of which must be near.
_AMBIGUOUS: Final = {"hier": word_set("je j'ai nous vous elle les une est et avec chez ma mon mes a ont était suis")}

#: Letters of scripts with blanks between words: a phrase is not within a longer word.
_LETTER: Final = "[a-zà-öø-ÿа-яё\u0621-\u064a]"
#: In order of precedence.
_FOREIGN: Final[list[_Rule]] = [
    (
        re.compile(rf"(?<!{_LETTER})(?:{phrases})(?!{_LETTER})", re.IGNORECASE),
        partial(_fixed, unit, count),
    )
    for unit, count, phrases in (
        *(
            (noun, count, rf"(?:{before})\s?(?:{names})|(?:{names})\s?(?:{after})")
            for noun, names in reversed(_NOUNS.items())
            for count, (before, after) in _AFFIXES.items()
        ),
        *((*key, phrases) for key, phrases in _PHRASES.items()),
    )
]
#: An ASCII sentence without a word that begins with one of these has none of the phrases.
_FOREIGN_HINTS: Final = tuple(
    {
        word
        for phrases in (*_PHRASES.values(), *(affix for affixes in _AFFIXES.values() for affix in affixes))
        for word in re.findall(r"(?<![a-zà-ÿ(:\[])[a-z]{3,}(?![à-ÿ?])", phrases)
    }
)
