"""The routes: what the library does, over HTTP."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.parameters import prose_of
from memory_pipeline.service.routes import ROUTES
from memory_pipeline_tests.service.conftest import done

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from memory_pipeline.lake import Lake
    from memory_pipeline_tests.service.conftest import Connect


@pytest.fixture
def anna(connect: Connect) -> TestClient:
    return connect(user_id="anna")


def test_what_is_said_is_found_at_once(anna: TestClient) -> None:
    said = anna.post("/v1/memories", json={"messages": "I moved to Porto.", "conversation_id": "c1"})
    assert said.status_code == 201
    assert len(said.json()["accepted"]) == 1
    found = anna.post("/v1/search", json={"query": "Where does Anna live?"}).json()
    assert [hit["content"] for hit in found["items"]] == ["User: I moved to Porto."]
    assert found["total"] == 1
    text = anna.post("/v1/context", json={"query": "Where do I live?"}).json()
    assert "I moved to Porto." in text["block"]
    assert text["tokens"] > 0
    recalled = anna.post("/v1/recall", json={"query": "Where do I live?"}).json()
    assert "I moved to Porto." in recalled["text"]
    [message] = anna.get("/v1/conversations/c1").json()["items"]
    assert message["content"] == "I moved to Porto."
    [conversation] = anna.get("/v1/conversations").json()["items"]
    assert conversation["id"] == "c1"
    receipt = anna.get(f"/v1/receipts/{text['receipt_id']}").json()
    assert "I moved to Porto." in receipt["items"][0]["text"]
    [trace] = anna.get(f"/v1/memories/{message['id']}/trace").json()["items"]
    assert trace["state"] == "waiting"


def test_a_call_with_the_key_of_an_earlier_one_adds_nothing(anna: TestClient) -> None:
    for expected in (1, 0):
        answer = anna.post("/v1/memories", json={"messages": "Hello."}, headers={"Idempotency-Key": "k1"})
        assert len(answer.json()["accepted"]) == expected
    assert anna.post("/v1/search", json={"query": ""}).json()["total"] == 1


def test_a_durable_memory_is_changed_listed_and_deleted(anna: TestClient) -> None:
    identifier = anna.post("/v1/remember", json={"text": "Anna is vegetarian."}).json()["id"]
    assert anna.get(f"/v1/memories/{identifier}").json()["content"] == "Anna is vegetarian."
    changed = anna.patch(f"/v1/memories/{identifier}", json={"content": "Anna is vegan."})
    assert changed.json() == {"id": identifier}
    versions = anna.get(f"/v1/memories/{identifier}/history").json()["items"]
    assert [one["content"] for one in versions] == ["Anna is vegetarian.", "Anna is vegan."]
    assert [one["id"] for one in anna.get("/v1/memories?kind=memory").json()["items"]] == [identifier]
    assert anna.delete(f"/v1/memories/{identifier}").status_code == 204
    assert anna.get(f"/v1/memories/{identifier}").status_code == 404
    assert anna.get("/v1/memories?kind=memory").json()["items"] == []


def test_a_list_goes_on_at_its_cursor(anna: TestClient) -> None:
    for number in range(5):
        anna.post("/v1/memories", json={"messages": f"Parcel {number} has arrived."})
    seen: list[str] = []
    query = {"kind": "fact", "limit": "2"}
    while True:
        page = anna.get("/v1/memories", params=query).json()
        seen += [one["content"] for one in page["items"]]
        if page["cursor"] is None:
            break
        query["cursor"] = page["cursor"]
    assert sorted(seen) == [f"User: Parcel {number} has arrived." for number in range(5)]


def test_long_work_is_an_operation_and_its_plan_is_immediate(anna: TestClient, connect: Connect) -> None:
    anna.post("/v1/memories", json={"messages": "I moved to Porto.", "conversation_id": "c1"})
    plan = anna.post("/v1/forget", json={"conversation_id": "c1", "dry_run": True})
    assert plan.status_code == 200
    assert anna.post("/v1/search", json={"query": "Porto"}).json()["total"] == 1
    operation = done(anna, anna.post("/v1/forget", json={"conversation_id": "c1"}))
    assert (operation["status"], operation["problem"]) == ("succeeded", None)
    assert anna.post("/v1/search", json={"query": "Porto"}).json()["total"] == 0
    other = connect(user_id="bob")
    assert other.get(f"/v1/operations/{operation['id']}").status_code == 404


def test_a_statement_is_corrected_and_the_correction_undone(anna: TestClient) -> None:
    said = anna.post("/v1/memories", json={"messages": "I live in Faro."}).json()
    made = done(anna, anna.post("/v1/run", json={}))
    assert made["status"] == "succeeded", made
    result = done(anna, anna.post("/v1/correct", json={"id": said["accepted"][0], "text": "I live in Porto."}))[
        "result"
    ]
    assert "Porto" in anna.post("/v1/context", json={"query": "Where do I live?"}).json()["block"]
    [correction] = anna.get("/v1/corrections").json()["items"]
    assert correction["id"] == result["id"]
    assert done(anna, anna.post(f"/v1/corrections/{correction['id']}/undo", json={}))["status"] == "succeeded"
    assert "Faro" in anna.post("/v1/context", json={"query": "Where do I live?"}).json()["block"]


def test_a_failed_operation_says_why(anna: TestClient) -> None:
    operation = done(anna, anna.post("/v1/correct", json={"id": "message:2026-01-05T09:" + "0" * 32}))
    assert operation["status"] == "failed"
    assert operation["problem"]["type"].endswith("invalid-input")


def test_values_of_a_session(anna: TestClient) -> None:
    put = anna.put("/v1/sessions/s1/values/step", json={"value": {"number": 3}, "ttl": 60})
    assert put.status_code == 204
    assert anna.get("/v1/sessions/s1/values/step").json() == {"value": {"number": 3}}
    assert anna.get("/v1/sessions/s1").json() == {"step": {"number": 3}}
    assert anna.delete("/v1/sessions/s1/values/step").status_code == 204
    assert anna.get("/v1/sessions/s1/values/step").status_code == 404
    anna.put("/v1/sessions/s1/values/a", json={"value": 1})
    assert anna.delete("/v1/sessions/s1").json() == {"count": 1}


def test_the_graph_and_summaries(anna: TestClient, lake: Lake) -> None:
    messages = [{"role": "user", "content": "My sister Carla lives in Faro.", "timestamp": "2026-01-05T09:00:00Z"}]
    messages[0]["metadata"] = {"ticket": 7}  # type: ignore[assignment]  # all others are texts
    anna.post("/v1/memories", json={"messages": messages})
    assert done(anna, anna.post("/v1/run"))["status"] == "succeeded"
    facts = anna.get("/v1/graph/facts").json()
    assert facts["total"] == len(facts["items"]) > 0
    about = anna.get("/v1/graph/entities/Carla/facts").json()["items"]
    assert {"lives_in"} <= {one["label"] for one in about}
    fact = about[0]["id"]
    assert anna.get(f"/v1/graph/facts/{fact}").json()["id"] == fact
    assert anna.get("/v1/graph/entities/Carla").json()["name"] == "Carla"
    assert anna.get("/v1/graph/entities/Carla/neighbors").json()["total"] > 0
    near = anna.get("/v1/graph/entities/Carla/neighbors", params={"metadata": '{"ticket": 7}', "attributes": "true"})
    assert [one["attributes"]["metadata"] for one in near.json()["items"]] == [{"ticket": 7}] * 2
    assert anna.get("/v1/graph/facts", params={"metadata": '{"ticket": 8}'}).json()["total"] == 0
    assert anna.get("/v1/graph/facts", params={"metadata": "ticket"}).status_code == 422
    assert anna.post("/v1/graph/search", json={"query": "Where does Carla live?"}).json()["items"]
    [summary] = anna.get("/v1/summaries/daily/2026-01-05").json()["items"]
    assert "Faro" in summary["content"]
    assert [one["id"] for one in anna.get("/v1/summaries/daily").json()["items"]] == [summary["id"]]
    sources = anna.get(f"/v1/memories/{summary['id']}/sources").json()
    assert sources["sources"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/v1/memories/nothing", None, 404, "is not valid"),
        ("GET", "/v1/memories/memory:2026-01-05T09:" + "0" * 32, None, 404, "there is no memory"),
        ("GET", "/v1/summaries/daily/2026-13-77", None, 404, "not valid"),
        ("GET", "/v1/summaries/hourly/2026-01-01", None, 422, "grain"),
        ("GET", "/v1/graph/entities/Nobody", None, 404, "no entity"),
        ("GET", "/v1/nothing", None, 404, "Not Found"),
        ("PUT", "/v1/memories", None, 405, "Not Allowed"),
        ("POST", "/v1/search", {"query": "x", "limit": 0}, 422, "limit"),
        ("POST", "/v1/search", {"query": "x", "limt": 3}, 422, "limt"),
        ("POST", "/v1/search", {"query": "x", "since": "yesterday-ish"}, 422, "since"),
        ("POST", "/v1/search", {}, 422, "query"),
        ("POST", "/v1/search", [1], 422, "body"),
        ("POST", "/v1/memories", {"messages": [{"role": "user"}]}, 422, "content"),
        ("GET", "/v1/memories?cursor=x", None, 422, "cursor"),
    ],
)
def test_an_error_is_a_problem_that_names_the_value(
    anna: TestClient, method: str, path: str, body: Any, status: int, says: str
) -> None:
    answer = anna.request(method, path, json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:memory-pipeline:problem:")
    assert says in problem["detail"]


def test_bytes_that_are_no_json_are_refused(anna: TestClient) -> None:
    answer = anna.post("/v1/search", content=b"\xff{", headers={"Content-Type": "application/json"})
    assert answer.status_code in {400, 422}
    assert answer.json()["type"].startswith("urn:")


def test_a_refused_method_names_those_of_the_path(anna: TestClient) -> None:
    allowed = anna.put("/v1/memories/x", json={}).headers["Allow"]
    assert {"GET", "PATCH", "DELETE"} <= set(allowed.split(", "))


def test_the_document_describes_each_route_by_its_method(anna: TestClient) -> None:
    document = anna.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    for route in ROUTES:
        path = "/".join(part.partition(":")[0] + ("}" if ":" in part else "") for part in route.path.split("/"))
        described = document["paths"][path][route.verb.lower()]
        assert described["operationId"] == route.operation
        assert described["description"] == (route.help or prose_of(inspect.unwrap(route.function)))
        assert described["responses"]["422"]["content"]["application/problem+json"]
    ids = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(ids)) == len(ids)
    assert schemas["Hit"]["properties"]["starts_at"]["format"] == "date-time"
    assert "key" not in schemas["Scope"]["properties"]
    search = schemas["SearchArguments"]["properties"]
    assert search["limit"]["maximum"] == 100
    assert "best matches" in document["paths"]["/v1/search"]["post"]["description"]


def test_the_documentation_loads_nothing_from_elsewhere(anna: TestClient) -> None:
    page = anna.get("/docs").text
    assert "http://" not in page
    assert "https://" not in page
    assert anna.get("/static-offline-docs/swagger-ui-bundle.js").status_code == 200
