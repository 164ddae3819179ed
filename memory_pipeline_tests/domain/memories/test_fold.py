"""The fold of events: results in any order of arrival, and outdated events."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.fold import Memories, fold_events
from memory_pipeline.domain.memories.record import DECAY_RATE, MAX_SOURCES, MemoryClass, MemoryKind, Status, Temperature
from memory_pipeline_tests.domain.memories.histories import at, do, histories, newest, only, remember

TEA = remember("Anna likes tea.")


# --- order and parts -------------------------------------------------------------------------------------------------


@given(histories(), st.randoms(use_true_random=False))
def test_the_fold_ignores_order_and_repetition(events: list[MemoryEvent], chance: random.Random) -> None:
    mixed = [*events, *chance.choices(events, k=5)] if events else []
    chance.shuffle(mixed)
    assert fold_events(mixed) == fold_events(events)


@given(histories(), st.data())
def test_a_fold_continues_from_a_previous_result(events: list[MemoryEvent], data: st.DataObject) -> None:
    ordered = sorted({event.id: event for event in events}.values(), key=lambda event: event.order)
    cut = data.draw(st.integers(0, len(ordered)))
    before = fold_events(ordered[:cut])
    untouched = before.copy()
    assert fold_events(ordered[cut:], before) == fold_events(events)
    assert before == untouched


@given(histories())
def test_invariants_of_all_memories(events: list[MemoryEvent]) -> None:
    ordered = sorted(events, key=lambda event: event.order)
    memories = fold_events(ordered)
    assert memories.matches == {key: own for own, each in memories.newest.items() for key in each.match_keys}
    for own, memory in memories.newest.items():
        versions = memories.history(own)
        assert [each.version for each in versions] == list(range(1, len(versions) + 1))
        assert {each.id for each in versions} == {own}
        assert 0 <= memory.importance <= 1
        assert 0 <= memory.confidence <= 1
        assert memory.created_at <= memory.updated_at
        assert memory.is_active or memory.temperature is Temperature.COLD
        assert memory.superseded_by is None or (not memory.is_active and memory.superseded_by in memories.newest)
        assert memory.superseded_by != own
        assert memories.resolved(own) in memories.newest
        assert memory.outcome_success is None or memory.memory_class is MemoryClass.EXPERIENTIAL
        assert memories.resolved(memories.resolved(own)) == memories.resolved(own)
        for earlier, later in pairwise(versions):
            assert earlier.changed_at <= later.changed_at
    # No memory or version is lost.
    for end in range(len(ordered)):
        before = fold_events(ordered[:end])
        assert before.newest.keys() <= memories.newest.keys()
        assert all(memories.history(own)[: len(each)] == each for own, each in before.earlier.items())


@given(histories())
def test_a_memory_is_found_under_the_returned_id(events: list[MemoryEvent]) -> None:
    memories = Memories()
    for event in sorted(events, key=lambda event: event.order):
        if event.verb is MemoryVerb.REMEMBER:
            own = memories.memory_id_for(event)
            memories = fold_events([event], memories)
            known = memories.newest[own]
            assert known.is_recalled
            assert event.id in known.source_ids or set(event.evidence) & set(known.source_ids)
            assert memories.find(event.changes) == known
        else:
            memories = fold_events([event], memories)


def test_p6_the_default_decay_rate_applies() -> None:
    assert only(TEA).decay_rate == DECAY_RATE
    assert only(remember("Anna likes tea.", decay_rate=0.25)).decay_rate == 0.25


# --- match on save (F11) ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["Anna likes tea.", "anna likes  TEA", "Anna likes the tea", "Ánna — likes tea!"])
def test_f11_a_repeated_statement_is_the_second_version_of_one_memory(again: str) -> None:
    memory = only(TEA, remember(again, 30, importance=0.9, tags=["drinks"]))
    assert (memory.id, memory.version, memory.content) == (TEA.memory_id, 2, again)
    assert (memory.importance, memory.tags, memory.created_at, memory.updated_at) == (0.9, ("drinks",), at(0), at(30))


@pytest.mark.parametrize(
    "other",
    [
        remember("Anna likes coffee.", 1),
        remember("Anna likes tea.", 1, kind="instruction"),
        remember("tea likes Anna.", 1),
        remember("Anna likes tea.", 1, user_id="anna", key="drink", value='"tea"', kind="preference"),
    ],
)
def test_f11_a_different_statement_is_another_memory(other: MemoryEvent) -> None:
    assert [memory.version for memory in newest(TEA, other).values()] == [1, 1]


def test_conversations_and_messages_are_counted_once_each() -> None:
    said = [
        remember("Anna likes tea.", hours, evidence=[f"m{message}"], conversation=f"c{conversation}")
        for hours, message, conversation in [(0, 1, 1), (1, 2, 1), (2, 3, 2), (3, 3, 2)]
    ]
    memory = only(*said)
    assert memory.source_ids == ("m1", "m2", "m3")
    assert memory.conversation_ids == ("c1", "c2")


def test_a_memory_lists_its_last_sources() -> None:
    said = [
        remember("Anna likes tea.", hours, evidence=[f"m{hours}"], conversation=f"c{hours}") for hours in range(150)
    ]
    memory = only(*said)
    assert memory.version == 150
    assert memory.source_ids == tuple(f"m{hours}" for hours in range(150 - MAX_SOURCES, 150))
    assert memory.conversation_ids == tuple(f"c{hours}" for hours in range(150 - MAX_SOURCES, 150))


def test_a_preference_is_identified_by_user_and_name() -> None:
    def prefers(value: str, hours: float, user: str = "anna") -> MemoryEvent:
        return remember(f"Drinks {value}.", hours, kind="preference", user_id=user, key="drink", value=f'"{value}"')

    memories = newest(prefers("tea", 0), prefers("tea", 1, "omar"), prefers("coffee", 2))
    assert sorted((each.user_id, each.value, each.version) for each in memories.values()) == [
        ("anna", '"coffee"', 2), ("omar", '"tea"', 1)
    ]  # fmt: skip
    memory = only(prefers("tea", 0), do("FORGET", prefers("tea", 0), 1), prefers("milk", 2))
    assert (memory.value, memory.content, memory.status) == ('"milk"', "Drinks milk.", Status.ACTIVE)


def test_a_renamed_preference_is_identified_by_its_new_name() -> None:
    first = remember("Drinks tea.", kind="preference", user_id="anna", key="drink", value='"tea"')
    again = remember("Drinks milk.", 2, kind="preference", user_id="anna", key="drink", value='"milk"')
    memories = newest(first, do("UPDATE", first, 1, key="hot drink"), again)
    assert sorted((each.key, each.value) for each in memories.values()) == [("drink", '"milk"'), ("hot drink", '"tea"')]


# --- events of agents ------------------------------------------------------------------------------------------------


def test_p5_three_updates_make_version_four_and_a_history_of_four() -> None:
    updates = [do("UPDATE", TEA, hours, content=f"Anna likes {drink}.") for hours, drink in enumerate("abc", start=1)]
    memories = fold_events([TEA, *updates])
    history = memories.history(TEA.memory_id)
    assert [each.version for each in history] == [1, 2, 3, 4]
    assert [each.content for each in history] == [f"Anna likes {drink}." for drink in ("tea", "a", "b", "c")]
    assert history[-1] is memories.newest[TEA.memory_id]
    assert [each.title for each in history[1:]] == [f"Anna likes {drink}." for drink in "abc"]


@pytest.mark.parametrize(
    ("verbs", "importance"),
    [
        (["BOOST"], 0.6), (["REDUCE"], 0.4), (["BOOST"] * 3, 0.8), (["BOOST"] * 7, 1.0), (["REDUCE"] * 7, 0.0),
        (["BOOST"] * 6 + ["REDUCE"], 0.9),
    ],
)  # fmt: skip
def test_p5_importance_changes_by_a_tenth_within_0_and_1(verbs: list[str], importance: float) -> None:
    memory = only(TEA, *(do(verb, TEA, hours) for hours, verb in enumerate(verbs, start=1)))
    assert (memory.importance, memory.version) == (importance, 1)


def test_f1_a_confirmed_observation_becomes_a_fact_and_stays_the_same_memory() -> None:
    seen = remember("Anna likes tea.", kind="observation", confidence=0.5)
    memory = only(seen, do("CONFIRM", seen, 5))
    assert (memory.id, memory.kind, memory.version, memory.confidence) == (seen.memory_id, MemoryKind.FACT, 2, 0.6)
    # It still matches the keys of both kinds.
    later = [remember("Anna likes tea.", 6, kind=kind) for kind in ("observation", "fact")]
    memory = only(seen, do("CONFIRM", seen, 5), *later)
    assert (memory.id, memory.kind, memory.version) == (seen.memory_id, MemoryKind.FACT, 4)


def test_a_confirmation_reactivates_a_memory() -> None:
    memory = only(TEA, do("COOL", TEA, 12, reason="old"), do("CONFIRM", TEA, 20))
    assert (memory.temperature, memory.status_reason, memory.version) == (Temperature.WARM, None, 1)
    assert memory.changed_at == memory.updated_at == at(20)
    memory = only(TEA, do("CONFIRM", TEA, 20))
    assert (memory.changed_at, memory.updated_at, memory.confidence) == (at(0), at(20), 1.0)


def test_an_updated_memory_matches_only_its_new_words() -> None:
    update = do("UPDATE", TEA, 1, content="Anna likes coffee.")
    again = remember("Anna likes coffee.", 2), remember("Anna likes tea.", 30)
    memories = newest(TEA, update, *again)
    assert {each.content: each.version for each in memories.values()} == {
        "Anna likes coffee.": 3, "Anna likes tea.": 1
    }  # fmt: skip


def test_a_new_text_without_a_triple_clears_the_triple() -> None:
    home = remember("Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto")
    kept = only(home, do("UPDATE", home, 1, importance=0.9))
    assert (kept.subject, kept.object) == ("Anna", "Porto")
    gone = only(home, do("UPDATE", home, 1, content="Anna likes tea."))
    assert (gone.subject, gone.predicate, gone.object) == (None, None, None)


def test_a_revoked_memory_stays_in_the_history_until_it_is_restated() -> None:
    memories = fold_events([TEA, do("FORGET", TEA, 1, reason="asked to")])
    memory = memories.newest[TEA.memory_id]
    assert (memory.status, memory.temperature, memory.status_reason) == (
        Status.DEPRECATED, Temperature.COLD, "asked to"
    )  # fmt: skip
    assert not memory.is_recalled
    again = only(TEA, do("FORGET", TEA, 1), remember("Anna likes tea.", 2))
    assert (again.status, again.temperature, again.version) == (Status.ACTIVE, Temperature.WARM, 2)


def test_accesses_are_counted() -> None:
    memory = only(TEA, do("ACCESS", TEA, 1), do("ACCESS", TEA, 5))
    assert (memory.access_count, memory.last_accessed_at, memory.last_used_at) == (2, at(5), at(5))
    assert (memory.version, memory.updated_at) == (1, at(0))


def test_events_of_unknown_memories_are_ignored_and_reported() -> None:
    stray = do("BOOST", remember("never said"), 1)
    memories = fold_events([TEA, stray])
    assert memories.newest == newest(TEA)
    assert memories.ignored == {stray.id: f"{stray.memory_id} is not known"}
    assert memories.resolved(stray.memory_id) == stray.memory_id


# --- one hour, one id ------------------------------------------------------------------------------------------------


def test_a_restatement_in_the_hour_of_an_update_is_another_memory() -> None:
    update, again = do("UPDATE", TEA, 0.1, content="Anna likes coffee."), remember("Anna likes tea.", 0.2)
    assert again.memory_id == TEA.memory_id
    memories = fold_events([TEA, update, again])
    assert sorted(each.content for each in memories.newest.values()) == ["Anna likes coffee.", "Anna likes tea."]
    own = fold_events([TEA, update]).memory_id_for(again)
    assert own != TEA.memory_id
    assert memories.newest[own].content == "Anna likes tea."
    assert memories.newest[TEA.memory_id].content == "Anna likes coffee."
    third = fold_events([TEA, update, again, remember("Anna likes tea.", 0.3)])
    assert third.newest[own].version == 2


def test_a_restatement_in_the_hour_of_a_revocation_is_a_new_version() -> None:
    changed = do("UPDATE", TEA, 0.1, content="Anna likes coffee."), do("FORGET", TEA, 0.2)
    memory = only(TEA, *changed, remember("Anna likes tea.", 0.3))
    assert (memory.id, memory.version, memory.content, memory.is_active) == (TEA.memory_id, 3, "Anna likes tea.", True)
    assert memory.created_at == at(0)


def test_an_id_resolves_to_the_memory_that_a_late_event_created() -> None:
    """The late event creates the memory. Events of the previous memory apply to that one."""
    late, boost = remember("Anna likes tea.", -5), do("BOOST", TEA, 1)
    memory = only(TEA, boost, late)
    assert (memory.id, memory.importance, memory.version) == (late.memory_id, 0.6, 2)
    assert memory.id != TEA.memory_id
    assert fold_events([TEA, late]).resolved(TEA.memory_id) == late.memory_id


# --- consolidation ---------------------------------------------------------------------------------------------------

MILK = remember("Anna likes milk, and tea.", 2, importance=0.8, tags=["b"], evidence=["m2"], conversation="c2")
MERGED = do("MERGE", MILK, 12, other=TEA, content="Anna likes milk and tea.", reason="the same", turn=2)


def test_p11_a_merge_sums_counts_and_keeps_the_loser_in_the_history() -> None:
    used = [do("ACCESS", TEA, 3 + n / 10) for n in range(4)] + [do("ACCESS", MILK, 4 + n / 10) for n in range(2)]
    tea = replace(TEA, evidence=("m1",), conversation_id="c1")
    memories = fold_events([tea, MILK, *used, MERGED])
    whole, lost = memories.newest[MILK.memory_id], memories.newest[TEA.memory_id]
    assert (whole.access_count, whole.last_accessed_at, whole.importance) == (6, at(4.1), 0.8)
    assert (whole.content, whole.version, whole.merged_ids) == ("Anna likes milk and tea.", 2, (TEA.memory_id,))
    assert (whole.source_ids, whole.conversation_ids, whole.tags) == (("m1", "m2"), ("c1", "c2"), ("b",))
    assert (lost.status, lost.temperature, lost.superseded_by, lost.content) == (
        Status.SUPERSEDED, Temperature.COLD, MILK.memory_id, "Anna likes tea."
    )  # fmt: skip
    assert memories.resolved(TEA.memory_id) == MILK.memory_id


@pytest.mark.parametrize(
    "later",
    [do("BOOST", TEA, 20, amount=0.2), remember("Anna likes tea!", 20), remember("Anna likes milk and tea!", 20)],
    ids=["by its old id", "by its old words", "by the words of both"],
)
def test_events_of_a_merged_memory_apply_to_the_one_it_was_merged_into(later: MemoryEvent) -> None:
    memories = newest(TEA, MILK, MERGED, later)
    assert len(memories) == 2
    assert memories[MILK.memory_id] != newest(TEA, MILK, MERGED)[MILK.memory_id]
    assert memories[TEA.memory_id] == newest(TEA, MILK, MERGED)[TEA.memory_id]


def test_successive_merges_end_in_one_memory() -> None:
    figs = remember("Anna likes figs.", 3)
    for second in (
        do("MERGE", figs, 12, other=MILK, turn=2, place=1),
        do("MERGE", figs, 12, other=TEA, turn=2, place=1),
    ):
        memories = fold_events([TEA, MILK, figs, MERGED, second])
        assert [each.id for each in memories.newest.values() if each.is_active] == [figs.memory_id]
        assert memories.newest[figs.memory_id].merged_ids == (TEA.memory_id, MILK.memory_id)
        assert memories.resolved(TEA.memory_id) == memories.resolved(MILK.memory_id) == figs.memory_id


def test_a_merge_with_itself_has_no_effect() -> None:
    back = do("MERGE", TEA, 12, other=MILK, turn=2, place=1)
    memories = fold_events([TEA, MILK, MERGED, back])
    assert memories.newest == newest(TEA, MILK, MERGED)
    assert memories.ignored == {back.id: f"{MILK.memory_id} is {MILK.memory_id} already"}


def test_f9_the_loser_names_its_winner_and_becomes_cold() -> None:
    loser = do("SUPERSEDE", TEA, 12, other=MILK, reason="Anna changed her mind")
    memory = newest(TEA, MILK, loser)[TEA.memory_id]
    assert (memory.status, memory.temperature, memory.superseded_by) == (
        Status.SUPERSEDED, Temperature.COLD, MILK.memory_id
    )  # fmt: skip
    assert memory.status_reason == "Anna changed her mind"
    # It remains a separate memory, and is active again once restated.
    assert fold_events([TEA, MILK, loser]).resolved(TEA.memory_id) == TEA.memory_id
    again = newest(TEA, MILK, loser, remember("Anna likes tea.", 20))[TEA.memory_id]
    assert (again.status, again.superseded_by, again.version) == (Status.ACTIVE, None, 2)


@pytest.mark.parametrize("verb", ["PROMOTE", "MERGE", "SUPERSEDE", "COOL", "ARCHIVE", "HEAT"])
def test_a_late_revocation_overrides_consolidation(verb: str) -> None:
    seen = remember("Anna likes tea.", kind="observation")
    night = do(verb, seen, 12, other=MILK, reason="as it stood")
    revoked = [seen, MILK, do("FORGET", seen, 5)]
    assert newest(*revoked, night) == newest(*revoked)


@pytest.mark.parametrize("verb", ["MERGE", "SUPERSEDE"])
def test_no_memory_is_replaced_by_an_unknown_one(verb: str) -> None:
    """The conversation that stated it was erased, and its days are not consolidated again yet."""
    night = do(verb, TEA, 12, other=MILK, reason="as it stood")
    memories = fold_events([TEA, night])
    assert memories.newest == newest(TEA)
    assert night.id in memories.ignored


def test_no_memory_is_merged_into_a_revoked_one() -> None:
    memories = newest(TEA, MILK, do("FORGET", MILK, 5), MERGED)
    assert memories[TEA.memory_id].is_active


def test_consolidation_verbs_set_temperature_and_status() -> None:
    temperatures = [
        only(TEA, *(do(verb, TEA, 12 + place, reason="so") for place, verb in enumerate(verbs))).temperature
        for verbs in (["HEAT"], ["HEAT", "CHILL"], ["COOL"], ["COOL", "HEAT"], ["COOL", "CHILL"])
    ]
    hot, warm, cold = Temperature.HOT, Temperature.WARM, Temperature.COLD
    assert temperatures == [hot, warm, cold, cold, cold]
    kept = only(TEA, do("KEEP", TEA, 12))
    assert (kept.reviewed_at, kept.updated_at, kept.changed_at) == (at(12), at(0), at(0))
    archived = only(TEA, do("ARCHIVE", TEA, 12, reason="faded"))
    assert (archived.status, archived.status_reason, archived.changed_at) == (Status.ARCHIVED, "faded", at(12))
    assert only(TEA, do("ARCHIVE", TEA, 12), remember("Anna likes tea.", 13)).is_recalled


def test_consolidation_precedes_events_at_the_end_of_its_day() -> None:
    night, said = do("COOL", TEA, 12, reason="old", turn=4), remember("Anna likes tea.", 12)
    assert only(TEA, night, said).temperature is Temperature.WARM


def test_only_observations_are_promoted() -> None:
    assert only(TEA, do("PROMOTE", TEA, 12, reason="said thrice")) == only(TEA)
    seen = remember("Anna likes tea.", kind="observation")
    fact = only(seen, do("PROMOTE", seen, 12, reason="said thrice"))
    assert (fact.kind, fact.id, fact.version, fact.updated_at, fact.changed_at) == (
        MemoryKind.FACT, seen.memory_id, 2, at(0), at(12)
    )  # fmt: skip


# --- experiences -----------------------------------------------------------------------------------------------------


def test_p15_experiences_with_the_same_words_and_other_outcomes_are_other_memories() -> None:
    won, lost, open_ = (remember("Asked for a quote by mail.", hours, outcome_success=outcome)
                        for hours, outcome in enumerate([True, False, None]))  # fmt: skip
    again = remember("asked for a quote by mail", 3, outcome_success=False)
    memories = fold_events([won, lost, open_, again])
    found = {memory.outcome_success: memory for memory in memories.newest.values()}
    assert {outcome: memory.version for outcome, memory in found.items()} == {True: 1, False: 2, None: 1}
    assert [found[outcome].memory_class for outcome in (True, False, None)] == [
        MemoryClass.EXPERIENTIAL, MemoryClass.EXPERIENTIAL, MemoryClass.FACTUAL,
    ]  # fmt: skip


def test_p15_an_update_sets_the_outcome_and_a_fact_has_none() -> None:
    tried = remember("Asked for a quote by mail.", memory_class="experiential")
    lost = do("UPDATE", tried, 1, outcome_success=False)
    memory = only(tried, lost, remember("Asked for a quote by mail.", 2, outcome_success=False))
    assert (memory.version, memory.outcome_success) == (3, False)
    memory = only(tried, lost, do("UPDATE", tried, 2, memory_class="factual"))
    assert (memory.version, memory.outcome_success, memory.memory_class) == (3, None, MemoryClass.FACTUAL)


# --- contexts --------------------------------------------------------------------------------------------------------


def test_p4_entries_of_a_context_are_matched_by_key_or_words_within_it() -> None:
    told = [
        remember("Pause first.", 0, context="board", key="retry"),
        remember("Never pause.", 1, context="board", key="retry"),
        remember("Pause first.", 2, context="notes", key="retry"),
        remember("Pause first.", 3, context="board"),
        remember("pause FIRST", 4, context="board"),
        remember("Pause first.", 5),
    ]
    found = [(one.context, one.key, one.content, one.version) for one in newest(*told).values()]
    assert found == [
        ("board", "retry", "Never pause.", 2), ("notes", "retry", "Pause first.", 1), ("board", None, "pause FIRST", 2),
        (None, None, "Pause first.", 1),
    ]  # fmt: skip


def test_p4_a_deactivated_memory_comes_back_unless_it_was_revoked() -> None:
    away = do("DEACTIVATE", TEA, 1, reason="the board is archived")
    memory = only(TEA, away)
    assert (memory.status, memory.temperature, memory.version) == (Status.ARCHIVED, Temperature.COLD, 1)
    memory = only(TEA, away, do("REACTIVATE", TEA, 2))
    assert (memory.status, memory.temperature, memory.version) == (Status.ACTIVE, Temperature.WARM, 1)
    revoked = only(TEA, away, do("FORGET", TEA, 2), do("REACTIVATE", TEA, 3))
    assert revoked.status is Status.DEPRECATED
    assert only(TEA, do("FORGET", TEA, 1), do("DEACTIVATE", TEA, 2)).status is Status.DEPRECATED
