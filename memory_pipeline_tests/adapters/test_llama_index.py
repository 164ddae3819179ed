"""The chat store of LlamaIndex, beside LlamaIndex's own. `dev` leaves it out: it brings 21 others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_pipeline import Memory

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore

from memory_pipeline.adapters.llama_index import MemoryChatStore


def message(role: str, text: str | None, **more: Any) -> ChatMessage:
    return ChatMessage(role=role, content=text, additional_kwargs=more)


SAID = [
    message("system", "Be brief."),
    message("user", "I moved to Porto."),
    message("assistant", None, tool_calls=[{"id": "c1", "function": {"name": "find", "arguments": "{}"}}]),
    message("tool", "in Portugal", tool_call_id="c1"),
    message("assistant", "Porto is in Portugal 🇵🇹."),
]


@pytest.fixture
def memory(root: str, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.delenv("MEMORY_PIPELINE_SESSIONS", raising=False)
    return Memory(root, user_id="anna")


def use(store: BaseChatStore) -> list[Any]:
    found: list[Any] = [[*store.get_messages("c1")], store.delete_last_message("c1"), store.delete_message("c1", 0)]
    for one in SAID:
        store.add_message("c1", one)
    asyncio.run(store.async_add_message("c2", SAID[1]))
    found += [[*store.get_messages("c1")], sorted(store.get_keys()), store.delete_message("c1", 3)]
    found += [store.delete_message("c1", 99), store.delete_last_message("c1"), [*store.get_messages("c1")]]
    store.set_messages("c1", SAID[1:3])
    found += [[*asyncio.run(store.aget_messages("c1"))], store.delete_messages("c1"), [*store.get_messages("c1")]]
    return [*found, store.get_messages("c2")]


def test_a_store_does_what_llama_indexs_own_does(memory: Memory) -> None:
    assert use(MemoryChatStore(memory)) == use(SimpleChatStore())


def test_a_chat_memory_keeps_its_history_in_it_and_memory_learns_what_was_said(memory: Memory, root: str) -> None:
    buffer = ChatMemoryBuffer.from_defaults(chat_store=MemoryChatStore(memory), chat_store_key="c1", token_limit=3_000)
    for one in SAID:
        buffer.put(one)
    again = MemoryChatStore(Memory(root, user_id="anna"))
    assert ChatMemoryBuffer.from_defaults(chat_store=again, chat_store_key="c1").get_all() == SAID
    said = [(one.role.value, one.content) for one in memory.conversations.get("c1")]
    assert said == [("user", "I moved to Porto."), ("assistant", "Porto is in Portugal 🇵🇹.")]
    assert MemoryChatStore(Memory(root, user_id="ben")).get_keys() == []
    MemoryChatStore(memory, learns=False).add_message("c9", SAID[1])
    assert memory.conversations.get("c9") == []
    memory.forget(everything=True)
    assert again.get_keys() == []
