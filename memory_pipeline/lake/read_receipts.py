"""The log of what models were handed: a row for each context, injection and recall that returned something.

::

    receipts/pending/{ulid}.jsonl    rows that are not in the table ``read_receipts`` yet

Rows are written as those of the log of access are (:mod:`memory_pipeline.lake.waiting_rows`), and a run moves them to
the table. They hold texts of memory, so they are kept for the time that the configuration sets (``receipts``), and an
item loses its text when its source expires or is erased.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from ulid import ULID

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake import waiting_rows
from memory_pipeline.lake.schemas import READ_RECEIPTS
from memory_pipeline.lake.tables.tombstones import ExpirationMarks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.erasure import Tombstone
    from memory_pipeline.domain.periods import Calendar
    from memory_pipeline.lake.files.storage import Storage
    from memory_pipeline.lake.journal import Journal
    from memory_pipeline.lake.tables.tables import Tables
    from memory_pipeline.lake.tables.tombstones import Tombstones

_log = logging.getLogger(__name__)

_PENDING: Final = "receipts/pending"
#: An empty file for each erasure that has reached the table.
_REACHED: Final = "state/receipts"
_PREFIX: Final = "receipt-"
ERASED, EXPIRED = "erased", "expired"
#: What an item keeps when its text is lost.
_KEPT: Final = ("grain", "said_by")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadReceipts:
    """The receipts of a lake. Safe to use from several threads.

    `calendar`, `tables`, `tombstones` and `configuration` return those of the lake. Unreadable lines go to the
    quarantine of the journal.
    """

    storage: Storage
    journal: Journal
    calendar: Callable[[], Calendar]
    tables: Callable[[], Tables]
    tombstones: Callable[[], Tombstones]
    configuration: Callable[[], Configuration]

    def note(self, row: Row, at: datetime) -> str:
        """Note what was handed over at a time, UTC, when the read began. Return the id of the receipt."""
        receipt_id = f"{_PREFIX}{ULID.from_datetime(at)}"
        waiting_rows.append(self.storage, _PENDING, {"id": receipt_id, "called_at": at, **row})
        return receipt_id

    def find(self, receipt_id: str) -> Row | None:
        """Return the row of a receipt, or None."""
        try:
            day = f"{ULID.from_str(receipt_id.removeprefix(_PREFIX)).datetime:%Y-%m-%d}"
        except ValueError:
            return None
        rows = [row for row in self._pending() if row["id"] == receipt_id]
        # A run may have moved it meanwhile.
        where = pc.field("id") == receipt_id
        rows += self.tables().read(READ_RECEIPTS, [day], where=where).to_pylist() if not rows else []
        return rows[0] if rows else None

    def newest(self, scope: Scope, asking_agent: str, conversation_id: str | None, most: int) -> list[Row]:
        """Return the newest receipts of an agent that read a scope, optionally of a conversation, newest first."""

        def is_wanted(row: Row) -> bool:
            is_own = (row["scope"], row["asking_agent"]) == (scope.key, asking_agent)
            return is_own and conversation_id in {None, row["conversation_id"]}

        found = {row["id"]: row for row in filter(is_wanted, self._pending())}
        where = (pc.field("scope") == scope.key) & (pc.field("asking_agent") == asking_agent)
        for day in reversed(self.tables().keys(READ_RECEIPTS)):
            # Rows of a day may still be pending, so each day is read before the newest are chosen.
            if len(found) >= most and day < min(f"{row['called_at']:%Y-%m-%d}" for row in found.values()):
                break
            rows = self.tables().read(READ_RECEIPTS, [day], where=where).to_pylist()
            found |= {row["id"]: row for row in filter(is_wanted, rows)}
        return sorted(found.values(), key=lambda row: str(row["id"]), reverse=True)[:most]

    def with_items(self, workspace_id: str, is_wanted: Callable[[Row], bool]) -> list[tuple[Row, list[Row]]]:
        """Return the receipts of a workspace that have items that are wanted, each with these."""
        found: dict[str, tuple[Row, list[Row]]] = {}

        def note(rows: Iterable[Row]) -> None:
            for row in rows:
                if row["workspace_id"] == workspace_id and (items := [*filter(is_wanted, row["items"])]):
                    found[row["id"]] = row, items

        note(self._pending())
        where = pc.field("workspace_id") == workspace_id
        for day in self.tables().keys(READ_RECEIPTS):  # one by one, since they may be large
            note(self.tables().read(READ_RECEIPTS, [day], where=where).to_pylist())
        return list(found.values())

    def settle(self, now: datetime | None = None) -> None:
        """Move the pending rows into the table. With `now`, also delete those that are no longer kept.

        Rows about an erased agent, user or conversation are dropped. Those from before another erasure of their
        workspace lose the texts of all items: they may hold what was erased. Safe to repeat, to interrupt and to run
        concurrently.
        """
        self._flush()
        paths, rows, damaged = list[str](), list[Row](), []
        for path, found, rejected in waiting_rows.files_in(self.storage, _PENDING, _parsed):
            paths.append(path)
            rows += found
            damaged += rejected
        if damaged:
            self.journal.set_aside(damaged)
            _log.warning("%d receipts cannot be read; they are in the quarantine", len(damaged))
        if rows := list(self._remembered(rows)):

            def grown(old: pa.Table) -> pa.Table:
                new = pa.Table.from_pylist(list({row["id"]: row for row in rows}.values()), schema=old.schema)
                return pa.concat_tables([old, new.filter(pc.invert(pc.is_in(new["id"], old["id"].combine_chunks())))])

            self.tables().transform(READ_RECEIPTS, {row["day"] for row in rows}, grown)
        self.storage.delete(paths)
        if now is not None:
            self._finish_erasures()
            self._expire(now)

    def note_erasure(self, tombstones: Iterable[Tombstone]) -> None:
        """Note that an erasure has removed what it found in the table."""
        for one in tombstones:
            self.storage.create(_mark(one), b"")

    def rewrite(
        self, change: Callable[[Row], Row | None], *, through: str | None = None, dry_run: bool = False
    ) -> dict[str, int]:
        """Replace each row by what `change` returns, or drop it. Return the number of changed rows by day.

        `through` is the last day to change. Days are changed one by one, since they may be large. With `dry_run`, only
        count.
        """
        counts = {}
        for day in self.tables().keys(READ_RECEIPTS):
            if through is not None and day > through:
                break
            rows = self.tables().read(READ_RECEIPTS, [day]).to_pylist()
            if number := sum(change(row) != row for row in rows):
                counts[day] = number
                if dry_run:
                    continue

                def changed(old: pa.Table) -> pa.Table:
                    left = [new for row in old.to_pylist() if (new := change(row)) is not None]
                    return pa.Table.from_pylist(left, schema=old.schema)

                self.tables().transform(READ_RECEIPTS, [day], changed)
        return counts

    def drop_expired_items(self) -> None:
        """Remove the texts of items whose sources have expired by the retention of their workspace."""
        marks = ExpirationMarks.of(self.tables())
        if not marks:
            return

        def kept(row: Row) -> Row:
            owner = Scope(row["workspace_id"], row["agent_id"])
            return {**row, "items": [lost(item, EXPIRED) if is_expired(item, owner) else item for item in row["items"]]}

        def is_expired(item: Row, owner: Scope) -> bool:
            retention_class = class_of(item)
            through = None if retention_class is None else marks.through(owner, retention_class)
            return through is not None and bool(item["period"]) and item["period"] <= through

        self.rewrite(kept)

    def _finish_erasures(self) -> None:
        """Remove the texts of all items from before an erasure by a version of the package that knows no receipts."""
        reached = {entry.path for entry in self.storage.list(_REACHED)}
        done = [one for one in self.tombstones().all() if one.is_done and _mark(one) not in reached]
        last: dict[str, datetime] = {}
        for one in done:
            last[one.workspace_id] = max(one.forgotten_at, last.get(one.workspace_id, one.forgotten_at))
        if not last or not self.tables().keys(READ_RECEIPTS):
            return

        def without(row: Row) -> Row:
            is_before = row["workspace_id"] in last and row["called_at"] <= last[row["workspace_id"]]
            return {**row, "items": [lost(item, ERASED) for item in row["items"]]} if is_before else row

        if self.rewrite(without):
            self.tables().purge(READ_RECEIPTS)
        self.note_erasure(done)

    def _expire(self, now: datetime) -> None:
        """Delete receipts that are older than their workspace keeps them."""
        configuration, zone = self.configuration(), self.calendar().zone
        before: dict[str, datetime] = {}

        def kept(row: Row) -> Row | None:
            name = row["workspace_id"]
            if name not in before:
                duration = configuration.receipts(name)
                before[name] = now if duration is None else duration.before(now, zone)
            return row if row["called_at"] >= before[name] else None

        durations = configuration.receipts_of_all()
        latest = max(now if one is None else one.before(now, zone) for one in durations)
        self.rewrite(kept, through=f"{latest.astimezone(UTC):%Y-%m-%d}")

    def _flush(self) -> None:
        waiting_rows.flush(self.storage, _PENDING)

    def _pending(self) -> Iterator[Row]:
        self._flush()
        for _, rows, _ in waiting_rows.files_in(self.storage, _PENDING, _parsed):
            yield from rows

    def _remembered(self, rows: Iterable[Row]) -> Iterator[Row]:
        forgotten, last = self.tombstones().forgotten(), dict[str, datetime]()
        for one in self.tombstones().all():
            last[one.workspace_id] = max(one.forgotten_at, last.get(one.workspace_id, one.forgotten_at))
        for row in rows:
            at, about = row["called_at"], {"conversation_id": row["conversation_id"]}
            if any(forgotten.reaches(scope, at, **about) for scope in scopes_in(row)):
                continue
            is_unsure = row["workspace_id"] in last and at <= last[row["workspace_id"]]
            yield {**row, "items": [lost(item, ERASED) for item in row["items"]]} if is_unsure else row


def _mark(tombstone: Tombstone) -> str:
    return f"{_REACHED}/{digest(tombstone.id, tombstone.forgotten_at.isoformat())}"


def lost(item: Row, why: str) -> Row:
    """Return an item without its text and its ids."""
    return item if item["lost"] else {**dict.fromkeys(item), **{name: item[name] for name in _KEPT}, "lost": why}


def class_of(item: Row) -> RetentionClass | None:
    """Return the class by which an item's source expires; None if it never does."""
    grain, kind = item["grain"], item["kind"]
    if grain == Grain.WORKING:
        if kind == FactKind.TURN:
            return RetentionClass.CONVERSATIONS
        is_preference = kind in {FactKind.PREFERENCE, FactKind.INSTRUCTION}
        return RetentionClass.PREFERENCES if is_preference else RetentionClass.FACTS
    if grain == "graph":
        return RetentionClass.GRAPH
    return RetentionClass(grain) if grain in {one.value for one in Grain} else None


def scopes_in(row: Row) -> tuple[Scope, Scope]:
    """Return the scope that was read, and the own scope of the agent that read it."""
    return Scope(*(row[name] for name in SCOPE_COLUMNS)), Scope(row["workspace_id"], row["asking_agent"])


def texts_of(items: Collection[Row]) -> list[str]:
    """Return the texts of items."""
    return [text for item in items for text in (item["content"], item["label"], item["warning"]) if text]


def _parsed(lines: Sequence[bytes]) -> list[Row]:
    """Return the rows of lines. Raise an error if any of them is no row."""
    rows = []
    for line in lines:
        row: Row = json.loads(line)
        at = datetime.fromisoformat(row["called_at"]).astimezone(UTC)
        as_of = None if row["as_of"] is None else datetime.fromisoformat(row["as_of"]).astimezone(UTC)
        row = {**row, "called_at": at, "as_of": as_of, "day": f"{at:%Y-%m-%d}"}
        scopes_in(row)
        rows.append(row)
    found: list[Row] = pa.Table.from_pylist(rows, schema=READ_RECEIPTS.schema).to_pylist()
    return found
