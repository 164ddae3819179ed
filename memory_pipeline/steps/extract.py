"""Extract working facts from messages: the turns themselves, and the facts stated in them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.facts import ConversationHour, Extraction
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.codec.facts import facts_to_rows, message_digest, row_operations, rows_to_messages
from memory_pipeline.lake.files.storage_errors import REMEDY
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET, table_asset
from memory_pipeline.lake.tables.tombstones import ExpirationMarks
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.index import with_vectors
from memory_pipeline.steps.results import PartitionResult, RowDigests, marks_of, together, unfinished_rows
from memory_pipeline.steps.shares import EVERYBODY, WHOLE, replace_in_shares
from memory_pipeline.steps.validation import are_sound, validate_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.conversations import Message, Scope
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share

#: How far back an agent's operations are read to show a model what the agent knows.
LOOK_BACK = timedelta(days=31)

_Key = tuple[str, str, str, str]


@dataclass
class Reading:
    """The messages and facts of some hours, and which passages to extract.

    Attributes:
        messages: by time.
        passages: conversation hours with a memorable message, each with the digest that its facts will have.
        kept: current rows: neither the messages nor the extraction method has changed.
        carried: rows that cannot be extracted again, since their messages have expired.
        old: all existing rows.
    """

    messages: list[Message] = field(default_factory=list)
    passages: list[ConversationHour] = field(default_factory=list)
    kept: pa.Table = field(default_factory=FACTS.schema.empty_table)
    carried: pa.Table = field(default_factory=FACTS.schema.empty_table)
    old: pa.Table = field(default_factory=FACTS.schema.empty_table)

    @cached_property
    def changed(self) -> list[ConversationHour]:
        """The passages whose facts are not in `kept`."""
        done = set(_keys(self.kept))
        return [passage for passage in self.passages if _key(passage) not in done]


def read_hours(
    lake: Lake, extractor: Extractor, hours: Sequence[Period], old: pa.Table, share: Share = EVERYBODY
) -> Reading:
    """Read the messages of `hours` and find the current rows of `old`. Passages that fell back on rules are stale."""
    rows = lake.tables.read(MESSAGES, [hour.key for hour in hours], where=share.where)
    messages = sorted(rows_to_messages(rows), key=_order)
    marks = ExpirationMarks.of(lake.tables)
    _refuse_lost(lake, hours, messages, old, marks)
    return _reading(extractor, messages, old, marks)


def _refuse_lost(
    lake: Lake, hours: Sequence[Period], messages: Sequence[Message], old: pa.Table, marks: ExpirationMarks
) -> None:
    """Raise if messages are missing but have not expired: recomputing would delete the facts from them."""
    present = {message.hour.key for message in messages}
    expired = marks.latest([RetentionClass.CONVERSATIONS])
    missing = {key for key in old["period"].unique().to_pylist() if key > expired} - present
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


def _reading(extractor: Extractor, messages: list[Message], old: pa.Table, marks: ExpirationMarks) -> Reading:
    grouped: dict[_Key, list[Message]] = defaultdict(list)
    for message in messages:
        scope = message.scope
        grouped[scope.workspace_id, scope.agent_id, message.hour.key, message.conversation_id].append(message)
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
        fallback is None and (key, source_digest) in current and key not in unsound
        for key, fallback, source_digest in zip(
            _keys(old), old["fallback"].to_pylist(), old["source_digest"].to_pylist(), strict=True
        )
    ]
    is_carried = has_lost(old, marks, {message.id for message in messages}) & ~np.array(is_current, np.bool_)
    kept, carried = old.filter(pa.array(is_current, pa.bool_())), old.filter(pa.array(is_carried))
    return Reading(messages, passages, kept, carried, old)


def has_lost(facts: pa.Table, marks: ExpirationMarks, messages: Collection[str]) -> NDArray[np.bool_]:
    """Return a mask of the facts that cannot be extracted again: they have expired messages outside `messages`.

    `facts` needs the columns workspace_id, agent_id, period and message_ids.
    """
    lost = marks.mask(facts, RetentionClass.CONVERSATIONS)
    for row in np.flatnonzero(lost):
        lost[row] = not all(source in messages for source in facts["message_ids"][row].as_py())
    return lost


def extract_facts(
    lake: Lake, extractor: Extractor, embedder: Embedder, hours: list[Period], shares: Sequence[Share] = WHOLE
) -> list[PartitionResult]:
    """Recompute the ``facts`` partitions of `hours`: extract new and stale passages. Return one result per hour."""
    results: dict[Share, list[PartitionResult]] = {}

    def extracted(share: Share, old: pa.Table) -> pa.Table:
        # Read inside the attempt: after a concurrent commit of facts the attempt starts over with newer messages.
        reading = read_hours(lake, extractor, hours, old, share)
        changed = reading.changed
        extractions = extractor.extract(changed, lambda: _recall(lake, reading, hours)) if changed else []
        by_key = {_key(passage): extraction for passage, extraction in zip(changed, extractions, strict=True)}
        facts = [
            replace(fact, source_digest=passage.digest)
            for passage, extraction in zip(changed, extractions, strict=True)
            for fact in extraction.facts
        ]
        rows = pa.concat_tables([reading.kept, reading.carried, _postponed(reading, by_key), facts_to_rows(facts)])
        validate_rows(Grain.WORKING, rows, old)
        rows = with_vectors(rows, old, hours, embedder)
        results[share] = _results(hours, rows, reading.messages, by_key)
        return rows

    keys = [hour.key for hour in hours]
    # Facts whose messages have expired may be the only copy.
    expired = ExpirationMarks.of(lake.tables).latest([RetentionClass.CONVERSATIONS])
    changed = replace_in_shares(lake, FACTS, keys, shares, extracted, {key for key in keys if key > expired})
    sizes = lake.tables.sizes(FACTS)
    return [
        replace(whole, changed=whole.period.key in changed, bytes=sizes.get(whole.period.key, 0))
        for whole in together([results[share] for share in shares])
    ]


def _results(
    hours: list[Period], rows: pa.Table, messages: Sequence[Message], extractions: Mapping[_Key, Extraction]
) -> list[PartitionResult]:
    inputs: dict[Period, list[str]] = {hour: [] for hour in hours}
    for message in messages:
        inputs[message.hour].append(message_digest(message))
    refused: dict[str, int] = defaultdict(int)
    waiting: dict[str, int] = defaultdict(int)
    for key, extraction in extractions.items():
        refused[key[2]] += extraction.refused
        waiting[key[2]] += extraction.is_waiting
    return [
        PartitionResult(
            asset=table_asset(hour.grain),
            period=hour,
            input_digest=input_digests.combined,
            output_digest=output_digests.combined,
            rows=facts.num_rows,
            agents=agents_in(facts),
            messages=len(input_digests),
            fallbacks=facts.num_rows - facts["fallback"].null_count,
            unfinished=unfinished_rows(facts) + waiting[hour.key],
            refused=refused[hour.key],
            inputs=input_digests,
            outputs=output_digests,
        )
        for hour, facts in by_period(rows, hours).items()
        for input_digests, output_digests in [(RowDigests(inputs[hour]), marks_of(facts))]
    ]


def _postponed(reading: Reading, extractions: Mapping[_Key, Extraction]) -> pa.Table:
    waiting = {key for key, extraction in extractions.items() if extraction.is_waiting}
    present = {message.id for message in reading.messages}
    is_postponed = [
        key in waiting and present.issuperset(sources)
        for key, sources in zip(_keys(reading.old), reading.old["message_ids"].to_pylist(), strict=True)
    ]
    rows = reading.old.filter(pa.array(is_postponed, pa.bool_()))
    return rows.filter(pc.invert(pc.is_in(rows["id"], reading.carried["id"].combine_chunks())))


def _recall(lake: Lake, reading: Reading, hours: Sequence[Period]) -> dict[Scope, list[Operation]]:
    """Return recent operations of the agents of changed passages."""
    agents = {passage.scope for passage in reading.changed}
    changed = sorted({passage.hour for passage in reading.changed}, key=lambda hour: hour.key)
    since = lake.calendar.hour(lake.calendar.bounds(changed[0])[0] - LOOK_BACK).key
    # Read other hours from the table, and recomputed hours from the rows that are kept.
    recomputed = {hour.key for hour in hours}
    before = [key for key in lake.tables.keys(FACTS) if since <= key < changed[-1].key and key not in recomputed]
    columns = ["workspace_id", "agent_id", "conversation_id", "message_ids", "turn", "event_at", "operations"]
    where = pc.field("agent_id").isin(sorted({scope.agent_id for scope in agents}))
    earlier = lake.tables.read(FACTS, before, columns=columns, where=where)
    operations: dict[Scope, list[Operation]] = {scope: [] for scope in agents}
    by_name = {(scope.workspace_id, scope.agent_id): scope for scope in agents}
    kept = [part.select(columns) for part in (reading.kept, reading.carried)]
    for row in pa.concat_tables([earlier, *kept]).filter(_has_operations).to_pylist():
        scope = by_name.get((row["workspace_id"], row["agent_id"]))
        if scope is not None:
            operations[scope] += row_operations(row)
    return operations


_has_operations = pc.list_value_length(pc.field("operations")) > 0


def _order(message: Message) -> tuple[object, ...]:
    scope = message.scope
    return (
        message.sent_at,
        scope.workspace_id,
        scope.agent_id,
        message.conversation_id,
        message.turn,
        message.id,
    )


def _key(passage: ConversationHour) -> _Key:
    scope = passage.scope
    return scope.workspace_id, scope.agent_id, passage.hour.key, passage.conversation_id


def _keys(facts: pa.Table) -> list[_Key]:
    names = ("workspace_id", "agent_id", "period", "conversation_id")
    return list(zip(*(facts[name].to_pylist() for name in names), strict=True))
