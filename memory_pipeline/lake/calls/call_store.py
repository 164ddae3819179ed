"""Model answers and their costs: first durable in small files, then in two tables.

``answers`` is partitioned by the period that needed the answer, so that building a partition reads only its own
answers; ``model_calls`` by the hour in which a request was sent. Reasons: docs/decisions/0006-answers-and-calls.md.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.model_calls import Kind, Purpose, Usage
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.calls.pending_calls import PendingCall, PendingCalls
from memory_pipeline.lake.codec.calls import answer_to_row, call_to_row, row_to_answer
from memory_pipeline.lake.codec.codec import scope_of, scopes_of
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.schemas import ANSWERS, MODEL_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from memory_pipeline.domain.model_calls import Answer, Call, Payer
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.lake.tables.tables import Tables

    #: Who pays, or a kind of question.
    _Key: TypeAlias = Payer | Kind

# Spending is the sum of the ``model_calls`` table and the pending files.


_KIND = ("purpose", "model", "prompt_version")
_COLUMNS = ("hour", "id", "request_id", *SCOPE_COLUMNS, "tokens_in", "tokens_out", "cost", *_KIND)
_SUMS = ("tokens_in", "tokens_out", "cost")


class Spending:
    """Adds up calls by month, per workspace and per kind of question. Safe to use from many threads.

    Calls are added up per user and group once one is asked for.

    A call of a pending file may already be in the table if the file has not been deleted yet. It counts as pending, and
    is skipped in the table.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._files: dict[str, list[str]] = {}
        self._calls: dict[str, Call] = {}
        self._pending: dict[tuple[_Key, str], Usage] = {}
        self._has_users = False
        #: By hour of the table: its size when it was read, and its spending.
        self._hours: dict[str, tuple[int, dict[_Key, Usage]]] = {}
        self._months: dict[str, dict[_Key, Usage]] = {}
        # `_reading` is held while the table is read, and is acquired before `_lock`.
        self._reading = threading.Lock()
        self._lock = threading.Lock()

    def files(self) -> set[str]:
        """Return the paths of the counted pending files."""
        with self._lock:
            return set(self._files)

    def add(self, path: str | None, calls: Sequence[Call]) -> None:
        """Count the calls of a new pending file; without a `path`, of this process alone."""
        with self._lock:
            self._count(path, calls)

    def refresh(self, gone: Collection[str], found: Mapping[str, Sequence[Call]]) -> None:
        """Remove files whose calls are now in the table, and add new ones.

        Parts of the table that have grown are read again on the next query.
        """
        with self._reading, self._lock:
            for path in gone:
                for identifier in self._files.pop(path, ()):
                    call = self._calls.pop(identifier, None)
                    if call is not None:
                        self._hours.pop(hour_of(call.called_at).key, None)  # the table's sum left it out
            for path, calls in found.items():
                for call in calls:
                    self._hours.pop(hour_of(call.called_at).key, None)  # it may already be in the table
                self._count(path, calls)
            if gone:
                self._pending = _by_month(self._calls.values())
            self._months.clear()

    def spent(self, key: _Key, month: str) -> Usage:
        """Return the spending in a month, such as ``2024-01``.

        `key` is a workspace, user or group, or a kind of question, which counts answered requests only.
        """
        if isinstance(key, Scope) and not self._has_users:
            with self._reading, self._lock:
                self._has_users = True
                self._hours.clear()
                self._months.clear()
        while True:
            with self._lock:
                landed = self._months.get(month)
                if landed is not None:
                    return landed.get(key, Usage()) + self._pending.get((key, month), Usage())
            with self._reading:
                if month not in self._months:
                    self._read(month)

    def _count(self, path: str | None, calls: Sequence[Call]) -> None:
        if path in self._files:
            return
        new = [call for call in calls if call.id not in self._calls]
        if path is not None:
            self._files[path] = [call.id for call in new]
        self._calls |= {call.id: call for call in new}
        for key, usage in _by_month(new).items():
            self._pending[key] = self._pending.get(key, Usage()) + usage

    def _read(self, month: str) -> None:
        # Rows are only ever added, so an hour of the same size is unchanged.
        sizes = {hour: size for hour, size in self._tables.sizes(MODEL_CALLS).items() if hour.startswith(f"{month}-")}
        grown = [hour for hour, size in sizes.items() if self._hours.get(hour, (0, {}))[0] != size]
        rows = self._tables.read(MODEL_CALLS, grown, columns=_COLUMNS) if grown else MODEL_CALLS.schema.empty_table()
        with self._lock:
            pending = pc.is_in(rows["id"], pa.array(list(self._calls), pa.string()))
            spent = _by_hour(rows.filter(pc.invert(pending)), has_users=self._has_users)
            self._hours |= {hour: (sizes[hour], spent.get(hour, {})) for hour in grown}
            totals: dict[_Key, Usage] = {}
            for hour in sizes:
                for key, usage in self._hours[hour][1].items():
                    totals[key] = totals.get(key, Usage()) + usage
            self._months[month] = totals


def _by_month(calls: Iterable[Call]) -> dict[tuple[_Key, str], Usage]:
    groups: dict[tuple[_Key, str], list[Call]] = defaultdict(list)
    for call in calls:
        month = hour_of(call.called_at).key[:7]
        groups[call.use.scope.workspace_id, month].append(call)
        if call.use.scope.identity:
            groups[call.use.scope, month].append(call)
        if call.tokens_out:
            groups[Kind(call.purpose, call.model, call.prompt_version), month].append(call)
    return {key: Usage.of(group) for key, group in groups.items()}


def _by_hour(rows: pa.Table, *, has_users: bool) -> dict[str, dict[_Key, Usage]]:
    """Add up rows by hour. The shares of one request count as one request."""
    unpriced = pc.and_(pc.is_null(rows["cost"]), pc.greater(rows["tokens_in"], 0))
    rows = rows.append_column("unpriced", pc.if_else(unpriced, rows["request_id"], pa.scalar(None, pa.string())))
    spent: dict[str, dict[_Key, Usage]] = defaultdict(dict)
    for row in _added(rows, ("workspace_id",)):
        spent[row["hour"]][row["workspace_id"]] = _usage(row)
    if has_users:
        for row in _added(rows.filter(pc.not_equal(rows["identity"], "")), SCOPE_COLUMNS):
            spent[row["hour"]][scope_of(*map(row.get, SCOPE_COLUMNS))] = _usage(row)
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


#: Vectors are dropped after this time if no run has used them.
_KEEP_VECTORS = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class _Vectors:
    tag: str
    key: str
    period: Period
    kept_at: datetime


class Calls:
    """Stores answers and calls; implements :class:`memory_pipeline.domain.model_calls.CallStore`.

    Safe to use from many threads and processes. Answers and calls passed to :meth:`keep` are durable, and stay in files
    of their own until :meth:`settle` moves them into the tables. `clock` returns UTC.
    """

    def __init__(
        self, storage: Storage, tables: Tables, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._pending = PendingCalls(storage)
        self._claims = Leases(storage, "calls/claims", clock)
        self._spending = Spending(tables)
        self._answers: dict[str, Answer] = {}
        self._lock = threading.Lock()
        # Partitions with answers in memory: their sizes, and the table's version when they were read.
        self._sizes: dict[Period, int] = {}
        self._read_at = -1
        self._reading = threading.Lock()
        self._landed = _Latest(lambda: self._tables.version(ANSWERS))
        # Keys of vectors that this process has used in rows, and files of vectors that settle() need not read again.
        self._used: set[str] = set()
        self._vectors: dict[str, _Vectors] = {}
        self._has_looked = False

    def load(self, periods: Collection[Period]) -> None:
        """Read the answers of partitions into memory, replacing those loaded before."""
        needed = frozenset(periods)
        with self._reading:
            with self._lock:
                self._answers = {}
            self._sizes = {}
            self._read_at = self._landed.version()
            self._read(needed)
        self._look(needed)

    def find(self, key: str, period: Period) -> Answer | None:
        """Return the answer to a question asked for `period` by any process, or None.

        Answers in memory take a dictionary look-up. Others take one file, the table's version, and a partition that has
        grown.
        """
        # Files first: a file deleted between the two reads was moved into the table before.
        answer = self._answers.get(key) or self._find_pending(key) or self._find_landed(key, period)
        if answer is not None and answer.purpose is Purpose.EMBEDDING:
            self._used.add(key)
        return answer

    def keep(self, calls: Sequence[Call], answer: Answer | None = None) -> None:
        """Store requests of one question, and its answer, if any. Durable when this returns.

        Raises:
            InputError: the answer's key is not a digest.
        """
        if not calls and answer is None:
            return
        if answer is not None:
            # JSON may contain lone surrogates, which neither files nor tables can store.
            answer = replace(answer, text=answer.text.encode("utf-8", "replace").decode())
        path = self._pending.write(PendingCall(tuple(calls), answer, self._clock()))
        self._count(path, calls)
        if answer is not None:
            self._remember([answer])
            if answer.purpose is Purpose.EMBEDDING:
                self._used.add(answer.key)

    def _count(self, path: str | None, calls: Sequence[Call]) -> None:
        if self._has_looked:  # nobody asks for spending without a budget, and the first look finds the file
            self._spending.add(path, calls)

    def _find_pending(self, key: str) -> Answer | None:
        pending = self._pending.find(key)
        if pending is None or pending.answer is None:
            return None
        self._remember([pending.answer])
        return pending.answer

    def _find_landed(self, key: str, period: Period) -> Answer | None:
        version = self._landed.version()
        with self._reading:
            if version != self._read_at or period not in self._sizes:
                self._read({*self._sizes, period})
                self._read_at = version
        return self._answers.get(key)

    def _read(self, periods: Iterable[Period]) -> None:
        """Read the partitions that have grown since they were read. Answers are only ever added."""
        for grain, group in groupby(sorted(periods, key=_grain), key=_grain):
            needed = list(group)
            sizes = self._tables.sizes(ANSWERS, grain=grain)
            grown = [period.key for period in needed if sizes.get(period.key, 0) != self._sizes.get(period, 0)]
            if grown:
                rows = self._tables.read(ANSWERS, grown, grain=grain)
                self._remember(map(row_to_answer, rows.to_pylist()))
            self._sizes |= {period: sizes.get(period.key, 0) for period in needed}

    def _remember(self, answers: Iterable[Answer]) -> None:
        found = {answer.key: answer for answer in answers}
        with self._lock:
            self._answers |= found

    def damaged(self) -> dict[str, str]:
        """Return the pending files that cannot be read, with the reasons."""
        return self._pending.damaged()

    def claim(self, key: str, lease: timedelta) -> bool:
        """Claim a question; return False if another thread or process has it.

        After claiming, look for the answer again: the previous holder may have stored it.
        """
        return self._claims.claim(key, lease)

    def release(self, key: str) -> None:
        """Release a claim, with or without an answer."""
        self._claims.release(key)

    def spent(self, payer: Payer, month: str, *, look: bool = False) -> Usage:
        """Return the spending of a workspace, user or group in a calendar month (UTC) such as ``2024-01``.

        Spending of other processes since the last :meth:`load` is included only with `look`.
        """
        if look or not self._has_looked:
            self._look(frozenset())
        return self._spending.spent(payer, month)

    def answered(self, kind: Kind, month: str) -> Usage:
        """Return the usage of answered requests of one kind in a month, as complete as :meth:`spent`."""
        if not self._has_looked:
            self._look(frozenset())
        return self._spending.spent(kind, month)

    def scopes(self, since: datetime) -> set[Scope]:
        """Return the scopes with calls after a time, also of pending files."""
        landed = self._tables.read(MODEL_CALLS, columns=SCOPE_COLUMNS, where=pc.field("called_at") > since)
        calls = [call for each in self._pending.read(self._pending.list()).values() for call in each.calls]
        landed = landed.group_by(SCOPE_COLUMNS).aggregate([])
        return {*scopes_of(landed), *(call.use.scope for call in calls if call.called_at > since)}

    def _look(self, periods: frozenset[Period]) -> None:
        known = self._spending.files()
        listed = {entry.path: entry for entry in self._pending.list()}
        found = self._pending.read(entry for path, entry in listed.items() if path not in known)
        self._remember(
            pending.answer for pending in found.values() if pending.answer and pending.answer.use.period in periods
        )
        self._spending.refresh(known - listed.keys(), {entry.path: pending.calls for entry, pending in found.items()})
        self._has_looked = True

    def settle(self, written: Collection[Period] = ()) -> dict[Period, Usage]:
        """Move the pending files of all processes into the tables and delete them.

        Safe to repeat, to interrupt and to run concurrently. Vectors are not moved, because rows hold them. Their files
        stay until those rows are committed, so that a killed run need not pay for them again.

        `written` are partitions with rows committed after vectors were requested for them. The vectors that this
        process has found or stored for them are deleted. Return the spending on each partition, of the calls that this
        process moved; calls of readers are spent on no partition.
        """
        entries = self._pending.list()
        if not entries:
            return {}
        known = self._vectors
        pending = self._pending.read(
            entry for entry in entries if entry.path not in known or known[entry.path].tag != entry.tag
        )
        usage = self._land(list(pending.values()))
        vectors = {
            entry.path: _Vectors(entry.tag, each.vectors.key, each.vectors.use.period, each.kept_at)
            for entry, each in pending.items()
            if each.vectors is not None
        }
        listed = {entry.path for entry in entries}
        vectors = {path: each for path, each in known.items() if path in listed} | vectors
        dropped = {path: each for path, each in vectors.items() if self._is_over(each, written)}
        done = [entry.path for entry in pending if entry.path not in vectors] + list(dropped)
        self._pending.delete(done)
        self._used -= {each.key for each in dropped.values()}
        self._vectors = {path: each for path, each in vectors.items() if path not in dropped}
        if done:
            self._spending.refresh(done, {})
        return usage

    def _is_over(self, vectors: _Vectors, written: Collection[Period]) -> bool:
        if vectors.key in self._used and vectors.period in written:
            return True
        return self._clock() - vectors.kept_at > _KEEP_VECTORS

    def _land(self, kept: Sequence[PendingCall]) -> dict[Period, Usage]:
        # Answers first: if the process is killed in between, the files still hold both. Of a question's answers,
        # the newest counts.
        newest = sorted(kept, key=lambda each: each.kept_at, reverse=True)
        answers = [each.answer for each in newest if each.answer is not None and each.vectors is None]
        answers.sort(key=lambda answer: answer.use.period.grain)
        for grain, group in groupby(answers, key=lambda answer: answer.use.period.grain.value):
            _add(self._tables, ANSWERS, list(map(answer_to_row, group)), replace_old=True, grain=grain)
        calls = {call.id: call for each in kept for call in each.calls}
        landed = _add(self._tables, MODEL_CALLS, list(map(call_to_row, calls.values())))
        by_period: dict[Period, list[Call]] = {}
        for identifier in landed:
            if calls[identifier].purpose is Purpose.READING:
                continue
            by_period.setdefault(calls[identifier].use.period, []).append(calls[identifier])
        # A request that served several partitions counts for the first, so that sums over partitions are right.
        counted: set[str] = set()
        usage = {}
        for period, own in by_period.items():
            requests = {call.request_id for call in own} - counted
            unpriced = {call.request_id for call in own if call.cost is None and call.tokens_in} - counted
            usage[period] = replace(Usage.of(own), calls=len(requests), unpriced=len(unpriced))
            counted |= requests
        return usage


class _Latest:
    """Asks for a table's version once for all waiting threads."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._version = -1
        self._asked = 0  # number of requests begun
        self._lock = threading.Lock()

    def version(self) -> int:
        """Return the version that the table had when this was called, or a later one."""
        before = self._asked
        with self._lock:
            if self._asked == before:  # otherwise another thread has asked since, and finished
                self._asked += 1
                self._version = self._ask()
            return self._version


def _grain(period: Period) -> str:
    return period.grain.value


def _add(
    tables: Tables, spec: TableSpec, rows: list[dict[str, Any]], *, replace_old: bool = False, **fixed: str
) -> list[str]:
    """Add rows in one commit. Return the ids of those that were missing; existing ones stay, or are replaced."""
    if not rows:
        return []
    partition, identifier = spec.partition_by[-1], spec.order_by[0]
    first = {(row[partition], row[identifier]): row for row in reversed(rows)}
    new = pa.Table.from_pylist(list(first.values()), schema=spec.schema)
    added = new

    def grown(old: pa.Table) -> pa.Table:
        nonlocal added
        old_keys, new_keys = (
            pc.binary_join_element_wise(table[partition], table[identifier], "/") for table in (old, new)
        )
        added = new.filter(pc.invert(pc.is_in(new_keys, old_keys.combine_chunks())))
        if replace_old:
            return pa.concat_tables([old.filter(pc.invert(pc.is_in(old_keys, new_keys.combine_chunks()))), new])
        return pa.concat_tables([old, added])

    tables.transform(spec, {row[partition] for row in rows}, grown, shard=None, **fixed)
    ids: list[str] = added[identifier].to_pylist()
    return ids
