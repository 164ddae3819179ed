"""Writes of durable memories: durable and visible at once, or rejected with nothing written."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.memories.record import MemoryKind, Status
from memory_pipeline.domain.periods import Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, START, conversation, run
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from memory_pipeline.memories import DurableMemories

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
SALES = Scope("acme", "sales")
NOBODY = "memory:2024-01-15T12:" + "0" * 32


@pytest.fixture
def writer(root: str) -> MemoryWriter:
    return MemoryWriter(Lake(root), ACME, START)


@pytest.fixture
def memories(root: str) -> DurableMemories:
    """Memories of a reader that was opened before the first write."""
    return memories_of(root)


def memories_of(root: str, scope: Scope = ACME) -> DurableMemories:
    return MemoryReader(Lake(root), scope, default_models().embedder).memories


def after(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def written(root: str) -> int:
    """Return the number of files in the journal."""
    return len(list(Path(root, "journal").rglob("*.jsonl")))


def configure(root: str, text: str) -> None:
    Path(root, "config").mkdir(parents=True, exist_ok=True)
    Path(root, "config", "workspaces.yaml").write_text(text, encoding="utf-8")


# --- remembering -----------------------------------------------------------------------------------------------------


def test_a_remembered_text_is_visible_at_once_with_all_attributes(
    root: str, writer: MemoryWriter, memories: DurableMemories
) -> None:
    made = writer.remember(
        "Anna lives in Porto.", "observation", title="Anna's home", hook="Anna: Porto", subject="Anna",
        predicate="livesIn", object="Porto", importance=0.8, confidence=0.9, decay_rate=0.01, is_point_in_time=True,
        tags=["home", "anna"], editor="clerk", now=NOON,
    )  # fmt: skip
    memory = memories.get(made)
    assert memory is not None
    assert (memory.id, memory.version, memory.kind, memory.content) == (
        made, 1, MemoryKind.OBSERVATION, "Anna lives in Porto.",
    )  # fmt: skip
    assert (memory.title, memory.hook) == ("Anna's home", "Anna: Porto")
    assert (memory.subject, memory.predicate, memory.object) == ("Anna", "lives_in", "Porto")
    assert (memory.importance, memory.confidence, memory.decay_rate) == (0.8, 0.9, 0.01)
    assert (memory.is_point_in_time, memory.tags, memory.editor) == (True, ("anna", "home"), "clerk")
    assert memory.created_at == memory.updated_at == NOON
    assert written(root) == 1


@pytest.mark.parametrize("content", ["Alice likes tea.", "Alice's birthday is 3 May.", "Alice doesn't eat meat."])
def test_the_name_that_a_content_begins_with_is_its_subject(
    writer: MemoryWriter, memories: DurableMemories, content: str
) -> None:
    made = writer.remember(content, now=NOON)
    writer.remember("Bob likes tea.", now=NOON)
    assert [memory.id for memory in memories.about("alice")] == [made]
    writer.remember("Tea is what she likes.", subject="Alice", now=after(1))
    assert len(memories.about("Alice")) == 2, "a subject may stand alone"
    writer.remember(content, now=after(2))
    assert [memory.version for memory in memories.about("Alice")] == [2, 1]


@pytest.mark.parametrize(
    ("content", "kind", "expected"),
    [
        ("Alice's birthday is 3 May 1990.", "fact", ("Alice", "born_on", "3 May 1990")),
        ("Alice has asthma.", "fact", ("Alice", "has", "asthma")),
        ("Ben is Alice's brother.", "fact", ("Ben", None, None)),
        ("I live in Porto.", "fact", (None, None, None)),  # of an agent without users
        ("Alice lives in Porto. She likes it.", "fact", ("Alice", None, None)),
        ("Alice lives in Porto.", "observation", ("Alice", None, None)),
    ],
)
def test_a_fact_in_plain_words_has_its_terms(
    writer: MemoryWriter, memories: DurableMemories, content: str, kind: str, expected: tuple[str | None, ...]
) -> None:
    memory = memories.get(writer.remember(content, kind, now=NOON))
    assert memory is not None
    assert (memory.subject, memory.predicate, memory.object) == expected


def test_a_subject_that_was_given_stays_when_the_same_is_said_again(
    writer: MemoryWriter, memories: DurableMemories
) -> None:
    made = writer.remember("Alice likes tea.", subject="Alice Kim", predicate="likes", object="tea", now=NOON)
    assert writer.remember("Alice likes tea!", now=after(1)) == made
    [memory] = memories.about("Alice Kim")
    assert (memory.version, memory.predicate, memory.object) == (2, "likes", "tea")


def test_the_defaults_are_those_of_the_formula(writer: MemoryWriter, memories: DurableMemories) -> None:
    memory = memories.get(writer.remember("Anna is allergic to nuts.", now=NOON))
    assert memory is not None
    assert (memory.importance, memory.confidence, memory.decay_rate) == (0.5, 1.0, 0.0)
    assert (memory.kind, memory.title, memory.access_count) == (MemoryKind.FACT, "Anna is allergic to nuts.", 0)


def test_the_time_of_a_change_defaults_to_the_clock(root: str) -> None:
    before = datetime.now(UTC)
    made = MemoryWriter(Lake(root), ACME).remember("Anna is allergic to nuts.")
    memory = memories_of(root).get(made)
    assert memory is not None
    assert before <= memory.created_at <= datetime.now(UTC)


def test_equal_texts_are_one_memory_and_similar_ones_are_not(writer: MemoryWriter, memories: DurableMemories) -> None:
    tea = writer.remember("Anna likes tea.", now=NOON)
    assert writer.remember("anna likes the TEA", now=after(200)) == tea
    coffee = writer.remember("Anna likes coffee.", now=after(201))
    as_rule = writer.remember("Anna likes tea.", "rule", now=after(202))
    assert len({tea, coffee, as_rule}) == 3
    found = memories.get(tea)
    assert found is not None
    assert found.version == 2
    assert len(memories.list()) == 3


def test_three_updates_make_version_four(writer: MemoryWriter, memories: DurableMemories) -> None:
    made = writer.remember("The rent is 900 euros.", now=NOON)
    for place, rent in enumerate((950, 980, 1_000), start=1):
        assert writer.update(made, f"The rent is {rent} euros.", editor=f"clerk {place}", now=after(place)) == made
    history = memories.history(made)
    assert [version.version for version in history] == [1, 2, 3, 4]
    assert [version.editor for version in history] == ["agent", "clerk 1", "clerk 2", "clerk 3"]
    assert [memory.content for memory in memories.list()] == ["The rent is 1000 euros."]


def test_an_update_changes_only_the_given_attributes(writer: MemoryWriter, memories: DurableMemories) -> None:
    made = writer.remember("Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto", now=NOON)
    writer.update(f"{made}#1", importance=0.9, tags=["home"], reason="it matters", now=after(1))
    memory = memories.get(made)
    assert memory is not None
    assert (memory.content, memory.object, memory.importance, memory.tags) == (
        "Anna lives in Porto.", "Porto", 0.9, ("home",),
    )  # fmt: skip
    writer.update(made, "Anna has left.", now=after(2))
    memory = memories.get(made)
    assert memory is not None
    assert (memory.subject, memory.predicate, memory.object) == ("Anna", None, None), "the new text begins with her"
    writer.update(made, "We have moved.", now=after(3))
    memory = memories.get(made)
    assert memory is not None
    assert memory.subject is None
    assert [event.reason for event in memories.explain(made)] == [None, "it matters", None, None]


@pytest.mark.parametrize(("change", "expected"), [("boost", 0.6), ("reduce", 0.4)])
def test_importance_goes_up_and_down_within_its_bounds(
    writer: MemoryWriter, memories: DurableMemories, change: str, expected: float
) -> None:
    made = writer.remember("Anna likes tea.", now=NOON)
    assert getattr(writer, change)(made, now=after(1)) == made
    memory = memories.get(made)
    assert memory is not None
    assert memory.importance == expected
    for _ in range(12):
        getattr(writer, change)(made, 0.25, now=after(2))
    memory = memories.get(made)
    assert memory is not None
    assert memory.importance == (1.0 if change == "boost" else 0.0)
    assert memory.version == 1


def test_a_confirmed_observation_is_a_fact_and_the_same_memory(writer: MemoryWriter, memories: DurableMemories) -> None:
    made = writer.remember("Anna seems to like tea.", "observation", confidence=0.5, now=NOON)
    assert writer.confirm(made, reason="she said so", now=after(1)) == made
    memory = memories.get(made)
    assert memory is not None
    assert (memory.kind, memory.confidence, memory.updated_at) == (MemoryKind.FACT, 0.6, after(1))


def test_each_use_counts_once_per_call(writer: MemoryWriter, memories: DurableMemories, root: str) -> None:
    tea, figs = (writer.remember(f"Anna likes {what}.", now=NOON) for what in ("tea", "figs"))
    files = written(root)
    assert writer.touch([tea, figs, tea, f"{tea}#1"], now=after(1)) == 2
    assert writer.touch([tea], now=after(2)) == 1
    assert writer.touch([], now=after(3)) == 0
    assert written(root) == files + 2
    found = {memory.id: memory for memory in memories.list()}
    assert {one: memory.access_count for one, memory in found.items()} == {tea: 2, figs: 1}
    assert found[tea].last_accessed_at == after(2)


# --- forgetting ------------------------------------------------------------------------------------------------------


def test_a_revoked_memory_stays_in_history_and_is_reactivated_when_said_again(
    writer: MemoryWriter, memories: DurableMemories
) -> None:
    made = writer.remember("Anna likes tea.", now=NOON)
    assert writer.forget(made, reason="she does not", now=after(1)) == 1
    assert memories.list() == []
    memory = memories.get(made)
    assert memory is not None
    assert (memory.status, memory.status_reason) == (Status.DEPRECATED, "she does not")
    assert writer.forget(made, now=after(2)) == 0, "it is revoked already"
    assert writer.remember("Anna likes tea.", now=after(3)) == made
    assert [memory.id for memory in memories.list()] == [made]


@pytest.fixture
def several(writer: MemoryWriter) -> dict[str, str]:
    """Memories that differ in each filter."""
    told: dict[str, dict[str, object]] = {
        "porto": {"content": "Anna lives in Porto.", "subject": "Anna", "predicate": "lives_in", "object": "Porto"},
        "tea": {"content": "Anna likes tea.", "subject": "Anna", "predicate": "likes", "object": "tea"},
        "rome": {"content": "Bo lives in Rome.", "subject": "Bo", "predicate": "lives_in", "object": "Rome"},
        "rule": {"content": "Never shout.", "kind": "rule", "tags": ["manners", "house"]},
    }
    made = writer.change_memories([{"memory": "REMEMBER", **said} for said in told.values()], now=NOON)
    found = dict(zip(told, made, strict=True))
    found["theme"] = writer.set_preference("u1", "theme", "dark", now=NOON)
    return found


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        ({"subject": "ANNA"}, ["porto", "tea"]),
        ({"subject": "anna", "predicate": "livesIn"}, ["porto"]),
        ({"predicate": "lives_in"}, ["porto", "rome"]),
        ({"object": "rome"}, ["rome"]),
        ({"kind": "rule"}, ["rule"]),
        ({"tag": "house"}, ["rule"]),
        ({"user_id": "u1"}, ["theme"]),
        ({"key": "theme", "user_id": "u2"}, []),
        ({"subject": "Nobody"}, []),
    ],
)
def test_a_filter_revokes_and_counts_all_matches(
    writer: MemoryWriter, memories: DurableMemories, several: dict[str, str], filters: dict[str, Any], gone: list[str]
) -> None:
    assert writer.forget(**filters, now=after(1)) == len(gone)
    assert {memory.id for memory in memories.list()} == {made for name, made in several.items() if name not in gone}
    assert writer.forget(**filters, now=after(2)) == 0


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({}, "forget takes an id, or a filter of kind, subject, .*; neither is given"),
        ({"id": NOBODY, "tag": "house"}, "both are given"),
        ({"kind": "facts"}, "kind 'facts' is unknown; accepted: fact, rule"),
        ({"subject": ""}, "subject '' is not accepted"),
        ({"tag": "\ud800"}, "tag .* is not accepted"),
        ({"tag": ["house"]}, "tag .* is not accepted"),
        ({"predicate": 3}, "predicate 3 is not accepted"),
        ({"id": NOBODY}, "is unknown to this agent"),
    ],
)
def test_an_invalid_filter_revokes_nothing(
    root: str, writer: MemoryWriter, several: dict[str, str], filters: dict[str, Any], says: str
) -> None:
    files = written(root)
    with pytest.raises(InputError, match=says):
        writer.forget(**filters, now=after(1))
    assert written(root) == files


# --- preferences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [None, False, 0, 1.5, "dark", "", [], {"a": [1, {"b": None}]}, "\x00\x1b[2J\x7f\x85\n", "größe 🦆"]
)
def test_any_json_can_be_a_preference(writer: MemoryWriter, memories: DurableMemories, value: Any) -> None:
    writer.set_preference("u1", "theme", "light", now=NOON)
    writer.set_preference("u1", "theme", value, now=after(1))
    assert memories.preference("u1", "theme", "nothing") == value
    assert memories.preferences("u1") == {"theme": value}
    assert len(memories.list()) == 1


def test_preferences_are_of_one_user_until_they_are_deleted(
    root: str, writer: MemoryWriter, memories: DurableMemories
) -> None:
    made = writer.set_preference("u1", "theme", "dark", now=NOON)
    writer.set_preference("u2", "theme", "light", now=NOON)
    writer.set_preference("u1", "units", "metric", now=NOON)
    run(Lake(root), default_models())
    assert writer.set_preference("u1", "theme", "blue", now=after(1)) == made
    assert memories.preferences("u1") == {"theme": "blue", "units": "metric"}
    assert writer.delete_preference("u1", "theme", now=after(2)) is True
    assert writer.delete_preference("u1", "theme", now=after(3)) is False
    assert memories.preferences("u1") == {"units": "metric"}
    assert memories.preferences("u2") == {"theme": "light"}
    assert writer.set_preference("u1", "theme", "dark", now=after(4)) == made


def test_deleting_a_preference_needs_user_and_name(root: str, writer: MemoryWriter, memories: DurableMemories) -> None:
    writer.set_preference("u 1", "the  theme", "dark", now=NOON)
    wrong: list[Any] = [("u 1", None), (None, "the theme"), (None, None), ("", "the theme"), ("u 1", 3)]
    for user, key in wrong:
        with pytest.raises(InputError, match="not accepted"):
            writer.delete_preference(user, key, now=after(1))
    assert memories.preferences("u 1") == {"the theme": "dark"}
    assert writer.delete_preference(" u  1 ", "the theme", now=after(1)) is True
    assert memories.preferences("u 1") == {}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("u1", "theme", math.nan), "value nan is not accepted; expected a JSON value"),
        (("u1", "theme", {1, 2}), "value .* is not accepted; expected a JSON value"),
        (("u1", "theme", NOON), "is not accepted; expected a JSON value"),
        (("u1", "theme", "x" * 20_000), "value has 20,002 characters"),
        (("u1", "theme", "\ud800"), "value .* is not a text"),
        (("", "theme", 1), "user_id '' is not valid"),
        ((7, "theme", 1), "user_id 7 is not valid"),
        (("u1", "k" * 257, 1), "key .* is not accepted; expected 1 to 256 characters"),
        (("u1", "a\x00b", 1), "key .* control characters"),
        ((None, "theme", 1), "content is missing|belong together"),
    ],
)
def test_an_invalid_preference_is_rejected(root: str, writer: MemoryWriter, arguments: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"({says}).*nothing was written$"):
        writer.set_preference(*arguments, now=NOON)
    assert written(root) == 0


def test_a_value_nested_a_thousand_levels_is_refused(writer: MemoryWriter) -> None:
    value: Any = []
    for depth in (150, 100_000):
        for _ in range(depth):
            value = [value]
        with pytest.raises(InputError, match="nested more than 100 levels"):
            writer.set_preference("u1", "theme", value, now=NOON)


# --- invalid arguments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"content": ""}, "content '' is not accepted"),
        ({"content": "x" * 20_001}, "expected 1 to 20,000 characters"),
        ({"content": 3}, "content 3 is not a text"),
        ({"content": "a\x00b"}, "control characters are not accepted"),
        ({"content": "\ud800"}, "content .* is not a text"),
        ({"content": None}, "content is missing"),
        ({"kind": "facts"}, "kind 'facts' is unknown"),
        ({"kind": []}, "kind \\[\\] is unknown"),
        ({"confidence": 1.2}, "confidence 1.2 is not accepted; expected 0 to 1"),
        ({"confidence": math.nan}, "confidence nan is not accepted"),
        ({"importance": -0.1}, "importance -0.1 is not accepted"),
        ({"importance": True}, "importance True is not accepted"),
        ({"decay_rate": math.inf}, "decay_rate inf is not accepted"),
        ({"is_point_in_time": "yes"}, "is_point_in_time 'yes' is not accepted"),
        ({"tags": "house"}, "tags 'house' is not accepted; expected a list"),
        ({"hook": "x" * 121}, "hook .* expected 1 to 120 characters"),
        ({"predicate": "likes"}, "subject is missing"),
        ({"subject": "Anna", "object": "tea"}, "predicate is missing"),
        ({"object": "Porto"}, "an object needs both"),
        ({"predicate": "!!", "subject": "Anna"}, "predicate '!!' has no letter or digit"),
        ({"editor": "consolidation"}, "editor 'consolidation' is reserved for the pipeline"),
        ({"editor": ""}, "editor '' is not accepted"),
        ({"now": datetime(2024, 1, 15)}, "now .* has no time zone"),  # noqa: DTZ001  # that is the point
        ({"now": datetime(2023, 1, 15, tzinfo=UTC)}, "is before the first day of this memory"),
    ],
)
def test_invalid_arguments_are_named_and_nothing_is_written(
    root: str, writer: MemoryWriter, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        writer.remember(**{"content": "Anna likes tea.", "now": NOON, **given})
    assert written(root) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w, i: w.update(i, now=after(1)), "no change is given; expected one of cleared, confidence, content"),
        (lambda w, i: w.update(i, confidence=1.2, now=after(1)), "confidence 1.2 is not accepted"),
        (lambda w, i: w.update(i, confidence=math.nan, now=after(1)), "confidence nan is not accepted"),
        (lambda w, i: w.update(i, object="Porto", now=after(1)), "an object needs both"),
        (lambda w, i: w.update(i, kind="facts", now=after(1)), "kind 'facts' is unknown"),
        (lambda w, i: w.boost(i, 1.5, now=after(1)), "amount 1.5 is not accepted"),
        (lambda w, i: w.reduce(i, -0.1, now=after(1)), "amount -0.1 is not accepted"),
        (lambda w, i: w.boost(i, now=after(-90)), "is before memory .* was first stated"),
        (lambda w, i: w.confirm(i, reason="x" * 501, now=after(1)), "reason .* expected 1 to 500"),
        (lambda w, i: w.confirm(NOBODY, now=after(1)), "is unknown to this agent"),
        (lambda w, i: w.update(NOBODY, "x", now=after(1)), "is unknown to this agent"),
        (lambda w, i: w.touch([i, NOBODY], now=after(1)), "is unknown to this agent"),
        (lambda w, i: w.touch(i, now=after(1)), "expected a list of ids"),
        (lambda w, i: w.boost("working:2024-01-15T12:" + "0" * 32, now=after(1)), "is not the id of a durable memory"),
        (lambda w, i: w.boost("../../etc/passwd", now=after(1)), "is not valid; expected an id"),
        (lambda w, i: w.boost("'; DROP TABLE memories; --", now=after(1)), "is not valid; expected an id"),
        (lambda w, i: w.boost(None, now=after(1)), "id None is not valid; expected an id"),
        (lambda w, i: w.boost(i + "\n", now=after(1)), "is not valid; expected an id"),
        (lambda w, i: w.boost("x" * 10**6, now=after(1)), "is not valid; expected an id"),
    ],
)
def test_impossible_changes_are_rejected(root: str, writer: MemoryWriter, change: Any, says: str) -> None:
    made = writer.remember("Anna likes tea.", now=NOON)
    with pytest.raises(InputError, match=says) as caught:
        change(writer, made)
    assert len(str(caught.value)) < 500
    assert written(root) == 1


def test_a_preference_is_changed_by_setting_it(writer: MemoryWriter) -> None:
    made = writer.set_preference("u1", "theme", "dark", now=NOON)
    with pytest.raises(InputError, match="is preference 'theme' of 'u1'; use set_preference to change it"):
        writer.update(made, "u1 likes light", now=after(1))
    writer.update(made, importance=0.9, now=after(1))


def test_an_agent_reaches_only_its_own_memories(root: str, writer: MemoryWriter) -> None:
    other = MemoryWriter(Lake(root), SALES, START)
    mine, theirs = (one.remember("Anna likes tea.", subject="Anna", predicate="likes", object="tea", now=NOON)
                    for one in (writer, other))  # fmt: skip
    assert mine != theirs
    for change in (other.boost, other.confirm, other.forget):
        with pytest.raises(InputError, match="is unknown to this agent"):
            change(mine, now=after(1))
    with pytest.raises(InputError, match="is unknown to this agent"):
        other.touch([mine], now=after(1))
    assert other.forget(subject="Anna", now=after(1)) == 1
    assert [memory.id for memory in memories_of(root).list()] == [mine]


STATING: list[dict[str, Any]] = [
    {"memory": "REMEMBER", "content": "Ben seems tired."},
    {"memory": "REMEMBER", "content": "Ben seems tired.", "kind": "observation"},
    {"memory": "REMEMBER", "user_id": "u1", "key": "theme", "value": "dark"},
    {"memory": "UPDATE", "content": "Anna seems very tired."},
    {"memory": "UPDATE", "tags": ["health"]},
    {"memory": "CONFIRM"},
    {"memory": "UPDATE", "kind": "plan"},
]
OTHERS = ["BOOST", "REDUCE", "ACCESS", "LINK", "UNLINK", "DEACTIVATE", "REACTIVATE", "FORGET"]


@pytest.mark.parametrize(
    ("kind", "allows"),
    [
        ("fact", [0, 5]),  # a confirmed observation is a fact
        ("observation", [1, 3, 4]),
        ("preference", [2]),
        ("plan", [6]),
    ],
)
def test_a_kind_that_the_configuration_forbids_is_not_stated(root: str, kind: str, allows: list[int]) -> None:
    writer = MemoryWriter(Lake(root), ACME, START)
    note, other = (writer.remember(text, "observation", now=NOON) for text in ("Anna seems tired.", "Tea helps."))
    configure(root, f"workspaces: {{acme: {{agents: {{support: {{memories: {{kinds: [{kind}]}}}}}}}}}}")

    def accepts(change: dict[str, Any]) -> bool:
        writer = MemoryWriter(Lake(root), ACME, START)
        try:
            writer.change_memories([change if change["memory"] == "REMEMBER" else change | {"memory_id": note}])
        except InputError as error:
            return f"accepted: {kind}" not in str(error)
        return True

    assert [number for number, change in enumerate(STATING) if accepts(change)] == allows
    links = {"LINK": {"other_id": other, "relation": "supports"}, "UNLINK": {"other_id": other, "relation": "supports"}}
    assert all(accepts({"memory": verb, **links.get(verb, {})}) for verb in OTHERS)
    assert MemoryWriter(Lake(root), SALES, START).remember("Anna seems tired.", "observation")


def test_a_context_and_its_entries_need_no_kind(root: str) -> None:
    configure(root, "defaults: {memories: {kinds: [rule]}}")
    contexts = MemoryWriter(Lake(root), ACME, START).contexts
    contexts.create("handbook", now=NOON)
    entry = contexts.put("handbook", "hours", "The office opens at nine.", now=NOON)
    contexts.snapshot("handbook", "first", now=after(1))
    contexts.put("handbook", "hours", "The office opens at ten.", now=after(2))
    assert contexts.restore("handbook", "first", now=after(3)) == 1
    writer = MemoryWriter(Lake(root), ACME, START)
    assert writer.confirm(entry, now=after(4)) == entry
    with pytest.raises(InputError, match="forbids kind 'plan'"):
        writer.remember("Move the office.", "plan", context="handbook", now=after(5))
    assert [one.content for one in contexts.entries("handbook")] == ["The office opens at nine."]


def test_the_configuration_can_make_all_memories_snapshots(root: str) -> None:
    configure(root, "defaults: {memories: {point_in_time: true}}")
    writer, memories = MemoryWriter(Lake(root), ACME, START), memories_of(root)
    stock = writer.remember("There are 12 ovens in stock.", now=NOON)
    born = writer.remember("Anna was born in 1990.", is_point_in_time=False, now=NOON)
    theme = writer.set_preference("u1", "theme", "dark", now=NOON)
    flags = {memory.id: memory.is_point_in_time for memory in memories.list()}
    assert flags == {stock: True, born: False, theme: False}


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [False, True])
def test_simultaneous_changes_keep_their_order(
    root: str, writer: MemoryWriter, memories: DurableMemories, landed: bool
) -> None:
    made = writer.remember("Anna likes tea.", now=NOON)
    for text in ("Anna likes figs.", "Anna likes dates.", "Anna likes honey."):
        writer.update(made, text, now=NOON)
    writer.forget(made, now=NOON)
    writer.update(made, "Anna likes plums.", now=NOON)
    if landed:
        run(Lake(root), default_models())
    assert [version.content for version in memories.history(made)] == [
        "Anna likes tea.", "Anna likes figs.", "Anna likes dates.", "Anna likes honey.", "Anna likes plums.",
    ]  # fmt: skip
    assert memories.list()[0].updated_at - NOON < timedelta(milliseconds=1)


def test_simultaneous_writers_keep_their_order(root: str, memories: DurableMemories) -> None:
    def fresh() -> MemoryWriter:
        return MemoryWriter(Lake(root), ACME, START)

    made = fresh().remember("Anna likes tea.", now=NOON)
    assert fresh().remember("Anna likes tea.", now=NOON) == made
    memory = memories.get(made)
    assert memory is not None
    assert memory.version == 1, "what is said twice at one time is said once"
    fresh().forget(made, now=NOON)
    assert memories.list() == []
    fresh().remember("Anna likes tea.", now=NOON)
    assert [memory.version for memory in memories.list()] == [2]
    fresh().update(made, "Anna likes figs.", now=NOON)
    fresh().touch([made], now=NOON)
    fresh().forget(made, now=NOON)
    assert memories.list() == []


def test_threads_of_one_writer_lose_nothing(writer: MemoryWriter, memories: DurableMemories) -> None:
    made = writer.remember("Anna likes tea.", importance=0, now=NOON)

    def work(name: str) -> None:
        for number in range(5):
            writer.boost(made, 0.01, now=NOON)
            writer.remember(f"{name} likes {number} figs.", now=NOON)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memories.list()) == 21
    memory = memories.get(made)
    assert memory is not None
    assert memory.importance == 0.2


def test_the_id_of_a_merged_memory_refers_to_the_winner(
    root: str, writer: MemoryWriter, memories: DurableMemories
) -> None:
    lost, won = (writer.remember(text, now=NOON) for text in ("Anna likes tea.", "Anna loves tea."))
    merge(root, won, lost)
    assert writer.boost(lost, now=after(60 * 24)) == won
    assert writer.touch([lost, won], now=after(60 * 24)) == 1
    memory = memories.get(won)
    assert memory is not None
    assert (memory.importance, memory.access_count, memory.merged_ids) == (0.6, 1, (lost,))
    assert writer.remember("Anna likes tea.", now=after(60 * 24)) == won
    assert writer.forget(lost, now=after(60 * 25)) == 1
    assert memories.list() == []


def merge(root: str, winner: str, loser: str) -> None:
    """Commit pending events and one of consolidation."""
    from memory_pipeline.lake.codec.memories import consolidation_to_rows
    from memory_pipeline.steps.fold_memories import refold_memories
    from memory_pipeline_tests.building import put_events

    lake = Lake(root)
    run(lake, default_models())
    night = datetime(2024, 1, 16, tzinfo=UTC)
    event = MemoryEvent.of(
        ACME, MemoryVerb.MERGE, night, Changes(), memory_id=winner, other_id=loser, editor="consolidation"
    )
    rows = consolidation_to_rows([event], {night: Period.parse("daily", "2024-01-15")})
    put_events(lake, rows)
    refold_memories(lake, default_models().embedder, [ACME])


# --- links -----------------------------------------------------------------------------------------------------------


def test_f15_links_are_visible_at_once_and_at_past_times(
    root: str, writer: MemoryWriter, memories: DurableMemories
) -> None:
    rain, flood, alarm = (
        writer.remember(text, now=NOON) for text in ("It rains.", "The dam is full.", "Call the mill.")
    )
    assert writer.link(rain, flood, "Leads to", 0.8, now=after(10)) == rain
    writer.link(flood, f"{alarm}#1", "leads_to", now=after(20))
    [last, first] = memories.links(flood)
    assert (last.source_id, last.target_id, last.weight) == (flood, alarm, 1.0)
    assert (first.source_id, first.target_id, first.relation, first.weight) == (rain, flood, "leads_to", 0.8)
    assert (first.editor, first.linked_at) == ("agent", after(10))
    assert memories.links(alarm) == [last]
    run(Lake(root), default_models())
    assert memories.links(flood) == [last, first]
    assert memories.links(flood, now=after(12)) == [first]
    writer.unlink(rain, flood, "leads_to", now=after(30))
    writer.forget(alarm, now=after(40))
    assert memories.links(flood) == []
    assert memories.links(flood, now=after(32)) == [last]
    assert [event.verb for event in memories.explain(rain)] == ["REMEMBER", "LINK", "UNLINK"]


def test_f15_links_survive_a_merge(root: str, writer: MemoryWriter, memories: DurableMemories) -> None:
    lost, won, other = (writer.remember(f"Anna {text} tea.", now=NOON) for text in ("likes", "loves", "bought"))
    writer.link(lost, other, "explains", 0.4, now=NOON)
    merge(root, won, lost)
    for own in (lost, won, other):
        assert [(one.source_id, one.target_id, one.weight) for one in memories.links(own)] == [(won, other, 0.4)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weight": 1.01}, "weight 1.01 is not accepted; expected 0 to 1"),
        ({"weight": -0.01}, "weight -0.01 is not accepted; expected 0 to 1"),
        ({"weight": math.nan}, "weight nan is not accepted"),
        ({"relation": ""}, "relation '' is not accepted"),
        ({"target_id": NOBODY}, f"memory '{NOBODY}' is unknown to this agent"),
        ({"source_id": NOBODY}, f"memory '{NOBODY}' is unknown to this agent"),
        ({"target_id": "tea"}, "id 'tea' is not"),
    ],
)
def test_f15_an_invalid_link_is_refused(root: str, writer: MemoryWriter, change: Any, says: str) -> None:
    tea, figs = (writer.remember(f"Anna likes {thing}.", now=NOON) for thing in ("tea", "figs"))
    with pytest.raises(InputError) as raised:
        writer.link(**{"source_id": tea, "target_id": figs, "relation": "like"} | change, now=NOON)
    assert says in str(raised.value)
    with pytest.raises(InputError, match="a link has a relation and two memories"):
        writer.link(tea, tea, "like", now=NOON)
    assert written(root) == 2


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_file_and_keeps_its_order(root: str, writer: MemoryWriter, memories: DurableMemories) -> None:
    tea = writer.remember("Anna likes tea.", now=NOON)
    changes: list[dict[str, object]] = [
        {"memory": "UPDATE", "memory_id": tea, "content": "Anna likes figs.", "reason": "she said so"},
        {"memory": "REMEMBER", "content": "Anna likes tea."},
        {"memory": "REMEMBER", "content": "anna likes tea"},
        {"memory": "BOOST", "memory_id": tea, "amount": 0.2},
        {"memory": "REMEMBER", "content": "Bo likes figs.", "timestamp": "2024-01-15T09:00:00+01:00"},
        {"memory": "REMEMBER", "user_id": "u1", "key": "theme", "value": None},
    ]
    ids = writer.change_memories(changes, now=after(1))
    assert (ids[0], ids[3]) == (tea, tea)
    assert ids[1] == ids[2] != tea
    assert written(root) == 2
    contents = {memory.content: (memory.version, memory.importance) for memory in memories.list(kind="fact")}
    assert contents == {"Anna likes figs.": (2, 0.7), "anna likes tea": (2, 0.5), "Bo likes figs.": (1, 0.5)}
    assert memories.preferences("u1") == {"theme": None}
    assert writer.change_memories([]) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (3, "change 2: 3 is not accepted; expected a mapping"),
        ({}, "change 2: memory None is unknown; accepted: REMEMBER, UPDATE, FORGET"),
        ({"memory": "MERGE", "memory_id": NOBODY}, "change 2: memory 'MERGE' is unknown"),
        ({"memory": "REMEMBER", "content": "x", "amount": 1}, "change 2: 'amount' is unknown with REMEMBER"),
        ({"memory": "REMEMBER", "content": "x", 3: 1}, "change 2: '3' is unknown with REMEMBER"),
        ({"memory": "FORGET", "memory_id": NOBODY}, "change 2: memory .* is unknown to this agent"),
        ({"memory": "FORGET"}, "change 2: id None is not valid; expected an id"),
        ({"memory": "REMEMBER", "content": "x", "timestamp": "noon"}, "change 2: timestamp 'noon' cannot be read"),
        ({"memory": "REMEMBER", "content": "x", "timestamp": "2031-01-01T00:00Z"}, "change 2: .* is in the future"),
        ({"memory": "REMEMBER", "user_id": "u1", "key": "k"}, "change 2: content is missing"),
        ({"memory": "REMEMBER", "content": "x", "user_id": "u1"}, "change 2: user_id and key belong together"),
        ({"memory": "REMEMBER", "content": "x", "user_id": "u1", "key": "k"}, "change 2: value .* is missing"),
        (
            {"memory": "REMEMBER", "kind": "rule", "user_id": "u1", "key": "k", "value": 1},
            "change 2: kind rule does not accept key 'k'; expected kind preference",
        ),
    ],
)
def test_a_batch_is_written_whole_or_not_at_all(root: str, writer: MemoryWriter, change: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"{says}.*nothing was written"):
        writer.change_memories([{"memory": "REMEMBER", "content": "Anna likes tea."}, change], now=NOON)
    assert written(root) == 0


@pytest.mark.parametrize("changes", ["REMEMBER", {"memory": "REMEMBER", "content": "x"}, None, 3])
def test_a_batch_is_a_list(writer: MemoryWriter, changes: Any) -> None:
    with pytest.raises(InputError, match=r"changes .* is not accepted; expected a list of mappings"):
        writer.change_memories(changes)


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just(NOBODY),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
_FIELDS = st.sampled_from(
    ["memory_id", "content", "kind", "value", "user_id", "key", "tags", "confidence", "amount", "editor", "timestamp"]
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> MemoryWriter:
    return MemoryWriter(Lake(str(tmp_path_factory.mktemp("hostile") / "lake")), ACME, START)


@settings(max_examples=examples(150), deadline=None)
@given(verb=st.sampled_from([*MemoryVerb, "?"]), said=st.dictionaries(_FIELDS, _ANYTHING, max_size=4))
def test_every_change_is_accepted_or_rejected(hostile: MemoryWriter, verb: str, said: dict[str, Any]) -> None:
    with suppress(InputError):
        [made] = hostile.change_memories([{"memory": verb, **said}], now=NOON)
        assert made.startswith("memory:2024-")


# --- what a conversation and an agent say ----------------------------------------------------------------------------


def test_a_statement_and_a_written_memory_with_the_same_words_are_one_memory(
    root: str, writer: MemoryWriter, memories: DurableMemories
) -> None:
    writer.write(conversation("My policy is simple.", "From now on, always call me Ann."), now=after(1))
    [said] = memories.list(kind="instruction")
    assert writer.remember(said.content, "instruction", now=after(2)) == said.id
    run(Lake(root), default_models())
    assert writer.remember(said.content, "instruction", now=after(3)) == said.id
    assert [memory.version for memory in memories.list(kind="instruction")] == [3]
