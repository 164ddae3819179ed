"""A trace tells what became of a message, before and after the pipeline has read it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline.client.tracing import MessageTrace

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
SAID = [
    {"role": "user", "content": "I live in Porto. What a day!"},
    {"role": "assistant", "content": "Noted."},
    {"role": "tool", "tool_call_id": "c", "content": "12 degrees"},
    {"role": "user", "content": "Hm, ok."},
]


@pytest.fixture
def memory(root: str) -> Memory:
    memory = Memory(root, user_id="anna")
    memory.add(SAID, conversation_id="talk", now=NOW)
    return memory


def learned(one: MessageTrace) -> set[str]:
    return {each.what for each in one.learned}


def test_a_waiting_message_is_read_by_the_rules(memory: Memory) -> None:
    first, answer, tool, last = memory.trace("talk")
    assert (first.state, last.state) == ("waiting", "waiting")
    assert first.read_by is not None
    assert "deterministic" in first.read_by
    assert "fact" in learned(first)
    assert "role tool" in tool.why_nothing
    assert (answer.learned, last.learned) == ((), ())
    assert "searches find the message" in last.why_nothing


def test_the_receipt_tells_what_was_learned_at_once_with_ids_that_stay(root: str) -> None:
    memory = Memory(root, user_id="anna")
    receipt = memory.add(SAID, now=NOW)
    first, *_, last = receipt.trace()
    assert [one.message.id for one in receipt.trace()] == list(receipt.accepted)
    assert {"fact", "graph", "memory"} <= learned(first)
    assert any(one.content == "User lives_in Porto" for one in first.learned)
    assert (last.learned, bool(last.why_nothing)) == ((), True)
    memory.run(now=NOW + timedelta(days=2))
    loaded = {one.id for one in receipt.trace()[0].learned}
    assert {one.id for one in first.learned} <= loaded
    repeated = memory.add(SAID, conversation_id=receipt.conversation_id, now=NOW + timedelta(minutes=1))
    assert (repeated.accepted, repeated.trace()) == ((), [])


def test_a_receipt_of_a_group_and_of_an_edit_is_traced(root: str) -> None:
    memory = Memory(root, user_id="anna")
    said = {"role": "user", "content": "I live in Porto.", "id": "m1"}
    memory.add([said], users=["anna", "ben"], conversation_id="group", now=NOW)
    edit = memory.add([said | {"content": "I live in Faro."}], users=["anna", "ben"], conversation_id="group", now=NOW)
    [one] = edit.trace()
    assert "Faro" in one.message.content
    assert any("Faro" in each.content for each in one.learned if each.what == "graph")
    assert not any("Porto" in each.content for each in one.learned)


def test_a_loaded_message_leads_to_the_graph_to_memories_and_to_all_summaries(memory: Memory) -> None:
    memory.run(now=NOW + timedelta(days=400))
    first, *_, last = memory.trace("talk")
    assert first.state == "loaded"
    assert {"fact", "graph", "memory", "daily", "weekly", "monthly", "quarterly", "yearly"} <= learned(first)
    for one in first.learned:
        sources = "\n".join(memory.reader.expand(one.id).lines())
        assert "I live in Porto" in sources, one
    assert last.why_nothing
    assert [one.message.id for one in memory.trace(first.message.id)] == [first.message.id]


def test_the_last_use_of_a_memory_is_told(memory: Memory) -> None:
    memory.run(now=NOW + timedelta(days=1))
    [one] = [each for each in memory.trace("talk")[0].learned if each.what == "memory"]
    assert one.used_at is None
    memory.writer.touch([one.id], now=NOW + timedelta(days=2))
    memory.run(now=NOW + timedelta(days=3))
    assert memory.trace("talk")[0].learned


def test_others_and_other_ids_are_unknown(memory: Memory) -> None:
    memory.run(now=NOW + timedelta(days=1))
    message = memory.trace("talk")[0].message.id
    other = Memory(memory.lake.storage.uri, user_id="ben")
    for unknown in ("talk", message):
        with pytest.raises(InputError, match="is unknown to default"):
            other.trace(unknown)
    with pytest.raises(InputError, match="no id of a message or a conversation"):
        memory.trace(memory.search("Porto", now=NOW + timedelta(days=1))[0].id)


def test_what_was_removed_from_a_message_is_told(memory: Memory) -> None:
    memory.add("My password is hunter2.", conversation_id="other", now=NOW)
    [one] = memory.trace("other")
    assert any("removed from it: password" in line for line in one.lines())


def test_the_command_prints_each_message(memory: Memory) -> None:
    memory.run(now=NOW + timedelta(days=1))
    arguments = ["trace", "talk", "--root", memory.lake.storage.uri, "--user", "anna"]
    found = call(*arguments)
    assert found.exit_code == 0
    assert "graph: User lives_in Porto" in found.output
    assert "nothing was learned: a message of the role tool" in found.output
    assert len(read(*arguments)) == len(SAID)
