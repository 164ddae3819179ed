"""A memory as a folder of Markdown: people read it, edit it, and keep it in git; edits become changes of the memory.

::

    memories/lives-in-porto-1f2e3d4c.md    a durable memory: fields, then its text
    days/2024-01-15.md                     the messages of a day, by conversation
    months/2024-01.md                      the summary of a month
    .memory-pipeline.json                  whose memory it is, and the digest of each file as it was written
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.messages import with_edits
from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.facts import rows_to_messages, rows_to_summaries
from memory_pipeline.lake.layout import path_name
from memory_pipeline.lake.schemas import MESSAGES, SUMMARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from memory_pipeline.client.memory import Memory
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.messages import Message

FORMAT: Final = "memory-pipeline markdown"
MANIFEST: Final = ".memory-pipeline.json"
_MOST: Final = 10_000
_FENCE: Final = "---"
#: The fields of a memory that its file shows, and those that an edit may change.
_SHOWN: Final = ("kind", "importance", "tags", "editor", "created_at", "updated_at")
_EDITABLE: Final = ("kind", "importance", "tags")
_SAID: Final = re.compile(r"- \d\d:\d\d .*<!-- (message:\S+) -->")


@dataclass(slots=True)
class MarkdownChanges:
    """What edits of a folder changed, or would change.

    Attributes:
        updated, remembered, forgotten: memories with other texts or fields, new ones, and those without a file.
        corrected: messages with another text, or that were removed from their day.
        refused: edits that were not applied, by file, with the reason.
    """

    updated: list[str] = field(default_factory=list)
    remembered: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    corrected: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def export_markdown(memory: Memory, folder: Path, now: datetime) -> dict[str, int]:
    """Write a memory to a folder, in place of what was written there before. Return the number of files by kind.

    Raises:
        InputError: the folder has other files, the memory of somebody else, or edits that are not imported.
    """
    old = _manifest(folder)
    owner = _owner(memory)
    if old is None and folder.exists() and any(one.name != ".git" for one in folder.iterdir()):
        raise InputError(f"{folder} has other files; name a new folder")
    if old is not None and old["owner"] != owner:
        raise InputError(f"{folder} has the memory of {old['owner']}; name a new folder")
    if edited := _edited(folder, old):
        raise InputError(
            f"{folder} has edits that are not imported, such as {edited[0]}; run `memory-pipeline import {folder}`, or "
            "restore the file"
        )
    files = {**_memory_files(memory, now), **_day_files(memory), **_month_files(memory)}
    for name in {*(old["files"] if old else ())} - {*files}:
        (folder / name).unlink(missing_ok=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8", newline="\n")
    digests = {name: digest(text) for name, text in sorted(files.items())}
    manifest = {"format": FORMAT, "owner": owner, "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8", newline="\n")
    counts: dict[str, int] = defaultdict(int)
    for name in files:
        counts[name.partition("/")[0]] += 1
    return dict(counts)


def is_markdown(folder: Path) -> bool:
    """Return whether :func:`export_markdown` wrote a folder."""
    return _manifest(folder) is not None


def import_markdown(
    memory: Memory, folder: Path, editor: str, now: datetime, *, dry_run: bool = False
) -> MarkdownChanges:
    """Turn the edits of a folder into changes of the memory, with the editor's name.

    A memory with another text or other fields gets a new version. A new file in ``memories`` is a new memory, and one
    that was deleted is forgotten. A message with another text is corrected, and one whose lines were deleted is
    withdrawn. Months are made from messages, so their edits are refused. Edits of what has changed meanwhile are
    refused, too. Export the folder again afterwards.

    Raises:
        InputError: the folder was not exported, or is of another memory.
    """
    manifest = _manifest(folder)
    if manifest is None:
        raise InputError(f"{folder} has no {MANIFEST}; export the memory to it first")
    if manifest["owner"] != _owner(memory):
        raise InputError(f"{folder} has the memory of {manifest['owner']}; name that agent and user")
    done = MarkdownChanges()
    current = {**_memory_files(memory, now), **_day_files(memory)}
    new = [path.relative_to(folder).as_posix() for path in sorted(folder.glob("memories/*.md"))]
    for name in [*_edited(folder, manifest), *(one for one in new if one not in manifest["files"])]:
        path = folder / name
        text = path.read_text("utf-8") if path.is_file() and not path.is_symlink() else None
        kind = name.partition("/")[0]
        try:
            if (
                name in manifest["files"]
                and kind != "months"
                and manifest["files"][name] != digest(current.get(name, ""))
            ):
                raise InputError("the memory has changed since the export; export it again, then repeat the edit")
            if kind == "memories":
                _edit_memory(memory, name, current.get(name), text, editor, now, done, dry_run=dry_run)
            elif kind == "days":
                _edit_day(memory, current[name], text or "", editor, now, done, dry_run=dry_run)
            else:
                raise InputError("a summary is made from messages; edit the day or the memory that is wrong")
        except (InputError, UnicodeDecodeError) as error:
            done.refused[name] = str(error)
    return done


def _edit_memory(
    memory: Memory,
    name: str,
    before: str | None,
    after: str | None,
    editor: str,
    now: datetime,
    done: MarkdownChanges,
    *,
    dry_run: bool,
) -> None:
    if after is None:
        identifier = str(_parsed(before or "")[0]["id"])
        done.forgotten.append(identifier)
        if not dry_run:
            memory.writer.forget(identifier, editor=editor, reason=f"deleted {name}", now=now)
        return
    fields, content = _parsed(after)
    given: dict[str, Any] = {one: fields[one] for one in _EDITABLE if one in fields}
    if before is None:
        if not dry_run:
            memory.writer.remember(content, **{"kind": "fact", **given}, editor=editor, now=now)
        done.remembered.append(name)
        return
    known, old = _parsed(before)
    if fields.get("id") != known["id"]:
        raise InputError(f"id {shown(fields.get('id'))} was {known['id']}; ids cannot be edited")
    changed = {one: value for one, value in given.items() if value != known.get(one)}
    if content != old:
        changed["content"] = content
    if not changed:
        raise InputError(f"only {', '.join(_EDITABLE)} and the text can be edited")
    done.updated.append(str(known["id"]))
    if not dry_run:
        memory.writer.update(str(known["id"]), **changed, editor=editor, reason=f"edited {name}", now=now)


def _edit_day(
    memory: Memory, before: str, after: str, editor: str, now: datetime, done: MarkdownChanges, *, dry_run: bool
) -> None:
    old, new = _said(before), _said(after)
    if unknown := new.keys() - old.keys():
        raise InputError(f"{min(unknown)} is no message of this day; messages cannot be added")
    for identifier, text in old.items():
        if new.get(identifier) != text:
            done.corrected.append(identifier)
            if not dry_run:
                memory.correct(identifier, new.get(identifier) or None, reason="edited", editor=editor, now=now)


def _memory_files(memory: Memory, now: datetime) -> dict[str, str]:
    return {_name(one): _memory_text(one) for one in memory.reader.memories.list(limit=_MOST, now=now)}


def _name(one: DurableMemory) -> str:
    return f"memories/{path_name(one.title or one.content, one.id.rpartition(':')[2][:32])}.md"


def _memory_text(one: DurableMemory) -> str:
    fields = {"id": one.id, **{name: getattr(one, name) for name in _SHOWN}}
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False, default=_plain)}" for name, value in fields.items()]
    return "\n".join([_FENCE, *lines, _FENCE, "", one.content, ""])


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else list(value)  # type: ignore[call-overload]


def _parsed(text: str) -> tuple[dict[str, object], str]:
    """Return the fields and the content of a file of a memory.

    Raises:
        InputError: a field is no JSON.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _FENCE or _FENCE not in lines[1:]:
        return {}, text.strip()
    end = lines.index(_FENCE, 1)
    fields = {}
    for line in filter(str.strip, lines[1:end]):
        name, _, value = line.partition(":")
        try:
            fields[name.strip()] = json.loads(value)
        except ValueError:
            raise InputError(
                f"{name.strip()} {shown(value.strip())} is no JSON; write texts in double quotes"
            ) from None
    return fields, "\n".join(lines[end + 1 :]).strip()


def _day_files(memory: Memory) -> dict[str, str]:
    zone = memory.lake.calendar
    by_day: dict[str, list[Message]] = defaultdict(list)
    for message in _messages(memory):
        by_day[str(zone.day_of(message.sent_at))].append(message)
    return {f"days/{day}.md": "\n".join(_day_lines(memory, day, said)) for day, said in by_day.items()}


def _messages(memory: Memory) -> Iterator[Message]:
    """Yield all messages of the memory that became memory, by time."""
    lake = memory.lake
    found: list[Message] = []
    for scope in memory.reader.scopes:
        rows = lake.tables.read(MESSAGES, where=pc.field("scope") == scope.key, scopes=[scope.key])
        pending = [one for file in lake.journal.pending(scope) for one in lake.journal.read(file).messages]
        found += with_edits([*rows_to_messages(rows), *pending])
    yield from sorted((one for one in found if one.role.is_memorable), key=lambda one: (one.sent_at, one.turn, one.id))


def _day_lines(memory: Memory, day: str, messages: Iterable[Message]) -> Iterator[str]:
    zone = memory.lake.calendar.zone
    yield f"# {day}"
    for conversation, said in groupby(messages, lambda one: one.conversation_id):
        yield from ("", f"## {conversation}", "")
        for one in said:
            yield f"- {one.sent_at.astimezone(zone):%H:%M} **{one.speaker}** <!-- {one.id} -->"
            yield from ("", indent(one.content, "  ", lambda _: True), "")


def _said(text: str) -> dict[str, str]:
    """Return the texts of the messages in a file of a day, by id."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        if match := _SAID.fullmatch(line.rstrip()):
            current = found.setdefault(match[1], [])
        elif line.startswith("#"):
            current = []
        else:
            current.append(line.removeprefix("  "))
    return {identifier: "\n".join(lines).strip() for identifier, lines in found.items()}


def _month_files(memory: Memory) -> dict[str, str]:
    keys = [scope.key for scope in memory.reader.scopes]
    rows = memory.lake.tables.read(SUMMARIES, scopes=keys, shard=None, grain=Grain.MONTHLY.value)
    parts: dict[str, list[str]] = defaultdict(list)
    for summary in sorted(rows_to_summaries(rows), key=lambda one: (one.period.key, one.scope.identity)):
        parts[summary.period.key] += [f"- {line}" for line in summary.content.split("\n")]
    return {f"months/{key}.md": "\n".join([f"# {key}", "", *lines, ""]) for key, lines in parts.items()}


def _owner(memory: Memory) -> str:
    scope = memory._scope
    return "/".join([*scope.ids, *([] if memory.user_id is None else [f"user:{memory.user_id}"])])


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and manifest.get("format") == FORMAT else None


def _edited(folder: Path, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the files that were edited or deleted since they were written."""
    found = []
    for name, written in sorted(manifest["files"].items() if manifest else ()):
        path = folder / name
        if not path.is_file() or digest(path.read_text("utf-8", errors="replace").replace("\r\n", "\n")) != written:
            found.append(name)
    return found
