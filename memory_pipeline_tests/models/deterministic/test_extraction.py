"""The deterministic extractor."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.facts import VERBATIM, Fact, FactKind
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.summaries import material_of
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer
from memory_pipeline_tests.models.deterministic.said import MONDAY, said

EXTRACTOR = DeterministicExtractor()


def asserted(text: str, role: Role = Role.USER, name: str | None = "Anna") -> list[Fact]:
    return EXTRACTOR.facts_of([said(text, role=role, name=name)])[1:]


def the_fact(text: str, role: Role = Role.USER) -> Fact:
    (fact,) = asserted(text, role)
    return fact


def test_a_turn_is_verbatim() -> None:
    text = "  Wow!\n\n```\ncode\n```\nI moved to Porto yesterday. 😀 "
    turn, *facts = EXTRACTOR.facts_of([said(text)])
    assert turn.kind is FactKind.TURN
    assert turn.content == f"Anna: {text}"
    assert turn.extraction_method == VERBATIM
    assert turn.confidence == 1
    assert turn.entities == ("Porto",)
    assert turn.mentioned_at == datetime(2023, 5, 7, tzinfo=UTC)
    assert [fact.content for fact in facts] == ["Anna: I moved to Porto yesterday [2023-05-07]."]
    assert turn.importance == facts[0].importance
    assert facts[0].extraction_method == EXTRACTOR.name == "deterministic-7"


@pytest.mark.parametrize(
    "text",
    [
        "Wow, that's cool!",
        "Thanks!",
        "Thanks, Anna! That's so sweet.",
        "Thank you for the tip about flour, really.",
        "Sounds good.",
        "That sounds great, Mel!",
        "Hey Mel! Good to see you!",
        "Yes.",
        "Of course she has.",
        "You're awesome, Anna!",
        "Good luck with the exam!",
        "How did it go?",
        "Did you see Anna yesterday?",
        "Let me know how the oven behaves.",
        "How about a walk in Porto on Sunday.",
        "Feel free to send me the papers.",
        "What a lovely garden you planted!",
        "Two.",
        "Five lines.",
        "My cat and the dog",
        "```\nI paid 5 euros yesterday.\n```",
        "> I paid 5 euros yesterday.",
        "https://example.org",
        "😀😀",
        "...",
    ],
)
def test_sentences_without_an_assertion_give_no_fact(text: str) -> None:
    assert asserted(text) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("My sister works at the harbour.", FactKind.STATEMENT),
        ("The oven is a Kessler 40.", FactKind.STATEMENT),
        ("Country loaf 4.20, croissant 2.10, rye loaf 5.00.", FactKind.STATEMENT),
        ("I signed the lease.", FactKind.EVENT),
        ("We adopted a dog yesterday.", FactKind.EVENT),
        ("Aldo has left.", FactKind.EVENT),
        ("I'll paint the door.", FactKind.PLAN),
        ("We are thinking about moving.", FactKind.PLAN),
        ("Milo starts next Tuesday.", FactKind.PLAN),
        ("I'd love to visit Porto.", FactKind.PLAN),
        ("I prefer tea.", FactKind.PREFERENCE),
        ("I'm allergic to hazelnuts.", FactKind.PREFERENCE),
        ("Lemon is my favourite flavour.", FactKind.PREFERENCE),
        ("Always quote prices in euros.", FactKind.INSTRUCTION),
        ("Remind me on the first Monday of each month.", FactKind.INSTRUCTION),
        ("Please never suggest bacon.", FactKind.INSTRUCTION),
        ("And don't call before nine.", FactKind.INSTRUCTION),
        ("Fix the thermostat now.", FactKind.INSTRUCTION),
        ("Love the colour of that door.", FactKind.STATEMENT),
    ],
)
def test_facts_have_their_kind(text: str, kind: FactKind) -> None:
    assert the_fact(text).kind is kind


def answered(text: str, reply: str) -> list[str]:
    """Return the facts of what an assistant says, if the user then says `reply`."""
    said_first, said_then = said(text, role=Role.ASSISTANT, name="Juniper"), said(reply, turn=1)
    facts = EXTRACTOR.facts_of([said_first, said_then])
    return [fact.content for fact in facts if fact.role is Role.ASSISTANT and fact.kind is not FactKind.TURN]


BOOKED = "I've booked a table for four at Sol on 9 May."


@pytest.mark.parametrize("reply", ["Perfect, thanks!", "Yes, book it.", "Ok, that works.", "Great. Let's do that."])
def test_what_an_assistant_did_is_a_fact_if_the_user_accepts_it(reply: str) -> None:
    facts = answered(f"# Your evening\n- Sol is a bistro\nSol has good fish. {BOOKED} Anything else?", reply)
    assert facts == ["Juniper: I've booked a table for four at Sol on 9 May [2023-05-09]."]


@pytest.mark.parametrize("reply", ["Is that near the harbour?", "No, cancel it.", "I wanted it on Friday.", ""])
def test_nothing_else_that_an_assistant_says_is_a_fact(reply: str) -> None:
    assert answered(BOOKED, reply) == []
    assert answered("Never open the door at 230 degrees. You live in Porto, and bread needs salt.", "Thanks!") == []


def test_list_items_and_headings_are_no_facts_unless_in_the_first_person() -> None:
    text = "Things to know:\n- Flour costs 4 euros\n- I am allergic to hazelnuts\n## Rent is 600 euros"
    assert [fact.content for fact in asserted(text)] == ["Anna: I am allergic to hazelnuts"]


def test_tool_and_system_messages_give_nothing() -> None:
    messages = [said("I moved to Porto.", role=role) for role in (Role.SYSTEM, Role.TOOL)]
    assert EXTRACTOR.facts_of(messages) == []


def test_dates_are_resolved_against_the_message() -> None:
    fact = the_fact("I went to the market last week.")
    assert fact.content == "Anna: I went to the market last week [2023-W18]."
    assert fact.mentioned_at == datetime(2023, 5, 1, tzinfo=UTC)
    assert fact.event_at == MONDAY


def test_first_person_facts_name_their_speaker() -> None:
    assert the_fact("I moved to Porto.").entities == ("Anna", "Porto")
    assert the_fact("Ruben moved to Porto.").entities == ("Porto", "Ruben")
    (nameless,) = asserted("I moved to Porto.", name=None)
    assert nameless.entities == ("Porto",)
    assert nameless.content == "User: I moved to Porto."


def test_a_sentence_said_twice_in_a_message_is_one_fact() -> None:
    assert len(asserted("I moved to Porto. I moved to Porto.")) == 1


def test_a_message_of_one_sentence_is_a_turn_and_a_fact() -> None:
    turn, fact = EXTRACTOR.facts_of([said("I moved to Porto.")])
    assert turn.content == fact.content
    assert turn.id != fact.id


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("I married Ruben on 7 May.", "I watered the garden."),
        ("I paid 450 euros for it.", "I paid the man for it."),
        ("I'm allergic to hazelnuts.", "I like hazelnuts in bread."),
        ("Always use metric units with me.", "The units are metric here."),
        ("I'll move to Porto.", "Maybe I'll move to Porto."),
        ("My sister works at the harbour.", "She works at the harbour."),
        ("I walk to the harbour slowly.", "You walk to the harbour slowly."),
        ("I was at the old harbour with the dogs.", "I was so happy."),
        ("My mother is ill.", "We have lunch at 12 tomorrow."),
        ("I moved to Porto.", "I'm ready to start today."),
        ("I moved to Porto.", "Please add two eggs to the list."),
        ("I sold my house.", "If I sold my house, I would move."),
        ("Zora lives in Ghent.", "Love is everything to people."),
        ("I went to the harbour yesterday.", "I slept badly yesterday."),
        ("I cycle to the harbour every morning.", "I cycle to the harbour this morning."),
        ("My brother sold his boat.", "My brain is so tired."),
        ("Im allergic to nuts.", "Im not sure about nuts."),
        ("I'm learning Portuguese.", "I'm trying to make sure the table has three columns."),
    ],
)
def test_importance_orders_facts(more: str, less: str) -> None:
    others = [fact.importance for fact in asserted(less)] or [0.0]
    assert the_fact(more).importance > others[0]


#: A plain message in twenty languages, and where it says "yesterday", with the date.
PLAIN = {
    "Spanish": ("Ayer me mudé a Sevilla.", "Ayer"),
    "German": ("Gestern bin ich nach Berlin gezogen.", "Gestern"),
    "French": ("Hier, j'ai déménagé à Lyon.", "Hier"),
    "Italian": ("Ieri mi sono trasferita a Torino.", "Ieri"),
    "Portuguese": ("Ontem mudei para o Porto.", "Ontem"),
    "Dutch": ("Gisteren ben ik naar Utrecht verhuisd.", "Gisteren"),
    "Russian": ("Вчера мы переехали в Казань.", "Вчера"),
    "Arabic": ("انتقلت أمس إلى القاهرة.", "أمس"),
    "Chinese": ("我昨天搬到了里加。", "昨天"),
    "Japanese": ("昨日大阪に引っ越しました。", "昨日"),
    "Korean": ("어제 부산으로 이사했어요.", "어제"),
    "Thai": ("เมื่อวานฉันย้ายไปเชียงใหม่", "เมื่อวาน"),
    "Turkish": ("Fıstığa alerjim var.", ""),
    "Polish": ("Mieszkam w Krakowie.", ""),
    "Swedish": ("Jag bor i Malmö.", ""),
    "Finnish": ("Asun Tampereella.", ""),
    "Greek": ("Μένω στη Θεσσαλονίκη.", ""),
    "Hebrew": ("אני גר בחיפה.", ""),
    "Hindi": ("मैं पुणे में रहता हूँ।", ""),
    "Vietnamese": ("Tôi sống ở Đà Nẵng.", ""),
}


@pytest.mark.parametrize("language", PLAIN)
def test_a_sentence_in_another_language_is_a_fact_that_summaries_hold(language: str) -> None:
    text, yesterday = PLAIN[language]
    turn, *facts = EXTRACTOR.facts_of([said(text)])
    dated = text.replace(yesterday, f"{yesterday} [2023-05-07]") if yesterday else text
    assert turn.content == f"Anna: {text}"
    assert [fact.content for fact in facts] == [f"Anna: {dated}"]
    day = Period.parse(Grain.DAILY, "2023-05-08")
    weather = EXTRACTOR.facts_of([said("The weather is nice today.", turn=1)])
    points = ExtractiveSummarizer().points_of(day, material_of([*facts, *weather[1:]]))
    assert facts[0].content in {point.sentence for point in points}


@pytest.mark.parametrize(
    "text",
    [
        "¿Dónde vives?",
        "Vielen Dank!",
        "Hola, gracias.",
        "谢谢你！",
        "你喜欢什么运动？",
        "Ja, klar.",
    ],
)
def test_questions_and_courtesies_in_other_languages_give_no_fact(text: str) -> None:
    assert asserted(text) == []


def test_facts_are_in_order_and_a_users_depend_on_their_message_alone() -> None:
    messages = [
        said("Otto hates heat. I met Otto.", turn=0),
        said("Otto left.", turn=1),
        said("Thanks!", turn=2, role=Role.ASSISTANT, name="Juniper"),
    ]
    together = EXTRACTOR.facts_of(messages)
    assert together == [fact for message in messages for fact in EXTRACTOR.facts_of([message])]
    assert [fact.turn for fact in together] == sorted(fact.turn for fact in together)


def test_facts_differ_only_in_the_time_of_receipt() -> None:
    message = said("We open next week, on 15 May.")
    now = datetime(2025, 1, 1, tzinfo=UTC)
    later = EXTRACTOR.facts_of([replace(message, received_at=now)])
    assert later == [replace(fact, received_at=now) for fact in EXTRACTOR.facts_of([message])]


@given(st.text(min_size=1, max_size=200), st.sampled_from(list(Role)), st.sampled_from([None, "Anna", "李"]))
def test_any_text_gives_one_turn_and_valid_facts(text: str, role: Role, name: str | None) -> None:
    facts = EXTRACTOR.facts_of([said(text, role=role, name=name)])
    assert [fact.kind for fact in facts].count(FactKind.TURN) == role.is_memorable
    assert len({fact.id for fact in facts}) == len(facts)
    for fact in facts:
        assert 0.05 <= fact.importance <= 1
        assert round(fact.importance, 2) == fact.importance
        assert 0 < fact.confidence <= 1


def test_tomorrow_is_resolved_in_the_lakes_zone() -> None:
    late = replace(said("I am moving to Boston tomorrow."), sent_at=datetime(2024, 7, 2, 1, tzinfo=UTC))
    there = DeterministicExtractor("America/New_York")  # 21:00 on 1 July there
    assert "[2024-07-02]" in there.facts_of([late])[1].content
    assert "[2024-07-03]" in EXTRACTOR.facts_of([late])[1].content
    assert there.facts_of([late])[1].extraction_method == "deterministic-7 America/New_York"


@pytest.mark.parametrize(
    ("timestamp", "zone", "text", "day"),
    [
        ("2024-01-16T07:00:00+09:00", None, "I saw Dr. Meyer yesterday.", "2024-01-15"),
        ("2024-01-15T22:00:00Z", "Asia/Tokyo", "I saw Dr. Meyer yesterday.", "2024-01-15"),
        ("2024-01-15T22:00:00Z", None, "I saw Dr. Meyer yesterday.", "2024-01-14"),
        ("2024-01-16T01:30:00-08:00", "Asia/Tokyo", "I fly to Rome tonight.", "2024-01-16"),
        ("2024-01-15T23:30:00-08:00", None, "I met Ben on Sunday.", "2024-01-14"),
        ("2024-01-16T08:10:00Z", "America/Los_Angeles", "I paid the rent this morning.", "2024-01-16"),
        ("2024-01-16T07:50:00Z", "America/Los_Angeles", "I paid the rent this morning.", "2024-01-15"),
        # Clocks in Berlin change on 31 March and 27 October.
        ("2024-03-30T23:30:00Z", "Europe/Berlin", "I saw Dr. Meyer yesterday.", "2024-03-30"),
        ("2024-03-31T22:30:00Z", "Europe/Berlin", "I saw Dr. Meyer yesterday.", "2024-03-31"),
        ("2024-10-26T22:30:00Z", "Europe/Berlin", "I saw Dr. Meyer yesterday.", "2024-10-26"),
        ("2024-10-27T22:30:00Z", "Europe/Berlin", "I saw Dr. Meyer yesterday.", "2024-10-26"),
    ],
)
def test_days_are_resolved_on_the_speakers_clock(timestamp: str, zone: str | None, text: str, day: str) -> None:
    record = {"role": "user", "name": "Anna", "content": text, "timestamp": timestamp}
    talk = {"workspace_id": "acme", "agent_id": "a", "conversation_id": "c", "timezone": zone, "messages": [record]}
    read = read_messages(talk, Admission(date(2024, 1, 1), datetime(2025, 1, 1, tzinfo=UTC)))
    turn, *facts = EXTRACTOR.facts_of(read.messages)
    assert turn.mentioned_at == datetime.fromisoformat(day).replace(tzinfo=UTC)
    assert f"[{day}]" in facts[0].content


@pytest.mark.parametrize(
    "text", ["I met Ann last Frıday.", "We leave on 5 ſeptember.", "It was MAY or wee\u212a 3, last wee\u212a."]
)
def test_lookalike_letters_do_no_harm(text: str) -> None:
    turn, *_ = EXTRACTOR.facts_of([said(text)])
    assert turn.content.endswith(text)
