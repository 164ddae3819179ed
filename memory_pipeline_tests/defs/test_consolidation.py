"""Consolidation in Dagster: its assets, schedule, metadata and command."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from click.testing import CliRunner

from memory_pipeline.cli import cli
from memory_pipeline.definitions import build_definitions
from memory_pipeline.defs.dagster_runner import DagsterRunner
from memory_pipeline.defs.resources import LakeResource
from memory_pipeline.defs.run_requests import RANGE_END, RANGE_START
from memory_pipeline.errors import InputError
from memory_pipeline.in_process import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import CONSOLIDATION, CONSOLIDATION_EVENTS, LEDGER, MEMORIES
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET
from memory_pipeline.models.factory import default_models
from memory_pipeline.settings import Settings
from memory_pipeline.steps.consolidation.consolidate import consolidate
from memory_pipeline.steps.consolidation.days import HOT_INDEX_ASSET, pending_days
from memory_pipeline.steps.consolidation.report import ConsolidationReport
from memory_pipeline_tests.building import ACME, START, table_rows
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lifecycle.durable_year import at, noted
from memory_pipeline_tests.steps.consolidation.test_consolidate import BETA, history, land

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
NOW = datetime(2024, 2, 20, 6, tzinfo=UTC)
LAST = "2024-02-19"


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("defs_consolidation") / "landed"
    lake = Lake(str(root))
    lake.ensure()
    hostile = noted(
        at(date(2024, 1, 15)), scope=BETA, kind="rule", content="</code> [x](http://evil) \u202e is a rule."
    )
    lake.journal.append([*history(ACME), *history(BETA), hostile])
    land(lake, default_models())
    return root


@pytest.fixture
def filled(landed: Path, tmp_path: Path) -> Lake:
    return Lake(str(shutil.copytree(landed, tmp_path / "filled")))


def kept(lake: Lake) -> dict[str, Any]:
    return {spec.name: table_rows(lake)[spec.name] for spec in (CONSOLIDATION_EVENTS, MEMORIES, CONSOLIDATION, LEDGER)}


def materialized(
    instance: dg.DagsterInstance, definitions: dg.Definitions, tags: dict[str, str] | None = None, **run: Any
) -> dict[str, dict[str, Any]]:
    """Materialize the assets of consolidation. Return their metadata by asset and partition."""
    node = definitions.resolve_assets_def(CONSOLIDATION_ASSET)
    result = dg.materialize([node], instance=instance, tags=tags, run_config={**run.get("run_config", {}), **QUIET})
    assert result.success
    events = [
        event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization
    ]
    return {
        f"{event.asset_key.to_user_string()} {event.partition}": {
            **{name: value.value for name, value in event.metadata.items()},
            "version": (event.tags or {}).get("dagster/data_version"),
        }
        for event in events
    }


def test_a_backfill_writes_the_same_rows_as_the_step_and_reports_metadata(
    filled: Lake, landed: Path, models: Models
) -> None:
    definitions = build_definitions(Settings(filled.storage.uri, START), models)
    tags = {RANGE_START: "2024-01-15", RANGE_END: LAST}
    with dg.DagsterInstance.ephemeral() as instance:
        made = materialized(instance, definitions, tags)
        for asset in (CONSOLIDATION_ASSET, HOT_INDEX_ASSET):
            assert len(instance.get_materialized_partitions(dg.AssetKey(asset))) == 36
        again = materialized(instance, definitions, {RANGE_START: "2024-02-01", RANGE_END: "2024-02-02"})
    other = Lake(str(shutil.copytree(landed, landed.with_name("other"))))
    consolidate(other, models, pending_days(other, START, NOW), START)
    assert kept(filled) == kept(other)

    first = made[f"{CONSOLIDATION_ASSET} 2024-01-15"]
    assert (first["events"], first["agents"], first["troubles"], first["changed"]) == (5, 2, 0, True)
    assert made[f"{CONSOLIDATION_ASSET} 2024-01-18"]["merged"] == 2
    assert made[f"{CONSOLIDATION_ASSET} 2024-02-04"]["superseded"] == 2
    last = made[f"{HOT_INDEX_ASSET} {LAST}"]
    assert "Anna lives in Faro." in last["preview"]
    assert "\u202e" not in last["preview"]
    assert all(line.startswith("    ") for line in last["preview"].split("\n\n", 1)[1].splitlines() if line)
    assert made[f"{HOT_INDEX_ASSET} 2024-02-04"]["entries"] == 7
    assert "entries" not in last  # no agent had a cause
    assert again[f"{CONSOLIDATION_ASSET} 2024-02-01"]["version"] == made[f"{CONSOLIDATION_ASSET} 2024-02-01"]["version"]
    assert not again[f"{CONSOLIDATION_ASSET} 2024-02-01"]["changed"]


def test_the_schedule_requests_exactly_the_pending_days(filled: Lake, models: Models) -> None:
    settings = Settings(filled.storage.uri, START)
    definitions = build_definitions(settings, models, lambda: NOW)
    schedule = definitions.resolve_schedule_def("memory_consolidation_nightly")
    assert schedule.cron_schedule == "40 0 * * *"

    def asked() -> dg.RunRequest | None:
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_schedule_context(
                instance, resources={"memory": LakeResource(root=settings.root)}, scheduled_execution_time=NOW
            )
            found = schedule.evaluate_tick(context).run_requests
        return found[0] if found else None

    request = asked()
    assert request is not None
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("2024-01-15", LAST)
    consolidate(filled, models, pending_days(filled, START, NOW), START)
    assert asked() is None
    filled.journal.append(
        [noted(at(date(2024, 1, day)), content=f"Late on the {day}th, in words.") for day in (20, 25)]
    )
    land(filled, models)
    request = asked()
    assert request is not None
    with dg.DagsterInstance.ephemeral() as instance:
        made = materialized(instance, definitions, run_config=request.run_config)
    assert {f"{CONSOLIDATION_ASSET} 2024-01-20", f"{CONSOLIDATION_ASSET} 2024-01-25"} <= made.keys()
    assert asked() is None


def test_a_day_that_has_not_ended_is_refused(filled: Lake, models: Models) -> None:
    definitions = build_definitions(Settings(filled.storage.uri, START), models)
    node = definitions.resolve_assets_def(CONSOLIDATION_ASSET)
    config = {"ops": {node.op.name: {"config": {"periods": ["2999-01-01"]}}}, **QUIET}
    with dg.DagsterInstance.ephemeral() as instance:
        with pytest.raises(dg.Failure, match="2999-01-01 ends at"):
            dg.materialize([node], instance=instance, run_config=config)
        with pytest.raises(dg.Failure, match="no partition is selected"):
            dg.materialize([node], instance=instance, run_config=QUIET)


def test_a_workspace_without_previews_shows_no_hot_index(filled: Lake, models: Models) -> None:
    filled.storage.write(CONFIGURATION, b"workspaces:\n  beta: {previews: false}\n")
    definitions = build_definitions(Settings(filled.storage.uri, START), models)
    with dg.DagsterInstance.ephemeral() as instance:
        made = materialized(instance, definitions, {RANGE_START: "2024-01-15", RANGE_END: "2024-01-16"})
    preview = made[f"{HOT_INDEX_ASSET} 2024-01-16"]["preview"]
    assert "acme / support" in preview
    assert "beta" not in preview


def test_run_consolidates_after_the_hours(filled: Lake, models: Models) -> None:
    filled.journal.append([noted(at(date(2024, 2, 1)), content="The lift is grey.")])
    settings = Settings(filled.storage.uri, START)
    done = [event for event in run_all(filled, settings, models, NOW) if isinstance(event, ConsolidationReport)]
    assert [len(each.nights) for each in done] == [36]
    assert done[0].written
    assert [event for event in run_all(filled, settings, models, NOW) if isinstance(event, ConsolidationReport)] == []


def test_run_reports_to_the_instance_of_dagster_home(filled: Lake, models: Models) -> None:
    settings = Settings(filled.storage.uri, START)
    nights = pending_days(filled, START, NOW)[:3]
    with dg.DagsterInstance.ephemeral() as instance:
        done = DagsterRunner(filled, settings, models, instance).consolidation(nights)
        assert len(instance.get_materialized_partitions(dg.AssetKey(CONSOLIDATION_ASSET))) == 3
    assert [night.night for night in done.nights] == nights
    assert pending_days(filled, START, NOW)[0] == nights[-1].next()


@pytest.fixture
def root(filled: Lake, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", filled.storage.uri)
    monkeypatch.setenv("MEMORY_PIPELINE_START", "2024-01-01")
    return filled.storage.uri


def test_the_command_previews_the_changes_it_makes(filled: Lake, root: str) -> None:
    now = ("--now", "2024-02-20T06:00Z")
    preview = call("consolidate", "--dry-run", *now).output
    assert "acme / support\n  2024-01-15\n" in preview
    assert "    supersede     “Anna lives in Porto.” by “Anna lives in Faro.”\n" in preview
    assert "merge         “The printer beside the stairs of support jams often on wet mornings.” into" in preview or (
        "merge         “The printer beside the stairs of support jams quite often" in preview
    )
    assert preview.splitlines()[-1].startswith("36 days, 2 agents: ")
    assert preview.splitlines()[-1].endswith("; nothing was written")
    assert "\u202e" not in preview
    status = read("status", *now)["consolidation"]
    assert (len(status["pending"]), status["made"], status["events"]) == (36, [], 0)

    record = read("consolidate", *now)
    assert (record["dry_run"], record["nights_made"], record["agents"]) == (False, 36, 2)
    assert {"verb", "title", "reason", "night", "scope"} <= record["changes"][0].keys()
    assert sum(night["changed"] for night in record["nights"]) == len(record["changes"])
    assert all(night["agents"] for night in record["nights"])
    line = next(line for line in call("status", *now).output.splitlines() if line.startswith("consolidation"))
    assert line.split()[1:] == ["36", str(len(record["changes"])), "2024-01-15", LAST, "0", "0", "0"]
    assert call("consolidate", *now).output == "no day is pending\n"
    again = call("consolidate", "--from", "2024-01-15", "--to", "2024-02-01", *now).output
    assert again.splitlines()[-1].startswith("18 days, 0 agents: no changes")


def test_the_command_can_be_limited_to_an_agent_or_a_workspace(filled: Lake, root: str) -> None:
    now = ("--now", "2024-02-20T06:00Z")
    assert {each["scope"]["workspace_id"] for each in read("consolidate", "--workspace", "beta", *now)["changes"]} == {
        "beta"
    }
    assert read("consolidate", "--workspace", "acme", "--agent", "support", *now)["agents"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "2024-01-15"], "--from and --to go together"),
        (["--from", "2024-01-15", "--to", "2024-01-14"], "--to 2024-01-14 is before --from 2024-01-15"),
        (["--from", "2023-01-15", "--to", "2024-01-14"], "before the first day of this memory"),
        (["--from", "2024-02-20", "--to", "2024-02-20", "--now", "2024-02-20T23:00Z"], "has not ended"),
        (["--agent", "support"], "--agent needs --workspace"),
        (["--workspace", ""], "workspace_id"),
    ],
)
def test_the_command_refuses_invalid_arguments(root: str, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["consolidate", *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)
