"""Answer the questions of a published benchmark from memory, from plain retrieval, and from the whole history."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from math import log, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.model_calls import Purpose, Trouble, Use, count_tokens
from memory_pipeline.domain.periods import hour_of
from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.errors import ModelError
from memory_pipeline.evaluation.judging import JUDGE, VERSION, checks, instructions, question_for, score
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.models.hosted.transport.requests import LlmRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.configuration.model_settings import Completion
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.evaluation.answer_file import AnswerFile
    from memory_pipeline.evaluation.judging import Benchmark, Protocol
    from memory_pipeline.evaluation.labels import LabelledQuestion, LabelledSet
    from memory_pipeline.models.hosted.transport.requests import Answered

#: Okapi BM25 as most libraries set it.
_K1: Final = 1.5
_B: Final = 0.75
#: Questions that are asked together.
_TOGETHER: Final = 32
#: Assumed tokens of an answer and of a verdict, for an estimate.
_ANSWER_TOKENS, _VERDICT_TOKENS = 200, 20


class NoteSource(StrEnum):
    """Where the notes for an answer come from."""

    MEMORY = "memory"
    RAG = "rag"
    HISTORY = "history"


@dataclass(frozen=True, slots=True)
class Plan:
    """How to answer and judge.

    Attributes:
        budgets: tokens of the notes from memory and from plain retrieval, one row each. The whole history has what the
            model's context holds, without its oldest messages if it is longer.
    """

    benchmark: Benchmark
    protocol: Protocol
    answer: Completion
    judge: Completion
    budgets: Sequence[int]
    sources: Sequence[NoteSource]

    @property
    def rows(self) -> list[tuple[NoteSource, int]]:
        """The source and the budget of each row of the report."""
        room = self.answer.context_tokens - self.answer.max_output_tokens
        budgets = {NoteSource.HISTORY: [room]}
        return [(source, budget) for source in self.sources for budget in budgets.get(source, self.budgets)]


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer and its score, 0 to 1; 0 with an `error` if a model failed.

    `tokens` are those of the question to the answering model, notes included. `cost` is in US dollars, of answer and
    verdict; None without a price. `trouble` is the kind of `error`.
    """

    question: LabelledQuestion
    source: NoteSource
    budget: int
    tokens: int
    answer: str = ""
    score: float = 0.0
    cost: float | None = None
    error: str | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """The mean score of one source at one budget, with the half width of its 95 % interval; categories by name."""

    source: NoteSource
    budget: int
    questions: int
    score: float
    margin: float
    tokens: float
    cost: float | None
    failed: int
    categories: dict[str, float]


def rows_of(answers: Iterable[JudgedAnswer], *, excluded: str | None = None) -> list[ScoreRow]:
    """Summarise answers by source and budget. Questions of the category `excluded` count in its own figure alone."""
    groups: defaultdict[tuple[NoteSource, int], list[JudgedAnswer]] = defaultdict(list)
    for one in answers:
        groups[one.source, one.budget].append(one)
    rows = []
    for (source, budget), found in groups.items():
        by_category: defaultdict[str, list[float]] = defaultdict(list)
        for one in found:
            by_category[one.question.category].append(one.score)
        counted = [one.score for one in found if one.question.category != excluded]
        costs = [one.cost for one in found if one.cost is not None]
        rows.append(
            ScoreRow(
                source,
                budget,
                len(counted),
                fmean(counted) if counted else 0.0,
                1.96 * stdev(counted) / sqrt(len(counted)) if len(counted) > 1 else 0.0,
                fmean(one.tokens for one in found),
                sum(costs) if costs else None,
                sum(one.error is not None for one in found),
                {name: fmean(scores) for name, scores in sorted(by_category.items())},
            )
        )
    return rows


def answer_all(
    labels: LabelledSet,
    plan: Plan,
    memory: Callable[[LabelledQuestion, int], str],
    configuration: Configuration,
    answers: AnswerFile,
    say: Callable[[str], object],
) -> Iterator[JudgedAnswer]:
    """Yield the judged answers to all questions, row by row. `memory` returns the notes for a question and a budget.

    Stored answers are not asked for again; each new one is stored at once. A question whose model fails scores 0 and is
    asked again next time. The rows of memory are last: they need a run of the pipeline.

    Raises:
        ModelError: all of the first questions were refused: there is no such model, or no valid key.
    """
    executor = LlmExecutor(configuration, answers, lambda: datetime.now(UTC))
    histories = Histories(labels)
    notes = {NoteSource.MEMORY: memory, NoteSource.RAG: histories.retrieved, NoteSource.HISTORY: histories.whole}
    for source, budget in sorted(plan.rows, key=lambda row: row[0] is NoteSource.MEMORY):
        for start in range(0, len(labels.asked), _TOGETHER):
            some = labels.asked[start : start + _TOGETHER]
            texts = [question_for(one, notes[source](one, budget)) for one in some]
            tasks = [
                partial(_judged, executor, plan, one, source, budget, text)
                for one, text in zip(some, texts, strict=True)
            ]
            found = list(executor.gather(tasks))
            if start == 0 and all(one.trouble == Trouble.REFUSED for one in found):
                raise ModelError(Trouble.REFUSED, str(found[0].error))
            yield from found
            done = start + len(some)
            say(f"{source}, {budget:,} tokens: {done:,} of {len(labels.asked):,} questions answered and judged")


def _judged(
    executor: LlmExecutor, plan: Plan, question: LabelledQuestion, source: NoteSource, budget: int, text: str
) -> JudgedAnswer:
    def ask(endpoint: Completion, system: str, user: str, read: Callable[[str], float | str]) -> Answered[float | str]:
        use = Use(question.scope, hour_of(question.now or datetime(2024, 1, 1, tzinfo=UTC)))
        version = f"{plan.benchmark}-{plan.protocol}-{VERSION}"
        request = LlmRequest(use, Purpose.EVALUATION, endpoint, version, system, user, None, "answer", ())
        return executor.complete(request, read)

    system = instructions(plan.benchmark, plan.protocol)
    tokens = count_tokens(system) + count_tokens(text)
    try:
        reply = ask(plan.answer, system, text, str.strip)
        answer = str(reply.value)
        verdicts = [
            ask(plan.judge, JUDGE, one.text, one.read)
            for one in checks(plan.benchmark, plan.protocol, question, answer)
        ]
    except ModelError as error:
        return JudgedAnswer(question, source, budget, tokens, error=str(error), trouble=error.trouble)
    costs = [one.cost for one in (reply, *verdicts) if one.cost is not None]
    total = score([float(one.value) for one in verdicts])
    return JudgedAnswer(question, source, budget, tokens, answer, total, sum(costs) if costs else None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a row would cost: calls of both models, their input tokens, and US dollars (None without a price)."""

    source: NoteSource
    budget: int
    calls: int
    tokens: int
    cost: float | None


def estimate(labels: LabelledSet, plan: Plan) -> list[Estimate]:
    """Return what each row would cost, without a call. Notes fill their budget, or are as long as the history.

    An answer is taken as 200 tokens, a verdict as 20. Answers that are stored already are not subtracted.
    """
    found, histories = [], Histories(labels)
    for source, budget in plan.rows:
        questions = verdicts = judged = 0
        for one in labels.asked:
            fixed = count_tokens(instructions(plan.benchmark, plan.protocol) + question_for(one, ""))
            questions += fixed + count_tokens(histories.whole(one, budget))
            asked = checks(plan.benchmark, plan.protocol, one, "")
            verdicts += sum(count_tokens(JUDGE + check.text) + _ANSWER_TOKENS for check in asked)
            judged += len(asked)
        prices = litellm_client.price(plan.answer), litellm_client.price(plan.judge)
        cost = None
        if prices[0] is not None and prices[1] is not None:
            cost = prices[0].of(questions, _ANSWER_TOKENS * len(labels.asked))
            cost += prices[1].of(verdicts, _VERDICT_TOKENS * judged)
        found.append(Estimate(source, budget, len(labels.asked) + judged, questions + verdicts, cost))
    return found


def _line(message: Message) -> str:
    return f"[{message.sent_at:%Y-%m-%d %H:%M}] {message.speaker}: {message.content}"


class Histories:
    """The messages of each agent, as the notes of two baselines: the whole history, and plain retrieval."""

    def __init__(self, labels: LabelledSet) -> None:
        self._messages: defaultdict[Scope, list[Message]] = defaultdict(list)
        for message in sorted(labels.messages.values(), key=lambda one: one.sent_at):
            self._messages[message.scope].append(message)
        self._scope: Scope | None = None

    def whole(self, question: LabelledQuestion, tokens: int) -> str:
        """Return all messages before a question, in order; the oldest are left out if they are too many."""
        lines: list[str] = []
        for message in reversed(self._before(question)):
            line = _line(message)
            tokens -= count_tokens(line) + 1
            if tokens < 0:
                break
            lines.append(line)
        return "\n".join(reversed(lines))

    def retrieved(self, question: LabelledQuestion, tokens: int) -> str:
        """Return the best messages before a question within a budget, in order.

        They are ranked by Okapi BM25 over text, date and speaker (Robertson & Zaragoza 2009).
        """
        if question.scope != self._scope:
            self._scope = question.scope
            self._counts = {one.id: Counter(terms(_line(one))) for one in self._messages[question.scope]}
            self._frequency = Counter(word for one in self._counts.values() for word in one)
            self._length = fmean(one.total() for one in self._counts.values())
        words = set(terms(question.text))
        chosen = []
        scored = [(self._score(words, self._counts[one.id]), one) for one in self._before(question)]
        for _, message in sorted(scored, key=lambda one: -one[0]):
            size = count_tokens(_line(message)) + 1
            if size <= tokens:
                tokens -= size
                chosen.append(message)
        return "\n".join(map(_line, sorted(chosen, key=lambda one: one.sent_at)))

    def _before(self, question: LabelledQuestion) -> list[Message]:
        messages = self._messages[question.scope]
        return messages if question.now is None else [one for one in messages if one.sent_at <= question.now]

    def _score(self, words: set[str], counts: Counter[str]) -> float:
        total, length = 0.0, counts.total() / self._length
        for word in words & counts.keys():
            frequency, found = counts[word], self._frequency[word]
            rarity = log(1 + (len(self._counts) - found + 0.5) / (found + 0.5))
            total += rarity * frequency * (_K1 + 1) / (frequency + _K1 * (1 - _B + _B * length))
        return total
