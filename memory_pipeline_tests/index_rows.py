"""Index rows for tests: facts and summaries with all columns, without a lake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.lake import Lake
from memory_pipeline.lake.codec.codec import scope_columns
from memory_pipeline.lake.index import shard_tables
from memory_pipeline.lake.index.index_rows import fact_terms, index_schema
from memory_pipeline.lake.layout import PROJECTIONS, SHARDS, scope_table, shard_of, shard_table
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.search.row_block import RowBlock
from memory_pipeline_tests.building import ACME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pytest

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.index.vector_index import VectorIndex

Row = dict[str, Any]

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)
DIMENSION = 8


def axis(number: int, dimension: int = DIMENSION) -> list[float]:
    """Return a unit vector along one axis."""
    return [float(place == number % dimension) for place in range(dimension)]


def fact(
    content: str,
    minute: float = 0,
    *,
    id: str | None = None,  # noqa: A002  # the column's name
    conversation: str = "c",
    turn: int = 0,
    position: int = 0,
    kind: str = "turn",
    speaker: str | None = "Anna",
    role: str = "user",
    importance: float = 0.5,
    entities: Sequence[str] = (),
    tags: Sequence[str] = (),
    sources: Sequence[str] | None = None,
    mentioned: datetime | None = None,
    vector: Sequence[float] | None = None,
) -> Row:
    """Return a fact at `minute` minutes after noon, by default from a separate message."""
    at = NOON + timedelta(minutes=minute)
    own = id or f"{conversation}:{minute}:{turn}:{position}:{content}"
    return {
        "id": own,
        "period": f"{at:%Y-%m-%dT%H}",
        "kind": kind,
        "content": content,
        "terms": fact_terms(content, at, mentioned),
        "starts_at": at,
        "ends_at": at,
        "mentioned_at": mentioned,
        "entities": list(entities),
        "importance": importance,
        "conversation_id": conversation,
        "speaker": speaker,
        "role": role,
        "turn": turn,
        "position": position,
        "tags": list(tags),
        "source_ids": [f"message of {own}"] if sources is None else list(sources),
        "digest": "d",
        "embed_model": None if vector is None else "test",
        "vector": vector,
    }


def summary(content: str, day: int = 15, *, importance: float = 0.5, vector: Sequence[float] | None = None) -> Row:
    """Return the summary of a day of January 2024, without speaker and conversation."""
    start = datetime(2024, 1, day, tzinfo=UTC)
    own = fact(content, importance=importance, vector=vector, id=f"daily:{day}:{content}")
    return own | {
        "period": f"{start:%Y-%m-%d}",
        "kind": "summary",
        "terms": terms(content),
        "starts_at": start,
        "ends_at": start + timedelta(days=1),
        "conversation_id": None,
        "speaker": None,
        "turn": None,
        "position": None,
    }


def table(rows: Iterable[Row], dimension: int = DIMENSION) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=index_schema(dimension))


def segment(rows: Iterable[Row], dimension: int = DIMENSION) -> RowBlock:
    return RowBlock.of(table(rows, dimension), dimension)


class Embedder:
    """Returns the given vector for every text; NaN without one."""

    name = "test"

    def __init__(self, vector: Sequence[float] | None = None, dimension: int = DIMENSION) -> None:
        self.dimension = dimension
        self._vector = [float("nan")] * dimension if vector is None else vector

    def embed(self, texts: Sequence[str], uses: Sequence[Any] = ()) -> Any:
        import numpy as np

        return np.array([self._vector] * len(texts), np.float32).reshape(-1, self.dimension)


def by_period(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["period"], []).append(row)
    return found


def scoped(scope: Scope, rows: Iterable[Row], dimension: int = DIMENSION) -> dict[Scope, pa.Table]:
    return {scope: table(rows, dimension)}


def put_rows(index: VectorIndex, grain: Grain, periods: Collection[Period], rows: Mapping[Scope, pa.Table]) -> set[str]:
    """Replace the rows of `periods` in the index of each scope. Return the periods that were written."""
    parts = [_of_scope(own, scope, grain) for scope, own in rows.items()]
    return index.replace(grain, periods, pa.concat_tables(parts), list(rows))


def _of_scope(rows: pa.Table, scope: Scope, grain: Grain) -> pa.Table:
    columns = {
        **scope_columns([scope] * rows.num_rows),
        "grain": [str(grain)] * rows.num_rows,
    }
    if scope != ACME:  # an id belongs to one scope
        columns["id"] = [f"{scope.key}:{identifier}" for identifier in rows["id"].to_pylist()]
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.array(values, pa.string()))
    return rows


def give_own_table(root: str | Path, scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move the index rows of a scope to a table of its own, as if it had many rows."""
    monkeypatch.setattr(shard_tables, "LARGE_FROM", 1)
    index = Lake(str(root)).index
    name, dimension = index.embedder() or ("", 8)
    if name == (builtin := HashingEmbedder(dimension)).name:
        index.check(builtin)
    rows = index.read([scope], None, "grain = 'working'")
    index.replace(Grain.WORKING, [Period(Grain.WORKING, key) for key in set(rows["period"].to_pylist())], rows, [scope])
    assert index.is_large(scope)


def index_folder(root: str | Path, scope: Scope, *, is_large: bool = False) -> Path:
    """Return the folder of the index table that has a scope's rows."""
    table = scope_table("index", scope.key, SHARDS) if is_large else shard_table("index", shard_of(scope.key, SHARDS))
    return Path(root, PROJECTIONS, f"{table}.lance")


def older(through: str, workspace_id: str = "acme", grain: str = "working") -> str:
    """Return the condition on the rows of a workspace and grain, of periods up to `through`."""
    return f"grain = '{grain}' AND workspace_id = '{workspace_id}' AND period <= '{through}'"
