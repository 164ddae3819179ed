"""Find a subject in a lake: in table rows, pending journal files and quarantined records."""

from __future__ import annotations

import json
import operator
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.erasure import SAYING
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope, user_identity
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.domain.text.words import words_of
from memory_pipeline.erasure.changes import text_in, texts_in
from memory_pipeline.erasure.subject_matcher import PersonMentions, SubjectMatcher
from memory_pipeline.lake.codec.codec import scopes_of
from memory_pipeline.lake.schema_types import Holds, has_texts
from memory_pipeline.lake.schemas import CONSOLIDATION_EVENTS, FACTS, GRAPH_OPERATIONS, MEMORY_EVENTS, MESSAGES
from memory_pipeline.steps.scopes import known_scopes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from numpy.typing import NDArray

    from memory_pipeline.domain.access import AccessEvent
    from memory_pipeline.domain.corrections import Correction
    from memory_pipeline.domain.erasure import Forgotten
    from memory_pipeline.domain.graph.operations import Edit
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.subjects import Subject
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.archived_rows import ArchivedFile
    from memory_pipeline.lake.journal import Contents, JournalFile
    from memory_pipeline.lake.schema_types import TableSpec

#: A read opens their files at once.
_PARTITIONS_PER_READ = 500
_SOURCES = {FACTS.name: "message_ids", GRAPH_OPERATIONS.name: "evidence_id", MEMORY_EVENTS.name: "evidence"}


@dataclass
class ScanResult:
    """The data of a subject in a lake.

    Attributes:
        rows: ids of matching rows, by table and partition.
        notes: ids, by scope, of memory events that match only in their note. They lose the note and remain.
        members: ids of the rows with an erased user among the members of the group, by table and partition. They lose
            the user and remain.
        since: the first time after the cutoff, by group and user, at which an erased user is a member again.
        memberships: groups and users in the index of members.
        access: grants, revokes and changes of teams that the erasure removes.
        changed: loaded memory events that change, each with what replaces it.
        durable: scopes with matching memory events, notes or consolidation events, or with changed events.
        hours: keys of the hours with data of the subject.
        files: pending journal files with matching records, and their remaining contents.
        pending: the number of matching records in these files.
        pending_ids: ids of those that go.
        corrections: corrections of erased messages, or with the words of the person.
        archived: files of the archive with matching messages and facts, each with its scope and the remaining rows.
        archived_ids: ids of the rows that go, by table.
        set_aside: paths of matching records in the quarantine.
    """

    rows: dict[str, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    notes: dict[Scope, set[str]] = field(default_factory=lambda: defaultdict(set))
    members: dict[str, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    since: dict[tuple[Scope, str], datetime] = field(default_factory=dict)
    memberships: set[tuple[Scope, str]] = field(default_factory=set)
    access: list[AccessEvent] = field(default_factory=list)
    scopes: set[Scope] = field(default_factory=set)
    changed: list[tuple[MemoryEvent, tuple[MemoryEvent, ...]]] = field(default_factory=list)
    durable: set[Scope] = field(default_factory=set)
    hours: set[str] = field(default_factory=set)
    files: dict[JournalFile, Contents] = field(default_factory=dict)
    pending: int = 0
    pending_ids: set[str] = field(default_factory=set)
    set_aside: list[str] = field(default_factory=list)
    corrections: list[Correction] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    archived: dict[ArchivedFile, tuple[Scope, pa.Table]] = field(default_factory=dict)
    archived_ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __bool__(self) -> bool:
        """Return whether anything was found."""
        records = (self.rows, self.notes, self.members, self.memberships, self.access, self.files)
        found = (*records, self.set_aside, self.corrections, self.archived)
        return any(found)

    def note_member(self, group: Scope, user_id: str, at: datetime) -> None:
        """Note that a user is a member of a group at a time after the cutoff."""
        self.since[group, user_id] = min(at, self.since.get((group, user_id), at))

    def ids(self, spec: TableSpec) -> set[str]:
        """Return the ids of matching rows of a table, also of those in the archive."""
        own = {identifier for ids in self.rows.get(spec.name, {}).values() for identifier in ids}
        return own | self.archived_ids.get(spec.name, set())


def find(lake: Lake, scanner: SubjectScanner, forgotten: Forgotten) -> ScanResult:
    """Search messages, facts, graph operations, memory events, the journal and the quarantine.

    In tables, read only files that `scanner` has not read before. `forgotten` has the subject's tombstones.
    """
    found, subject = ScanResult(), scanner.subject
    scanner.note(found, MESSAGES)
    scanner.note_archived(found, MESSAGES)
    messages = found.ids(MESSAGES)
    scanner.note(found, FACTS, citing=messages)
    scanner.note_archived(found, FACTS, citing=messages)
    scanner.note(found, GRAPH_OPERATIONS, citing=messages)
    scanner.note(found, MEMORY_EVENTS, citing=messages)
    if subject.kind is SubjectKind.PERSON and not scanner.has_seen(CONSOLIDATION_EVENTS):
        # A model may have named the person in a consolidation event that no matching event leads to. Search once only:
        # in repeated decisions, a word of a reason may happen to be a name.
        scanner.note(found, CONSOLIDATION_EVENTS)
    for file in lake.journal.pending():
        scope = lake.journal.scope_of(file)
        if scope and (scope.workspace_id != subject.workspace_id or subject.agent_id not in (None, scope.agent_id)):
            continue
        contents = lake.journal.read(file)
        remaining = contents._replace(
            messages=forgotten.filter(contents.messages),
            edits=forgotten.filter(contents.edits),
            events=forgotten.filter(contents.events),
        )
        is_whole = subject.kind is SubjectKind.AGENT or (scope is not None and subject.owns(scope))
        rejected = [one for one in contents.rejected if not (is_whole or scanner.matcher.in_text(str(one.record)))]
        remaining = remaining._replace(rejected=rejected)
        members = {record.id: record.users for record in _records(contents)}
        rewritten = sum(members.get(record.id) != record.users for record in _records(remaining))
        removed = _size(contents) - _size(remaining)
        for record in _records(remaining):
            for user_id in {*record.users}.intersection(subject.user_ids):
                found.note_member(record.scope, user_id, _time_of(record))
        if removed or rewritten:
            found.files[file] = remaining
            found.pending += removed + rewritten
            found.scopes |= {scope} if scope else set()
            remaining_ids = {record.id for record in _records(remaining)}
            gone = [record for record in _records(contents) if record.id not in remaining_ids]
            found.pending_ids |= {record.id for record in gone}
            found.hours |= {record.hour.key for record in gone}
            found.texts |= _contents(contents) - _contents(remaining)
    for entry in lake.journal.set_aside_files():
        if scanner.holds(lake.storage.read(entry.path) or b""):
            found.set_aside.append(entry.path)
    for group, user_id, since in lake.members.all() if subject.kind is not SubjectKind.CONVERSATION else ():
        is_user = subject.kind is SubjectKind.AGENT or user_id in subject.user_ids
        if is_user and since <= scanner.at and scanner.matcher.is_within_reach((group.workspace_id, group.agent_id)):
            found.memberships.add((group, user_id))
    events = lake.access.among(lake.journal.entries())
    found.access += [event for event in events if event.event_at <= scanner.at and scanner.shares(event)]
    found.scopes |= {event.scope for event in found.access if subject.owns(event.scope)}
    for correction in lake.corrections.among(lake.journal.entries()):
        data = json.dumps(correction.to_record(), ensure_ascii=False).encode()
        is_own = subject.owns(correction.scope) or not messages.isdisjoint(correction.message_ids)
        if correction.at <= scanner.at and (is_own or scanner.holds(data)):
            found.corrections.append(correction)
            found.scopes.add(correction.scope)
    return found


class SubjectScanner:
    """Searches tables for a subject. Rows after the time `at` do not match."""

    def __init__(self, lake: Lake, subject: Subject, at: datetime) -> None:
        self.matcher = SubjectMatcher(subject, at, scopes=known_scopes(lake) | lake.journal.pending_scopes())
        self._lake = lake
        self.subject = subject
        self.at = at  # the cutoff
        self._mentions = PersonMentions(subject)
        self._ids = pa.array(subject.user_ids, pa.string())
        self._talks = pa.array(subject.conversation_ids, pa.string())
        self._identities = pa.array(map(user_identity, subject.user_ids), pa.string())
        self._seen: dict[str, frozenset[str]] = {}  # files of tables
        self._holding: dict[str, set[str]] = defaultdict(set)  # partitions of tables
        self._firsts = sorted({words[0] for name in subject.names if (words := words_of(name))})
        self._firsts += [] if subject.user_id is None else ["user:"]

    def holds(self, data: bytes) -> bool:
        """Return whether a quarantined record belongs to the subject."""
        if self.matcher.in_bytes(data, unreadable=False):  # of an agent's file
            return True
        text = data.decode(errors="backslashreplace")
        try:
            return bool(self.matcher.in_record(json.loads(text)))
        except (ValueError, RecursionError):
            return bool(self.matcher.in_text(text))

    def shares(self, event: AccessEvent) -> bool:
        """Return whether a grant, revoke or change of a team goes: that of a context goes with the person it names."""
        owner = event.scope.workspace_id, event.scope.agent_id
        is_named = event.context is not None and self._mentions.mentioned_in(event.context)
        return event.concerns(self.subject) or (is_named and self.matcher.is_within_reach(owner))

    def note(self, found: ScanResult, spec: TableSpec, citing: Collection[str] = ()) -> None:
        """Add the matching rows of a table to `found`."""
        time = "sent_at" if spec is MESSAGES else "event_at"
        source = _SOURCES.get(spec.name)
        columns = {"id", "period", *SCOPE_COLUMNS, spec.partition_by[-1], time, "conversation_id", "content"}
        is_person = self.subject.kind is SubjectKind.PERSON
        columns |= {*spec.holding(Holds.WORDS, Holds.USER, Holds.MEMBERS)} if is_person else set()
        columns |= {"changes"} | ({source} if source else {"received_at"})
        note_columns = spec.holding(Holds.NOTE) if is_person else ()
        columns |= {"verb", "is_edit", *note_columns} if note_columns else set()
        columns &= set(spec.schema.names)
        at = pa.scalar(self.at, pa.timestamp("us", tz="UTC"))
        unseen, self._seen[spec.name] = self._unseen(spec)
        for rows in self.parts(spec, columns, keys=unseen):
            self._holding[spec.name].update(rows[spec.partition_by[-1]].unique().to_pylist())
            matches = self.said(rows, spec)
            notes = np.zeros(rows.num_rows, np.bool_)
            if note_columns:
                states_content = _bools(pc.is_in(rows["verb"], pa.array(sorted(SAYING), pa.string())))
                notes = np.any(
                    [matches & ~states_content, *(self.mentioned(rows[name]) for name in note_columns)], axis=0
                )
                whole = self._whole(rows)
                notes &= _bools(rows["is_edit"]) & ~whole
                matches &= states_content | whole
            if source is not None and citing:
                matches |= cites(rows[source], citing)
            before_cutoff = pc.less_equal(rows[time], at)
            if "received_at" in rows.column_names:
                before_cutoff = pc.or_(before_cutoff, pc.less_equal(rows["received_at"], at))
            is_before_cutoff = _bools(pc.fill_null(before_cutoff, fill_value=False))
            members = self._members(rows)
            self._note_later(found, rows.filter(pa.array(members & ~is_before_cutoff)), time)
            is_found = (matches | notes | members) & is_before_cutoff
            matching = rows.filter(pa.array(is_found))
            is_removed = matches[is_found]
            keys = matching[spec.partition_by[-1]].to_pylist()
            scopes = scopes_of(matching)
            ids = matching["id"].to_pylist()
            kinds = zip(is_removed, notes[is_found], members[is_found], strict=True)
            for key, scope, identifier, (is_gone, is_noted, is_member) in zip(keys, scopes, ids, kinds, strict=True):
                if is_gone:
                    found.rows[spec.name][key].append(identifier)
                    continue
                if is_noted:
                    found.notes[scope].add(identifier)
                if is_member:
                    found.members[spec.name][key].append(identifier)
            found.scopes |= set(scopes)
            if spec in (MEMORY_EVENTS, CONSOLIDATION_EVENTS):
                found.durable |= set(scopes_of(rows.filter(pa.array((matches | notes) & is_before_cutoff))))
            if "period" in matching.column_names and spec is not CONSOLIDATION_EVENTS:
                found.hours |= set(matching["period"].to_pylist())
            found.texts |= _texts_in(matching.filter(pa.array(is_removed)))

    def note_archived(self, found: ScanResult, spec: TableSpec, citing: Collection[str] = ()) -> None:
        """Add the files of the archive with matching rows of a table to `found`."""
        time, source = "sent_at" if spec is MESSAGES else "event_at", _SOURCES.get(spec.name)
        for file, scope, rows in self.archived(spec):
            at = pa.scalar(self.at, pa.timestamp("us", tz="UTC"))
            is_early = _bools(pc.or_(pc.less_equal(rows[time], at), pc.less_equal(rows["received_at"], at)))
            matches = self.said(rows, spec)
            if source is not None and citing:
                matches |= cites(rows[source], citing)
            matches &= is_early
            members = self._members(rows) & is_early & ~matches
            if not (matches | members).any():
                continue
            gone = rows.filter(pa.array(matches))
            left = rows.filter(pa.array(~matches))
            if members.any():
                users = [
                    [user for user in listed if user not in self.subject.user_ids] if is_member else listed
                    for listed, is_member in zip(left["users"].to_pylist(), members[~matches], strict=True)
                ]
                place = left.schema.get_field_index("users")
                kind = left.schema.field(place)
                left = left.set_column(place, kind, pa.array(users, kind.type))
            found.archived[file] = scope, left
            found.archived_ids[spec.name] |= set(gone["id"].to_pylist())
            found.scopes.add(scope)
            found.hours |= {file.period} if gone.num_rows else set()
            found.texts |= _texts_in(gone)

    def archived(self, spec: TableSpec) -> Iterator[tuple[ArchivedFile, Scope, pa.Table]]:
        """Yield the files of the archive with rows of a table that are of the subject's possible agents."""
        subject = self.subject
        agent = None if subject.agent_id is None else Scope(subject.workspace_id, subject.agent_id)
        for file in self._lake.archived.files(agent=agent):
            rows = self._lake.archived.read(file) if file.spec is spec else None
            if rows is None or not rows.num_rows:
                continue
            scope = scopes_of(rows.slice(0, 1))[0]
            is_near = scope.workspace_id == subject.workspace_id and subject.agent_id in (None, scope.agent_id)
            if is_near and subject.identity in (None, scope.identity):
                yield file, scope, rows

    def _note_later(self, found: ScanResult, rows: pa.Table, time: str) -> None:
        """Note the members of groups in rows after the cutoff."""
        if not rows.num_rows:
            return
        for scope, users, at in zip(scopes_of(rows), rows["users"].to_pylist(), rows[time].to_pylist(), strict=True):
            for user_id in {*users}.intersection(self.subject.user_ids):
                found.note_member(scope, user_id, at)

    def _members(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows of groups with the person among their members."""
        if not self.subject.user_ids or "users" not in rows.column_names:
            return np.zeros(rows.num_rows, np.bool_)
        return cites(rows["users"], self.subject.user_ids)

    def _whole(self, rows: pa.Table) -> NDArray[np.bool_]:
        """Return a mask of the rows of a user's own memory, and of those of groups without another member."""
        own = _bools(pc.is_in(rows["identity"], self._identities))
        if "users" not in rows.column_names:
            return own
        has_others = _with_any(rows["users"], ~_bools(pc.is_in(pc.list_flatten(rows["users"]), self._ids)))
        return own | (self._members(rows) & ~has_others)

    def has_seen(self, spec: TableSpec) -> bool:
        """Return whether rows of a table were read before."""
        return spec.name in self._seen

    def partitions(self, spec: TableSpec) -> set[str] | None:
        """Return the partitions that may have rows of the subject's possible agents; None if :meth:`note` read none."""
        unseen, _ = self._unseen(spec)
        return None if unseen is None else unseen | self._holding[spec.name]

    def _unseen(self, spec: TableSpec) -> tuple[set[str] | None, frozenset[str]]:
        """Return the partitions with files that were never read, None meaning all, and the files of the table."""
        seen = self._seen.get(spec.name)
        files = self._lake.tables.state(spec, self._lake.tables.keys(spec))
        if seen is None:
            return None, files
        depth = len(spec.partition_by) - 1
        return {unquote(path.split("/")[depth].partition("=")[2]) for path in files - seen}, files

    def parts(
        self,
        spec: TableSpec,
        columns: Collection[str] | None = None,
        *,
        keys: Collection[str] | None = None,
        **fixed: str,
    ) -> Iterator[pa.Table]:
        """Yield the rows of the subject's possible agents, of all partitions and columns by default.

        `keys` are values of the last partition column, `fixed` those of the others.
        """
        subject = self.subject
        owners = {"workspace_id": subject.workspace_id, "agent_id": subject.agent_id, "identity": subject.identity}
        own = {name: value for name, value in owners.items() if value is not None and name in spec.schema.names}
        where = reduce(operator.and_, (pc.field(name) == value for name, value in own.items()))
        rare = () if subject.agent_id is None else tuple(own)
        if subject.kind is SubjectKind.CONVERSATION and spec is MESSAGES:
            where &= pc.field("conversation_id").isin(self._talks)
            rare = (*rare, "conversation_id")
        listed = [key for key in self._lake.tables.keys(spec, **fixed) if keys is None or key in keys]
        for some in in_parts(listed):
            rows = self._lake.tables.read(spec, some, columns=columns, where=where, rare=rare, shard=None, **fixed)
            if rows.num_rows:
                yield rows

    def said(self, rows: pa.Table, spec: TableSpec) -> NDArray[np.bool_]:
        """Return a mask of the rows that belong to the subject or mention it."""
        subject = self.subject
        if subject.kind is SubjectKind.AGENT:
            return np.ones(rows.num_rows, np.bool_)
        if subject.kind is SubjectKind.CONVERSATION:
            if "conversation_id" not in rows.column_names:
                return np.zeros(rows.num_rows, np.bool_)
            return _bools(pc.is_in(rows["conversation_id"], self._talks))
        matches = self._whole(rows)
        for name in {*spec.holding(Holds.USER)}.intersection(rows.column_names):
            matches |= _bools(pc.is_in(rows[name], self._ids))
        for name in spec.holding(Holds.WORDS):
            matches |= self.mentioned(rows[name], self._named_in_changes if name == "changes" else None)
        return matches

    def _named_in_changes(self, changes: str) -> bool:
        if text_in(changes, "user_id") in self.subject.user_ids:
            return True
        return any(text in self.subject.names or self._mentions.mentioned_in(text) for text in texts_in(changes))

    def mentions(self, texts: Iterable[str]) -> bool:
        """Return whether any of the texts mentions the person."""
        return any(map(self._mentions.mentioned_in, texts))

    def mentioned(self, column: pa.ChunkedArray, names: Callable[[str], bool] | None = None) -> NDArray[np.bool_]:
        """Return a mask of the texts, or lists of texts, that mention the person. `names` replaces the matcher."""
        is_named = names or self._mentions.mentioned_in
        kind = column.type
        if pa.types.is_list(kind):
            return _with_any(column, self.mentioned(pc.list_flatten(column)))
        if pa.types.is_struct(kind):
            parts = [pc.struct_field(column, part.name) for part in kind if has_texts(part.type)]
            return np.array(np.any([self.mentioned(part) for part in parts], axis=0), np.bool_)
        # ASCII texts without the first word of a name cannot match. Skip the slow matcher for them.
        candidates = pc.or_(pc.invert(pc.string_is_ascii(column)), pc.match_substring(column, "\\u"))
        for first in self._firsts:
            if first.isascii():
                candidates = pc.or_(candidates, pc.match_substring(column, first, ignore_case=True))
        found = _bools(pc.fill_null(candidates, fill_value=False))
        places = np.flatnonzero(found)
        for place, text in zip(places, column.take(pa.array(places)).to_pylist(), strict=True):
            found[place] = is_named(text)
        return found


def in_parts(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield parts of the keys, with as many partitions as are read at once."""
    for start in range(0, len(keys), _PARTITIONS_PER_READ):
        yield keys[start : start + _PARTITIONS_PER_READ]


def _size(contents: Contents) -> int:
    return len(contents.messages) + len(contents.edits) + len(contents.events) + len(contents.rejected)


def _records(contents: Contents) -> list[Message | Edit | MemoryEvent]:
    return [*contents.messages, *contents.edits, *contents.events]


def _texts_in(rows: pa.Table) -> set[str]:
    """Return the contents of messages, facts or events."""
    texts: set[str] = set(rows["content"].to_pylist()) if "content" in rows.column_names else set()
    changes = rows["changes"].to_pylist() if "changes" in rows.column_names else ()
    return texts | {content for each in changes if (content := text_in(each, "content"))}


def _time_of(record: Message | Edit | MemoryEvent) -> datetime:
    return record.sent_at if isinstance(record, Message) else record.event_at


def _contents(contents: Contents) -> set[str]:
    remembered = (event.changes.content for event in contents.events)
    return {*(message.content for message in contents.messages), *(content for content in remembered if content)}


def _bools(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.array(values.to_numpy(zero_copy_only=False), np.bool_)


def cites(sources: pa.ChunkedArray, ids: Collection[str]) -> NDArray[np.bool_]:
    """Return a mask of the ids, or lists of ids, with one of `ids`."""
    known = pa.array(sorted(ids), pa.string())
    if pa.types.is_string(sources.type):
        return _bools(pc.is_in(sources, known))
    return _with_any(sources, _bools(pc.is_in(pc.list_flatten(sources), known)))


def _with_any(lists: pa.ChunkedArray, hits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask of the lists with an element of which `hits`, a mask of all elements, is true."""
    found = np.zeros(len(lists), np.bool_)
    found[pc.list_parent_indices(lists).to_numpy()[hits]] = True
    return found


def hex_of(identifier: str) -> str:
    """Return the hexadecimal part of an id."""
    return identifier.rpartition(":")[2].partition("#")[0]


def counted(found: ScanResult) -> Counter[str]:
    """Return the number of matches by place."""
    counts = Counter({name: sum(map(len, keys.values())) for name, keys in found.rows.items()})
    counts += Counter({f"archived {name}": len(ids) for name, ids in found.archived_ids.items()})
    counts += Counter({"notes of events": sum(map(len, found.notes.values()))})
    counts += Counter({"members of groups": len(found.memberships), "grants": len(found.access)})
    return counts + Counter({"journal": found.pending, "quarantine": len(found.set_aside)})
