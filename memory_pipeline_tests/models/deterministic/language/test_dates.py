"""Relative and absolute dates, resolved against the day of the message."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.models.deterministic.language.dates import dates_in, with_dates
from memory_pipeline.models.deterministic.language.grammar import Sentence

MONDAY = date(2023, 5, 8)


def resolved(text: str, said_on: date = MONDAY) -> str:
    return with_dates(text, dates_in(Sentence.of(text), said_on))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I went there yesterday.", "I went there yesterday [2023-05-07]."),
        ("We slept badly last night.", "We slept badly last night [2023-05-07]."),
        ("I called him the day before yesterday.", "I called him the day before yesterday [2023-05-06]."),
        ("I go today, she goes tomorrow.", "I go today [2023-05-08], she goes tomorrow [2023-05-09]."),
        ("He comes the day after tomorrow.", "He comes the day after tomorrow [2023-05-10]."),
        ("I baked this morning.", "I baked this morning [2023-05-08]."),
        ("yesterday's meeting was long", "yesterday's [2023-05-07] meeting was long"),
    ],
)
def test_relative_days_are_resolved(text: str, expected: str) -> None:
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We met last week.", "We met last week [2023-W18]."),
        ("We meet next week.", "We meet next week [2023-W20]."),
        ("We met last weekend.", "We met last weekend [2023-05-06/07]."),
        ("We meet this weekend.", "We meet this weekend [2023-05-13/14]."),
        ("We meet next weekend.", "We meet next weekend [2023-05-20/21]."),
        ("We go camping next month.", "We go camping next month [2023-06]."),
        ("I moved last month.", "I moved last month [2023-04]."),
        ("I painted it last year!", "I painted it last year [2022]!"),
        ("It ends this year.", "It ends this year [2023]."),
        ("I came two days ago.", "I came two days ago [2023-05-06]."),
        ("I came two weeks ago.", "I came two weeks ago [2023-W17]."),
        ("I came a month ago.", "I came a month ago [2023-04]."),
        ("I came 18 months ago.", "I came 18 months ago [2021-11]."),
        ("I came ten years ago.", "I came ten years ago [2013]."),
        ("It arrives in three weeks.", "It arrives in three weeks [2023-W22]."),
        ("We leave in 2 days.", "We leave in 2 days [2023-05-10]."),
        ("I finished it in three days.", "I finished it in three days."),
        ("I feed him twice in a week.", "I feed him twice in a week."),
        ("A few weeks ago I ran.", "A few weeks ago I ran."),
        ("I ran for three weeks.", "I ran for three weeks."),
    ],
)
def test_spans_have_the_precision_of_their_words(text: str, expected: str) -> None:
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I ran last Friday.", "I ran last Friday [2023-05-05]."),
        ("I ran last Monday.", "I ran last Monday [2023-05-01]."),
        ("I ran last Fri with him.", "I ran last Fri [2023-05-05] with him."),
        ("We sign next Friday.", "We sign next Friday [2023-05-19]."),
        ("We sign this Friday.", "We sign this Friday [2023-05-12]."),
        ("We sign this coming Monday.", "We sign this coming Monday [2023-05-15]."),
        ("I ran on Friday.", "I ran on Friday [2023-05-05]."),
        ("I will run on Friday.", "I will run on Friday [2023-05-12]."),
        ("She wants it by Friday.", "She wants it by Friday [2023-05-12]."),
        ("I've been ill since Friday.", "I've been ill since Friday [2023-05-05]."),
        ("We close on Friday.", "We close on Friday."),
        ("They came every week on Friday.", "They came every week on Friday."),
        ("They deliver on Wednesdays.", "They deliver on Wednesdays."),
        ("It was lost on sun and sand.", "It was lost on sun and sand."),
    ],
)
def test_weekdays_are_resolved(text: str, expected: str) -> None:
    assert resolved(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I ran on 7 May.", "I ran on 7 May [2023-05-07]."),
        ("I ran on May 7th.", "I ran on May 7th [2023-05-07]."),
        ("I ran on the 7th of May.", "I ran on the 7th of May [2023-05-07]."),
        ("I moved on 15 December.", "I moved on 15 December [2022-12-15]."),
        ("I'll move on 15 February.", "I'll move on 15 February [2024-02-15]."),
        ("The lease ends on 31 August.", "The lease ends on 31 August [2023-08-31]."),
        ("I promised to pay by the end of July.", "I promised to pay by the end of July [2023-07]."),
        ("I signed up for Sunday 1 October.", "I signed up for Sunday 1 October [2023-10-01]."),
        ("It was on Saturday, October 1st.", "It was on Saturday, October 1st [2022-10-01]."),
        ("The wedding: 16 May next year", "The wedding: 16 May next year [2024-05-16]"),
        ("A course from 9 to 13 June", "A course from 9 to 13 June [2023-06-09/13]"),
        ("I ran on 7 May 2021.", "I ran on 7 May 2021."),
        ("I ran on 2021-05-07.", "I ran on 2021-05-07."),
        ("I was born on 29 February.", "I was born on 29 February [2020-02-29]."),
        ("We booked the hall for 15 July.", "We booked the hall for 15 July [2023-07-15]."),
        ("It was on 31 April.", "It was on 31 April."),
        ("I went there in March.", "I went there in March [2023-03]."),
        ("I went there in December.", "I went there in December [2022-12]."),
        ("I will go there in March.", "I will go there in March [2024-03]."),
        ("I go there in May.", "I go there in May [2023-05]."),
        ("I went there last June.", "I went there last June [2022-06]."),
        ("We go there next June.", "We go there next June [2023-06]."),
        ("I went there in June 2019.", "I went there in June 2019."),
        ("It may rain and we march on.", "It may rain and we march on."),
        ("All 7 may come.", "All 7 may come."),
        ("We usually go in July.", "We usually go in July."),
        ("We open next Monday, 15 May.", "We open next Monday, 15 May [2023-05-15]."),
        ("We went today, Monday 8 May.", "We went today, Monday 8 May [2023-05-08]."),
    ],
)
def test_calendar_dates_are_resolved(text: str, expected: str) -> None:
    assert resolved(text) == expected


def test_complete_dates_are_mentioned_too() -> None:
    for text, day, label in (
        ("I ran on 7 May 2021.", date(2021, 5, 7), "2021-05-07"),
        ("I ran on 2021-05-07.", date(2021, 5, 7), "2021-05-07"),
        ("I went in June 2019.", date(2019, 6, 1), "2019-06"),
        ("I've lived here since 2016.", date(2016, 1, 1), "2016"),
    ):
        (mention,) = dates_in(Sentence.of(text), MONDAY)
        assert (mention.day, mention.label, mention.is_complete) == (day, label, True)
        assert mention.instant == datetime(day.year, day.month, day.day, tzinfo=UTC)


def test_the_iso_year_of_a_week_is_not_the_calendar_year() -> None:
    assert resolved("We met last week.", date(2025, 1, 7)) == "We met last week [2025-W01]."
    assert resolved("We meet next week.", date(2024, 12, 24)) == "We meet next week [2025-W01]."


def test_months_are_counted_by_the_calendar() -> None:
    assert resolved("I came a month ago.", date(2024, 3, 31)) == "I came a month ago [2024-02]."
    assert resolved("I came last month.", date(2024, 1, 31)) == "I came last month [2023-12]."


def test_this_weekend_is_resolved_during_the_weekend() -> None:
    sunday = date(2023, 5, 7)
    assert resolved("We ran last weekend.", sunday) == "We ran last weekend [2023-04-29/30]."
    assert resolved("We ran this weekend.", sunday) == "We ran this weekend [2023-05-06/07]."


def test_dates_in_the_past_tense_are_in_the_past() -> None:
    december = date(2025, 12, 22)
    assert resolved("We signed a loan in March.", december) == "We signed a loan in March [2025-03]."
    assert resolved("We signed on 7 March.", december) == "We signed on 7 March [2025-03-07]."


@pytest.mark.parametrize("text", ["We meet on 14 March", "The party is on the 14th of March", "We meet on March 14"])
@pytest.mark.parametrize("said_on", [date(2023, 11, 20), date(2023, 5, 2), date(2023, 4, 20)])
def test_meetings_are_not_in_the_past(text: str, said_on: date) -> None:
    assert resolved(text, said_on) == f"{text} [2024-03-14]"


def test_german_and_chinese_dates_follow_the_rules_for_english_ones() -> None:
    assert resolved("Am 3. Mai zogen wir um") == "Am 3. Mai [2023-05-03] zogen wir um"
    assert resolved("我5月3日搬家了") == "我5月3日 [2023-05-03]搬家了"
    assert resolved("我去年12月3日搬家了") == "我去年12月3日 [2022-12-03]搬家了"
    assert resolved("Seit dem 3.5.2023") == "Seit dem 3.5.2023"


def test_nothing_is_annotated_twice() -> None:
    text = "I went there yesterday [2023-05-07]."
    assert resolved(text) == text


EXPRESSIONS = ("yesterday", "last Friday", "next Friday", "this weekend", "last month", "two weeks ago", "in 999 weeks",
               "999 years ago", "on 29 February", "on 7 May", "in March", "next year", "by Friday")  # fmt: skip


@given(
    st.dates(date(1901, 1, 1), date(2998, 12, 31)),
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(["I went", "I will go", "We go", ""]),
)
def test_dates_are_resolved_from_every_day(said_on: date, expression: str, opening: str) -> None:
    for mention in dates_in(Sentence.of(f"{opening} {expression}"), said_on):
        assert mention.label.startswith(f"{mention.day.year:04}") or "-W" in mention.label


@given(st.dates(date(1901, 1, 1), date(2998, 12, 31)), st.integers(0, 6))
def test_last_and_next_weekdays_are_before_and_after_the_message(said_on: date, weekday: int) -> None:
    name = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[weekday]
    (last,) = dates_in(Sentence.of(f"I ran last {name}"), said_on)
    (following,) = dates_in(Sentence.of(f"We run next {name}"), said_on)
    assert last.day.weekday() == following.day.weekday() == weekday
    assert timedelta(1) <= said_on - last.day <= timedelta(7)
    assert following.day.isocalendar()[:2] == (said_on + timedelta(7)).isocalendar()[:2]


@given(st.text(alphabet=st.sampled_from("aAyMi 0123456789.,-/'’[]\n")))
def test_unusual_texts_do_not_raise(text: str) -> None:
    assert resolved(text).replace(" ", "").startswith(text[:1].strip())


#: By language: yesterday, tomorrow, last week, last Monday and next Friday, as said on Wednesday 17 January 2024.
PHRASES = {
    "German": "Gestern regnete es|Ich fahre morgen|letzte Woche|letzten Montag|nächsten Freitag",
    "French": "Hier, j'ai vu Paul|Je pars demain|la semaine dernière|lundi dernier|vendredi prochain",
    "Spanish": "Ayer llovió|Mañana viajo|la semana pasada|el lunes pasado|el próximo viernes",
    "Italian": "Ieri pioveva|Parto domani|la settimana scorsa|lunedì scorso|venerdì prossimo",
    "Portuguese": "Ontem choveu|Viajo amanhã|na semana passada|segunda-feira passada|na próxima sexta",
    "Dutch": "Gisteren regende het|Ik vertrek morgen|vorige week|afgelopen maandag|volgende vrijdag",
    "Russian": "Вчера шёл дождь|Завтра еду|на прошлой неделе|в прошлый понедельник|в следующую пятницу",
    "Arabic": "ذهبت أمس|أسافر غدا|الأسبوع الماضي|يوم الاثنين الماضي|يوم الجمعة القادمة",
    "Chinese": "我昨天去了北京|我明天走|上周|上周一|下周五",
    "Japanese": "昨日雨が降った|明日出発します|先週|先週の月曜日|来週の金曜日",
    "Korean": "어제 비가 왔어요|내일 떠나요|지난주에|지난 월요일|다음 금요일",
    "Thai": "เมื่อวานฝนตก|พรุ่งนี้ฉันไป|สัปดาห์ที่แล้ว|วันจันทร์ที่แล้ว|วันศุกร์หน้า",
}


@pytest.mark.parametrize("language", PHRASES)
def test_relative_dates_resolve_in_twelve_languages(language: str) -> None:
    found = [dates_in(Sentence.of(text), date(2024, 1, 17)) for text in PHRASES[language].split("|")]
    labels = [[mention.label for mention in mentions] for mentions in found]
    assert labels == [["2024-01-16"], ["2024-01-18"], ["2024-W02"], ["2024-01-15"], ["2024-01-26"]]


@pytest.mark.parametrize(
    "text", ["Ich wohne hier.", "Am Morgen jogge ich.", "Trabajo por la mañana.", "My question is esteemed."]
)
def test_words_that_look_like_dates_of_another_language_are_none(text: str) -> None:
    assert dates_in(Sentence.of(text), date(2024, 1, 17)) == []
