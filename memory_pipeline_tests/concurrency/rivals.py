"""Concurrent processes that start at the same moment and write to one lake.

Each work takes the root of the lake, the number of its process and the number of rounds. Each round commits at least
once.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.model_calls import Answer, Call, Purpose, Usage, Use
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.leases import Leases
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.lake.tables.handles import turn_at
from memory_pipeline.lake.tables.ledger import LedgerEntry
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.lake.tables.tables import Tables
from memory_pipeline.models.factory import default_models
from memory_pipeline.steps.fold_graph import fold_graph
from memory_pipeline.steps.fold_memories import fold_memories
from memory_pipeline_tests.building import ACME, PROCESSES
from memory_pipeline_tests.index_rows import put_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from memory_pipeline.lake.calls.call_store import Calls

    Work = Callable[[str, int, int], object]

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
AT = datetime(2026, 11, 20, 8, 30, tzinfo=UTC)
#: The maximum wait of the processes for each other, in seconds.
_PATIENCE = 300
_barrier: Any = None


class Rivals:
    """A pool of `count` processes that have imported the product."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ProcessPoolExecutor(count, PROCESSES, _meet, (PROCESSES.Barrier(count),))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def race(self, work: Work, root: str, rounds: int, environment: Mapping[str, str] | None = None) -> list[Any]:
        """Run the work in all processes. Return the results by number; an exception of a process is raised."""
        return self.do([partial(work, root, number, rounds) for number in range(self.count)], environment)

    def do(self, works: Sequence[Callable[[], Any]], environment: Mapping[str, str] | None = None) -> list[Any]:
        """Run different works at once; processes without work do nothing."""
        parts = [*works, *[_nothing] * (self.count - len(works))]
        futures = [self._pool.submit(_begin, part, dict(environment or {})) for part in parts]
        return [future.result() for future in futures][: len(works)]


def _meet(barrier: Any) -> None:
    global _barrier  # noqa: PLW0603  # a process has one
    _barrier = barrier


def _begin(work: Callable[[], Any], environment: dict[str, str]) -> Any:
    os.environ.update(environment)
    _barrier.wait(_PATIENCE)
    return work()


def _nothing() -> None:
    pass


# --- tables ----------------------------------------------------------------------------------------------------------


def ledger_row(bucket: str, period: str) -> pa.Table:
    """Return a ledger row; the table has one partition per bucket."""
    entry = {"bucket": bucket, "asset": "a", "period": period, "input_digest": "", "output_digest": "", "rows": 1,
             "agents": 1, "unfinished": 0, "expired": 0}  # fmt: skip
    return pa.Table.from_pylist([entry], schema=LEDGER.schema)


def append_rows(root: str, number: int, rounds: int, *, shared: bool, seconds: float = 0) -> int:
    """Append one row per round. Return the maximum number of attempts for a row.

    Args:
        root: the root of the lake.
        number: the number of the process.
        rounds: the number of rows.
        shared: append to a partition shared by all processes instead of a separate one.
        seconds: the duration of each change.
    """
    tables = Tables(Storage(root))
    bucket, most = "shared" if shared else f"own-{number}", 0
    for each in range(rounds):
        attempts = 0

        def appended(old: pa.Table, each: int = each) -> pa.Table:
            nonlocal attempts
            attempts += 1
            time.sleep(seconds)
            return pa.concat_tables([old, ledger_row(bucket, f"{number}-{each}")])

        tables.transform(LEDGER, [bucket], appended)
        most = max(most, attempts)
    return most


def record_entries(root: str, number: int, rounds: int) -> None:
    """Record a separate hour and a shared hour of the same month."""
    ledger = Lake(root).ledger
    for each in range(rounds):
        own, common = (FIRST + timedelta(hours=60 * number + each)), FIRST + timedelta(days=25)
        ledger.record(
            [
                LedgerEntry("working_facts", f"{own:%Y-%m-%dT%H}", "in", "out", each, 1),
                LedgerEntry("working_facts", f"{common:%Y-%m-%dT%H}", "in", f"{number}", each, 1),
            ]
        )


def replace_marts(root: str, number: int, rounds: int) -> None:
    """Replace separate parts of a mart, and in every tenth round another mart as a whole."""
    marts = Marts(Storage(root))
    for each in range(rounds):
        month = f"{number}-{each}"
        rows = pa.table({"month": [month], "n": pa.array([each], pa.int64())})
        marts.replace("parts", rows, column="month", values=[month])
        if each % 10 == 0:
            marts.replace("whole", pa.table({"n": list(range(5))}), column=None, values=None)


# --- agents ----------------------------------------------------------------------------------------------------------


def moment(number: int, each: int) -> datetime:
    """Return a time in an hour that no other process uses."""
    return FIRST + timedelta(hours=60 * number + each, minutes=5)


def edit_of(number: int, each: int, scope: Scope = ACME) -> Edit:
    """Return an edit about an entity that edits of other processes mention too."""
    at = moment(number, each).isoformat()
    return Edit.from_record(
        {"edit": "INSERT", "workspace_id": scope.workspace_id, "agent_id": scope.agent_id, "timestamp": at,
         "subject": f"Anna {each % 5}", "predicate": ("knows", "lives_in")[number % 2],
         "object": f"Place {number}-{each}", "received_at": at}
    )  # fmt: skip


def event_of(number: int, each: int, scope: Scope = ACME) -> MemoryEvent:
    """Return an event of a separate memory or, in every fifth round, of a shared one."""
    at = moment(number, each)
    content = "All of them say so." if each % 5 == 0 else f"Rival {number} noted number {each}."
    changes = Changes.of({"kind": "observation", "content": content})
    return MemoryEvent.of(scope, MemoryVerb.REMEMBER, at, changes, received_at=at)


def scope_of(number: int) -> Scope:
    return Scope("acme", f"agent-{number % 8}")


def fold_edits(root: str, number: int, rounds: int, *, agents: bool) -> None:
    """Fold separate hours into the graph of one agent, or of one of eight and then of all eight."""
    lake = Lake(root)
    for each in range(rounds):
        scopes = [scope_of(number), scope_of(each)] if agents else [ACME]
        edits = [edit_of(number, each, scope) for scope in dict.fromkeys(scopes)]
        fold_graph(lake, [edits[0].hour], edits)


def land_memories(root: str, number: int, rounds: int) -> None:
    """Fold separate hours into the durable memories of one agent."""
    lake, embedder = Lake(root), default_models().embedder
    for each in range(rounds):
        event = event_of(number, each)
        fold_memories(lake, embedder, [event.hour], [event])


def index_rows_of(key: str, texts: Sequence[str]) -> pa.Table:
    """Return index rows of one hour."""
    at = Period.parse("working", key).first_day
    starts = datetime(at.year, at.month, at.day, int(key[-2:]), tzinfo=UTC)
    rows = [
        {"id": f"working:{key}:{text}", "period": key, "kind": "turn", "content": text, "terms": text.split(),
         "starts_at": starts, "ends_at": starts, "mentioned_at": None, "speaker": "Anna", "turn": place, "position": 0,
         "tags": [], "entities": [], "importance": 0.5, "conversation_id": "c", "source_ids": [text], "digest": "d",
         "embed_model": "test", "vector": [float(place == axis) for axis in range(8)]}
        for place, text in enumerate(texts)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=index_schema(8))


def merge_index(root: str, number: int, rounds: int) -> None:
    """Replace an hour of one's own and one that all replace, of one agent."""
    index = Lake(root).index
    for each in range(rounds):
        for own in (number, 9):
            key = f"{FIRST + timedelta(hours=60 * own + each):%Y-%m-%dT%H}"
            texts = (f"{own}-{each} one", f"{own}-{each} two")
            put_rows(index, Grain.WORKING, [Period.parse("working", key)], {ACME: index_rows_of(key, texts)})


# --- calls and leases ------------------------------------------------------------------------------------------------


def keep_calls(root: str, number: int, rounds: int) -> Usage:
    """Ask a separate and a shared question, and settle. Return the usage that this process has settled."""
    calls, usage = Lake(root).calls, Usage()
    for each in range(rounds):
        for name in (f"{number}-{each}", f"all-{each}"):
            _ask(calls, name, number, Use(ACME, Period.parse("working", f"{moment(0, each):%Y-%m-%dT%H}")))
        for settled in calls.settle().values():
            usage += settled
    return usage


def _ask(calls: Calls, name: str, number: int, use: Use) -> None:
    """Ask a question unless it is answered, like callers of models."""
    key, request = digest(name), digest(number, name)
    while calls.find(key, use.period) is None:
        if not calls.claim(key, timedelta(minutes=5)):
            time.sleep(0.002)
            continue
        if calls.find(key, use.period) is None:
            call = Call(request, request, key, use, Purpose.EXTRACTION, "m", "p", 1, 1, 1, None, 0.1, "ok", AT)
            calls.keep([call], Answer(key, use, Purpose.EXTRACTION, "m", "p", name, 1, 1, None))
        calls.release(key)


def count_up(root: str, number: int, rounds: int) -> None:
    """Increment a number in a file while holding its lease."""
    storage = Storage(root)
    claims = Leases(storage, "claims", lambda: datetime.now(UTC))
    for _ in range(rounds):
        with leased(claims, "counter"):
            storage.write("counter", str(int(storage.read("counter") or b"0") + 1).encode())


class leased:  # noqa: N801  # used like a function
    """Holds a lease for the duration of the block."""

    def __init__(self, claims: Leases, key: str) -> None:
        self._claims, self._key = claims, key

    def __enter__(self) -> None:
        while not self._claims.claim(self._key, timedelta(minutes=5)):
            time.sleep(0.002)

    def __exit__(self, *_: object) -> None:
        self._claims.release(self._key)


# --- turns -----------------------------------------------------------------------------------------------------------


def append_until(root: str, number: int, rounds: int) -> int:
    """Append rows to the shared partition until the slow writer is done. Return the number of rows."""
    storage = Storage(root)
    tables, added = Tables(storage), 0
    while storage.read("enough") is None:
        rows = ledger_row("shared", f"{number}-{added}")
        tables.transform(LEDGER, ["shared"], lambda old, rows=rows: pa.concat_tables([old, rows]))  # type: ignore[misc]
        added += 1
    return added


def append_slowly(root: str, number: int, rounds: int, *, seconds: float) -> int:
    """Append rows with slow changes, then stop the others. Return the maximum number of attempts for a row."""
    try:
        return append_rows(root, number, rounds, shared=True, seconds=seconds)
    finally:
        Storage(root).write("enough", b"")


def take_and_stay(root: str) -> None:
    """Take the ledger's turn, signal it, and keep it."""
    storage = Storage(root)
    turn_at(storage, f"tables/{LEDGER.name}").take(timedelta(hours=1))
    storage.write("taken", b"")
    time.sleep(_PATIENCE)
