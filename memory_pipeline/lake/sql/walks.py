"""The table functions `neighbors` and `paths` of `graph.query`, for the process that runs the SQL.

They walk over the tables ``facts`` and ``entities`` of the query, so they see the same facts. A fact connects its
source and its target in either direction; a kind (``Anna is_a person``) connects nothing, and neither does an alias.
What they return depends only on the tables: a search that is too large stops after a fixed number of steps, not by the
clock.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import KIND, Names
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Maximum steps of a walk.
MAX_DEPTH = 6
#: Maximum rows of a call, one more than a query returns.
MAX_ROWS = 10_001
#: Maximum steps that one call of `paths` tries.
MAX_TRIED = 300_000

#: For each function: its arguments, their defaults, and its columns.
FUNCTIONS = {
    "neighbors": ("name, depth := 1", "id VARCHAR, name VARCHAR, distance INTEGER"),
    "paths": (
        "start, goal, depth := 4",
        "length INTEGER, ids VARCHAR[], names VARCHAR[], facts VARCHAR[], path VARCHAR",
    ),
}


class _Steps(NamedTuple):
    """The steps from an entity to another, sorted by both: their codes, and the newest fact of each step."""

    ends: NDArray[np.int64]
    others: NDArray[np.int64]
    rows: NDArray[np.int64]
    #: Whether the step leads from the source of the fact to its target.
    is_forward: NDArray[np.bool_]


class Walks:
    """The graph of some facts, and walks through it. `is_cut` is set when a walk finds more than it returns."""

    def __init__(self, facts: pa.Table, entities: pa.Table) -> None:
        self._facts = facts
        self._entities = entities
        self.is_cut = False

    def neighbors(self, name: str | None, depth: int | None) -> list[dict[str, Any]]:
        """Return the entities within some steps of one: nearest first, then by id."""
        depth = _checked(depth)
        code = self._code(name)
        if code is None:
            return []
        distances = self._distances(code, depth)
        order = np.argsort(distances, kind="stable")
        order = order[(distances[order] > 0) & (distances[order] <= depth)]
        self.is_cut |= len(order) > MAX_ROWS
        return [
            {"id": self._ids[code], "name": self._spelt[code], "distance": int(distances[code])}
            for code in order[:MAX_ROWS].tolist()
        ]

    def paths(self, start: str | None, goal: str | None, depth: int | None) -> list[dict[str, Any]]:
        """Return the paths between two entities that visit none twice: shortest first, then by ids."""
        depth = _checked(depth)
        first, last = self._code(start), self._code(goal)
        if first is None or last is None:
            return []
        return [self._described(path) for path in self._between(first, last, depth)]

    def _between(self, first: int, last: int, depth: int) -> list[list[int]]:
        distances = self._distances(last, depth)
        nearer: dict[tuple[int, int], list[int]] = {}
        found: list[list[int]] = []
        tried = 0

        def extend(path: list[int], rest: int) -> bool:
            """Add the paths that continue one by exactly `rest` steps; return whether to go on."""
            nonlocal tried
            if not rest:
                found.append(path)
                return len(found) < MAX_ROWS
            if (path[-1], rest) not in nearer:
                others = self._steps.others[self._of(path[-1])]
                nearer[path[-1], rest] = others[distances[others] < rest].tolist()
            for other in nearer[path[-1], rest]:
                tried += 1
                if tried > MAX_TRIED:
                    return False
                if other in path or (other == last) != (rest == 1):
                    continue
                if not extend([*path, other], rest - 1):
                    return False
            return True

        lengths = range(int(distances[first]), 1 if first == last else depth + 1)
        self.is_cut |= not all(extend([first], length) for length in lengths)
        return found

    def _described(self, path: list[int]) -> dict[str, Any]:
        names = [self._spelt[code] for code in path]
        facts, steps = [], names[:1]
        for (here, there), name in zip(pairwise(path), names[1:], strict=True):
            around = self._of(here)
            place = around.start + int(np.searchsorted(self._steps.others[around], there))
            row = int(self._steps.rows[place])
            label = self._facts["label"][row].as_py()
            facts.append(self._facts["id"][row].as_py())
            steps.append(f"-{label}-> {name}" if self._steps.is_forward[place] else f"<-{label}- {name}")
        ids = [self._ids[code] for code in path]
        return {"length": len(path) - 1, "ids": ids, "names": names, "facts": facts, "path": " ".join(steps)}

    def _of(self, code: int) -> slice:
        """Return where the steps from an entity are."""
        begin, end = np.searchsorted(self._steps.ends, [code, code + 1]).tolist()
        return slice(begin, end)

    def _distances(self, code: int, depth: int) -> NDArray[np.int64]:
        """Return the steps from an entity to each; ``depth + 1`` for those beyond `depth`."""
        distances = np.full(len(self._ids), depth + 1)
        distances[code] = 0
        for distance in range(1, depth + 1):
            reached = self._steps.others[distances[self._steps.ends] == distance - 1]
            distances[reached[distances[reached] > depth]] = distance
        return distances

    def _code(self, name: str | None) -> int | None:
        return None if name is None else self._codes.get(self._names.key(name))

    @cached_property
    def _names(self) -> Names:
        named = zip(self._entities["id"].to_pylist(), self._entities["aliases"].to_pylist(), strict=True)
        return Names({alias: name for name, aliases in named for alias in aliases})

    @cached_property
    def _ids(self) -> list[str]:
        """The ids of the entities, sorted; the place of an id is its code."""
        return sorted(set(self._entities["id"].to_pylist()) - self._names.aliases.keys())

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self._ids)}

    @cached_property
    def _spelt(self) -> list[str]:
        spelt = dict(zip(self._entities["id"].to_pylist(), self._entities["name"].to_pylist(), strict=True))
        return [spelt[name] for name in self._ids]

    @cached_property
    def _steps(self) -> _Steps:
        codes = pa.array(self._ids, pa.string())
        sources, targets = (
            pc.fill_null(pc.index_in(self._facts[end], codes), -1).to_numpy().astype(np.int64)
            for end in ("source_id", "target_id")
        )
        is_kind = pc.equal(self._facts["label"], KIND).to_numpy()
        rows = np.flatnonzero((sources >= 0) & (targets >= 0) & (sources != targets) & ~is_kind)
        age = -self._facts["updated_at"].cast(pa.int64()).to_numpy()[rows]
        ends = np.concatenate([sources[rows], targets[rows]])
        others = np.concatenate([targets[rows], sources[rows]])
        order = np.lexsort((np.concatenate([age, age]), others, ends))
        ends, others = ends[order], others[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (ends[1:] != ends[:-1]) | (others[1:] != others[:-1])
        kept = order[is_first]
        return _Steps(ends[is_first], others[is_first], np.concatenate([rows, rows])[kept], kept < len(rows))


def _checked(depth: int | None) -> int:
    if depth is None or not 1 <= depth <= MAX_DEPTH:
        given = "NULL" if depth is None else depth
        raise InputError(f"depth {given} is not accepted; expected 1 to {MAX_DEPTH} steps")
    return depth
