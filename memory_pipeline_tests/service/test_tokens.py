"""Tokens: whose memory they open, what they allow, when they end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.tokens import Right, ServiceToken
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake import tokens as token_files
from memory_pipeline.service.app import service_app
from memory_pipeline.service.routes import ROUTES, Route
from memory_pipeline_tests.service.conftest import AGENT, done, token_in

if TYPE_CHECKING:
    from memory_pipeline_tests.service.conftest import Connect

SECRET = "Quillon"


def test_nobody_comes_in_without_a_token(connect: Connect) -> None:
    client = connect()
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer mp_x"}, {"Authorization": "Basic YTpi"}):
        answer = client.get("/v1/memories", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    known = client.headers["Authorization"]
    assert client.get("/v1/memories", headers={"Authorization": known[:-1] + "!"}).status_code == 401
    other = known[:-2] + ("aa" if not known.endswith("aa") else "bb")
    assert client.get("/v1/memories", headers={"Authorization": other}).status_code == 401
    assert client.get("/v1/memories").status_code == 200


@pytest.mark.parametrize("level", list(Right))
def test_each_route_asks_for_its_level(connect: Connect, level: Right) -> None:
    client = connect(level, user_id="anna")
    for route in ROUTES:
        answer = client.request(route.verb, _path(route, "x"), json=_body(route))
        is_refused = answer.status_code == 403 and answer.json()["type"].endswith("not-allowed")
        assert is_refused is not level.allows(route.level), (route.path, answer.text)


def test_a_token_of_one_user_reaches_nothing_of_another(connect: Connect, lake: Lake) -> None:
    bob = Memory(lake, user_id="bob", agent_id=AGENT.agent_id, workspace_id=AGENT.workspace_id)
    said = bob.add(f"My password hint is {SECRET}.", conversation_id="bobs", now="2026-01-05T09:00Z")
    memory_id = bob.remember(f"Bob's dog is {SECRET}.", now="2026-01-05T09:00Z")
    bob.run(now="2026-01-08T09:00Z")
    bob.session("s").store("k", SECRET)
    receipt = bob.context(SECRET, now="2026-01-08T09:00Z").receipt_id
    fact = bob.search(SECRET)[0].id
    assert SECRET in str(bob.context(SECRET))
    anna = connect(user_id="anna")
    names = [memory_id, said.accepted[0], fact, "bobs", "s", "k", receipt, "Bob", "2026-01-05", "daily"]
    for route in ROUTES:
        for name in names:
            body = _body(route) | ({"query": SECRET} if "query" in _body(route) else {})
            for headers in ({}, {"X-Memory-User": "bob"}):
                answer = anna.request(route.verb, _path(route, name), json=body, headers=headers)
                assert answer.status_code != 500, answer.text
                assert SECRET not in answer.text, (route.path, name)
                if headers:
                    assert answer.status_code == 403
                if answer.status_code == 202:
                    assert SECRET not in json.dumps(done(anna, answer))
    for others in ({"users": ["anna", "bob"]}, {"group_id": "g", "users": ["bob"]}):
        assert anna.post("/v1/memories", json={"messages": "I am in.", **others}).status_code == 403
    spoof = {"messages": [{"role": "user", "content": "I am Bob.", "user_id": "bob"}]}
    assert anna.post("/v1/memories", json=spoof).status_code == 403
    for query in ({"person": "bob"}, {"conversation_id": "bobs"}, {"metadata": {"user_id": "bob"}}):
        assert SECRET not in anna.post("/v1/search", json={"query": SECRET, **query}).text
    assert bob.conversations.get("bobs")
    assert [one.content for one in bob.list("memory")] == [f"Bob's dog is {SECRET}."]


def test_what_is_shared_by_all_users_is_not_changed_for_one(connect: Connect, lake: Lake) -> None:
    agent = Memory(lake, agent_id=AGENT.agent_id, workspace_id=AGENT.workspace_id)
    said = agent.add("The depot closes at six.", source="feed", now="2026-01-05T09:00Z").accepted[0]
    held = agent.remember("The lift is out of order.", now="2026-01-05T09:00Z")
    agent.run(now="2026-01-08T09:00Z")
    wrong = agent.correct(agent.add("The depot closes at nine.", now="2026-01-06T09:00Z").accepted[0]).id
    before = [(one.id, one.content) for one in agent.list()], agent.corrections()
    anna = connect(user_id="anna")
    assert "six" in anna.post("/v1/search", json={"query": "When does the depot close?"}).text
    assert anna.post("/v1/correct", json={"id": said, "dry_run": True}).status_code == 200
    tries: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/v1/correct", {"id": said, "text": "The depot closes at ten."}),
        ("POST", "/v1/correct", {"id": held}),
        ("POST", "/v1/rollback", {"source": "feed"}),
        ("POST", f"/v1/corrections/{wrong}/undo", {}),
        ("PATCH", f"/v1/memories/{held}", {"content": "The lift works."}),
        ("DELETE", f"/v1/memories/{held}", {}),
    ]
    for method, path, body in tries:
        answer = anna.request(method, path, json=body)
        if answer.status_code == 202:
            assert done(anna, answer)["status"] == "failed", path
        else:
            assert answer.status_code in {403, 404, 422}, (path, answer.text)
    done(anna, anna.post("/v1/forget", json={"source": "feed"}))
    assert ([(one.id, one.content) for one in agent.list()], agent.corrections()) == before


def test_an_agent_token_does_not_speak_for_users(connect: Connect, lake: Lake) -> None:
    agent = connect()
    spoof = {"messages": [{"role": "user", "content": "I am Bob.", "user_id": "bob"}]}
    assert agent.post("/v1/memories", json=spoof).status_code == 403
    bob = Memory(lake, user_id="bob", agent_id=AGENT.agent_id, workspace_id=AGENT.workspace_id)
    assert not bob.search("Bob")


def test_a_token_for_many_users_names_the_user(connect: Connect) -> None:
    backend = connect(is_for_many_users=True)
    assert backend.get("/v1/memories").status_code == 400
    for user in ("anna", "bób"):
        headers = {"X-Memory-User": user.encode()}
        assert backend.post("/v1/memories", json={"messages": f"I am {user}."}, headers=headers).status_code == 201  # type: ignore[arg-type]  # httpx takes bytes
        found = backend.post("/v1/search", json={"query": ""}, headers=headers).json()["items"]  # type: ignore[arg-type]  # as above
        assert [one["content"] for one in found] == [f"User: I am {user}."]
        assert found[0]["identity"] == f"user:{user}"
    assert backend.get("/v1/memories", headers={"X-Memory-User": "a\x01b"}).status_code == 400


def test_a_token_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "REREAD", 0.0)
    client = TestClient(service_app(lake))
    short = token_in(lake, expires_at=datetime.now(UTC) + timedelta(seconds=0.3))
    answer = client.get("/v1/memories", headers={"Authorization": f"Bearer {short}"})
    assert answer.status_code == 200
    while datetime.now(UTC) < (lake.tokens.all()[0].expires_at or datetime.now(UTC)):
        pass
    assert client.get("/v1/memories", headers={"Authorization": f"Bearer {short}"}).status_code == 401
    lasting = token_in(lake)
    headers = {"Authorization": f"Bearer {lasting}"}
    assert client.get("/v1/memories", headers=headers).status_code == 200
    lake.tokens.revoke(lake.tokens.all()[-1].id)
    assert client.get("/v1/memories", headers=headers).status_code == 401


def test_the_lake_keeps_no_secret(lake: Lake) -> None:
    text = token_in(lake, name="ci")
    secret = text.split("_", 2)[2]
    for file in lake.storage.list("config"):
        assert secret.encode() not in (lake.storage.read(file.path) or b"")
    [token] = lake.tokens.all()
    assert (token.name, token.level) == ("ci", Right.ADMIN)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"user_id": "anna", "is_for_many_users": True}, "not for both"),
        ({"level": "root"}, "level 'root' is unknown; accepted: read, write, admin"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "is in the past"),
        ({"user_id": " "}, "user_id"),
    ],
)
def test_an_invalid_token_is_not_made(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        ServiceToken.new(AGENT, options.pop("level", "read"), datetime.now(UTC), **options)


def test_erasing_a_user_deletes_the_tokens_of_the_user(lake: Lake) -> None:
    token_in(lake, user_id="anna")
    token_in(lake, user_id="bob")
    token_in(lake, scope=Scope("acme", "other"), user_id="anna")
    anna = Memory(lake, user_id="anna", agent_id=AGENT.agent_id, workspace_id=AGENT.workspace_id)
    anna.add("I moved to Porto.", now="2026-01-05T09:00Z")
    anna.forget(everything=True)
    assert [(one.agent_id, one.user_id) for one in Lake(lake.storage.uri).tokens.all()] == [
        ("support", "bob"), ("other", "anna"),
    ]  # fmt: skip


def test_a_token_has_a_rate(lake: Lake) -> None:
    client = TestClient(service_app(lake, rate=1.0), headers={"Authorization": f"Bearer {token_in(lake)}"})
    statuses = [client.get("/v1/memories").status_code for _ in range(4)]
    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429
    assert client.get("/v1/memories").headers["Retry-After"]
    other = {"Authorization": f"Bearer {token_in(lake)}"}
    assert client.get("/v1/memories", headers=other).status_code == 200


def test_a_body_has_a_size(lake: Lake) -> None:
    client = TestClient(service_app(lake, max_bytes=1_000), headers={"Authorization": f"Bearer {token_in(lake)}"})
    answer = client.post("/v1/search", json={"query": "x" * 2_000})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
    parts = (b'{"query": "' if number == 0 else b"x" * 100 for number in range(100))
    answer = client.post("/v1/search", content=parts, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")


def test_without_tokens_only_this_machine_is_answered(lake: Lake) -> None:
    client = TestClient(service_app(lake, AGENT, allows_open=True), base_url="http://localhost")
    headers = {"X-Memory-User": "anna"}
    assert client.post("/v1/memories", json={"messages": "Hello."}, headers=headers).status_code == 201
    for forged in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        answer = client.post("/v1/search", json={"query": "Hello"}, headers=headers | forged)
        assert answer.status_code == 403, forged
    closed = TestClient(service_app(lake, AGENT), base_url="http://localhost")
    assert closed.get("/v1/memories", headers=headers).status_code == 401


def _path(route: Route, name: str) -> str:
    parts = [name if part.startswith("{") else part for part in route.path.split("/")]
    return "/".join(parts)


def _body(route: Route) -> dict[str, Any]:
    if route.operation == "run":
        return {"now": "2000-01-01"}
    return dict(route.example) | ({"dry_run": True} if "dry_run" in route.example else {})
