"""An agent's loop with LiteLLM, a server that calls tools, and memory that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools import MemoryTools, memory_tools
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, run
from memory_pipeline_tests.tools.remembering import SALES, SOON
from memory_pipeline_tests.tools.tool_server import ToolServer

if TYPE_CHECKING:
    from memory_pipeline.domain.scopes import Scope

Messages = list[Any]


@pytest.fixture(scope="module")
def litellm() -> Any:
    import litellm

    return litellm


def tools_on(root: str, scope: Scope = ACME, *, may_write: bool = False, strict: bool = False) -> MemoryTools:
    reader = MemoryReader(Lake(root), scope, default_models().embedder)
    return memory_tools(reader, MemoryWriter(Lake(root), scope) if may_write else None, now=SOON, strict=strict)


def ask(litellm: Any, server: ToolServer, tools: MemoryTools, messages: Messages, question: str) -> str:
    """Ask a question, run the tool calls and return the answer. Appends everything to `messages`."""
    messages.append({"role": "user", "content": question})
    for _ in range(20):
        reply = litellm.completion(
            "openai/test",
            messages,
            tools=tools.functions,
            api_base=server.base_url,
            api_key="k",
            num_retries=0,
            timeout=60,
        )
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        messages += [tools.dispatch(call) for call in message.tool_calls]
    raise AssertionError("the model never answered")


def test_the_answer_uses_memory(litellm: Any, remembered: str) -> None:
    rounds = [[("search_memories", {"query": "Where does Anna live?", "max_results": 1})]]
    with ToolServer(rounds) as server:
        answer = ask(litellm, server, tools_on(remembered), [], "Where do I live?")
        assert "Anna: I live in Lisbon now." in answer
        assert not server.refusals
        assert len(server.requests) == 2


@pytest.mark.parametrize("strict", [False, True])
def test_ten_rounds_of_valid_and_invalid_calls_are_answered(litellm: Any, remembered: str, strict: bool) -> None:
    rounds: list[list[tuple[str, dict[str, Any] | str]]] = [
        [("search_memories", {"query": "Porto"})],
        [("search_memories", {"query": "Porto", "grain": "hourly"})],
        [("search_memories", {"query": "Porto", "grain": "daily"}), ("recall_memory", {"query": "Porto"})],
        [("recall_memory", '{"query": "Por')],
        [("get_memory", {"id": "weekly:2024-W03:nothing"})],
        [("graph_facts", {"about": "Anna", "depth": 2})],
        [("search_memories", {"limit": 5})],
        [("search_memories", "")],
        [("recall_memory", {"query": None})],
        [("recall_memory", {"query": "What did Bruno eat?", "max_tokens": "300"})],
    ]
    with ToolServer(rounds) as server:
        messages: Messages = []
        answer = ask(litellm, server, tools_on(remembered, strict=strict), messages, "Tell me everything.")
        assert not server.refusals
        assert len(server.requests) == 11
    told = [message["content"] for message in messages if isinstance(message, dict) and message["role"] == "tool"]
    assert [text.startswith("Error: ") for text in told] == [
        False, True, False, False, True, True, False, True, False, True, False,
    ]  # fmt: skip
    assert "Bruno ate my passport." in answer


def test_agents_stay_separate_over_ten_turns(litellm: Any, remembered: str) -> None:
    rounds: list[list[tuple[str, dict[str, Any] | str]]] = [
        [("search_memories", {"maximum_days_ago": 365}), ("recall_memory", {"query": "Porto rent tea"})]
    ]
    theirs: dict[Scope, Messages] = {ACME: [], SALES: []}
    agents = {scope: tools_on(remembered, scope) for scope in theirs}
    with ToolServer(rounds) as server:
        for turn in range(10):
            for scope, messages in theirs.items():
                answer = ask(litellm, server, agents[scope], messages, f"Question {turn}: what do you know?")
                assert ("Porto" in answer) is (scope == ACME)
                assert ("900 euros" in answer) is (scope == SALES)
        assert not server.refusals


def test_recalled_text_in_a_loop_is_not_stored_again(litellm: Any, root: str) -> None:
    tools = tools_on(root, may_write=True)
    rounds: list[list[tuple[str, dict[str, Any] | str]]] = [
        [("add_memory", {"text": "Anna wants short answers."})],
        [("recall_memory", {"query": "What does Anna want?"})],
    ]
    messages: Messages = []
    with ToolServer(rounds) as server:
        answer = ask(litellm, server, tools, messages, "Keep it short, please.")
    assert "the assistant noted: Anna wants short answers." in answer
    # The agent writes the whole conversation: tool messages become no facts, and the answer repeats recalled text.
    said = [dict(message) for message in messages]
    at = SOON.isoformat()
    spoken = [{"role": one["role"], "content": one["content"], "timestamp": at} for one in said if one["content"]]
    writer = MemoryWriter(Lake(root), ACME)
    writer.write({"conversation_id": "loop", "messages": spoken}, now=SOON)
    run(Lake(root), default_models())
    reader = MemoryReader(Lake(root), ACME, default_models().embedder)
    [memory] = reader.memories.list()
    assert (memory.content, memory.version) == ("Anna wants short answers.", 1)
    assert sorted(hit.content for hit in reader.search_memory("working", 0, 365, 50, now=SOON)) == [
        f"Agent: I found: Remembered on 2024-03-02 ({memory.id}); recall_memory finds it at once.",
        "User: Keep it short, please.",
    ]
    assert without_recalled(tools.call("search_memories", {})) == ""
