"""Load a labelled set into a lake, run the pipeline, search for every question and compute the metrics."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING

from memory_pipeline.domain.facts import TURNS
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain, hour_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.evaluation.answering import answer_all
from memory_pipeline.evaluation.labels import ADVERSARIAL, answers_of
from memory_pipeline.evaluation.metrics import Ranking, Scores, percentile
from memory_pipeline.evaluation.survival import Remains, survival
from memory_pipeline.in_process import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import configured_models, reading_embedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline.rendering import run_line
from memory_pipeline.search.arguments import MAX_RESULTS
from memory_pipeline.steps.results import RunResult
from memory_pipeline.writer.known_messages import landed_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.evaluation.answer_file import AnswerFile
    from memory_pipeline.evaluation.answering import JudgedAnswer, Plan
    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledQuestion, LabelledSet
    from memory_pipeline.reader import Hit
    from memory_pipeline.settings import Settings

_COVERAGE_DEPTHS = (1, 5, 10)
_ALL_DAYS = 36_500
_QUESTIONS_PER_PROGRESS_LINE = 100


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The rankings for one question, of all sources and of turns alone, and the time of its search in milliseconds."""

    judged: JudgedQuestion
    ranking: Ranking
    turns_alone: Ranking
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        tokens: token budget of returned context.
        overall: metrics of all questions except the adversarial ones.
        turns_alone: the same for a search of what was said alone, without durable memories.
        adversarial: metrics of the adversarial questions, None without any.
        p50, p95: median and 95th percentile of the time of a search, in milliseconds.
        remains: answers that each grain still contains; empty if the set has no answers.
        unfinished: rows that wait for a model. If not 0, the metrics are not those of the configured models alone.
        outcomes: one per question, in the order of the files.
    """

    labels: LabelledSet
    max_results: int
    tokens: int
    overall: Scores
    turns_alone: Scores
    categories: Mapping[str, Scores]
    adversarial: Scores | None
    p50: float
    p95: float
    remains: Sequence[Remains]
    unfinished: int
    outcomes: Sequence[QuestionResult]

    def curve(self) -> Scores:
        """Return the overall metrics at every depth from 1 to the number of results."""
        headline = [outcome.ranking for outcome in self.outcomes if outcome.judged.question.category != ADVERSARIAL]
        return Scores.of(headline, range(1, self.max_results + 1))


def evaluate(
    labels: LabelledSet,
    settings: Settings,
    *,
    max_results: int = 10,
    tokens: int = 1_000,
    configuration: Path | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Evaluation:
    """Measure the retrieval quality of `labels`. A second evaluation in the same lake gives the same metrics.

    The lake's first day is moved before the first message if necessary. `max_results` is 1 to 100; `tokens` is the
    budget of the metrics within a budget. `configuration`, a workspaces.yaml, is stored in the lake first. `say` gets
    each line of progress.

    Raises:
        InputError: the lake has another text of a message, or messages begin too early.
        ConfigurationError: a setting is invalid or contradicts the lake.
    """
    lake, unfinished = _built(labels, settings, configuration, say)
    outcomes = list(_ask(lake, settings, labels, max_results, tokens, say))
    say("measuring retained answers")
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.judged.question.category].append(outcome.ranking)
    adversarial = groups.pop(ADVERSARIAL, None)
    depths = sorted({depth for depth in _COVERAGE_DEPTHS if depth <= max_results} | {max_results})
    milliseconds = [outcome.milliseconds for outcome in outcomes]
    return Evaluation(
        labels=labels,
        max_results=max_results,
        tokens=tokens,
        overall=Scores.of(list(chain.from_iterable(groups.values())), depths),
        turns_alone=Scores.of(
            [one.turns_alone for one in outcomes if one.judged.question.category != ADVERSARIAL], depths
        ),
        categories={name: Scores.of(groups[name], depths) for name in sorted(groups)},
        adversarial=Scores.of(adversarial, depths) if adversarial else None,
        p50=percentile(milliseconds, 0.5),
        p95=percentile(milliseconds, 0.95),
        remains=_remains(lake, labels),
        unfinished=unfinished,
        outcomes=outcomes,
    )


def judge_answers(
    labels: LabelledSet,
    settings: Settings,
    plan: Plan,
    answers: AnswerFile,
    configuration: Path | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> list[JudgedAnswer]:
    """Answer all questions of `labels` with models, and judge the answers; see :mod:`.answering`.

    The pipeline runs only if the plan has notes from memory, after the other rows. Other arguments and errors as for
    :func:`evaluate` and :func:`~.answering.answer_all`.
    """
    lake = Lake(settings.root, settings.timezone)
    if configuration is not None:
        lake.put_configuration(configuration)
    last = last_times(labels)

    @cache
    def embedder() -> Embedder:
        _built(labels, settings, None, say)
        return reading_embedder(lake.configuration(), lambda: datetime.now(UTC))

    @lru_cache(maxsize=1)  # questions of one agent follow each other
    def reader(scope: Scope) -> MemoryReader:
        return MemoryReader.open(
            settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder()
        )

    def memory(question: LabelledQuestion, tokens: int) -> str:
        now = question.now or last[question.scope]
        return str(reader(question.scope).context(question.text, tokens, now=now))

    found = answer_all(labels, plan, memory, lake.configuration(), answers, say)
    return sorted(found, key=lambda one: plan.rows.index((one.source, one.budget)))


def turns_of(hits: Iterable[Hit]) -> tuple[str, ...]:
    """Return the ids of the source messages of `hits`, in order, without duplicates."""
    return tuple(dict.fromkeys(chain.from_iterable(hit.source_ids for hit in hits)))


def within(tokens: int, hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yield the first hits that fit into `tokens`."""
    for hit in hits:
        tokens -= count_tokens(hit.line)
        if tokens < 0:
            return
        yield hit


def _built(
    labels: LabelledSet, settings: Settings, configuration: Path | None, say: Callable[[str], object]
) -> tuple[Lake, int]:
    """Return the lake of `labels`, and the number of rows that wait for a model."""
    lake = Lake(settings.root, settings.timezone)
    if configuration is not None:
        lake.put_configuration(configuration)
    ingest(lake, labels.messages.values(), say)
    last = max(last_times(labels).values())
    return lake, run(lake, settings, lake.calendar.closes_at(lake.calendar.ancestor(hour_of(last), Grain.YEARLY)), say)


def last_times(labels: LabelledSet) -> dict[Scope, datetime]:
    """Return the time of the last message of each agent."""
    last: dict[Scope, datetime] = {}
    for message in labels.messages.values():
        agent = message.scope.own
        last[agent] = max(message.sent_at, last.get(agent, message.sent_at))
    return last


def ingest(lake: Lake, messages: Iterable[Message], say: Callable[[str], object]) -> None:
    """Write messages to the journal, except those it has. Raise InputError if the lake has another text of one."""
    listed = list(messages)
    lake.ensure(min(message.sent_at for message in listed))
    stored = {message.id: message for message in landed_messages(lake, {message.hour for message in listed})}
    for message in listed:
        if not stored.get(message.id, message).says_the_same_as(message):
            raise InputError(
                f"the lake at {lake.storage.uri} has another text of message {shown(message.source_id)} in "
                f"conversation {shown(message.conversation_id)}; use another --root, or none"
            )
    new = [message for message in listed if message.id not in stored]
    lake.members.add(new)
    lake.journal.append(new)
    say(f"{len(new):,} new messages written, {len(listed) - len(new):,} already known")


def run(lake: Lake, settings: Settings, now: datetime, say: Callable[[str], object]) -> int:
    """Run the pipeline as of a time. Return the number of unfinished rows."""
    models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))
    unfinished, started = 0, time.monotonic()
    for event in run_all(lake, settings, models, now):
        if isinstance(event, RunResult):
            say(run_line(event, time.monotonic() - started))
            unfinished += event.unfinished
        started = time.monotonic()
    return unfinished


def _ask(
    lake: Lake, settings: Settings, labels: LabelledSet, max_results: int, tokens: int, say: Callable[[str], object]
) -> Iterator[QuestionResult]:
    embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
    last = last_times(labels)
    readers: dict[Scope, MemoryReader] = {}
    for number, judged in enumerate(labels.questions, start=1):
        question, scope = judged.question, judged.question.scope
        if scope not in readers:
            readers[scope] = MemoryReader.open(
                settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder
            )
            readers[scope].search_memory(max_results=1)  # opens the index, which is not counted as search time
        now = question.now or last[scope]
        started = time.perf_counter()
        search = partial(readers[scope].search_memory, Grain.WORKING, 0, _ALL_DAYS, query=question.text, now=now)
        search(max_results=max_results, sources="all")
        milliseconds = 1_000 * (time.perf_counter() - started)
        rankings = []
        for sources in ("all", TURNS):
            found = search(max_results=MAX_RESULTS, sources=sources)
            first, fitting = turns_of(found[:max_results]), turns_of(within(tokens, found))
            rankings.append(Ranking(judged.relevant, first, fitting))
        yield QuestionResult(judged, rankings[0], rankings[1], milliseconds)
        if number % _QUESTIONS_PER_PROGRESS_LINE == 0 or number == len(labels.questions):
            say(f"{number:,} of {len(labels.questions):,} questions asked")


def _remains(lake: Lake, labels: LabelledSet) -> list[Remains]:
    answers = answers_of(judged.question for judged in labels.questions)
    return survival(lake, answers) if answers else []
