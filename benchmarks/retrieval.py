"""Retrieval quality on labelled sets, against simple baselines on the same messages.

The sets are not part of the project. Pass the files of each: LoCoMo's (``.json``), or those of
``memory-pipeline eval jsonl`` (``.jsonl``)::

    python -m benchmarks retrieval --sets locomo=conv-26.json,conv-30.json beam=beam.jsonl

Each set goes through the whole pipeline into a separate lake, and each question through the reader. The baselines rank
whole messages, with their speakers, by

- *BM25*: words in lower case, k1 1.2 and b 0.75;
- *TF-IDF*: cosine of character 3- to 5-grams of words with their boundaries;
- *RRF*: reciprocal rank fusion of both (Cormack et al. 2009, k 60).

A second table has the share of questions with any evidence in budgets of 100 to 4,000 tokens, by the call that fills
the budget: ``search_memory`` (its hits in order, until one does not fit), ``recall``, ``inject_knowledge`` with 50
items, and ``context``. A third one has the share of questions that get nothing (:mod:`benchmarks.unrelated`).

Shares of questions have a standard error. ``--config`` names a workspaces.yaml, for another embedder. ``--fit`` fits
the weights of the ranking to all sets but one, for each set in turn: a softmax regression over the signals of the first
100 hits. It prints the result on the set that was left out, and the weights fitted to all sets.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from benchmarks.measure import Cell, Table, progress
from benchmarks.unrelated import unrelated_table
from memory_pipeline.client.memory import Memory
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import Weights, weights_for
from memory_pipeline.evaluation.formats import read_jsonl_set, read_locomo_set
from memory_pipeline.evaluation.harness import evaluate, turns_of, within
from memory_pipeline.evaluation.labels import ADVERSARIAL
from memory_pipeline.evaluation.metrics import percentile
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import reading_embedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline.reader.packing.injection import MAX_PARTS
from memory_pipeline.search.arguments import MAX_RESULTS
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledSet
    from memory_pipeline.reader.packing.items import InjectedContext

_OURS: Final = "memory-pipeline"
_DEPTH: Final = 10
_TOKENS: Final = 1_000
_BUDGETS: Final = (100, 300, 1_000, 4_000)
_ALL_DAYS: Final = 36_500
_K1, _B = 1.2, 0.75
_FUSION: Final = 60
_WORD: Final = re.compile(r"\w+")
_GRAMS: Final = (3, 4, 5)
#: The fit: number of hits per question, steps, and the penalty for distance from the old weights.
_FITTED, _STEPS, _PULL = 100, 400, 1e-3


class Asked(NamedTuple):
    """The result of a question: whether any evidence is in the first ten messages, and within the token budget."""

    category: str
    in_ten: bool
    in_budget: bool


class Baselines:
    """Ranks the messages of one agent without memory."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.ids = [message.id for message in messages]
        texts = [f"{message.speaker}: {message.content}" for message in messages]
        self.tokens = [
            count_tokens(f"[{message.sent_at.date()}] {text}") for message, text in zip(messages, texts, strict=True)
        ]
        words = [Counter(_WORD.findall(text.lower())) for text in texts]
        mean = sum(map(Counter.total, words)) / len(words) or 1.0
        damped = [_K1 * (1 - _B + _B * each.total() / mean) for each in words]
        self._words = _postings(words, lambda times, place: times * (_K1 + 1) / (times + damped[place]))
        grams = [_grams(text) for text in texts]
        holding = Counter(gram for each in grams for gram in each)
        rarity = {gram: _rarity(count, len(texts)) for gram, count in holding.items()}
        norms = [math.sqrt(sum((times * rarity[gram]) ** 2 for gram, times in each.items())) or 1.0 for each in grams]
        self._grams = _postings(grams, lambda times, place: times / norms[place])
        self._rarity = rarity

    def ranked(self, question: str) -> Mapping[str, NDArray[np.intp]]:
        """Return the indices of all messages, best first, by baseline."""
        bm25, tfidf = np.zeros(len(self.ids)), np.zeros(len(self.ids))
        for word in dict.fromkeys(_WORD.findall(question.lower())):
            places, values = self._words.get(word, _NONE)
            bm25[places] += values * _rarity(len(places), len(self.ids))
        for gram, times in _grams(question).items():
            places, values = self._grams.get(gram, _NONE)
            tfidf[places] += values * times * self._rarity.get(gram, 0.0) ** 2
        by_words, by_grams = (np.argsort(-scores, kind="stable") for scores in (bm25, tfidf))
        fused = sum(1 / (_FUSION + 1 + np.argsort(order)) for order in (by_words, by_grams))
        return {"BM25": by_words, "TF-IDF": by_grams, "RRF of both": np.argsort(-fused, kind="stable")}

    def asked(self, judged: JudgedQuestion, order: NDArray[np.intp]) -> Asked:
        """Return the result of a ranking for a question."""
        in_budget, left = set[str](), _TOKENS
        for place in order:
            left -= self.tokens[place]
            if left < 0:
                break
            in_budget.add(self.ids[place])
        in_ten = {self.ids[place] for place in order[:_DEPTH]}
        return Asked(judged.question.category, bool(in_ten & judged.relevant), bool(in_budget & judged.relevant))


_NONE: Final = (np.zeros(0, np.intp), np.zeros(0))


def _postings(
    documents: Sequence[Counter[str]], worth: Callable[[int, int], float]
) -> dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]]:
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for place, counts in enumerate(documents):
        for term, times in counts.items():
            found[term].append((place, worth(times, place)))
    return {
        term: (np.array([place for place, _ in each], np.intp), np.array([value for _, value in each]))
        for term, each in found.items()
    }


def _grams(text: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for word in text.lower().split():
        padded = f" {word} "
        for length in _GRAMS:
            counts.update(padded[place : place + length] for place in range(max(len(padded) - length + 1, 1)))
    return counts


def _rarity(holding: int, total: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def run(folder: Path, *, quick: bool, sets: Sequence[str], configuration: Path | None, fit: bool) -> list[Table]:
    """Measure all sets and return one table, and one of the fitted weights.

    Args:
        folder: for the lakes.
        quick: ask a tenth of the questions.
        sets: ``NAME=FILE,FILE…`` each.
        configuration: a workspaces.yaml for the lakes; None for the default models.
        fit: fit the weights, leaving out one set at a time.
    """
    if fit and len(sets) < 2:  # one set to fit, and one to leave out
        raise SystemExit("--fit leaves one set out at a time; name two sets or more")
    asked: dict[str, dict[str, list[Asked]]] = {}
    signals: dict[str, list[_Signals]] = {}
    filled: list[dict[str, Cell]] = []
    lakes: dict[str, tuple[LabelledSet, Settings]] = {}
    for each in sets:
        name, labels = _labels(each)
        if quick:
            labels = replace(labels, questions=labels.questions[::10])
        settings = replace(Settings.from_environment(), root=str(folder / name), has_dagster_home=False)
        progress(f"{name}: {len(labels.messages):,} messages, {len(labels.questions):,} questions")
        evaluation = evaluate(labels, settings, tokens=_TOKENS, configuration=configuration, say=progress)
        ours = [
            Asked(
                outcome.judged.question.category,
                not outcome.judged.relevant.isdisjoint(outcome.ranking.turns[:_DEPTH]),
                not outcome.judged.relevant.isdisjoint(outcome.ranking.within_budget),
            )
            for outcome in evaluation.outcomes
            if outcome.judged.question.category != ADVERSARIAL
        ]
        asked[name] = {_OURS: ours, **_baselines(labels)}
        filled += budget_rows(name, labels, settings)
        lakes[name] = labels, settings
        if fit:
            signals[name] = list(_signals(labels, settings))
    note = "questions with any evidence in a budget of tokens, by the call that fills it; ± one standard error"
    tables = [_table(asked), Table("budgets", note, filled), unrelated_table(lakes)]
    if fit:
        tables.append(_fitted(signals))
    return tables


def _labels(text: str) -> tuple[str, LabelledSet]:
    name, equals, files = text.partition("=")
    if not equals or not files:
        raise SystemExit(f"--sets {text!r} is not accepted; expected NAME=FILE or NAME=FILE,FILE")
    paths = [Path(file) for file in files.split(",")]
    return name, read_locomo_set(paths) if paths[0].suffix == ".json" else read_jsonl_set(paths)


def _baselines(labels: LabelledSet) -> dict[str, list[Asked]]:
    messages: defaultdict[Scope, list[Message]] = defaultdict(list)
    for message in labels.messages.values():
        messages[message.scope].append(message)
    questions: defaultdict[Scope, list[JudgedQuestion]] = defaultdict(list)
    for judged in labels.questions:
        if judged.question.category != ADVERSARIAL:
            questions[judged.question.scope].append(judged)
    found: defaultdict[str, list[Asked]] = defaultdict(list)
    for scope, each in questions.items():
        baselines = Baselines(messages[scope])
        for judged in each:
            for name, order in baselines.ranked(judged.question.text).items():
                found[name].append(baselines.asked(judged, order))
    return dict(found)


def _table(asked: Mapping[str, Mapping[str, Sequence[Asked]]]) -> Table:
    rows: list[dict[str, Cell]] = []
    for name, systems in asked.items():
        groups = dict(systems)
        categories = sorted({one.category for one in systems[_OURS]})
        for category in categories if len(categories) > 1 else ():
            groups[f"{_OURS}: {category}"] = [one for one in systems[_OURS] if one.category == category]
        rows += [
            {
                "set": name,
                "system": system,
                "questions": len(found),
                f"any@{_DEPTH}": _share(one.in_ten for one in found),
                f"any in {_TOKENS:,} tokens": _share(one.in_budget for one in found),
            }
            for system, found in groups.items()
        ]
    note = (
        f"questions with any evidence in the first {_DEPTH} messages, and in {_TOKENS:,} tokens; ± one standard error"
    )
    return Table("retrieval", note, rows)


def _share(hits: Iterable[bool]) -> str:
    values = list(hits)
    share = sum(values) / len(values)
    return f"{share:.3f} ± {math.sqrt(share * (1 - share) / len(values)):.3f}"


def budget_rows(name: str, labels: LabelledSet, settings: Settings) -> list[dict[str, Cell]]:
    """Return the share of questions with any evidence in each budget, a row per call, and the median milliseconds.

    Raises:
        RuntimeError: an answer exceeds its budget.
    """
    found: dict[str, dict[int, list[bool]]] = {}
    times: defaultdict[str, list[float]] = defaultdict(list)
    embedder = reading_embedder(Lake(settings.root, settings.timezone).configuration(), _now)
    last = _last_times(labels)
    memories: dict[Scope, Memory] = {}
    asked = [judged for judged in labels.questions if judged.question.category != ADVERSARIAL]
    for number, judged in enumerate(asked, start=1):
        text, scope = judged.question.text, judged.question.scope
        if scope not in memories:
            memories[scope] = Memory(
                settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder
            )
            memories[scope].context(text)  # opens the tables, which is not counted
        for way, answer in _ways(memories[scope], text, judged.question.now or last[scope]).items():
            for budget in _BUDGETS:
                started = time.perf_counter()
                sources, tokens = answer(budget)
                times[way].append(1_000 * (time.perf_counter() - started))
                if tokens > budget:
                    raise RuntimeError(f"{way} returned {tokens} tokens for {budget}: {text!r}")
                found.setdefault(way, {}).setdefault(budget, []).append(not judged.relevant.isdisjoint(sources))
        if number % 100 == 0:
            progress(f"{name}: {number:,} of {len(asked):,} questions, in budgets")
    return [
        {
            "set": name,
            "call": way,
            **{f"{budget:,} tokens": _share(hits) for budget, hits in by_budget.items()},
            "p50 ms": round(percentile(times[way], 0.5), 1),
        }
        for way, by_budget in found.items()
    ]


def _ways(memory: Memory, text: str, now: datetime) -> dict[str, Callable[[int], tuple[Iterable[str], int]]]:
    """Return the calls that fill a budget. Each returns the ids of the messages, and the tokens of the text."""

    def search(budget: int) -> tuple[Iterable[str], int]:
        hits = memory.reader.search_memory(Grain.WORKING, 0, _ALL_DAYS, MAX_RESULTS, text, now=now)
        fitting = list(within(budget, hits))
        return turns_of(fitting), sum(count_tokens(hit.line) for hit in fitting)

    def recall(budget: int) -> tuple[Iterable[str], int]:
        found = memory.reader.recall(text, budget, now=now)
        return {source for item in found for source in item.source_ids}, count_tokens(str(found)) if found else 0

    def injected(context: InjectedContext) -> tuple[Iterable[str], int]:
        return {source for part in context.parts for source in part.evidence}, count_tokens(context.block)

    return {
        "search_memory": search,
        "recall": recall,
        "inject_knowledge": lambda budget: injected(
            memory.reader.inject_knowledge(text, max_results=MAX_PARTS, max_tokens=budget, now=now)
        ),
        "context": lambda budget: injected(memory.context(text, budget, now=now)),
    }


def _last_times(labels: LabelledSet) -> dict[Scope, datetime]:
    return {message.scope: message.sent_at for message in sorted(labels.messages.values(), key=lambda m: m.sent_at)}


@dataclass(frozen=True, slots=True)
class _Signals:
    """The signals of the first hits of a question, shape (signals, hits), and a mask of the hits that are evidence."""

    values: NDArray[np.float64]
    is_evidence: NDArray[np.bool_]


_NAMES: Final = [field.name for field in fields(Weights) if field.name != "repeats"]


def _signals(labels: LabelledSet, settings: Settings) -> Iterable[_Signals]:
    """Yield the signals of questions with evidence among the first hits."""
    embedder = reading_embedder(Lake(settings.root, settings.timezone).configuration(), _now)
    weights = weights_for(embedder.name)
    factors = np.array([getattr(weights, name) for name in _NAMES])
    last = _last_times(labels)
    readers: dict[Scope, MemoryReader] = {}
    for judged in labels.questions:
        question, scope = judged.question, judged.question.scope
        if question.category == ADVERSARIAL:
            continue
        if scope not in readers:
            readers[scope] = MemoryReader.open(
                settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder
            )
        hits = readers[scope].search_memory(
            Grain.WORKING, 0, _ALL_DAYS, _FITTED, question.text, now=question.now or last[scope], explain=True
        )
        values = np.array([[(hit.parts or {})[name] for name in _NAMES] for hit in hits]).T / factors[:, None]
        evidence = np.array([not judged.relevant.isdisjoint(hit.source_ids) for hit in hits])
        yield _Signals(values, evidence)


def _now() -> datetime:
    return datetime.now(UTC)


def _fitted(signals: Mapping[str, Sequence[_Signals]]) -> Table:
    """Fit the weights without each set in turn, and to all sets."""
    rows: list[dict[str, Cell]] = []
    for name in [*signals, None]:
        weights = _fit([found for other, found in signals.items() if other != name])
        on = signals if name is None else {name: signals[name]}
        shares = ", ".join(f"{each} {_share(_is_hit(one, weights) for one in found)}" for each, found in on.items())
        fitted = {field: f"{weight:.2f}" for field, weight in zip(_NAMES, weights, strict=True)}
        rows.append({"left out": name or "none", f"any@{_DEPTH}": shares, **fitted})
    note = f"any@{_DEPTH} on the set that was left out, by the signals of {_FITTED} hits, without repeats"
    return Table("weights fitted without one set", note, rows)


def _is_hit(one: _Signals, weights: NDArray[np.float64]) -> bool:
    best = np.argsort(-(weights @ one.values), kind="stable")[:_DEPTH]
    return bool(one.is_evidence[best].any())


def _fit(sets: Sequence[Sequence[_Signals]]) -> NDArray[np.float64]:
    """Return the weights with the highest likelihood of evidence among the hits. Each set counts equally."""
    found = [(one, 1 / len(each)) for each in sets for one in each if one.is_evidence.any()]
    spread = np.sqrt(np.mean([one.values.var(axis=1) for one, _ in found], axis=0)) + 1e-6
    scaled = [(one.values / spread[:, None], one.is_evidence, share) for one, share in found]
    weights = np.zeros(len(_NAMES))
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, _STEPS + 1):  # Adam (Kingma & Ba 2015)
        slope = 2 * _PULL * weights
        for values, evidence, share in scaled:
            scores = weights @ values
            odds = np.exp(scores - scores.max())
            found_at = values[:, evidence] @ (odds[evidence] / odds[evidence].sum())
            slope -= share * (found_at - values @ (odds / odds.sum()))
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights = weights - 0.05 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    fitted: NDArray[np.float64] = weights / spread
    return fitted
