"""Deduplication of injected items: nothing is repeated, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.models.factory import Models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.reader.packing.injection import distinct
from memory_pipeline.reader.packing.items import Recalled, Source, compact
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME, conversation, write
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.openai_server import OpenAIServer
from memory_pipeline_tests.reader.injecting import SAID, TEXTS, ask, injected, packed, part, recalled
from memory_pipeline_tests.reader.ways import make_hours

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake


def distinct_texts(*parts: Recalled) -> list[str]:
    return [one.content for one in distinct(parts)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I moved to Porto.", "I did not move to Porto."),
        ("I will come to the party.", "I won't come to the party."),
        ("I can't come to the party", "I can come to the party"),
        ("Anna said that she will come to the big party at the lake on Sunday with Maria and her dog",
         "Anna said that she will not come to the big party at the lake on Sunday with Maria and her dog"),
        ("Anna said that she will come to the big party at the lake on Sunday with Maria and her dog",
         "Anna said that she will never come to the big party at the lake on Sunday with Maria and her dog"),
        ("The contract of the third of May is worth 9,000 euros for the whole of the year",
         "The contract of the third of May is worth 9,500 euros for the whole of the year"),
        ("The flight leaves at 10:15 from the second gate of the old terminal in Porto",
         "The flight leaves at 10:45 from the second gate of the old terminal in Porto"),
        ("是", "不是"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", [Source.MEMORY, Source.SUMMARY, Source.DOCUMENT])
def test_texts_that_differ_by_a_negation_or_a_number_are_both_kept(one: str, other: str, source: Source) -> None:
    assert distinct_texts(part(one, Source.MEMORY), part(other, source)) == [one, other]
    assert distinct_texts(part(other, Source.MEMORY), part(one, source)) == [other, one]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It was -5 degrees in Porto.", "It was 5 degrees in Porto."),
        ("The course takes 1.5 hours.", "The course takes 5.1 hours."),
        ("The rent is due on 2024-03-04.", "The rent is due on 2024-04-03."),
        ("Anna owes Ben 30 euros.", "Ben owes Anna 30 euros."),
        ("Anna manages Ben", "Ben manages Anna"),
        ("I like C++.", "I like C#."),
        ("It costs $5.", "It costs €5."),
        ("👍", "👎"),
        ("Yes.", "👎"),
        ("पिता", "पीता"),
        ("Anna said that she can come to the party on Sunday at the lake with Maria",
         "Anna said that she cannot come to the party on Sunday at the lake with Maria"),
        ("Anna told us that she has three dogs and a cat at home in Porto now",
         "Anna told us that she has four dogs and a cat at home in Porto now"),
        ("Anna: I will be at the office on Monday in the morning with the keys",
         "Ben: I will be at the office on Monday in the morning with the keys"),
        ("Wir fahren im Sommer mit dem Zug nach Berlin und Anna kommt",
         "Wir fahren im Sommer nicht mit dem Zug nach Berlin und Anna kommt"),
    ],
)  # fmt: skip
def test_texts_with_other_differences_are_both_kept(one: str, other: str) -> None:
    assert distinct_texts(part(one, Source.MEMORY), part(other, Source.DOCUMENT)) == [one, other]
    assert distinct_texts(part(other, Source.DOCUMENT), part(one, Source.MEMORY)) == [other, one]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I moved to Porto.", "i MOVED  to Porto"),
        ("I moved to Porto.", "\u201cI moved, to (Porto)!\u201d"),
        ("I moved\nto\u2003Porto", "I moved to Porto"),
        ("Die Straße ist lang.", "Die STRASSE ist lang."),
        ("...", "..."),
    ],
)
@pytest.mark.parametrize("sources", [(Source.MEMORY, Source.DOCUMENT), (Source.DOCUMENT, Source.GRAPH)])
def test_case_marks_and_white_space_are_ignored(one: str, other: str, sources: tuple[Source, Source]) -> None:
    assert distinct_texts(part(one, sources[0]), part(other, sources[1])) == [one]
    assert distinct_texts(part(other, sources[0]), part(one, sources[1])) == [other]


def test_similar_texts_are_both_kept() -> None:
    texts = ["I moved to Porto", "I have moved to Porto", "I moved to Porto last week", "Porto, I moved to", "I moved"]
    assert distinct_texts(*(part(text, Source.DOCUMENT) for text in texts)) == texts


def test_a_message_equals_a_text_without_its_speaker() -> None:
    said, bare = part("Anna: I moved to Porto.", Source.MEMORY), part("I moved to Porto", Source.DOCUMENT)
    assert distinct_texts(said, bare) == [said.content]
    assert distinct_texts(bare, said) == [said.content]  # the speaker is kept
    ben = part("Ben: I moved to Porto.", Source.MEMORY)
    assert distinct_texts(bare, said, ben, bare) == [said.text, ben.text]
    assert distinct_texts(said, part("Anna I moved to Porto", Source.DOCUMENT)) == [said.content]


def test_messages_of_different_speakers_are_both_kept() -> None:
    anna, ben = part("Anna: I moved to Porto.", Source.MEMORY), part("Ben: I moved to Porto.", Source.MEMORY)
    assert distinct_texts(anna, ben) == [anna.text, ben.text]
    for source in (Source.DOCUMENT, Source.SUMMARY, Source.GRAPH):  # only messages have speakers
        other = part(ben.text, source)
        assert distinct_texts(anna, other, part("I move.", source)) == [anna.content, other.content, "I move."]
        assert distinct_texts(other, part("I moved to Porto.", source)) == [other.content, "I moved to Porto."]
    for nobody in (": I moved to Porto.", "I moved to Porto:", "Anna:I moved to Porto."):
        assert distinct_texts(part(nobody, Source.MEMORY), part("I moved", Source.DOCUMENT)) == [nobody, "I moved"]


def test_duplicates_share_their_evidence() -> None:
    parts = [
        part("Anna: Yes.", Source.MEMORY, "m1"),
        part("Ben: Yes.", Source.MEMORY, "m2"),
        part("anna: yes", Source.MEMORY, "m3", "m4"),
        part("yes", Source.SUMMARY, "m5"),
    ]
    assert [(one.text, set(one.evidence)) for one in distinct(parts)] == [
        ("Anna: Yes.", {"m1", "m3", "m4", "m5"}),
        ("Ben: Yes.", {"m2"}),
    ]
    assert parts[0].evidence == {"m1"}


class Meaning(NamedTuple):
    """The meaning of a part, however it is worded."""

    speaker: str | None
    words: tuple[str, ...]
    source: Source

    @property
    def whole(self) -> tuple[str, ...]:
        return self.words if self.speaker is None else (self.speaker, *self.words)

    @property
    def is_said(self) -> bool:
        return self.speaker is not None and self.source is Source.MEMORY

    def says_the_same_as(self, other: Meaning) -> bool:
        mine, others = self.is_said, other.is_said
        without = (mine and not others and self.words == other.whole) or (
            others and not mine and other.words == self.whole
        )
        return self.whole == other.whole or without


TOLD = st.builds(
    Meaning,
    st.sampled_from([None, "anna", "ben"]),
    st.lists(st.sampled_from(["anna", "not", "5", "4"]), min_size=1, max_size=2).map(tuple),
    st.sampled_from(Source),
)


@example(
    [
        (Meaning(None, ("anna",), Source.GRAPH), "", False),
        (Meaning(None, ("anna", "anna"), Source.GRAPH), "", False),
        (Meaning("anna", ("anna", "anna"), Source.MEMORY), "", False),
        (Meaning("anna", ("anna",), Source.MEMORY), "", False),
    ]
)
@given(st.lists(st.tuples(TOLD, st.sampled_from(["", "?!", "“", '"']), st.booleans()), max_size=12))
def test_the_first_duplicate_is_kept_with_all_evidence(
    drawn: list[tuple[Meaning, str, bool]],
) -> None:
    kept: list[int] = []
    parts = []
    for place, (one, around, is_upper) in enumerate(drawn):
        said = " ".join(f"{around}{word}{around}" for word in one.words)
        text = said if one.speaker is None else f"{one.speaker}: {said}"
        text = text.upper() if is_upper else text
        parts.append(replace(part(text, one.source, str(place)), id=str(place)))
        same = [other for other in kept if one.whole == drawn[other][0].whole]
        same += [other for other in kept if one.says_the_same_as(drawn[other][0])]
        if not same:
            kept.append(place)
        elif one.is_said and not drawn[same[0]][0].is_said and one.whole != drawn[same[0]][0].whole:
            kept[kept.index(same[0])] = place
    result = distinct(parts)
    assert [one.id for one in result] == [str(place) for place in kept]
    assert sorted(name for one in result for name in one.evidence) == sorted(one.id for one in parts)
    for first in result:
        # Each equals another one in its group: two of three may be equal only through the third.
        told = [drawn[int(name)][0] for name in first.evidence]
        for place, one in enumerate(told):
            others = told[:place] + told[place + 1 :]
            assert not others or any(one.says_the_same_as(other) for other in others)


def test_a_point_before_a_number_is_part_of_it() -> None:
    assert distinct_texts(part("The course takes .5 hours."), part("The course takes 5 hours.")) == [
        "The course takes .5 hours.",
        "The course takes 5 hours.",
    ]


@settings(max_examples=examples(20), deadline=None)
@given(TEXTS, st.integers(2, 6))
def test_a_repeated_message_is_returned_once(text: str, times: int) -> None:
    assume(without_recalled(text) is text)  # recalled blocks are removed from documents
    known = injected([recalled(text, number) for number in range(times)], [text] * times, tokens=10_000)
    assert [compact(one.content) for one in known.parts] == [compact(text)]
    assert known.left_out == 0


@pytest.mark.parametrize("document", ["Anna: I moved to Porto last week.", "anna  I MOVED to Porto, last week!"])
def test_a_document_that_memory_contains_is_returned_once(lake: Lake, models: Models, document: str) -> None:
    write(lake, conversation(*SAID))
    reader = MemoryReader(lake, ACME, models.embedder)
    known = ask(reader, documents=[document, "Porto lies at the Douro."], max_results=20)
    assert known.block.lower().count("porto, last week") + known.block.count("I moved to Porto last week") == 1
    assert "Porto lies at the Douro." in [one.text for one in known.of("document")]


def test_duplicate_documents_are_returned_once() -> None:
    known = injected([], ["Porto lies at the Douro."] * 30, most=50)
    assert [one.id for one in known.parts] == ["document 1"]
    assert known.left_out == 0


def test_a_document_is_returned_if_the_memory_that_contains_it_does_not_fit() -> None:
    said = [recalled(f"Anna: Parcel {number} went to Porto.", number) for number in range(15)]
    known = injected([*said, recalled("The office is shut in winter.", 16)], ["The office is shut in winter."])
    assert "The office is shut in winter." in known.block


# Facts beside their messages.


def remembered(lake: Lake, server: OpenAIServer, *talks: dict[str, Any]) -> MemoryReader:
    """Build memory with a model that finds where people live; return its reader."""
    write(lake, *talks)
    oracle.configure(lake, server)
    make_hours(lake.storage.uri, oracle.models_at(lake))
    reader = MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support")
    assert len(reader.graph.facts_about("Anna")) == 1  # otherwise nothing is tested
    return reader


def test_a_fact_is_dropped_only_for_messages_that_are_chosen() -> None:
    fact = part("Anna lives_in Porto", Source.GRAPH, "m1", "m2")

    def chosen(*parts: Recalled) -> list[str]:
        return [one.text for one in packed(parts)]

    assert chosen(fact) == [fact.text]
    assert fact.text in chosen(fact, part("Anna: Where I live I told you.", Source.MEMORY, "m3"))
    assert fact.text in chosen(fact, part("Anna: I moved to Porto.", Source.MEMORY, "m1"))  # m2 is not chosen
    assert fact.text in chosen(part("Anna moved to Porto.", Source.SUMMARY, "m1", "m2"), fact)
    assert fact.text in chosen(part("Anna lives_in Porto", Source.GRAPH), part("Anna: It rains.", Source.MEMORY, "m1"))
    both = part("Anna: I moved to Porto.", Source.MEMORY, "m1", "m2")
    assert chosen(fact, both) == chosen(both, fact) == [both.text]
    first, second = part("Anna: I moved.", Source.MEMORY, "m1"), part("Anna: To Porto.", Source.MEMORY, "m2")
    assert chosen(fact, first, second) == [first.text, second.text]


def test_a_fact_stays_if_its_message_is_not_chosen() -> None:
    fact = part("Anna lives_in Porto", Source.GRAPH, "m2")
    parts = [part("Anna: It rains.", Source.MEMORY, "m1"), fact, part("Anna: I moved to Porto.", Source.MEMORY, "m2")]
    assert fact in packed(parts, 2)
    assert fact not in packed(parts, 3)


def test_a_fact_and_its_message_are_never_both_dropped() -> None:
    messages = [part(f"Anna: thing {number}", Source.MEMORY, f"m{number}") for number in range(16)]
    fact = part("Anna works_for Initech", Source.GRAPH, "m15")
    documents = [part(f"Paragraph {number}", Source.DOCUMENT) for number in range(16)]
    for first in ([fact, *messages], [*messages[::-1], fact]):
        chosen = packed([*first, *documents], 20, 10_000)
        assert len(chosen) == 20
        assert {fact, messages[15]} & set(chosen)


def test_a_fact_stays_beside_a_cut_message() -> None:
    fact = part("Anna lives_in Porto", Source.GRAPH, "m1")
    message = part("Anna: It rains and it rains.", Source.MEMORY, "m1")
    passage = replace(message, is_excerpt=True)
    assert packed([passage, fact]) == [passage, fact]
    assert packed([message, fact]) == packed([fact, message]) == [message]


def test_a_fact_is_not_repeated_beside_its_message(lake: Lake, server: OpenAIServer) -> None:
    known = ask(remembered(lake, server, conversation("I moved to Porto.")), "Where does Anna live?")
    assert "I moved to Porto." in known.block
    assert known.of("graph") == []


def test_a_fact_is_not_repeated_beside_a_repeated_message(lake: Lake, server: OpenAIServer) -> None:
    again = conversation("I moved to Porto.", at="2024-01-16T08:00", conversation_id="c2")
    known = ask(remembered(lake, server, conversation("I moved to Porto."), again), "Where does Anna live?")
    assert "I moved to Porto" in known.block
    assert known.of("graph") == []
