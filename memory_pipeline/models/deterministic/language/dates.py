"""Dates in text: "yesterday", "last Friday", "in three weeks", "on 7 May", resolved against the day of the message.

English is ambiguous. These rules decide:

- "last Friday" is the latest Friday before the day, "next Friday" that of the next ISO week, "this Friday" the coming
  one, today included. "on Friday" follows the tense of its sentence; in the present tense it is not resolved, since
  "we close on Friday" may be a habit.
- A date without a year is the nearest one. A date against the tense of its sentence counts as further away, by the
  factors in :data:`_AGAINST`; after "by" or "until" the tense is the future. A weekday ("Sunday 12 October") overrides
  this: it selects the year in which it fits.
- In sentences with words of habit ("every", "usually") neither of the two is resolved.
- In twelve other languages "yesterday", "last week", "next Monday" and the like are resolved, from one table.
- All days are calendar days in the zone of the day that the caller passes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.grammar import Tense, tense_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.models.deterministic.language.grammar import Sentence

_DAY = timedelta(days=1)
_WEEK = timedelta(days=7)
_SATURDAY = 5


@dataclass(frozen=True, slots=True)
class DateMention:
    """A date that a text mentions. `start` and `end` delimit its words in the text.

    Attributes:
        day: the day, or the first day of the week, weekend, month or year.
        label: the date at its precision: ``2023-05-07``, ``2023-05-06/07`` (a weekend or another range of days, as an
            ISO 8601 interval), ``2023-W18``, ``2023-06``, ``2022``.
        is_complete: whether the text itself is unambiguous ("7 May 2023").
    """

    start: int
    end: int
    day: date
    label: str
    is_complete: bool = False

    @property
    def instant(self) -> datetime:
        """The day at 00:00 UTC."""
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)


#: Letters that IGNORECASE treats as i, s and k: "Frıday" is not a weekday.
_LOOKALIKES = frozenset("ıİſ\N{KELVIN SIGN}")


def dates_in(sentence: Sentence, said_on: date) -> list[DateMention]:
    """Return the dates that a sentence mentions on the day `said_on`, in order and without overlaps."""
    text = sentence.text
    found = list(_foreign(sentence, said_on))
    if _HINTS.isdisjoint(sentence.parts) and not any(char.isdigit() for char in text):
        return found
    context = _Context(said_on, tense_of(sentence.parts), not _HABIT.isdisjoint(sentence.parts))
    for pattern, resolve in _RULES:
        for match in pattern.finditer(text):
            start, end = match.span()
            if not _LOOKALIKES.isdisjoint(match.group()):
                continue
            if any(start < other.end and other.start < end for other in found):
                continue  # an earlier, more specific rule matched
            resolved = resolve(match, context)
            if resolved is not None:
                is_complete = bool(match.groupdict().get("year"))
                found.append(DateMention(start, end, *resolved, is_complete))
    return sorted(found, key=lambda mention: mention.start)


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


@dataclass(frozen=True, slots=True)
class _Context:
    said_on: date
    tense: Tense
    is_habit: bool

    def nearest(self, days: Sequence[date], match: re.Match[str]) -> date:
        """Return the nearest of `days`; days against the tense count as further away."""
        start = match.start("month")
        is_deadline = _DEADLINE.search(match.string[max(start - 40, 0) : start])
        tense = Tense.FUTURE if is_deadline else self.tense

        def distance(day: date) -> int:
            days = (day - self.said_on).days
            against = days > 0 if tense is Tense.PAST else days < 0 and tense is not Tense.NONE
            return abs(days) * (_AGAINST[tense] if against else 1)

        return min(days, key=distance)


#: Factor on the distance of a date without a year that is against the tense of its sentence.
_AGAINST = {Tense.PAST: 6, Tense.PRESENT: 2, Tense.FUTURE: 12, Tense.NONE: 1}

_Resolved = tuple[date, str] | None

_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10,
           "nov": 11, "dec": 12}  # fmt: skip
_WEEKDAYS = {"mon": 0, "tue": 1, "wed": 2, "thu": 3, "fri": 4, "sat": 5, "sun": 6}
_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "four": 4, "five": 5, "six": 6,
           "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}  # fmt: skip

#: Months and weekdays that are other words unless capitalized.
_NEEDS_CAPITAL = word_set("may march mar sat sun wed")
_HABIT = word_set("every each usually often always sometimes normally")

_MONTH = (
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)
_WEEKDAY = (
    r"(?P<weekday>Mon(?:day)?|Tue(?:s(?:day)?)?|Wed(?:nesday)?|Thu(?:r(?:s(?:day)?)?)?|Fri(?:day)?|Sat(?:urday)?"
    r"|Sun(?:day)?)\b"
)
_DAY_NUMBER = r"(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?\b"
_RANGE = r"(?:(?P<first>[0-9]{1,2})(?:st|nd|rd|th)?(?: to | - | – |-|–))?"
_COUNT = rf"(?P<count>[0-9]{{1,3}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>day|week|month|year)s?\b"
_YEAR = r"(?P<year>(?:19|20)[0-9]{2})\b"
_WHICH_YEAR = r"(?P<which_year>last|this|next) year\b"

#: Words before a date in the future, whatever the tense: "I promised to pay by the end of July", "we booked the hall
#: for 7 May".
_DEADLINE = re.compile(
    r"\b(?:(?:by|until|till|due)\b[a-z0-9 ]{0,24}"
    r"|(?:ends|starts|begins|expires|finishes|opens|reopens|closes) (?:on |in |from )?(?:[a-z]{3,6}day,? )?(?:the )?"
    r"(?:[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?)?"
    r"|(?:for|to|from) (?:[a-z]{3,6}day,? )?(?:the )?(?:[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?)?)\Z",
    re.IGNORECASE,
)

_OF_YEAR = rf"(?:,? {_YEAR}| {_WHICH_YEAR})?"

#: A sentence without one of these and without a digit has no date.
_HINTS = word_set(
    """
    today tonight yesterday tomorrow ago last next week weekend month year day days weeks months years morning
    afternoon evening night jan january feb february mar march apr april may jun june jul july aug august sep sept
    september oct october nov november dec december mon monday tue tues tuesday wed wednesday thu thur thurs
    thursday fri friday sat saturday sun sunday
    """
)


def _on_day(day: date) -> tuple[date, str]:
    return day, day.isoformat()


def _in(grain: Grain, day: date) -> tuple[date, str]:
    period = Period.containing(grain, day)
    return period.first_day, period.key


def _months_from(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, 1)


def _shifted(day: date, unit: str, count: int) -> tuple[date, str]:
    if unit == "day":
        return _on_day(day + count * _DAY)
    if unit == "week":
        return _in(Grain.WEEKLY, day + count * _WEEK)
    if unit == "month":
        return _in(Grain.MONTHLY, _months_from(day, count))
    return _in(Grain.YEARLY, date(day.year + count, 1, 1))


def _named(name: str, numbers: dict[str, int]) -> int | None:
    """Return the number of a month or weekday, or None if the name may be another word."""
    return None if name in _NEEDS_CAPITAL else numbers[name[:3].lower()]


def _word_day(match: re.Match[str], context: _Context) -> _Resolved:
    word = match["word"].lower()
    days = {"yesterday": -1, "last night": -1, "tomorrow": 1, "day before yesterday": -2, "day after tomorrow": 2}
    return _on_day(context.said_on + days.get(word, 0) * _DAY)


def _calendar_day(match: re.Match[str], context: _Context) -> _Resolved:
    """Resolve "7 May", "9 to 13 June", "Sunday, October 12th", "16 May next year", "7 May 2023"."""
    month, today = _named(match["month"], _MONTHS), context.said_on
    if month is None:
        return None
    if match["year"]:
        years = [int(match["year"])]
    elif match["which_year"]:
        years = [today.year + {"last": -1, "this": 0, "next": 1}[match["which_year"].lower()]]
    elif context.is_habit:
        return None
    else:
        # Wide enough for a 29 February on either side, in any century.
        years = list(range(max(today.year - 8, 1), today.year + 9))
    days = [day for year in years if (day := _date(year, month, int(match["day"])))]
    weekday = match["weekday"] and _named(match["weekday"], _WEEKDAYS)
    near = [day for day in days if day.weekday() == weekday and abs(day.year - today.year) <= 1]
    if near:
        days = near
    if not days:
        return None
    last = context.nearest(days, match)
    first = last.replace(day=int(match["first"])) if match["first"] and 0 < int(match["first"]) < last.day else last
    return (first, f"{first}/{last:%d}") if first < last else _on_day(last)


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _iso_day(match: re.Match[str], context: _Context) -> _Resolved:  # noqa: ARG001  # every rule has this shape
    day = _date(int(match["year"]), int(match["number"]), int(match["day"]))
    return _on_day(day) if day else None


def _unit(match: re.Match[str], context: _Context) -> _Resolved:
    """Resolve "last week", "this month", "next year", "this past weekend"."""
    which, unit, today = match["which"].lower(), match["unit"].lower(), context.said_on
    count = {"last": -1, "next": 1, "this past": -1}.get(which, 0)
    if unit != "weekend":
        return _shifted(today, unit, count)
    if which == "this past" and today.weekday() >= _SATURDAY:
        count = 0
    saturday = today + (_SATURDAY - today.weekday()) * _DAY + count * _WEEK
    return saturday, f"{saturday}/{saturday + _DAY:%d}"


def _weekday(match: re.Match[str], context: _Context) -> _Resolved:
    """Resolve "last Friday", "next Friday", "this coming Friday"; "on Friday", "by Friday", "since Friday"."""
    which, weekday, today = match["which"].lower(), _named(match["weekday"], _WEEKDAYS), context.said_on
    if weekday is None:
        return None
    if which == "on":
        if context.is_habit or context.tense not in (Tense.PAST, Tense.FUTURE):
            return None
        which = "last" if context.tense is Tense.PAST else "this coming"
    ahead = (weekday - today.weekday()) % 7
    if which == "this coming" and not ahead:
        return _on_day(today + _WEEK)
    return _on_weekday(today, weekday, {"last": -1, "this past": -1, "since": -1, "next": 1}.get(which, 0))


def _on_weekday(today: date, weekday: int, count: int) -> tuple[date, str]:
    """Return the latest such weekday before today (-1), the coming one or today (0), or that of next week (1)."""
    if count > 0:
        return _on_day(today + (7 - today.weekday() + weekday) * _DAY)
    ahead = (weekday - today.weekday()) % 7
    return _on_day(today + (ahead - 7 if count else ahead) * _DAY)


def _ago(match: re.Match[str], context: _Context) -> _Resolved:
    return _shifted(context.said_on, match["unit"].lower(), -_count(match["count"]))


def _ahead(match: re.Match[str], context: _Context) -> _Resolved:
    """Resolve "in three weeks"; in the past tense it is a duration."""
    if context.is_habit or context.tense is Tense.PAST:
        return None
    return _shifted(context.said_on, match["unit"].lower(), _count(match["count"]))


def _count(words: str) -> int:
    return _COUNTS.get(words.lower()) or int(words)


def _month(match: re.Match[str], context: _Context) -> _Resolved:
    """Resolve "in March", "late March", "since March 2024", "March next year", "last March"."""
    month, today = _named(match["month"], _MONTHS), context.said_on
    if month is None:
        return None
    which, which_year = (match["which"] or "").lower(), (match["which_year"] or "").lower()
    if match["year"]:
        year = int(match["year"])
    elif which_year or which == "this":
        year = today.year + {"last": -1, "next": 1}.get(which_year, 0)
    elif which == "last":
        year = today.year - (month >= today.month)
    elif which == "next":
        year = today.year + (month <= today.month)
    elif context.is_habit:
        return None
    else:
        # The current month is at distance 0.
        months = [today if n == 0 and month == today.month else date(today.year + n, month, 1) for n in (-1, 0, 1)]
        year = context.nearest(months, match).year
    return _in(Grain.MONTHLY, date(year, month, 1))


def _year(match: re.Match[str], context: _Context) -> _Resolved:  # noqa: ARG001  # every rule has this shape
    return _in(Grain.YEARLY, date(int(match["year"]), 1, 1))


def _rule(
    pattern: str, resolve: Callable[[re.Match[str], _Context], _Resolved]
) -> tuple[re.Pattern[str], Callable[[re.Match[str], _Context], _Resolved]]:
    # A possessive belongs to the expression: "yesterday's [2023-05-07] meeting".
    return re.compile(rf"\b(?:{pattern})(?:['’]s\b)?", re.IGNORECASE), resolve


_WHEN = r"(?:in|since|until|till|by|from|of|before|after|during|early|late|mid)[ -]"

#: In order of precedence: words that one rule has matched are not matched again.
_RULES = (
    _rule(rf"{_YEAR}-(?P<number>[0-9]{{2}})-{_DAY_NUMBER}", _iso_day),
    _rule(rf"(?:{_WEEKDAY},? (?:the )?)?{_RANGE}{_DAY_NUMBER}(?: of)? {_MONTH}{_OF_YEAR}", _calendar_day),
    _rule(rf"(?:{_WEEKDAY},? )?{_MONTH} {_DAY_NUMBER}(?![.:][0-9])(?P<first>){_OF_YEAR}", _calendar_day),
    _rule(r"(?P<word>day before yesterday|day after tomorrow|today|tonight|yesterday|tomorrow|last night"
          r"|this (?:morning|afternoon|evening))\b", _word_day),
    _rule(rf"{_COUNT} {_UNIT} ago\b", _ago),
    _rule(rf"(?<!once )(?<!twice )(?<!times )in {_COUNT} {_UNIT}", _ahead),
    _rule(r"(?P<which>last|next|this past|this coming|this) (?P<unit>weekend|week|month|year)\b", _unit),
    _rule(rf"(?P<which>last|next|this past|this coming|this|on|by|until|till|since) {_WEEKDAY}", _weekday),
    _rule(rf"(?:(?P<which>last|next|this) |{_WHEN}){_MONTH}{_OF_YEAR}(?! ?[0-9])", _month),
    _rule(rf"(?P<which>){_MONTH},? {_YEAR}(?P<which_year>)", _month),
    _rule(rf"(?:in|since|until|by|from|of|before|after|during) {_YEAR}(?! ?[a-z%€$£])", _year),
)  # fmt: skip


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
#: Unit or weekday, how many of them after today, and the pattern; in order of precedence.
_FOREIGN: Final = [
    (unit, count, re.compile(rf"(?<!{_LETTER})(?:{phrases})(?!{_LETTER})", re.IGNORECASE))
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


def _foreign(sentence: Sentence, said_on: date) -> Iterator[DateMention]:
    if sentence.text.isascii() and not any(part.startswith(_FOREIGN_HINTS) for part in sentence.parts):
        return
    taken: list[tuple[int, int]] = []
    for unit, count, pattern in _FOREIGN:
        for match in pattern.finditer(sentence.text):
            start, end = match.span()
            if any(start < last and first < end for first, last in taken):
                continue
            taken.append((start, end))
            near = _AMBIGUOUS.get(match.group().lower())
            if unit and (near is None or not near.isdisjoint(sentence.parts)):
                is_weekday = unit.isdigit()
                resolved = _on_weekday(said_on, int(unit), count) if is_weekday else _shifted(said_on, unit, count)
                yield DateMention(start, end, *resolved)
