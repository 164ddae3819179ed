"""The arguments of verbs that travel together. None leaves a field as it is, and as a filter matches anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from memory_pipeline.domain.facts import FactKind
    from memory_pipeline.domain.memories.record import MemoryClass, MemoryKind, SourceType
    from memory_pipeline.domain.periods import When


class ConversationFilters(TypedDict, total=False):
    """Filters that select what was said.

    Attributes:
        since: time of the oldest result: a date in the reader's time zone, or a time with its zone, also as ISO 8601
            text. Summaries match if their period overlaps the range, their points if their day is in it.
        until: time of the newest result; a date includes its whole day.
        person: the speaker, or a name in the text; one word of the name is enough. Case and accents are ignored.
        tag: a tag of the conversation.
        source: where the conversation comes from, as its writer said, such as ``slack``. Summaries and memories, which
            are made of several messages, have no source.
        metadata: entries that the metadata of the message has: ``{"ticket": 7}``. Values are equal as JSON.
    """

    since: When | None
    until: When | None
    person: str | None
    tag: str | None
    source: str | None
    metadata: Mapping[str, object] | None


class SearchFilters(ConversationFilters, total=False):
    """Filters that select what was said: :class:`ConversationFilters`, and importance.

    Attributes:
        minimum_importance: minimum importance, 0 to 1.
    """

    minimum_importance: float | None


class FactFilters(SearchFilters, total=False):
    """Filters that select facts: :class:`SearchFilters`, and what summaries do not have.

    Attributes:
        kind: kind of fact: turn, statement, event, plan, preference, instruction or gist.
        conversation_id: the conversation that a fact comes from.
    """

    kind: FactKind | str | None
    conversation_id: str | None


class PromptOptions(TypedDict, total=False):
    """What decides, besides a question, what goes into a prompt.

    Attributes:
        speaker: the person who asks; "I" in the query is this name.
        hops: steps in the graph from the entities in the query, and along links between memories, 0 to 3; 1 by default.
        minimum_score: leave out facts, points and durable memories with a lower score, 0 to 1; by default from the
            configuration (0.11).
        exclude: ids of items that were shown before. They are left out in their other forms too.
        conversation: the conversation of the query, with ``conversation_id``, ``tags``, ``source`` or ``capture`` as
            for a write. If its capture is none, nothing is returned.
        known_messages: ids of messages that the model reads anyway. What rests on them alone is left out.
    """

    known_messages: Collection[str]
    speaker: str | None
    hops: int
    minimum_score: float | None
    exclude: Collection[str]
    conversation: Mapping[str, object] | None


class MemoryFields(TypedDict, total=False):
    """What a durable memory says besides its content.

    Attributes:
        title: its title; by default the first sentence of the content.
        hook: a line of at most 120 characters for the hot index; by default the beginning of the content.
        subject: the person or thing it is about; by default the name at the beginning of the content, if any.
        predicate: the relation, such as ``lives_in``; without any of the three, that of a fact in plain words, such as
            "Anna lives in Porto."
        object: the object of a fact: a name or a value.
        importance: how important it is, 0 to 1; 0.5 by default.
        confidence: how certain it is, 0 to 1; 1 by default.
        decay_rate: how fast its relevance fades, per day since its last use; 0 by default.
        is_point_in_time: whether it describes the state of a moment, which will soon change, or one that lasts; by
            default as configured.
        memory_class: whether it states a fact (``factual``), or tells of an attempt and its outcome (``experiential``);
            by default factual without an outcome.
        outcome_success: whether the experience ended well; by default unknown.
        tags: labels.
        source_type: who said it: ``user``, ``assistant``, ``tool`` or ``import``; or the operator's ``agent``, the
            default, ``system`` or ``workflow``. What an assistant, a tool or an import said never instructs.
    """

    title: str | None
    hook: str | None
    subject: str | None
    predicate: str | None
    object: str | None
    importance: float | None
    confidence: float | None
    decay_rate: float | None
    is_point_in_time: bool | None
    memory_class: MemoryClass | str | None
    outcome_success: bool | None
    tags: Sequence[str] | None
    source_type: SourceType | str | None


class NewMemoryFields(MemoryFields, total=False):
    """What a new durable memory says besides its content: :class:`MemoryFields`, and what never changes.

    Attributes:
        context: the context of which it becomes an entry; see :class:`~memory_pipeline.memories.contexts.Contexts`.
        key: the key of the entry. The next text with that key is its next version.
    """

    context: str | None
    key: str | None


class MemoryFilters(TypedDict, total=False):
    """Filters that select durable memories by what they say.

    Attributes:
        kind: only memories of this kind.
        subject: only facts about this subject, in any case.
        predicate: only facts with this predicate, such as ``lives_in``.
        object: only facts with this object, in any case.
        tag: only memories with this label.
        user_id: only preferences of this user.
        key: only preferences, and entries of contexts, with this key.
    """

    kind: MemoryKind | str | None
    subject: str | None
    predicate: str | None
    object: str | None
    tag: str | None
    user_id: str | None
    key: str | None


class Origin(TypedDict, total=False):
    """Filters by how memories came about. They precede limits and ranking, and are exact.

    Attributes:
        memory_class: only facts (``factual``), or only attempts with their outcome (``experiential``).
        outcome_success: only experiences that ended well, or only those that did not.
        source_type: only memories that a ``user``, an ``assistant``, a ``tool`` or an ``import`` said, or that the
            operator's ``agent``, ``system`` or ``workflow`` wrote.
        context: only entries of this context.
    """

    memory_class: MemoryClass | str | None
    outcome_success: bool | None
    source_type: SourceType | str | None
    context: str | None


class ListFilters(MemoryFilters, Origin, total=False):
    """Filters that select durable memories: :class:`MemoryFilters` and :class:`Origin`."""


#: The records, each after those that others extend.
RECORDS: Final = (
    PromptOptions, ConversationFilters, SearchFilters, FactFilters, Origin, MemoryFilters, MemoryFields,
    NewMemoryFields, ListFilters,
)  # fmt: skip


def check_names(given: Mapping[str, object], accepted: type) -> None:
    """Raise TypeError, as Python does for an argument that is unknown, unless a record has all the names."""
    if unknown := given.keys() - accepted.__annotations__.keys():
        raise TypeError(f"unexpected argument {min(unknown)!r}")
