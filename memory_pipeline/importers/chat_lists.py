"""Lists of messages as chat clients have them: OpenAI's messages and fine-tuning files, and ShareGPT.

A file has an object with ``messages`` or ``conversations`` on each line or in a list, or one message on each line or in
a list. Most have no times.

Sources: https://platform.openai.com/docs/guides/supervised-fine-tuning and
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.chat_messages import times_in
from memory_pipeline.domain.identity import digest
from memory_pipeline.importers.reading import Format, ImportedTalk, each, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_IDS: Final = ("conversation_id", "id", "thread_id", "session_id")
#: How many of the first messages identify a conversation without an id: a later export may have more.
_IDENTIFYING: Final = 2
#: Senders that :mod:`memory_pipeline.domain.chat_messages` does not know.
_SENDERS: Final = {
    **dict.fromkeys(("bing", "chatgpt", "bard", "model"), "assistant"),
    **dict.fromkeys(("observation", "function_call", "function_response", "tool_call"), "tool"),
}


def _is_message(one: dict[str, Any]) -> bool:
    return isinstance(one.get("role"), str) and ("content" in one or "tool_calls" in one or "parts" in one)


def _has_list(file: ExportFile, key: str, sender: str) -> bool:
    lists = [one[key] for one in file.sample if isinstance(one.get(key), list)]
    return any(isinstance(one, dict) and sender in one for messages in lists for one in messages)


def _messages(record: dict[str, Any], where: str, file: ExportFile, notes: Notes) -> Iterator[ImportedTalk]:
    messages = record["messages"] if "messages" in record else record["conversations"]
    stated = next((str(record[key]) for key in _IDS if record.get(key)), None)
    first = [{key: one.get(key) for key in ("role", "from", "content", "value")} for one in messages[:_IDENTIFYING]]
    system = [{"role": "system", "content": record["system"]}] if isinstance(record.get("system"), str) else []
    talk = [_message(one, number) for number, one in enumerate([*system, *messages])]
    times = [time_of(record.get(key)) for key in ("created_at", "create_time", "timestamp", "date")]
    start = next((at for at in times if at), None)
    if start is None and not any(one["timestamp"] for one in talk):
        start = notes.undated(file)
    yield ImportedTalk(where, stated or digest("talk", first), talk, start)


def _message(one: dict[str, Any], number: int) -> ChatMessage:
    stated = time_of(one.get("timestamp"))
    at = stated or next((at for at in times_in(one).values() if at), None)
    sender = str(one.get("from") or one.get("role"))
    content = {} if sender not in _SENDERS else {"role": _SENDERS[sender], "content": one.get("value")}
    return {**one, **content, "timestamp": at, "id": one.get("id") or f"{number}"}


def _each_message(file: ExportFile, notes: Notes) -> Iterator[Item]:
    """Read a file with a message on each line, or in a list: one conversation."""
    start = None
    if not any(time_of(one.get("timestamp")) or times_in(one) for one in file.sample):
        start = notes.undated(file)
    identity = digest(
        "talk", [{key: one.get(key) for key in ("role", "content")} for one in file.sample[:_IDENTIFYING]]
    )
    numbered = iter(range(10**9))
    messages = each(file.records(), lambda record: _message(record, next(numbered)))
    yield from talks_of(messages, file.name, identity, started_at=start)


SHAREGPT = Format("sharegpt", "ShareGPT", lambda file: _has_list(file, "conversations", "from"), record=_messages)
OPENAI = Format("openai", "OpenAI messages", lambda file: _has_list(file, "messages", "role"), record=_messages)
MESSAGES = Format(
    "messages", "messages", lambda file: bool(file.sample) and all(map(_is_message, file.sample)), read=_each_message
)
