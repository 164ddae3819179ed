"""Plant secrets in every way into a lake."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.errors import InputError
from memory_pipeline.lake import VectorCollection, VectorItem
from memory_pipeline.writer.files import ingest_file
from memory_pipeline_tests.secret_samples import SECRETS

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
PASSWORDS = tuple(f"Zq7-planted-{number:02}" for number in range(40))
PRIVATE = "planted-in-private"
CONFIGURATION = "config/workspaces.yaml"


def said(text: object, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def plant(memory: Memory, folder: Path) -> list[str]:
    """Write secrets in every way in; return them."""
    words = iter(PASSWORDS)
    at = NOW
    for kind, secret in SECRETS.items():
        at += timedelta(minutes=1)
        memory.add(f"For the {kind} I use {secret} now.", now=at)
    # Messages as chat clients and tools write them.
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "login", "arguments": json.dumps({"password": next(words)})},
    }
    memory.add(
        [
            said([{"type": "text", "text": f"The door code: my password is {next(words)}."}]),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"client_secret": f"{next(words)}-4f9a8b"})},
            said("I like tea.", metadata={"password": next(words)}),
            said(f"<private>{PRIVATE} one</private>"),
            said(f"I moved to Porto. <private>{PRIVATE} two</private> The passphrase is {next(words)}."),
        ],
        now=at,
    )
    memory.add(f"<private>{PRIVATE} three</private>", now=at)
    # Durable memories, contexts and the graph.
    learned = memory.remember(f"The router's password is {next(words)}.", now=at)
    memory.writer.update(learned, "The router is new.", reason=f"its password was {next(words)}", now=at)
    memory.writer.set_preference("anna", "wifi password", next(words), now=at)
    memory.contexts.create("travel", description=f"Bookings; the portal's password is {next(words)}.", now=at)
    memory.contexts.put("travel", "portal", f"password: {next(words)}", now=at)
    memory.writer.graph.insert("Anna", "password", next(words), now=at)
    memory.writer.graph.insert("Anna", "uses", f"password: {next(words)}", now=at)
    memory.facts.store(f"Ben's password is {next(words)}.", subject="Ben", now=at)
    with pytest.raises(InputError):
        memory.remember(f"<private>{PRIVATE} four</private>", now=at)
    # Sessions and pools.
    session = memory.session("s1")
    session.store("login", {"password": next(words)}, now=at)
    session.store("password", next(words), now=at)
    session.short_term.store("password", next(words), now=at)
    session.scratch_pad.append(f"The password is {next(words)}.", now=at)
    memory.pool("plans").write("access", f"password: {next(words)}", now=at)
    memory.pool("plans").write("password", next(words), now=at)
    # Files: a good record, one that is refused, and lines that are no JSON.
    stamp = (at + timedelta(minutes=2)).isoformat()
    header = {"workspace_id": "default", "agent_id": "default", "user_id": "anna"}
    lines = [
        json.dumps(
            {**header, "conversation_id": "f1", "messages": [said(f"password: {next(words)}", timestamp=stamp)]}
        ),
        json.dumps(
            {**header, "conversation_id": "f2", "messages": [said(f"password: {next(words)}", timestamp="never")]}
        ),
        json.dumps({**header, "conversation_id": "f3", "messages": f"password: {next(words)}"}),
        f'{{"messages": [{{"content": "password: {next(words)}"',
        f"no JSON at all, password: {next(words)}",
    ]
    file = folder / "talk.jsonl"
    file.write_text("\n".join(lines))
    ingest_file(memory.lake, file, Admission(memory.lake.accepts_from, at + timedelta(hours=1)))
    # Vectors of one's own.
    collection = VectorCollection.open(memory.lake.storage.uri, workspace_id="default", agent_id="default", dimension=2)
    collection.upsert([VectorItem("a", [1.0, 0.0], f"password: {next(words)}", {"password": next(words)})])
    # Reads.
    memory.search(f"What is behind the password: {next(words)}?", now=at)
    memory.context(f"My password is {next(words)}, remember?", now=at)
    return [*SECRETS.values(), *PASSWORDS, PRIVATE]


def configure(memory: Memory, text: str) -> Memory:
    memory.lake.ensure()
    memory.lake.storage.write(CONFIGURATION, text.encode())
    return Memory(memory.lake.storage.uri, user_id="anna")
