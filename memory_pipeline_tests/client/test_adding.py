"""What is said twice is stored twice; what is sent twice is stored once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.errors import InputError

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def user(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **fields}


def agent(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def stored(memory: Memory, conversation_id: str = "c") -> list[str]:
    return [message.content for message in memory.conversations.get(conversation_id)]


@pytest.mark.parametrize("runs", [pytest.param(False, id="pending"), pytest.param(True, id="processed")])
def test_what_is_said_again_is_stored_again(memory: Memory, runs: bool) -> None:
    said: list[Any] = ["yes", "no", "yes", user("yes"), ["yes"], [user("Run the tests."), agent("Passed.")]]
    expected: list[str] = []
    for number, one in enumerate([*said, said[-1], said[0]]):
        at = NOW if number < 3 else NOW + DAY * number  # whatever time has passed
        receipt = memory.add(one, conversation_id="c", now=at)
        texts = [
            item if isinstance(item, str) else item["content"] for item in (one if isinstance(one, list) else [one])
        ]
        expected += texts
        assert (len(receipt.accepted), receipt.repeated) == (len(texts), ())
        if runs and number in (2, 6):
            memory.run(now=at + DAY)
    assert stored(memory) == expected
    assert len(memory.list("fact")) == len(expected)


def test_equal_texts_of_one_time_are_told_apart_by_their_number(memory: Memory) -> None:
    minute = user("ok", timestamp="2026-03-02T08:59:00Z")
    first = memory.add([minute, agent("Fine."), minute], conversation_id="c", now=NOW)
    assert len(set(first.accepted)) == 3
    memory.run(now=NOW + DAY)
    again = memory.add([minute, agent("Fine."), minute], conversation_id="c", now=NOW)
    assert (again.accepted, again.repeated) == ((), first.accepted)
    assert memory.add(minute, conversation_id="c", now=NOW).repeated == first.accepted[:1]
    assert len(memory.add([minute], conversation_id="c", history=False, now=NOW).accepted) == 1
    assert stored(memory).count("ok") == 3
    talk = {"conversation_id": "imported", "messages": [minute, minute]}
    written = memory.writer.write(talk, now=NOW)
    assert len(set(written.accepted)) == 2
    assert memory.writer.write(talk, now=NOW).repeated == written.accepted


def test_a_retry_with_its_key_adds_nothing(root: str, memory: Memory) -> None:
    pair = [user("Run the tests."), agent("Passed.")]
    one = memory.add(pair, conversation_id="c", idempotency_key="1", now=NOW)
    assert memory.add(pair, conversation_id="c", idempotency_key="1", now=NOW + DAY).repeated == one.accepted
    memory.run(now=NOW + DAY)
    assert Memory(root, user_id="anna").add(pair, conversation_id="c", idempotency_key="1").repeated == one.accepted
    two = memory.add(pair, conversation_id="c", idempotency_key="2", now=NOW + 2 * DAY)
    assert len(two.accepted) == 2
    assert not set(one.accepted) & set(two.accepted)
    new = [memory.add("Hello.", idempotency_key=key, now=NOW + 2 * DAY) for key in ("1", "1", "2")]
    assert [len(receipt.accepted) for receipt in new] == [1, 0, 1]
    assert new[0].conversation_id == new[1].conversation_id != new[2].conversation_id
    timed = {"conversation_id": "d", "messages": [user("ok", timestamp=NOW.isoformat())]}
    receipts = [memory.writer.write(timed, idempotency_key=key, now=NOW) for key in ("1", "2", "1")]
    assert [len(receipt.accepted) for receipt in receipts] == [1, 1, 0]
    assert receipts[2].repeated == receipts[0].accepted
    with pytest.raises(InputError, match="idempotency_key"):
        memory.add("Hello.", conversation_id="c", idempotency_key="a\nb")


def test_ten_turns_with_the_time_in_the_instructions_are_twenty_messages(root: str, memory: Memory) -> None:
    talk: list[dict[str, Any]] = []
    for turn in range(10):
        talk.append(user(f"I live in Riga {turn}."))
        prompt = {"role": "system", "content": f"Be brief. It is {turn // 2}:00."}
        opened = memory if turn % 2 else Memory(root, user_id="anna")
        opened.add([prompt, *talk, agent("Noted.")], conversation_id="c", now=NOW + turn * DAY)
        talk.append(agent("Noted."))
        if turn == 5:
            memory.run(now=NOW + 6 * DAY)
    texts = stored(memory)
    assert [text for text in texts if not text.startswith("Be brief.")] == [one["content"] for one in talk]
    assert len(texts) == 25
    summary = {"role": "system", "content": "The user lives in Riga."}
    receipt = memory.add([summary, *talk[-4:], user("Bye.")], conversation_id="c", now=NOW + 11 * DAY)
    assert (len(receipt.accepted), len(receipt.repeated)) == (2, 4)


def test_composed_and_decomposed_texts_are_one_message(memory: Memory) -> None:
    at = NOW.isoformat()
    composed, decomposed = (user(text, timestamp=at, name="Zo\u00eb") for text in ("caf\u00e9", "cafe\u0301"))
    first = memory.add(composed, conversation_id="c", now=NOW)
    decomposed["name"] = "Zoe\u0308"
    assert memory.add(decomposed, conversation_id="c", now=NOW).repeated == first.accepted
    assert stored(memory) == ["caf\u00e9"]


def test_a_message_without_visible_characters_is_empty(memory: Memory) -> None:
    for number, text in enumerate(["\u200b", "\ufeff\u2060", "\u200d \u00ad", "\u3164", "\ufe0f"]):
        with pytest.raises(InputError):
            memory.add(text, conversation_id=f"c{number}", now=NOW)
        memory.add([user("Hi."), agent(text)], conversation_id=f"c{number}", now=NOW)
        assert stored(memory, f"c{number}") == ["Hi."]
    memory.add("\u200d👩\u200d👧", conversation_id="c", now=NOW)
    assert len(stored(memory)) == 1


def asked(memory: Memory) -> tuple[list[str], list[str], list[str]]:
    """Return what search, the graph and the durable memories say."""
    hits = sorted(hit.content for hit in memory.search("Who lives in Riga, Oslo or Bergen?", 20, minimum_score=0))
    facts = sorted(f"{fact.source} {fact.label} {fact.target}" for fact in memory.graph.facts())
    return hits, facts, sorted(one.content for one in memory.reader.memories.list())


@pytest.mark.parametrize("runs", [(), (0, 2)], ids=lambda runs: f"runs after {runs}" if runs else "pending")
def test_a_later_text_replaces_the_earlier_wherever_it_is_read(
    root: str, memory: Memory, runs: tuple[int, ...]
) -> None:
    talk = [user("I live in Riga.", id="m1"), agent("Noted."), user("Where is it?"), agent("I like Riga.")]
    steps = [
        talk,
        [*talk[:3], agent("In Latvia.")],
        user("I live in Oslo.", id="m1"),
        [user("I live in Bergen.", id="m1")],
    ]
    receipts = []
    for number, step in enumerate(steps):
        receipts.append(memory.add(step, conversation_id="c", now=NOW + number * DAY))
        asked(memory)
        if number in runs:
            memory.run(now=NOW + number * DAY + DAY / 2)
    first, answer, one, two = receipts
    assert (answer.edited, one.edited, two.edited) == (first.accepted[3:], first.accepted[:1], first.accepted[:1])
    assert stored(memory) == ["I live in Bergen.", "Noted.", "Where is it?", "In Latvia."]
    expected = ["Agent: In Latvia.", "Agent: Noted.", "User: I live in Bergen.", "User: Where is it?"]
    for reader in (memory, Memory(root, user_id="anna")):
        assert asked(reader) == (expected, ["User lives_in Bergen"], ["User: I live in Bergen."])
    memory.run(now=NOW + 9 * DAY)
    for reader in (memory, Memory(root, user_id="anna")):
        assert asked(reader) == (expected, ["User lives_in Bergen"], ["User: I live in Bergen."])
    assert memory.add(steps[3], conversation_id="c", now=NOW + 9 * DAY).repeated == first.accepted[:1]
    memory.forget(everything=True, now=NOW + 9 * DAY)
    assert asked(memory) == ([], [], [])
    assert not any(b"Bergen" in (memory.lake.storage.read(one.path) or b"") for one in memory.lake.storage.list(""))


@pytest.mark.parametrize("subject", [{"everything": True}, {"conversation_id": "c"}], ids=["user", "conversation"])
def test_nothing_returns_by_itself_after_an_erasure(memory: Memory, subject: dict[str, Any]) -> None:
    talk = [user("I live in Riga."), agent("Noted.")]
    memory.add(talk, conversation_id="c", now=NOW)
    memory.forget(**subject, now=NOW + DAY)
    talk += [user("Hello again."), agent("Welcome.")]
    receipt = memory.add([{"role": "system", "content": "Be brief."}, *talk], conversation_id="c", now=NOW + 2 * DAY)
    assert (receipt.forgotten, stored(memory)) == (3, ["Hello again.", "Welcome."])
    talk += [user("Bye."), agent("Ciao.")]
    receipt = memory.add(talk, conversation_id="c", now=NOW + 3 * DAY)
    assert (receipt.forgotten, len(receipt.repeated), len(receipt.accepted)) == (2, 2, 2)
    assert memory.add("I live in Riga.", conversation_id="c", now=NOW + 4 * DAY).forgotten == 0
    assert memory.add(talk[:2], conversation_id="c", history=False, now=NOW + 5 * DAY).forgotten == 0
    assert stored(memory)[4:] == ["I live in Riga.", "I live in Riga.", "Noted."]
    assert len(memory.add([*talk[:2], user("A new talk.")], now=NOW + 6 * DAY).accepted) == 3
