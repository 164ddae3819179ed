"""The share of known answers that summaries of each grain keep, against three simple summarizers.

Facts are extracted once. Then each of four summarizers summarizes every day, week, month, quarter and year, each
coarser summary from its own finer ones, within the product's budgets
(:data:`~memory_pipeline.models.deterministic.summarization.DEFAULT_BUDGETS`):

- extractive: the product's deterministic summarizer;
- first: the sentences that were said first;
- longest: the longest sentences;
- central: those nearest to all others (mean cosine), as in centroid summaries (Radev et al., 2004).

The simple summarizers take whole sentences in their order as long as they fit. The answers come from labelled files:
``--locomo FILE…`` (LoCoMo's format; none are shipped); adversarial questions have no answer. Without files, the sample
history is used, with every number, date and name in its facts in place of answers. That shows the loss of detail, not
of useful answers.

:mod:`memory_pipeline.evaluation.survival` defines how answers are searched.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measure import Cell, Table, progress
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import EARLIEST, SUMMARY_GRAINS, Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import Condensation, KeyPoint
from memory_pipeline.evaluation.formats import read_locomo_set
from memory_pipeline.evaluation.labels import ADVERSARIAL
from memory_pipeline.evaluation.survival import survival
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.models.deterministic.summarization import DEFAULT_BUDGETS, POINT_OVERHEAD
from memory_pipeline.models.factory import default_models
from memory_pipeline.sample import AFTERWARDS, HISTORY
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.summaries import summarize_periods
from memory_pipeline.writer.files import ingest_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.domain.summaries import Assignment, Material, Summarizer

_DATE = re.compile(r"\[([0-9]{4}-[0-9]{2}-[0-9]{2})\]")
_NUMBER = re.compile(r"\b[0-9]+(?:[.,:][0-9]+)*\b")


def run(folder: Path, *, quick: bool, files: Sequence[Path] = ()) -> list[Table]:
    """Measure, with a lake below `folder`; `files` are in LoCoMo's format. Takes at most a minute."""
    del quick
    lake = Lake(str(folder / "lake"))
    answers = _labelled(lake, files) if files else {}
    if not files:
        ingest_file(lake, HISTORY, Admission(EARLIEST, AFTERWARDS))
    models = default_models()
    for _ in materialize(lake, models, Grain.WORKING, lake.journal.pending_hours()):
        pass
    answers = answers or _details(lake)

    ways: dict[str, Summarizer] = {
        "extractive": models.summarizer,
        "first": _InOrder("first", _as_said),
        "longest": _InOrder("longest", _longest_first),
        "central": _InOrder("central", lambda texts: _central_first(models.embedder, texts)),
    }
    what = f"answers of {len(files)} files" if files else "numbers, dates and names of the sample"
    table = Table(
        "survival",
        f"shares of {sum(map(len, answers.values())):,} {what} that are still there: as words; with all their values",
    )
    for name, summarizer in ways.items():
        _summarize(lake, summarizer, models.embedder)
        for remains in survival(lake, answers):
            row: dict[str, Cell] = {"grain": remains.grain.value, "way": name}
            row |= {"verbatim": remains.verbatim, "values": remains.values, "characters": remains.characters}
            if remains.grain is not Grain.WORKING or name == "extractive":
                table.rows.append(row)
        progress(name)
    table.rows.sort(key=lambda row: Grain.parse(row["grain"]).rank)  # stable: the ways keep their order
    return [table]


def _labelled(lake: Lake, files: Sequence[Path]) -> dict[Scope, list[str]]:
    """Write the conversations of labelled files to the journal. Return their answers."""
    labels = read_locomo_set(files)
    lake.ensure()
    lake.journal.append(list(labels.messages.values()))
    answers: defaultdict[Scope, list[str]] = defaultdict(list)
    for question in (judged.question for judged in labels.questions):
        if question.answer and question.category != ADVERSARIAL:
            answers[question.scope].append(question.answer)
    return dict(answers)


def _details(lake: Lake) -> dict[Scope, list[str]]:
    """Return every number, date and name in the facts of each agent, once."""
    details: defaultdict[Scope, dict[str, None]] = defaultdict(dict)
    for row in lake.tables.read(FACTS, columns=["workspace_id", "agent_id", "content", "entities"]).to_pylist():
        text = row["content"]
        found = [*_DATE.findall(text), *_NUMBER.findall(_DATE.sub(" ", text)), *row["entities"]]
        details[Scope(row["workspace_id"], row["agent_id"])].update(dict.fromkeys(found))
    return {scope: sorted(found) for scope, found in details.items()}


def _summarize(lake: Lake, summarizer: Summarizer, embedder: Embedder) -> None:
    """Summarize everything, replacing another summarizer's summaries."""
    hours = [Period.parse(Grain.WORKING, key) for key in lake.tables.keys(FACTS)]
    for grain in SUMMARY_GRAINS:
        periods = {lake.calendar.ancestor(hour, grain) for hour in hours}
        summarize_periods(lake, summarizer, embedder, grain, sorted(periods, key=str))


@dataclass(frozen=True)
class _InOrder:
    """A :class:`memory_pipeline.domain.summaries.Summarizer` that takes texts in the order of `order` while they fit.

    Attributes:
        order: returns the indices of texts in the order to take them.
    """

    name: str
    order: Callable[[Sequence[str]], Sequence[int]]

    def method(self, scope: Scope, grain: Grain) -> str:
        """Name the way."""
        del scope, grain
        return self.name

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        """Return the summary of each of `assignments`."""
        return [self._condense(assignment) for assignment in assignments]

    def _condense(self, assignment: Assignment) -> Condensation:
        material = sorted(assignment.material, key=lambda item: (item.event_at, item.position, item.id))
        budget = DEFAULT_BUDGETS[assignment.period.grain]
        taken: list[int] = []
        for place in self.order([item.text for item in material]):
            cost = len(material[place].text) + POINT_OVERHEAD
            if cost <= budget:
                taken.append(place)
                budget -= cost
        points = tuple(_point(material[place]) for place in sorted(taken))
        return Condensation(
            points,
            self.name,
            sum(count_tokens(item.text) for item in material),
            sum(count_tokens(point.sentence) for point in points),
        )


def _point(item: Material) -> KeyPoint:
    return KeyPoint(item.text, (item.id,), item.event_at, item.importance, item.entities)


def _as_said(texts: Sequence[str]) -> Sequence[int]:
    return range(len(texts))


def _longest_first(texts: Sequence[str]) -> Sequence[int]:
    return sorted(range(len(texts)), key=lambda place: -len(texts[place]))


def _central_first(embedder: Embedder, texts: Sequence[str]) -> Sequence[int]:
    vectors = embedder.embed(texts).astype(np.float64)
    # The sum of the cosines to all texts is the dot product with the sum of the vectors.
    centrality = np.round(vectors @ vectors.sum(axis=0), 4)
    return [int(place) for place in np.argsort(-centrality, kind="stable")]
