"""Facts by a model: one question per conversation hour, or several if it is long. Answers cite existing messages.

The rules add each turn verbatim. If the model fails, they extract the facts too, and the rows' `fallback` gives the
reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memory_pipeline.domain.facts import ConversationHour, Extraction, Fact, FactKind
from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import Triple, about, fold_operations, standing
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.model_calls import Purpose, Use, count_tokens
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.errors import InputError, ModelError
from memory_pipeline.models.deterministic.extraction import MOST_SENTENCES, DeterministicExtractor
from memory_pipeline.models.deterministic.language.dates import DateMention, dates_in, with_dates
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import ExtractionAnswer, read_answer, schema_of
from memory_pipeline.models.hosted.prompts import Line, Question, chunks_of
from memory_pipeline.models.hosted.transport.requests import LlmRequest, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.configuration.model_settings import ExtractionSettings as Settings
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.answer_schemas import FoundFact, FoundOperation
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

#: Largest age of an operation shown as a known fact.
LOOK_BACK = timedelta(days=31)

#: Characters shown of a tool or system message, which is context only.
_CONTEXT = 2_000
#: Largest share of the input's token budget for known facts.
_KNOWN_SHARE = 0.15
#: Largest distance from its message of a date that the message's words do not support.
_NEAR = timedelta(days=366)
_MOST_ENTITIES, _LONGEST_NAME = 20, 256


@dataclass(frozen=True, slots=True)
class _ParsedAnswer:
    """The facts and operations of an answer, or the reason why there is none."""

    numbers: tuple[int, ...]
    facts: tuple[Fact, ...] = ()
    operations: tuple[Operation, ...] = ()
    refused: int = 0
    trouble: str | None = None


class HostedExtractor:
    """Extract facts with the configured models; a :class:`memory_pipeline.domain.facts.Extractor`.

    Words such as "yesterday" are resolved in `timezone`, an IANA name.
    """

    def __init__(self, executor: LlmExecutor, timezone: str) -> None:
        self._executor = executor
        self._zone = ZoneInfo(timezone)
        self._calendar = Calendar(timezone)
        self._rules = DeterministicExtractor(timezone)

    def method(self, scope: Scope) -> str:
        """Return a name for everything that determines the facts: prompt version, model and temperature."""
        settings = self._settings(scope)
        if settings.is_deterministic:
            return self._rules.method(scope)
        return f"{_version(settings)} {identity_of(settings)} {settings.temperature}"

    def extract(
        self, passages: Sequence[ConversationHour], recall: Callable[[], Mapping[Scope, Sequence[Operation]]]
    ) -> list[Extraction]:
        """Return the extraction of each passage.

        Agents with `known_facts` are processed hour by hour, since each hour is shown the facts of earlier ones.
        """
        found: dict[int, Extraction] = {}
        hosted: list[int] = []
        for place, passage in enumerate(passages):
            if self._settings(passage.scope).is_deterministic:
                found[place] = Extraction(tuple(self._rules.facts_of(passage.messages)))
            else:
                hosted.append(place)
        if hosted:
            self._load({passages[place].hour for place in hosted})
            known: dict[Scope, list[Operation]] = {}
            if any(self._settings(passages[place].scope).known_facts for place in hosted):
                known = {scope: list(operations) for scope, operations in recall().items()}
            for places in self._rounds(passages, hosted):
                tasks = [partial(self._passage, passages[place], known) for place in places]
                for place, extraction in zip(places, self._executor.gather(tasks), strict=True):
                    found[place] = extraction
                    scope = passages[place].scope
                    known.setdefault(scope, []).extend(o for fact in extraction.facts for o in fact.placed_operations)
        return [found[place] for place in range(len(passages))]

    def _questions(self, passage: ConversationHour, known: Sequence[Triple]) -> Iterator[LlmRequest]:
        settings = self._settings(passage.scope)
        days = sorted(self._day(message) for message in passage.messages)
        lines = list(self._lines(passage))
        words = {"agent": passage.scope.agent_id, "first_day": days[0], "last_day": days[-1]}
        instructions = settings.prompt or prompts.EXTRACTION
        schema = schema_of(ExtractionAnswer)
        question = Question(settings, "extraction", _version(settings), instructions, words, schema)
        named = " ".join([*_speakers(passage), *(line.text for line in lines)])
        shown = self._known_facts(known, named, settings, int(question.room * _KNOWN_SHARE))
        for chunk in chunks_of(lines, int(question.room * (1 - _KNOWN_SHARE))):
            tag = prompts.tag_for(shown, chunk.text)
            numbers = tuple(n for n in chunk.numbers if passage.messages[n - 1].role.is_memorable)
            if numbers:
                use, text = Use(passage.scope, passage.hour), f"<{tag}>\n{shown}{chunk.text}\n</{tag}>"
                yield question.request(use, Purpose.EXTRACTION, text, tag, numbers)

    def _settings(self, scope: Scope) -> Settings:
        return self._executor.configuration.extraction(scope)

    def _load(self, hours: set[Period]) -> None:
        if self._executor.store:
            self._executor.store.load(hours)

    def _rounds(self, passages: Sequence[ConversationHour], places: Sequence[int]) -> Iterator[list[int]]:
        """Yield the passages that may be processed concurrently.

        Each round has the next hour of each agent with `known_facts`. The first round also has all other passages.
        """
        concurrent: list[int] = []
        lanes: dict[Scope, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place in places:
            passage = passages[place]
            if self._settings(passage.scope).known_facts:
                lanes[passage.scope][passage.hour.key].append(place)
            else:
                concurrent.append(place)
        hours = [[lane[key] for key in sorted(lane)] for lane in lanes.values()]
        for number, turn in enumerate(zip_longest(*hours, fillvalue=())):
            yield [*(concurrent if number == 0 else []), *(place for group in turn for place in group)]
        if concurrent and not hours:
            yield concurrent

    def _passage(self, passage: ConversationHour, known: Mapping[Scope, Sequence[Operation]]) -> Extraction:
        begins = self._calendar.bounds(passage.hour)[0]
        earlier = [o for o in known.get(passage.scope, ()) if begins - LOOK_BACK <= o.event_at < begins]
        found: list[_ParsedAnswer] = []
        vocabulary = self._executor.configuration.vocabulary(passage.scope)
        for request in self._questions(passage, standing(fold_operations(passage.scope, earlier, vocabulary))):
            try:
                found.append(self._executor.complete(request, partial(self._read, request, passage)).value)
            except ModelError as error:
                self._executor.log_failure(error)
                if self._executor.waits(error, passage.scope):
                    return Extraction((), is_waiting=True)
                found.append(_ParsedAnswer(request.numbers, trouble=error.trouble))
        return Extraction(tuple(self._combined(passage, found)), sum(part.refused for part in found))

    def _combined(self, passage: ConversationHour, found: Sequence[_ParsedAnswer]) -> Iterator[Fact]:
        """Yield the turns with their operations, and the facts of the model, or of the rules where it failed."""
        troubles = {number: part.trouble for part in found if part.trouble for number in part.numbers}
        operations: dict[str, list[Operation]] = defaultdict(list)
        for operation in (operation for part in found for operation in part.operations):
            operations[operation.message_ids[0]].append(operation)
        facts: dict[str, Fact] = {}
        for number, message in enumerate(passage.messages, start=1):
            if not message.role.is_memorable:
                continue
            turn, *others = self._rules.facts_of([message])
            trouble = troubles.get(number)
            # One part of a long message may come from the model and another from the rules.
            both = [*operations[message.id], *(turn.operations if trouble else ())]
            yield replace(turn, fallback=trouble, operations=tuple(dict.fromkeys(both)))
            if trouble is not None:
                facts |= {fact.id: replace(fact, fallback=trouble) for fact in others}
        # Both may state the same fact; the model's replaces that of the rules.
        facts |= {fact.id: fact for part in reversed(found) for fact in reversed(part.facts)}
        yield from facts.values()

    def _read(self, request: LlmRequest, passage: ConversationHour, text: str) -> _ParsedAnswer:
        """Return the facts and operations of an answer, without those that cite unknown messages."""
        answer, refused = read_answer(ExtractionAnswer, text)
        by_number = {number: passage.messages[number - 1] for number in request.numbers}
        accepted = [
            self._fact_from(request, [by_number[number] for number in set(fact.messages)], fact, position)
            for position, fact in enumerate(answer.facts, start=1)
            if by_number.keys() >= set(fact.messages)
        ]
        changes = [
            change
            for operation in answer.operations
            if by_number.keys() >= set(operation.messages)
            and (change := _operation(operation, [by_number[number] for number in set(operation.messages)]))
        ]
        refused += len(answer.facts) - len(accepted) + len(answer.operations) - len(changes)
        if answer.summary:
            gist = Fact.of(
                list(by_number.values()),
                FactKind.GIST,
                answer.summary,
                position=len(answer.facts) + 1,
                importance=0.4,
                confidence=0.8,
                **_made_by(request),
            )
            accepted.append(gist)
        return _ParsedAnswer(request.numbers, tuple(accepted), tuple(changes), refused)

    def _fact_from(self, request: LlmRequest, cited: Sequence[Message], fact: FoundFact, position: int) -> Fact:
        last = max(cited, key=lambda message: (message.sent_at, message.turn))
        content = " ".join(fact.content.split())
        # The rules resolve dates that the model left relative, against the message's day.
        said_on = last.said_at(self._zone).date()
        resolved = [(sentence, dates_in(sentence, said_on)) for sentence in sentences_of(content)]
        if any(not mention.is_complete for _, mentions in resolved for mention in mentions):
            content = " ".join(with_dates(sentence.text, mentions) for sentence, mentions in resolved)
        mentions = [mention for _, found in resolved for mention in found]
        names = [name for text in fact.entities if 0 < len(name := " ".join(text.split())) <= _LONGEST_NAME]
        extracted = Fact.of(
            cited,
            FactKind(fact.kind),
            content,
            position=position,
            entities=names[:_MOST_ENTITIES],
            importance=round(fact.importance, 2),
            confidence=round(fact.confidence, 2),
            mentioned_at=self._date(fact.date, cited, mentions, said_on),
            **_made_by(request),
        )
        return _with_durable_fields(extracted, fact, cited)

    def _date(
        self, text: str | None, cited: Sequence[Message], stated: Sequence[DateMention], said_on: date
    ) -> datetime | None:
        """Return the day that a fact is about.

        A date that the rules find in the messages overrides the model's: it may have resolved "today" to its own day.
        """
        mentioned = [
            mention for message in cited for mention in _dates_said(message.content, message.said_at(self._zone).date())
        ]
        mentioned_days = {mention.day for mention in mentioned}
        # If the messages mention a day, a date that only the model's sentence has counts only if it is near.
        supported = [m for m in stated if not mentioned or m.day in mentioned_days or abs(m.day - said_on) <= _NEAR]
        candidates = [*supported, *mentioned]
        days = [mention.day for mention in candidates]
        claimed = _day_in(text)
        if claimed is not None and (claimed in days or (not days and abs(claimed - said_on) <= _NEAR)):
            return datetime(claimed.year, claimed.month, claimed.day, tzinfo=UTC)
        return candidates[0].instant if candidates and (text or stated) else None

    def _known_facts(self, known: Sequence[Triple], text: str, settings: Settings, room: int) -> str:
        """Return the newest known facts about the names in `text`, at most `room` tokens."""
        lines: list[str] = []
        for triple in reversed(about(known, text, settings.known_facts)):
            line = f"- {triple} (since {triple.valid_from.astimezone(self._zone):%Y-%m-%d})"
            room -= count_tokens(line)
            if room < 0:
                break
            lines.append(line)
        return "\n".join(["Known before:", *reversed(lines), "", ""]) if lines else ""

    def _day(self, message: Message) -> str:
        return message.said_at(self._zone).date().isoformat()

    def _lines(self, passage: ConversationHour) -> Iterator[Line]:
        for number, message in enumerate(passage.messages, start=1):
            at = message.said_at(self._zone)
            when = f"{at:%Y-%m-%d} {at:%A} {at:%H:%M}"
            if message.role.is_memorable:
                yield Line(number, f"[{number}] {when} {message.role} {message.speaker}:", message.content)
            else:
                cut = f" … ({len(message.content):,} characters)" if len(message.content) > _CONTEXT else ""
                content = f"{message.content[:_CONTEXT]}{cut}"
                yield Line(number, f"(context, not to be cited) {when} {message.role}:", content)


def _made_by(request: LlmRequest) -> dict[str, Any]:
    """Return the fields of a fact that say what made it."""
    version = request.prompt_version
    return {"extraction_method": version, "model": request.endpoint.model, "prompt_version": version}


@lru_cache(maxsize=32)
def _dates_said(content: str, said_on: date) -> tuple[DateMention, ...]:
    sentences = sentences_of(content, MOST_SENTENCES)
    return tuple([mention for sentence in sentences for mention in dates_in(sentence, said_on)])


def _version(settings: Settings) -> str:
    return prompts.version_of(prompts.EXTRACTION_VERSION, settings.prompt)


def _speakers(passage: ConversationHour) -> list[str]:
    """Return the speakers by their names in operations, where an agent is also "Agent"."""
    memorable = [message for message in passage.messages if message.role.is_memorable]
    names = {message.speaker for message in memorable}
    return sorted(names | {"Agent" for message in memorable if message.role is Role.ASSISTANT})


def _with_durable_fields(fact: Fact, found: FoundFact, cited: Sequence[Message]) -> Fact:
    """Return a fact with its durable fields. Only users' facts are durable: agents mostly repeat or guess."""
    kind = found.durable_kind
    if kind is None or not any(message.role is Role.USER for message in cited):
        return fact
    subject, predicate, thing = _terms(found, fact) or (None, None, None)
    return replace(
        fact, durable=kind, is_point_in_time=found.point_in_time, subject=subject, predicate=predicate, object=thing
    )


def _terms(found: FoundFact, fact: Fact) -> tuple[str, str, str] | None:
    """Return subject, predicate and object of a fact in canonical form; None if one is missing or invalid."""
    if found.subject is None or found.predicate is None or found.object is None:
        return None
    try:
        one = Operation.of(
            Verb.INSERT,
            found.subject,
            found.predicate,
            found.object,
            confidence=fact.confidence,
            message_ids=fact.message_ids,
            event_at=fact.event_at,
        )
    except InputError:
        return None
    return one.subject, one.predicate, one.object


def _operation(found: FoundOperation, cited: Sequence[Message]) -> Operation | None:
    last = max(cited, key=lambda message: (message.sent_at, message.turn))
    others = sorted({message.id for message in cited} - {last.id})
    try:
        return Operation.of(
            found.operation,
            found.subject,
            found.predicate,
            found.object,
            confidence=round(found.confidence, 2),
            message_ids=(last.id, *others),
            event_at=last.sent_at,
        )
    except InputError:
        return None


def _day_in(text: str | None) -> date | None:
    try:
        return date.fromisoformat((text or "").strip()[:10])
    except ValueError:
        return None
