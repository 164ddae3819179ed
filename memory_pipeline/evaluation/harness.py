"""Puts a labelled set into a lake, runs the pipeline over it, asks every question and measures the answers."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING

from memory_pipeline.defs.in_process import run_all
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError, shown
from memory_pipeline.evaluation.labels import ADVERSARIAL
from memory_pipeline.evaluation.metrics import Ranking, Scores, percentile
from memory_pipeline.evaluation.survival import Remains, survival
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import configured_models, reading_embedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline.rendering import run_line
from memory_pipeline.search.arguments import MAX_RESULTS
from memory_pipeline.steps.results import RunResult
from memory_pipeline.writer.writer import landed_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_pipeline.domain.conversations import Message, Scope
    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledSet
    from memory_pipeline.reader import Hit
    from memory_pipeline.settings import Settings

#: Depths at which coverage is measured, besides the number of results asked for.
_DEPTHS = (1, 5, 10)
#: The range of a search, in days: everything.
_ALL_DAYS = 36_500
#: Questions between two lines of progress.
_PACE = 100


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """What became of one question: the ranking that the reader gave, and the milliseconds that its search took."""

    judged: JudgedQuestion
    ranking: Ranking
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured.

    Attributes:
        labels: the labelled set.
        max_results, tokens: results asked for; the budget of returned context.
        overall: measures over all questions but the adversarial ones.
        categories: the same by category, in the order of their names.
        adversarial: measures of the adversarial questions, None if there are none.
        p50, p95: milliseconds that a search took, of all questions: the median, and what 95 % did not exceed.
        remains: what of the answers remains at each grain; empty if the set holds no answers.
        unfinished: rows that wait for a model; the figures are then not the configured models' alone.
        outcomes: of each question, in the order of the files.
    """

    labels: LabelledSet
    max_results: int
    tokens: int
    overall: Scores
    categories: Mapping[str, Scores]
    adversarial: Scores | None
    p50: float
    p95: float
    remains: Sequence[Remains]
    unfinished: int
    outcomes: Sequence[QuestionResult]

    def curve(self) -> Scores:
        """Return the overall measures at every depth from 1 to the number of results."""
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
    """Measure how well the memory of `labels` is searched. A second time in one lake gives the same figures.

    Args:
        labels: conversations, questions and evidence.
        settings: where the lake lies. Its first day is moved to before the first message, if need be.
        max_results: results that each question asks for, 1 to 100.
        tokens: budget of returned context, for which more results are asked for.
        configuration: a workspaces.yaml that is put into the lake first.
        say: told what is being done, a line at a time.

    Raises:
        InputError: the lake holds one of the messages with another text, or they begin too early.
        ConfigurationError: a setting is not accepted, or does not fit the lake.
    """
    lake = Lake(settings.root, settings.timezone)
    if configuration is not None:
        lake.put_configuration(configuration)
    moments = [message.sent_at for message in labels.messages.values()]
    _ingest(lake, labels.messages.values(), say)
    unfinished = _run(lake, settings, max(moments), say)
    outcomes = list(_ask(lake, settings, labels, max_results, tokens, say))
    say("measuring what remains of the answers")
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.judged.question.category].append(outcome.ranking)
    adversarial = groups.pop(ADVERSARIAL, None)
    depths = sorted({depth for depth in _DEPTHS if depth <= max_results} | {max_results})
    milliseconds = [outcome.milliseconds for outcome in outcomes]
    return Evaluation(
        labels=labels,
        max_results=max_results,
        tokens=tokens,
        overall=Scores.of(list(chain.from_iterable(groups.values())), depths),
        categories={name: Scores.of(groups[name], depths) for name in sorted(groups)},
        adversarial=Scores.of(adversarial, depths) if adversarial else None,
        p50=percentile(milliseconds, 0.5),
        p95=percentile(milliseconds, 0.95),
        remains=_remains(lake, labels),
        unfinished=unfinished,
        outcomes=outcomes,
    )


def turns_of(hits: Iterable[Hit]) -> tuple[str, ...]:
    """Return the ids of the messages that `hits` rest on, in their order, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(hit.source_ids for hit in hits)))


def within(tokens: int, hits: Iterable[Hit]) -> Iterator[Hit]:
    """Yield hits, in order, as long as their lines together have at most `tokens` tokens."""
    for hit in hits:
        tokens -= count_tokens(hit.line)
        if tokens < 0:
            return
        yield hit


def _ingest(lake: Lake, messages: Iterable[Message], say: Callable[[str], object]) -> None:
    listed = list(messages)
    lake.ensure(min(message.sent_at for message in listed))
    landed = {message.id: message for message in landed_messages(lake, {message.hour for message in listed})}
    for message in listed:
        if not landed.get(message.id, message).says_the_same_as(message):
            raise InputError(
                f"the lake at {lake.storage.uri} holds another text of message {shown(message.source_id)} in "
                f"conversation {shown(message.conversation_id)}; name another --root, or none"
            )
    new = [message for message in listed if message.id not in landed]
    lake.journal.append(new)
    say(f"{len(new):,} new messages written, {len(listed) - len(new):,} known already")


def _run(lake: Lake, settings: Settings, last: datetime, say: Callable[[str], object]) -> int:
    """Make everything, as of the time when the year of the last message has closed; return how much is unfinished."""
    closed = lake.calendar.closes_at(lake.calendar.ancestor(lake.calendar.hour(last), Grain.YEARLY))
    models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: datetime.now(UTC))
    unfinished, started = 0, time.monotonic()
    for event in run_all(lake, settings, models, closed):
        if isinstance(event, RunResult):
            say(run_line(event, time.monotonic() - started))
            unfinished += event.unfinished
        started = time.monotonic()
    return unfinished


def _ask(
    lake: Lake, settings: Settings, labels: LabelledSet, max_results: int, tokens: int, say: Callable[[str], object]
) -> Iterator[QuestionResult]:
    embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
    last: dict[Scope, datetime] = {}
    for message in labels.messages.values():
        last[message.scope] = max(message.sent_at, last.get(message.scope, message.sent_at))
    readers: dict[Scope, MemoryReader] = {}
    for number, judged in enumerate(labels.questions, start=1):
        question, scope = judged.question, judged.question.scope
        if scope not in readers:
            readers[scope] = MemoryReader.open(
                settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder
            )
            readers[scope].search_memory(max_results=1)  # opens the index, which is no part of a search's time
        now = question.now or last[scope]
        started = time.perf_counter()
        hits = readers[scope].search_memory(Grain.WORKING, 0, _ALL_DAYS, max_results, question.text, now=now)
        milliseconds = 1_000 * (time.perf_counter() - started)
        more = readers[scope].search_memory(Grain.WORKING, 0, _ALL_DAYS, MAX_RESULTS, question.text, now=now)
        yield QuestionResult(
            judged, Ranking(judged.relevant, turns_of(hits), turns_of(within(tokens, more))), milliseconds
        )
        if number % _PACE == 0 or number == len(labels.questions):
            say(f"{number:,} of {len(labels.questions):,} questions asked")


def _remains(lake: Lake, labels: LabelledSet) -> list[Remains]:
    answers: defaultdict[Scope, list[str]] = defaultdict(list)
    for question in (judged.question for judged in labels.questions):
        if question.answer is not None and question.category != ADVERSARIAL:
            answers[question.scope].append(question.answer)
    return survival(lake, answers) if answers else []
