"""An invalid partition is neither written, indexed nor entered in the ledger, and nothing is computed from it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from memory_pipeline.checks import CheckContext, all_checks, run_checks
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.summaries import KeyPoint
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.errors import QualityError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, SUMMARIES
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline.steps.validation import are_sound, faults, validate_rows
from memory_pipeline_tests.building import ACME, NOW, START, conversation, hours, index_rows, run, table_rows, write
from memory_pipeline_tests.checks.planting import plant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from memory_pipeline.domain.facts import ConversationHour, Extraction, Extractor
    from memory_pipeline.domain.summaries import Assignment, Condensation, Summarizer
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

GOOD = conversation("I moved to Porto.", at="2024-01-15T08:00")
BAD = conversation("My dog is called Bruno.", at="2024-01-16T08:00", conversation_id="c2")
DAY = [Period.parse("daily", "2024-01-16")]


class Faulty:
    """An extractor or summarizer that returns other results for the 16th."""

    def __init__(self, real: Any, change: Callable[[Any], Any]) -> None:
        self._real = real
        self._change = change

    def method(self, *arguments: Any) -> str:
        return str(self._real.method(*arguments))

    def extract(self, passages: Sequence[ConversationHour], recall: Any) -> list[Extraction]:
        found = self._real.extract(passages, recall)
        return [
            self._change(extraction) if passage.hour.key.startswith("2024-01-16") else extraction
            for passage, extraction in zip(passages, found, strict=True)
        ]

    def summarize(self, assignments: Sequence[Assignment]) -> list[Condensation | None]:
        found = self._real.summarize(assignments)
        return [
            self._change(condensation) if assignment.period in DAY else condensation
            for assignment, condensation in zip(assignments, found, strict=True)
        ]


def feed_back(extraction: Extraction) -> Extraction:
    first = extraction.facts[0]
    return replace(extraction, facts=(replace(first, content=f"{first.content} {mark('Anna has a dog.')}"),))


def double(extraction: Extraction) -> Extraction:
    return replace(extraction, facts=(*extraction.facts, extraction.facts[0]))


def say_nothing(condensation: Condensation) -> Condensation:
    return replace(condensation, points=())


def invent(condensation: Condensation) -> Condensation:
    [first, *others] = condensation.points
    cited = (*first.source_ids, f"working:2024-01-16T08:{'0' * 32}")
    return replace(condensation, points=(replace(first, source_ids=cited), *others))


def repeat_block(condensation: Condensation) -> Condensation:
    point: KeyPoint = condensation.points[0]
    return replace(condensation, points=(replace(point, sentence=mark(point.sentence)),))


WRONG: dict[str, tuple[Grain, Callable[[Any], Any]]] = {
    "unique_ids": (Grain.WORKING, double),
    "fed_back_recall": (Grain.WORKING, feed_back),
    "empty_summaries": (Grain.DAILY, say_nothing),
    "orphaned_sources": (Grain.DAILY, invent),
    "fed_back_recall of a summary": (Grain.DAILY, repeat_block),
}


def spoilt(models: Models, grain: Grain, change: Callable[[Any], Any]) -> Models:
    if grain is Grain.WORKING:
        extractor: Extractor = Faulty(models.extractor, change)
        return replace(models, extractor=extractor)
    summarizer: Summarizer = Faulty(models.summarizer, change)
    return replace(models, summarizer=summarizer)


@pytest.fixture(scope="module")
def good(shared_folder: SharedFolder, models: Models) -> Path:
    """A lake with valid rows only; tests copy it."""

    def fill(path: Path) -> None:
        write(Lake(str(path)), GOOD)
        run(Lake(str(path)), models)

    return shared_folder("guard-good", fill)


@pytest.fixture(scope="module")
def plain(shared_folder: SharedFolder, models: Models) -> Lake:
    """A lake computed without a fault; tests copy it or only read it."""

    def fill(path: Path) -> None:
        made = Lake(str(path))
        write(made, GOOD, BAD)
        run(made, models)

    return Lake(str(shared_folder("guard-plain", fill)))


def test_an_invalid_partition_is_not_written_until_it_is_corrected(
    good: Path, plain: Lake, root: str, models: Models
) -> None:
    """Each fault in turn leaves the lake unchanged."""
    lake = Lake(shutil.copytree(good, root))
    made = {name: set(lake.ledger.entries(name)) for name in ("working_facts", "daily_summaries", "weekly_summaries")}
    write(lake, BAD)
    files = lake.journal.pending()
    for wrong, (grain, change) in WRONG.items():
        if grain is Grain.DAILY and lake.journal.pending():
            run_one(lake, models, Grain.WORKING)
        check = wrong.partition(" ")[0]
        indexed = index_rows(lake, [ACME])
        for _ in range(2 if wrong == "unique_ids" else 1):  # a refusal is not remembered
            with pytest.raises(QualityError, match=rf"^{grain} 2024-01-16\S* fails {check} \(\d+ rows") as refused:
                run_one(lake, spoilt(models, grain, change), grain)
            assert "Bruno" not in str(refused.value), wrong
        key = "2024-01-16T08" if grain is Grain.WORKING else "2024-01-16"
        table = "working_facts" if grain is Grain.WORKING else "daily_summaries"
        assert set(lake.ledger.entries(table)) == made[table], wrong
        assert index_rows(lake, [ACME]) == indexed, wrong
        assert key in {period.key for period in grain_status(lake, grain, START, NOW).pending}, wrong
        if grain is Grain.WORKING:
            assert lake.journal.pending() == files, wrong
            assert not grain_status(lake, Grain.DAILY, START, NOW).pending, wrong
        else:
            assert not grain_status(lake, Grain.WEEKLY, START, NOW).pending, wrong

    run(lake, models)
    assert lake.journal.pending() == []
    assert not any(run(lake, models).values())
    assert table_rows(lake) == table_rows(plain)
    assert index_rows(lake, [ACME]) == index_rows(plain, [ACME])
    # Model costs and consolidation are not computed here.
    own = [each for each in all_checks() if each.asset not in {"model_cost", "memory_consolidation"}]
    assert [finding for finding in run_checks(CheckContext(lake, NOW), own) if not finding.passed] == []


def run_one(lake: Lake, models: Models, grain: Grain) -> list[Any]:
    return list(materialize(lake, models, grain, grain_status(lake, grain, START, NOW).pending))


@pytest.fixture
def whole(plain: Lake, root: str) -> Lake:
    return Lake(shutil.copytree(plain.storage.uri, root))


def rows_of(lake: Lake, grain: Grain) -> pa.Table:
    return lake.tables.read(FACTS) if grain is Grain.WORKING else lake.tables.read(SUMMARIES, grain=grain.value)


@pytest.mark.parametrize("grain", list(Grain))
def test_valid_rows_pass(plain: Lake, grain: Grain) -> None:
    rows = rows_of(plain, grain)
    assert rows.num_rows
    validate_rows(grain, rows, rows.slice(0, 0))
    validate_rows(grain, rows.slice(0, 0), rows)
    assert are_sound(rows).all()


def test_only_changed_rows_are_validated(plain: Lake) -> None:
    rows = rows_of(plain, Grain.DAILY)
    changes: list[dict[str, Any]] = [
        {},
        {"content": "\n "},
        {"key_points": []},
        {"content": mark("x")},
        {"source_ids": []},
        {"key_points": [{**rows["key_points"][0].as_py()[0], "source_ids": []}]},
        {"key_points": [{**rows["key_points"][0].as_py()[0], "source_ids": ["", "#", "a#b"]}]},
        {},
    ]
    first = rows.to_pylist()[0]
    names = [f"daily:{first['period']}:{number}" for number in range(len(changes))]
    odd = [{**first, "id": names[number], "digest": f"{number}", **each} for number, each in enumerate(changes)]
    wrong = pa.Table.from_pylist(odd, schema=rows.schema)
    assert are_sound(wrong).tolist() == [True, False, False, False, False, False, False, True]
    assert [(fault.check, fault.ids) for fault in faults(wrong, wrong.slice(0, 0))] == [
        ("fed_back_recall", (names[3],)),
        ("empty_summaries", (names[1], names[2])),
        ("orphaned_sources", (names[4], names[5], names[6])),
    ]
    assert faults(wrong, wrong) == []
    twice = pa.concat_tables([wrong.slice(0, 1), wrong.slice(0, 1), wrong.slice(7)])
    assert are_sound(twice).tolist() == [False, False, True]
    assert [fault.ids for fault in faults(twice, twice)] == [(names[0], names[0])]


def test_an_error_names_a_few_partitions_and_counts_the_rest(plain: Lake) -> None:
    first = rows_of(plain, Grain.WORKING).to_pylist()[0]
    rows = [{**first, "period": f"2024-01-11T0{hour}", "content": mark("xylophone")} for hour in range(6)]
    wrong = pa.Table.from_pylist(
        [{**row, "id": row["period"], "digest": row["period"]} for row in rows], schema=FACTS.schema
    )
    with pytest.raises(QualityError, match=r"working 2024-01-11T00 fails fed_back_recall .*; and 3 more\. ") as refused:
        validate_rows(Grain.WORKING, wrong, wrong.slice(0, 0))
    assert "xylophone" not in str(refused.value)


def test_invalid_stored_rows_are_recomputed(whole: Lake, models: Models) -> None:
    before = table_rows(whole)
    plant(whole, FACTS, "2024-01-16T08", lambda rows: rows.append(rows[0]))
    plant(whole, SUMMARIES, "2024-01-16", lambda rows: rows[0].update(content=mark("Anna")), grain="daily")
    list(materialize(whole, models, Grain.WORKING, hours("2024-01-16T08")))
    list(materialize(whole, models, Grain.DAILY, DAY))
    assert table_rows(whole) == before


def test_an_invalid_partition_does_not_block_others(lake: Lake, models: Models) -> None:
    talks = [conversation("I like tea.", at=f"2024-01-{day}T08:00", conversation_id=f"c{day}") for day in range(12, 19)]
    write(lake, *talks)
    with pytest.raises(QualityError, match="2024-01-16T08"):
        run_one(lake, spoilt(models, Grain.WORKING, feed_back), Grain.WORKING)
    assert [hour.key for hour in lake.journal.pending_hours()] == ["2024-01-16T08"]
    assert len(lake.ledger.entries("working_facts")) == 6
    run_one(lake, models, Grain.WORKING)
    assert lake.journal.pending() == []
