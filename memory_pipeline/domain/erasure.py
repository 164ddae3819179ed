"""Tombstones: they keep erased subjects out of memory without naming them.

A tombstone contains salted hashes, never an id or a name. New records are matched by hashes of their agent,
conversation and users, and of every run of as many words as an erased name has
(:mod:`memory_pipeline.domain.text.words`). Records after the time of the erasure are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar, cast

from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import CONSOLIDATION, CONVERSATION, Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import users_named_in
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.domain.text.words import phrases_of, words_of, words_of_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.subjects import Subject

#: Maximum number of cached hashes of phrases.
_CACHED_PHRASES = 200_000

#: Events with text of the memory itself. In other events all text is a note.
SAYING = frozenset([MemoryVerb.REMEMBER, MemoryVerb.UPDATE, MemoryVerb.LINK, MemoryVerb.UNLINK])

_Record = TypeVar("_Record", bound="Message | Edit | MemoryEvent")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The trace of an erased subject: it recognizes the subject without naming it.

    Attributes:
        id: the same for the same subject and salt.
        salt: 32 hex digits.
        mark: salted hash of the subject, 32 hex digits; for a person erased from one agent, followed by 32 digits for
            the agent.
        words: number of words of a person's name; 0 if `mark` is of a user id, and for other kinds.
        forgotten_at: records up to this time are erased, UTC.
        hours: keys of the known hours with erased records.
    """

    kind: SubjectKind
    id: str
    workspace_id: str
    salt: str
    mark: str
    words: int
    forgotten_at: datetime
    hours: tuple[str, ...] = ()
    is_done: bool = False

    @classmethod
    def of(cls, subject: Subject, now: datetime, salt: str) -> list[Tombstone]:
        """Return the tombstones of a subject; for a person one per user id, and one per name as words in texts.

        `salt` is 32 random hex digits. One salt per workspace makes matching faster, and the ids reproducible.
        """
        hashed = _Hash(salt)
        workspace_id, agent_id = subject.workspace_id, subject.agent_id or ""
        if subject.kind is SubjectKind.AGENT:
            marks = {hashed.of(SubjectKind.AGENT, workspace_id, agent_id): 0}
        elif subject.kind is SubjectKind.CONVERSATION:
            whose = [subject.identity] if subject.identity else []
            talks = subject.conversation_ids
            marks = {hashed.of(SubjectKind.CONVERSATION, workspace_id, agent_id, one, *whose): 0 for one in talks}
        else:
            limit = hashed.of(_LIMIT, workspace_id, agent_id) if agent_id else ""
            marks = {hashed.of(_USER, workspace_id, user_id) + limit: 0 for user_id in subject.user_ids}
            for name in subject.names:
                words = words_of_name(name)
                marks[hashed.of(SubjectKind.PERSON, workspace_id, " ".join(words)) + limit] = len(words)
        return [
            cls(subject.kind, digest(subject.kind, mark), workspace_id, salt, mark, words, now)
            for mark, words in marks.items()
        ]

    def matches(self, record: Message | Edit | MemoryEvent) -> bool:
        """Return whether a record is covered; for many records use :class:`Forgotten`."""
        return Forgotten([self]).covers(record)


class Forgotten:
    """Matches records with tombstones, done or not, of any workspaces. Checks of an empty set cost nothing."""

    def __init__(self, tombstones: Iterable[Tombstone] = ()) -> None:
        self._marks: dict[str, dict[str, _Marks]] = {}
        for tombstone in tombstones:
            by_salt = self._marks.setdefault(tombstone.workspace_id, {})
            by_salt.setdefault(tombstone.salt, _Marks(_Hash(tombstone.salt))).add(tombstone)

    def __bool__(self) -> bool:
        return bool(self._marks)

    @property
    def workspaces(self) -> Collection[str]:
        """The workspaces with tombstones."""
        return self._marks.keys()

    def covers(self, record: Message | Edit | MemoryEvent) -> bool:
        """Return whether a message, an edit or an event matches a tombstone and is not later than the erasure.

        Only the conversation of an event's sources is checked. Its editor and reason are ignored; see :meth:`taken`.
        """
        if record.scope.workspace_id not in self._marks:
            return False
        if isinstance(record, Edit):
            terms = [term for one in record.operations for term in (one.subject, one.predicate, one.object)]
            talk, users = record.operations[0].conversation_id, record.users
            return self.reaches(record.scope, record.event_at, conversation_id=talk, texts=terms, users=users)
        if isinstance(record, MemoryEvent):
            return self.reaches(
                record.scope,
                record.event_at,
                conversation_id=record.conversation_id,
                user_id=record.changes.user_id if record.verb in SAYING else None,
                texts=_texts_of(record.changes) if record.verb in SAYING else (),
                users=record.users,
            )
        return self.reaches(
            record.scope,
            record.sent_at,
            conversation_id=record.conversation_id,
            user_id=record.user_id,
            texts=_texts_in(record, _MESSAGE_TEXTS),
            users=record.users,
        )

    def taken(self, record: _Record) -> _Record | None:
        """Return a record, or None if it is erased.

        Erased users leave the members of the group. If only the note of an event names an erased person, the event is
        returned without the note, so that a revocation stays in effect.
        """
        if self.covers(record):
            return None
        at = record.sent_at if isinstance(record, Message) else record.event_at
        if record.users and (gone := self._erased(record.scope, at, record.users)):
            record = replace(record, users=tuple(user for user in record.users if user not in gone))
        if isinstance(record, MemoryEvent) and self._names_in_note(record):
            return cast("_Record", without_note(record))
        return record

    def _erased(self, scope: Scope, at: datetime, users: Iterable[str]) -> set[str]:
        """Return those of the users who are erased."""
        marks = self._marks.get(scope.workspace_id, {}).values()
        return {user for user in users if any(each.reach_user(scope, at, user) for each in marks)}

    def _names_in_note(self, event: MemoryEvent) -> bool:
        notes = _texts_of(event.changes) if event.verb not in SAYING else []
        texts = [event.reason or "", "" if event.editor in {CONVERSATION, CONSOLIDATION} else event.editor, *notes]
        user_id = event.changes.user_id if event.verb not in SAYING else None
        return self.reaches(event.scope, event.event_at, user_id=user_id, texts=texts)

    def filter(self, records: Sequence[_Record]) -> list[_Record]:
        """Return the records that are not erased, in order, as :meth:`taken` returns them."""
        if not self._marks:
            return list(records)
        return [taken for record in records if (taken := self.taken(record)) is not None]

    def reaches(
        self,
        scope: Scope,
        at: datetime,
        *,
        conversation_id: str | None = None,
        user_id: str | None = None,
        texts: Iterable[str] = (),
        users: Collection[str] = (),
    ) -> bool:
        """Return whether a tombstone covers a record with these properties.

        `conversation_id` and `user_id` are None if unknown; `texts` are all texts that may mention a person. `users`
        are the members of the group: a record is covered if all are erased, because nobody is left to read it.
        """
        marks = self._marks.get(scope.workspace_id)
        if marks is None:
            return False
        listed = list(texts)
        if any(each.reach(scope, at, conversation_id, user_id, listed) for each in marks.values()):
            return True
        return bool(users) and len(self._erased(scope, at, users)) == len(users)


@dataclass(slots=True)
class _Hash:
    salt: str
    _key: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._key = self.salt.encode("utf-8", "surrogatepass")[:64]

    def of(self, *parts: str) -> str:
        data = "\0".join(parts).encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._key).hexdigest()


#: Prefixes of the hashes of user ids, which are compared verbatim, and of the agent of a person's tombstone.
_USER, _LIMIT = "user", "limit"
_DIGITS = 32
_NEVER: dict[str, datetime] = {}


class _Marks:
    """Marks that share a workspace and a salt."""

    def __init__(self, hashed: _Hash) -> None:
        self._hash = hashed
        # For each hash: hashes of the agents ("" means all), with the time of the erasure.
        self._until: dict[str, dict[str, datetime]] = {}
        self._kinds: set[str] = set()
        self._sizes: set[int] = set()
        self._known: dict[str, dict[str, datetime]] = {}  # cache by phrase
        self._users: dict[str, dict[str, datetime]] = {}  # cache by user id

    def add(self, tombstone: Tombstone) -> None:
        until = self._until.setdefault(tombstone.mark[:_DIGITS], {})
        limit = tombstone.mark[_DIGITS:]
        until[limit] = max(tombstone.forgotten_at, until.get(limit, tombstone.forgotten_at))
        self._kinds.add(tombstone.kind)
        if tombstone.words:
            self._sizes.add(tombstone.words)

    def reach(
        self, scope: Scope, at: datetime, conversation_id: str | None, user_id: str | None, texts: list[str]
    ) -> bool:
        ids = scope.workspace_id, scope.agent_id
        if SubjectKind.AGENT in self._kinds and self._forgets(scope, at, self._of(SubjectKind.AGENT, *ids)):
            return True
        if conversation_id is not None and SubjectKind.CONVERSATION in self._kinds:
            until = self._of(SubjectKind.CONVERSATION, *ids, conversation_id)
            if self._forgets(scope, at, until):
                return True
            if scope.identity:
                until = self._of(SubjectKind.CONVERSATION, *ids, conversation_id, scope.identity)
                if self._forgets(scope, at, until):
                    return True
        if SubjectKind.PERSON not in self._kinds:
            return False
        if any(one is not None and self.reach_user(scope, at, one) for one in (user_id, scope.user_id)):
            return True
        return any(self._mentions(scope, at, text) for text in texts)

    def reach_user(self, scope: Scope, at: datetime, user_id: str) -> bool:
        """Return whether a user is erased."""
        if SubjectKind.PERSON not in self._kinds:
            return False
        until = self._users.get(user_id)
        if until is None:
            if len(self._users) > _CACHED_PHRASES:
                self._users = {}
            until = self._users[user_id] = self._of(_USER, scope.workspace_id, user_id)
        return self._forgets(scope, at, until)

    def _of(self, *parts: str) -> dict[str, datetime]:
        return self._until.get(self._hash.of(*parts), _NEVER)

    def _forgets(self, scope: Scope, at: datetime, until: dict[str, datetime]) -> bool:
        if not until:
            return False
        limit = self._hash.of(_LIMIT, scope.workspace_id, scope.agent_id)
        return any(at <= until[agent] for agent in ("", limit) if agent in until)

    def _mentions(self, scope: Scope, at: datetime, text: str) -> bool:
        if len(self._known) > _CACHED_PHRASES:
            self._known = {}
        known = self._known
        for phrase in phrases_of(words_of(text), self._sizes):
            until = known.get(phrase)
            if until is None:
                until = known[phrase] = self._of(SubjectKind.PERSON, scope.workspace_id, phrase)
            if until and self._forgets(scope, at, until):
                return True
        return any(self.reach_user(scope, at, user_id) for user_id in users_named_in(text))


def without_note(event: MemoryEvent) -> MemoryEvent:
    """Return an event with the same effect, without its editor and its reason."""
    changes = event.changes if event.verb in SAYING else Changes(amount=event.changes.amount)
    return MemoryEvent.of(
        event.scope, event.verb, event.event_at, changes, memory_id=event.memory_id, turn=event.turn,
        place=event.place, other_id=event.other_id, evidence=event.evidence, conversation_id=event.conversation_id,
        received_at=event.received_at, ordered_at=event.ordered_at, users=event.users,
    )  # fmt: skip


#: Fields that may name a person: all except these, so that a new field is included.
_MESSAGE_TEXTS = tuple(Message.__dataclass_fields__.keys() - {"id", "scope", "user_id", "users", "role"})
_CHANGED_TEXTS = tuple(Changes.__dataclass_fields__.keys() - {"kind", "memory_class", "source_type", "cleared"})


def _texts_of(changes: Changes) -> list[str]:
    return _texts_in(changes, _CHANGED_TEXTS)


def _texts_in(record: Message | Changes, names: Iterable[str]) -> list[str]:
    return [text for name in names for text in _flat(getattr(record, name)) if isinstance(text, str) and text]


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


def merged(known: Iterable[Tombstone], new: Iterable[Tombstone]) -> list[Tombstone]:
    """Return the new tombstones with the hours of known ones with the same ids, and the later time of both."""
    before = {tombstone.id: tombstone for tombstone in known}
    return [
        tombstone
        if (old := before.get(tombstone.id)) is None
        else replace(tombstone, hours=old.hours, forgotten_at=max(old.forgotten_at, tombstone.forgotten_at))
        for tombstone in new
    ]
