"""Facts by a model: one question per conversation hour, or several if it is long, or one for several short hours.

Answers cite existing messages. The rules add each turn verbatim. If the model fails, they extract the facts too, and
the rows' `fallback` gives the reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache, partial
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.configuration.model_settings import ExtractionSettings as Settings
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.models.hosted.answer_schemas import FoundFact, FoundOperation
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor

#: Characters shown of a tool or system message, which is context only.
_CONTEXT = 2_000
#: Largest share of the input's token budget for known facts and earlier messages, a half each.
_CONTEXT_SHARE = 0.2
#: Number of earlier messages, and words of each.
_EARLIER, _EARLIER_WORDS = 6, 25
#: Largest distance from its message of a date that the message's words do not support.
_NEAR = timedelta(days=366)
_MOST_ENTITIES, _LONGEST_NAME = 20, 256


@dataclass(frozen=True, slots=True)
class _ParsedAnswer:
    """The facts and operations of an answer, or the reason why there is none."""

    numbers: Sequence[int]
    facts: Sequence[Fact] = ()
    operations: Sequence[Operation] = ()
    refused: Counter[str] = field(default_factory=Counter)
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, the known facts that it shows, the messages that may be cited, and what the answer may rest on."""

    request: LlmRequest
    chunk: Chunk
    known: Sequence[Triple]
    messages: Mapping[int, Message]
    grounds: Mapping[str, Grounds]  #: by conversation


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

        Hours of a day with less than `minimum_tokens` are asked about together, if the same users speak to the same
        agent. Agents with `known_facts` are processed in the order of their hours, since each question shows the facts
        of earlier hours.
        """
        found: dict[int, Extraction] = {}
        hosted: list[int] = []
        for place, passage in enumerate(passages):
            if self._settings(passage.scope).is_deterministic:
                found[place] = Extraction(tuple(self._rules.facts_of(passage.messages)))
            else:
                hosted.append(place)
        if hosted:
            if self._executor.store:
                self._executor.store.load({passages[place].hour for place in hosted})
            known: dict[Scope, list[Operation]] = {}
            if any(self._settings(passages[place].scope).known_facts for place in hosted):
                known = {scope: list(operations) for scope, operations in recall().items()}
            for groups in self._rounds(passages, self._groups(passages, hosted)):
                tasks = [partial(self._extracted, [passages[place] for place in group], known) for group in groups]
                for group, extractions in zip(groups, self._executor.gather(tasks), strict=True):
                    for place, extraction in zip(group, extractions, strict=True):
                        found[place] = extraction
                        operations = [o for fact in extraction.facts for o in fact.placed_operations]
                        known.setdefault(passages[place].scope, []).extend(operations)
        return [found[place] for place in range(len(passages))]

    def _settings(self, scope: Scope) -> Settings:
        return self._executor.configuration.extraction(scope)

    def _groups(self, passages: Sequence[ConversationHour], places: Sequence[int]) -> Iterator[list[int]]:
        """Yield the places of the passages that one question is about, by time.

        A short passage waits for the next ones of its users on the same day, until there are enough tokens.
        """
        waiting: dict[object, tuple[int, list[int]]] = {}
        for place in sorted(places, key=lambda one: (passages[one].hour.key, passages[one].conversation_id)):
            passage = passages[place]
            key = passage.scope, _users(passage), passage.hour.key[: len("2024-01-15")]
            tokens, group = waiting.pop(key, (0, []))
            tokens += sum(count_tokens(message.content) for message in passage.messages)
            group.append(place)
            if tokens < self._settings(passage.scope).minimum_tokens:
                waiting[key] = tokens, group
            else:
                yield group
        yield from (group for _, group in waiting.values())

    def _rounds(self, passages: Sequence[ConversationHour], groups: Iterable[list[int]]) -> list[list[list[int]]]:
        """Return the groups that may be processed concurrently, round by round.

        Each round has the next hour of each agent with `known_facts`. The first one also has all other groups.
        """
        rounds: defaultdict[int, list[list[int]]] = defaultdict(list)
        turns: defaultdict[Scope, dict[str, int]] = defaultdict(dict)
        for group in sorted(groups, key=lambda group: passages[group[0]].hour.key):
            first = passages[group[0]]
            turn = 0
            if self._settings(first.scope).known_facts:
                turn = turns[first.scope].setdefault(first.hour.key, len(turns[first.scope]))
            rounds[turn].append(group)
        return [rounds[turn] for turn in sorted(rounds)]

    def _extracted(
        self, group: Sequence[ConversationHour], known: Mapping[Scope, Sequence[Operation]]
    ) -> list[Extraction]:
        """Return the extractions of the passages of a group."""
        scope, begins = group[0].scope, self._calendar.bounds(group[0].hour)[0]
        messages = [message for passage in group for message in (*passage.earlier, *passage.messages)]
        text = "\n".join([*_speakers(group), *(message.content for message in messages)])
        bearing = _bearing_on(text, [one for one in known.get(scope, ()) if one.event_at < begins])
        known_facts = standing(fold_operations(scope, bearing, self._executor.configuration.vocabulary(scope)))
        found: list[_ParsedAnswer] = []
        pending = deque(self._questions(group, known_facts, list(self._lines(group))))
        while pending:
            asked = pending.popleft()
            try:
                found.append(self._executor.complete(asked.request, partial(self._read, asked)).value)
            except CutError:
                halves = [self._questions(group, known_facts, half.lines) for half in asked.chunk.halves]
                pending.extendleft(reversed([one for half in halves for one in half]))
            except ModelError as error:
                self._executor.log_failure(error)
                if self._executor.waits(error, scope):
                    return [Extraction((), is_waiting=True) for _ in group]
                found.append(_ParsedAnswer(asked.request.numbers, trouble=error.trouble))
        refused = sum((part.refused for part in found), Counter[str]())
        first = 1
        extractions: list[Extraction] = []
        for passage in group:
            facts = tuple(self._combined(passage, first, found))
            extractions.append(Extraction(facts, Counter() if extractions else refused))
            first += len(passage.messages)
        return extractions

    def _combined(self, passage: ConversationHour, first: int, found: Sequence[_ParsedAnswer]) -> Iterator[Fact]:
        """Yield the turns with their operations, and the facts of the model, or of the rules where it failed.

        `first` is the number of the passage's first message.
        """
        ids = {message.id for message in passage.messages}
        troubles = {number: part.trouble for part in found if part.trouble for number in part.numbers}
        operations: dict[str, list[Operation]] = defaultdict(list)
        for operation in (operation for part in found for operation in part.operations):
            operations[operation.message_ids[0]].append(operation)
        facts: dict[str, Fact] = {}
        for number, message in enumerate(passage.messages, start=first):
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
        by_model = [fact for part in found for fact in part.facts if fact.message_ids[0] in ids]
        facts |= {fact.id: fact for fact in reversed(by_model)}
        yield from facts.values()

    # --- questions ---------------------------------------------------------------------------------------------------

    def _questions(
        self, group: Sequence[ConversationHour], known: Sequence[Triple], lines: Sequence[Line]
    ) -> Iterator[_Asked]:
        """Yield the questions about lines of a group."""
        scope = group[0].scope
        settings, language = self._settings(scope), self._executor.configuration.language(scope)
        messages = [message for passage in group for message in passage.messages]
        instructions = prompts.EXTRACTION
        if settings.prompt is not None:
            days = sorted(self._day(message) for message in messages)
            words = {"agent": scope.agent_id, "first_day": days[0], "last_day": days[-1]}
            instructions = settings.prompt.format_map(words)
        question = Question(settings, "extraction", _version(settings), instructions, schema_of(ExtractionAnswer))
        head = f"The agent is called {scope.agent_id}.{f' Write in {language}.' if language else ''}"
        room = int(question.room * _CONTEXT_SHARE / 2)
        sources: dict[str, SourceText] = {}
        for chunk in chunks_of(lines, int(question.room * (1 - _CONTEXT_SHARE))):
            cited = {n: messages[n - 1] for n in chunk.numbers if messages[n - 1].role.is_memorable}
            if not cited:
                continue
            said = [messages[number - 1] for number in chunk.numbers]
            shown = {message.id for message in said}
            before = [message for passage in group for message in passage.earlier] + messages[: chunk.numbers[0] - 1]
            talks = {message.conversation_id for message in said}
            earlier = [
                m for m in {m.id: m for m in before}.values() if m.id not in shown and m.conversation_id in talks
            ]
            earlier = earlier[-_EARLIER:]
            text = "\n".join([*_speakers(group), *(message.content for message in (*said, *earlier))])
            facts = self._known_facts(known, text, settings, room)
            blocks = [
                ["Known facts:", *(self._known_line(number, fact) for number, fact in enumerate(facts, start=1))],
                ["Earlier messages:", *self._earlier(earlier, room)],
            ]
            context = [line for block in blocks if len(block) > 1 for line in (*block, "")]
            stored = "\n".join([*context, *(["New messages:"] if context else []), chunk.text])
            request = question.request(
                Use(scope, group[0].hour),
                Purpose.EXTRACTION,
                f"{head}\n{prompts.enclosed(stored)}",
                tuple(cited),
                can_be_halved=chunk.can_be_halved,
            )
            grounds = {
                talk: Grounds(
                    [message for message in (*earlier, *messages) if message.conversation_id == talk],
                    facts, instructions, self._zone, sources, may_translate=language is not None,
                )
                for talk in talks
            }  # fmt: skip
            yield _Asked(request, chunk, facts, cited, grounds)

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

    def _lines(self, group: Sequence[ConversationHour]) -> Iterator[Line]:
        before = group[0].conversation_id
        for number, message in enumerate((one for passage in group for one in passage.messages), start=1):
            is_other, before = message.conversation_id != before, message.conversation_id
            header, content = self._header(message), message.content
            mark = "(another conversation)\n" if is_other else ""
            if message.role.is_memorable:
                yield Line(number, f"{mark}[{number}] {header}", content)
            else:
                cut = f" … ({len(content):,} characters)" if len(content) > _CONTEXT else ""
                yield Line(number, f"{mark}(context, not to be cited) {header}", f"{content[:_CONTEXT]}{cut}")

    # --- answers -----------------------------------------------------------------------------------------------------

    def _read(self, asked: _Asked, text: str) -> _ParsedAnswer:
        """Return the founded facts and operations of an answer."""
        answer, invalid = read_answer(ExtractionAnswer, text)
        refused = Counter({Unfounded.FORM.value: invalid})
        facts: list[Fact] = []
        operations: list[Operation] = []

        def is_accepted(reason: Unfounded | None) -> bool:
            if reason is None or self._executor.is_rehearsal:
                return True
            refused[reason.value] += 1
            return False

        for position, found in enumerate(answer.facts, start=1):
            messages = _cited(asked, found.messages, prefers_users=found.durable is not None)
            if not messages:
                refused[Unfounded.FORM.value] += 1
                continue
            grounds = asked.grounds[messages[0].conversation_id]
            is_durable = found.durable is not None
            if is_accepted(
                grounds.refuse_fact(found.content, messages, instructs=found.instructs, is_durable=is_durable)
            ):
                facts.append(self._fact_from(asked, messages, found, position, grounds))
        for change in answer.operations:
            messages = _cited(asked, change.messages)
            changes = _operations(change, messages, asked.known) if messages else []
            if not changes:
                refused[Unfounded.FORM.value] += 1
                continue
            last = changes[-1]
            replaced = dict(enumerate(asked.known, start=1)).get(change.known or 0)
            grounds = asked.grounds[messages[0].conversation_id]
            terms = last.subject, last.predicate, last.object
            if is_accepted(grounds.refuse_terms(terms, messages, replaced, ends=last.verb is Verb.DELETE)):
                operations += changes
        messages = list(asked.messages.values())
        # A summary of several hours would belong to none of them.
        if answer.summary and len({(message.hour, message.conversation_id) for message in messages}) == 1:
            grounds = asked.grounds[messages[0].conversation_id]
            if is_accepted(grounds.refuse_gist(answer.summary, messages)):
                gist = Fact.of(
                    messages,
                    FactKind.GIST,
                    answer.summary,
                    position=len(answer.facts) + 1,
                    importance=0.4,
                    confidence=0.8,
                    **_made_by(asked.request),
                )
                facts.append(gist)
        return _ParsedAnswer(asked.request.numbers, facts, operations, +refused)

    def _fact_from(
        self, asked: _Asked, cited: Sequence[Message], fact: FoundFact, position: int, grounds: Grounds
    ) -> Fact:
        # The rules resolve dates that the model left relative, against the message's day.
        said_on = _last(cited).said_at(self._zone).date()
        content = " ".join(fact.content.split())
        resolved = [(sentence, dates_in(sentence, said_on)) for sentence in sentences_of(content)]
        if any(not mention.is_complete for _, mentions in resolved for mention in mentions):
            content = " ".join(with_dates(sentence.text, mentions) for sentence, mentions in resolved)
        mentions = [mention for _, found in resolved for mention in found]
        names = [name for text in fact.entities if 0 < len(name := " ".join(text.split())) <= _LONGEST_NAME]
        # No count of these: a wrong name here is not a wrong fact.
        names = [name for name in names if self._executor.is_rehearsal or grounds.has_name(name, cited)]
        made = Fact.of(
            cited,
            FactKind(fact.kind),
            content,
            position=position,
            entities=names[:_MOST_ENTITIES],
            importance=round(fact.importance, 2),
            confidence=round(fact.confidence, 2),
            mentioned_at=self._date(fact.date, cited, mentions, said_on),
            **_made_by(asked.request),
        )
        if fact.durable_kind is None or not any(message.role is Role.USER for message in cited):
            return made  # only users' facts are durable: agents mostly repeat or guess
        durable = replace(made, durable=fact.durable_kind, is_point_in_time=fact.point_in_time)
        if fact.subject is None or fact.predicate is None or fact.object is None:
            return durable
        one = _operation(Verb.INSERT, (fact.subject, fact.predicate, fact.object), made.confidence, cited)
        if one is None or grounds.refuse_terms((one.subject, one.predicate, one.object), cited) is not None:
            return durable  # terms that are not founded are left out; the sentence is
        return replace(durable, subject=one.subject, predicate=one.predicate, object=one.object)

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


def _version(settings: Settings) -> str:
    return prompts.version_of(prompts.EXTRACTION_VERSION, settings.prompt)


def _made_by(request: LlmRequest) -> dict[str, Any]:
    """Return the fields of a fact that say what made it."""
    version = request.prompt_version
    return {"extraction_method": version, "model": request.endpoint.model, "prompt_version": version}


def _users(passage: ConversationHour) -> frozenset[str | None]:
    return frozenset(message.user_id for message in passage.messages if message.role is Role.USER)


def _speakers(group: Sequence[ConversationHour]) -> list[str]:
    """Return the speakers by their names in operations, where an agent is also "Agent"."""
    memorable = [message for passage in group for message in passage.messages if message.role.is_memorable]
    names = {message.speaker for message in memorable}
    return sorted(names | {"Agent" for message in memorable if message.role is Role.ASSISTANT})


def _last(messages: Iterable[Message]) -> Message:
    return max(messages, key=lambda message: (message.sent_at, message.turn))


def _cited(asked: _Asked, numbers: Sequence[int], *, prefers_users: bool = False) -> list[Message]:
    """Return the cited messages, of the last conversation hour among them; none if a number is unknown.

    With `prefers_users` only those of users, if there are any: what the agent repeats is the user's.
    """
    if not asked.messages.keys() >= set(numbers):
        return []
    messages = [asked.messages[number] for number in sorted(set(numbers))]
    if prefers_users:
        messages = [message for message in messages if message.role is Role.USER] or messages
    last = _last(messages)
    return [one for one in messages if (one.hour, one.conversation_id) == (last.hour, last.conversation_id)]


def _bearing_on(text: str, operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations on facts that `text` may name, complete for their subjects and predicates."""
    words = f" {spaced(name_key(text))} "

    @cache
    def is_named(name: str) -> bool:
        term = spaced(name_key(name))
        return bool(term) and f" {term} " in words

    keys = {
        (name_key(one.subject), one.predicate)
        for one in operations
        if one.predicate in ALIASES or is_named(one.subject) or is_named(one.object)
    }
    return [one for one in operations if (name_key(one.subject), one.predicate) in keys]


def _operation(verb: str, terms: tuple[str, str, str], confidence: float, cited: Sequence[Message]) -> Operation | None:
    """Return an operation on terms in canonical form; None if one of them is invalid."""
    last = _last(cited)
    others = sorted({message.id for message in cited} - {last.id})
    try:
        return Operation.of(
            verb, *terms, confidence=round(confidence, 2), message_ids=(last.id, *others), event_at=last.sent_at
        )
    except InputError:
        return None


def _operations(found: FoundOperation, cited: Sequence[Message], known: Sequence[Triple]) -> list[Operation]:
    """Return the operations of an answer's item; none if it is invalid.

    An update of a known fact withdraws this first, so that only its value is replaced.
    """
    change = _operation(found.operation, (found.subject, found.predicate, found.object or ""), found.confidence, cited)
    if change is None or found.known is None or change.verb is Verb.INSERT:
        return [] if change is None else [change]
    if found.known > len(known):
        return []
    replaced = known[found.known - 1]
    if (name_key(change.subject), change.predicate) != (name_key(replaced.source), replaced.label):
        return []
    terms = found.subject, found.predicate, replaced.target
    ended = _operation(Verb.DELETE, terms, found.confidence, cited)
    if ended is None:
        return []
    if change.verb is Verb.DELETE:
        return [ended]
    return [ended, change] if name_key(replaced.target) != name_key(change.object) else [change]


@lru_cache(maxsize=32)
def _dates_said(content: str, said_on: date) -> tuple[DateMention, ...]:
    sentences = sentences_of(content, MOST_SENTENCES)
    return tuple([mention for sentence in sentences for mention in dates_in(sentence, said_on)])


def _day_in(text: str | None) -> date | None:
    try:
        return date.fromisoformat((text or "").strip()[:10])
    except ValueError:
        return None
