"""Summaries by a model: one question per period, or one per chunk and a last one that merges their answers.

If the model fails, the extractive summarizer takes over, and the row's `fallback` gives the reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from zoneinfo import ZoneInfo

from memory_pipeline.domain.model_calls import Purpose, Trouble, Use, count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.summaries import Condensation, KeyPoint
from memory_pipeline.errors import ModelError
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer
from memory_pipeline.models.hosted import prompts
from memory_pipeline.models.hosted.answer_schemas import FoundPoint, SummaryAnswer, read_answer, schema_of
from memory_pipeline.models.hosted.evidence import SHARE_OF_SUMMARY, SourceText, SourceTexts, Unfounded
from memory_pipeline.models.hosted.prompts import Chunk, Line, Question, chunks_of
from memory_pipeline.models.hosted.transport.requests import CutError, InvalidAnswerError, LlmRequest, identity_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.configuration.model_settings import Summarization as Settings
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.domain.summaries import Assignment, Material
    from memory_pipeline.models.hosted.transport.executor import LlmExecutor
    from memory_pipeline.models.hosted.transport.requests import Answered

#: Requested length in characters.
_LENGTHS = {Grain.DAILY: 1600, Grain.WEEKLY: 2400, Grain.MONTHLY: 3200, Grain.QUARTERLY: 4000, Grain.YEARLY: 4800}
#: A summary longer than this factor times the requested length is rejected.
_TOLERANCE = 2.0
#: Smallest length limit for a chunk's answer, in characters.
_SHORTEST = 200
_MOST_ROUNDS = 12
#: Characters of a usual point, to ask for a number of points instead of characters.
_POINT = 130


@dataclass(frozen=True, slots=True)
class _Piece:
    """An input to summarize: material, or a point of an earlier round."""

    text: str
    point: KeyPoint


@dataclass
class _Progress:
    """Progress of an assignment: the inputs of the next round, and the tokens and cost so far."""

    assignment: Assignment
    pieces: list[_Piece]
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None
    refused: Counter[str] = field(default_factory=Counter)
    result: Condensation | None = None
    is_done: bool = False


#: The points of one chunk, or of its parts, and how many were rejected, by reason; or the error.
_Answer: TypeAlias = "list[Answered[tuple[list[KeyPoint], Counter[str]]]] | ModelError"


class HostedSummarizer:
    """Summarize with the configured models; a :class:`memory_pipeline.domain.summaries.Summarizer`.

    Lines are dated in `timezone`, an IANA name.
    """

    def __init__(self, executor: LlmExecutor, timezone: str) -> None:
        self._executor = executor
        self._zone = ZoneInfo(timezone)
        self._rules = ExtractiveSummarizer()

    def method(self, scope: Scope, grain: Grain) -> str:
        """Return a name for everything that determines a summary: prompt version, model, temperature and length."""
        settings = self._settings(scope, grain)
        if settings.is_deterministic:
            return self._rules.method(scope, grain)
        parts = [_version(settings, grain), identity_of(settings), settings.temperature, _length(settings, grain)]
        parts += [settings.minimum_tokens] if settings.minimum_tokens else []
        parts += [language] if (language := self._executor.configuration.language(scope)) else []
        return " ".join(map(str, parts))

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return the summary of each assignment; None where it waits for a budget.

        Assignments are processed together: first their chunks, then the merges.
        """
        started = [self._begin(assignment) for assignment in assignments]
        if self._executor.store:
            self._executor.store.load({progress.assignment.period for progress in started if not progress.is_done})
        for _ in range(_MOST_ROUNDS):
            if not (pending := [progress for progress in started if not progress.is_done]):
                break
            self._round(pending)
        for progress in started:
            if not progress.is_done:  # the model does not shorten its input
                progress.result = replace(self._rules.condense(progress.assignment), fallback=Trouble.TOO_LONG)
        return [progress.result for progress in started]

    def _settings(self, scope: Scope, grain: Grain) -> Settings:
        return self._executor.configuration.summarization(scope, grain)

    def _begin(self, assignment: Assignment) -> _Progress:
        ordered = sorted(assignment.material, key=lambda item: (item.event_at, item.position, item.id))
        progress = _Progress(assignment, [_Piece(item.text, _as_point(item)) for item in ordered])
        settings = self._settings(assignment.scope, assignment.period.grain)
        is_short = sum(count_tokens(piece.text) for piece in progress.pieces) < settings.minimum_tokens
        if settings.minimum_tokens and settings.prompt is None and assignment.period.grain is not Grain.DAILY:
            # A year with one quarter says what the quarter says.
            is_short |= len({item.id.partition("#")[0] for item in ordered}) == 1
        if settings.is_deterministic or is_short or not ordered:
            progress.result, progress.is_done = self._rules.condense(assignment), True
        return progress

    def _round(self, pending: Sequence[_Progress]) -> None:
        tasks = [(progress, task) for progress in pending for task in self._tasks(progress)]
        answers: dict[int, list[_Answer]] = defaultdict(list)
        for (progress, _), answer in zip(tasks, self._executor.gather([task for _, task in tasks]), strict=True):
            answers[id(progress)].append(answer)
        for progress in pending:
            self._use_answers(progress, answers[id(progress)])

    def _use_answers(self, progress: _Progress, answers: Sequence[_Answer]) -> None:
        errors = [answer for answer in answers if isinstance(answer, ModelError)]
        assignment = progress.assignment
        settings = self._settings(assignment.scope, assignment.period.grain)
        if errors:
            for error in errors:
                self._executor.log_failure(error)
            progress.is_done = True
            if not self._executor.waits(errors[0], assignment.scope):
                progress.result = replace(self._rules.condense(assignment), fallback=errors[0].trouble)
            return
        points: list[KeyPoint] = []
        for answer in (part for parts in answers if not isinstance(parts, ModelError) for part in parts):
            found, refused = answer.value
            points += found
            progress.refused += refused
            progress.tokens_in += answer.tokens_in
            progress.tokens_out += answer.tokens_out
            progress.cost = progress.cost if answer.cost is None else (progress.cost or 0.0) + answer.cost
        points.sort(key=lambda point: point.event_at)
        if len(answers) > 1:
            progress.pieces = [_Piece(point.sentence, point) for point in points]
            return
        version = _version(settings, assignment.period.grain)
        progress.is_done = True
        progress.result = Condensation(
            points=tuple(points),
            method=version,
            tokens_in=progress.tokens_in,
            tokens_out=progress.tokens_out,
            cost=progress.cost,
            model=settings.model,
            prompt_version=version,
            refused=progress.refused,
        )

    def _answer(
        self, progress: _Progress, ask: Callable[[Chunk, int], LlmRequest], chunk: Chunk, length: int
    ) -> _Answer:
        """Return the points about a chunk. If the answer is cut off, each half gives half as many."""
        request = ask(chunk, length)
        try:
            return [self._executor.complete(request, partial(self._read, progress, request))]
        except CutError:
            halves = chunk.halves
            answers = [self._answer(progress, ask, half, max(_SHORTEST, length // len(halves))) for half in halves]
            errors = [answer for answer in answers if isinstance(answer, ModelError)]
            return errors[0] if errors else [one for some in answers if isinstance(some, list) for one in some]
        except ModelError as error:
            return error

    def _tasks(self, progress: _Progress) -> Iterator[Callable[[], _Answer]]:
        """Yield a task for each chunk of the inputs, which returns the points about it."""
        assignment = progress.assignment
        scope, period = assignment.scope, assignment.period
        settings = self._settings(scope, period.grain)
        length = _length(settings, period.grain)
        first, last = period.first_day, period.end_day - timedelta(days=1)
        instructions = prompts.SUMMARIES[period.grain]
        if settings.prompt is not None:
            words = {"agent": scope.agent_id, "grain": period.grain, "period": period, "length": length}
            instructions = settings.prompt.format_map({**words, "first_day": first, "last_day": last})
        version = _version(settings, period.grain)
        question = Question(settings, "summary", version, instructions, schema_of(SummaryAnswer))
        language = self._executor.configuration.language(scope)

        def ask(chunk: Chunk, length: int) -> LlmRequest:
            head = (
                f"The agent is called {scope.agent_id}. The period is {period}, {first} to {last}. Write at most "
                f"{max(2, length // _POINT)} points.{f' Write in {language}.' if language else ''}"
            )
            text, use = f"{head}\n{prompts.enclosed(chunk.text)}", Use(scope, period)
            return question.request(
                use, Purpose.SUMMARY, text, chunk.numbers, length, can_be_halved=chunk.can_be_halved
            )

        lines = [
            Line(number, f"[{number}] {piece.point.event_at.astimezone(self._zone):%Y-%m-%d}", piece.text)
            for number, piece in enumerate(progress.pieces, start=1)
        ]
        chunks = chunks_of(lines, question.room)
        if len(chunks) > 1:  # all their answers must fit into the one question that merges them
            length = max(_SHORTEST, min(length, question.room * 3 // len(chunks)))
        yield from (partial(self._answer, progress, ask, chunk, length) for chunk in chunks)

    def _read(self, progress: _Progress, request: LlmRequest, text: str) -> tuple[list[KeyPoint], Counter[str]]:
        """Return the founded points of an answer with the ids of their sources, and the rejected ones by reason."""
        answer, invalid = read_answer(SummaryAnswer, text)
        numbers = set(request.numbers)
        refused = Counter({Unfounded.FORM.value: invalid})
        points: list[KeyPoint] = []
        for found in answer.points:
            sources = [progress.pieces[number - 1].point for number in sorted(set(found.sources) & numbers)]
            scope = request.use.scope
            reason = self._refuse(scope, found.sentence, sources) if numbers >= set(found.sources) else Unfounded.FORM
            if reason is None:
                points.append(_point(found, sources))
            else:
                refused[reason.value] += 1
        if not points:
            raise InvalidAnswerError(
                f"the lines that its points cite do not support them ({', '.join(+refused)}); `sources` are numbers of "
                f"lines, such as {min(numbers)}"
            )
        written = sum(len(point.sentence) for point in points)
        if request.length and written > _TOLERANCE * request.length:
            raise InvalidAnswerError(f"its points have {written:,} characters; {request.length:,} are allowed")
        return sorted(points, key=lambda point: point.event_at), +refused

    def _refuse(self, scope: Scope, sentence: str, sources: Sequence[KeyPoint]) -> Unfounded | None:
        """Return why a sentence is not founded on its sources; it may also say how many they are."""
        if self._executor.is_rehearsal:
            return None
        said = [SourceText(source.sentence, source.event_at.astimezone(self._zone).date()) for source in sources]
        names = [str(len(sources)), *(name for source in sources for name in source.entities)]
        translates = self._executor.configuration.language(scope) is not None
        return SourceTexts(said, names, may_translate=translates).refuse(sentence, SHARE_OF_SUMMARY)


def _version(settings: Settings, grain: Grain) -> str:
    return prompts.version_of(f"{grain}-{prompts.SUMMARY_VERSION}", settings.prompt)


def _length(settings: Settings, grain: Grain) -> int:
    return settings.length or _LENGTHS[grain]


def _as_point(item: Material) -> KeyPoint:
    return KeyPoint(item.text, (item.id,), item.event_at, item.importance, tuple(sorted(set(item.entities))))


def _point(found: FoundPoint, sources: Sequence[KeyPoint]) -> KeyPoint:
    """Build a point with the time of its oldest source, and with the sources' names that it mentions."""
    sentence = " ".join(found.sentence.split())
    lower = sentence.casefold()
    return KeyPoint(
        sentence=sentence,
        source_ids=tuple(sorted({identifier for source in sources for identifier in source.source_ids})),
        event_at=min(source.event_at for source in sources),
        importance=round(found.importance, 2),
        entities=tuple(sorted({name for source in sources for name in source.entities if name.casefold() in lower})),
    )
