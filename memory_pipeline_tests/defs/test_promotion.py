"""The asset of promotion in Dagster: its schedule, its metadata, and its place before consolidation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg

from memory_pipeline import Memory
from memory_pipeline.definitions import build_definitions
from memory_pipeline.lake.tables.ledger import CONSOLIDATION_ASSET
from memory_pipeline.settings import Settings
from memory_pipeline.steps.promotion import PROMOTION_ASSET
from memory_pipeline_tests.building import START

if TYPE_CHECKING:
    import pytest

    from memory_pipeline.models.factory import Models

NOON = datetime(2024, 1, 15, 12, tzinfo=UTC)


def test_the_nightly_job_promotes_once_and_says_how_many(
    root: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    memory = Memory(root, user_id="anna")
    short = memory.session("s1").short_term
    short.store("plan", "Anna wants the invoice by mail.", now=NOON)
    short.store("idle", "Nobody asked for this.", now=NOON)
    for _ in range(3):
        short.retrieve("plan", now=NOON)
    memory.pool("board").write("k", "four", now=NOON)
    definitions = build_definitions(Settings(root, START), models)
    assert definitions.resolve_schedule_def("session_promotions_nightly").cron_schedule == "10 0 * * *"
    node = definitions.resolve_asset_graph().get(dg.AssetKey(CONSOLIDATION_ASSET))
    assert dg.AssetKey(PROMOTION_ASSET) in node.parent_keys
    job = definitions.resolve_job_def("promote_sessions")
    found = []
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert job.execute_in_process(instance=instance).success
            event = instance.get_latest_materialization_event(dg.AssetKey(PROMOTION_ASSET))
            assert event is not None
            assert event.asset_materialization is not None
            found.append({name: value.value for name, value in event.asset_materialization.metadata.items()})
    assert found == [
        {"promoted": 1, "refused": 0, "expired": 1, "left_entries": 1, "left_bytes": 12},
        {"promoted": 0, "refused": 0, "expired": 0, "left_entries": 1, "left_bytes": 12},
    ]
    memory.run(now=datetime(2024, 1, 16, 6, tzinfo=UTC))
    assert [(each.content, each.version) for each in memory.reader.memories.list()] == [
        ("Anna wants the invoice by mail.", 1)
    ]
