"""The journal sensor: exactly the hours that have files, in few runs, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from memory_pipeline.definitions import build_definitions
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import START, conversation, run, write

if TYPE_CHECKING:
    from memory_pipeline.models.selection import Models


@pytest.fixture
def definitions(root: str, models: Models) -> dg.Definitions:
    return build_definitions(Settings(root, START), models)


def requests(definitions: dg.Definitions) -> list[dg.RunRequest]:
    sensor = definitions.resolve_sensor_def("journal_sensor")
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, resources=dict(definitions.resources or {}))
        return list(sensor.evaluate_tick(context).run_requests or [])


def ranges(found: list[dg.RunRequest]) -> list[tuple[str, str]]:
    return [(r.tags["dagster/asset_partition_range_start"], r.tags["dagster/asset_partition_range_end"]) for r in found]


def talk(at: datetime) -> dict[str, object]:
    return conversation("I like tea.", at=at.strftime("%Y-%m-%dT%H:%M"), conversation_id=at.strftime("%Y%m%d%H"))


def test_an_empty_journal_asks_for_nothing(definitions: dg.Definitions) -> None:
    assert requests(definitions) == []


def test_consecutive_hours_are_one_range(definitions: dg.Definitions, root: str) -> None:
    first = datetime(2024, 5, 1, 22, tzinfo=UTC)
    write(Lake(root), *(talk(first + timedelta(hours=n)) for n in range(4)), talk(first + timedelta(hours=9)))
    assert ranges(requests(definitions)) == [("2024-05-01T22", "2024-05-02T01"), ("2024-05-02T07", "2024-05-02T07")]


def test_scattered_hours_are_listed_in_one_run(definitions: dg.Definitions, root: str) -> None:
    first = datetime(2024, 5, 1, 22, tzinfo=UTC)
    write(Lake(root), *(talk(first + timedelta(days=9 * n)) for n in range(20)))
    [request] = requests(definitions)
    listed = request.run_config["ops"]["make_working"]["config"]["periods"]
    assert listed == [f"{first + timedelta(days=9 * n):%Y-%m-%dT%H}" for n in range(20)]


def test_the_same_files_ask_once_and_a_new_one_again(definitions: dg.Definitions, root: str, models: Models) -> None:
    at = datetime(2024, 5, 1, 22, tzinfo=UTC)
    write(Lake(root), talk(at))
    [first], [same] = requests(definitions), requests(definitions)
    assert first.run_key == same.run_key
    write(Lake(root), conversation("More.", at="2024-05-01T22:30", conversation_id="more"))
    [second] = requests(definitions)
    assert second.run_key != first.run_key
    run(Lake(root), models)
    assert requests(definitions) == []


def test_hours_before_the_first_day_or_in_the_future_are_not_asked_for(root: str, models: Models) -> None:
    write(Lake(root), talk(datetime(2024, 5, 1, tzinfo=UTC)))
    from datetime import date

    assert requests(build_definitions(Settings(root, date(2029, 1, 1)), models)) == []
