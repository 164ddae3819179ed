"""The list of what an agent holds of all its users, for operators: newest first, filtered by words, never ranked."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.facts import facts_to_rows
from memory_pipeline.lake.index.index_rows import facts_to_index, index_schema
from memory_pipeline.overlay import PendingJournal
from memory_pipeline.reader.activity import activities, pending_files, users_of
from memory_pipeline.search.arguments import MAX_OFFSET, MAX_RESULTS, filter_of, validate_query
from memory_pipeline.search.searcher import Hit, Hits
from memory_pipeline.search.selection import Choice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memory_pipeline.domain.fields import FactFilters
    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.index.filters import Filter

#: Scopes that are read at once.
_AT_ONCE = 200
#: Names of MemoryReader that need one user.
_OF_ONE_USER: Final = frozenset(
    [
        "recall", "imagine", "context", "inject_knowledge", "hot_index", "search_archive", "get", "expand", "graph",
        "memories", "newest", "of_agent", "receipt", "receipts", "summaries_of",
    ]
)  # fmt: skip
_COLUMNS = [name for name in index_schema(0).names if name not in {"vector", "embed_model", "digest"}]
_NEWEST = [("ends_at", "descending"), ("is_turn", "descending"), ("position", "ascending"), ("id", "ascending")]


@dataclass(frozen=True, slots=True)
class UserHit(Hit):
    """A hit of a reader of all users.

    Attributes:
        users: the user, or the members of the group, whose memory it is; none if it is the agent's own.
    """

    users: tuple[str, ...] = ()


class AllUsersReader:
    """Lists the memory of all users and groups of an agent, and its own. It ranks nothing, and serves no model.

    It reads some scopes at a time, and keeps no more entries than it returns. All other names of
    :class:`~memory_pipeline.reader.MemoryReader` raise InputError. Create it with :meth:`MemoryReader.open`.
    """

    def __init__(self, lake: Lake, scope: Scope) -> None:
        self._lake = lake
        self._scope = scope

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what is for one user."""
        if name in _OF_ONE_USER:
            raise InputError(f"{name} is not available for all users; open the reader with one user_id")
        raise AttributeError(f"{type(self).__name__} has no attribute {name}")

    def search_memory(
        self,
        grain: Grain | str = Grain.WORKING,
        minimum_days_ago: float = 0,
        maximum_days_ago: float = 365,
        max_results: int = 10,
        query: str | None = None,
        *,
        offset: int = 0,
        now: When | None = None,
        query_text: str | None = None,
        **filters: Unpack[FactFilters],
    ) -> Hits:
        """Return the newest facts or summaries of one grain that hold all words of the query, as :class:`UserHit`.

        Arguments are those of :meth:`MemoryReader.search_memory`. A message that is in several scopes is listed for
        each.

        Raises:
            InputError: an argument is invalid, or the query has no word.
        """
        grain, calendar = Grain.parse(grain), self._lake.calendar
        where = filter_of(calendar, now, filters, grain, minimum_days_ago, maximum_days_ago)
        count_of("max_results", max_results, 1, MAX_RESULTS)
        limit = count_of("offset", offset, 0, MAX_OFFSET) + max_results
        text = validate_query(query, query_text)
        words = set(terms(text or ""))
        if text is not None and not words:
            raise InputError(f"query {shown(text)} has no word to filter by; expected a word, or no query")
        found, total = self._newest(grain, where, words, limit)
        return Hits([self._hit(Hit.of(grain, Choice(row, 0.0), calendar)) for row in found[offset:]], total, offset)

    def _newest(
        self, grain: Grain, where: Filter, words: Collection[str], limit: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Return the newest rows, and the number of all that pass."""
        # Before the index: a record that is committed in between is found in both.
        pending = {scope for scope, _ in pending_files(self._lake, self._scope)} if grain is Grain.WORKING else set()
        scopes = [one.scope for one in activities(self._lake, self._scope)]
        found: list[dict[str, Any]] = []
        total = 0
        for start in range(0, len(scopes), _AT_ONCE):
            batch = scopes[start : start + _AT_ONCE]
            rows = _listed(_filtered(self._rows(grain, where, batch, pending), where, words))
            found = sorted([*found, *_latest(rows, limit)], key=lambda row: (-row["ends_at"].timestamp(), row["id"]))
            del found[limit:]
            total += pc.count_distinct(rows["message"]).as_py()
        return found, total

    def _hit(self, hit: Hit) -> UserHit:
        scope = self._lake.scope(self._scope.workspace_id, self._scope.agent_id, hit.identity)
        return UserHit(
            **{field.name: getattr(hit, field.name) for field in fields(hit)}, users=users_of(self._lake, scope)
        )

    def _rows(self, grain: Grain, where: Filter, scopes: Sequence[Scope], pending: Collection[Scope]) -> pa.Table:
        """Return the rows of scopes: those of the index that may pass the filter, and those of pending files."""
        journals = [PendingJournal(self._lake, scope) for scope in scopes if scope in pending]
        files = [file for journal in journals for file in journal.files().values()]
        found = [facts_to_rows([fact for file in files for fact in file.facts])]
        found += [file.rows for file in files if file.rows is not None]
        none = found[0].schema.field("vector")
        tail = pa.concat_tables(
            facts_to_index(rows.drop_columns(["vector"]).append_column(none, pa.nulls(len(rows), none.type)), 1)
            for rows in found
        ).select(_COLUMNS)
        own = replace(where, person=None).sql()
        rows = self._lake.index.read(scopes, _COLUMNS, " AND ".join(filter(None, [f"grain = '{grain}'", own])))
        rows = rows.filter(pc.invert(pc.is_in(rows["id"], tail["id"].combine_chunks())))
        return pa.concat_tables([tail, rows.cast(tail.schema)])


def _filtered(rows: pa.Table, where: Filter, words: Collection[str]) -> pa.Table:
    """Return the rows that pass the filter and hold all words."""
    rows = rows.filter(pa.array(where.mask(rows)))
    for word in words:
        column = rows["terms"].combine_chunks()
        holding = pc.unique(pc.list_parent_indices(column).filter(pc.equal(column.flatten(), word)))
        rows = rows.take(holding)
    return rows


def _listed(rows: pa.Table) -> pa.Table:
    """Return turns, and facts of messages without a turn, with their ``message`` and whether each ``is_turn``."""
    is_turn = pc.equal(rows["kind"], FactKind.TURN.value).combine_chunks()
    sources = rows["source_ids"].combine_chunks()
    has_turn = pc.is_in(sources.flatten(), sources.filter(is_turn).flatten())
    beside = pc.is_in(pa.array(np.arange(len(rows))), pc.list_parent_indices(sources).filter(has_turn))
    rows = rows.append_column("is_turn", is_turn.cast(pa.int8()))
    rows = rows.append_column("message", pc.binary_join(rows["source_ids"], "\n"))
    return rows.filter(pc.or_(is_turn, pc.invert(beside)))


def _latest(rows: pa.Table, limit: int) -> list[dict[str, Any]]:
    """Return the newest rows, at most `limit`; of a message the first."""
    found: dict[str, dict[str, Any]] = {}
    for batch in rows.sort_by(_NEWEST).to_batches(max_chunksize=limit):
        for row in batch.to_pylist():
            if len(found) < limit:
                found.setdefault(row["message"], row)
    return list(found.values())
