"""The export of Slack: a folder a channel with a JSON file a day, and ``users.json`` and ``channels.json`` above.

Sources: https://slack.com/help/articles/220556107, https://docs.slack.dev/reference/events/message and
https://gist.github.com/viccro/734581d3c9777f9733d1f665279e5b54
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.importers.reading import Format, each, file_mark, lines, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_TS: Final = re.compile(r"[0-9]{9,11}\.[0-9]{1,7}")
#: Kinds of messages that someone wrote; others are notices, such as that someone joined.
_SAID: Final = (None, "thread_broadcast", "file_share", "file_comment", "me_message", "bot_message")
_LISTS: Final = ("channels.json", "groups.json", "mpims.json", "dms.json")
_OTHERS: Final = ("users.json", "integration_logs.json", "canvases.json", "file_conversations.json", "lists.json")
_MARKUP: Final = re.compile(r"<([@#!]?)([^<>|]{1,2000})(?:\|([^<>]{0,2000}))?>")
_ESCAPES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def _matches(file: ExportFile) -> bool:
    return file.is_list and any(
        one.get("type") == "message" and _TS.fullmatch(str(one.get("ts"))) is not None for one in file.sample
    )


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    folder = file.path.parent
    users = notes.once((folder.parent, "users"), lambda: _users(file.beside("../users.json")))
    channels = notes.once((folder.parent, "channels"), lambda: _channels(file))
    channel = channels.get(folder.name, folder.name)

    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        if record.get("subtype") not in _SAID or record.get("hidden"):
            notes.skip("notices of the service")
            return None
        user, ts, thread = record.get("user"), record["ts"], record.get("thread_ts")
        profile = record.get("user_profile") or {}
        name, is_bot = users.get(user) or (_name(profile) or record.get("username") or user, False)
        is_bot = is_bot or bool(record.get("bot_id")) or record.get("subtype") == "bot_message" or user == "USLACKBOT"
        parts = record.get("attachments") or [] if is_bot else []
        files = [one for one in record.get("files") or () if one.get("mode") != "tombstone"]
        text = lines(
            _plain(record.get("text") or "", users),
            *(_plain(one.get("fallback") or one.get("text") or "", users) for one in parts),
            *(file_mark(one.get("name"), one.get("mimetype")) for one in files),
        )
        changed = time_of((record.get("edited") or {}).get("ts"))
        said = spoken(
            "tool" if is_bot else "user", text, time_of(ts), id=ts, name=name, speaker=user, edited_at=changed
        )
        # The first message of a thread stays in the channel: nobody knew yet that it would begin one.
        return said | ({"conversation": f"{channel}:{thread}"} if thread and thread != ts else {})

    yield from talks_of(each(file.records(), message_in), file.name, channel, tags=(folder.name,))


def _records(file: ExportFile | None) -> Iterator[dict[str, Any]]:
    for _, record in () if file is None else file.records():
        if not isinstance(record, Rejection) and isinstance(record, dict):
            yield record


def _users(file: ExportFile | None) -> dict[Any, tuple[str, bool]]:
    """Return the names of users, and whether they are bots, by their ids."""
    return {
        one.get("id"): (
            _name(one.get("profile") or {}) or one.get("real_name") or one.get("name") or str(one.get("id")),
            bool(one.get("is_bot")),
        )
        for one in _records(file)
    }


def _name(profile: dict[str, Any]) -> str | None:
    return profile.get("display_name") or profile.get("real_name") or None


def _channels(file: ExportFile) -> dict[Any, str]:
    """Return the ids of channels by their names, which may change."""
    found = (one for name in _LISTS for one in _records(file.beside(f"../{name}")))
    return {one.get("name") or one.get("id"): str(one.get("id")) for one in found}


def _plain(text: str, users: dict[Any, tuple[str, bool]]) -> str:
    """Return a text without Slack's markup: names for ids, and links beside their titles."""

    def replaced(match: re.Match[str]) -> str:
        mark, target, label = match.groups()
        if mark == "@":
            return f"@{users.get(target, (label or target,))[0]}"
        if mark:
            return f"{'#' if mark == '#' else '@'}{label or target.partition('^')[0]}"
        return target if not label or label in target else f"{label} ({target})"

    text = _MARKUP.sub(replaced, text)
    for escaped, char in _ESCAPES:
        text = text.replace(escaped, char)
    return text


SLACK = Format("slack", "Slack", _matches, read=_read, companions=(*_LISTS, *_OTHERS))
