"""Does a prompt about something else get nothing? Part of the ``retrieval`` benchmark.

Each question is asked of its own memory, with the floor of prompts and without, and of memories of other agents: of its
own set, where people and topics may be shared, and of the other sets. Questions without evidence on a topic of their
memory (category adversarial) are a row of their own: their words fit.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measure import Cell, Table, progress
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.text.calibration import DEFAULT_FLOOR
from memory_pipeline.evaluation.harness import turns_of
from memory_pipeline.evaluation.labels import ADVERSARIAL
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import reading_embedder
from memory_pipeline.reader import MemoryReader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledSet
    from memory_pipeline.settings import Settings

#: Questions of each kind that are asked of each agent, at most.
_ASKED: Final = 100
_ALL_DAYS: Final = 36_500
_OWN, _NO_DETAIL, _SAME_SET, _OTHER_SET = "own", "own topic, no evidence", "other agents", "other sets"


class Answer(NamedTuple):
    """Which calls returned nothing, and whether evidence is among ten hits with the floor of prompts and without."""

    is_empty: Mapping[str, bool]
    in_ten: bool
    in_ten_without: bool


def unrelated_table(sets: Mapping[str, tuple[LabelledSet, Settings]]) -> Table:
    """Ask the questions of all sets of the lakes of all sets. `sets` has the labels and the settings of each lake."""
    source = random.Random(1)
    rows: list[dict[str, Cell]] = []
    everything = [(name, judged) for name, (labels, _) in sets.items() for judged in labels.questions]
    for name, (labels, settings) in sets.items():
        found: defaultdict[str, list[Answer]] = defaultdict(list)
        for reader, scope, now in _readers(labels, settings):
            for kind, judged in _questions(source, everything, name, scope):
                relevant = judged.relevant if kind == _OWN else frozenset[str]()
                found[kind].append(_asked(reader, judged.question.text, relevant, judged.question.now or now))
        rows += [_row(name, kind, found[kind]) for kind in (_OWN, _NO_DETAIL, _SAME_SET, _OTHER_SET) if found[kind]]
        progress(f"{name}: asked of its own memory and of others")
    note = "share of questions that put nothing into a prompt, and any evidence in ten hits with the floor and without"
    return Table("unrelated", note, rows)


def _readers(labels: LabelledSet, settings: Settings) -> Iterator[tuple[MemoryReader, Scope, datetime]]:
    embedder = reading_embedder(Lake(settings.root, settings.timezone).configuration(), lambda: datetime.now(UTC))
    last: dict[Scope, datetime] = {}
    for message in labels.messages.values():
        last[message.scope] = max(message.sent_at, last.get(message.scope, message.sent_at))
    for scope, now in last.items():
        yield (
            MemoryReader.open(
                settings.root, workspace_id=scope.workspace_id, agent_id=scope.agent_id, embedder=embedder
            ),
            scope,
            now,
        )


def _questions(
    source: random.Random, everything: Sequence[tuple[str, JudgedQuestion]], name: str, scope: Scope
) -> Iterator[tuple[str, JudgedQuestion]]:
    kinds: defaultdict[str, list[JudgedQuestion]] = defaultdict(list)
    for of, judged in everything:
        if judged.question.scope == scope and of == name:
            kinds[_NO_DETAIL if judged.question.category == ADVERSARIAL else _OWN].append(judged)
        else:
            kinds[_SAME_SET if of == name else _OTHER_SET].append(judged)
    for kind, questions in kinds.items():
        for judged in source.sample(questions, min(len(questions), _ASKED)):
            yield kind, judged


def _asked(reader: MemoryReader, text: str, relevant: Collection[str], now: datetime) -> Answer:
    hits, without = (
        reader.search_memory(Grain.WORKING, 0, _ALL_DAYS, 10, text, minimum_score=floor, now=now)
        for floor in (DEFAULT_FLOOR, 0)
    )
    is_empty = {
        "recall": not reader.recall(text, now=now),
        "inject_knowledge": not reader.inject_knowledge(text, now=now).parts,
    }
    in_ten, in_ten_without = (not set(relevant).isdisjoint(turns_of(each)) for each in (hits, without))
    return Answer(is_empty, in_ten, in_ten_without)


def _row(name: str, kind: str, answers: Sequence[Answer]) -> dict[str, Cell]:
    evidence = {"any@10": [one.in_ten for one in answers], "without floor": [one.in_ten_without for one in answers]}
    return {
        "set": name,
        "questions of": kind,
        "questions": len(answers),
        **{f"nothing: {call}": _mean(one.is_empty[call] for one in answers) for call in answers[0].is_empty},
        **{column: _mean(values) if kind == _OWN else "" for column, values in evidence.items()},
    }


def _mean(values: Iterable[bool]) -> str:
    listed = list(values)
    return f"{sum(listed) / len(listed):.3f}"
