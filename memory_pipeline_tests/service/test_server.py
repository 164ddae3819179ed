"""The service as a process: killed, over TLS, with an MCP client, where it must not listen."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import httpx
import httpx2
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from memory_pipeline import Memory
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.service.conftest import AGENT, token_in
from memory_pipeline_tests.service.running import RunningService, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from memory_pipeline.lake import Lake


def test_a_kill_loses_nothing_that_was_acknowledged(lake: Lake, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {token_in(lake, is_for_many_users=True)}"}
    acknowledged: dict[str, list[str]] = {f"user{number}": [] for number in range(6)}

    def talk(url: str, user: str) -> None:
        with httpx.Client(base_url=url, headers={**headers, "X-Memory-User": user}) as client:
            for number in range(10_000):
                try:
                    answer = client.post("/v1/memories", json={"messages": f"Box {number} of {user} is full."})
                except httpx.TransportError:
                    return
                if answer.status_code == 201:
                    acknowledged[user] += answer.json()["accepted"]

    with RunningService(lake.storage.uri, tmp_path, "--rate", "0") as service:
        threads = [threading.Thread(target=talk, args=(service.url, user)) for user in acknowledged]
        for thread in threads:
            thread.start()
        while sum(map(len, acknowledged.values())) < 60:
            assert service.process.poll() is None
        service.process.kill()
        for thread in threads:
            thread.join()
    for user, ids in acknowledged.items():
        memory = Memory(lake.storage.uri, user_id=user, agent_id=AGENT.agent_id, workspace_id=AGENT.workspace_id)
        stored = {source for hit in memory.reader.newest("working", 10_000) for source in hit.source_ids}
        assert set(ids) <= stored


def test_an_mcp_client_reads_and_writes_the_memory_of_its_token(lake: Lake, tmp_path: Path) -> None:
    @asynccontextmanager
    async def connected(url: str, text: str) -> AsyncIterator[ClientSession]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {text}"}) as http,
            streamable_http_client(f"{url}/mcp", http_client=http) as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            yield session

    async def called(session: ClientSession, name: str, given: dict[str, object]) -> str:
        [content] = (await session.call_tool(name, given)).content
        assert isinstance(content, TextContent)
        return content.text

    async def talk(url: str) -> None:
        anna, bob, guest = (
            token_in(lake, "write", user_id="anna"), token_in(lake, "write", user_id="bob"),
            token_in(lake, "read", user_id="anna"),
        )  # fmt: skip
        async with connected(url, anna) as session:
            names = [one.name for one in (await session.list_tools()).tools]
            assert {"add_memory", "search_memories", "list_memories", "update_memory", "delete_memory"} <= set(names)
            assert "search_memory" not in names
            assert "Remembered" in await called(session, "add_memory", {"text": "Anna plays the cello."})
            assert "cello" in await called(session, "recall_memory", {"query": "What does Anna play?"})
        async with connected(url, bob) as session:
            assert "cello" not in await called(session, "recall_memory", {"query": "What does Anna play?"})
        async with connected(url, guest) as session:
            assert "add_memory" not in [one.name for one in (await session.list_tools()).tools]
            assert "cello" in await called(session, "search_memories", {"query": "cello"})
            assert "unknown" in await called(session, "add_memory", {"text": "Anna plays the lute."})

    with RunningService(lake.storage.uri, tmp_path) as service:
        anyio.run(talk, service.url)
        refused = httpx.post(f"{service.url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert refused.status_code == 401
        assert service.stop() in {0, -signal.SIGTERM}  # uvicorn ends by the signal, once all requests have ended
    records = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"mcp", "live"} <= {one["operation"] for one in records}
    assert "cello" not in service.log.read_text()
    assert "anna" not in service.log.read_text()


def test_tls(lake: Lake, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    try:
        subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is missing, which makes a certificate")
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with RunningService(lake.storage.uri, tmp_path, *options, scheme="https") as service:
        assert httpx.get(f"{service.url}/version", verify=False).json()["version"]


def test_where_it_does_not_listen(lake: Lake, tmp_path: Path) -> None:
    root = lake.storage.uri
    refused = call("serve", "--root", root, "--host", "0.0.0.0", "--port", str(free_port()))
    assert refused.exit_code != 0
    assert "there are no tokens; make one with `memory-pipeline tokens create`" in str(refused.exception)
    assert "serving" not in refused.output
    half = call("serve", "--root", root, "--port", str(free_port()), "--tls-key", str(tmp_path / "key.pem"))
    assert "TLS needs a certificate and its key" in str(half.exception)


def test_tokens_are_made_listed_and_revoked(lake: Lake) -> None:
    of_agent = ["--root", lake.storage.uri, "--workspace", "acme", "--agent", "support"]
    made = read("tokens", "create", *of_agent, "--user", "anna", "--level", "read", "--name", "phone")
    assert made["token"].startswith("mp_")
    assert lake.tokens.exist()
    [listed] = read("tokens", "list", "--root", lake.storage.uri)
    assert (listed["id"], listed["level"], listed["users"]) == (made["id"], "read", "user anna")
    assert made["token"] not in call("tokens", "list", "--root", lake.storage.uri).output
    assert "there is no token with id" in str(call("tokens", "revoke", "x", "--root", lake.storage.uri).exception)
    read("tokens", "revoke", made["id"], "--root", lake.storage.uri)
    assert read("tokens", "list", "--root", lake.storage.uri) == []
