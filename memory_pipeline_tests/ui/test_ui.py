"""The UI over a real lake in a real browser, and a backfill launched by clicking."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.storage.tags import BACKFILL_ID_TAG

from memory_pipeline.defs.partition_keys import Group
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.in_process import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.lake.tables.ledger import index_asset, table_asset
from memory_pipeline.settings import Settings
from memory_pipeline_tests.building import START, conversation, write
from memory_pipeline_tests.ui.deployment import REPOSITORY, prepare_home, running_dagster
from memory_pipeline_tests.ui.page import Page, missing_programs, opened_page

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models

HOSTILE = (
    "<b id=planted>Ben</b> said ![x](https://evil.example/x.png) [y](https://evil.example) https://evil.example ok."
)
GROUPS = list(Group)
ASSETS = [
    "messages",
    "graph_facts",
    "durable_memories",
    "working_memory",
    *map(table_asset, Grain),
    *map(index_asset, Grain),
]
#: Seconds for a backfill: the daemon finds it, starts a process and finds its end.
BACKFILL = 240

programs_are_there = pytest.mark.skipif(
    bool(missing_programs()),
    reason=f"{' and '.join(missing_programs())} not found; the UI is looked at where Debian's chromium and "
    "chromium-driver are installed",
)


@pytest.fixture
def pictures() -> Path:
    """The folder of screenshots."""
    folder = Path(os.environ.get("MEMORY_PIPELINE_ARTEFACTS", REPOSITORY / "artefacts")) / "ui"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    return folder


@pytest.fixture
def days() -> list[str]:
    """Ten closed days, oldest first: the UI plots the newest partitions."""
    today = datetime.now(UTC)
    return [f"{today - timedelta(days=number):%Y-%m-%d}" for number in range(12, 2, -1)]


@pytest.fixture
def home(root: str, days: list[str], models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Dagster instance with the runs of a small lake."""
    home = tmp_path / "dagster"
    prepare_home(home)
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    lake = Lake(root)
    said = [
        [f"I moved to Porto with dog number {number}." for number in range(1, size + 2)] for size in range(len(days))
    ]
    sales = Scope("acme", "sales")
    write(
        lake,
        *(conversation(*texts, at=f"{day}T08:00", conversation_id=day) for day, texts in zip(days, said, strict=True)),
        *(conversation(HOSTILE, at=f"{day}T09:00", conversation_id=day, scope=sales, name="Ben") for day in days),
        now=datetime.now(UTC),
    )
    list(run_all(lake, Settings(root, START, has_dagster_home=True), models, datetime.now(UTC)))
    return home


@pytest.mark.slow_environment
@programs_are_there
def test_the_ui_shows_memory_and_launches_a_backfill(
    home: Path, root: str, days: list[str], pictures: Path, tmp_path: Path
) -> None:
    with (
        running_dagster(home, root, pictures / "dagster-dev.log") as address,
        opened_page(address, tmp_path / "profile", pictures) as page,
    ):
        look_at_the_graph(page)
        look_at_an_asset(page)
        look_at_a_partition(page, days[4])
        backfill = launch_a_backfill(page, days[3], days[5])
        page.see("Succeeded", "100% completed", seconds=BACKFILL)
        page.picture("08-backfill")
        assert planned_events(backfill) == {"daily_summaries": 1, "daily_index": 1}
        page.open("/runs")
        page.see(backfill)
        page.picture("09-runs")
        page.open(f"/assets/daily_summaries?view=partitions&partition={days[4]}")
        page.see("View all historical events (2)")


def planned_events(backfill: str) -> Counter[str]:
    """Count the events by asset that Dagster wrote before the backfill's only run started."""
    with dg.DagsterInstance.get() as instance:
        [run] = instance.get_runs(dg.RunsFilter(tags={BACKFILL_ID_TAG: backfill}))
        planned = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
        keys = [entry.dagster_event.asset_key for entry in planned if entry.dagster_event]
        return Counter(key.to_user_string() for key in keys if key)


def look_at_the_graph(page: Page) -> None:
    page.open("/asset-groups")
    page.see(*GROUPS)
    # Once in the sidebar, once in the graph.
    page.until(lambda: all(len(page.find(f"//*[text()='{group}']")) > 1 for group in GROUPS), "all groups are drawn")
    page.picture("01-lineage")
    page.open("/locations/memory_pipeline.definitions/asset-groups/2_grains/lineage")
    page.see("working_facts")
    page.picture("02-working-memory")
    page.driver.set_window_size(1600, 2400)  # rows outside of the window are not rendered
    page.open("/assets")
    page.see(*ASSETS)
    page.picture("03-catalog")
    page.driver.set_window_size(1600, 1300)


def look_at_an_asset(page: Page) -> None:
    page.open("/assets/daily_summaries")
    page.see("One summary per agent and day, from working_facts.", "2_grains", "grain: daily", "Delta Lake")
    page.see("key_points", "Sentences with sources, time (UTC), importance and entities.", "non-nullable")
    page.picture("04-daily-summaries")
    page.click_text("Plots")
    page.see("rows", "agents", "tokens_in", "tokens_out", "cost_usd", "compression", "fallbacks", "seconds", "bytes")
    page.until(lambda: len(page.find("//canvas")) >= 9, "the numbers are plotted")
    page.scroll_to("Plots")
    page.picture("05-plots")


def look_at_a_partition(page: Page, day: str) -> None:
    page.open(f"/assets/daily_summaries?view=partitions&partition={day}")
    page.see("Materialized (10)", "First points of the summaries of 2 agents:", "View all historical events (1)")
    # Days have hours without messages. They are complete.
    assert not page.shows("Unsynced")
    [shown] = page.find("//pre[contains(., 'acme / support')]")
    assert f"{day} Anna: I moved to Porto with dog number 1." in shown.text
    assert "![x](https://evil.example/x.png)" in shown.text.replace("\n    ", " ")
    assert not page.find("//*[@id='planted'] | //img[contains(@src, 'evil')] | //a[contains(@href, 'evil')]")
    page.picture("06-partition")


def launch_a_backfill(page: Page, first: str, last: str) -> str:
    """Launch a backfill of days in the UI. Return its id, with its page open."""
    page.open("/assets/daily_summaries")
    page.click("//button[contains(., 'Materialize')]")
    page.see("daily_index")  # a dialog says that the same step writes it
    page.click("//*[@role='dialog']//button[contains(., 'Confirm')]")
    page.fill("//*[@role='dialog']//input[@type='text']", f"[{first}...{last}]")
    page.see("3 partitions")
    page.picture("07-backfill-dialog")
    page.click("//*[@role='dialog']//button[contains(., 'Launch backfill')]")
    page.see("Created backfill")
    page.click("//button[normalize-space(.) = 'View'] | //a[normalize-space(.) = 'View']")
    page.until(lambda: "/runs/b/" in page.driver.current_url, "the backfill's page is open")
    page.see("Partition selection", f"{first}...{last}")
    return page.driver.current_url.rpartition("/")[2]
