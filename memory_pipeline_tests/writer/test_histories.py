"""A chat that sends its whole list at each turn: the receipt and what is stored are the same as if all were read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain import conversations
from memory_pipeline.writer import adding

if TYPE_CHECKING:
    from pathlib import Path

SINCE = datetime(2026, 3, 2, 9, tzinfo=UTC)


def listed(count: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[at % 2], "content": f"Sentence {at % 70}."} for at in range(count)]


class Chat:
    """A conversation of one memory that is kept open, and the same one of a memory that is opened for each turn."""

    def __init__(self, folder: Path) -> None:
        self.folders = (folder / "kept", folder / "opened")
        self.kept = Memory(self.folders[0], user_id="anna")
        self.turns = 0

    def send(self, messages: list[Any], **fields: Any) -> tuple[int, int, int, int]:
        self.turns += 1
        at = SINCE + timedelta(minutes=self.turns)
        receipts = [
            memory.add(messages, conversation_id="c", now=at, **fields)
            for memory in (self.kept, Memory(self.folders[1], user_id="anna"))
        ]
        counts = [(len(one.accepted), len(one.repeated), len(one.edited), one.empty) for one in receipts]
        assert counts[0] == counts[1]
        texts = [[one.content for one in Memory(path, user_id="anna").conversations.get("c")] for path in self.folders]
        assert texts[0] == texts[1]
        return counts[0]


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path)


def test_only_the_new_message_is_read(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = listed(100)
    assert chat.send(messages) == (100, 0, 0, 0)
    sizes, read = list[int](), conversations.read_messages

    def noted(record: Any, *arguments: Any, **named: Any) -> Any:
        sizes.append(len(record["messages"]))
        return read(record, *arguments, **named)

    monkeypatch.setattr(adding, "read_messages", noted)
    for count in range(1, 4):
        messages.append({"role": "user", "content": f"New {count}."})
        assert chat.send(messages) == (1, 99 + count, 0, 0)
    assert sizes == [21, 101, 21, 102, 21, 103]
    assert chat.send(messages) == (0, 103, 0, 0)
    assert len(set(chat.kept.add(messages, conversation_id="c", now=SINCE).repeated)) == 103


@pytest.mark.parametrize(
    "change",
    [
        {99: {"role": "assistant", "content": "Another answer."}},
        {3: {"role": "assistant", "content": "Another earlier answer."}},
        {0: {"role": "system", "content": "Be brief."}},
        {99: {"role": "assistant", "content": ""}},
    ],
)
def test_a_changed_list_is_read_whole(chat: Chat, change: dict[int, dict[str, Any]]) -> None:
    messages = listed(100)
    chat.send(messages)
    chat.send([*messages, {"role": "user", "content": "Next."}])
    chat.send([change.get(at, one) for at, one in enumerate(messages)])
    chat.send([*messages, {"role": "user", "content": "Next."}, {"role": "user", "content": "And next."}])


def test_a_caller_may_change_messages_in_place(chat: Chat) -> None:
    messages = listed(100)
    chat.send(messages)
    messages[-1]["content"] = "Another answer."
    assert chat.send(messages) == (0, 99, 1, 0)


def test_messages_of_others_and_other_tags_are_seen(chat: Chat) -> None:
    messages = listed(60)
    chat.send(messages)
    for folder in chat.folders:
        other = [{"role": "user", "content": "From elsewhere."}]
        Memory(folder, user_id="anna").add(other, conversation_id="c", now=SINCE + timedelta(minutes=1))
    chat.send([*messages, {"role": "user", "content": "From elsewhere."}, {"role": "user", "content": "Next."}])
    chat.send([*messages, {"role": "user", "content": "Other."}], tags=["a"])


def test_after_an_erasure_nothing_returns(chat: Chat) -> None:
    messages = listed(60)
    chat.send(messages)
    for folder in chat.folders:
        Memory(folder, user_id="anna").forget(conversation_id="c", now=SINCE + timedelta(minutes=1))
    chat.turns += 1
    assert chat.send([*messages, {"role": "user", "content": "Next."}])[0] == 1


def test_history_false_stores_the_list_again(chat: Chat) -> None:
    messages = listed(60)
    chat.send(messages)
    assert chat.send(messages, history=False) == (60, 0, 0, 0)
    chat.send([*messages, {"role": "user", "content": "Next."}])
