"""Remove the secrets that a lake holds: those that were written before secrets were removed, or under other settings.

Records (messages, edits, events, summaries whose sources have expired), sessions, collections and refused records get
markers in place of secrets. What was derived from them is made again, and the old bytes are deleted. Messages are
rewritten last: until then, an interrupted redaction finds the hours again by their messages, and after it by the facts
that still hold secrets.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.periods import Grain, hour_of
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.domain.text.secrets import kinds_in
from memory_pipeline.erasure.erasure_log import ErasureLog
from memory_pipeline.erasure.forget import asking_nobody, purge_rows
from memory_pipeline.erasure.memories import remove_nights
from memory_pipeline.erasure.removal import drop
from memory_pipeline.lake.codec.facts import rows_to_summaries, summaries_to_rows
from memory_pipeline.lake.collections.collection import collections_of, redact_items
from memory_pipeline.lake.schema_types import Holds
from memory_pipeline.lake.schemas import (
    ANSWERS,
    CONSOLIDATION_EVENTS,
    FACTS,
    GRAPH_OPERATIONS,
    MEMORY_EVENTS,
    MESSAGES,
    SUMMARIES,
)
from memory_pipeline.reader.packing.items import GRAPH
from memory_pipeline.sessions.saved import redact_saved
from memory_pipeline.sessions.store import existing_stores
from memory_pipeline.steps.replay import replay, with_ancestors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from memory_pipeline.domain.summaries import Summary
    from memory_pipeline.domain.text.secrets import Redactor
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec
    from memory_pipeline.models.factory import Models

#: Tables of records, in the order in which they are rewritten. The other rows of the first two follow from messages.
_RECORDS: Final = (GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES)
_TEXTS: Final = (Holds.WORDS, Holds.COPY, Holds.NOTE)
#: Columns that hold JSON.
_JSON: Final = ("changes", "metadata", "value")
_PARTITIONS_AT_ONCE: Final = 200
#: Rounds, if writers under other settings keep adding secrets.
_ROUNDS: Final = 3

_Record = Message | Edit | MemoryEvent


@dataclass(slots=True)
class Redaction:
    """The receipt of a redaction. It holds no secret.

    Attributes:
        at: the time, UTC.
        lake: the address of the lake.
        places: the number of redacted records, by place: a table, ``journal``, ``quarantine``, ``sessions``, …
        kinds: the number of removed secrets in these records, by kind.
        remade: the keys of the periods that were made again, by grain.
        files, bytes: number and size of the deleted files.
        not_covered: what a redaction does not reach.
    """

    at: datetime
    lake: str
    places: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    remade: dict[str, list[str]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    not_covered: tuple[str, ...] = (
        "backups, and old versions of files that a bucket keeps",
        "previews and logs in Dagster's own storage, outside of the lake",
        "the log of PostgreSQL, if sessions are in it, until it is vacuumed",
    )


@dataclass(slots=True)
class _Secrets:
    """What holds secrets: partitions by table or grain of summaries, scopes, and keys of hours and other periods."""

    partitions: dict[str, set[str]] = field(default_factory=dict)
    scopes: set[Scope] = field(default_factory=set)
    periods: dict[Grain, set[str]] = field(default_factory=dict)


def redact(
    lake: Lake,
    models: Models,
    now: datetime,
    progress: Callable[[str], None] = lambda _: None,
    *,
    dry_run: bool = False,
) -> Redaction:
    """Replace all secrets in a lake by markers, and make again what was made from them. Return the receipt.

    What counts as a secret, and whether messages are stored with them, is set by the configuration of each workspace.
    Ids stay. No model is asked: rules fill in, and the next run asks. Safe to repeat and to interrupt, and to run next
    to writers, readers and runs. With `dry_run`, count what would be redacted, and change nothing.

    Raises:
        CommitConflictError: other writers kept committing first; retry.
        DamagedError: files of the lake cannot be read; `memory-pipeline repair` first.
    """
    done = Redaction(now, lake.storage.uri)
    if not lake.exists:
        return done
    models = asking_nobody(lake, models, now)
    for number in range(1 if dry_run else _ROUNDS):
        progress("searching for secrets")
        lake.calls.settle()
        counts = replace(done, places=Counter(), kinds=Counter()) if number else done
        found = _find(lake, counts)
        _redact_files(lake, counts, dry_run=dry_run)
        answers = _answers(lake, counts)
        if dry_run or not (found.partitions or answers):
            break
        log = ErasureLog(scopes=found.scopes)
        progress(f"removing {done.kinds.total():,} secrets")
        _redact_rows(lake, found, answers, log)
        periods = with_ancestors(lake.calendar, found.periods.pop(Grain.WORKING, set()), found.periods)
        progress(f"deriving {len(periods[Grain.WORKING]):,} hours and their summaries again")
        for grain, keys in replay(lake, models, periods, found.scopes).items():
            done.remade[grain.value] = sorted({*done.remade.get(grain.value, ()), *keys})
    if not dry_run:  # even if nothing was found: an earlier attempt may have been killed before this
        progress("deleting files")
        log = ErasureLog()
        purge_rows(lake, None, log)
        done.files, done.bytes = log.files, log.bytes
    return done


def _redactor(lake: Lake, row: dict[str, Any], spec: TableSpec) -> Redactor:
    return lake.redactor_of(row["workspace_id"], of_messages=spec is MESSAGES)


def _redacted(redactor: Redactor, row: dict[str, Any], spec: TableSpec) -> dict[str, Any]:
    """Return the columns of a row in which secrets were replaced."""
    changed: dict[str, Any] = {}
    for name in spec.holding(*_TEXTS):
        old = row.get(name)
        new = _json(redactor, old) if name in _JSON and isinstance(old, str) else redactor.value(old, name)
        if new is not old:
            changed[name] = new
    if "object" in row and (secret := redactor.value({"predicate": row["predicate"], "object": row["object"]})):
        changed |= {} if secret["object"] == row["object"] else {"object": secret["object"]}
    if "redactions" in row and changed:
        changed["redactions"] = sorted({*(row["redactions"] or ()), *kinds_in(json.dumps(changed, default=str))})
    return changed


def _json(redactor: Redactor, text: str) -> str:
    """Return JSON without secrets; other text is redacted as text."""
    try:
        stored = json.loads(text)
    except ValueError:
        return redactor.text(text)
    left = redactor.value(stored)
    return text if left is stored else json.dumps(left, ensure_ascii=False, sort_keys=True)


def _find(lake: Lake, done: Redaction) -> _Secrets:
    """Find rows with secrets in all tables of texts, and count them."""
    found = _Secrets()
    for spec, fixed in [*((one, {}) for one in (*_RECORDS, CONSOLIDATION_EVENTS, FACTS)), *_summaries()]:
        for row in _rows(lake, spec, fixed):
            if changed := _redacted(_redactor(lake, row, spec), row, spec):
                found.partitions.setdefault(_name(spec, fixed), set()).add(row[spec.partition_by[-1]])
                found.scopes.add(Scope(*(row[name] for name in SCOPE_COLUMNS)))
                done.places[spec.name] += 1
                if spec is MESSAGES or spec is MEMORY_EVENTS:
                    done.kinds.update(kinds_in(json.dumps(changed, default=str)))
                grain = Grain(fixed.get("grain", Grain.WORKING))
                found.periods.setdefault(grain, set()).add(_period(lake, row, grain))
    return found


def _period(lake: Lake, row: dict[str, Any], grain: Grain) -> str:
    if "period" in row:
        return str(row["period"])
    at = row["event_at"]
    return hour_of(at).key if grain is Grain.WORKING else lake.calendar.period(grain, at).key


def _name(spec: TableSpec, fixed: dict[str, str]) -> str:
    return fixed.get("grain", spec.name)


def _summaries() -> Iterator[tuple[TableSpec, dict[str, str]]]:
    return ((SUMMARIES, {"grain": grain.value}) for grain in Grain if grain is not Grain.WORKING)


def _rows(lake: Lake, spec: TableSpec, fixed: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, with their texts."""
    extra = {"id", "period", "event_at", "predicate", "object", "redactions", *SCOPE_COLUMNS, *spec.partition_by}
    columns = sorted(({*spec.holding(*_TEXTS)} | extra) & {*spec.schema.names})
    keys = sorted(lake.tables.keys(spec, **fixed))
    for first in range(0, len(keys), _PARTITIONS_AT_ONCE):
        part = keys[first : first + _PARTITIONS_AT_ONCE]
        yield from lake.tables.read(spec, part, columns=columns, shard=None, **fixed).to_pylist()


def _redact_rows(lake: Lake, found: _Secrets, answers: dict[str, dict[str, set[str]]], log: ErasureLog) -> None:
    """Rewrite records, and remove what a replay does not make again by itself."""
    for grain, keys in answers.items():
        drop(lake, ANSWERS, list(keys), "key", {key for listed in keys.values() for key in listed}, grain=grain)
    if not found.partitions.keys().isdisjoint((CONSOLIDATION_EVENTS.name, MEMORY_EVENTS.name)):
        remove_nights(lake, found.scopes, log)
    for spec, fixed in _summaries():
        if partitions := found.partitions.get(_name(spec, fixed)):
            lake.tables.transform(spec, partitions, lambda old: _without(lake, old), shard=None, **fixed)
    for spec in _RECORDS:
        if partitions := found.partitions.get(spec.name):

            def changed(old: pa.Table, spec: TableSpec = spec) -> pa.Table:
                rows = [row | _redacted(_redactor(lake, row, spec), row, spec) for row in old.to_pylist()]
                return pa.Table.from_pylist(rows, schema=old.schema)

            lake.tables.transform(spec, partitions, changed)


def _without(lake: Lake, old: pa.Table) -> pa.Table:
    """Return rows of summaries without secrets. Those that change have no vector until they are indexed."""
    new: list[Summary] = []
    for summary in rows_to_summaries(old):
        redactor = lake.redactor_of(summary.scope.workspace_id)
        points = tuple(
            replace(one, sentence=redactor.text(one.sentence), entities=tuple(map(redactor.text, one.entities)))
            for one in summary.key_points
        )
        left = replace(
            summary,
            content=redactor.text(summary.content),
            entities=tuple(map(redactor.text, summary.entities)),
            key_points=points,
        )
        if left != summary:
            new.append(left)
    if not new:
        return old
    ids = pa.array([one.id for one in new], pa.string())
    return pa.concat_tables([old.filter(pc.invert(pc.is_in(old["id"], ids))), summaries_to_rows(new)])


def _answers(lake: Lake, done: Redaction) -> dict[str, dict[str, set[str]]]:
    """Return the keys of model answers with secrets, by grain and period. A run asks again."""
    found: dict[str, dict[str, set[str]]] = {}
    for grain in Grain:
        for row in _rows(lake, ANSWERS, {"grain": grain.value}):
            if _redacted(lake.redactor_of(row["workspace_id"]), row, ANSWERS):
                found.setdefault(grain.value, {}).setdefault(row["period"], set()).add(row["key"])
                done.places[ANSWERS.name] += 1
    return found


def _redacted_record(lake: Lake, record: _Record) -> _Record:
    """Return a pending record without secrets; itself if it has none."""
    is_message = isinstance(record, Message)
    stored = record.to_record()
    left: Any = lake.redactor_of(record.scope.workspace_id, of_messages=is_message).value(stored)
    if left is stored:
        return record
    if is_message:
        left = {**left, "redactions": sorted({*left.get("redactions", ()), *kinds_in(left["content"])})}
    return type(record).from_record(left, lambda *_: record.scope)


def _redact_files(lake: Lake, done: Redaction, *, dry_run: bool) -> None:
    """Redact pending and refused records of the journal, sessions and collections."""
    for file in lake.journal.pending():
        scope = lake.journal.scope_of(file)
        if scope is None:
            continue
        contents = lake.journal.read(file, file.pending_hours)
        before: list[_Record] = [*contents.messages, *contents.edits, *contents.events]
        after = [_redacted_record(lake, record) for record in before]
        if changed := [new for old, new in zip(before, after, strict=True) if new is not old]:
            done.places["journal"] += len(changed)
            done.kinds.update(kind for new in changed for kind in kinds_in(json.dumps(new.to_record())))
            if not dry_run:
                lake.journal.set_aside(contents.rejected)  # redacted below
                lake.journal.append(after)
                lake.journal.acknowledge([file])
    for entry in lake.journal.set_aside_files():
        with suppress(ValueError, TypeError, KeyError):  # damaged: `memory-pipeline check` names it
            content = json.loads(lake.storage.read(entry.path) or b"")
            record = content["record"]
            workspace = content.get("workspace_id") or (isinstance(record, dict) and record.get("workspace_id"))
            redactor = lake.redactor_of(str(workspace))
            left, reason = redactor.value(record), redactor.text(content["reason"])
            if left is not record or reason is not content["reason"]:
                done.places["quarantine"] += 1
                if not dry_run:
                    owner = {name: content[name] for name in content.keys() - {"reason", "where", "record"}}
                    paths = lake.journal.set_aside([Rejection(reason, content["where"], left, owner)])
                    lake.storage.delete({entry.path} - paths)
    for store in existing_stores(lake):
        done.places["sessions"] += store.redact(dry_run=dry_run)
        if not dry_run:
            store.database.compact()
    _redact_archive(lake, done, dry_run=dry_run)
    done.places["read_receipts"] += _redact_receipts(lake, dry_run=dry_run)
    done.places["sessions"] += redact_saved(lake.storage, lake.redactor_of, dry_run=dry_run)
    for scope, folder, names in collections_of(lake):
        for name in names:
            count = redact_items(lake, folder, name, lake.redactor_of(scope.workspace_id), dry_run=dry_run)
            done.places["collections"] += count
    done.places += Counter()  # without zeros


def _redact_archive(lake: Lake, done: Redaction, *, dry_run: bool) -> None:
    """Redact the rows that retention has archived. Facts are not made again: their texts are redacted as they are."""
    for file in lake.archived.files():
        rows = lake.archived.read(file)
        before = [] if rows is None else rows.to_pylist()
        changes = [_redacted(_redactor(lake, row, file.spec), row, file.spec) for row in before]
        if rows is None or not any(changes):
            continue
        done.places["archive"] += sum(map(bool, changes))
        done.kinds.update(kind for one in changes for kind in kinds_in(json.dumps(one, default=str)))
        if dry_run:
            continue
        after = [_restated(row, changed) if changed else row for row, changed in zip(before, changes, strict=True)]
        scope = Scope(*(before[0][name] for name in SCOPE_COLUMNS))
        lake.archived.replace(file, scope, pa.Table.from_pylist(after, schema=rows.schema))


def _restated(row: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    """Return a row with changed texts: with another digest, and without the vector of the old text."""
    other = {"digest": digest(row["digest"], json.dumps(changed, default=str))} if row.get("digest") else {}
    return row | changed | other | {name: None for name in ("vector", "embed_model") if name in row}


def _redact_receipts(lake: Lake, *, dry_run: bool) -> int:
    """Replace the secrets in receipts of reads. Return how many had some."""

    def without(row: dict[str, Any]) -> dict[str, Any]:
        redactor = lake.redactor_of(row["workspace_id"])

        def left(item: dict[str, Any]) -> dict[str, Any]:
            found = {name: redactor.text(item[name]) for name in ("content", "label", "warning") if item[name]}
            if item["grain"] == GRAPH and item["content"]:  # a predicate may say that its object is a secret
                words = item["content"].split(" ")
                for place, predicate in enumerate(words[1:-1], 1):
                    stated = {"predicate": predicate, "object": " ".join(words[place + 1 :])}
                    if (secret := redactor.value(stated)) is not stated:
                        found["content"] = " ".join([*words[: place + 1], secret["object"]])
                        break
            return {**item, **found}

        return {**row, "items": list(map(left, row["items"]))}

    if not dry_run:
        lake.read_receipts.settle()
    return sum(lake.read_receipts.rewrite(without, dry_run=dry_run).values())
