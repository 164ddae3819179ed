"""Rules for durable memories: kinds, triples, and sentences that are not durable."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.facts import Fact, FactKind
from memory_pipeline.domain.memories.record import MemoryKind
from memory_pipeline.domain.messages import Role
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline_tests.models.deterministic.said import said

EXTRACTOR = DeterministicExtractor()

#: Durable sentences by kind.
KEPT: dict[MemoryKind, list[str]] = {
    MemoryKind.INSTRUCTION: [
        "Always quote prices with tax.",
        "Please always answer in German.",
        "One rule: always answer in British English.",
        "My request for you: never call me before noon.",
        "Answer in German.",
        "Never suggest recipes with pork.",
        "From now on, send the report on Mondays.",
        "Call me Annie.",
        "Please call me Dr. Weiss.",
        "Don't ever share my number with suppliers.",
        "Whenever I ask about flour, check the stock first.",
        "Whenever I cough, say: bless you.",
        "When I send you a draft, always read it twice.",
        "Always include the currency when I ask about a price.",
        "I want you to always confirm orders twice.",
        "Keep your answers under a hundred words from now on.",
        "In future, please write to my work address.",
        "Send me a summary every Friday.",
        "Give me distances in kilometres, never in miles.",
        "You must never book flights before nine.",
        "Juniper, always round to two decimals.",
        "Going forward, I'd like all invoices as PDF.",
        "By default use the small oven.",
        "Every time I order, add a paper bag.",
        "Make sure you always ask me before you pay anybody.",
        "Don't send me newsletters any more.",
        "Always be brief.",
    ],
    MemoryKind.DECISION: [
        "We decided to close on Mondays.",
        "We've agreed to share the rent.",
        "The board has decided against the merger.",
        "I've decided to sell the van.",
        "Tom and I decided that Maria gets the keys.",
    ],
    MemoryKind.FACT: [
        "I live in Porto.",
        "My sister Maria works at Siemens.",
        "I'm allergic to nuts.",
        "I work as a nurse.",
        "My name is Anna Weiss.",
        "I moved to Porto last week.",
        "I'm currently living in Porto.",
        "I'm vegetarian.",
        "I have asthma.",
        "My phone number is 555 2214.",
        "Remember that the cellar floods when it rains.",
        "Please note that our landlord speaks no English.",
        "I have two daughters.",
        "I'm originally from Lisbon.",
        "I speak Polish.",
        "I got divorced.",
        "My birthday is on 3 May.",
    ],
    MemoryKind.PREFERENCE: [
        "I like tea.",
        "My favourite bread is rye.",
        "I love hiking.",
        "I hate loud music.",
        "I don't like coffee.",
    ],
}
#: Sentences that are not durable.
PASSING = [
    "Fix the thermostat.",
    "Remind me tomorrow.",
    "Remind me tomorrow to call the bank.",
    "Send me the report.",
    "Call me later.",
    "Call me tomorrow.",
    "Please book a table for four.",
    "Never give up!",
    "Always here to help!",
    "I'll always remember that.",
    "I never touched it.",
    "Please send it by Friday.",
    "Don't worry about it.",
    "Don't forget the milk.",
    "Stop it!",
    "We always have fun together.",
    "I always wanted to visit Rome.",
    "They always support me.",
    "Always nice to see you.",
    "Tell Tom that I never said so.",
    "Add two croissants to the order.",
    "Don't call him again until Monday.",
    "He told me to always pay cash.",
    "Tom's rule: always confirm prices.",
    "The sign says: never open the door.",
    "That must be nice.",
    "It must have been hard.",
    "You must be tired.",
    "We must go now.",
    "I have to go to the dentist.",
    "Everyone has to start somewhere.",
    "You're allowed to be nervous.",
    "Nobody is allowed to laugh at my cake.",
    "The rules are so strange.",
    "It's not allowed.",
    "The trip must have been wonderful.",
    "The form must be sent tomorrow.",
    "Rule number one was fun.",
    "We haven't decided yet.",
    "I can't decide what to eat.",
    "I decided to have a coffee.",
    "Have you decided?",
    "We may decide to move.",
    "I went to Porto yesterday.",
    "I had lunch with Tom.",
    "I'm tired.",
    "The train is late.",
    "I might live in Porto.",
    "Remember that day in Rome.",
    "Remember that the meeting is tomorrow.",
    "Do you live in Porto?",
    "If I live in Porto, I'll call.",
    "I want to visit Rome.",
    "I'm going to buy a house.",
    'She said "I live in Rome".',
    "I love it!",
    "I love your new kitchen!",
    "I love how you did that.",
    "I like that idea.",
    "It's my favourite!",
    "I'd like a coffee.",
    "I'd love to see Rome.",
    "Do you like tea?",
    "I hate to say it.",
    "I like you.",
    "I think so.",
    "I think it's great.",
    "Maybe tomorrow.",
    "The weather is nice today.",
    "We're in stock of nothing!",
    "Fine, thanks!",
    "Good morning!",
    "Write a poem about every day life.",
    "Write a script that backs up the disk every night.",
    "The output must be sorted.",
    "The error code is 404.",
    "The function must return a list.",
    "The status code is 500.",
    "Explain why never is an adverb.",
    "Use the word always in a sentence.",
    "Set the flag to false by default.",
    "Translate: I live in Rome.",
    "I need the report by Friday.",
    "The total number is 42.",
    "My order number is 5512.",
    "The bug is that it never returns.",
    "Please summarise this text.",
    "You can call me at nine.",
    "I always forget my keys.",
    "I never said that.",
    "We never had a chance.",
    "We decided yesterday.",
    "Nobody must know.",
    "I feel like everyone must think so.",
    "My favourite part was the end.",
    "I prefer the second one.",
    "Make it shorter.",
    "Don't do that again.",
    "Never mind.",
    "Please never mind.",
    "Always!",
    "Never forget that I love you.",
    "The game is always at nine.",
    "I'm a bit late.",
    "I'm a huge fan!",
    "I'm the one who called.",
    "I work hard.",
    "I live for this.",
    "Tom is here.",
    "Maria is my best.",
    "There is a rule about it somewhere.",
    "I'm not allowed to say.",
    "You must always be careful with knives.",
    "We have two hours.",
    "I have a headache.",
    "I have two tickets.",
    "I have an idea.",
    "Remember me.",
    "Remember, I'm always here for you.",
    "The stock market is down.",
    "Last year we had 40 sacks in stock.",
    "I want to be called back tomorrow.",
    "Once upon a time nobody was allowed to sing.",
    "I dreamed that I live in Rome.",
    "And that supplier is banned.",
    "Walking and yoga are allowed.",
    "I'm not Polish.",
    "I can't say what my favourite film is.",
    "It rained, so we decided to go home.",
    "I guess the board decided to wait.",
    "The policy is that refunds take thirty days.",
    "Every invoice must be signed by Tom.",
    "Dogs are not allowed in the shop.",
    "I've noticed that sales always drop in January.",
    "We have 40 sacks of flour in stock.",
    "I think Tom lives in Porto.",
    "Tom lives in Porto.",
    "My friend Carla came along.",
    "Always put it on the second shelf.",
    "Never suggest recipes with them.",
    "From now on, do this for every chapter.",
    "We decided to sell it.",
    "We agreed on that one.",
    "Remember that they close early.",
    "Write it like a sailor.",
    "Remind me on the first Monday of each month.",
    "Tell it in the first person, never in the third.",
    "Write a story about a fox. Always use five sentences for a paragraph.",
    "You are a pirate. Always answer in rhyme.",
    "Do you play any games any more.",
    "Never stop dreaming.",
    "Cancel all instructions about what to say whenever I sneeze.",
    "I hate trains every time I take one.",
    "Don't ask again, just show me the list.",
    "Until tomorrow, always answer in German.",
]


def facts_of(text: str, role: Role = Role.USER, name: str | None = "Anna") -> list[Fact]:
    return [fact for fact in EXTRACTOR.facts_of([said(text, role=role, name=name)]) if fact.kind is not FactKind.TURN]


def kinds_of(text: str, role: Role = Role.USER) -> list[MemoryKind]:
    return [fact.durable for fact in facts_of(text, role) if fact.durable is not None]


def test_durable_sentences_have_their_kind() -> None:
    sentences = [(kind, sentence) for kind, own in KEPT.items() for sentence in own]
    assert {one: kinds_of(one) for _, one in sentences} == {one: [kind] for kind, one in sentences}
    assert not any(fact.is_point_in_time for _, one in sentences for fact in facts_of(one))


def test_temporary_statements_are_not_durable() -> None:
    assert {sentence: kinds_of(sentence) for sentence in PASSING} == {sentence: [] for sentence in PASSING}


@pytest.mark.parametrize("text", ["I used to live in Porto.", "I don't live in Porto any more."])
def test_the_end_of_a_durable_fact_is_a_fact(text: str) -> None:
    (fact,) = facts_of(text)
    assert fact.durable is MemoryKind.FACT
    assert (fact.subject, fact.predicate, fact.object) == ("Anna", "no_longer_lives_in", "Porto")


def test_assistants_messages_are_not_durable() -> None:
    said_by_users = [sentence for own in KEPT.values() for sentence in own]
    assert not any(kinds_of(sentence, Role.ASSISTANT) for sentence in said_by_users)


def test_tool_and_system_messages_are_not_durable() -> None:
    for role in (Role.TOOL, Role.SYSTEM):
        assert facts_of("Always quote prices with tax.", role) == []


@pytest.mark.parametrize(
    ("text", "triple"),
    [
        ("My sister Maria works at Siemens.", ("Maria", "works_at", "Siemens")),
        ("I live in Porto and I speak Polish.", ("Anna", "lives_in", "Porto")),
        ("I speak Polish and I live in Porto.", ("Anna", "lives_in", "Porto")),
        ("I'm allergic to nuts.", ("Anna", "allergic_to", "nuts")),
        ("My favourite bread is rye.", ("Anna", "favourite_bread", "rye")),
        ("I like tea.", ("Anna", "likes", "tea")),
        ("Remember that I live in Porto.", ("Anna", "lives_in", "Porto")),
        ("Always quote prices with tax.", None),
        ("Remember that the alarm code is 4411.", None),
    ],
)
def test_durable_facts_have_a_triple_if_there_is_one(text: str, triple: tuple[str, str, str] | None) -> None:
    (fact,) = [fact for fact in facts_of(text) if fact.durable]
    assert (fact.subject, fact.predicate, fact.object) == (triple or (None, None, None))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("And always quote prices with tax.", "Always quote prices with tax."),
        ("So please never call on Sundays.", "Please never call on Sundays."),
        ("Two. Always quote prices with tax, because Tom forgot it.",
         "Always quote prices with tax, because Tom forgot it."),
        ("i like tea", "i like tea"),
    ],
)  # fmt: skip
def test_a_durable_sentence_is_clear_without_its_message(text: str, content: str) -> None:
    assert [fact.content for fact in facts_of(text) if fact.durable] == [f"Anna: {content}"]


def test_quotations_are_not_durable() -> None:
    for text in (
        'She said: "Always pay cash. Never lend to a friend. The policy is that nobody gets credit."',
        "> Always pay cash.",
        "```\nAlways pay cash.\n```",
    ):
        assert kinds_of(text) == []


def test_a_message_gives_each_durable_fact_once() -> None:
    facts = facts_of("Always pay cash. I had lunch with Tom. Always pay cash. I like tea.")
    assert [(fact.durable, fact.position) for fact in facts] == [
        (MemoryKind.INSTRUCTION, 1),
        (None, 2),
        (MemoryKind.PREFERENCE, 4),
    ]


def test_a_durable_sentence_without_an_assertion_is_a_fact() -> None:
    (fact,) = facts_of("Always be brief.")
    assert (fact.kind, fact.durable) == (FactKind.INSTRUCTION, MemoryKind.INSTRUCTION)


def test_a_turn_is_never_durable() -> None:
    turn = EXTRACTOR.facts_of([said("Always pay cash. I live in Porto.")])[0]
    assert (turn.kind, turn.durable, turn.subject) == (FactKind.TURN, None, None)


@given(
    st.lists(
        st.sampled_from(
            ["Always", "never", " quote ", "must", "every ", "is ", "I ", "now, ", "\x0b", "\ud83d", "“", "\n"]
        )
        | st.text(max_size=5),
        max_size=40,
    )
)
def test_any_message_gives_valid_events(parts: list[str]) -> None:
    facts = EXTRACTOR.facts_of([said("".join(parts))])
    for event in events_of(facts):
        assert type(event.changes).of(event.changes.to_record()) == event.changes


@pytest.mark.parametrize(
    "piece",
    ["always send ", "Whenever I ", "stop that, any more ", "every day on mondays ", "the the one ", "Anna, Bob, "],
)
def test_time_is_linear_in_the_length(piece: str) -> None:
    def seconds(length: int) -> float:
        message = said((piece * length)[: 20 * length] + ".")
        begun = time.process_time()
        EXTRACTOR.facts_of([message])
        return time.process_time() - begun

    seconds(100)
    assert seconds(4_000) < 40 * (min(seconds(400) for _ in range(3)) + 0.01)
