"""Facts by a model: one question per conversation hour, or several if it is long. Answers cite existing messages.

The rules add each turn verbatim. If the model fails, they extract the facts too, and the rows' `fallback` gives the
reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from memory_pipeline.domain.facts import ConversationHour, Extraction, Fact, FactKind
from memory_pipeline.domain.graph.operations import Operation, Verb
from memory_pipeline.domain.graph.triples import ALIASES, Triple, about, fold_operations, name_key, standing
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.model_calls import Purpose, Use, count_tokens
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.text.words import spaced
from memory_pipeline.errors import InputError, ModelError
from memory_pipeline.models.deterministic.extraction import MOST_SENTENCES, DeterministicExtractor
from memory_pipeline.models.deterministic.language.dates import DateMention, dates_in, with_dates
from memory_pipeline.models.deterministic.language.grammar import sentences_of
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import ExtractionAnswer, read_answer, schema_of
from memory_pipeline.models.hosted.evidence import SourceText, Unfounded
from memory_pipeline.models.hosted.grounding import Grounds
from memory_pipeline.models.hosted.prompts import Chunk, Line, Question, chunks_of
from memory_pipeline.models.hosted.transport.requests import CutError, LlmRequest, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from memory_pipeline.configuration.model_settings import ExtractionSettings as Settings
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.answer_schemas import FoundFact, FoundOperation
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

#: Characters shown of a tool or system message, which is context only.
_CONTEXT = 2_000
#: Largest share of the input's token budget for known facts and earlier messages, a half each.
_CONTEXT_SHARE = 0.2
#: Fewest tokens of lines that are halved if the answer about them was cut off.
_SMALLEST = 400
#: Number of earlier messages, and words of each.
_EARLIER, _EARLIER_WORDS = 8, 30
#: Largest distance from its message of a date that the message's words do not support.
_NEAR = timedelta(days=366)
_MOST_ENTITIES, _LONGEST_NAME = 20, 256


@dataclass(frozen=True, slots=True)
class _ParsedAnswer:
    """The facts and operations of an answer, or the reason why there is none."""

    numbers: tuple[int, ...]
    facts: tuple[Fact, ...] = ()
    operations: tuple[Operation, ...] = ()
    refused: Counter[str] = field(default_factory=Counter)
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, the known facts that it shows, what its answer may rest on, and the lines that it is about."""

    request: LlmRequest
    known: Sequence[Triple]
    grounds: Grounds
    chunk: Chunk


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
        language = self._executor.configuration.language(scope)
        return " ".join(
            [_version(settings), identity_of(settings), str(settings.temperature), *([language] if language else [])]
        )

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

    def _questions(
        self, passage: ConversationHour, known: Sequence[Triple], lines: Sequence[Line], most: int | None = None
    ) -> Iterator[_Asked]:
        """Yield the questions about lines of a passage, each with at most `most` tokens of them."""
        settings = self._settings(passage.scope)
        days = sorted(self._day(message) for message in passage.messages)
        instructions = prompts.EXTRACTION
        if settings.prompt is not None:
            words = {"agent": passage.scope.agent_id, "first_day": days[0], "last_day": days[-1]}
            instructions = settings.prompt.format_map(words)
        question = Question(settings, "extraction", _version(settings), instructions, schema_of(ExtractionAnswer))
        language = self._executor.configuration.language(passage.scope)
        head = f"The agent is called {passage.scope.agent_id}.{f' Write in {language}.' if language else ''}"
        sources: dict[str, SourceText] = {}
        room_of_lines = int(question.room * (1 - _CONTEXT_SHARE))
        for chunk in chunks_of(lines, min(room_of_lines, most or room_of_lines)):
            numbers = tuple(n for n in chunk.numbers if passage.messages[n - 1].role.is_memorable)
            if not numbers:
                continue
            room = int(question.room * _CONTEXT_SHARE / 2)
            earlier = [*passage.earlier, *passage.messages[: chunk.numbers[0] - 1]][-_EARLIER:]
            before = self._earlier(earlier, room)
            said = [passage.messages[number - 1].content for number in chunk.numbers]
            text = "\n".join([*_speakers(passage), *said, *(message.content for message in earlier)])
            shown = self._known_facts(known, text, settings, room)
            blocks = [
                *(
                    ["Known facts:", *(self._known_line(n, fact) for n, fact in enumerate(shown, start=1)), ""]
                    if shown
                    else []
                ),
                *(["Earlier messages:", *before, ""] if before else []),
                *(["New messages:"] if shown or before else []),
                chunk.text,
            ]
            stored = "\n".join(blocks)
            request = question.request(
                Use(passage.scope, passage.hour),
                Purpose.EXTRACTION,
                f"{head}\n{prompts.enclosed(stored)}",
                numbers,
                can_be_halved=count_tokens(chunk.text) > _SMALLEST,
            )
            grounds = Grounds(
                earlier, passage.messages, shown, instructions, self._zone, sources, may_translate=language is not None
            )
            yield _Asked(request, shown, grounds, chunk)

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
        text = "\n".join([*_speakers(passage), *(one.content for one in (*passage.earlier, *passage.messages))])
        earlier = _bearing_on(text, [one for one in known.get(passage.scope, ()) if one.event_at < begins])
        found: list[_ParsedAnswer] = []
        vocabulary = self._executor.configuration.vocabulary(passage.scope)
        known_facts = standing(fold_operations(passage.scope, earlier, vocabulary))
        pending = deque(self._questions(passage, known_facts, list(self._lines(passage))))
        while pending:
            asked = pending.popleft()
            try:
                found.append(self._executor.complete(asked.request, partial(self._read, asked, passage)).value)
            except CutError:
                most = count_tokens(asked.chunk.text) * 3 // 5  # two halves, if a line is no obstacle
                pending.extendleft(reversed(list(self._questions(passage, known_facts, asked.chunk.lines, most))))
            except ModelError as error:
                self._executor.log_failure(error)
                if self._executor.waits(error, passage.scope):
                    return Extraction((), is_waiting=True)
                found.append(_ParsedAnswer(asked.request.numbers, trouble=error.trouble))
        return Extraction(tuple(self._combined(passage, found)), sum((part.refused for part in found), Counter()))

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

    def _read(self, asked: _Asked, passage: ConversationHour, text: str) -> _ParsedAnswer:
        """Return the founded facts and operations of an answer."""
        request, grounds = asked.request, asked.grounds
        answer, invalid = read_answer(ExtractionAnswer, text)
        by_number = {number: passage.messages[number - 1] for number in request.numbers}
        refused = Counter({Unfounded.FORM.value: invalid})
        facts: list[Fact] = []
        operations: list[Operation] = []

        def cited(numbers: Sequence[int]) -> list[Message]:
            return [by_number[number] for number in sorted(set(numbers)) if by_number.keys() >= set(numbers)]

        def is_accepted(reason: Unfounded | None) -> bool:
            if reason is None or self._executor.is_rehearsal:
                return True
            refused[reason.value] += 1
            return False

        for position, found in enumerate(answer.facts, start=1):
            messages = cited(found.messages)
            if found.durable is not None:  # it is the user's, although the agent may have repeated it
                messages = [message for message in messages if message.role is Role.USER] or messages
            reason = grounds.refuse_fact(
                found.content, messages, instructs=found.instructs, is_durable=found.durable is not None
            )
            if is_accepted(reason if messages else Unfounded.FORM):
                facts.append(self._fact_from(request, messages, found, position, grounds))
        for found_operation in answer.operations:
            messages = cited(found_operation.messages)
            changes = _operations(found_operation, messages, asked.known) if messages else []
            if not changes:
                refused[Unfounded.FORM.value] += 1
                continue
            change = changes[-1]
            terms = change.subject, change.predicate, change.object
            replaced = dict(enumerate(asked.known, start=1)).get(found_operation.known or 0)
            if is_accepted(grounds.refuse_terms(terms, messages, replaced, ends=change.verb is Verb.DELETE)):
                operations += changes
        messages = list(by_number.values())
        if answer.summary and is_accepted(grounds.refuse_gist(answer.summary, messages)):
            gist = Fact.of(
                messages,
                FactKind.GIST,
                answer.summary,
                position=len(answer.facts) + 1,
                importance=0.4,
                confidence=0.8,
                **_made_by(request),
            )
            facts.append(gist)
        return _ParsedAnswer(request.numbers, tuple(facts), tuple(operations), +refused)

    def _fact_from(
        self, request: LlmRequest, cited: Sequence[Message], fact: FoundFact, position: int, grounds: Grounds
    ) -> Fact:
        last = max(cited, key=lambda message: (message.sent_at, message.turn))
        content = " ".join(fact.content.split())
        # The rules resolve dates that the model left relative, against the message's day.
        said_on = last.said_at(self._zone).date()
        resolved = [(sentence, dates_in(sentence, said_on)) for sentence in sentences_of(content)]
        if any(not mention.is_complete for _, mentions in resolved for mention in mentions):
            content = " ".join(with_dates(sentence.text, mentions) for sentence, mentions in resolved)
        mentions = [mention for _, found in resolved for mention in found]
        names = [name for text in fact.entities if 0 < len(name := " ".join(text.split())) <= _LONGEST_NAME]
        # No count of these: a wrong name here is not a wrong fact.
        names = [name for name in names if self._executor.is_rehearsal or grounds.has_name(name, cited)]
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
        return _with_durable_fields(extracted, fact, cited, grounds)

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

    def _known_facts(self, known: Sequence[Triple], text: str, settings: Settings, room: int) -> list[Triple]:
        """Return the known facts that share most with `text`, at most `room` tokens, oldest first."""
        shown: list[Triple] = []
        for triple in about(known, text, settings.known_facts):
            room -= count_tokens(self._known_line(len(shown), triple))
            if room < 0:
                break
            shown.append(triple)
        return sorted(shown, key=lambda triple: (triple.updated_at, triple.id))

    def _known_line(self, number: int, triple: Triple) -> str:
        return f"K{number} {triple} (since {triple.valid_from.astimezone(self._zone):%Y-%m-%d})"

    def _earlier(self, messages: Sequence[Message], room: int) -> list[str]:
        """Return the lines of the last messages before a chunk, at most `room` tokens; they cannot be cited."""
        lines: list[str] = []
        for message in reversed(messages):
            words = message.content.split()
            cut = " ".join(words[:_EARLIER_WORDS]) + (" …" if len(words) > _EARLIER_WORDS else "")
            line = f"- {self._header(message)} {cut}"
            room -= count_tokens(line)
            if room < 0:
                break
            lines.append(line)
        return lines[::-1]

    def _day(self, message: Message) -> str:
        return message.said_at(self._zone).date().isoformat()

    def _header(self, message: Message) -> str:
        at = message.said_at(self._zone)
        speaker = f" {message.speaker}" if message.role.is_memorable else ""
        return f"{at:%Y-%m-%d} {at:%A} {at:%H:%M} {message.role}{speaker}:"

    def _lines(self, passage: ConversationHour) -> Iterator[Line]:
        for number, message in enumerate(passage.messages, start=1):
            header, content = self._header(message), message.content
            if message.role.is_memorable:
                yield Line(number, f"[{number}] {header}", content)
            else:
                cut = f" … ({len(content):,} characters)" if len(content) > _CONTEXT else ""
                yield Line(number, f"(context, not to be cited) {header}", f"{content[:_CONTEXT]}{cut}")


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


def _with_durable_fields(fact: Fact, found: FoundFact, cited: Sequence[Message], grounds: Grounds) -> Fact:
    """Return a fact with its durable fields. Only users' facts are durable: agents mostly repeat or guess.

    Terms that are not founded are left out; the sentence is.
    """
    kind = found.durable_kind
    if kind is None or not any(message.role is Role.USER for message in cited):
        return fact
    terms = _terms(found, fact)
    if terms is not None and grounds.refuse_terms(terms, cited) is not None:
        terms = None
    subject, predicate, thing = terms or (None, None, None)
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


def _bearing_on(text: str, operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations on facts that `text` may name, complete for their subjects and predicates."""
    words, named = f" {spaced(name_key(text))} ", dict[str, bool]()

    def is_named(name: str) -> bool:
        if name not in named:
            term = spaced(name_key(name))
            named[name] = bool(term) and f" {term} " in words
        return named[name]

    keys = {
        (name_key(one.subject), one.predicate)
        for one in operations
        if one.predicate in ALIASES or is_named(one.subject) or is_named(one.object)
    }
    return [one for one in operations if (name_key(one.subject), one.predicate) in keys]


def _operations(found: FoundOperation, cited: Sequence[Message], known: Sequence[Triple]) -> list[Operation]:
    """Return the operations of an answer's item; none if it is invalid.

    An update of a known fact withdraws this first, so that only its value is replaced.
    """
    last = max(cited, key=lambda message: (message.sent_at, message.turn))
    others = sorted({message.id for message in cited} - {last.id})
    subject, predicate, thing = found.subject, found.predicate, found.object or ""

    def of(verb: str, value: str) -> Operation:
        return Operation.of(
            verb,
            subject,
            predicate,
            value,
            confidence=round(found.confidence, 2),
            message_ids=(last.id, *others),
            event_at=last.sent_at,
        )

    try:
        change = of(found.operation, thing)
        if found.known is None or change.verb is Verb.INSERT:
            return [change]
        if found.known > len(known):
            return []
        replaced = known[found.known - 1]
        if (name_key(change.subject), change.predicate) != (name_key(replaced.source), replaced.label):
            return []
        ended = of(Verb.DELETE, replaced.target)
    except InputError:
        return []
    if change.verb is Verb.DELETE:
        return [ended]
    return [ended, change] if name_key(replaced.target) != name_key(change.object) else [change]


def _day_in(text: str | None) -> date | None:
    try:
        return date.fromisoformat((text or "").strip()[:10])
    except ValueError:
        return None
