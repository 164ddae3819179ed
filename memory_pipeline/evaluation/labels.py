"""Labelled sets: conversations, and questions with the messages that answer them (the evidence)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Admission, read_messages, same_id_other_content
from memory_pipeline.domain.periods import EARLIEST
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import ScopeOf

#: Category of questions without an answer in memory. It is reported separately.
ADVERSARIAL = "adversarial"
UNCATEGORISED = "uncategorised"


@dataclass(frozen=True, slots=True)
class Citation:
    """A reference to a message by its id, which is unique only within a conversation (None if it is omitted)."""

    id: str
    conversation_id: str | None = None

    def __str__(self) -> str:
        return self.id if self.conversation_id is None else f"{self.conversation_id}/{self.id}"


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    """A question of a file.

    Attributes:
        where: file and record, for error messages.
        evidence: the messages that answer it.
        answer: the expected answer, if the file has one.
        now: time of the question, in UTC; None means the time of the agent's last message.
        rubric: what an answer must contain, one criterion each (BEAM).
        is_unanswerable: whether the conversations do not contain the answer; `answer` may say why.
    """

    where: str
    scope: Scope
    text: str
    evidence: tuple[Citation, ...]
    category: str = UNCATEGORISED
    answer: str | None = None
    now: datetime | None = None
    rubric: tuple[str, ...] = ()
    is_unanswerable: bool = False


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """A question with its evidence resolved to row ids, at least one. `unknown` evidence refers to no message."""

    question: LabelledQuestion
    relevant: frozenset[str]
    unknown: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class SetAside:
    """An excluded question or message, with the reason."""

    where: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """The validated content of labelled files.

    `messages` are by row id, in the order of the files. `asked` are all questions, `questions` those whose evidence is
    known. Set aside are invalid messages, and questions without evidence or with unknown or ambiguous evidence.
    """

    messages: Mapping[str, Message]
    asked: tuple[LabelledQuestion, ...]
    questions: tuple[JudgedQuestion, ...]
    questions_set_aside: tuple[SetAside, ...]
    messages_set_aside: tuple[SetAside, ...]


def answers_of(questions: Iterable[LabelledQuestion]) -> dict[Scope, list[str]]:
    """Return the expected answers of each agent, without those of adversarial questions."""
    answers: defaultdict[Scope, list[str]] = defaultdict(list)
    for question in questions:
        if question.answer is not None and question.category != ADVERSARIAL:
            answers[question.scope].append(question.answer)
    return dict(answers)


def labelled_set(
    conversations: Iterable[tuple[str, object]],
    questions: Iterable[LabelledQuestion],
    now: datetime | None = None,
    *,
    needs_questions: bool = True,
    scope_of: ScopeOf = Scope,
) -> LabelledSet:
    """Validate conversations, and resolve the evidence of questions.

    Each conversation has its place, for error messages, and is in the format of `ingest`. `now` is the time of receipt
    of the messages, by default the current time. `scope_of` is as for
    :func:`~memory_pipeline.domain.conversations.read_messages`.

    Raises:
        InputError: a conversation is invalid as a whole, there are no conversations, or `needs_questions` and there are
            none.
    """
    messages, messages_set_aside = _messages(conversations, Admission(EARLIEST, now or datetime.now(UTC)), scope_of)
    if not messages:
        raise InputError(f"the files contain no conversations with messages{_first(messages_set_aside)}")
    known: defaultdict[tuple[Scope, str], list[Message]] = defaultdict(list)
    for message in messages.values():
        if message.source_id is not None:
            known[message.scope, message.source_id].append(message)
    judged, set_aside, asked = [], [], tuple(questions)
    for question in asked:
        try:
            judged.append(_judge(question, known))
        except InputError as error:
            set_aside.append(SetAside(question.where, question.text, str(error)))
    if needs_questions and not asked:
        raise InputError("the files contain no questions; `memory-pipeline eval jsonl --help` shows the format")
    return LabelledSet(messages, asked, tuple(judged), tuple(set_aside), tuple(messages_set_aside))


def _messages(
    conversations: Iterable[tuple[str, object]], admission: Admission, scope_of: ScopeOf
) -> tuple[dict[str, Message], list[SetAside]]:
    messages: dict[str, Message] = {}
    set_aside = []
    for where, record in conversations:
        accepted, rejected, _ = read_messages(record, admission, scope_of)
        for rejection in rejected:
            if rejection.record is record:
                raise InputError(f"{where}, {rejection.where}: {rejection.reason}")
            set_aside.append(SetAside(f"{where}, {rejection.where}", _content(rejection.record), rejection.reason))
        for message in accepted:
            first = messages.setdefault(message.id, message)
            if not first.says_the_same_as(message):
                reason = same_id_other_content(message, first)
                set_aside.append(SetAside(f"{where}, turn {message.turn + 1}", message.content, reason))
    return messages, set_aside


def _judge(question: LabelledQuestion, known: Mapping[tuple[Scope, str], list[Message]]) -> JudgedQuestion:
    if not question.evidence:
        raise InputError("it has no evidence; name the messages that answer it")
    relevant: set[str] = set()
    unknown: list[Citation] = []
    for citation in question.evidence:
        matching = [
            message
            for message in known.get((question.scope, citation.id), ())
            if citation.conversation_id in (None, message.conversation_id)
        ]
        if len(matching) > 1:
            talks = sorted({message.conversation_id for message in matching})
            raise InputError(
                f"evidence {shown(str(citation))} names {len(matching)} messages, in conversations "
                f"{shown(', '.join(talks), 200)}; write it as an object with conversation_id and id, and give each "
                "message of a conversation an id of its own"
            )
        relevant.update(message.id for message in matching)
        if not matching:
            unknown.append(citation)
    if not relevant:
        names = ", ".join(str(citation) for citation in unknown)
        raise InputError(
            f"evidence {shown(names, 200)} names no message of {question.scope.workspace_id}/{question.scope.agent_id}"
        )
    return JudgedQuestion(question, frozenset(relevant), tuple(unknown))


def _content(conversation: object) -> str:
    [message] = conversation["messages"]  # type: ignore[index]  # read_messages() puts the message into one
    return str(message.get("content", "")) if isinstance(message, dict) else str(message)


def _first(set_aside: list[SetAside]) -> str:
    return f"; the first of {len(set_aside):,} rejected messages: {set_aside[0].reason}" if set_aside else ""
