"""Date ranges in questions."""

from __future__ import annotations

import time
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.models.deterministic.language.question_dates import date_ranges

TODAY = date(2024, 2, 10)


def named(text: str) -> list[tuple[str, str]]:
    return [(f"{one.day}/{one.last}", text[one.start : one.end]) for one in date_ranges(text, TODAY)]


@pytest.mark.parametrize(
    ("text", "days", "words"),
    [
        ("What did I do in May?", "2023-05-01/2023-05-31", "in May"),
        ("What did Anna buy on 25 May, 2023?", "2023-05-25/2023-05-25", "25 May, 2023"),
        ("What did I say yesterday?", "2024-02-09/2024-02-09", "yesterday"),
        ("the first week of 2024", "2024-01-01/2024-01-07", "first week of 2024"),
        ("the last week of January", "2024-01-25/2024-01-31", "last week of January"),
        ("the second half of September 2022", "2022-09-16/2022-09-30", "second half of September 2022"),
        ("What did we do on New Year's Eve?", "2023-12-31/2023-12-31", ""),
        ("What did we eat at Christmas 2022?", "2022-12-24/2022-12-26", ""),
        ("Was war an Silvester?", "2023-12-31/2023-12-31", ""),
        ("What did I do from 3 to 5 May?", "2023-05-03/2023-05-05", "3 to 5 May"),
        ("What did we do in the first weekend of June?", "2023-06-03/2023-06-04", "first weekend of June"),
        ("Where was I at the end of April?", "2023-04-21/2023-04-30", "end of April"),
        ("What happened between 3 and 10 May?", "2023-05-03/2023-05-10", "between 3 and 10 May"),
        ("What did we do on the weekend of 7 May?", "2023-05-06/2023-05-07", "weekend of 7 May"),
        ("What did I say about 2 hours 10 minutes ago?", "2024-02-09/2024-02-10", "about 2 hours 10 minutes ago"),
        ("What did I say ten minutes ago?", "2024-02-10/2024-02-10", "ten minutes ago"),
        ("我两个小时前说了什么？", "2024-02-09/2024-02-10", "两个小时前"),
        ("What did I say on the 3rd?", "2024-02-03/2024-02-03", "on the 3rd"),
        ("the second quarter of 2023", "2023-04-01/2023-06-30", "second quarter of 2023"),
        ("¿Qué hice el 31 de diciembre?", "2023-12-31/2023-12-31", "31 de diciembre"),
        ("Qu'ai-je fait le 5 mars 2023 ?", "2023-03-05/2023-03-05", "5 mars 2023"),
        ("Что я делал 31 декабря?", "2023-12-31/2023-12-31", "31 декабря"),
        ("Where did I go last summer?", "2023-06-01/2023-08-31", "last summer"),
        ("Where did I go in winter 2022?", "2021-12-01/2022-02-28", "in winter 2022"),
        ("the book of 02.01.2024", "2024-01-02/2024-01-02", "02.01.2024"),
        ("Was habe ich am 7. Mai 2023 gesagt?", "2023-05-07/2023-05-07", "7. Mai 2023"),
        ("Was war im März?", "2023-03-01/2023-03-31", "im März"),
        ("Wo war ich letzte Woche?", "2024-01-29/2024-02-04", "letzte Woche"),
        ("4月29日我做了什么？", "2023-04-29/2023-04-29", "4月29日"),
        ("2023年5月我去了哪里？", "2023-05-01/2023-05-31", "2023年5月"),
        ("How did people live 150 years ago?", "1874-01-01/1874-12-31", "150 years ago"),
        ("昨天我吃了什么？", "2024-02-09/2024-02-09", "昨天"),
        ("先週どこへ行きましたか", "2024-01-29/2024-02-04", "先週"),
        ("What happened in late March?", "2023-03-21/2023-03-31", "late March"),
        ("What happened in early January 2023?", "2023-01-01/2023-01-10", "early January 2023"),
        ("Was geschah Mitte März?", "2023-03-11/2023-03-20", "Mitte März"),
        ("5月初我去了哪里？", "2023-05-01/2023-05-10", "5月初"),
        ("圣诞节我做了什么？", "2023-12-25/2023-12-25", ""),
        ("去年の旅行", None, None),
    ],
)
def test_questions_give_date_ranges(text: str, days: str | None, words: str | None) -> None:
    expected = [("2023-01-01/2023-12-31", "去年")] if days is None else [(days, words)]
    assert named(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "May I ask?", "It may rain", "before May 2023", "after 7 May 2023", "until 2023", "2024年以前", "99月99日",
     "30.02.2023", "the first week of", "Room 2023", "x" * 3_000 + " in May"],
)  # fmt: skip
def test_questions_without_a_date_give_none(text: str) -> None:
    assert named(text) == []


@given(st.text(st.sampled_from("in May 2023年4月.of first week last summer 12/")) | st.text())
def test_ranges_are_within_the_text_and_do_not_overlap(text: str) -> None:
    end = 0
    for one in date_ranges(text, TODAY):
        assert one.day <= one.last
        assert end <= one.start < one.end <= len(text)
        end = one.end


def test_hostile_questions_are_read_quickly() -> None:
    started = time.process_time()
    for text in ("in May " * 280, "1." * 990, "first week of " * 140, "2023年" * 400, " " * 2_000):
        date_ranges(text, TODAY)
    assert time.process_time() - started < 2
