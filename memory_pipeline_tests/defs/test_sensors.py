"""The journal sensor: exactly the hours that have files, in few runs, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.utils import make_new_run_id

from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.sensors import REQUEST_TAG
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import START, conversation, run, write
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from memory_pipeline.models.selection import Models


@pytest.fixture
def definitions(root: str, models: Models) -> dg.Definitions:
    return build_definitions(Settings(root, START), models)


def requests(definitions: dg.Definitions, instance: dg.DagsterInstance | None = None) -> list[dg.RunRequest]:
    sensor = definitions.resolve_sensor_def("journal_sensor")
    if instance is None:
        with dg.DagsterInstance.ephemeral() as fresh:
            return requests(definitions, fresh)
    context = dg.build_sensor_context(instance=instance, resources=dict(definitions.resources or {}))
    return list(sensor.evaluate_tick(context).run_requests or [])


def record_run(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    """Leave what the daemon leaves of a request: a run with its tags, in some status."""
    tags = {**request.tags, "dagster/run_key": str(request.run_key), "dagster/sensor_name": "journal_sensor"}
    run = dg.DagsterRun(
        job_name="remember_hours", run_id=make_new_run_id(), status=status, tags=tags, run_config=request.run_config
    )
    instance.add_run(run)


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


def test_what_failed_is_asked_for_again_after_a_wait_that_grows(
    definitions: dg.Definitions, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Lake(root), talk(datetime(2024, 5, 1, 22, tzinfo=UTC)))
    with dg.DagsterInstance.ephemeral() as instance:
        [first] = requests(definitions, instance)
        record_run(instance, first, dg.DagsterRunStatus.FAILURE)
        assert requests(definitions, instance) == []
        monkeypatch.setattr("memory_pipeline.defs.sensors._WAIT", timedelta(0))
        [second] = requests(definitions, instance)
    assert (first.run_key, second.run_key) == (f"{first.tags[REQUEST_TAG]}:1", f"{first.tags[REQUEST_TAG]}:2")


@pytest.mark.parametrize("count", [1, 20], ids=["a range", "listed hours"])
def test_hours_that_a_run_is_making_are_left_to_it(definitions: dg.Definitions, root: str, count: int) -> None:
    first = datetime(2024, 5, 1, 22, tzinfo=UTC)
    write(Lake(root), *(talk(first + timedelta(days=9 * n)) for n in range(count)))
    with dg.DagsterInstance.ephemeral() as instance:
        [request] = requests(definitions, instance)
        record_run(instance, request, dg.DagsterRunStatus.STARTED)
        assert requests(definitions, instance) == []
        write(Lake(root), talk(datetime(2024, 8, 8, tzinfo=UTC)))
        [another] = requests(definitions, instance)
    assert ranges([another]) == [("2024-08-08T00", "2024-08-08T00")]


def test_hours_before_the_first_day_or_in_the_future_are_not_asked_for(root: str, models: Models) -> None:
    write(Lake(root), talk(datetime(2024, 5, 1, tzinfo=UTC)))
    from datetime import date

    assert requests(build_definitions(Settings(root, date(2029, 1, 1)), models)) == []


def healing(definitions: dg.Definitions, instance: dg.DagsterInstance) -> dg.RunRequest | None:
    sensor = definitions.resolve_sensor_def("healing_sensor")
    context = dg.build_sensor_context(instance=instance, resources=dict(definitions.resources or {}))
    found = sensor.evaluate_tick(context).run_requests or []
    assert len(found) <= 1
    return found[0] if found else None


def test_what_a_model_left_unfinished_is_asked_for_again_from_fine_to_coarse_and_not_too_often(root: str) -> None:
    lake = Lake(root)
    definitions = build_definitions(Settings(root, START))
    talks = [conversation("I moved to Porto.", at=f"2024-0{month}-10T08:00", conversation_id=f"c{month}")
             for month in (1, 2)]  # fmt: skip
    with OpenAIServer() as server, dg.DagsterInstance.ephemeral() as instance:
        server.answer = oracle.answer
        oracle.configure(lake, server)
        write(lake, *talks)
        assert healing(definitions, instance) is None  # nothing has been made: the journal's sensor asks
        server.faults = [Fault("500", times=None)]
        run(lake, oracle.models_at(lake))
        assert requests(definitions, instance) == []  # no file is pending

        request = healing(definitions, instance)
        assert request is not None
        assert request.job_name == "finish_working"
        config = request.run_config["ops"]["make_working"]["config"]
        assert config == {"periods": ["2024-01-10T08", "2024-02-10T08"]}
        run_ = dg.DagsterRun(job_name="finish_working", run_id=make_new_run_id(), tags=dict(request.tags))
        instance.add_run(run_)
        assert healing(definitions, instance) is None  # it was asked a moment ago

        server.faults = []
        job = definitions.resolve_job_def("finish_working")
        done = job.execute_in_process(run_config=request.run_config, instance=instance, tags=dict(request.tags))
        assert done.success
        [made] = [
            event.step_materialization_data.materialization
            for event in done.all_events
            if event.is_step_materialization and event.asset_key == dg.AssetKey("working_facts")
            and event.partition == "2024-01-10T08"
        ]  # fmt: skip
        assert (made.metadata["calls"].value, made.metadata["fallbacks"].value) == (1, 0)
        assert made.metadata["cost_usd"].value > 0  # type: ignore[operator]  # a number
        request = healing(definitions, instance)
        assert request is not None
        assert (request.job_name, ranges([request])) == ("finish_daily", [("2024-01-10", "2024-02-10")])
