"""Durable memories in a reader's results: search, recall, proactive recall, warnings, deduplication."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.memories.events import MemoryVerb
from memory_pipeline.errors import InputError, ModelError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.scoped_rows import ScopedRows
from memory_pipeline.models.factory import Models, ReadingModels
from memory_pipeline.reader import MemoryReader
from memory_pipeline.reader.packing.items import Source
from memory_pipeline_tests import building, index_rows
from memory_pipeline_tests.building import ACME, conversation, run
from memory_pipeline_tests.memories.keeping import MONDAY, event, land, minute, remember, write
from memory_pipeline_tests.reader.injecting import configure, write_fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.reader import RecalledMemory

TUESDAY = MONDAY + timedelta(days=1)
NOON = MONDAY + timedelta(hours=4)


def said(found: Sequence[RecalledMemory]) -> list[str]:
    return [one.memory.content for one in found]


def reading(lake: Lake, models: Models) -> MemoryReader:
    return MemoryReader(Lake(lake.storage.uri), ACME, models.embedder)


class Choosing:
    """Returns the given choices, or raises the given error."""

    def __init__(self, *places: int, error: Exception | None = None) -> None:
        self._places = places
        self._error = error
        self.headers: list[str] = []

    def select(self, query: str, headers: Sequence[str], most: int) -> list[int]:
        self.headers = list(headers)
        if self._error is not None:
            raise self._error
        return list(self._places)


class Imagining:
    """Returns the given queries."""

    def __init__(self, *queries: str, error: Exception | None = None) -> None:
        self._queries = queries
        self._error = error
        self.messages: list[str] = []

    def imagine(self, messages: Sequence[str], most: int) -> list[str]:
        self.messages = list(messages)
        if self._error is not None:
            raise self._error
        return list(self._queries)


def helped(reader: MemoryReader, **helpers: Any) -> MemoryReader:
    """Give a reader models."""
    vars(reader)["_reading_models"] = replace(ReadingModels(), **helpers)
    return reader


# F3: headers.


def test_headers_are_the_newest_warm_memories_and_no_content_is_read(
    lake: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [remember(f"Fact number {number}.", minute(number)) for number in range(255)]
    cold = [event(MemoryVerb.COOL, TUESDAY, one.memory_id, editor="consolidation") for one in told[200:205]]
    land(lake, *told, consolidation=cold)
    asked: list[set[str]] = []
    read = ScopedRows.read

    def noting(self: ScopedRows, scopes: Any, columns: Any = None, where: Any = None) -> Any:
        if "match_keys" in self.schema.names:
            asked.append(set(columns))
        return read(self, scopes, columns, where)

    monkeypatch.setattr(ScopedRows, "read", noting)
    headers = reading(lake, models).memories.headers()
    assert len(headers) == 200
    newest = [one.memory_id for one in reversed(told) if one.memory_id not in {own.memory_id for own in cold}]
    assert [one.id for one in headers] == newest[:200]
    assert asked
    assert not {"content", "vector"} & set().union(*asked)
    assert str(headers[0]) == "Fact number 254. (fact): Fact number 254."


# F4: selection.


def kept(lake: Lake, count: int = 8) -> list[str]:
    told = [remember(f"The price of item {number} is {number} euros.", minute(number)) for number in range(count)]
    land(lake, *told)
    return [one.memory_id for one in told]


def test_a_model_selects_headers_and_unknown_choices_are_ignored(lake: Lake, models: Models) -> None:
    kept(lake)
    choosing = Choosing(3, 99, 0, 3, -1, 1, 2, 4, 5, 6)
    reader = helped(reading(lake, models), selector=choosing)
    found = reader.memories.search("What is the price of item 2?", now=NOON)
    assert [str(one.memory.title) for one in found] == [
        choosing.headers[place].partition(" (fact)")[0] for place in (3, 0, 1, 2, 4)
    ]
    assert len(choosing.headers) == 8
    assert helped(reader, selector=Choosing()).memories.search("What is the price?", now=NOON) == []


def test_words_and_vectors_rank_if_the_model_fails(lake: Lake, models: Models) -> None:
    kept(lake)
    reader = reading(lake, models)
    alone = reader.memories.search("What is the price of item 2?", now=NOON)
    assert alone[0].memory.content == "The price of item 2 is 2 euros."
    for error in (ModelError("timeout", "too late"), RuntimeError("boom")):
        failing = helped(reading(lake, models), selector=Choosing(error=error))
        assert failing.memories.search("What is the price of item 2?", now=NOON) == alone
        assert failing.recall("What is the price of item 2?", now=NOON) == reader.recall(
            "What is the price of item 2?", now=NOON
        )


def test_headers_of_a_large_memory_include_the_best_matches(lake: Lake, models: Models) -> None:
    oldest = remember("Bruno is a dog from Porto.", MONDAY)
    land(lake, oldest, *[remember(f"Fact number {number}.", minute(number + 1)) for number in range(300)])
    choosing = Choosing(0)
    found = helped(reading(lake, models), selector=choosing).memories.search("Bruno the dog", now=TUESDAY)
    assert len(choosing.headers) == 200
    assert said(found) == ["Bruno is a dog from Porto."]
    assert any("Fact number 299." in header for header in choosing.headers)


def test_memories_shown_before_are_left_out(lake: Lake, models: Models) -> None:
    ids = kept(lake)
    reader = reading(lake, models)
    for most in (1, 3, 8):
        shown = [one.memory.id for one in reader.memories.search("price of item 2", most, now=NOON)]
        rest = reader.memories.search("price of item 2", 8, exclude=shown, now=NOON)
        assert {one.memory.id for one in rest} == set(ids) - set(shown)
    first = reader.recall("price of item 2", now=NOON)
    again = reader.recall("price of item 2", exclude=[one.id for one in first], now=NOON)
    assert first
    assert not {one.id for one in first} & {one.id for one in again}
    choosing = Choosing(0, 1)
    helped(reader, selector=choosing).memories.search("price", exclude=ids[:6], now=NOON)
    assert len(choosing.headers) == 2


@pytest.mark.parametrize("value", ["memory:x", [1], [None], ["\ud800"], ["x" * 300], 5, [["a"]]])
def test_invalid_ids_are_named(reader: MemoryReader, value: Any) -> None:
    with pytest.raises(InputError, match="exclude"):
        reader.memories.search("x", exclude=value)
    with pytest.raises(InputError, match="exclude"):
        reader.recall("x", exclude=value)
    with pytest.raises(InputError, match="exclude"):
        reader.inject_knowledge("x", exclude=value)


@pytest.fixture
def reader(lake: Lake, models: Models) -> MemoryReader:
    return reading(lake, models)


# F5: contents of selected memories, and graph facts around them.


def test_facts_around_the_entities_of_a_memory_are_returned_in_rings(lake: Lake, models: Models) -> None:
    land(lake, remember("Anna works for Initech.", subject="Anna", predicate="works_for", object="Initech"))
    write_fact(lake.storage.uri, "Anna", "works_for", "Initech")
    write_fact(lake.storage.uri, "Initech", "based_in", "Oslo")
    write_fact(lake.storage.uri, "Oslo", "lies_in", "Norway")
    reader = reading(lake, models)
    around = {
        hops: [fact.line.partition(" (")[0] for fact in reader.memories.search("Anna's work", hops=hops)[0].facts]
        for hops in (0, 1, 2)
    }
    assert around == {
        0: [],
        1: ["Initech based_in Oslo"],
        2: ["Initech based_in Oslo", "Oslo lies_in Norway"],
    }
    recalled = [one.content for one in reader.recall("Anna's work", hops=2) if one.grain == "graph"]
    assert recalled == ["Anna works_for Initech", "Initech based_in Oslo"]
    assert not [one for one in reader.recall("Anna's work", hops=0) if one.grain == "graph"]


def test_a_memory_is_returned_whole_with_its_kind(lake: Lake, models: Models) -> None:
    long = "The policy has many words. " * 40
    land(lake, remember(long.strip(), kind="rule", title="Policy", hook="what it says"))
    [found] = reading(lake, models).memories.search("policy", now=NOON)
    assert found.memory.content == long.strip()
    assert str(found) == f"⁍ {long.strip()} (rule)"


# F6: warnings.


def test_the_text_warns_of_an_old_memory(lake: Lake, models: Models) -> None:
    land(
        lake,
        remember("Anna lives in Porto."),
        remember("12 chairs are in stock in Porto.", is_point_in_time=True),
        remember("Always greet Anna of Porto by name.", kind="instruction"),
    )
    reader = reading(lake, models)

    def warnings_after(after: timedelta) -> dict[str, str]:
        found = reader.recall("Anna, Porto and chairs", now=MONDAY + after)
        return {one.content.split()[0]: str(one) for one in found}

    fresh, older = warnings_after(timedelta(hours=23)), warnings_after(timedelta(hours=24))
    assert fresh["Anna"] == "⁍ [2024-01-15] Anna lives in Porto. (fact)"
    assert "yesterday" in older["Anna"]
    assert "verify" in older["Anna"]
    assert "23 hours ago" in fresh["12"]
    assert "query the source again" in fresh["12"]
    assert "12 days ago" in warnings_after(timedelta(days=12, hours=1))["Anna"]
    assert warnings_after(timedelta(days=400))["Always"].endswith("(instruction)")
    known = reader.inject_knowledge("Anna, Porto and chairs", now=MONDAY + timedelta(days=2))
    assert "2 days ago" in known.block


# F16, F17: cold memories, and other agents' memories.


def test_cold_memories_are_only_in_the_archive_and_revoked_ones_are_never_returned(lake: Lake, models: Models) -> None:
    names = ["warm", "cooled", "archived", "superseded", "revoked"]
    told = {name: remember(f"Bruno's {name} toy.", minute(place)) for place, name in enumerate(names)}
    ids = {name: one.memory_id for name, one in told.items()}
    consolidation = [
        event(MemoryVerb.COOL, TUESDAY, ids["cooled"], editor="consolidation"),
        event(MemoryVerb.ARCHIVE, TUESDAY, ids["archived"], editor="consolidation"),
        event(MemoryVerb.SUPERSEDE, TUESDAY, ids["superseded"], ids["warm"], editor="consolidation"),
    ]
    land(lake, *told.values(), consolidation=consolidation)
    write(lake, event(MemoryVerb.FORGET, TUESDAY, ids["revoked"]))
    reader = reading(lake, models)
    now = TUESDAY + timedelta(hours=1)
    assert said(reader.memories.search("Bruno's toy", 9, now=now)) == ["Bruno's warm toy."]
    assert [one.content for one in reader.recall("Bruno's toy", now=now)] == ["Bruno's warm toy."]
    assert reader.inject_knowledge("Bruno's toy", now=now).block.count("toy") == 1
    archive = reader.search_archive("Bruno's toy", now=now)
    assert sorted(said(archive)) == sorted(f"Bruno's {name} toy." for name in ("cooled", "archived", "superseded"))
    assert archive[0].memory.status_reason is None
    assert [one.status for one in reader.memories.history(ids["revoked"])] == ["deprecated"]
    # Before that day of consolidation, and before the revocation, all were warm.
    assert len(reader.memories.search("Bruno's toy", 9, now=NOON)) == 5
    assert reader.search_archive("Bruno's toy", now=NOON) == []


def test_no_search_reaches_another_agents_memories(lake: Lake, models: Models) -> None:
    other = replace(ACME, agent_id="sales")
    land(lake, remember("Bruno is a dog."))
    land(lake, remember("Bruno is a dog.", scope=other), remember("Bruno's secret is 42.", minute(1), scope=other))
    write(lake, remember("Bruno's other secret is 43.", minute(2), scope=other))
    reader = reading(lake, models)
    assert said(reader.memories.search("Bruno's secret", 50)) == ["Bruno is a dog."]
    assert [one.content for one in reader.recall("Bruno's secret")] == ["Bruno is a dog."]
    assert said(reader.imagine(["Bruno's secret"])) == ["Bruno is a dog."]
    assert "secret" not in reader.inject_knowledge("What of Bruno?").block
    stolen = remember("Bruno's secret is 42.", minute(1), scope=other).memory_id
    assert reader.memories.get(stolen) is None
    assert reader.get(stolen) is None
    with pytest.raises(InputError, match="is unknown in the memory of"):
        reader.expand(stolen)


# A message and its durable memory are returned once, before a run and after it.


def test_a_message_and_its_memory_are_returned_once_and_the_memory_outlives_the_message(
    lake: Lake, models: Models
) -> None:
    texts = ["Please always answer me in French.", "I live in Porto.", "Nice weather today."]
    building.write(lake, conversation(*texts))
    reader = reading(lake, models)
    now = datetime(2024, 1, 15, 12, tzinfo=UTC)
    for _ in range(2):
        told = [one.content for one in reader.recall("Where does Anna live, and in which language?", now=now)]
        assert len(told) == len({text.casefold() for text in told})
        assert sum("French" in text for text in told) == 1
        assert [one.kind for one in reader.memories.list(kind="instruction")] == ["instruction"]
        [kept] = reader.memories.list(kind="instruction")
        assert kept.version == 1
        block = reader.inject_knowledge("Which language does Anna want?", now=now).block
        assert block.count("French") == 1
        assert "What to keep in mind:\n⁍ [2024-01-15] Anna: Please always answer me in French. (instruction)" in block
        run(lake, models)
    assert not lake.journal.pending()


def test_permanent_instructions_come_first(lake: Lake, models: Models) -> None:
    land(
        lake,
        remember("Porto is Anna's home.", importance=1.0),
        remember("Never send letters to Porto.", minute(1), kind="instruction", importance=0.1),
    )
    known = reading(lake, models).inject_knowledge("A letter for Anna in Porto", now=NOON)
    assert [one.content for one in known.of(Source.DURABLE)] == [
        "Never send letters to Porto.",
        "Porto is Anna's home.",
    ]
    assert known.parts[0].source is Source.DURABLE


def test_filters_apply_to_durable_memories(lake: Lake, models: Models) -> None:
    land(
        lake,
        remember("Anna lives in Porto.", subject="Anna", predicate="lives_in", object="Porto", tags=["home"]),
        remember("Bruno lives in Porto.", minute(60 * 48), subject="Bruno", importance=0.9, predicate="lives_in"),
    )
    reader = reading(lake, models)
    now = MONDAY + timedelta(days=9)

    def found(**options: Any) -> list[str]:
        return sorted(one.content for one in reader.recall("Who lives in Porto?", now=now, **options))

    both = ["Anna lives in Porto.", "Bruno lives in Porto."]
    assert found() == both
    assert found(person="bruno") == both[1:]
    assert found(tag="home") == both[:1]
    assert found(minimum_importance=0.8) == both[1:]
    assert found(since=datetime(2024, 1, 16, 12, tzinfo=UTC)) == both[1:]
    assert found(until=datetime(2024, 1, 15, 12, tzinfo=UTC)) == both[:1]
    assert said(reader.memories.search("Porto", tag="home", now=now)) == both[:1]
    assert said(reader.memories.search("Porto", kind="rule", now=now)) == []


def test_relevance_decides_between_equal_matches(lake: Lake, models: Models) -> None:
    land(
        lake,
        remember("Porto tip red.", importance=0.9, decay_rate=0.5),
        remember("Porto tip blue.", importance=0.5),
    )
    reader = reading(lake, models)
    assert said(reader.memories.search("Porto tip", now=NOON)) == ["Porto tip red.", "Porto tip blue."]
    later = MONDAY + timedelta(days=10)
    assert said(reader.memories.search("Porto tip", now=later)) == ["Porto tip blue.", "Porto tip red."]


def test_words_are_compared_if_embedding_fails(lake: Lake) -> None:
    land(lake, remember("Anna lives in Porto."))
    write(lake, remember("Bruno lives in Faro.", minute(1)))
    reader = MemoryReader(lake, ACME, index_rows.Embedder())
    assert said(reader.memories.search("Porto", now=NOON))[0] == "Anna lives in Porto."
    assert said(reader.memories.search("Faro", now=NOON))[0] == "Bruno lives in Faro."


@pytest.mark.parametrize("query", ["", " \n", None, 5, "x" * 20_000, "\ud800"])
def test_an_invalid_query_is_named(reader: MemoryReader, query: Any) -> None:
    with pytest.raises(InputError, match="query"):
        reader.memories.search(query)
    with pytest.raises(InputError, match="query"):
        reader.search_archive(query)


# F12: proactive recall.


def test_a_permanent_instruction_is_found_by_any_query(lake: Lake, models: Models) -> None:
    land(
        lake,
        remember("Always answer in French.", kind="instruction"),
        remember("Flights are booked with an aisle seat.", minute(1), kind="preference"),
        remember("The cellar was painted in 2019.", minute(2)),
        remember("Initech is a client in Oslo.", minute(3)),
    )
    reader = reading(lake, models)
    messages = [
        {"role": "user", "name": "Anna", "content": "Can you book me a flight?"},
        {"role": "assistant", "content": "Where to?"},
        {"role": "user", "name": "Anna", "content": "To see Initech."},
    ]
    found = said(reader.imagine(messages, now=NOON))
    assert found[0] == "Flights are booked with an aisle seat."
    assert set(found) == {found[0], "Always answer in French.", "Initech is a client in Oslo."}
    shown = [one.memory.id for one in reader.imagine(messages, now=NOON)]
    assert reader.imagine(messages, exclude=shown, now=NOON) == []
    assert len(reader.imagine(messages, 1, now=NOON)) == 1


def test_messages_of_a_chat_api_are_accepted(lake: Lake, models: Models) -> None:
    land(lake, remember("Initech is a client."))
    reader = reading(lake, models)
    parts = [{"type": "text", "text": "What of Initech?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert said(reader.imagine([{"role": "user", "content": parts}], now=NOON))[0] == "Initech is a client."


def test_rules_make_queries_if_the_model_fails(lake: Lake, models: Models) -> None:
    land(lake, remember("The cellar was painted in 2019."), remember("Initech is a client.", minute(1)))
    imagining = Imagining("Who painted the cellar?")
    reader = helped(reading(lake, models), imaginer=imagining)
    messages: list[object] = [f"message {number}" for number in range(30)]
    assert said(reader.imagine([*messages, "What of Initech?"], now=NOON))[0] == "The cellar was painted in 2019."
    assert imagining.messages == [*(f"message {number}" for number in range(11, 30)), "What of Initech?"]
    failing = helped(reading(lake, models), imaginer=Imagining(error=RuntimeError("boom")))
    assert said(failing.imagine(["What of Initech?"], now=NOON)) == ["Initech is a client."]


@pytest.mark.parametrize(
    "messages",
    [
        [], "text", b"x", None, 5, {"content": "x"}, [None, 5, {}, {"content": 5}, {"content": "\ud800", "name": 3}],
        ["\x00" * 50], ["x" * 10**6] * 30, [{"content": "Anna", "name": "\ud800"}],
    ],
    ids=range(10),
)  # fmt: skip
def test_proactive_recall_never_raises(lake: Lake, models: Models, messages: Any) -> None:
    land(lake, remember("Anna lives in Porto."))
    reader = reading(lake, models)
    assert isinstance(reader.imagine(messages), list)
    assert reader.imagine(["Anna"], 0) == []
    assert reader.imagine(["Anna"], exclude=5, now="soon") == []  # type: ignore[arg-type]
    vars(reader)["_memories"] = None
    assert reader.imagine(["Anna"]) == []


# The hot index, preferences, ids.


def test_the_hot_index_has_one_line_per_memory_within_its_limits(lake: Lake, models: Models) -> None:
    told = [remember(f"Rule number {number}.", minute(number), kind="rule", hook="so it is") for number in range(25)]
    hot = [event(MemoryVerb.HEAT, TUESDAY, one.memory_id, editor="consolidation") for one in told[:22]]
    land(lake, *told, consolidation=hot)
    reader = reading(lake, models)
    index = reader.hot_index()
    assert len(index) == 20
    assert str(index).splitlines()[0] == "⁍ Rule number 0. (rule): so it is"
    assert index.tokens <= 3_000
    assert list(reader.hot_index(now=TUESDAY - timedelta(hours=1))) == []  # before the consolidation that selected it
    assert reader.hot_index(now=TUESDAY) == index
    forgotten = TUESDAY + timedelta(hours=1)
    write(lake, event(MemoryVerb.FORGET, forgotten, told[0].memory_id))
    assert reader.hot_index(now=TUESDAY) == index
    write(lake, event(MemoryVerb.UPDATE, forgotten, told[24].memory_id, content="Rule 24 is another."))
    for now, said in ((TUESDAY, "Rule number 24."), (forgotten, "Rule 24 is another.")):
        hit = reader.get(told[24].memory_id, now=now)
        assert hit is not None
        assert hit.content == said
    assert reader.get(told[24].memory_id, now=minute(-10)) is None
    assert str(reader.hot_index()).splitlines()[0] == "⁍ Rule number 1. (rule): so it is"
    configure(lake, "defaults: {memories: {hot_tokens: 30}}")
    tight = reading(lake, models).hot_index()
    assert 0 < len(tight) < 5
    assert tight.tokens <= 30


def test_preferences_have_the_value_set_last(lake: Lake, models: Models) -> None:
    def prefer(user: str, key: str, value: str, number: float) -> Any:
        content = f"{user} has set {key} to {value}."
        return remember(content, minute(number), kind="preference", user_id=user, key=key, value=value)

    land(lake, prefer("anna", "tone", '"formal"', 0), prefer("bob", "tone", '"short"', 1))
    write(lake, prefer("anna", "tone", '{"style": ["warm", 1, null]}', 2), prefer("anna", "beta", "false", 3))
    kept = reading(lake, models).memories
    assert kept.preference("anna", "tone") == {"style": ["warm", 1, None]}
    assert kept.preferences("anna") == {"beta": False, "tone": {"style": ["warm", 1, None]}}
    assert kept.preference("anna", "nothing", 7) == 7
    assert kept.preferences("carla") == {}
    own = next(one for one in kept.list(user_id="anna") if one.key == "beta")
    write(lake, event(MemoryVerb.FORGET, minute(9), own.id))
    assert kept.preferences("anna").keys() == {"tone"}


def test_a_memory_is_returned_and_traced_by_its_id(lake: Lake, models: Models) -> None:
    building.write(lake, conversation("I live in Porto."))
    run(lake, models)
    reader = reading(lake, models)
    [kept] = reader.memories.about("Anna")
    hit = reader.get(kept.id)
    assert hit is not None
    assert (hit.grain, hit.kind, hit.content, hit.id) == ("durable", "fact", kept.content, kept.id)
    node = reader.expand(kept.id)
    assert (node.what, node.content) == ("memory", kept.content)
    assert [source.what for source in node.sources] == ["message"]
    write(lake, event(MemoryVerb.UPDATE, kept.updated_at + timedelta(hours=1), kept.id, content="Anna lives in Faro."))
    first = reader.get(f"{kept.id}#1")
    assert first is not None
    assert first.content == kept.content
    assert reader.get(kept.id).content == "Anna lives in Faro."  # type: ignore[union-attr]
    assert reader.get(f"{kept.id}#9") is None
