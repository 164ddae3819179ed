"""A question may name a speaker as the others do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory

if TYPE_CHECKING:
    from pathlib import Path

TALK = [("Ben", "I live near the station."), ("Emi", "I live near the harbour."), ("Ben", "My train is late again.")]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["Hey Kate, how are you?", "Thanks, Kate!"], "Emi: I live near the harbour."),
        (["Kate, are you there?", "See you soon, Kate."], "Emi: I live near the harbour."),
        (["Kate is my sister.", "My sister Kate lives in Rome.", "Thanks, Kate, I said."], "My sister Kate lives"),
    ],
)
def test_a_speaker_is_found_by_the_name_by_which_others_address_the_speaker(
    tmp_path: Path, said: list[str], found: str
) -> None:
    memory = Memory(str(tmp_path))
    messages = [
        {"role": "user", "name": who, "content": text, "timestamp": f"2024-03-01T09:{minute:02}:00Z"}
        for minute, (who, text) in enumerate([*TALK, *(("Ben", text) for text in said)])
    ]
    memory.add(messages, conversation_id="talk")
    best = memory.search("Where does Kate live?", 1, now=datetime(2024, 3, 2, tzinfo=UTC))[0]
    assert found in best.content
