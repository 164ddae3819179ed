"""Values of any type and shape as arguments: each is refused with one of the errors of the package, or accepted."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import MemoryPipelineError

if TYPE_CHECKING:
    from collections.abc import Callable


def _cursor(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


DEEP = "[" * 20_000
HOSTILE: tuple[Any, ...] = (
    [], {}, ("a",), 5, True, None, b"x", float("nan"), object(), "", "\0", "\ud800", "x" * 300, DEEP,
    _cursor(DEEP), _cursor(json.dumps(["durable", {}, "2024-01-01", "2024-01-01"])), _cursor("[[], 1]"),
)  # fmt: skip
CALLS: dict[str, Callable[[Memory, Any], object]] = {
    "list: cursor": lambda memory, value: memory.list(cursor=value),
    "list: kind": lambda memory, value: memory.list(value),
    "history": lambda memory, value: memory.history(value),
    "forget": lambda memory, value: memory.forget(value),
    "search: grain": lambda memory, value: memory.search("x", grain=value),
    "search: tiers": lambda memory, value: memory.search("x", tiers=value),
    "search: person": lambda memory, value: memory.search("x", person=value),
    "search: since": lambda memory, value: memory.search("x", since=value),
    "search: limit": lambda memory, value: memory.search("x", value),
    "remember: kind": lambda memory, value: memory.remember("x", value),
    "conversation": lambda memory, value: memory.conversations.get(value),
    "expand": lambda memory, value: memory.reader.expand(value),
    "session": lambda memory, value: memory.session(value),
    "session: key": lambda memory, value: memory.session().store(value, 1),
    "pool": lambda memory, value: memory.pool(value),
    "facts about": lambda memory, value: memory.graph.facts_about(value),
    "context": lambda memory, value: memory.contexts.entries(value),
    "share": lambda memory, value: memory.writer.grant(value),
    "user": lambda memory, value: Memory(memory.lake.storage.uri, user_id=value),
    "timezone": lambda memory, value: Memory(memory.lake.storage.uri, timezone=value),
}


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = Memory(str(tmp_path_factory.mktemp("hostile") / "lake"), user_id="anna")
    memory.add("I moved to Porto.")
    return memory


@pytest.mark.parametrize("name", CALLS)
def test_no_argument_causes_an_error_of_python(memory: Memory, name: str) -> None:
    for value in HOSTILE:
        try:
            CALLS[name](memory, value)
        except MemoryPipelineError:
            continue
