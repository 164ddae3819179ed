"""Tests of what a question is about."""

from __future__ import annotations

import pytest

from memory_pipeline.domain.text.ranking import Query


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Can you list the order in which I brought up aspects of my boat throughout our conversations?", "list boat"),
        ("Tell me what I said about the boat", "boat"),
        ("Remind me what we discussed about Riga in our last chats", "riga"),
        ("How many colours did I mention across all my sessions?", "colour"),
        ("Can we assume, based on the conversation, that she sails?", "assum sail"),
        ("Was war in unseren Gesprächen mit Riga?", "war mit riga"),
        ("¿Qué puerto hay en nuestras conversaciones?", "que puerto hay"),
        ("在我们的对话中，里加？", "里加"),
    ],
)
def test_words_about_the_conversation_are_no_topic(question: str, words: str) -> None:
    assert " ".join(Query.of(question, []).terms) == words


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What did we talk about?", "talk"),
        ("Which chat app does Anna use?", "chat app anna use"),
        ("I asked him to buy tea in order to relax", "ask buy tea order relax"),
        ("How many cats did I see across my weather app conversations?", "cat see across weather app conversation"),
        ("What did Anna say in her conversation with Ben?", "anna say conversation ben"),
        ("In what order did I visit the cities?", "order visit citi"),
    ],
)
def test_other_words_stay(question: str, words: str) -> None:
    assert " ".join(Query.of(question, []).terms) == words
