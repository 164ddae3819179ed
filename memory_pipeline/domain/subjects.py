"""Subjects of an erasure in clear text: an agent, a conversation, or a person with user ids and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.scopes import Scope, label_of, optional_label, user_identity, users_named_in
from memory_pipeline.domain.text.words import words_of_name
from memory_pipeline.errors import InputError, counted, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Maximum number of names of one person, including ids.
MAX_NAMES = 50
#: Labels of speakers without a name. As names they would match everyone.
_ROLES = frozenset([*Role, "agent", "the user", "the agent", "the assistant"])


class SubjectKind(StrEnum):
    """The kind of subject to erase."""

    AGENT = "agent"
    CONVERSATION = "conversation"
    PERSON = "person"


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of an erasure in clear text. The class methods validate it.

    Without `agent_id`, a person is erased from the whole workspace. `user_id` is the person's, or that of the user
    whose conversation it is. Of an erasure by `source`, `conversations` are those that came from it, and the source
    itself, which is the conversation of what an import brought in no other.
    """

    kind: SubjectKind
    workspace_id: str
    agent_id: str | None = None
    conversation_id: str | None = None
    names: tuple[str, ...] = ()
    user_id: str | None = None
    source: str | None = None
    conversations: tuple[str, ...] = ()

    @classmethod
    def agent(cls, scope: Scope) -> Subject:
        """Return the subject for all memory of an agent."""
        return cls(SubjectKind.AGENT, scope.workspace_id, scope.agent_id)

    @classmethod
    def conversation(cls, scope: Scope, conversation_id: str, user_id: str | None = None) -> Subject:
        """Return the subject for one conversation of an agent: in its own memory, and in those of users and groups.

        With `user_id`, only in the memory of that user.

        Raises:
            InputError: an id is invalid.
        """
        label = label_of("conversation_id", conversation_id)
        user = optional_label("user_id", user_id)
        return cls(SubjectKind.CONVERSATION, scope.workspace_id, scope.agent_id, label, user_id=user)

    @classmethod
    def of_source(
        cls, scope: Scope, source: str, conversation_ids: Iterable[str], user_id: str | None = None
    ) -> Subject:
        """Return the subject for the conversations of a source, such as ``import:chatgpt``; as :meth:`conversation`.

        Raises:
            InputError: an id is invalid.
        """
        name, user = label_of("source", source), optional_label("user_id", user_id)
        ids = tuple(sorted({name, *(label_of("conversation_id", one) for one in conversation_ids)}))
        kind = SubjectKind.CONVERSATION
        return cls(kind, scope.workspace_id, scope.agent_id, user_id=user, source=name, conversations=ids)

    @classmethod
    def person(cls, workspace_id: str, names: Iterable[str], agent_id: str | None = None) -> Subject:
        """Return the subject for a person: all data of users with one of `names` as id, and all text with one.

        `names` are all names, spellings and user ids. Without `agent_id`, the subject covers all agents of the
        workspace.

        Raises:
            InputError: an id or a name is invalid.
        """
        return cls._person(workspace_id, names, agent_id, None)

    @classmethod
    def user(cls, workspace_id: str, user_id: str, names: Iterable[str] = (), agent_id: str | None = None) -> Subject:
        """Return the subject for a user: the user's own memory, the user's part of groups, and text with a name.

        A text with the id alone remains, because ids may be words. Without `agent_id`, the subject covers all agents of
        the workspace.

        Raises:
            InputError: an id or a name is invalid.
        """
        return cls._person(workspace_id, names, agent_id, label_of("user_id", user_id))

    @classmethod
    def _person(cls, workspace_id: str, names: Iterable[str], agent_id: str | None, user_id: str | None) -> Subject:
        scope = Scope(workspace_id, "any" if agent_id is None else agent_id)
        if isinstance(names, str | bytes):
            raise InputError(f"names must be a list of texts, not {shown(names)}")
        unique = tuple(sorted({_name(name) for name in names}))
        least = 1 if user_id is None else 0
        if not least <= len(unique) <= MAX_NAMES:
            raise InputError(f"{len(unique)} names of a person are not accepted; expected {least} to {MAX_NAMES}")
        return cls(SubjectKind.PERSON, scope.workspace_id, agent_id, names=unique, user_id=user_id)

    @classmethod
    def from_record(cls, record: object) -> Subject:
        """Parse and validate the result of :meth:`to_record`.

        Raises:
            InputError: a field is invalid; the message names it.
        """
        if not isinstance(record, Mapping):
            raise InputError(f"subject must be an object, not {shown(record)}")
        names_of_ids = ("kind", "workspace_id", "agent_id", "conversation_id", "user_id")
        kind, workspace_id, agent_id, conversation_id, user_id = (_any(record.get(name)) for name in names_of_ids)
        if kind == SubjectKind.AGENT:
            return cls.agent(Scope(workspace_id, agent_id))
        if kind == SubjectKind.CONVERSATION:
            if (source := record.get("source")) is not None:
                ids = record.get("conversations", [])
                if not isinstance(ids, list | tuple):
                    raise InputError(f"conversations must be a list of texts, not {shown(ids)}")
                return cls.of_source(Scope(workspace_id, agent_id), _any(source), ids, user_id)
            return cls.conversation(Scope(workspace_id, agent_id), conversation_id, user_id)
        if kind == SubjectKind.PERSON:
            names = record.get("names", [])
            if not isinstance(names, list | tuple):
                raise InputError(f"names must be a list of texts, not {shown(names)}")
            if user_id is not None:
                return cls.user(workspace_id, user_id, names, agent_id)
            return cls.person(workspace_id, names, agent_id)
        raise InputError(f"kind {shown(kind)} of a subject is unknown; accepted: {', '.join(SubjectKind)}")

    def to_record(self) -> dict[str, object]:
        """Return a JSON object with the fields of this kind."""
        record: dict[str, object] = {"kind": self.kind.value, "workspace_id": self.workspace_id}
        if self.agent_id is not None:
            record["agent_id"] = self.agent_id
        if self.conversation_id is not None:
            record["conversation_id"] = self.conversation_id
        if self.names:
            record["names"] = list(self.names)
        if self.user_id is not None:
            record["user_id"] = self.user_id
        if self.source is not None:
            record |= {"source": self.source, "conversations": list(self.conversations)}
        return record

    @property
    def conversation_ids(self) -> tuple[str, ...]:
        """The conversation, or those of a source."""
        return self.conversations if self.conversation_id is None else (self.conversation_id,)

    @property
    def user_ids(self) -> tuple[str, ...]:
        """The possible user ids of a person."""
        if self.kind is not SubjectKind.PERSON:
            return ()
        return tuple(sorted({*self.names, *([] if self.user_id is None else [self.user_id])}))

    @property
    def identity(self) -> str | None:
        """The identity of the only scope of a conversation; None if it may be in several."""
        if self.kind is not SubjectKind.CONVERSATION or self.user_id is None:
            return None
        return user_identity(self.user_id)

    def is_mentioned_in(self, text: str) -> bool:
        """Return whether a text has the entity of the user, such as ``user:u-17``."""
        if self.kind is not SubjectKind.PERSON or self.user_id is None:
            return False
        return self.user_id in users_named_in(text)

    def owns(self, scope: Scope) -> bool:
        """Return whether all memory of a scope belongs to the agent or the person."""
        return self.owns_memory_of(scope.workspace_id, scope.agent_id, scope.user_id)

    def owns_memory_of(self, workspace_id: str, agent_id: str, user_id: str | None) -> bool:
        """Return whether all memory of an agent, or of one of its users, belongs to the agent or the person."""
        if workspace_id != self.workspace_id or self.agent_id not in (None, agent_id):
            return False
        return self.kind is SubjectKind.AGENT or (user_id is not None and user_id in self.user_ids)

    def __str__(self) -> str:
        where = f"workspace {self.workspace_id}" + (f", agent {self.agent_id}" if self.agent_id else "")
        if self.kind is SubjectKind.AGENT:
            return f"agent {self.agent_id} of workspace {self.workspace_id}"
        if self.kind is SubjectKind.CONVERSATION:
            whose = "" if self.user_id is None else f" of user {self.user_id}"
            if self.source is not None:
                return f"source {self.source}{whose} ({where}), {counted(len(self.conversations) - 1, 'conversation')}"
            return f"conversation {self.conversation_id}{whose} ({where})"
        user = [] if self.user_id is None else [f"user {self.user_id}"]
        return f"{' alias '.join([*user, *self.names])} ({where})"


def _any(value: Any) -> Any:
    """Return a value as `Any`: its type is checked later."""
    return value


def _name(value: object) -> str:
    name = label_of("name of a person", value).strip()
    words = words_of_name(name)
    if sum(map(len, words)) < 2:
        raise InputError(
            f"name of a person {shown(value)} is not valid; expected at least two letters or digits, "
            "since a shorter name would match everybody"
        )
    if " ".join(words) in _ROLES:
        raise InputError(
            f"name of a person {shown(value)} is not valid: it is the label of speakers without a name; pass the user "
            "id, or erase the conversations"
        )
    return name
