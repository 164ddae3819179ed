"""Marks are read once, raised in one commit, never lowered, and applied to many rows at once."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import EXPIRATIONS
from memory_pipeline.lake.tables.tombstones import ExpirationMarks, raise_marks

NOON, LATER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 2, 12, tzinfo=UTC)
ACME = Scope("acme", "support")
HOURS = [f"2024-01-15T{hour:02}" for hour in range(24)]


def rows(*found: tuple[str, str, str]) -> pa.Table:
    return pa.table([pa.array(column, pa.string()) for column in zip(*found, strict=True)] if found else
                    [pa.array([], pa.string())] * 3, names=["workspace_id", "agent_id", "period"])  # fmt: skip


def test_a_lake_without_expired_rows_has_no_marks(lake: Lake) -> None:
    marks = ExpirationMarks.of(lake.tables)
    assert not marks
    assert list(marks) == []
    assert marks.through(ACME, RetentionClass.FACTS) is None
    assert marks.mask(rows(("acme", "support", HOURS[0])), RetentionClass.FACTS).tolist() == [False]
    assert lake.tables.version(EXPIRATIONS) == -1
    assert raise_marks(lake.tables, {}, NOON) == 0
    assert lake.tables.version(EXPIRATIONS) == -1


@pytest.mark.on_s3
def test_marks_are_raised_in_one_commit_and_never_lowered(lake: Lake) -> None:
    first = {
        ("acme", "support", RetentionClass.FACTS): HOURS[5],
        ("acme", "support", RetentionClass.DAILY): "2024-01-14",
        ("beta", "support", RetentionClass.FACTS): HOURS[3],
    }
    assert raise_marks(lake.tables, first, NOON) == 3
    version = lake.tables.version(EXPIRATIONS)
    second = {("acme", "support", RetentionClass.FACTS): HOURS[4], ("beta", "support", RetentionClass.FACTS): HOURS[6]}
    assert raise_marks(lake.tables, second, LATER) == 1
    assert lake.tables.version(EXPIRATIONS) == version + 1
    assert raise_marks(lake.tables, {**first, **second}, LATER) == 0
    assert lake.tables.version(EXPIRATIONS) == version + 1
    marks = ExpirationMarks.of(lake.tables)
    assert marks
    assert set(marks) == {
        (ACME, "facts", HOURS[5]),
        (ACME, "daily", "2024-01-14"),
        (Scope("beta", "support"), "facts", HOURS[6]),
    }
    assert marks.through(ACME, RetentionClass.DAILY) == "2024-01-14"
    assert marks.through(ACME, RetentionClass.WEEKLY) is None
    assert marks.through(Scope("beta", "sales"), RetentionClass.FACTS) is None
    times = {(row["workspace_id"], row["kept"]): row["at"] for row in lake.tables.read(EXPIRATIONS).to_pylist()}
    assert times == {("acme", "facts"): NOON, ("acme", "daily"): NOON, ("beta", "facts"): LATER}


@pytest.mark.parametrize("chunks", [1, 3])
def test_rows_up_to_the_mark_of_their_agent_are_expired(chunks: int) -> None:
    marks = ExpirationMarks(
        {(ACME, RetentionClass.FACTS): HOURS[5], (Scope("acme", "sales"), RetentionClass.FACTS): HOURS[7]}
    )
    table = rows(
        ("acme", "support", HOURS[5]),
        ("acme", "support", HOURS[6]),
        ("acme", "sales", HOURS[6]),
        ("acme", "other", HOURS[0]),
        ("beta", "support", HOURS[0]),
        ("acme", "sales", HOURS[8]),
    )
    size = table.num_rows // chunks
    table = pa.concat_tables(table.slice(start, size) for start in range(0, table.num_rows, size))
    assert marks.mask(table, RetentionClass.FACTS).tolist() == [True, False, True, False, False, False]
    assert not marks.mask(table, RetentionClass.CONVERSATIONS).any()
    assert not marks.mask(rows(), RetentionClass.FACTS).any()


_agents = st.sampled_from([ACME, Scope("acme", "sales"), Scope("acme.support", "a"), Scope("acme", "support.a")])


@given(
    st.dictionaries(
        st.tuples(_agents, st.sampled_from([RetentionClass.FACTS, RetentionClass.GRAPH])), st.sampled_from(HOURS)
    ),
    st.lists(st.tuples(_agents, st.sampled_from(HOURS)), min_size=1),
)
def test_the_mask_matches_the_mark_of_each_rows_agent(
    through: dict[tuple[Scope, str], str], found: list[tuple[Scope, str]]
) -> None:
    marks = ExpirationMarks(through)
    table = rows(*((scope.workspace_id, scope.agent_id, key) for scope, key in found))
    for kept in (RetentionClass.FACTS, RetentionClass.GRAPH):
        expected = [(mark := marks.through(scope, kept)) is not None and key <= mark for scope, key in found]
        assert marks.mask(table, kept).tolist() == expected
