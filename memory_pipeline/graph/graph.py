"""Query a graph: facts, neighbours and paths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memory_pipeline.domain.attributes import Attributes, labels_of_attributes
from memory_pipeline.domain.authority import Authority, authority_of
from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.domain.graph.triples import Triple
from memory_pipeline.domain.identity import EDIT
from memory_pipeline.domain.messages import metadata_of
from memory_pipeline.domain.scopes import optional_label, user_identity
from memory_pipeline.domain.text.recalled_text import mark_lines
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph.entities import named_in, ranked, related_in, says_i
from memory_pipeline.lake.codec.graph import rows_to_triples
from memory_pipeline.parameters import Within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from numpy.typing import NDArray

    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.graph.snapshot import GraphSnapshot, Layer
    from memory_pipeline.graph.state import GraphOverlay, JoinedGraphs
    from memory_pipeline.lake.sql.session import QueryResult, Session


@dataclass(frozen=True, slots=True)
class GraphFact(Triple):
    """A fact of the graph.

    `since` and `until` are the days it began and ended, in the lake's time zone. `score` is the relevance to the
    search, or 0. `identity` is the user or group whose memory it is from: ``user:`` or ``group:`` and an id; empty for
    the agent's own memory. `said_by` is who said it last, to the user of the reader. `attributes` are those of the
    messages that assert it, if they were asked for.
    """

    since: date
    until: date | None = None
    score: float = 0.0
    identity: str = ""
    said_by: Authority = Authority.USER
    attributes: Attributes | None = None

    @property
    def when(self) -> str:
        """The time in which it held: ``since 2024-01-15``, or ``2024-01-15 to 2024-03-01``."""
        return f"since {self.since}" if self.until is None else f"{self.since} to {self.until}"

    @property
    def line(self) -> str:
        """The terms with the dates: ``Anna lives_in Porto (since 2024-01-15)``."""
        return f"{self.source} {self.label} {self.target} ({self.when})"

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ Anna lives_in Porto (since 2024-01-15)``."""
        return mark_lines(self.line)


class Facts(list[GraphFact]):
    """Facts up to a limit; `total` is the number without the limit."""

    def __init__(self, facts: Iterable[GraphFact] = (), total: int = 0) -> None:
        super().__init__(facts)
        self.total = total

    def __str__(self) -> str:
        return "\n".join(map(str, self))


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of the graph.

    Attributes:
        id: the name in its compared form.
        name: the name in its newest spelling.
        aliases: other names in their compared form, sorted.
        facts: number of current facts with this entity as source or target.
        updated_at: when the newest of these facts was stated.
        attributes: of the messages that assert these facts, if they were asked for.
    """

    id: str
    name: str
    aliases: tuple[str, ...]
    facts: int
    updated_at: datetime
    attributes: Attributes | None = None


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entity that facts connect to another one, in `distance` steps.

    `attributes` are those of the messages that assert its valid facts, if they were asked for.
    """

    name: str
    distance: int
    attributes: Attributes | None = None


class NamedEntities(NamedTuple):
    """The names of the entities in a text: as such, by a relation ("my son"), and of who says it."""

    named: list[str]
    related: list[str]
    own: list[str]


class Neighbors(list[Neighbor]):
    """Neighbours up to a limit, nearest first; `total` is the number without the limit."""

    def __init__(self, neighbors: Iterable[Neighbor] = (), total: int = 0) -> None:
        super().__init__(neighbors)
        self.total = total


#: Maximum steps of :meth:`Graph.neighbors`.
MAX_DEPTH = 6
MAX_FACTS = 10_000
#: Maximum hops of :meth:`Graph.search`.
MAX_HOPS = 3
FactCount = Annotated[int, Within(1, MAX_FACTS)]


class Graph:
    """One agent's knowledge as facts, each with the time in which it is valid.

    New changes are visible at once. Names are compared without regard to case, and by alias. Only :meth:`history` and
    :meth:`query` return facts that were withdrawn or replaced. Every `limit` is 1 to 10,000; `total` of the result is
    the number without it. Safe to use from several threads.

    It is the graph of one scope, or of several. Of two values of a single-valued predicate in two scopes, the newer is
    first.
    """

    _session: tuple[GraphSnapshot, Session] | None = None

    def __init__(self, state: GraphOverlay | JoinedGraphs, calendar: Calendar) -> None:
        self._state = state
        self._calendar = calendar

    def entity(self, name: str, *, attributes: bool = False) -> Entity | None:
        """Return the entity with a name or alias; None if it is unknown or has no valid fact.

        Args:
            name: a name or an alias, in any case.
            attributes: also return the sources and the metadata of the messages that assert its facts.

        Raises:
            InputError: an argument is invalid.
        """
        graph = self._state.snapshot()
        code = graph.code(_name("name", name))
        if code is None or not graph.degrees[code]:
            return None
        [newest] = self._facts(list(graph.around(np.array([code]))), 1)
        entity_id = graph.codes.name(code)
        aliases = tuple(sorted(alias for alias, other in graph.names.aliases.items() if other == entity_id))
        [name] = graph.spelt([code])
        described = self._attributes(graph, [code])[code] if attributes else None
        return Entity(entity_id, name, aliases, int(graph.degrees[code]), newest.updated_at, described)

    def facts(
        self,
        *,
        limit: FactCount = 100,
        from_source: str | None = None,
        metadata: Mapping[str, object] | None = None,
        attributes: bool = False,
    ) -> Facts:
        """Return the valid facts, newest first.

        Args:
            limit: 1 to 10,000.
            from_source: only facts of messages from this source, such as ``slack`` or ``import:zep``.
            metadata: only facts of messages whose metadata has these entries: ``{"ticket": 7}``. Values are equal as
                JSON.
            attributes: also return the sources and the metadata of the messages that assert them.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, MAX_FACTS)
        wanted = _wanted(from_source, metadata)
        graph = self._state.snapshot()
        parts = [(layer, graph.visible(at, np.arange(len(layer)))) for at, layer in enumerate(graph.layers)]
        return self._described(self._facts(self._having(parts, wanted), limit), is_asked=attributes)

    def fact(self, id: str) -> GraphFact | None:  # noqa: A002  # the usual name in stores
        """Return a fact by its id, even if it has ended; None if it is unknown."""
        graph = self._state.snapshot()
        fact_id = pa.scalar(str(id).encode(errors="replace").decode())
        for place, layer in enumerate(graph.layers):
            same = pc.equal(layer.rows["id"], fact_id).to_numpy(zero_copy_only=False)
            for row in graph.visible(place, np.flatnonzero(same), only_holding=False).tolist():
                return self._fact(layer, row)
        return None

    def facts_about(
        self,
        name: str,
        *,
        limit: FactCount = 100,
        at: When | None = None,
        from_source: str | None = None,
        metadata: Mapping[str, object] | None = None,
        attributes: bool = False,
    ) -> Facts:
        """Return the facts with an entity as source or target, newest first.

        Args:
            name: a name or an alias, in any case.
            limit: 1 to 10,000.
            at: only facts that were valid at this time, as known today.
            from_source: only facts of messages from this source, such as ``slack`` or ``import:zep``.
            metadata: only facts of messages whose metadata has these entries: ``{"ticket": 7}``. Values are equal as
                JSON.
            attributes: also return the sources and the metadata of the messages that assert them.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, MAX_FACTS)
        wanted = _wanted(from_source, metadata)
        instant = None if at is None else self._calendar.moment("at", at)
        graph = self._state.snapshot()
        code = graph.code(_name("name", name))
        if code is None:
            return Facts()
        parts = list(graph.around(np.array([code]), only_holding=at is None))
        if instant is not None:
            parts = [(layer, layer.held_at(rows, instant)) for layer, rows in parts]
        return self._described(self._facts(self._having(parts, wanted), limit), is_asked=attributes)

    def history(self, subject: str, predicate: str | None = None, *, limit: FactCount = 100) -> Facts:
        """Return all facts with a subject, including ended ones, in the order in which they began.

        Args:
            subject: a name or an alias, in any case.
            predicate: only facts with this predicate.
            limit: 1 to 10,000. Of more, the last ones are returned.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, MAX_FACTS)
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

    def neighbors(
        self,
        name: str,
        depth: Annotated[int, Within(1, MAX_DEPTH)] = 1,
        *,
        limit: FactCount = 1_000,
        from_source: str | None = None,
        metadata: Mapping[str, object] | None = None,
        attributes: bool = False,
    ) -> Neighbors:
        """Return the entities that facts connect to one, in either direction: nearest first, then by id.

        A kind (``Anna is_a person``) is not a neighbour. Otherwise all entities of a kind would be neighbours.

        Args:
            name: a name or an alias, in any case.
            depth: maximum distance, 1 to 6 steps.
            limit: 1 to 10,000.
            from_source: walk only through facts of messages from this source, such as ``slack`` or ``import:zep``.
            metadata: walk only through facts of messages whose metadata has these entries: ``{"ticket": 7}``. Values
                are equal as JSON.
            attributes: also return the sources and the metadata of the messages that assert the entities' facts.

        Raises:
            InputError: an argument is invalid.
        """
        graph, wanted = self._state.snapshot(), _wanted(from_source, metadata)
        count_of("depth", depth, 1, MAX_DEPTH)
        count_of("limit", limit, 1, MAX_FACTS)
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
            is_new[self._connected(graph, frontier, wanted)] = True
            frontier = np.flatnonzero(is_new & ~seen)
            if not len(frontier):
                break
            seen |= is_new
            total += len(frontier)
            nearest = nsmallest(limit - len(found), frontier.tolist(), key=graph.codes.name)
            known = self._attributes(graph, nearest) if attributes else {}
            spelt = zip(nearest, graph.spelt(nearest), strict=True)
            found += [Neighbor(name, distance, known.get(code)) for code, name in spelt]
        return Neighbors(found, total)

    def search(
        self,
        query: str,
        limit: FactCount = 10,
        *,
        speaker: str | None = None,
        names: Iterable[str] | None = None,
        hops: Annotated[int, Within(0, MAX_HOPS)] = 1,
        at: When | None = None,
        now: When | None = None,
    ) -> Facts:
        """Return the facts that fit a text best, around the entities that it names.

        Args:
            query: the text.
            limit: 1 to 10,000; `total` of the result counts all facts around these entities.
            speaker: name of the speaker, whom "I" means; ``User`` by default.
            names: the entities in the text, if a model has found them.
            hops: how far to walk: 1 returns the facts of the entities, 2 also those of their neighbours, up to 3; 0
                returns none.
            at: only facts that were valid at this time; by default those that are valid now.
            now: the time from which ages count; the current time by default.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, MAX_FACTS)
        if not isinstance(query, str):
            raise InputError(f"query {shown(query)} is not a text")
        if names is not None:
            names = list(names)
            if not all(isinstance(name, str) for name in names):
                raise InputError(f"names {shown(names)} is not accepted; expected texts")
        if speaker is not None:
            _name("speaker", speaker)
        count_of("hops", hops, 0, MAX_HOPS)
        instant = self._calendar.moment("now", datetime.now(UTC) if now is None else now)
        valid_at = None if at is None else self._calendar.moment("at", at)
        graph = self._state.snapshot()
        codes = named_in(graph, query, speaker=speaker, names=names)
        return self._around(graph, codes, query, limit, hops, instant, valid_at)

    def around(
        self, names: Iterable[str], query: str, limit: int, *, hops: int, now: datetime, at: datetime | None = None
    ) -> Facts:
        """Return the facts around entities, those that fit a text best first; see :meth:`search`. Times are UTC."""
        graph = self._state.snapshot()
        codes = [code for name in names if (code := graph.code(name)) is not None]
        return self._around(graph, codes, query, limit, hops, now, at)

    def mentions(self, text: str, own: Sequence[str]) -> NamedEntities:
        """Return the entities that a text names. `own` are the names of who says it, whom "I" and "my" mean."""
        graph = self._state.snapshot()
        speakers = [code for name in own if (code := graph.code(name)) is not None]
        user = graph.code("User")  # whom "I" means in `named_in`
        codes = [code for code in named_in(graph, text) if code != user or user not in speakers]
        related = [code for code in related_in(graph, text, speakers) if code not in codes and code not in speakers]
        meant = [code for code in speakers if code not in codes] if says_i(text) else []
        return NamedEntities(graph.spelt(codes), graph.spelt(related), graph.spelt(meant))

    def _around(
        self,
        graph: GraphSnapshot,
        codes: list[int],
        query: str,
        limit: int,
        hops: int,
        instant: datetime,
        valid_at: datetime | None,
    ) -> Facts:
        if not codes:
            return Facts()
        best, total = ranked(graph, codes, query, limit, hops, int(instant.timestamp() * 1e6), valid_at)
        return Facts((self._fact(layer, row, score) for layer, row, score in best), total)

    def query(self, sql: str, *, max_rows: int = 100, max_seconds: float = 5.0) -> QueryResult:
        """Run a SELECT of DuckDB over the graph and return its rows. It cannot read other data or change anything.

        Tables are ``facts`` (valid facts), ``history`` (also ended ones) and ``entities``. The columns of the first two
        are those of the table ``graph_facts`` and ``identity``; of the third, id, name, aliases, facts, first_seen and
        last_seen. `is_cut` of the result reports whether there were more than `max_rows`.

        Two functions walk through the valid facts, in either direction, as :meth:`neighbors` does:
        ``neighbors('Anna', 2)`` has the columns id, name and distance; ``paths('Anna', 'Ben', 4)`` has length, ids,
        names, facts (an id for each step) and path (a text). A path visits no entity twice; the shortest are first. The
        number is the maximum of steps, up to 6 (1 and 4 by default). A call returns at most 10,001 rows; `is_cut` also
        reports if it found more.

        Args:
            sql: the statement.
            max_rows: maximum number of rows.
            max_seconds: time limit in seconds.

        Raises:
            InputError: the statement is not allowed, fails, or exceeds `max_seconds`.
        """
        graph = self._state.snapshot()
        from memory_pipeline.lake.sql.session import Session  # imports DuckDB, which is slow

        if self._session is None or self._session[0] is not graph:
            tables = {"facts": graph.facts, "history": graph.history, "entities": graph.entities}
            self._session = graph, Session(tables, is_graph=True)
        return self._session[1].ask(sql, max_rows=max_rows, max_seconds=max_seconds)

    def export(self, file: Path) -> int:
        """Write all facts, including ended ones, as one Parquet file. Return their number.

        Raises:
            InputError: the file cannot be written.
        """
        rows = self._state.snapshot().history
        try:
            pq.write_table(rows, file, compression="zstd")
        except OSError as error:
            raise InputError(f"file {file} cannot be written: {error.strerror or error}; choose another path") from None
        return int(rows.num_rows)

    def knows(self, name: str, argument: str = "name") -> bool:
        """Return whether the graph has ever had a name.

        Raises:
            InputError: `name` is not a name; the message calls it `argument`.
        """
        return self._state.snapshot().code(_name(argument, name)) is not None

    def _connected(self, graph: GraphSnapshot, codes: NDArray[np.int64], wanted: frozenset[str]) -> NDArray[np.int64]:
        """Return the entities that facts with labels connect to some, with duplicates, and these themselves."""
        if not wanted:
            return graph.connected_to(codes)
        parts = [(layer, rows[layer.leads[rows]]) for layer, rows in graph.around(codes)]
        ends = [layer.ends[end][rows] for layer, rows in self._having(parts, wanted) for end in (0, 1)]
        return np.concatenate(ends)

    def _having(
        self, parts: list[tuple[Layer, NDArray[np.int64]]], wanted: frozenset[str]
    ) -> list[tuple[Layer, NDArray[np.int64]]]:
        """Return the rows with evidence that has all of some labels."""
        if not wanted:
            return parts
        return [
            (layer, rows[np.array([any(map(wanted.issubset, one)) for one in self._labels(layer, rows)], np.bool_)])
            for layer, rows in parts
        ]

    def _labels(self, layer: Layer, rows: NDArray[np.int64]) -> list[list[tuple[str, ...]]]:
        """Return the labels of each message that asserts a fact, for each row."""
        taken = layer.rows.select(["evidence", "conversation_id"]).take(pa.array(rows))
        pairs = [*zip(taken["evidence"].to_pylist(), taken["conversation_id"].to_pylist(), strict=True)]
        known = self._state.labels({one for evidence, _ in pairs for one in evidence})
        return [_labels_of(evidence, conversation_id, known) for evidence, conversation_id in pairs]

    def _attributes(self, graph: GraphSnapshot, codes: Sequence[int]) -> dict[int, Attributes]:
        """Return the attributes of entities: of the evidence of their valid facts, the newest fact last."""
        found: dict[int, list[tuple[int, list[tuple[str, ...]]]]] = {code: [] for code in codes}
        for layer, rows in graph.around(np.array(codes, np.int64)):
            ends = zip(*(numbers[rows].tolist() for numbers in layer.ends), strict=True)
            stated = layer.updated_at[rows].tolist()
            for both, at, labels in zip(ends, stated, self._labels(layer, rows), strict=True):
                for code in found.keys() & {*both}:
                    found[code].append((at, labels))
        return {
            code: Attributes.of(one for _, labels in sorted(facts) for one in labels) for code, facts in found.items()
        }

    def _described(self, facts: Facts, *, is_asked: bool) -> Facts:
        """Return facts with their attributes, if they are asked for."""
        if not is_asked:
            return facts
        known = self._state.labels({one for fact in facts for one in fact.evidence})
        labels = (_labels_of(fact.evidence, fact.conversation_id, known) for fact in facts)
        described = (replace(fact, attributes=Attributes.of(one)) for fact, one in zip(facts, labels, strict=True))
        return Facts(described, facts.total)

    def _facts(
        self,
        parts: list[tuple[Layer, NDArray[np.int64]]],
        limit: int,
        by: Literal["updated_at", "valid_from"] = "updated_at",
    ) -> Facts:
        """Return the newest rows by a time column, then by id."""
        found: list[GraphFact] = []
        for layer, rows in parts:
            newest = layer.newest_of(rows, by, limit)
            triples = rows_to_triples(layer.rows.take(pa.array(newest)))
            found += [self._dated(triple, layer.identity) for triple in triples]
        found.sort(key=lambda fact: fact.id)
        found.sort(key=attrgetter(by), reverse=True)
        return Facts(found[:limit], sum(len(rows) for _, rows in parts))

    def _fact(self, layer: Layer, row: int, score: float = 0.0) -> GraphFact:
        return self._dated(rows_to_triples(layer.rows.slice(row, 1))[0], layer.identity, score)

    def _dated(self, triple: Triple, identity: str, score: float = 0.0) -> GraphFact:
        # A joined graph calls the reader's user "User".
        user_id = self._state.user_id
        own = user_identity(user_id) if user_id and triple.source_id == "user" else triple.source
        origin = triple.origin or (Authority.OPERATOR if triple.evidence[-1].startswith(EDIT) else Authority.USER)
        return GraphFact(
            **{name: getattr(triple, name) for name in Triple.__dataclass_fields__},
            since=self._calendar.day_of(triple.valid_from),
            until=None if triple.valid_to is None else self._calendar.day_of(triple.valid_to),
            score=round(score, 4),
            identity=identity,
            said_by=authority_of(origin, "", f"{own}: ", identity, user_id),
        )


def _labels_of(
    evidence: Sequence[str], conversation_id: str | None, known: Mapping[str, tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return the labels of the evidence of a fact, oldest first. An imported edit has its source as conversation."""
    source = labels_of_attributes(conversation_id, None) if evidence[-1].startswith(EDIT) else ()
    return [*(known[one] for one in evidence), *([source] if source else [])]


def _wanted(from_source: str | None, metadata: Mapping[str, object] | None) -> frozenset[str]:
    source = optional_label("from_source", from_source)
    return frozenset(labels_of_attributes(source, metadata_of(metadata) or None))


def _name(argument: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TERM:
        raise InputError(f"{argument} {shown(value)} is not accepted; expected a name of 1 to {MAX_TERM} characters")
    return value
