"""Tests of what a prompt asks about, and of contexts for small talk, times, people and tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.client.memory import Memory
from memory_pipeline.reader.packing.asked import asks_about, is_small_talk, subject_of

if TYPE_CHECKING:
    from pathlib import Path

MARCH = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("prompt", "subject"),
    [
        ("What do you know about Elise?", "Elise?"),
        (
            "Could you please draft me a short polite email to Jeremy about the sound mix?",
            "Jeremy about the sound mix?",
        ),
        ("Write a message to my boss that I will be late tomorrow.", "my boss "),
        ("What happened in April?", "was in April"),
        ("Summarise 2023", "was in 2023"),
        ("What's planned for April?", "in April"),
        ("Summarise my week", " this week"),
        ("你还记得我喜欢什么吗？", " 我喜欢"),
        ("帮我给老板写一封邮件", "老板"),
        ("Who am I?", "Who am I?"),
    ],
)
def test_the_words_that_only_ask_are_left_out(prompt: str, subject: str) -> None:
    assert subject_of(prompt).strip() == subject.strip()


@pytest.mark.parametrize(
    "prompt",
    ["thanks!", "ok", "haha yes", "Hi, how are you?", "谢谢！", "好的", "Danke dir!", "merci beaucoup", "Yes.", "👍"],
)
def test_small_talk_is_recognized(prompt: str) -> None:
    assert is_small_talk(prompt)


@pytest.mark.parametrize(
    "prompt",
    ["Elise?", "What do I love?", "Who am I?", "I love honey", "My kids", "Room 12", "谢谢，我住在里加的老城区。"],
)
def test_a_prompt_that_says_or_asks_something_is_no_small_talk(prompt: str) -> None:
    assert not is_small_talk(prompt)


def test_a_question_about_a_person_has_only_the_name() -> None:
    assert asks_about("Who is Anna?", ["Anna Koch"])
    assert not asks_about("What did Anna make?", ["Anna"])
    assert not asks_about("Who is it?", ["Anna"])


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    folder: Path = tmp_path_factory.mktemp("asked")
    memory = Memory(str(folder / "lake"), workspace_id="acme", agent_id="support")
    for day, texts in {
        0: ["My son Leo is 7 and loves trains.", "ok", "Fine."],
        3: ["My boss is Ms. Huber. She wants the report on Friday.", "From now on, always answer in short sentences."],
        6: ["The pick-up at school is on 28 March."],
        7: ["The pick-up was moved to 2 April."],
    }.items():
        said = [
            {"role": "user", "content": text, "timestamp": (MARCH + timedelta(days=day, minutes=minute)).isoformat()}
            for minute, text in enumerate(texts)
        ]
        memory.add(said, conversation_id=f"day {day}", now=MARCH + timedelta(days=day, hours=1))
    return memory


def test_small_talk_brings_instructions_alone(memory: Memory) -> None:
    now = MARCH + timedelta(days=9)
    talk = [{"role": "user", "content": "Leo is ill."}, {"role": "user", "content": "thanks!"}]
    for prompt in ("thanks!", talk):
        assert [part.kind for part in memory.context(prompt, now=now).parts] == ["instruction"]


def test_a_mail_to_somebody_is_about_the_person(memory: Memory) -> None:
    block = str(memory.context("Write a mail to my boss that I will be late", now=MARCH + timedelta(days=9)))
    assert "Ms. Huber" in block
    assert "trains" not in block
    assert "Fine." not in block


def test_a_month_without_memories_brings_nothing_of_others(memory: Memory) -> None:
    now = MARCH + timedelta(days=9)
    assert "trains" in str(memory.context("What happened in March?", now=now))
    assert "trains" not in str(memory.context("What happened in January?", now=now))


def test_nothing_said_after_now_is_shown(memory: Memory) -> None:
    before = MARCH + timedelta(days=6, hours=23)
    assert "2 April" not in str(memory.context("When is the pick-up?", now=before))
    assert "2 April" not in str(memory.reader.recall("When is the pick-up?", now=before))
    assert "2 April" not in str(memory.search("When is the pick-up?", now=before))
    later = str(memory.context("When is the pick-up?", now=before + timedelta(days=1)))
    assert later.index("2 April") < later.index("28 March")
