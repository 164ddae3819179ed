"""The name of a user means the user, in the user's own questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.text.ranking import OwnName, Query

if TYPE_CHECKING:
    from pathlib import Path

SPEAKERS = ["User", "user:anna", "Agent", "Ben"]


@pytest.mark.parametrize(
    ("user", "question", "is_named"),
    [
        ("anna", "Where does Anna live?", True),
        ("anna", "What is ANNA's address?", True),
        ("anna", "Where does 'anna' live?", True),
        ("anna", "where does anna live?", False),
        ("anna", "Where does Annabel live?", False),
        ("Anna Smith", "Where does Anna Smith live?", True),
        ("Anna Smith", "Where does Anna Jones live?", False),
        ("will", "Will it rain?", False),
        ("will", "Where does Will live?", True),
        ("小明", "小明住在哪里？", True),
        ("ben", "Where does Ben live?", False),  # another speaker
        ("", "Where?", False),
        ("?", "Where?", False),
    ],
)
def test_a_question_names_the_user(user: str, question: str, is_named: bool) -> None:
    query = Query.of(question, SPEAKERS, own=OwnName.of(user, lambda: False))
    assert ("User" in query.about) is is_named
    taken = Query.of(question, SPEAKERS, own=OwnName.of(user, lambda: True))
    assert taken == Query.of(question, SPEAKERS)


def test_the_user_is_found_by_name_unless_another_person_has_it(tmp_path: Path) -> None:
    anna = Memory(str(tmp_path), user_id="anna")
    anna.add("I moved to Porto.")
    anna.add("My PIN is 4711.")
    anna.add("We meet at noon.", users=["anna", "ben"])
    assert anna.search("Where does Anna live?")[0].content == "User: I moved to Porto."
    assert "Porto" in str(anna.graph.facts_about("anna"))
    assert "Porto" in str(anna.context("Where does Anna live?"))
    anna.remember("Anna is allergic to nuts.")
    anna.run()
    assert {fact.object for fact in anna.facts.facts_about("ANNA")} == {"Porto", "nuts"}
    anna.writer.graph.insert("Anna", "lives_in", "Riga")
    assert [fact.object for fact in anna.facts.facts_about("anna")] == ["nuts"]
    assert "Porto" not in str(anna.graph.facts_about("anna"))
