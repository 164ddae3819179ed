"""Extract working facts from messages: the turns themselves, and the facts stated in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import ConversationHour
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain, hour_of
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.domain.values import batched
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.codec.facts import (
    OPERATION_COLUMNS,
    facts_to_rows,
    message_digest,
    row_operations,
    rows_to_messages,
)
from memory_pipeline.lake.codec.graph import rows_to_operations
from memory_pipeline.lake.files.storage_errors import REMEDY
from memory_pipeline.lake.schemas import FACTS, MESSAGES, OPERATIONS
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.embed import stored_vectors, with_vectors
from memory_pipeline.steps.group import agents_in, by_period, by_scope
from memory_pipeline.steps.lost_rows import has_lost, lost_rows
from memory_pipeline.steps.results import PartitionResult, RowDigests, digests_of, unfinished_rows
from memory_pipeline.steps.validation import are_sound, validate_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memory_pipeline.domain.facts import Extractor, Fact
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: Most messages of the hour before that a model is shown with a passage.
_EARLIER = 6

#: Passages are extracted together until they have so many messages.
_MESSAGES_AT_ONCE = 2_000

_Key = tuple[str, str, str]


@dataclass
class Reading:
    """The messages and facts of some hours, and which passages to extract.

    Attributes:
        messages: by time.
        changed: conversation hours whose facts are not in `kept`, each with the digest that its facts will have.
        kept: current rows: neither the messages nor the extraction method has changed.
        carried: rows that cannot be extracted again, since their messages have expired.
        old: all existing rows.
    """

    messages: list[Message]
    changed: list[ConversationHour]
    kept: pa.Table
    carried: pa.Table
    old: pa.Table


def read_hours(
    lake: Lake,
    extractor: Extractor,
    hours: Sequence[Period],
    old: pa.Table,
    shard: int | None = None,
    *,
    is_fresh: bool = False,
) -> Reading:
    """Read the messages of `hours` and find the current rows of `old`.

    Passages that fell back on rules are stale. With `is_fresh`, all are.
    """
    rows = lake.tables.read(MESSAGES, [hour.key for hour in hours], shard=shard)
    stored = sorted(rows_to_messages(rows), key=_order)
    marks = ExpirationMarks.of(lake.tables)
    _refuse_lost(lake, hours, stored, old, marks)
    messages = lake.as_evidence(stored, lake.corrections.in_force(lake.journal.entries())) if stored else []
    grouped: dict[_Key, list[Message]] = defaultdict(list)
    for message in messages:
        grouped[message.scope.key, message.hour.key, message.conversation_id].append(message)
    passages = [
        ConversationHour(
            scope=group[0].scope,
            hour=group[0].hour,
            conversation_id=group[0].conversation_id,
            messages=tuple(group),
            digest=digest(extractor.method(group[0].scope), *map(message_digest, group)),
        )
        for group in grouped.values()
        if any(message.role.is_memorable for message in group)
    ]
    current = {(_key(passage), passage.digest) for passage in passages}
    ids = {_key(passage): {message.id for message in passage.messages} for passage in passages}
    # If one row of a passage is wrong or cites other messages, the whole passage is extracted again.
    unsound = {
        key
        for key, is_sound, sources in zip(_keys(old), are_sound(old), old["message_ids"].to_pylist(), strict=True)
        if not is_sound or not ids.get(key, set()).issuperset(sources)
    }
    is_current = [
        not is_fresh and fallback is None and (key, source_digest) in current and key not in unsound
        for key, fallback, source_digest in zip(
            _keys(old), old["fallback"].to_pylist(), old["source_digest"].to_pylist(), strict=True
        )
    ]
    is_carried = has_lost(old, marks, {message.id for message in stored}) & ~np.array(is_current, np.bool_)
    kept, carried = old.filter(pa.array(is_current, pa.bool_())), old.filter(pa.array(is_carried))
    done = set(_keys(kept))
    return Reading(messages, [one for one in passages if _key(one) not in done], kept, carried, old)


def _refuse_lost(
    lake: Lake, hours: Sequence[Period], messages: Sequence[Message], old: pa.Table, marks: ExpirationMarks
) -> None:
    """Raise if messages are missing but have not expired: recomputing would delete the facts from them."""
    has_expired = pa.array(marks.mask(old, RetentionClass.CONVERSATIONS))
    missing = {*old.filter(pc.invert(has_expired))["period"].to_pylist()} - {message.hour.key for message in messages}
    if not missing:
        return
    entries = lake.ledger.entries(MESSAGES_ASSET, [hour for hour in hours if hour.key in missing])
    forgotten = {key for tombstone in lake.tombstones.all() for key in tombstone.hours}
    lost = sorted(key for key, entry in entries.items() if entry.rows > entry.expired and key not in forgotten)
    if lost:
        raise DamagedError(
            f"table messages: {entries[lost[0]].rows:,} messages of {lost[0]} are missing; the facts extracted from "
            f"them are unchanged; {REMEDY}",
            lost,
        )


def extract_facts(
    lake: Lake,
    extractor: Extractor,
    embedder: Embedder,
    hours: list[Period],
    shard: int | None = None,
    *,
    is_fresh: bool = False,
) -> list[PartitionResult]:
    """Recompute the ``facts`` partitions of `hours`: extract new and stale passages, or all with `is_fresh`.

    Return one result per hour.
    """
    results: list[PartitionResult] = []

    def extracted(old: pa.Table) -> pa.Table:
        nonlocal results
        # Read inside the attempt: after a concurrent commit of facts the attempt starts over with newer messages.
        reading = read_hours(lake, extractor, hours, old, shard, is_fresh=is_fresh)
        refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        waiting: set[_Key] = set()
        known = stored_vectors(lake, Grain.WORKING, old, embedder)
        new = [FACTS.schema.empty_table()]
        # In parts, because the facts of many messages take much memory.
        for changed in batched(reading.changed, lambda passage: len(passage.messages), _MESSAGES_AT_ONCE):
            passages = _with_earlier(lake, changed, reading.messages, shard)
            extractions = extractor.extract(passages, partial(_recall, lake, reading, passages, hours))
            facts: list[Fact] = []
            for passage, extraction in zip(passages, extractions, strict=True):
                facts += (replace(fact, source_digest=passage.digest) for fact in extraction.facts)
                refused[passage.hour.key] += extraction.refused
                waiting |= {_key(passage)} if extraction.is_waiting else set()
            new.append(with_vectors(facts_to_rows(facts), known, hours, embedder))
        earlier = pa.concat_tables([reading.kept, reading.carried, _postponed(reading, waiting)])
        rows = pa.concat_tables([with_vectors(earlier, known, hours, embedder), *new])
        validate_rows(Grain.WORKING, rows, old)
        results = _results(hours, rows, reading.messages, refused, Counter(key[2] for key in waiting))
        return rows

    keys = [hour.key for hour in hours]
    # Facts whose messages have expired may be the only copy.
    remade = set(keys) - lost_rows(lake, Grain.WORKING, keys).keys()
    changed = lake.tables.transform(FACTS, keys, extracted, remade=remade, shard=shard)
    sizes = lake.tables.sizes(FACTS)
    return [replace(part, changed=part.period.key in changed, bytes=sizes.get(part.period.key, 0)) for part in results]


def _results(
    hours: list[Period],
    rows: pa.Table,
    messages: Sequence[Message],
    refused: Mapping[str, Counter[str]],
    waiting: Mapping[str, int],
) -> list[PartitionResult]:
    inputs: dict[Period, list[str]] = {hour: [] for hour in hours}
    for message in messages:
        inputs[message.hour].append(message_digest(message))
    return [
        PartitionResult(
            asset=table_asset(hour.grain),
            period=hour,
            input_digest=RowDigests(inputs[hour]).combined,
            output_digest=digests_of(facts).combined,
            rows=facts.num_rows,
            agents=agents_in(facts),
            messages=len(inputs[hour]),
            fallbacks=facts.num_rows - facts["fallback"].null_count,
            unfinished=unfinished_rows(facts) + waiting[hour.key],
            refused=refused[hour.key],
        )
        for hour, facts in by_period(rows, hours).items()
    ]


def _postponed(reading: Reading, waiting: Collection[_Key]) -> pa.Table:
    """Return the old rows of passages that wait for a model."""
    present = {message.id for message in reading.messages}
    is_postponed = [
        key in waiting and present.issuperset(sources)
        for key, sources in zip(_keys(reading.old), reading.old["message_ids"].to_pylist(), strict=True)
    ]
    rows = reading.old.filter(pa.array(is_postponed, pa.bool_()))
    return rows.filter(pc.invert(pc.is_in(rows["id"], reading.carried["id"].combine_chunks())))


def _with_earlier(
    lake: Lake, passages: Sequence[ConversationHour], messages: Sequence[Message], shard: int | None
) -> list[ConversationHour]:
    """Return passages with the last messages of their conversations in the hour before, if models are configured."""
    if not lake.configuration().uses_models:
        return list(passages)
    before = {passage.hour: hour_of(lake.calendar.bounds(passage.hour)[0] - timedelta(hours=1)) for passage in passages}
    missing = {hour.key for hour in before.values()} - {message.hour.key for message in messages}
    rows = lake.tables.read(MESSAGES, sorted(missing), shard=shard, damaged="skip")
    by_passage: defaultdict[tuple[str, str, str], list[Message]] = defaultdict(list)
    for message in sorted([*rows_to_messages(rows), *messages], key=_order):
        by_passage[message.scope.key, message.hour.key, message.conversation_id].append(message)
    return [
        replace(
            passage,
            earlier=tuple(by_passage[passage.scope.key, before[passage.hour].key, passage.conversation_id][-_EARLIER:]),
        )
        for passage in passages
    ]


def _recall(
    lake: Lake, reading: Reading, passages: Sequence[ConversationHour], hours: Sequence[Period]
) -> dict[Scope, list[Operation]]:
    """Return the operations of the agents of `passages`; those of `hours` are of the rows that are kept."""
    scopes = {passage.scope for passage in passages}
    stored = lake.operations.read(sorted(scopes, key=lambda scope: scope.key))
    is_recomputed = pc.is_in(stored["period"], pa.array([hour.key for hour in hours], pa.string()))
    operations: dict[Scope, list[Operation]] = {
        scope: rows_to_operations(rows)
        for scope, rows in by_scope(stored.filter(pc.invert(is_recomputed)).cast(OPERATIONS.schema)).items()
    }
    by_key = {scope.key: scope for scope in scopes}
    columns = ["scope", *OPERATION_COLUMNS]
    kept = [part.select(columns) for part in (reading.kept, reading.carried)]
    for row in pa.concat_tables(kept).filter(_has_operations).to_pylist():
        if scope := by_key.get(row["scope"]):
            operations.setdefault(scope, []).extend(row_operations(row))
    return operations


_has_operations = pc.list_value_length(pc.field("operations")) > 0


def _order(message: Message) -> tuple[object, ...]:
    scope = message.scope
    return (
        message.sent_at,
        scope.ids,  # nested: it has two or three parts
        message.conversation_id,
        message.turn,
        message.id,
    )


def _key(passage: ConversationHour) -> _Key:
    return passage.scope.key, passage.hour.key, passage.conversation_id


def _keys(facts: pa.Table) -> list[_Key]:
    names = ("scope", "period", "conversation_id")
    return list(zip(*(facts[name].to_pylist() for name in names), strict=True))
