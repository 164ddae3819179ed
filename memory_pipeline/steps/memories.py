"""Events to durable memories: what hours say that is to be kept, and what agents did themselves, folded.

Events come from the facts of conversations and from the journal. They are kept by agent (``memory_events``), beside
those of the nightly upkeep (``upkeep_events``); the fold of both (``memories``) is what readers see. Only agents that
said or did something in the hours are looked at, and only those whose events have changed are folded again; all of them
in one commit of each table. Nothing of it expires: what conversations said that have expired stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.fact_events import events_of
from memory_pipeline.domain.memories.fold import fold
from memory_pipeline.domain.model_calls import Use
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.retention import WORKING_CLASSES
from memory_pipeline.lake.codec.facts import rows_to_facts
from memory_pipeline.lake.codec.memories import events_digest, events_to_rows, memories_to_rows, rows_to_events
from memory_pipeline.lake.layout import owner_of
from memory_pipeline.lake.schemas import FACTS, MEMORIES, MEMORY_EVENTS, MESSAGES, UPKEEP_EVENTS
from memory_pipeline.lake.tables.ledger import MEMORIES_ASSET
from memory_pipeline.lake.tables.tombstones import Marks
from memory_pipeline.steps.digests import Digests, marks_of
from memory_pipeline.steps.group import agents_in, by_period, scopes_in
from memory_pipeline.steps.made import Made
from memory_pipeline.steps.shares import EVERYBODY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.fold import Memories
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.shares import Share

_AGENT = ("workspace_id", "agent_id")
_VECTOR = ("content", "vector", "embed_model")
#: Facts that are kept for good.
_DURABLE = pc.is_valid(pc.field("durable"))
#: Memories that could not be embedded.
_LACKING = pc.field("is_newest") & pc.field("embed_model").is_null()


def land_events(
    lake: Lake,
    embedder: Embedder,
    hours: list[Period],
    events: Iterable[MemoryEvent],
    also: Iterable[Scope] = (),
    share: Share = EVERYBODY,
) -> list[Made]:
    """Bring durable memories level with the facts of `hours` and with `events`; return what each hour adds to them.

    What was done in the hours and has been forgotten meanwhile goes. Safe to repeat and to interrupt: what has
    landed and was not folded is folded by the next run that makes the hours.

    Args:
        lake: where.
        embedder: makes vectors of what has none yet.
        hours: the partitions.
        events: of agents, in these hours.
        also: agents that said something in them before, and may have said nothing now.
        share: of whom `events` and `also` are, and whose facts are read.
    """
    keys = [hour.key for hour in hours]
    edits = list(events)
    edited = events_to_rows(edits, are_edits=True)
    # By messages: what an hour said before may be no fact any more.
    spoke = lake.tables.read(MESSAGES, keys, columns=(*_AGENT, "id"), where=share.where)
    waiting = share.of(_waiting(lake, hours))
    scopes = {owner_of(scope): scope for scope in [*scopes_in(spoke), *scopes_in(edited), *also, *waiting]}
    owners = pa.array(list(scopes), pa.string())
    made_in = pa.array(keys, pa.string())
    configuration, marks = lake.configuration(), Marks.of(lake.tables)
    all_facts = FACTS.schema.empty_table()
    facts = FACTS.schema.empty_table()
    before = MEMORY_EVENTS.schema.empty_table()

    def merged(old: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits events in between makes this start over, with newer facts.
        nonlocal all_facts, facts, before
        before = old
        all_facts = lake.tables.read(
            FACTS, keys, columns=("period", *_AGENT, "digest", "embed_model"), where=share.where
        )
        facts = lake.tables.read(FACTS, keys, where=_DURABLE if share.where is None else share.where & _DURABLE)
        said = events_to_rows(said_in(facts, configuration), are_edits=False)
        new = pa.concat_tables([said.filter(pc.is_in(said["owner"], owners)), edited])
        stays = pc.or_(old["is_edit"], pc.invert(pc.is_in(old["period"], made_in)))
        kept = old.filter(pc.or_(stays, _has_lost(old, marks, spoke["id"])))
        kept = _without_forgotten(lake, kept, made_in)
        return pa.concat_tables([kept, new.filter(pc.invert(pc.is_in(new["id"], kept["id"].combine_chunks())))])

    result = lake.tables.transform(MEMORY_EVENTS, scopes, merged)
    refold(lake, embedder, list(scopes.values()), facts.select(_VECTOR))
    unfinished = _unfinished(lake, scopes)
    inputs, old_events = by_period(all_facts, hours), by_period(before, hours)
    said = result.rows.filter(pc.is_in(result.rows["period"], made_in))
    return [
        Made(
            asset=MEMORIES_ASSET,
            period=hour,
            input_digest=found.combined,
            output_digest=made.combined,
            rows=rows.num_rows,
            agents=agents_in(rows),
            changed=not result.changed.isdisjoint(rows["owner"].to_pylist()),
            unfinished=unfinished.get(hour.key, 0),
            inputs=found,
            outputs=made,
            before=Digests(old_events[hour]["id"]),
        )
        for hour, rows in by_period(said, hours).items()
        for found, made in [(marks_of(inputs[hour]), Digests(rows["id"]))]
    ]


def refold(lake: Lake, embedder: Embedder, scopes: Collection[Scope], known: pa.Table | None = None) -> frozenset[str]:
    """Bring the memories of agents level with their events, those of the upkeep too; return the owners that changed.

    All agents are written in one commit, and none whose events and vectors are those that its memories were made from.

    Args:
        lake: where.
        embedder: makes vectors of contents that have none by it; texts of all agents in one batch.
        scopes: the agents.
        known: rows with content, vector and embed_model, whose vectors need not be made again.
    """
    owners = {owner_of(scope): scope for scope in scopes}
    wanted = _digests(lake, owners)
    columns = ("owner", "is_newest", "source_digest", "embed_model")
    held = lake.tables.read_sound(MEMORIES, owners, columns=columns)
    made_from = dict(zip(held["owner"].to_pylist(), held["source_digest"].to_pylist(), strict=True))
    lacking = held.filter(pc.and_(held["is_newest"], _has_none(held, embedder)))
    stale = {owner: scope for owner, scope in owners.items() if made_from.get(owner) != wanted.get(owner)}
    stale |= {owner: owners[owner] for owner in pc.unique(lacking["owner"]).to_pylist()}
    if not stale:
        return frozenset()

    vectors: dict[str, NDArray[np.float32]] = {}

    def folded(old: pa.Table) -> pa.Table:
        # Read inside the attempt, as above: of two runs the last one to commit has seen the events of both.
        events = {spec: lake.tables.read(spec, stale) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)}
        digests = _digests_of([rows.select(("owner", "id")) for rows in events.values()])
        own: dict[Scope, list[MemoryEvent]] = {}
        for rows in events.values():
            for event in rows_to_events(rows):
                own.setdefault(event.scope, []).append(event)
        memories = {scope: fold(said) for scope, said in own.items()}
        _embed([old.select(_VECTOR), *([] if known is None else [known])], memories, embedder, vectors)
        parts = [MEMORIES.schema.empty_table()]
        parts += [
            memories_to_rows(scope, kept, digests[owner_of(scope)], vectors, embedder.name)
            for scope, kept in memories.items()
        ]
        return pa.concat_tables(parts)

    return lake.tables.transform(MEMORIES, stale, folded, remade=stale).changed


def _embed(
    known: Sequence[pa.Table],
    memories: Mapping[Scope, Memories],
    embedder: Embedder,
    found: dict[str, NDArray[np.float32]],
) -> None:
    """Add the vectors of all that memories say to those that are `found`, by content; none of what failed."""
    wanted = {
        memory.content: Use(scope, Calendar().hour(memory.changed_at))
        for scope, kept in memories.items()
        for memory in kept.newest.values()
    }
    for rows in known:
        own = rows.filter(
            pc.and_(
                pc.fill_null(pc.equal(rows["embed_model"], embedder.name), fill_value=False),
                pc.is_in(rows["content"], pa.array(list(wanted), pa.string())),
            )
        )
        if own.num_rows:
            numbers = own["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            found |= zip(own["content"].to_pylist(), numbers.reshape(own.num_rows, -1), strict=True)
    missing = {content: use for content, use in wanted.items() if content not in found}
    if missing:
        texts = list(missing)
        made = embedder.embed(texts, list(missing.values()))
        found |= {text: vector for text, vector in zip(texts, made, strict=True) if not np.isnan(vector[0])}


def _digests(lake: Lake, owners: Collection[str]) -> dict[str, str]:
    """Return the digest of the events of each agent that has some."""
    return _digests_of(
        [lake.tables.read(spec, owners, columns=("owner", "id")) for spec in (MEMORY_EVENTS, UPKEEP_EVENTS)]
    )


def _digests_of(tables: Sequence[pa.Table]) -> dict[str, str]:
    ids: dict[str, list[str]] = {}
    for rows in tables:
        for owner, own in zip(*(rows[name].to_pylist() for name in ("owner", "id")), strict=True):
            ids.setdefault(owner, []).append(own)
    return {owner: events_digest(own) for owner, own in ids.items()}


def _waiting(lake: Lake, hours: list[Period]) -> set[Scope]:
    """Return the agents of whose memories, made in these hours, some have no vector yet."""
    entries = lake.ledger.entries(MEMORIES_ASSET, hours)
    if not any(entry.unfinished for entry in entries.values()):
        return set()
    return scopes_in(lake.tables.read_sound(MEMORIES, columns=_AGENT, where=_LACKING))


def _unfinished(lake: Lake, owners: Collection[str]) -> dict[str, int]:
    """Return how many memories of agents have no vector, by the hour in which they last changed."""
    found: dict[str, int] = {}
    for at in lake.tables.read(MEMORIES, owners, columns=("changed_at",), where=_LACKING)["changed_at"].to_pylist():
        key = Calendar().hour(at).key
        found[key] = found.get(key, 0) + 1
    return found


def said_in(facts: pa.Table, configuration: Configuration) -> list[MemoryEvent]:
    """Return what facts say that is to be kept, as their agents' settings have it."""
    return events_of(rows_to_facts(facts), configuration.memories)


def _without_forgotten(lake: Lake, events: pa.Table, hours: pa.Array) -> pa.Table:
    """Return events without what was forgotten of hours after the journal was read for them."""
    forgotten = lake.tombstones.forgotten()
    if not forgotten:
        return events
    made = rows_to_events(events.filter(pc.is_in(events["period"], hours)))
    taken = {event.id: forgotten.taken(event) for event in made}
    changed = pa.array([event.id for event in made if taken[event.id] != event], pa.string())
    if not len(changed):
        return events
    own = [one for event in made if (one := taken[event.id]) is not None and one != event]
    kept = events.filter(pc.invert(pc.is_in(events["id"], changed)))
    noteless = events_to_rows(own, are_edits=True)  # what is derived has no note
    return pa.concat_tables([kept, noteless.filter(pc.invert(pc.is_in(noteless["id"], kept["id"].combine_chunks())))])


def _has_lost(events: pa.Table, marks: Marks, messages: pa.ChunkedArray) -> pa.Array:
    """Tell of each event whether what it rests on has expired, so that it cannot be derived again."""
    lost = np.zeros(events.num_rows, np.bool_)
    for kept in WORKING_CLASSES:
        lost |= marks.mask(events, kept)
    if lost.any():
        there = set(messages.to_pylist())
        evidence = events["evidence"].filter(pa.array(lost)).to_pylist()
        lost[lost] = [not there.issuperset(own) for own in evidence]
    return pa.array(lost)


def _has_none(memories: pa.Table, embedder: Embedder) -> pa.ChunkedArray:
    """Tell of each memory whether it has no vector by this embedder."""
    return pc.fill_null(pc.not_equal(memories["embed_model"], embedder.name), fill_value=True)
