"""Discord: the JSON of DiscordChatExporter, a file a channel; and the data package, which has one's own messages alone.

Sources: ``JsonMessageWriter.cs`` of https://github.com/Tyrrrz/DiscordChatExporter, and
https://support.discord.com/hc/en-us/articles/360004957991 with https://github.com/Edouard127/discord-package-parser
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.reading import Format, each, file_mark, lines, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

#: Types of messages that someone wrote.
_SAID: Final = ("Default", "Reply", "ThreadStarterMessage", "ChatInputCommand", "0", "19", "20", "21")
_COLUMNS: Final = {"ID", "Timestamp", "Contents"}
_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def _matches(file: ExportFile) -> bool:
    value = file.value
    return isinstance(value, dict) and {"guild", "channel", "messages"} <= value.keys()


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        if str(record.get("type", "Default")) not in _SAID:
            notes.skip("notices of the service")
            return None
        author = record.get("author") or {}
        text = lines(
            record.get("content"),
            *(_file(one.get("fileName") or one.get("url")) for one in record.get("attachments") or ()),
            *(f"[sticker: {one.get('name')}]" for one in record.get("stickers") or ()),
        )
        role, name = "tool" if author.get("isBot") else "user", author.get("nickname") or author.get("name")
        return spoken(
            role,
            text,
            time_of(record["timestamp"]),
            id=record.get("id"),
            name=name,
            speaker=author.get("id"),
            edited_at=time_of(record.get("timestampEdited")),
        )

    channel: dict[str, Any] = {}
    stream = file.stream()
    for key in stream.fields():
        if key == "channel":
            channel = stream.value()
        elif key == "messages":
            places = (
                (f"{file.name}, message {n}", file.taken(stream, file.name)) for n, _ in enumerate(stream.items(), 1)
            )
            name = str(channel.get("name") or "")
            yield from talks_of(each(places, message_in), file.name, str(channel["id"]), tags=(name,))
        else:
            stream.skip()


def _file(name: Any) -> str:
    text = str(name or "").partition("?")[0].rpartition("/")[2]
    return file_mark(text, "image" if text.lower().endswith(_IMAGES) else None)


def _is_package(file: ExportFile) -> bool:
    return any(one.keys() >= _COLUMNS for one in file.sample) or file.beginning.startswith("ID,Timestamp,Contents")


def _read_package(file: ExportFile, notes: Notes) -> Iterator[Item]:
    channel = file.beside("channel.json")
    about: dict[str, Any] = (channel.value if channel is not None else None) or {}
    notes.checks["channels hold your own messages alone: the data package has no others"] += 1

    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        at = datetime.fromisoformat(str(record["Timestamp"]))
        files = str(record.get("Attachments") or "").split()
        text = lines(str(record["Contents"] or ""), *map(_file, files))
        return spoken("user", text, at if at.tzinfo else at.replace(tzinfo=UTC), id=record["ID"])

    where = file.path.parent.name
    tags = tuple(str(one) for one in (about.get("name"),) if one)
    rows = file.records() if file.value is not None else _rows(file)
    yield from talks_of(each(rows, message_in), file.name, str(about.get("id") or where.removeprefix("c")), tags=tags)


def _rows(file: ExportFile) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the older form, which is CSV."""
    with file.text() as text:
        for number, row in enumerate(csv.DictReader(text), start=2):
            yield f"{file.name}, line {number}", row


DISCORD = Format("discord", "Discord", _matches, read=_read)
DISCORD_PACKAGE = Format(
    "discord-package",
    "Discord data package",
    _is_package,
    read=_read_package,
    companions=("channel.json", "index.json"),
)
