"""Duplicates, injected memory in rows, empty or long summaries, and fallbacks to rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from memory_pipeline.checks.quality import DUPLICATE_SHARE, FALLBACK_SHARE, FEWEST_DUPLICATES, LONGEST
from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.domain.text.recalled_text import mark
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.models.deterministic.summarization import DEFAULT_BUDGETS
from memory_pipeline_tests.building import hours
from memory_pipeline_tests.checks.planting import context, plant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

HOUR = "2024-01-15T08"
SECRET = "xylophone"


def repeated(times: int, **changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a function that adds duplicates of the first fact."""

    def change(rows: list[dict[str, Any]]) -> None:
        for number in range(times):
            rows.append({**rows[0], "id": f"working:{HOUR}:{number:032x}", **changes})

    return change


def changed(place: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a function that changes values of one row."""
    return lambda rows: rows[place].update(values)


def test_an_agent_that_repeats_itself_is_found(lake: Lake) -> None:
    rows = lake.tables.read(FACTS, [HOUR]).num_rows
    assert context(lake, "working_facts", "duplicate_share").passed
    plant(lake, FACTS, HOUR, repeated(FEWEST_DUPLICATES))
    finding = context(lake, "working_facts", "duplicate_share")
    assert (finding.offenders, finding.sample) == (1, (f"acme/support {HOUR}",))
    assert finding.numbers["duplicates"] == FEWEST_DUPLICATES > DUPLICATE_SHARE * (rows + FEWEST_DUPLICATES)
    assert finding.numbers["duplicate_share"] == FEWEST_DUPLICATES / finding.numbers["rows"]
    assert not finding.is_error
    assert context(lake, "working_facts", "duplicate_share", periods=hours("2024-02-20T09")).passed


def test_a_few_duplicate_facts_are_allowed(lake: Lake) -> None:
    plant(lake, FACTS, HOUR, repeated(FEWEST_DUPLICATES - 1))
    assert context(lake, "working_facts", "duplicate_share").passed


def test_a_turn_may_equal_its_fact_and_two_agents_may_say_the_same(lake: Lake) -> None:
    plant(lake, FACTS, HOUR, lambda rows: [row.update(content="Anna: I moved to Porto.") for row in rows])
    [turns, found] = (
        sum((kind == "turn") is is_turn for kind in lake.tables.read(FACTS, [HOUR])["kind"].to_pylist())
        for is_turn in (True, False)
    )
    assert context(lake, "working_facts", "duplicate_share").numbers["duplicates"] == turns - 1 + found - 1
    plant(lake, FACTS, "2024-02-20T09", lambda rows: [row.update(content="Ok.", kind="turn") for row in rows])
    agents = lake.tables.read(FACTS, ["2024-02-20T09"])["agent_id"].to_pylist()
    assert context(lake, "working_facts", "duplicate_share", periods=hours("2024-02-20T09")).numbers[
        "duplicates"
    ] == sum(agents.count(agent) - 1 for agent in set(agents))


def test_recalled_memory_is_found_wherever_it_is_stored(lake: Lake) -> None:
    places: list[tuple[str, TableSpec, dict[str, str]]] = [("messages", MESSAGES, {}), ("working_facts", FACTS, {})]
    places += [(f"{grain}_summaries", SUMMARIES, {"grain": grain.value}) for grain in SUMMARY_GRAINS]
    block = mark(f"the {SECRET} of Anna")
    for number, (asset, spec, fixed) in enumerate(places):
        assert context(lake, asset, "fed_back_recall").passed
        disguised = block.upper().replace("<", "&lt;") if number % 2 else block
        key = lake.tables.keys(spec, **fixed)[0]
        plant(lake, spec, key, changed(0, content=f"You said: {disguised}"), **fixed)
        finding = context(lake, asset, "fed_back_recall")
        assert (finding.offenders, finding.numbers["recalled"]) == (1, 1)
        assert finding.sample[0] in lake.tables.read(spec, [key], shard=None, **fixed)["id"].to_pylist()
        assert SECRET not in repr(finding.sample)
        assert finding.is_error


def test_talk_about_recalled_memory_is_not_recalled_memory(lake: Lake) -> None:
    plant(lake, FACTS, HOUR, lambda rows: rows[0].update(content="Anna: what is <recalled-memory> for?"))
    assert context(lake, "working_facts", "fed_back_recall").passed


def test_an_empty_summary_is_found(lake: Lake) -> None:
    assert context(lake, "weekly_summaries", "empty_summaries").passed
    changes: list[dict[str, Any]] = [{"content": ""}, {"content": " \n\t", "key_points": []}, {"content": "something"}]
    for change in changes:
        plant(lake, SUMMARIES, "2024-W08", changed(1, **change), grain="weekly")
        finding = context(lake, "weekly_summaries", "empty_summaries")
        assert (finding.offenders, finding.numbers["empty"], finding.numbers["rows"]) == (1, 1, 3)
        assert finding.sample[0].startswith("weekly:2024-W08:")
        assert finding.is_error


def test_a_summary_longer_than_its_agents_limit_is_found(lake: Lake, tmp_path: Path) -> None:
    most = int(LONGEST * DEFAULT_BUDGETS[Grain.DAILY])

    def write_long(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["content"] = "é" * (most + (row["agent_id"] == "sales"))

    assert context(lake, "daily_summaries", "long_summaries").passed
    plant(lake, SUMMARIES, "2024-02-20", write_long, grain="daily")
    finding = context(lake, "daily_summaries", "long_summaries")
    assert (finding.offenders, finding.numbers["longest_characters"]) == (1, most + 1)
    assert not finding.is_error
    file = tmp_path / "workspaces.yaml"
    agents = {"support": {"summaries": {"daily": {"length": 300}}}, "sales": {"summaries": {"daily": {"length": most}}}}
    file.write_text(yaml.safe_dump({"workspaces": {"acme": {"agents": agents}}}))
    lake.put_configuration(file)
    other = context(lake, "daily_summaries", "long_summaries")
    assert other.offenders == 1
    assert other.sample != finding.sample


@pytest.mark.parametrize("grain", [Grain.WORKING, Grain.MONTHLY])
def test_too_many_fallbacks_to_rules_are_found(lake: Lake, grain: Grain) -> None:
    spec, fixed = (FACTS, {}) if grain is Grain.WORKING else (SUMMARIES, {"grain": grain.value})
    asset = "working_facts" if grain is Grain.WORKING else f"{grain}_summaries"
    key = lake.tables.keys(spec, **fixed)[-1]
    fine = context(lake, asset, "fallbacks")
    assert fine.passed
    assert fine.numbers == {"asked": 0, "fallbacks": 0, "fallback_share": 0.0}

    def by_model(rows: list[dict[str, Any]]) -> None:
        rows[:] = [{**rows[0], "id": f"{number}", "model": "m"} for number in range(20)]
        for row in rows[: int(20 * FALLBACK_SHARE)]:
            row["fallback"] = "timeout"

    plant(lake, spec, key, by_model, **fixed)
    finding = context(lake, asset, "fallbacks")
    assert finding.passed
    assert finding.numbers == {"asked": 20, "fallbacks": 2, "fallback_share": 0.1}
    plant(lake, spec, key, lambda rows: rows[-1].update(fallback="timeout", model=None), **fixed)
    finding = context(lake, asset, "fallbacks")
    assert (finding.offenders, finding.sample) == (1, (f"{key}, 3 of 20",))
