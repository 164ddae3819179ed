"""Names of people, places and things."""

from __future__ import annotations

import pytest

from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.deterministic.language.names import names_in, subject_of


def names(text: str, speaker: str | None = None) -> list[str]:
    return sorted({name for found in names_in(sentences_of(text), speaker) for name in found})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I flew to New York with Jean-Luc.", ["Jean-Luc", "New York"]),
        ("I joined the LGBTQ support group.", ["LGBTQ"]),
        ("We won Loaf of the Year.", ["Loaf of the Year"]),
        ("She works at Tern & Tide Ferries.", ["Tern & Tide Ferries"]),
        ("I met Elise's mother on Tuesday in May.", ["Elise"]),
        ("Elise's Rye barked.", ["Elise", "Rye"]),
        ("We sold hearts on Valentine's Day.", ["Valentine's Day"]),
        ("Aldo has left.", ["Aldo"]),
        ("Aldo laughed.", ["Aldo"]),
        ("Anna and I moved.", ["Anna"]),
        ("Thistledown Mill raised prices.", ["Thistledown Mill"]),
        ("The bread is good. Coffee too.", []),
        ("Flowers grow here. Running helps.", []),
        ("Ask Ruben about it.", ["Ruben"]),
        ("Thanks, Mel! Hey Caroline!", ["Caroline", "Mel"]),
        ("I told Greta. Greta, of all people.", ["Greta"]),
        ("OK, I am fine, by the way.", []),
        ("THIS IS VERY IMPORTANT NEWS FROM ME", []),
        ('I read "Charlotte\'s Web" and "The Long Way Home" again.', ["Charlotte's Web", "The Long Way Home"]),
        ("The answer: Bread it is.", []),
        ("Ölaf sah Zoë in Łódź.", ["Zoë", "Łódź"]),
        ("我昨天去了北京。", []),
        ("ذهبت إلى القاهرة أمس", []),
        ("", []),
    ],
)
def test_names_are_found_in_a_text(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_the_speaker_is_known_at_the_beginning_of_a_sentence() -> None:
    assert names("Ruben here, the other half.") == []
    assert names("Ruben here, the other half.", "Ruben") == ["Ruben"]


def test_long_runs_of_capitals_are_headings() -> None:
    assert names("we read Wild Yeast Dough Rises Winter Nights yesterday") == []


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Alice enjoys hiking.", "Alice"),
        ("Alice Smith works at Bosch.", "Alice Smith"),
        ("Alice can't swim", "Alice"),
        ("- Alice never drinks.", "Alice"),
        ("The user likes tea.", "User"),
        ("I like tea.", None),
        ("Always quote prices in euros.", None),
        ("Use tabs.", None),
        ("Dogs are not allowed.", None),
        ("When Alice comes, ring.", None),
        ("", None),
    ],
)
def test_the_name_at_the_beginning_of_a_text_is_found(text: str, subject: str | None) -> None:
    assert subject_of(text) == subject
