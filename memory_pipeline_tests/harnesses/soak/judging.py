"""Check all invariants after a soak."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline import Memory
from memory_pipeline.checks import CheckContext, checks_of, run_checks
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.sessions import EntryKind
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.erasure import ErasureReport, verify
from memory_pipeline.lake.orphans import unnamed_files, vacuum
from memory_pipeline.lake.schemas import TABLES
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.sessions.store import existing_stores
from memory_pipeline.settings import DEFAULT_START
from memory_pipeline.steps.consolidation.days import pending_days
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline_tests.building import index_rows
from memory_pipeline_tests.harnesses.soak.expected import Present, journal_of, read_notes, read_oracles, rebuild
from memory_pipeline_tests.harnesses.soak.generated import WORD
from memory_pipeline_tests.harnesses.soak.operating import make_all
from memory_pipeline_tests.harnesses.soak.shared import POOL, SESSIONS, Tail
from memory_pipeline_tests.lake_digest import marts_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from memory_pipeline.lake import Lake
    from memory_pipeline_tests.harnesses.soak.expected import Record
    from memory_pipeline_tests.harnesses.soak.shared import SharedFolder

#: The number of violations to print.
_NAMED = 5
#: The prefix of findings of a verification about names.
_NAMES = "names of the person"
#: Tables that must equal those of the rebuilt lake. Others depend on how a lake was built.
_COMPARED = (
    "messages", "facts", "summaries", "graph_operations", "graph_facts", "memory_events", "memories",
    "consolidation_events",
)  # fmt: skip
#: Marts that must equal those of the rebuilt lake.
_COMPARED_MARTS = ("memory_growth", "memory_by_period", "memory_inventory", "entities_over_time", "compression")


@dataclass
class Verdict:
    """The verdict on an invariant.

    Attributes:
        what: the invariant.
        figures: counts of the checked items.
        wrong: the violations.
    """

    what: str
    figures: str = ""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        head = f"{'yes' if not self.wrong else 'NO ':<4}{self.what}: {self.figures}"
        more = [f"      … and {len(self.wrong) - _NAMED:,} more"] if len(self.wrong) > _NAMED else []
        return "\n".join([head, *(f"      {one}" for one in self.wrong[:_NAMED]), *more])


class Judge:
    """Checks a lake after its soak.

    Args:
        shared: the shared folder of the soak.
        lake: the lake, without injected faults.
        now: the simulated time at the end.
    """

    def __init__(self, shared: SharedFolder, lake: Lake, now: datetime) -> None:
        self._shared = shared
        self._plan = shared.plan
        self._lake = lake
        self._now = now
        self._written = read_oracles(shared)
        self._noted = read_notes(shared)
        self._present = Present.of(lake)
        self._numbers = [number for number in range(10_000) if shared.is_forgotten(number)]
        self._forgotten = self._plan.forgotten(self._numbers)
        self._marks = ExpirationMarks.of(lake.tables)

    def verdicts(self) -> Iterator[Verdict]:
        yield self._acknowledged()
        yield self._nothing_else()
        yield self._garbage()
        yield self._journal()
        yield self._settled()
        yield self._checked()
        yield self._pools()
        yield self._sessions()
        yield from self._rebuilt()
        yield self._orphans()  # before the next two: files of killed runs may contain erased data
        yield self._erased()
        yield self._bytes()

    def _acknowledged(self) -> Verdict:
        verdict = Verdict("every acknowledged record is present once, erased or expired")
        counts: Counter[str] = Counter()
        for identifier, records in self._written.certain.items():
            one = records[0]
            if self._forgotten.covers(one):
                counts["erased"] += 1
                if self._present.has(one):
                    verdict.wrong.append(f"{identifier} was erased and is present")
            elif self._has_expired(one):
                counts["expired"] += 1
                if self._present.has(one):
                    verdict.wrong.append(f"{identifier} has expired and is present")
            else:
                counts["present"] += 1
                if not self._present.has(one):
                    verdict.wrong.append(f"{identifier} was acknowledged and is lost: {one.to_record()}")
        texts = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        verdict.figures = f"{len(self._written.certain):,} records of {self._written.actions:,} actions: {texts}"
        return verdict

    def _has_expired(self, record: Record) -> bool:
        if isinstance(record, MemoryEvent):
            return False
        kept = RetentionClass.CONVERSATIONS if isinstance(record, Message) else RetentionClass.GRAPH
        return record.hour.key <= (self._marks.through(record.scope, kept) or "")

    def _nothing_else(self) -> Verdict:
        known = self._written.certain.keys() | self._written.possible.keys()
        strange = sorted(self._present.ids - known)
        possible = self._written.possible.keys() - self._written.certain.keys()
        there = len(possible & self._present.ids)
        figures = f"{len(self._present.ids):,} present, {there:,} of them from {len(possible):,} dropped records"
        return Verdict("every present record was written", figures, strange)

    def _garbage(self) -> Verdict:
        aside = {str(one.record): one.reason for one in self._lake.journal.quarantined()}
        wrong = []
        count = 0
        for scope, line, at in self._written.garbage:
            if self._forgotten.reaches(scope, at, texts=[line]):
                continue
            count += 1
            if not any(line in record for record in aside) or not all(aside.values()):
                wrong.append(f"{line[:80]!r} of {scope} is not quarantined")
        found = {word for rows in self._rows("messages") for word in _words(rows["content"])}
        wrong += [f"{word} was refused and is present" for word in sorted(self._written.refused & found)]
        figures = f"{count:,} lines quarantined; {len(self._written.refused):,} words refused"
        return Verdict("invalid lines are quarantined, and refused conversations leave nothing", figures, wrong)

    def _journal(self) -> Verdict:
        files = [file.path for file in self._lake.journal.pending()]
        return Verdict("the journal is acknowledged", f"{len(files):,} files are left", files)

    def _settled(self) -> Verdict:
        pending = [f"{grain} {period}" for grain in Grain for period in self._status(grain)]
        pending += [f"night {night}" for night in pending_days(self._lake, DEFAULT_START, self._now)]
        before = {name: self._lake.tables.version(spec) for name, spec in TABLES.items()}
        made = make_all(self._lake, self._now)
        after = {name: self._lake.tables.version(spec) for name, spec in TABLES.items()}
        pending += [f"table {name} changed without new data" for name in before if before[name] != after[name]]
        undone = [one.id for one in self._lake.tombstones.all() if not one.is_done]
        pending += [f"tombstone {identifier} is not done" for identifier in undone]
        figures = f"{made:,} periods pending, {len(undone):,} tombstones not done"
        return Verdict("nothing is pending, and a further run changes nothing", figures, pending)

    def _status(self, grain: Grain) -> Iterable[Any]:
        return grain_status(self._lake, grain, DEFAULT_START, self._now).pending

    def _checked(self) -> Verdict:
        findings = list(run_checks(CheckContext(self._lake, self._now), checks_of()))
        # Garbage is quarantined on purpose.
        failed = [one for one in findings if not one.passed and one.check.name != "quarantine"]
        wrong = [f"{one.check.asset} {one.check.name}: {one.offenders} {one.sample} {one.trouble}" for one in failed]
        return Verdict("`memory-pipeline check` passes", f"{len(findings):,} checks", wrong)

    def _pools(self) -> Verdict:
        """Compare pools with the writes that returned. A killed writer may have written more than it knows."""
        verdict = Verdict("every write of a pool that returned is in the pool")
        written: dict[str, set[str]] = {}
        for number in range(self._plan.writers):
            for record in Tail(self._shared.oracle(f"w{number}")).read():
                if record["is"] == "shared":
                    written.setdefault(record["workspace"], set()).add(record["action"])
        for workspace_id, keys in written.items():
            pool = Memory(self._lake.storage.uri, workspace_id=workspace_id).pool(POOL, scope="global")
            verdict.wrong += sorted(keys - pool.read(now=self._now).keys())
        verdict.figures = f"{sum(map(len, written.values())):,} writes in {len(written)} pools"
        return verdict

    def _sessions(self) -> Verdict:
        """Check the notes of conversations: those that were read are promoted once, those of subjects are gone."""
        verdict = Verdict("session state has no erased word, and used entries became one durable memory or stay")
        stored = [one for store in existing_stores(self._lake) for one in store.stored()]
        anywhere = {word for _, entry in stored for word in _words(entry.value)}
        short = Counter(one.entry.key for one in stored if one.container.kind is EntryKind.SHORT_TERM)
        promoted = Counter(word for one in self._present.promoted for word in _words(one.changes.content or ""))
        remembered = Counter(
            word
            for content in dict.fromkeys((row["memory_id"], row["content"]) for row in self._rows("memories"))
            for word in {*_words(content[1] or "")}
        )
        counts: Counter[str] = Counter()
        known = set()
        for key, is_certain in self._noted.items():
            action = self._plan.action(key)
            note = self._plan.note(action)
            known.add(note.word)
            found = (short[key], promoted[note.word], remembered[note.word])
            is_stored = note.word in anywhere
            if self._plan.is_erased(action, self._forgotten):
                counts["erased"] += 1
                is_right = found == (0, 0, 0) and not is_stored
            elif note.reads and is_certain:
                counts["promoted"] += found[1]
                is_right = found in {(0, 1, 1), (1, 0, 0)}
            else:
                is_right = found[1] <= bool(note.reads) and found[1] == found[2]
            if not is_right:
                verdict.wrong.append(
                    f"{note.word} of {key}, read {note.reads} times, has (entries, events, memories) {found}; "
                    f"it is {'' if is_stored else 'not '}in session state"
                )
        verdict.wrong += [f"{word} was promoted and never noted" for word in sorted(promoted.keys() - known)]
        texts = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
        verdict.figures = f"{len(self._noted):,} notes: {texts}; {len(stored):,} entries are stored"
        return verdict

    def _rebuilt(self) -> Iterator[Verdict]:
        """Rebuild the lake from the written records in one run, and compare."""
        records = journal_of(self._written, self._present, self._forgotten)
        fresh = rebuild(str(self._shared.folder / "again"), records, self._now)
        for name in _COMPARED:
            left, right = (_by_text(lake, name) for lake in (self._lake, fresh))
            verdict = Verdict(f"table {name} equals that of the rebuilt lake", f"{left.total():,} rows")
            verdict.wrong = [f"only here: {row}" for row in left - right] + [
                f"only there: {row}" for row in right - left
            ]
            yield verdict
        scopes = sorted({*known_scopes(self._lake), *known_scopes(fresh)}, key=str)
        mine, theirs = index_rows(self._lake, scopes), index_rows(fresh, scopes)
        wrong = [f"{scope} {grain}" for (scope, grain), rows in mine.items() if rows != theirs[scope, grain]]
        yield Verdict("the index equals that of the rebuilt lake", f"{sum(map(len, mine.values())):,} rows", wrong)
        here, there = marts_digest(self._lake), self._marts(fresh)
        wrong = [f"{name}: {here[name]} | {there.get(name)}" for name in sorted(here) if here[name] != there.get(name)]
        wrong = [one for one in wrong if one.split(":")[0].removeprefix("marts/") in _COMPARED_MARTS]
        yield Verdict("the marts equal those of the rebuilt lake", f"{len(here):,} marts", wrong)

    @staticmethod
    def _marts(lake: Lake) -> dict[str, str]:
        from memory_pipeline.analytics import Warehouse, models_of

        for _ in Warehouse(lake).build_all({model.name for model in models_of("marts")}):
            pass
        return marts_digest(lake)

    def _erased(self) -> Verdict:
        """Verify all receipts.

        If an erased person speaks again later, summaries may name that person rightly, and a verification cannot tell
        such names from remnants. These are counted as excused; ids and texts are never excused. Projections are purged
        first, because their files keep replaced rows until then.
        """
        verdict = Verdict("no file contains erased data")
        young = {entry.path for entry in unnamed_files(self._lake.storage) if entry.path.endswith(".parquet")}
        self._lake.index.purge(None)
        for projection in self._lake.projections.values():
            projection.purge(None)
        files = excused = orphaned = 0
        said = self._lake.tables.read(TABLES["messages"], columns=["name", "content", "user_id"]).to_pylist()
        for number in self._numbers:
            receipt = ErasureReport.from_json(self._shared.receipt(number).read_text())
            result = verify(self._lake, receipt)
            files = result.files
            has_come_back = any(
                Mentions(receipt.subject.names).mentioned_in(" ".join(map(str, r.values()))) for r in said
            )
            for finding in result.findings:
                if has_come_back and finding.what.startswith(_NAMES):
                    excused += 1
                elif finding.file in young:
                    orphaned += 1
                else:
                    verdict.wrong.append(f"{receipt.subject}: {finding}")
            verdict.wrong += [f"{receipt.subject}: {one}" for one in result.unsearched]
        verdict.figures = f"{len(self._numbers):,} receipts verified over {files:,} files"
        verdict.figures += f"; {orphaned:,} places in orphans too young to be collected" if orphaned else ""
        verdict.figures += f"; {excused:,} places are of a person who came back" if excused else ""
        return verdict

    def _bytes(self) -> Verdict:
        """Search the raw bytes of all files for forgotten words."""
        words = set()
        for records in self._written.certain.values():
            if isinstance(one := records[0], Message) and self._forgotten.covers(one):
                words.update(_words(one.content))
        noted = map(self._plan.action, self._noted)
        words |= {self._plan.note(one).word for one in noted if self._plan.is_erased(one, self._forgotten)}
        found: Counter[str] = Counter()
        size = 0
        young = {entry.path for entry in unnamed_files(self._lake.storage) if entry.path.endswith(".parquet")}
        for path, data in self._files():
            size += len(data)
            if path not in young and any(word in path or word.encode() in data for word in words):
                found[path] += 1
        figures = f"{len(words):,} words searched in {size:,} bytes"
        return Verdict("no file contains the bytes of erased words", figures, sorted(found))

    def _files(self) -> Iterator[tuple[str, bytes]]:
        storage = self._lake.storage
        names = {entry.path for entry in storage.list("")}
        if storage.is_local:
            root = Path(storage.uri)
            names |= {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        for name in sorted(names):
            yield name, storage.read(name) or b""
        for path in self._shared.folder.glob(f"{SESSIONS}*"):
            yield path.name, path.read_bytes()

    def _orphans(self) -> Verdict:
        """Vacuum with an advanced clock."""
        storage = self._lake.storage
        count = len(unnamed_files(storage))
        # Without this, tables scanned while the files were young would be skipped.
        storage.delete(["state/vacuum.json"])
        found = vacuum(storage, self._lake.tables, datetime.now(UTC) + timedelta(hours=2))
        left = [entry.path for entry in unnamed_files(storage)]
        gone = sum(purged.files for purged in found.values())
        figures = f"{count:,} found, {gone:,} files deleted including leases and uploads"
        return Verdict("orphans are deleted", figures, left)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = _read(self._lake, name).to_pylist()
        return rows


def _words(text: str) -> list[str]:
    return [found[0] for found in WORD.finditer(text)]


def _read(lake: Lake, name: str) -> pa.Table:
    return lake.tables.read(TABLES[name]) if name in TABLES else lake.projections[name].scan()


def _by_text(lake: Lake, name: str) -> Counter[str]:
    rows = _read(lake, name)
    kept = [column for column in rows.column_names if column != "vector"]
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows.select(kept).to_pylist())
