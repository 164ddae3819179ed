"""Format an evaluation as lines for a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memory_pipeline.errors import counted, shown
from memory_pipeline.evaluation.answering import rows_of
from memory_pipeline.evaluation.labels import ADVERSARIAL
from memory_pipeline.evaluation.metrics import NDCG_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.evaluation.answering import Estimate, JudgedAnswer, Plan
    from memory_pipeline.evaluation.harness import Evaluation, QuestionResult
    from memory_pipeline.evaluation.labels import Citation, LabelledSet
    from memory_pipeline.evaluation.metrics import Coverage, Scores
    from memory_pipeline.evaluation.survival import Loss, Remains

#: Maximum number of excluded questions or messages that are shown. JSON has all of them.
_SHOWN = 10


def report_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the lines of a report for a terminal."""
    labels, overall = evaluation.labels, evaluation.overall
    adversarial = evaluation.adversarial.questions if evaluation.adversarial else 0
    excluded = f", and {counted(adversarial, f'{ADVERSARIAL} one')}, reported separately" if adversarial else ""
    yield f"{_size(labels)}; {counted(overall.questions, 'question')}{excluded}"
    yield ""
    alone = evaluation.turns_alone
    yield f"{'evidence found':<26}{'any':>18}{'all':>18}{'recall':>10}{'any, of turns alone':>22}"
    for depth, coverage in overall.at.items():
        what = f"in the first {depth} turns" if depth > 1 else "in the first turn"
        yield _coverage_line(what, coverage, alone.at[depth], overall)
    yield _coverage_line(f"in {evaluation.tokens:,} tokens", overall.within_budget, alone.within_budget, overall)
    yield f"MRR {overall.mrr:.3f}, nDCG@{NDCG_DEPTH} {overall.ndcg:.3f}"
    yield f"time of a search: {evaluation.p50:.1f} ms (p50), {evaluation.p95:.1f} ms (p95)"
    yield ""
    yield from _category_lines(evaluation)
    if evaluation.remains:
        yield ""
        yield from _survival_lines(evaluation.remains)
    if evaluation.unfinished:
        yield ""
        yield (
            f"{evaluation.unfinished:,} rows wait for a model, which failed or has no budget left; these metrics are "
            "not those of the configured models alone"
        )
    yield from _set_aside_lines(labels)


def to_record(evaluation: Evaluation) -> dict[str, Any]:
    """Return the evaluation as plain values. All but the milliseconds are reproducible."""
    labels = evaluation.labels
    return {
        "set": _sizes(labels),
        "max_results": evaluation.max_results,
        "tokens": evaluation.tokens,
        "overall": _scores(evaluation.overall),
        "turns_alone": _scores(evaluation.turns_alone),
        "categories": {name: _scores(scores) for name, scores in evaluation.categories.items()},
        ADVERSARIAL: _scores(evaluation.adversarial) if evaluation.adversarial else None,
        "milliseconds": {"p50": round(evaluation.p50, 2), "p95": round(evaluation.p95, 2)},
        "survival": evaluation.remains,
        "unfinished": evaluation.unfinished,
        "questions_set_aside": labels.questions_set_aside,
        "messages_set_aside": labels.messages_set_aside,
        "questions": [_outcome(outcome, labels) for outcome in evaluation.outcomes],
    }


def _sizes(labels: LabelledSet) -> dict[str, int]:
    messages = labels.messages.values()
    return {
        "agents": len({message.scope for message in messages}),
        "conversations": len({(message.scope, message.conversation_id) for message in messages}),
        "messages": len(messages),
        "questions": len(labels.questions),
        "questions_set_aside": len(labels.questions_set_aside),
        "messages_set_aside": len(labels.messages_set_aside),
    }


def _size(labels: LabelledSet) -> str:
    sizes = _sizes(labels)
    return ", ".join(counted(sizes[f"{name}s"], name) for name in ("agent", "conversation", "message"))


def _coverage_line(what: str, coverage: Coverage, alone: Coverage, scores: Scores) -> str:
    any_of, all_of, of_turns = (
        f"{count:>10,} {_percent(count / scores.questions if scores.questions else 0.0)}"
        for count in (coverage.any, coverage.all, alone.any)
    )
    return f"  {what:<24}{any_of}{all_of}{_percent(coverage.recall):>10}    {of_turns}"


def _category_lines(evaluation: Evaluation) -> Iterator[str]:
    depths = tuple(evaluation.overall.at)
    deepest = min(max(depths), NDCG_DEPTH)
    names = [*(f"any@{depth}" for depth in depths), f"all@{deepest}", f"recall@{deepest}"]
    names += ["MRR", f"nDCG@{NDCG_DEPTH}", "any@budget", "recall@budget"]
    width = max(map(len, [*evaluation.categories, "category", f"({ADVERSARIAL})"])) + 2
    yield f"{'category':<{width}}{'questions':>9}" + "".join(f"{name:>{_column(name)}}" for name in names)
    rows = dict(evaluation.categories)
    if evaluation.adversarial:
        rows[f"({ADVERSARIAL})"] = evaluation.adversarial
    for category, scores in rows.items():
        shares = [coverage.any / scores.questions for coverage in scores.at.values()]
        shares += [scores.at[deepest].all / scores.questions, scores.at[deepest].recall]
        cells = [*map(_percent, shares), f"{scores.mrr:.3f}", f"{scores.ndcg:.3f}"]
        budget = scores.within_budget
        cells += [_percent(budget.any / scores.questions), _percent(budget.recall)]
        aligned = "".join(f"{cell:>{_column(name)}}" for name, cell in zip(names, cells, strict=True))
        yield f"{category:<{width}}{scores.questions:>9,}{aligned}"


def loss_lines(losses: Sequence[Loss]) -> Iterator[str]:
    """Yield how many answers each grain contains and would lose, for a terminal."""
    yield f"{counted(losses[0].answers, 'answer')}: found in the text of each grain, and lost"
    for each in losses:
        yield f"  {each.grain or 'all grains':<12}{each.contained:>9,}{each.lost:>9,}"


def _survival_lines(remains: Sequence[Remains]) -> Iterator[str]:
    yield f"{counted(remains[0].answers, 'answer')}: share still found in the text of each grain"
    yield f"{'grain':<12}{'characters':>12}{'all words':>12}{'numbers, dates and names':>31}"
    for each in remains:
        yield f"{each.grain:<12}{each.characters:>12,}{_percent(each.verbatim):>12}{_percent(each.values):>31}"


def _set_aside_lines(labels: LabelledSet) -> Iterator[str]:
    incomplete = [judged for judged in labels.questions if judged.unknown]
    if incomplete:
        yield ""
        yield f"unknown message ids in the evidence of {counted(len(incomplete), 'question')}:"
        yield from _first_lines([f"{judged.question.where}: {_names(judged.unknown)}" for judged in incomplete])
    for what, set_aside in (("question", labels.questions_set_aside), ("message", labels.messages_set_aside)):
        if set_aside:
            yield ""
            yield f"excluded: {counted(len(set_aside), what)}"
            yield from _first_lines([f"{each.where}: {each.reason}" for each in set_aside])


def _names(citations: Iterable[Citation]) -> str:
    return ", ".join(shown(str(citation)) for citation in citations)


def _first_lines(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"  … and {len(lines) - _SHOWN:,} more; --json lists all"


def _scores(scores: Scores) -> dict[str, Any]:
    return {
        "questions": scores.questions,
        "at": {str(depth): _coverage(coverage) for depth, coverage in scores.at.items()},
        "within_budget": _coverage(scores.within_budget),
        "mrr": round(scores.mrr, 4),
        f"ndcg@{NDCG_DEPTH}": round(scores.ndcg, 4),
    }


def _coverage(coverage: Coverage) -> dict[str, float]:
    return {"any": coverage.any, "all": coverage.all, "recall": round(coverage.recall, 4)}


def _outcome(outcome: QuestionResult, labels: LabelledSet) -> Mapping[str, Any]:
    """Return a question with the ranks of its evidence, from 1; null if it was not found."""
    question, ranking = outcome.judged.question, outcome.ranking
    evidence = [labels.messages[row] for row in sorted(ranking.relevant)]
    ranks = {turn: rank for rank, turn in enumerate(ranking.turns, start=1)}
    return {
        "where": question.where,
        "workspace_id": question.scope.workspace_id,
        "agent_id": question.scope.agent_id,
        "question": question.text,
        "answer": question.answer,
        "category": question.category,
        "evidence": [
            {
                "conversation_id": message.conversation_id,
                "id": message.source_id,
                "rank": ranks.get(message.id),
                "within_budget": message.id in ranking.within_budget,
            }
            for message in evidence
        ],
        "unknown_evidence": [str(citation) for citation in outcome.judged.unknown],
    }


def _percent(share: float) -> str:
    return f"{share:6.1%}"


def _column(name: str) -> int:
    return max(len(name), 6) + 2


def answer_lines(plan: Plan, labels: LabelledSet, answers: Sequence[JudgedAnswer]) -> Iterator[str]:
    """Yield the lines of a report on judged answers."""
    rows = rows_of(answers, excluded=ADVERSARIAL)
    yield f"{_size(labels)}; {counted(len(labels.asked), 'question')}"
    yield f"{plan.benchmark}, protocol {plan.protocol}: answered by {plan.answer.model}, judged by {plan.judge.model}"
    yield ""
    yield f"{'notes':<10}{'budget':>9}{'score':>16}{'tokens/question':>17}{'dollars':>10}{'failed':>8}"
    for row in rows:
        score = f"{row.score:.3f} ± {row.margin:.3f}"
        yield (
            f"{row.source:<10}{row.budget:>9,}{score:>16}{row.tokens:>17,.0f}{_dollars(row.cost):>10}{row.failed:>8,}"
        )
    yield ""
    yield f"{'':<28}" + "".join(f"{f'{row.source} {row.budget:,}':>18}" for row in rows)
    for name in sorted({name for row in rows for name in row.categories}):
        label = f"({name})" if name == ADVERSARIAL else name
        yield f"{label:<28}" + "".join(f"{row.categories.get(name, 0.0):>18.3f}" for row in rows)
    failed = sum(row.failed for row in rows)
    if failed:
        yield ""
        first = next(one.error for one in answers if one.error)
        yield f"{counted(failed, 'answer')} failed and score 0; run again to ask them again. The first: {first}"
    yield from _set_aside_lines(replace(labels, questions=(), questions_set_aside=()))


def answer_record(plan: Plan, labels: LabelledSet, answers: Sequence[JudgedAnswer]) -> dict[str, Any]:
    """Return judged answers as plain values."""
    return {
        "set": _sizes(labels),
        "benchmark": plan.benchmark,
        "protocol": plan.protocol,
        "answer": plan.answer.model,
        "judge": plan.judge.model,
        "rows": rows_of(answers, excluded=ADVERSARIAL),
        "messages_set_aside": labels.messages_set_aside,
        "answers": [
            {
                "where": one.question.where,
                "category": one.question.category,
                "source": one.source,
                "budget": one.budget,
                "question": one.question.text,
                "expected": one.question.answer,
                "answer": one.answer,
                "score": one.score,
                "tokens": one.tokens,
                "error": one.error,
            }
            for one in answers
        ],
    }


def estimate_lines(rows: Sequence[Estimate]) -> Iterator[str]:
    """Yield the lines of an estimate."""
    yield f"{'notes':<10}{'budget':>9}{'calls':>9}{'input tokens':>15}{'dollars':>10}"
    for row in rows:
        yield f"{row.source:<10}{row.budget:>9,}{row.calls:>9,}{row.tokens:>15,}{_dollars(row.cost):>10}"
    known = [row.cost for row in rows if row.cost is not None]
    total = sum(known) if len(known) == len(rows) else None
    yield f"{'all':<19}{sum(row.calls for row in rows):>9,}{sum(row.tokens for row in rows):>15,}{_dollars(total):>10}"
    if total is None:
        yield "\nLiteLLM's list of prices lacks this model: look up its price, and multiply"


def _dollars(cost: float | None) -> str:
    if cost is None:
        return "unknown"
    return "< 0.01" if 0 < cost < 0.005 else f"{cost:,.2f}"
