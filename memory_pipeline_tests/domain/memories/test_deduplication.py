"""Duplicates are merged: which memories are duplicates, which one stays, and no content is lost."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.deduplication import FeatureCache, figures, union
from memory_pipeline.domain.memories.fold import fold_events
from memory_pipeline.domain.memories.record import MAX_CONTENT, MemoryKind, Status, Temperature, sentences
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline_tests.domain.memories.consolidating import (
    as_near_as,
    consolidated,
    day_after,
    did,
    nothing_alike,
    words_alike,
)
from memory_pipeline_tests.domain.memories.histories import do, only, remember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.domain.memories.draft import Similar
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

OFFICE = remember("The office is in Lisbon. It has a garden.", 0)
AGAIN = remember("Our office is in Lisbon. The lift is slow.", 1)
THIRD = remember("We have our office in Lisbon.", 2)
NEAR = as_near_as({(OFFICE.changes.content or "", AGAIN.changes.content or ""): 0.95})


def merges(*events: MemoryEvent, cosine: float = 1.0) -> bool:
    """Return whether two memories with this cosine are merged."""
    one, other = (event.changes.content or "" for event in events)
    done, _ = consolidated(events, similar=as_near_as({(one, other): cosine}))
    return any(event.verb == "MERGE" for event in done.events)


def test_a_kind_without_duplicates_does_not_stop_other_kinds() -> None:
    alone = remember("Anna lives in Porto.", 0, kind="fact")
    twins = [remember(text, n, kind="rule") for n, text in enumerate(("Be brief.", "Be brief at all times."))]
    near = as_near_as({("Be brief.", "Be brief at all times."): 0.95})
    done, _ = consolidated([alone, *twins], similar=near)
    assert any(event.verb == "MERGE" for event in done.events)


# --- duplicates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cosine", "expected"), [(0.95, True), (0.92, True), (0.9199, False), (0.91, False)])
def test_p11_memories_above_the_cosine_threshold_are_merged(cosine: float, expected: bool) -> None:
    assert merges(OFFICE, AGAIN, cosine=cosine) is expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The rent is 900 euros.", "The rent is 950 euros."),
        ("The rent is 900 euros.", "The rent is due."),
        ("It is −5 degrees outside.", "It is 5 degrees there outside."),
        ("Version 1.2 is out.", "Version 12 is out."),
        ("Meet on Monday.", "Meet on Tuesdays."),
        ("Paid in March.", "Paid in May."),
        ("Two keys exist.", "Three keys exist."),
        ("Anna likes tea.", "Anna does not like tea."),
        ("Anna likes tea.", "Anna doesn’t like tea."),
        ("Anna eats meat.", "Anna never eats meat."),
        ("Anna loves cats.", "Anna hates cats."),
        ("Anna likes tea, and not milk.", "Anna likes milk, and not tea."),
        ("Deploy with the tests.", "Deploy without the tests."),
        ("On Fridays we have lunch with Ben.", "On Fridays we have lunch with Tom."),
        ("The office in Porto is open.", "In Oslo the office is open."),
    ],
)
def test_memories_with_different_numbers_dates_negations_or_names_are_not_merged(one: str, other: str) -> None:
    assert not merges(remember(one), remember(other, 1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Meet on Mondays at 9.", "At 9, meet each Monday."),
        ("Never deploy on Fridays.", "Do not deploy on a Friday."),
        ("Don't call Anna's office.", "Never call the office of Anna!"),
        ("No meat. Anna drinks milk.", "Anna drinks milk; no meat."),
        ("We have lunch with Ben Meier.", "Lunch is with Ben."),
    ],
)
def test_memories_with_equal_numbers_dates_and_negations_are_merged(one: str, other: str) -> None:
    assert merges(remember(one), remember(other, 1), cosine=0.93)


def test_different_kinds_are_never_merged() -> None:
    for kind in MemoryKind:
        assert merges(OFFICE, remember(AGAIN.changes.content or "", 1, kind=kind)) is (kind is MemoryKind.FACT)


def test_different_subjects_and_objects_are_never_merged() -> None:
    lives: dict[str, Any] = {"subject": "Anna", "predicate": "stays_in", "object": "Porto"}
    for changes, expected in (
        ({}, True),
        ({"subject": "ANNA", "object": "porto"}, True),
        ({"predicate": "visits"}, True),
        ({"object": "Faro"}, False),
        ({"subject": "Ben"}, False),
    ):
        other = remember("Anna is there.", 1, **{**lives, **changes})
        assert merges(remember("Anna stays there.", **lives), other) is expected


def test_different_users_and_keys_are_never_merged() -> None:
    def likes(hours: float, user: str, key: str) -> MemoryEvent:
        return remember(f"Drinks tea {'.' * int(hours)}", hours, kind="preference", user_id=user, key=key, value="1")

    assert not merges(likes(0, "anna", "drink"), likes(1, "omar", "drink"))
    assert not merges(likes(0, "anna", "drink"), likes(1, "anna", "breakfast"))
    assert not merges(likes(0, "anna", "drink"), remember("Drinks tea", 1, kind="preference"))


@pytest.mark.parametrize("outcome", [False, None])
def test_p15_a_success_is_never_merged_with_a_failure_or_a_fact(outcome: bool | None) -> None:
    won = remember("Asked for a quote by mail.", outcome_success=True)
    other = remember("Asked for quotes by mail.", 1, outcome_success=outcome)
    assert not merges(won, other)
    assert merges(won, remember("Asked for quotes by mail.", 1, outcome_success=True))


def test_a_user_has_one_preference_per_name() -> None:
    tea = remember("Drinks 2 teas.", 0, kind="preference", user_id="anna", key="drink", value='"tea"')
    milk = remember("No coffee, but milk.", 1, kind="preference", user_id="anna", key="else", value='"milk"')
    done, memories = consolidated(
        [tea, milk, do("UPDATE", milk, 2, user_id="anna", key="drink")], similar=nothing_alike
    )
    assert did(done)[0] == ("MERGE", milk.memory_id, tea.memory_id)
    own = memories.newest[milk.memory_id]
    assert (own.content, own.value) == ("No coffee, but milk.", '"milk"')
    assert memories.find(tea.changes) == own
    assert memories.newest[tea.memory_id].value == '"tea"'


def test_memories_with_equal_triples_are_merged_without_vectors() -> None:
    dog: dict[str, Any] = {"subject": "Ben", "predicate": "owns", "object": "dog"}
    has, owns = remember("Ben has a dog.", **dog), remember("A dog lives with Ben.", 1, **dog)
    done, memories = consolidated([has, owns], similar=nothing_alike)
    assert did(done)[0] == ("MERGE", owns.memory_id, has.memory_id)
    assert memories.newest[owns.memory_id].content == "A dog lives with Ben. Ben has a dog."


def test_memories_with_equal_words_are_merged_without_vectors() -> None:
    tea, coffee = remember("Anna likes tea."), remember("Anna likes coffee.", 1)
    done, memories = consolidated(
        [tea, coffee, do("UPDATE", coffee, 2, content="anna likes TEA")], similar=nothing_alike
    )
    assert did(done)[0] == ("MERGE", coffee.memory_id, tea.memory_id)
    assert memories.newest[coffee.memory_id].content == "anna likes TEA"


def test_inactive_and_cold_memories_are_not_merged() -> None:
    assert not merges_of([OFFICE, AGAIN, do("FORGET", OFFICE, 3)])
    assert not merges_of([OFFICE, AGAIN, do("COOL", OFFICE, 3)])
    assert merges_of([OFFICE, AGAIN, do("COOL", OFFICE, 3), do("CONFIRM", OFFICE, 4)])


def merges_of(events: list[MemoryEvent]) -> bool:
    return any(event.verb == "MERGE" for event in consolidated(events, similar=NEAR)[0].events)


def test_only_memories_changed_on_the_day_are_compared() -> None:
    asked: list[tuple[int, int]] = []

    def similar(
        changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
    ) -> list[tuple[str, str, float]]:
        asked.append((len(changed), len(others)))
        return []

    consolidated(fold_events([THIRD, OFFICE]), day_after(1), similar=similar)
    assert asked == []
    consolidated(fold_events([THIRD, OFFICE, remember("Else.", 30)]), day_after(1), similar=similar)
    assert asked == [(1, 3)]
    consolidated(fold_events([THIRD, remember("Else.", 30, kind="plan")]), day_after(1), similar=similar)
    assert asked == [(1, 3)]


# --- results ---------------------------------------------------------------------------------------------------------


def test_p11_the_newer_memory_is_kept_with_maxima_and_sums_of_both() -> None:
    one = [replace(OFFICE, changes=replace(OFFICE.changes, importance=0.9, confidence=0.4, tags=("a", "b")))]
    other = [replace(AGAIN, changes=replace(AGAIN.changes, importance=0.2, confidence=0.8, tags=("b", "c")))]
    one += [do("ACCESS", OFFICE, 3 + n) for n in range(4)]
    other += [do("ACCESS", AGAIN, 2 + n) for n in range(2)]
    done, memories = consolidated([*one, *other], similar=NEAR)
    assert did(done)[0] == ("MERGE", AGAIN.memory_id, OFFICE.memory_id)
    whole, loser = memories.newest[AGAIN.memory_id], memories.newest[OFFICE.memory_id]
    assert (whole.importance, whole.confidence, whole.access_count, whole.tags) == (0.9, 0.8, 6, ("a", "b", "c"))
    assert whole.last_accessed_at == one[-1].event_at
    assert whole.merged_ids == (OFFICE.memory_id,)
    assert (loser.status, loser.temperature, loser.superseded_by) == (
        Status.SUPERSEDED, Temperature.COLD, AGAIN.memory_id,
    )  # fmt: skip
    assert loser.content == OFFICE.changes.content
    assert memories.resolved(OFFICE.memory_id) == AGAIN.memory_id
    assert done.events[0].reason == (
        "“Our office is in Lisbon.” and “The office is in Lisbon.” say the same (cosine 0.9500): "
        "the newer one stays, with what only the older one said"
    )


def test_f7_content_of_only_one_memory_is_kept() -> None:
    _, memories = consolidated([OFFICE, AGAIN], similar=NEAR)
    assert memories.newest[AGAIN.memory_id].content == (
        "Our office is in Lisbon. The lift is slow. The office is in Lisbon. It has a garden."
    )


def test_the_newer_memory_is_decided_by_last_and_first_statement_then_id() -> None:
    said_again = remember(OFFICE.changes.content or "", 5)
    assert did(consolidated([OFFICE, AGAIN, said_again], similar=NEAR)[0])[0] == (
        "MERGE",
        OFFICE.memory_id,
        AGAIN.memory_id,
    )
    both = [OFFICE, AGAIN, do("CONFIRM", OFFICE, 6), do("CONFIRM", AGAIN, 6)]
    assert did(consolidated(both, similar=NEAR)[0])[0] == ("MERGE", AGAIN.memory_id, OFFICE.memory_id)
    at_once = remember(AGAIN.changes.content or "", 0)
    later, earlier = sorted([OFFICE.memory_id, at_once.memory_id], reverse=True)
    assert did(consolidated([OFFICE, at_once], similar=NEAR)[0])[0] == ("MERGE", later, earlier)


def test_a_custom_title_and_hook_are_kept() -> None:
    titled = remember(AGAIN.changes.content or "", 1, title="Office", hook="where it is")
    _, memories = consolidated([OFFICE, titled], similar=NEAR)
    whole = memories.newest[titled.memory_id]
    assert (whole.title, whole.hook) == ("Office", "where it is")
    _, memories = consolidated([OFFICE, AGAIN], similar=NEAR)
    whole = memories.newest[AGAIN.memory_id]
    assert whole.title == "Our office is in Lisbon."
    assert whole.hook == whole.content


def test_memories_whose_union_is_too_long_are_not_merged() -> None:
    long = [remember(word * (MAX_CONTENT // len(word)), hours) for hours, word in enumerate(["tea ", "milk "])]
    assert not merges(*long)


@given(st.permutations(range(3)), st.sampled_from([(0, 1, 2), (2, 0, 1), (1, 2, 0)]))
def test_a_chain_of_three_becomes_one_in_any_order(order: list[int], hours: tuple[int, ...]) -> None:
    texts = ["tea hot now", "tea hot now please", "tea hot now please soon"]  # the first and the last are not similar
    events = [remember(text, hour) for text, hour in zip(texts, hours, strict=True)]
    results = []
    for chosen in (order, [0, 1, 2]):
        done, memories = consolidated([events[place] for place in chosen], similar=_at(0.86))
        results.append((done.events, memories.newest))
        [left] = [memory for memory in memories.newest.values() if memory.is_active]
        assert left.id == events[hours.index(2)].memory_id
        assert set(sentences(left.content)) >= set(texts)
        assert not did(consolidated(memories, similar=_at(0.86))[0])
    assert results[0] == results[1]


def _at(cosine: float) -> Similar:
    """Return a comparison that finds pairs with this cosine of words, and reports one above the threshold."""

    def similar(
        changed: Sequence[DurableMemory], others: Sequence[DurableMemory], least: float
    ) -> list[tuple[str, str, float]]:
        assert least == 0.92
        pairs = words_alike(changed, others, cosine)
        return [(one, other, 0.92 + found / 20) for one, other, found in pairs]

    return similar


def test_a_restatement_updates_the_merged_memory() -> None:
    _, memories = consolidated([OFFICE, AGAIN], similar=NEAR)
    whole = fold_events([remember(OFFICE.changes.content or "", 30)], memories).newest
    assert set(whole) == set(memories.newest)
    assert whole[AGAIN.memory_id].version == memories.newest[AGAIN.memory_id].version + 1


# --- unions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newer", "older", "expected"),
    [
        ("A b.", "A b.", "A b."),
        ("A b.", "b!", "A b."),
        ("Tea is hot.", "TEA is hot! Milk is cold.", "Tea is hot. Milk is cold."),
        ("Tea is hot", "Milk is cold", "Tea is hot\nMilk is cold"),
        ("- tea\n- milk", "- milk\n- bread\n- eggs", "- tea\n- milk\n- bread\n- eggs"),
        ("Tea!", "!!!", "Tea! !!!"),
    ],
)
def test_a_union_has_each_sentence_of_both_once(newer: str, older: str, expected: str) -> None:
    assert union(newer, older) == expected


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_a_union_starts_with_the_newer_content_and_is_idempotent(newer: str, older: str) -> None:
    whole = union(newer, older)
    assert whole.startswith(newer.rstrip())
    assert union(whole, older) == union(union(whole, older), older)


def test_figures_are_words_with_digits() -> None:
    assert figures("On 2024-01-15 at 8:30, v2 cost €1,000.50, once.") == {"2024-01-15", "8:30", "v2", "1,000.50"}


@given(st.text(max_size=40), st.text(max_size=40))
def test_agreement_is_symmetric(one: str, other: str) -> None:
    if not (one.strip() and other.strip()):
        return
    first, second = (replace(only(OFFICE), content=text, match_keys=()) for text in (one, other))
    features = FeatureCache()
    assert features.agree(first, second) is features.agree(second, first)
    assert features.agree(first, first)


class Writing(RuleCurator):
    """A curator that returns the given content, or fails."""

    def __init__(self, written: str | None) -> None:
        self._written = written

    def name(self, scope: Scope) -> str:
        return "a model"

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        assert (newer, older, day.key) == (AGAIN.changes.content, OFFICE.changes.content, "2024-01-15")
        if self._written is None:
            raise ModelError("timeout", "it took too long")
        return self._written


@pytest.mark.parametrize(
    ("written", "content", "reason"),
    [
        ("Lisbon office: garden, slow lift.", "Lisbon office: garden, slow lift.", "and a model has put both into one"),
        (None, "union", "with what only the older one said (the model did not help: timeout)"),
        ("", "union", "(what the model wrote cannot be kept)"),
        ("a\x00b", "union", "(what the model wrote cannot be kept)"),
        ("\ud800", "union", "(what the model wrote cannot be kept)"),
        ("x" * (MAX_CONTENT + 1), "union", "(what the model wrote cannot be kept)"),
    ],
)
def test_the_content_is_written_by_a_model_or_is_the_union(written: str | None, content: str, reason: str) -> None:
    done, memories = consolidated([OFFICE, AGAIN], similar=NEAR, curator=Writing(written))
    expected = union(AGAIN.changes.content or "", OFFICE.changes.content or "") if content == "union" else content
    assert memories.newest[AGAIN.memory_id].content == expected
    assert reason in (done.events[0].reason or "")
    assert not done.troubles


def test_the_result_does_not_depend_on_the_order_of_memories() -> None:
    chance = random.Random(1)
    words = ["tea", "hot", "now", "please", "soon", "milk"]
    events = [remember(" ".join(chance.sample(words, 4)), n) for n in range(12)]
    expected = None
    for mixed in list(permutations(range(3)))[:6]:
        memories = fold_events(events)
        memories.newest = dict(sorted(memories.newest.items(), key=lambda item: hash((item[0], mixed))))
        done, after = consolidated(memories, similar=_at(0.74))
        expected = expected or (done.events, after.newest)
        assert (done.events, after.newest) == expected
    assert expected is not None
    assert len(expected[0]) > 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Always forward invoices from Maria to Tom.", "Always forward invoices from Tom to Maria."),
        ("Always book flights before trains.", "Always book trains before flights."),
        ("Always answer in short sentences.", "Always answer in long sentences."),
    ],
)
def test_instructions_are_merged_only_if_one_contains_the_other(one: str, other: str) -> None:
    first = remember(one, 0, kind="instruction")
    assert not merges(first, remember(other, 1, kind="instruction"))
    assert merges(first, remember(f"Please {one[0].lower()}{one[1:]}", 1, kind="instruction"))
    assert merges(remember(one, 0), remember(other, 1))
