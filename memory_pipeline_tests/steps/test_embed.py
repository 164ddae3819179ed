"""Vectors are computed once per text, in one batch, and are null where the embedder fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memory_pipeline.configuration.model_settings import Embedding
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.codec.facts import facts_to_rows
from memory_pipeline.lake.index.index_rows import facts_to_index, vectors_of, with_computed
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.factory import default_models
from memory_pipeline.models.local import LocalEmbedder
from memory_pipeline.steps.embed import embedded, vectors_in, with_vectors
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import ACME, NOW, START, conversation, hours, run, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from memory_pipeline.lake import Lake

HOURS = hours("2024-01-15T08")
OTHER = Scope("globex", "sales")


class Embedder:
    """Records its requests; fails for texts that contain "broken"."""

    dimension = 4

    def __init__(self, name: str = "e1") -> None:
        self.name = name
        self.asked: list[tuple[list[str], list[Use]]] = []

    def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
        self.asked.append((list(texts), list(uses)))
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        vectors[:, 0] = [np.nan if "broken" in text else len(text) for text in texts]
        return vectors


def rows(*texts: str, scope: Scope = ACME) -> pa.Table:
    messages = read_messages(conversation(*texts, scope=scope), Admission(START, NOW)).messages
    facts = DeterministicExtractor().facts_of(messages)
    return facts_to_rows([fact for fact in facts if fact.kind == "turn"])


NOTHING = FACTS.schema.empty_table()


def test_vectors_of_the_built_in_embedder_are_stored_as_zeros_and_computed_for_search() -> None:
    embedder = HashingEmbedder(8)
    made = with_vectors(rows("one", "two"), {}, HOURS, embedder)
    assert made["vector"].to_pylist() == [[0.0] * 8] * 2, "earlier versions expect vectors of this length"
    assert made["embed_model"].to_pylist() == [embedder.name] * 2
    assert vectors_in(made, embedder) == {}
    index = facts_to_index(made, 8)
    assert index["vector"].null_count == 2
    computed = with_computed(index, vectors_of(index, 8), embedder)
    assert computed.tolist() == embedder.embed(["Anna: one", "Anna: two"]).tolist()


def test_vectors_of_other_embedders_keep_the_precision_of_16_bits() -> None:
    source = np.random.default_rng(5)
    exact = source.normal(size=(300, 384)).astype(np.float32)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    texts = [f"text {number}" for number in range(300)]

    class Exact(Embedder):
        def embed(self, texts: Sequence[str], uses: Sequence[Use] = ()) -> NDArray[np.float32]:
            return exact[: len(texts)]

    stored = np.stack(list(embedded({text: Use(ACME, HOURS[0]) for text in texts}, Exact()).values()))
    assert np.array_equal(stored, stored.astype(np.float16))
    assert np.abs(exact @ stored.T - exact @ exact.T).max() < 0.0005


def test_all_agents_share_a_batch_with_the_agent_of_each_text() -> None:
    import pyarrow as pa

    embedder = Embedder()
    made = with_vectors(pa.concat_tables([rows("one", "two"), rows("three", scope=OTHER)]), {}, HOURS, embedder)
    [(texts, uses)] = embedder.asked
    assert texts == ["Anna: one", "Anna: two", "Anna: three"]
    assert uses == [Use(ACME, HOURS[0]), Use(ACME, HOURS[0]), Use(OTHER, HOURS[0])]
    assert [vector[0] for vector in made["vector"].to_pylist()] == [9, 9, 11]
    assert made["embed_model"].to_pylist() == ["e1"] * 3
    assert made.schema.equals(FACTS.schema)


def test_a_text_is_embedded_once_and_not_again() -> None:
    embedder = Embedder()
    made = with_vectors(rows("one", "one", "two"), {}, HOURS, embedder)
    assert embedder.asked[0][0] == ["Anna: one", "Anna: two"]
    again = with_vectors(rows("two", "three", "one"), vectors_in(made, embedder), HOURS, embedder)
    assert embedder.asked[1][0] == ["Anna: three"]
    assert [vector[0] for vector in again["vector"].to_pylist()] == [9, 11, 9]
    with_vectors(again, {}, HOURS, embedder)
    assert len(embedder.asked) == 2


def test_vectors_of_another_embedder_are_recomputed() -> None:
    made = with_vectors(rows("one"), {}, HOURS, Embedder("e1"))
    other = Embedder("e2")
    again = with_vectors(made, vectors_in(made, other), HOURS, other)
    assert other.asked[0][0] == ["Anna: one"]
    assert again["embed_model"].to_pylist() == ["e2"]


def test_failed_texts_have_no_vector_and_are_retried() -> None:
    embedder = Embedder()
    made = with_vectors(rows("one", "broken", "two"), {}, HOURS, embedder)
    assert made["embed_model"].to_pylist() == ["e1", None, "e1"]
    assert made["vector"].to_pylist()[1] is None
    with_vectors(rows("one", "broken", "two"), vectors_in(made, embedder), HOURS, embedder)
    assert embedder.asked[1][0] == ["Anna: broken"]


def test_no_rows_cause_no_request() -> None:
    embedder = Embedder()
    assert with_vectors(NOTHING, {}, HOURS, embedder).num_rows == 0
    assert embedder.asked == []


class Counted:
    """A model of fastembed that records the texts it embeds."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, documents: Sequence[str], batch_size: int = 256) -> Iterator[NDArray[np.float32]]:
        self.asked += documents
        yield from (np.eye(8, dtype=np.float32)[len(text) % 8] for text in documents)


def test_unchanged_texts_are_not_embedded_again_by_a_later_run_or_a_backfill(lake: Lake) -> None:
    model = Counted()
    embedder = LocalEmbedder(Embedding(model="fastembed/any", dimension=8), lambda _: model)
    models = replace(default_models(), embedder=embedder)
    said = [f"I bought {number} apples in Porto." for number in range(20)]
    write(
        lake, *(conversation(*said[day::4], at=f"2024-01-1{day}T08:00", conversation_id=f"c{day}") for day in range(4))
    )
    run(lake, models)
    before = list(model.asked)
    assert all(before.count(f"Anna: {text}") == 1 for text in said)

    def backfill() -> list[str]:
        """Compute all partitions again. Return the texts that were embedded."""
        model.asked.clear()
        run(lake, models)
        for grain in Grain:
            name = "working_facts" if grain is Grain.WORKING else f"{grain}_summaries"
            list(materialize(lake, models, grain, [Period(grain, key) for key in lake.ledger.entries(name)]))
        return list(model.asked)

    assert backfill() == []
    write(lake, conversation("I sold the pears.", at="2024-01-12T08:40", conversation_id="c9"))
    again = backfill()
    assert "Anna: I sold the pears." in again
    assert set(again).isdisjoint(before)
    assert backfill() == []
