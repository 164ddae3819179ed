"""The graph of a scope at one moment: the pipeline's table, overlaid with pending changes.

Pending operations are folded together with the stored ones on the same sources and labels. The resulting facts are in a
second, small layer, and the facts they replace are masked.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import KIND, name_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.graph.triples import Names


_ENDS = ("source_id", "target_id")


class Codes:
    """Integer codes of entities: 0, 1, …. An upper layer continues the codes of the layer below."""

    def __init__(self, below: Codes | None = None) -> None:
        self._below = below
        self._first = 0 if below is None else len(below)
        self._codes: dict[str, int] = {}
        self._names: list[str] = []
        self._array: pa.Array | None = None

    def __len__(self) -> int:
        return self._first + len(self._names)

    def get(self, name: str) -> int | None:
        """Return the code of a name, or None."""
        found = None if self._below is None else self._below.get(name)
        return self._codes.get(name) if found is None else found

    def name(self, code: int) -> str:
        """Return the name of a code."""
        if self._below is not None and code < self._first:
            return self._below.name(code)
        return self._names[code - self._first]

    def holding(self, text: str) -> list[int]:
        """Return the codes of the names that contain a text."""
        if self._array is None or len(self._array) != len(self._names):
            self._array = pa.array(self._names, pa.string())
        matches = np.flatnonzero(pc.match_substring(self._array, text).to_numpy(zero_copy_only=False))
        return [*(() if self._below is None else self._below.holding(text)), *(matches + self._first).tolist()]

    def of(self, column: pa.ChunkedArray) -> NDArray[np.int64]:
        """Return the codes of a column of names; new names get new codes."""
        encoded = column.combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if self._below is None and not self._names:
            self._names, self._codes = names, {name: code for code, name in enumerate(names)}
            codes = np.arange(len(names))
        else:
            codes = np.array([self._code(name) for name in names], np.int64)
        numbers: NDArray[np.int64] = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return numbers

    def _code(self, name: str) -> int:
        found = self.get(name)
        if found is None:
            found = self._codes[name] = len(self)
            self._names.append(name)
        return found


class Layer:
    """Facts of one scope, as rows of ``graph_facts``.

    Attributes:
        codes: the codes of this layer and of those below.
        identity: of the scope.
        ends: codes of each row's source and target.
        holds: whether a row is valid now, without regard to masking by another layer.
        updated_at: microseconds since 1970, by row.
    """

    def __init__(self, rows: pa.Table, codes: Codes, identity: str = "") -> None:
        self.codes = codes
        self.identity = identity
        self.rows = rows.combine_chunks()
        both = pa.chunked_array([*self.rows[_ENDS[0]].chunks, *self.rows[_ENDS[1]].chunks], pa.string())
        numbers = codes.of(both)
        self.ends = (numbers[: len(self)], numbers[len(self) :])
        self.holds: NDArray[np.bool_] = pc.is_null(self.rows["valid_to"]).to_numpy().astype(np.bool_)
        self.updated_at: NDArray[np.int64] = self.rows["updated_at"].cast(pa.int64()).to_numpy()
        self._order = tuple(np.argsort(numbers, kind="stable") for numbers in self.ends)
        self._sorted = tuple(numbers[order] for numbers, order in zip(self.ends, self._order, strict=True))

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def rows_of(self, codes: NDArray[np.int64], end: int) -> NDArray[np.int64]:
        """Return the rows with a source (end 0) or target (end 1) among `codes`."""
        first = np.searchsorted(self._sorted[end], codes, "left")
        counts = np.searchsorted(self._sorted[end], codes, "right") - first
        total = int(counts.sum())
        within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        found: NDArray[np.int64] = self._order[end][np.repeat(first, counts) + within]
        return found

    def newest(self, code: int, end: int) -> int | None:
        """Return the row last stated with a source (end 0) or target (end 1), or None."""
        row = self._newest[end][code] if code < len(self._newest[end]) else -1
        return None if row < 0 else int(row)

    @cached_property
    def leads(self) -> NDArray[np.bool_]:
        """Mask of the rows that relate source and target; a kind (``is_a``) does not."""
        related: NDArray[np.bool_] = pc.not_equal(self.rows["label"], KIND).to_numpy(zero_copy_only=False)
        return related

    @cached_property
    def _valid_from(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self.rows["valid_from"].cast(pa.int64()).to_numpy()
        return times

    @cached_property
    def _newest(self) -> list[NDArray[np.int64]]:
        order = np.argsort(self.updated_at, kind="stable")
        found = []
        for numbers in self.ends:
            rows = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
            rows[numbers[order]] = order  # the last of several assignments stays
            found.append(rows)
        return found

    def newest_of(
        self, rows: NDArray[np.int64], by: Literal["updated_at", "valid_from"], limit: int
    ) -> NDArray[np.int64]:
        """Return the `limit` newest of some rows by a time column, then by id."""
        times = (self.updated_at if by == "updated_at" else self._valid_from)[rows]
        if len(rows) > limit:
            least = np.partition(times, len(rows) - limit)[len(rows) - limit]
            rows, times = rows[times >= least], times[times >= least]
        ids = self.rows["id"].take(pa.array(rows)).to_pylist()
        order = sorted(range(len(rows)), key=lambda place: (-times[place], ids[place]))[:limit]
        newest: NDArray[np.int64] = rows[np.array(order, np.int64)]
        return newest

    def held_at(self, rows: NDArray[np.int64], instant: datetime) -> NDArray[np.int64]:
        """Return the rows that are valid at an instant; the start of a fact is included, its end is not."""
        times = self.rows.select(["valid_from", "valid_to"]).take(pa.array(rows))
        moment = pa.scalar(instant, times["valid_from"].type)
        begun = pc.less_equal(times["valid_from"], moment)
        not_ended = pc.fill_null(pc.greater(times["valid_to"], moment), True)  # null: no end
        valid: NDArray[np.int64] = rows[pc.and_(begun, not_ended).to_numpy(zero_copy_only=False).astype(np.bool_)]
        return valid

    def touching(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows with one of `codes` at either end, without duplicates, ascending."""
        return np.unique(np.concatenate([self.rows_of(codes, 0), self.rows_of(codes, 1)]))

    def degrees(self, count: int) -> NDArray[np.int64]:
        """Return the number of valid facts of each of `count` entities."""
        return self.counted(np.flatnonzero(self.holds), count)

    def counted(self, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the number of given rows by entity; a row with one at both ends counts once."""
        sources, targets = (ends[rows] for ends in self.ends)
        counts: NDArray[np.int64] = np.bincount(sources, minlength=count)
        return counts + np.bincount(targets[targets != sources], minlength=count)


_SPELLINGS = ("source", "target")
_TIME = pa.timestamp("us", tz="UTC")


class GraphSnapshot:
    """All facts of a graph, including ended ones.

    `rows` of ``graph_facts`` replace those of `below` on the sources and labels `replaced`, as ids. `identity` is that
    of the scope.

    Attributes:
        layers: see :class:`Layer`.
        hidden: for each layer, the rows that another layer replaces.
        holds_one: returns whether a predicate is single-valued; None if no two scopes are joined.
    """

    holds_one: Callable[[str], bool] | None = None

    def __init__(
        self,
        rows: pa.Table,
        names: Names,
        below: GraphSnapshot | None = None,
        replaced: Collection[tuple[str, str]] = (),
        identity: str = "",
    ) -> None:
        self.codes: Codes = Codes(None if below is None else below.codes)
        layer = Layer(rows, self.codes, identity)
        self.names = names
        self.layers = [layer]
        self.hidden = [np.empty(0, np.int64)]
        if below is not None:
            [base] = below.layers
            self.layers = [base, layer]
            self.hidden.insert(0, _rows_on(base, below.codes, replaced))

    def code(self, name: str) -> int | None:
        """Return the code of the entity with a name or alias, or None."""
        return self.codes.get(self.names.key(name))

    def visible(self, layer: int, rows: NDArray[np.int64], *, only_holding: bool = True) -> NDArray[np.int64]:
        """Return the rows of a layer that no other layer replaces; by default only valid facts."""
        hidden = self.hidden[layer]
        if len(hidden):
            rows = rows[~np.isin(rows, hidden)]
        return rows[self.layers[layer].holds[rows]] if only_holding else rows

    def around(
        self, codes: NDArray[np.int64], *, only_holding: bool = True
    ) -> Iterator[tuple[Layer, NDArray[np.int64]]]:
        """Yield each layer with its rows that have one of `codes` at either end."""
        for place, layer in enumerate(self.layers):
            yield layer, self.visible(place, layer.touching(codes), only_holding=only_holding)

    def connected_to(self, codes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entities that facts connect to some, with duplicates."""
        found = []
        for place, layer in enumerate(self.layers):
            for end in (0, 1):
                rows = self.visible(place, layer.rows_of(codes, end))
                found.append(layer.ends[1 - end][rows[layer.leads[rows]]])
        return np.concatenate(found)

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Number of valid facts of each entity."""
        count = len(self.codes)
        total = np.zeros(count, np.int64)
        for layer, hidden in zip(self.layers, self.hidden, strict=True):
            total += layer.degrees(count)
            if len(hidden):
                total -= layer.counted(hidden[layer.holds[hidden]], count)
        return total

    def spelt(self, codes: Iterable[int]) -> list[str]:
        """Return the newest spelling of each entity's name; aliases are ignored."""
        others = set(self.names.aliases.values())
        return [
            next((name for name in self._spellings(code) if key not in others or name_key(name) == key), key)
            for code in codes
            for key in [self.codes.name(code)]
        ]

    def _spellings(self, code: int) -> Iterator[str]:
        """Yield the newest spelling of an entity, then all others."""
        newest = []
        for place, layer in enumerate(self.layers):
            for end in (0, 1):
                row = layer.newest(code, end)
                if row is not None and row in self._hidden_rows[place]:
                    rows = self.visible(place, layer.rows_of(np.array([code]), end), only_holding=False)
                    row = int(rows[np.argmax(layer.updated_at[rows])]) if len(rows) else None
                if row is not None:
                    newest.append((int(layer.updated_at[row]), end == 0, layer.rows[_SPELLINGS[end]][row].as_py()))
        for *_, name in sorted(newest, reverse=True):
            yield name
        for place, layer in enumerate(self.layers):
            for end, column in enumerate(_SPELLINGS):
                rows = self.visible(place, layer.rows_of(np.array([code]), end), only_holding=False)
                yield from sorted(pc.unique(layer.rows[column].take(pa.array(rows))).to_pylist())

    @cached_property
    def _hidden_rows(self) -> list[frozenset[int]]:
        return [frozenset(hidden.tolist()) for hidden in self.hidden]

    @cached_property
    def alias_codes(self) -> NDArray[np.int64]:
        """Codes of names that are aliases."""
        codes = [code for alias in self.names.aliases if (code := self.codes.get(alias)) is not None]
        return np.array(codes, np.int64)

    @cached_property
    def history(self) -> pa.Table:
        """All facts as one table, with the identity of their scope."""
        found = []
        for layer, hidden in zip(self.layers, self.hidden, strict=True):
            rows = layer.rows.append_column("identity", pa.repeat(layer.identity, len(layer)))
            if len(hidden):
                mask = np.ones(len(layer), np.bool_)
                mask[hidden] = False
                rows = rows.filter(pa.array(mask))
            found.append(rows)
        return pa.concat_tables(found)

    @cached_property
    def facts(self) -> pa.Table:
        """The valid facts, as one table."""
        return self.history.filter(pc.is_null(self.history["valid_to"]))

    @cached_property
    def entities(self) -> pa.Table:
        """All entities with valid facts: id, name, aliases, facts, first_seen, last_seen."""
        facts = self.facts
        others = facts.filter(pc.not_equal(facts["source_id"], facts["target_id"]))
        ends = pa.concat_tables(
            part.select([f"{end}_id", end, "valid_from", "updated_at"]).rename_columns(
                ["id", "name", "first_seen", "last_seen"]
            )
            for part, end in ((facts, "source"), (others, "target"))
        )
        grouped = (
            ends.sort_by("last_seen")
            .group_by("id", use_threads=False)
            .aggregate([("name", "last"), ("first_seen", "min"), ("last_seen", "max"), ("id", "count")])
        )
        aliases: dict[str, list[str]] = {}
        for alias, name in self.names.aliases.items():
            aliases.setdefault(name, []).append(alias)
        ids = grouped["id"].to_pylist()
        names = grouped["name_last"].to_pylist()
        for place in [place for place, name in enumerate(ids) if name in aliases]:
            [names[place]] = self.spelt([code for code in [self.codes.get(ids[place])] if code is not None])
        return pa.table(
            {
                "id": grouped["id"],
                "name": pa.array(names, pa.string()),
                "aliases": pa.array([sorted(aliases.get(one, ())) for one in ids], pa.list_(pa.string())),
                "facts": grouped["id_count"],
                "first_seen": grouped["first_seen_min"].cast(_TIME),
                "last_seen": grouped["last_seen_max"].cast(_TIME),
            }
        )


def _rows_on(layer: Layer, codes: Codes, groups: Collection[tuple[str, str]]) -> NDArray[np.int64]:
    found = [np.empty(0, np.int64)]
    for source_id, label in groups:
        code = codes.get(source_id)
        if code is not None:
            rows = layer.rows_of(np.array([code]), 0)
            labels = layer.rows["label"].take(pa.array(rows))
            found.append(rows[pc.equal(labels, label).to_numpy(zero_copy_only=False).astype(np.bool_)])
    return np.concatenate(found)
