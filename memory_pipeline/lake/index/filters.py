"""Filters on index rows: typed terms, combined with AND, for rows in memory and as LanceDB's SQL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.text.words import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from memory_pipeline.domain.facts import FactKind


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
_COMPARE = {"<=": pc.less_equal, ">=": pc.greater_equal, "=": pc.equal}


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on rows, combined with AND; None leaves a term open.

    Attributes:
        since, until: the row's time overlaps [since, until]: the instant of a fact, the period of a summary.
        ends_since, ends_until: `ends_at` is in [ends_since, ends_until].
        kind: the fact's kind.
        person: the speaker, or a person named in it. Ignores case and accents; one word of the name is enough.
        conversation_id: the conversation that a fact comes from.
        tag: a tag of that conversation.
        minimum_importance: 0 to 1.
        labels: of sources and metadata; a row has all of them (:mod:`memory_pipeline.domain.attributes`).
    """

    since: datetime | None = None
    until: datetime | None = None
    ends_since: datetime | None = None
    ends_until: datetime | None = None
    kind: FactKind | None = None
    person: str | None = None
    conversation_id: str | None = None
    tag: str | None = None
    minimum_importance: float | None = None
    labels: tuple[str, ...] = ()

    def covers(self, starts: int, first: int, last: int) -> bool:
        """Return whether all rows match that start at `starts` or later and end between `first` and `last`.

        Times are in microseconds since 1970.
        """
        others = (self.kind, self.person, self.conversation_id, self.tag, self.minimum_importance)
        return (
            all(term is None for term in others)
            and not self.labels
            and (self.since is None or microseconds(self.since) <= starts)
            and (self.until is None or last <= microseconds(self.until))
            and (self.ends_since is None or microseconds(self.ends_since) <= first)
            and (self.ends_until is None or last <= microseconds(self.ends_until))
        )

    def mask(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return for each row of an index whether it matches."""
        kept = np.ones(rows.num_rows, np.bool_)
        if self.since is not None:
            # A period ends before its `ends_at`, a fact at it.
            since = pa.scalar(self.since, _TIME)
            kept &= flags_of(pc.greater(rows["ends_at"], since)) | flags_of(pc.greater_equal(rows["starts_at"], since))
        for column, sign, value in self._comparisons():
            literal = pa.scalar(value, _TIME) if isinstance(value, datetime) else value
            kept &= flags_of(_COMPARE[sign](rows[column], literal))
        for label in self._labels():
            kept &= _holds(rows["tags"], label.__eq__)
        if self.person is not None:
            name = folded(self.person)
            spoken = rows["speaker"].combine_chunks().dictionary_encode()
            speaks = np.array(
                [_is_called(speaker, name) for speaker in spoken.dictionary.to_pylist()] + [False], np.bool_
            )
            codes = pc.fill_null(spoken.indices, -1).to_numpy(zero_copy_only=False)
            kept &= speaks[codes] | _holds(rows["entities"], lambda entity: _is_called(entity, name))
        return kept

    def _labels(self) -> tuple[str, ...]:
        return self.labels if self.tag is None else (self.tag, *self.labels)

    def _comparisons(self) -> Iterator[tuple[str, str, datetime | str | float]]:
        """Yield the terms that compare a column with a value: column, sign and value."""
        kind = None if self.kind is None else self.kind.value
        for column, sign, value in (
            ("starts_at", "<=", self.until),
            ("ends_at", ">=", self.ends_since),
            ("ends_at", "<=", self.ends_until),
            ("kind", "=", kind),
            ("conversation_id", "=", self.conversation_id),
            ("importance", ">=", self.minimum_importance),
        ):
            if value is not None:
                yield column, sign, value

    def sql(self, names: Iterable[str] = ()) -> str | None:
        """Return the filter as SQL for LanceDB, or None if it matches everything.

        Args:
            names: all speakers and entities in the rows; a person is looked up among these.
        """
        terms = []
        if self.since is not None:
            since = _timestamp(self.since)
            # The first term is redundant, but `ends_at` has an index.
            terms.append(f"ends_at >= {since} AND (ends_at > {since} OR starts_at >= {since})")
        terms += [f"{column} {sign} {_literal(value)}" for column, sign, value in self._comparisons()]
        terms += [f"array_has(tags, {quoted(label)})" for label in self._labels()]
        if self.person is not None:
            name = folded(self.person)
            called = ", ".join(sorted(quoted(full) for full in set(names) if _is_called(full, name)))
            terms.append(f"(speaker IN ({called}) OR array_has_any(entities, [{called}]))" if called else "FALSE")
        return " AND ".join(terms) or None


def folded(text: str) -> str:
    """Return a text in lower case, without accents, with single spaces."""
    return " ".join(plain(text).split())


def _is_called(full: str | None, name: str) -> bool:
    """Return whether a folded `name` equals a full name or consists of whole words of it."""
    return full is not None and f" {name} " in f" {folded(full)} "


def _holds(lists: pa.ChunkedArray, accepts: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Return for each list whether it contains an accepted text."""
    column = lists.combine_chunks()
    parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
    values = column.flatten().dictionary_encode()
    accepted = np.array([accepts(value) for value in values.dictionary.to_pylist()], np.bool_)
    found = np.zeros(len(column), np.bool_)
    if len(accepted):
        found[parents[accepted[values.indices.to_numpy(zero_copy_only=False)]]] = True
    return found


def flags_of(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Return a column of booleans; null is False."""
    return np.asarray(pc.fill_null(column, False), np.bool_)


def _literal(value: datetime | str | float) -> str:
    if isinstance(value, datetime):
        return _timestamp(value)
    return quoted(value) if isinstance(value, str) else repr(float(value))


def microseconds(instant: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _timestamp(instant: datetime) -> str:
    utc = instant.astimezone(UTC).replace(tzinfo=None)
    return f"timestamp '{utc.isoformat(sep=' ', timespec='microseconds')}'"


def quoted(text: str) -> str:
    """Return a text as an SQL literal. Only quotes need escaping; they are doubled."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def listed(values: Iterable[str]) -> str:
    """Return texts as a list of SQL literals, without parentheses; of one empty text if there are none."""
    return ", ".join(map(quoted, sorted(values))) or "''"
