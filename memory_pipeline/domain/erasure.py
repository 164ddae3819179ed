"""Erasure: whom or what to forget, and the tombstones by which it is known again, and kept out, without being named.

A tombstone holds salted hashes, never an id or a name. What somebody writes is matched by hashing it likewise: its
agent, its conversation, its user, and every run of as many words as a forgotten name has
(:mod:`memory_pipeline.domain.text.words`).

A tombstone reaches what was said up to the moment of forgetting. What is said later is somebody's new wish.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, cast

from memory_pipeline.domain.conversations import MAX_ID, Message, Role, Scope
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.memories.events import CONVERSATION, UPKEEP, Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.text.words import is_unicode, phrases_of, words_of, words_of_name
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

#: Most names of one person, ids included.
MAX_NAMES = 50
#: What speakers without a name are called; as names they would mean everybody.
_ROLES = frozenset([*Role, "agent", "the user", "the agent", "the assistant"])
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
#: Phrases that are remembered at least; then they are hashed again.
_REMEMBERED = 200_000

#: What is done to memories in words of its own; of other events all words are a note.
SAYING = frozenset([MemoryVerb.REMEMBER, MemoryVerb.UPDATE])

_Record = TypeVar("_Record", bound="Message | Edit | MemoryEvent")


class SubjectKind(StrEnum):
    """What is forgotten."""

    AGENT = "agent"
    CONVERSATION = "conversation"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom or what to forget, in clear; see :meth:`agent`, :meth:`conversation` and :meth:`person`, which check it.

    Attributes:
        agent_id: None where a person is forgotten in a whole workspace.
        names: of a person: names, aliases and user ids.
    """

    kind: SubjectKind
    workspace_id: str
    agent_id: str | None = None
    conversation_id: str | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def agent(cls, scope: Scope) -> Subject:
        """Forget all that an agent remembers."""
        return cls(SubjectKind.AGENT, scope.workspace_id, scope.agent_id)

    @classmethod
    def conversation(cls, scope: Scope, conversation_id: str) -> Subject:
        """Forget one conversation.

        Raises:
            InputError: no conversation can have that id.
        """
        named = _text("conversation_id", conversation_id, 1)
        return cls(SubjectKind.CONVERSATION, scope.workspace_id, scope.agent_id, named)

    @classmethod
    def person(cls, workspace_id: str, names: Iterable[str], agent_id: str | None = None) -> Subject:
        """Forget a person: conversations whose user has one of the names as id, and whatever else mentions a name.

        Args:
            workspace_id: where.
            names: all by which the person is known: names, other spellings, user ids.
            agent_id: the one agent that is to forget; all of the workspace if not given.

        Raises:
            InputError: an id or a name is not acceptable.
        """
        scope = Scope(workspace_id, "any" if agent_id is None else agent_id)
        if isinstance(names, str | bytes):
            raise InputError(f"names must be a list of texts, not {shown(names)}")
        listed = tuple(sorted({_name(name) for name in names}))
        if not 0 < len(listed) <= MAX_NAMES:
            raise InputError(f"{len(listed)} names of a person are not accepted; expected 1 to {MAX_NAMES}")
        return cls(SubjectKind.PERSON, scope.workspace_id, agent_id, names=listed)

    @classmethod
    def from_record(cls, record: object) -> Subject:
        """Read and check the form that :meth:`to_record` gives.

        Raises:
            InputError: something in it is not acceptable; the message names it.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"subject must be an object, not {shown(record)}")
        kind, *ids = (_any(record.get(name)) for name in ("kind", "workspace_id", "agent_id", "conversation_id"))
        workspace_id, agent_id, conversation_id = ids
        if kind == SubjectKind.AGENT:
            return cls.agent(Scope(workspace_id, agent_id))
        if kind == SubjectKind.CONVERSATION:
            return cls.conversation(Scope(workspace_id, agent_id), conversation_id)
        if kind == SubjectKind.PERSON:
            names = record.get("names")
            if not isinstance(names, list | tuple):
                raise InputError(f"names must be a list of texts, not {shown(names)}")
            return cls.person(workspace_id, names, agent_id)
        raise InputError(f"kind {shown(kind)} of a subject is unknown; accepted: {', '.join(SubjectKind)}")

    def to_record(self) -> dict[str, object]:
        """Return it as a JSON object, with what applies to its kind."""
        record: dict[str, object] = {"kind": self.kind.value, "workspace_id": self.workspace_id}
        if self.agent_id is not None:
            record["agent_id"] = self.agent_id
        if self.conversation_id is not None:
            record["conversation_id"] = self.conversation_id
        if self.names:
            record["names"] = list(self.names)
        return record

    @property
    def scope(self) -> Scope | None:
        """The one agent that forgets; None where all of a workspace do."""
        return None if self.agent_id is None else Scope(self.workspace_id, self.agent_id)

    def __str__(self) -> str:
        """Return it as a person would name it."""
        where = f"workspace {self.workspace_id}" + (f", agent {self.agent_id}" if self.agent_id else "")
        if self.kind is SubjectKind.AGENT:
            return f"agent {self.agent_id} of workspace {self.workspace_id}"
        if self.kind is SubjectKind.CONVERSATION:
            return f"conversation {self.conversation_id} ({where})"
        return f"{' alias '.join(self.names)} ({where})"


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What remains of a subject once it is forgotten: enough to know it again, and nothing that names it.

    Attributes:
        kind: what is forgotten.
        id: of this tombstone; the same for the same subject and salt.
        workspace_id: where.
        salt: 32 hex digits.
        mark: salted hash of what identifies the subject, 32 hex digits; of a person whom one agent is to forget,
            another 32 for the agent.
        words: of a person's name: how many words it has; 0 where `mark` is of a whole user id, and for other kinds.
        forgotten_at: what was said up to then is forgotten, UTC.
        hours: keys of the hours in which there was something, as far as they were found.
        is_done: whether all of it has been removed.
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
        """Return the tombstones of a subject: of a person two for each name, as one of a user and as one in texts.

        Args:
            subject: whom or what to forget.
            now: what was said up to then is forgotten.
            salt: 32 random hex digits. Those of one workspace may share one, which makes matching quick, and makes
                the same subject have the same tombstones again.
        """
        hashed = _Hash(salt)
        workspace_id, agent_id = subject.workspace_id, subject.agent_id or ""
        if subject.kind is SubjectKind.AGENT:
            marks = {hashed.of(SubjectKind.AGENT, workspace_id, agent_id): 0}
        elif subject.kind is SubjectKind.CONVERSATION:
            marks = {hashed.of(SubjectKind.CONVERSATION, workspace_id, agent_id, subject.conversation_id or ""): 0}
        else:
            limit = hashed.of(_LIMIT, workspace_id, agent_id) if agent_id else ""
            marks = {hashed.of(_USER, workspace_id, name) + limit: 0 for name in subject.names}
            for name in subject.names:
                words = words_of_name(name)
                marks[hashed.of(SubjectKind.PERSON, workspace_id, " ".join(words)) + limit] = len(words)
        return [
            cls(subject.kind, digest(subject.kind, mark), workspace_id, salt, mark, words, now)
            for mark, words in marks.items()
        ]

    def matches(self, record: Message | Edit | MemoryEvent) -> bool:
        """Tell whether a record is to be forgotten; to ask of many use :class:`Forgotten`."""
        return Forgotten([self]).covers(record)


class Forgotten:
    """A set of tombstones, and what they reach. Asking an empty one costs nothing.

    Args:
        tombstones: of any workspaces, done or not.
    """

    def __init__(self, tombstones: Iterable[Tombstone] = ()) -> None:
        self._marks: dict[str, dict[str, _Marks]] = {}
        for tombstone in tombstones:
            by_salt = self._marks.setdefault(tombstone.workspace_id, {})
            by_salt.setdefault(tombstone.salt, _Marks(_Hash(tombstone.salt))).add(tombstone)

    def __bool__(self) -> bool:
        """Tell whether anything is forgotten at all."""
        return bool(self._marks)

    @property
    def workspaces(self) -> Collection[str]:
        """The workspaces of which anything is forgotten."""
        return self._marks.keys()

    def covers(self, record: Message | Edit | MemoryEvent) -> bool:
        """Tell whether a message, an edit or an event is forgotten: it matches, and is not from after the forgetting.

        Of what an event rests on nothing is known here but its conversation. Who did it, and why, does not count: see
        :meth:`taken`.
        """
        if record.scope.workspace_id not in self._marks:
            return False
        if isinstance(record, Edit):
            terms = [term for one in record.operations for term in (one.subject, one.predicate, one.object)]
            return self.reaches(record.scope, record.event_at, texts=terms)
        if isinstance(record, MemoryEvent):
            return self.reaches(
                record.scope,
                record.event_at,
                conversation_id=record.conversation_id,
                user_id=record.changes.user_id if record.verb in SAYING else None,
                texts=_texts_of(record.changes) if record.verb in SAYING else (),
            )
        return self.reaches(
            record.scope,
            record.sent_at,
            conversation_id=record.conversation_id,
            user_id=record.user_id,
            texts=_texts_in(record, _MESSAGE_TEXTS),
        )

    def taken(self, record: _Record) -> _Record | None:
        """Return a record as memory may take it: None of one that is forgotten.

        An event whose note alone names a forgotten person is taken without the note: what was revoked stays revoked.
        """
        if self.covers(record):
            return None
        if isinstance(record, MemoryEvent) and self._names_in_note(record):
            return cast("_Record", without_note(record))
        return record

    def _names_in_note(self, event: MemoryEvent) -> bool:
        own = _texts_of(event.changes) if event.verb not in SAYING else []
        texts = [event.reason or "", "" if event.editor in {CONVERSATION, UPKEEP} else event.editor, *own]
        user_id = event.changes.user_id if event.verb not in SAYING else None
        return self.reaches(event.scope, event.event_at, user_id=user_id, texts=texts)

    def covers_text(self, scope: Scope, text: str, at: datetime) -> bool:
        """Tell whether a text of an agent's memory, said at a time, mentions a forgotten person."""
        return self.reaches(scope, at, texts=[text])

    def filter(self, records: Sequence[_Record]) -> list[_Record]:
        """Return the records that are not forgotten, in their order, as memory may take them."""
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
    ) -> bool:
        """Tell whether something is forgotten.

        Args:
            scope: the agent that remembers it.
            at: when it was said.
            conversation_id: where it was said, if that is known.
            user_id: the user to whom it was said, or who said it, if that is known.
            texts: all that may mention somebody.
        """
        marks = self._marks.get(scope.workspace_id)
        if marks is None:
            return False
        held = list(texts)
        return any(own.reach(scope, at, conversation_id, user_id, held) for own in marks.values())


@dataclass(slots=True)
class _Hash:
    """Hashes with one salt."""

    salt: str
    _key: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._key = self.salt.encode("utf-8", "surrogatepass")[:64]

    def of(self, *parts: str) -> str:
        data = "\0".join(parts).encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=16, key=self._key).hexdigest()


#: Of hashes of user ids, which are compared as they are, and of the one agent that forgets a person.
_USER, _LIMIT = "user", "limit"
_DIGITS = 32
_NEVER: dict[str, datetime] = {}


class _Marks:
    """Marks that share a workspace and a salt."""

    def __init__(self, hashed: _Hash) -> None:
        self._hash = hashed
        # Of each hash the agents that forget, as hashes ("": all), with the times up to which they do.
        self._until: dict[str, dict[str, datetime]] = {}
        self._kinds: set[str] = set()
        self._sizes: set[int] = set()
        self._known: dict[str, dict[str, datetime]] = {}  # of the phrases that were looked at

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
        if SubjectKind.PERSON not in self._kinds:
            return False
        if user_id is not None and self._forgets(scope, at, self._of(_USER, scope.workspace_id, user_id)):
            return True
        return any(self._mentions(scope, at, text) for text in texts)

    def _of(self, *parts: str) -> dict[str, datetime]:
        return self._until.get(self._hash.of(*parts), _NEVER)

    def _forgets(self, scope: Scope, at: datetime, until: dict[str, datetime]) -> bool:
        if not until:
            return False
        limit = self._hash.of(_LIMIT, scope.workspace_id, scope.agent_id)
        return any(at <= until[agent] for agent in ("", limit) if agent in until)

    def _mentions(self, scope: Scope, at: datetime, text: str) -> bool:
        if len(self._known) > _REMEMBERED:
            self._known = {}
        known = self._known
        for phrase in phrases_of(words_of(text), self._sizes):
            until = known.get(phrase)
            if until is None:
                until = known[phrase] = self._of(SubjectKind.PERSON, scope.workspace_id, phrase)
            if until and self._forgets(scope, at, until):
                return True
        return False


def without_note(event: MemoryEvent) -> MemoryEvent:
    """Return an event that does the same, and tells neither who did it nor why."""
    changes = event.changes if event.verb in SAYING else Changes(amount=event.changes.amount)
    return MemoryEvent.of(
        event.scope, event.verb, event.event_at, changes, memory_id=event.memory_id, turn=event.turn,
        place=event.place, other_id=event.other_id, evidence=event.evidence, conversation_id=event.conversation_id,
        received_at=event.received_at,
    )  # fmt: skip


#: What may name somebody, texts and lists of them: every field but these, so that none is missed.
_MESSAGE_TEXTS = tuple(Message.__dataclass_fields__.keys() - {"id", "scope", "user_id", "role"})
_CHANGED_TEXTS = tuple(Changes.__dataclass_fields__.keys() - {"kind"})


def _texts_of(said: Changes) -> list[str]:
    """Return all that an event says of its memory."""
    return _texts_in(said, _CHANGED_TEXTS)


def _texts_in(record: Message | Changes, names: Iterable[str]) -> list[str]:
    values = [getattr(record, name) for name in names]
    texts = [text for value in values for text in (value if isinstance(value, tuple) else (value,))]
    return [text for text in texts if isinstance(text, str) and text]


def merged(known: Iterable[Tombstone], new: Iterable[Tombstone]) -> list[Tombstone]:
    """Return the new tombstones with the hours that known ones of the same ids have; no time goes back."""
    before = {tombstone.id: tombstone for tombstone in known}
    return [
        tombstone
        if (old := before.get(tombstone.id)) is None
        else replace(tombstone, hours=old.hours, forgotten_at=max(old.forgotten_at, tombstone.forgotten_at))
        for tombstone in new
    ]


def _any(value: Any) -> Any:
    """Return a value whose type is checked later."""
    return value


def _text(what: str, value: object, least: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID:
        raise InputError(f"{what} {shown(value)} is not valid; expected a text of {least} to {MAX_ID} characters")
    if _CONTROL.search(value) or not is_unicode(value):
        raise InputError(f"{what} {shown(value)} is not valid; control characters and broken Unicode are not accepted")
    return value


def _name(value: object) -> str:
    name = _text("name of a person", value, 2).strip()
    words = words_of_name(name)
    if sum(map(len, words)) < 2:
        raise InputError(
            f"name of a person {shown(value)} is not valid; expected at least two letters or digits, else everybody "
            "would be meant"
        )
    if " ".join(words) in _ROLES:
        raise InputError(
            f"name of a person {shown(value)} is not valid: speakers without a name are called so; give the user's id, "
            "or forget conversations"
        )
    return name
