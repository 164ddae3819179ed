"""The export of Telegram Desktop as JSON: ``result.json``, of one chat or of all.

Source: https://core.telegram.org/import-export and ``export_output_json.cpp`` of
https://github.com/telegramdesktop/tdesktop
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import (
    Clock,
    Format,
    NoZoneError,
    each,
    file_mark,
    lines,
    quoted,
    spoken,
    talks_of,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.json_stream import JsonStream
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_KINDS: Final = {
    "voice_message": "audio", "audio_file": "audio", "video_message": "video", "video_file": "video",
    "animation": "video",
}  # fmt: skip


def _matches(file: ExportFile) -> bool:
    value = file.value
    if not isinstance(value, dict):
        return False
    chats = value.get("chats") or value.get("left_chats")
    found = chats.get("list", ()) if isinstance(chats, dict) else [value]
    if isinstance(chats, dict) and ("personal_information" in value or "about" in value):
        return True
    return any(
        isinstance(one, dict) and isinstance(one.get("messages"), list)
        and any(isinstance(said, dict) and said.keys() & {"date", "date_unixtime"} and "type" in said
                for said in one["messages"])
        for one in found
    )  # fmt: skip


def _asks(file: ExportFile, notes: Notes) -> None:
    if notes.zone is None and '"date"' in file.beginning and '"date_unixtime"' not in file.beginning:
        raise NoZoneError(file.name)


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    stream = file.stream()
    head: dict[str, Any] = {}
    for key in stream.fields():
        if key in ("chats", "left_chats") and stream.peek() == "{":
            for inner in stream.fields():
                if inner == "list":
                    for _ in stream.items():
                        yield from _chat(stream, file, notes, {})
                else:
                    stream.skip()
        elif key == "messages":
            yield from _messages(stream, file, notes, head)
        elif key in ("name", "type", "id"):
            head[key] = stream.value()
        else:
            stream.skip()


def _chat(stream: JsonStream, file: ExportFile, notes: Notes, head: dict[str, Any]) -> Iterator[Item]:
    for key in stream.fields():
        if key == "messages":
            yield from _messages(stream, file, notes, head)
        elif key in ("name", "type", "id"):
            head[key] = stream.value()
        else:
            stream.skip()


def _messages(stream: JsonStream, file: ExportFile, notes: Notes, chat: dict[str, Any]) -> Iterator[Item]:
    identity = str(chat.get("id") or chat.get("name") or file.path.stem)
    clock = Clock(notes)

    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        if record.get("type") != "message":
            notes.skip("notices of the service")
            return None
        at = time_of(record.get("date_unixtime")) or clock.instant(datetime.fromisoformat(record["date"]))
        text = _text(record.get("text"))
        if source := record.get("forwarded_from"):
            text = lines(f"[forwarded from {source}]", quoted(text)) if text else ""
        is_bot = chat.get("type") == "bot_chat" and record.get("from_id") == f"user{identity}"
        name = record.get("from") or record.get("from_id")
        return spoken(
            "tool" if is_bot else "user",
            lines(text, *_media(record)),
            at,
            id=record.get("id"),
            name=name,
            speaker=record.get("from_id"),
            edited_at=time_of(record.get("edited_unixtime")),
        )

    where = f"{file.name}, chat {identity}"
    places = ((f"{where}, message {n}", file.taken(stream, where)) for n, _ in enumerate(stream.items(), 1))
    yield from talks_of(each(places, message_in), where, identity, tags=(str(chat.get("name") or ""),))


def _text(text: Any) -> str:
    parts = text if isinstance(text, list) else [text]
    return "".join(str(part.get("text") or "") if isinstance(part, dict) else str(part or "") for part in parts)


def _media(record: dict[str, Any]) -> Iterator[str]:
    kind = record.get("media_type")
    if kind == "sticker":
        yield f"[sticker {record.get('sticker_emoji') or ''}".rstrip() + "]"
    elif "photo" in record:
        yield "[image]"
    elif kind or "file" in record:
        yield file_mark(record.get("file_name"), _KINDS.get(str(kind)) or record.get("mime_type"))
    for key, mark in (("location_information", "location"), ("contact_information", "contact")):
        if key in record:
            yield f"[{mark}]"
    if isinstance(poll := record.get("poll"), dict):
        yield f"[poll: {poll.get('question')}]"


TELEGRAM = Format("telegram", "Telegram", _matches, read=_read, asks=_asks)
