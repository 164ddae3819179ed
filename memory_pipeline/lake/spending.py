"""What was spent on models, by workspace and by kind of question.

It is what the ``model_calls`` table holds, and what has not landed there yet.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.model_calls import Kind, Purpose, Usage
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.lake.schemas import MODEL_CALLS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memory_pipeline.domain.model_calls import Call
    from memory_pipeline.lake.tables.tables import Tables

#: For what is added up: for each workspace by its id, and for each kind of question.
_Key: TypeAlias = str | Kind

_KIND = ("purpose", "model", "prompt_version")
_COLUMNS = ("hour", "id", "request_id", "workspace_id", "tokens_in", "tokens_out", "cost", *_KIND)
_SUMS = ("tokens_in", "tokens_out", "cost")


class Spending:
    """Adds up calls by month, for each workspace and each kind of question. Safe to use from many threads.

    A call of a file that is pending may stand in the table already, if whoever landed it has not deleted the file yet.
    It is counted as pending, and left out where the table is added up.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._files: dict[str, list[str]] = {}
        self._calls: dict[str, Call] = {}
        self._pending: dict[tuple[_Key, str], Usage] = {}
        #: Of each hour of the table: its size when it was read, and what was spent in it.
        self._hours: dict[str, tuple[int, dict[_Key, Usage]]] = {}
        self._months: dict[str, dict[_Key, Usage]] = {}
        # `_reading` is held while the table is read, and is taken before `_lock`.
        self._reading = threading.Lock()
        self._lock = threading.Lock()

    def files(self) -> set[str]:
        """Return the paths of the pending files that are counted."""
        with self._lock:
            return set(self._files)

    def add(self, path: str, calls: Sequence[Call]) -> None:
        """Count the calls of a new pending file."""
        with self._lock:
            self._count(path, calls)

    def refresh(self, gone: Collection[str], found: Mapping[str, Sequence[Call]]) -> None:
        """Count again: without files that are gone because their calls have landed, with files that were found.

        The table is read again when it is needed next, as far as it has grown.
        """
        with self._reading, self._lock:
            for path in gone:
                for identifier in self._files.pop(path, ()):
                    call = self._calls.pop(identifier, None)
                    if call is not None:
                        self._hours.pop(_hour(call), None)  # it was left out there
            for path, calls in found.items():
                for call in calls:
                    self._hours.pop(_hour(call), None)  # it may stand there already
                self._count(path, calls)
            if gone:
                self._pending = _by_month(self._calls.values())
            self._months.clear()

    def spent(self, key: _Key, month: str) -> Usage:
        """Return what was spent in a month, named as ``2024-01``.

        Args:
            key: a workspace; or a kind of question, of which requests without an answer do not count.
            month: which.
        """
        while True:
            with self._lock:
                landed = self._months.get(month)
                if landed is not None:
                    return landed.get(key, Usage()) + self._pending.get((key, month), Usage())
            with self._reading:
                if month not in self._months:
                    self._read(month)

    def _count(self, path: str, calls: Sequence[Call]) -> None:
        if path in self._files:
            return
        new = [call for call in calls if call.id not in self._calls]
        self._files[path] = [call.id for call in new]
        self._calls |= {call.id: call for call in new}
        for key, usage in _by_month(new).items():
            self._pending[key] = self._pending.get(key, Usage()) + usage

    def _read(self, month: str) -> None:
        # Lines are only ever added, so an hour of the same size is the same.
        sizes = {hour: size for hour, size in self._tables.sizes(MODEL_CALLS).items() if hour.startswith(f"{month}-")}
        grown = [hour for hour, size in sizes.items() if self._hours.get(hour, (0, {}))[0] != size]
        rows = self._tables.read(MODEL_CALLS, grown, columns=_COLUMNS) if grown else MODEL_CALLS.schema.empty_table()
        with self._lock:
            pending = pc.is_in(rows["id"], pa.array(list(self._calls), pa.string()))
            spent = _by_hour(rows.filter(pc.invert(pending)))
            self._hours |= {hour: (sizes[hour], spent.get(hour, {})) for hour in grown}
            totals: dict[_Key, Usage] = {}
            for hour in sizes:
                for key, usage in self._hours[hour][1].items():
                    totals[key] = totals.get(key, Usage()) + usage
            self._months[month] = totals


def _hour(call: Call) -> str:
    return Calendar().hour(call.called_at).key


def _by_month(calls: Iterable[Call]) -> dict[tuple[_Key, str], Usage]:
    groups: dict[tuple[_Key, str], list[Call]] = defaultdict(list)
    for call in calls:
        month = _hour(call)[:7]
        groups[call.use.scope.workspace_id, month].append(call)
        if call.tokens_out:
            groups[Kind(call.purpose, call.model, call.prompt_version), month].append(call)
    return {key: Usage.of(group) for key, group in groups.items()}


def _by_hour(rows: pa.Table) -> dict[str, dict[_Key, Usage]]:
    """Add up lines of the table by hour, as :meth:`Usage.of` does; the shares of a request share all that is asked."""
    unpriced = pc.and_(pc.is_null(rows["cost"]), pc.greater(rows["tokens_in"], 0))
    rows = rows.append_column("unpriced", pc.if_else(unpriced, rows["request_id"], pa.scalar(None, pa.string())))
    spent: dict[str, dict[_Key, Usage]] = defaultdict(dict)
    for row in _added(rows, ("workspace_id",)):
        spent[row["hour"]][row["workspace_id"]] = _usage(row)
    for row in _added(rows.filter(pc.greater(rows["tokens_out"], 0)), _KIND):
        kind = Kind(Purpose(row["purpose"]), row["model"], row["prompt_version"])
        spent[row["hour"]][kind] = _usage(row)
    return spent


def _added(rows: pa.Table, by: Sequence[str]) -> list[dict[str, Any]]:
    sums = [(name, "sum") for name in _SUMS] + [(name, "count_distinct") for name in ("request_id", "unpriced")]
    added: list[dict[str, Any]] = rows.group_by(["hour", *by]).aggregate(sums).to_pylist()
    return added


def _usage(row: Mapping[str, Any]) -> Usage:
    return Usage(
        calls=row["request_id_count_distinct"],
        tokens_in=row["tokens_in_sum"],
        tokens_out=row["tokens_out_sum"],
        cost=row["cost_sum"],
        unpriced=row["unpriced_count_distinct"],
    )
