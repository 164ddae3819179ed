"""Retrieval quality on labelled sets, against simple baselines on the same messages.

The sets are not part of the project. Pass the files of each: LoCoMo's (``.json``), or those of
``memory-pipeline eval jsonl`` (``.jsonl``). A folder stands for all its files: as one set after a name, or one set for
each file without a name::

    python -m benchmarks retrieval --sets locomo=conv-26.json,conv-30.json chat=folder/of/one/set folder/of/sets

Each set goes through the whole pipeline into a separate lake, and each question through the reader. The table has the
share of questions with any evidence among the first ten messages: ours, and that of baselines that rank whole messages
(those before the time of the question), with their speakers, by

- *BM25*: words in lower case, k1 1.2 and b 0.75;
- *BM25, stems*: the same with the words of our index: stems without stop words, pairs of characters in Chinese;
- *TF-IDF*: cosine of character 3- to 5-grams of words with their boundaries; in Chinese, 1- to 3-grams;
- *RRF*: reciprocal rank fusion of BM25 and TF-IDF (Cormack et al. 2009, k 60);
- *z-sum*: sum of the scores of BM25 and TF-IDF, each in standard deviations from its mean.

We are *first* if we are not behind the best baseline by more than one standard error.

``--prompts`` adds what goes into a prompt: the share of questions with any evidence in budgets of 100 to 4,000 tokens,
by the call that fills the budget (``search_memory``, its hits in order until one does not fit; ``recall``;
``inject_knowledge`` with 50 items; ``context``), and the share of questions that get nothing
(:mod:`benchmarks.unrelated`).

``--config`` names a workspaces.yaml, for another embedder. ``--fit`` fits the weights of the ranking to all sets but
one, for each set in turn: a softmax regression over the signals of the first 100 hits. It prints the result on the set
that was left out, and the weights fitted to all sets.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.measure import Cell, Table, progress
from benchmarks.unrelated import unrelated_table
from memory_pipeline.client.memory import Memory
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.ranking import Weights, terms, weights_for
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
    from memory_pipeline.evaluation.harness import QuestionResult
    from memory_pipeline.evaluation.labels import LabelledSet
    from memory_pipeline.reader.packing.items import InjectedContext

    _Postings = dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]]

_OURS: Final = "memory-pipeline"
_DEPTH: Final = 10
_BUDGETS: Final = (100, 300, 1_000, 4_000)
_ALL_DAYS: Final = 36_500
_K1, _B = 1.2, 0.75
_FUSION: Final = 60
_WORD: Final = re.compile(r"\w+")
_GRAMS: Final = (3, 4, 5)
#: Of words in scripts without blanks, which are whole sentences.
_UNSPACED_GRAMS: Final = (1, 2, 3)
#: The fit: number of hits per question, steps, and the penalty for distance from the old weights.
_FITTED, _STEPS, _PULL = 100, 400, 1e-3


class Baselines:
    """Ranks the messages of one agent without memory."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.ids = [message.id for message in messages]
        self._times = np.array([message.sent_at.timestamp() for message in messages])
        texts = [f"{message.speaker}: {message.content}" for message in messages]
        self._words = _bm25([_WORD.findall(text.lower()) for text in texts])
        self._stems = _bm25([terms(text) for text in texts])
        grams = [_grams(text) for text in texts]
        holding = Counter(gram for each in grams for gram in each)
        self._rarity = {gram: _rarity(count, len(texts)) for gram, count in holding.items()}
        norms = [
            math.sqrt(sum((times * self._rarity[gram]) ** 2 for gram, times in each.items())) or 1.0 for each in grams
        ]
        self._grams = _postings(grams, lambda times, place: times / norms[place])

    def first(self, question: str, now: datetime | None) -> Mapping[str, set[str]]:
        """Return the ids of the first ten messages by each baseline."""
        bm25 = self._sums(self._words, _WORD.findall(question.lower()))
        tfidf = np.zeros(len(self.ids))
        for gram, times in _grams(question).items():
            places, values = self._grams.get(gram, _NONE)
            tfidf[places] += values * times * self._rarity.get(gram, 0.0) ** 2
        scores = {
            "BM25": bm25,
            "BM25, stems": self._sums(self._stems, terms(question)),
            "TF-IDF": tfidf,
            "RRF": sum(1 / (_FUSION + 1 + np.argsort(np.argsort(-each, kind="stable"))) for each in (bm25, tfidf)),
            "z-sum": sum((each - each.mean()) / (each.std() or 1.0) for each in (bm25, tfidf)),
        }
        is_later = self._times > (math.inf if now is None else now.timestamp())
        first = {name: np.argsort(-each + 1e9 * is_later, kind="stable")[:_DEPTH] for name, each in scores.items()}
        return {name: {self.ids[place] for place in places if not is_later[place]} for name, places in first.items()}

    def _sums(self, postings: _Postings, words: Iterable[str]) -> NDArray[np.float64]:
        found = np.zeros(len(self.ids))
        for word in dict.fromkeys(words):
            places, values = postings.get(word, _NONE)
            found[places] += values * _rarity(len(places), len(self.ids))
        return found


_NONE: Final = (np.zeros(0, np.intp), np.zeros(0))


def _bm25(texts: Sequence[Sequence[str]]) -> _Postings:
    words = list(map(Counter, texts))
    mean = sum(map(len, texts)) / len(texts) or 1.0
    damped = [_K1 * (1 - _B + _B * len(text) / mean) for text in texts]
    return _postings(words, lambda times, place: times * (_K1 + 1) / (times + damped[place]))


def _postings(documents: Sequence[Counter[str]], worth: Callable[[int, int], float]) -> _Postings:
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
        for length in _UNSPACED_GRAMS if any("\u2e80" <= each <= "\uffdc" for each in word) else _GRAMS:
            counts.update(padded[place : place + length] for place in range(max(len(padded) - length + 1, 1)))
    return counts


def _rarity(holding: int, total: int) -> float:
    return math.log(1 + (total - holding + 0.5) / (holding + 0.5))


def run(
    folder: Path, *, quick: bool, sets: Sequence[str], configuration: Path | None, prompts: bool, fit: bool
) -> list[Table]:
    """Measure all sets and return one table, and those of what goes into prompts and of the fitted weights.

    Args:
        folder: for the lakes.
        quick: ask a tenth of the questions.
        sets: ``NAME=PATH,PATH…`` or a folder each.
        configuration: a workspaces.yaml for the lakes; None for the default models.
        prompts: measure what goes into prompts.
        fit: fit the weights, leaving out one set at a time.
    """
    files = dict(chain.from_iterable(map(_files, sets)))
    if fit and len(files) < 2:  # one set to fit, and one to leave out
        raise SystemExit("--fit leaves one set out at a time; name two sets or more")
    rows: list[dict[str, Cell]] = []
    signals: dict[str, list[_Signals]] = {}
    filled: list[dict[str, Cell]] = []
    lakes: dict[str, tuple[LabelledSet, Settings]] = {}
    for name, paths in files.items():
        labels = read_locomo_set(paths) if paths[0].suffix == ".json" else read_jsonl_set(paths)
        if quick:
            labels = replace(labels, questions=labels.questions[::10])
        settings = replace(Settings.from_environment(), root=str(folder / name), has_dagster_home=False)
        progress(f"{name}: {len(labels.messages):,} messages, {len(labels.questions):,} questions")
        evaluation = evaluate(labels, settings, configuration=configuration, say=progress)
        rows += _rows(name, evaluation.outcomes, _baselines(labels))
        lakes[name] = labels, settings
        filled += budget_rows(name, labels, settings) if prompts else []
        if fit:
            signals[name] = list(_signals(labels, settings))
    note = f"questions with any evidence in the first {_DEPTH} messages; ± one standard error; * first of all"
    tables = [Table("retrieval", note, rows)]
    if prompts:
        note = "questions with any evidence in a budget of tokens, by the call that fills it; ± one standard error"
        tables += [Table("budgets", note, filled), unrelated_table(lakes)]
    return [*tables, _fitted(signals)] if fit else tables


def _files(text: str) -> Iterable[tuple[str, list[Path]]]:
    """Yield the names and the files of the sets that an argument names."""
    name, equals, listed = text.partition("=")
    paths = [Path(each) for each in (listed if equals else text).split(",")]
    files = [file for path in paths for file in (sorted(path.glob("*.json*")) if path.is_dir() else [path])]
    if not files or (not equals and not paths[0].is_dir()):
        raise SystemExit(f"--sets {text!r} is not accepted; expected NAME=FILE, NAME=FILE,FILE or a folder with files")
    yield from [(name, files)] if equals else [(file.stem, [file]) for file in files]


def _baselines(labels: LabelledSet) -> list[dict[str, bool]]:
    """Return for each question whether the first messages by each baseline have evidence."""
    messages: defaultdict[Scope, list[Message]] = defaultdict(list)
    for message in labels.messages.values():
        messages[message.scope].append(message)
    ranked = {scope: Baselines(messages[scope]) for scope in {one.question.scope for one in labels.questions}}
    return [
        {name: not one.relevant.isdisjoint(found) for name, found in first.items()}
        for one in labels.questions
        for first in [ranked[one.question.scope].first(one.question.text, one.question.now)]
    ]


def _rows(
    name: str, outcomes: Sequence[QuestionResult], baselines: Sequence[Mapping[str, bool]]
) -> Iterable[dict[str, Cell]]:
    """Yield a row for a set, and one for each of its categories."""
    groups: defaultdict[str, list[dict[str, bool]]] = defaultdict(list)
    for outcome, found in zip(outcomes, baselines, strict=True):
        category = outcome.judged.question.category
        if category != ADVERSARIAL:
            is_found = not outcome.judged.relevant.isdisjoint(outcome.ranking.turns[:_DEPTH])
            groups[category].append({_OURS: is_found, **found})
    categories = {f"  {category}": groups[category] for category in sorted(groups)} if len(groups) > 1 else {}
    for group, answers in {name: list(chain.from_iterable(groups.values())), **categories}.items():
        shares = {system: sum(one[system] for one in answers) / len(answers) for system in answers[0]}
        ours, best = shares.pop(_OURS), max(shares.values())
        error = math.sqrt(ours * (1 - ours) / len(answers))
        yield {
            "set": group,
            "questions": len(answers),
            _OURS: f"{ours:.3f} ± {error:.3f}",
            "first": "*" if ours >= best - error else "",
            **{system: f"{share:.3f}" for system, share in shares.items()},
        }


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
        "search_memories": search,
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
