"""What an operator's tools ask."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from memory_pipeline.service.app import service_app
from memory_pipeline_tests.building import ACME, conversation, write
from memory_pipeline_tests.service.conftest import done, token_in

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline_tests.service.conftest import Connect


def test_health_and_version_need_no_token(lake: Lake) -> None:
    client = TestClient(service_app(lake))
    assert client.get("/health/live").json() == {"status": "ok"}
    assert client.get("/health/ready").json() == {"status": "ok"}
    assert client.get("/version").json()["version"]


def test_it_is_not_ready_where_nothing_can_be_written(lake: Lake) -> None:
    client = TestClient(service_app(lake))
    lake.ensure()
    folder = lake.storage.uri
    shutil.rmtree(folder)
    with open(folder, "w"):  # noqa: PTH123  # a file where the folder was
        pass
    answer = client.get("/health/ready")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert client.get("/health/live").status_code == 200


def test_a_scrape_is_parsed_and_counts(connect: Connect, lake: Lake) -> None:
    write(lake, conversation("I moved to Porto.", scope=ACME))
    client = connect(is_for_many_users=True)
    user = {"X-Memory-User": "anna"}
    for _ in range(3):
        client.post("/v1/search", json={"query": "Porto"}, headers=user)
    client.post("/v1/search", json={}, headers=user)
    families = {one.name: one for one in text_string_to_metric_families(client.get("/metrics", headers=user).text)}
    counted = {
        (one.labels["operation"], one.labels["result"]): one.value
        for one in families["memory_pipeline_operations"].samples
        if one.name.endswith("_total")
    }
    assert counted["search", "ok"] == 3
    assert counted["search", "client_error"] == 1
    assert families["memory_pipeline_operation_duration_seconds"].type == "histogram"
    assert families["memory_pipeline_pending_files"].samples[0].value == 1
    due = {one.labels["grain"]: one.value for one in families["memory_pipeline_periods_due"].samples}
    assert due["working"] == 1
    late = {one.labels["grain"]: one.value for one in families["memory_pipeline_summary_delay_seconds"].samples}
    assert late["working"] > 0
    assert late["yearly"] == 0
    assert {
        "memory_pipeline_questions",
        "memory_pipeline_model_calls",
        "memory_pipeline_model_tokens",
    } <= families.keys()


def test_a_token_of_one_user_sees_no_metrics_of_all(connect: Connect) -> None:
    assert connect(user_id="anna").get("/metrics").status_code == 403


def test_after_a_run_nothing_is_due(lake: Lake) -> None:
    write(lake, conversation("I moved to Porto.", scope=ACME))
    headers = {"Authorization": f"Bearer {token_in(lake, is_for_many_users=True)}", "X-Memory-User": "anna"}
    with TestClient(service_app(lake, rate=0), headers=headers) as client:
        assert done(client, client.post("/v1/run"))["status"] == "succeeded"
        text = client.get("/metrics").text
    assert 'memory_pipeline_periods_due{grain="working"} 0.0' in text
    assert "memory_pipeline_pending_files 0.0" in text
