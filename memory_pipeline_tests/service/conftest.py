"""A service in this process, its tokens, and a client of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.tokens import ServiceToken
from memory_pipeline.lake import Lake
from memory_pipeline.service.app import service_app

AGENT = Scope("acme", "support")
#: Makes a token of the agent and returns its text. Takes the arguments of `ServiceToken.new`.
MakeToken = Callable[..., str]
#: Returns a client that sends a token. Takes the arguments of `MakeToken`.
Connect = Callable[..., TestClient]


def token_in(lake: Lake, level: str = "admin", scope: Scope = AGENT, **options: Any) -> str:
    """Make a token; return its text."""
    lake.ensure()
    token, text = ServiceToken.new(scope, level, datetime.now(UTC), **options)
    lake.tokens.add(token)
    return text


@pytest.fixture
def lake(root: str) -> Lake:
    return Lake(root)


@pytest.fixture
def connect(lake: Lake) -> Iterator[Connect]:
    """Clients of one service, each with a token of its own."""
    with ExitStack() as stack:
        app = service_app(Lake(lake.storage.uri), rate=0)
        stack.enter_context(TestClient(app))

        def connected(level: str = "admin", **options: Any) -> TestClient:
            text = token_in(lake, level, **options)
            return TestClient(app, headers={"Authorization": f"Bearer {text}"}, raise_server_exceptions=False)

        yield connected


def done(client: TestClient, answer: Any) -> dict[str, Any]:
    """Wait for the operation of an answer; return it."""
    assert answer.status_code == 202, answer.text
    for _ in range(3_000):
        found: dict[str, Any] = client.get(answer.headers["Location"]).json()
        if found["status"] != "running":
            return found
        time.sleep(0.02)
    raise AssertionError("the operation did not end")
