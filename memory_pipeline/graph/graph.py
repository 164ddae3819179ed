"""Query one agent's graph: facts, neighbours and paths."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.domain.graph.triples import Triple
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph.entities import named_in, ranked
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake.codec.graph import rows_to_triples

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import When
    from memory_pipeline.graph.snapshot import GraphSnapshot, Layer
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.sql.session import QueryResult, Session
    from memory_pipeline.overlay import PendingJournal


# What the graph answers.


@dataclass(frozen=True, slots=True)
class GraphFact(Triple):
    """A fact of the graph.

    Attributes:
        since, until: the first day of it, and the day of its end, in the lake's time zone.
        score: how well it fits what was asked; 0 where nothing was.
    """

    since: date
    until: date | None = None
    score: float = 0.0

    @property
    def line(self) -> str:
        """Its terms with its dates: ``Anna lives_in Porto (since 2024-01-15)``."""
        when = f"since {self.since}" if self.until is None else f"{self.since} to {self.until}"
        return f"{self.source} {self.label} {self.target} ({when})"

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ Anna lives_in Porto (since 2024-01-15)``."""
        return mark_lines(self.line)


class Facts(list[GraphFact]):
    """Facts, and how many there are in all.

    Attributes:
        total: how many there are, those too that the limit has left out.
    """

    def __init__(self, facts: Iterable[GraphFact] = (), total: int = 0) -> None:
        super().__init__(facts)
        self.total = total

    def __str__(self) -> str:
        """Return a line for each."""
        return "\n".join(map(str, self))


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that the graph knows.

    Attributes:
        id: its name, as names are compared.
        name: as it was last said.
        aliases: other names for it, as names are compared; sorted.
        facts: how many facts hold of which it is source or target.
        updated_at: when the newest of them was said.
    """

    id: str
    name: str
    aliases: tuple[str, ...]
    facts: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entity that others lead to, and in how many steps."""

    name: str
    distance: int


class Neighbors(list[Neighbor]):
    """Neighbours, nearest first, and how many there are in all (`total`)."""

    def __init__(self, neighbors: Iterable[Neighbor] = (), total: int = 0) -> None:
        super().__init__(neighbors)
        self.total = total


#: Deepest neighbourhood that is walked.
MAX_DEPTH = 6
MAX_FACTS = 10_000
#: Most rings of facts around the entities of a text.
MAX_HOPS = 3


class Graph:
    """What one agent knows, as facts with the time that they hold. It cannot reach another agent's.

    What was written a moment ago is known too. Names are compared without regard to case, and by alias; facts that were
    withdrawn or replaced are told by :meth:`history` and :meth:`query` alone. Safe to use from several threads.

    Args:
        lake: where.
        scope: whose.
        pending: the journal's tail.
    """

    def __init__(self, lake: Lake, scope: Scope, pending: PendingJournal) -> None:
        self._calendar = lake.calendar
        self._state = GraphOverlay(lake, scope, pending)
        self._session: tuple[GraphSnapshot, Session] | None = None

    def entity(self, name: str) -> Entity | None:
        """Return what is known by a name or alias; None if nothing is, or nothing holds of it any more."""
        graph = self._state.snapshot()
        code = graph.code(_name("name", name))
        if code is None or not graph.degrees[code]:
            return None
        [newest] = self._facts(list(graph.around(np.array([code]))), 1)
        own = graph.codes.name(code)
        aliases = tuple(sorted(alias for alias, other in graph.names.aliases.items() if other == own))
        [name] = graph.spelt([code])
        return Entity(own, name, aliases, int(graph.degrees[code]), newest.updated_at)

    def facts(self, *, limit: int = 100) -> Facts:
        """Return the facts that hold, newest first.

        Args:
            limit: how many at most, up to 10,000; `total` tells how many there are.

        Raises:
            InputError: an argument is not accepted.
        """
        _count("limit", limit, MAX_FACTS)
        graph = self._state.snapshot()
        return self._facts(
            [(layer, graph.visible(at, np.arange(len(layer)))) for at, layer in enumerate(graph.layers)], limit
        )

    def fact(self, id: str) -> GraphFact | None:  # noqa: A002  # the name that every store gives it
        """Return a fact by its id, also one that has ended; None if there is none."""
        rows = self._state.snapshot().history
        wanted = pa.scalar(str(id).encode(errors="replace").decode())
        found = rows_to_triples(rows.filter(pc.equal(rows["id"], wanted)))
        return self._fact(found[0]) if found else None

    def facts_about(self, name: str, *, limit: int = 100, at: When | None = None) -> Facts:
        """Return the facts of which an entity is source or target, newest first.

        Args:
            name: the entity, or an alias of it.
            limit: how many at most, up to 10,000; `total` tells how many there are.
            at: a time; the facts that held then, as far as it is known now. Those that hold if not given.

        Raises:
            InputError: an argument is not accepted.
        """
        _count("limit", limit, MAX_FACTS)
        instant = None if at is None else self._calendar.moment("at", at)
        graph = self._state.snapshot()
        code = graph.code(_name("name", name))
        if code is None:
            return Facts()
        parts = list(graph.around(np.array([code]), only_holding=at is None))
        if instant is not None:
            parts = [(layer, layer.held_at(rows, instant)) for layer, rows in parts]
        return self._facts(parts, limit)

    def history(self, subject: str, predicate: str | None = None, *, limit: int = 100) -> Facts:
        """Return all facts with a subject, those too that have ended, in the order in which they began.

        Args:
            subject: the entity, or an alias of it.
            predicate: only facts with this one.
            limit: how many at most, up to 10,000; the last ones.

        Raises:
            InputError: an argument is not accepted.
        """
        _count("limit", limit, MAX_FACTS)
        label = None if predicate is None else snake_case(_name("predicate", predicate))
        graph = self._state.snapshot()
        code = graph.code(_name("subject", subject))
        if code is None:
            return Facts()
        parts = []
        for place, layer in enumerate(graph.layers):
            rows = graph.visible(place, layer.rows_of(np.array([code]), 0), only_holding=False)
            if label is not None:
                same = pc.equal(layer.rows["label"].take(pa.array(rows)), label)
                rows = rows[same.to_numpy(zero_copy_only=False).astype(np.bool_)]
            parts.append((layer, rows))
        facts = self._facts(parts, limit, by="valid_from")
        return Facts(sorted(facts, key=lambda fact: (fact.valid_from, fact.id)), facts.total)

    def neighbors(self, name: str, depth: int = 1, *, limit: int = 1_000) -> Neighbors:
        """Return the entities that facts lead to from one, in either direction, nearest first, then by id.

        A kind (``Anna is_a person``) is no neighbour, and leads to none: else all things of a kind would be neighbours.

        Args:
            name: where to begin: an entity, or an alias of it.
            depth: steps, 1 to 6.
            limit: how many at most, up to 10,000.

        Raises:
            InputError: an argument is not accepted.
        """
        graph = self._state.snapshot()
        _count("depth", depth, MAX_DEPTH)
        _count("limit", limit, MAX_FACTS)
        code = graph.code(_name("name", name))
        if code is None:
            return Neighbors()
        seen = np.zeros(len(graph.codes), np.bool_)
        frontier = np.array([code])
        seen[frontier] = True
        seen[graph.alias_codes] = True
        found: list[Neighbor] = []
        total = 0
        for distance in range(1, depth + 1):
            is_new = np.zeros(len(seen), np.bool_)
            is_new[graph.led_to(frontier)] = True
            frontier = np.flatnonzero(is_new & ~seen)
            if not len(frontier):
                break
            seen |= is_new
            total += len(frontier)
            nearest = nsmallest(limit - len(found), frontier.tolist(), key=graph.codes.name)
            found += [Neighbor(name, distance) for name in graph.spelt(nearest)]
        return Neighbors(found, total)

    def search(
        self,
        prompt: str,
        limit: int = 10,
        *,
        speaker: str | None = None,
        names: Iterable[str] | None = None,
        hops: int = 1,
        at: When | None = None,
        now: When | None = None,
    ) -> Facts:
        """Return the facts around the entities that a text names which fit it best.

        Args:
            prompt: the text.
            limit: how many at most, up to 10,000; `total` tells how many facts there are of these entities.
            speaker: who says it: what "I" means. ``User`` if not given.
            names: what the text names, if a model has said so.
            hops: how far around: 1 for the facts of these entities, 2 for those too of what these lead to, up to 3; 0
                for none.
            at: a time; the facts that held then. Those that hold if not given.
            now: the time from which the age of a fact counts; the clock's if not given.

        Raises:
            InputError: an argument is not accepted.
        """
        _count("limit", limit, MAX_FACTS)
        if not isinstance(prompt, str):
            raise InputError(f"prompt {shown(prompt)} is not a text")
        if names is not None:
            names = list(names)
            if not all(isinstance(name, str) for name in names):
                raise InputError(f"names {shown(names)} is not accepted; expected texts")
        if speaker is not None:
            _name("speaker", speaker)
        _count("hops", hops, MAX_HOPS, least=0)
        instant = self._calendar.moment("now", datetime.now(UTC) if now is None else now)
        held = None if at is None else self._calendar.moment("at", at)
        graph = self._state.snapshot()
        codes = named_in(graph, prompt, speaker=speaker, names=names)
        if not codes:
            return Facts()
        best, total = ranked(graph, codes, prompt, limit, hops, int(instant.timestamp() * 1e6), held)
        return Facts(
            (self._fact(rows_to_triples(layer.rows.slice(row, 1))[0], score) for layer, row, score in best), total
        )

    def query(self, sql: str, *, max_rows: int = 100, max_seconds: float = 5.0) -> QueryResult:
        """Return what a SELECT over the graph returns. It can read nothing else and change nothing.

        Tables are ``facts`` (what holds), ``history`` (that, and what has ended) and ``entities``; their columns are
        those of ``graph_facts``, and id, name, aliases, facts, first_seen, last_seen.

        Args:
            sql: one statement in DuckDB's SQL.
            max_rows: rows that are returned; `is_cut` tells whether there were more.
            max_seconds: how long it may take.

        Raises:
            InputError: the statement is not accepted, fails, or takes too long.
        """
        graph = self._state.snapshot()
        from memory_pipeline.lake.sql.session import Session  # costs the import of DuckDB

        if self._session is None or self._session[0] is not graph:
            tables = {"facts": graph.facts, "history": graph.history, "entities": graph.entities}
            self._session = graph, Session(tables)
        return self._session[1].ask(sql, max_rows=max_rows, max_seconds=max_seconds)

    def export(self, file: Path) -> int:
        """Write all facts, those too that have ended, as one Parquet file; return how many.

        Raises:
            InputError: the file cannot be written.
        """
        rows = self._state.snapshot().history
        try:
            pq.write_table(rows, file, compression="zstd")
        except OSError as error:
            raise InputError(f"file {file} cannot be written: {error.strerror or error}; name another") from None
        return int(rows.num_rows)

    def knows(self, name: str, argument: str = "name") -> bool:
        """Tell whether anything was ever said of a name.

        Raises:
            InputError: it is no name; the message calls it `argument`.
        """
        return self._state.snapshot().code(_name(argument, name)) is not None

    def _facts(
        self,
        parts: list[tuple[Layer, NDArray[np.int64]]],
        limit: int,
        by: Literal["updated_at", "valid_from"] = "updated_at",
    ) -> Facts:
        """Return the newest of some rows, by a column of times; of equals those whose ids come first."""
        found: list[GraphFact] = []
        for layer, rows in parts:
            newest = layer.newest_of(rows, by, limit)
            found += [self._fact(triple) for triple in rows_to_triples(layer.rows.take(pa.array(newest)))]
        found.sort(key=lambda fact: fact.id)
        found.sort(key=attrgetter(by), reverse=True)
        return Facts(found[:limit], sum(len(rows) for _, rows in parts))

    def _fact(self, triple: Triple, score: float = 0.0) -> GraphFact:
        return GraphFact(
            **{name: getattr(triple, name) for name in Triple.__dataclass_fields__},
            since=self._calendar.day_of(triple.valid_from),
            until=None if triple.valid_to is None else self._calendar.day_of(triple.valid_to),
            score=round(score, 4),
        )


def _name(argument: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TERM:
        raise InputError(f"{argument} {shown(value)} is not accepted; expected a name of 1 to {MAX_TERM} characters")
    return value


def _count(argument: str, value: object, most: int, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{argument} {shown(value)} is not accepted; expected {least} to {most:,}")
