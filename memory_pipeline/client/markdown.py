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
from collections import Counter, defaultdict
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
from memory_pipeline.operating_system import create_private

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
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
_KINDS: Final = ("memories", "days", "months")
#: A file of a folder. Others in a manifest could lead out of it.
_NAME: Final = re.compile(rf"(?:{'|'.join(_KINDS)})/[^/\\\0]+\.md")
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
    if old is None and folder.exists() and any(one.name != ".git" for one in folder.iterdir()):
        raise InputError(f"{folder} has other files; name a new folder")
    if old is not None and old["owner"] != _owner(memory):
        raise InputError(f"{folder} has the memory of {old['owner']}; name a new folder")
    if edited := _edited(folder, old):
        raise InputError(
            f"{folder} has edits that are not imported, such as {edited[0]}; run `memory-pipeline import {folder}`, or "
            "restore the file"
        )
    return _write(memory, folder, now, old, {})


def is_markdown(folder: Path) -> bool:
    """Return whether :func:`export_markdown` wrote a folder."""
    return _manifest(folder) is not None


def import_markdown(
    memory: Memory, folder: Path, editor: str, now: datetime, *, dry_run: bool = False
) -> MarkdownChanges:
    """Turn the edits of a folder into changes of the memory, with the editor's name, and update the folder.

    A memory with another text or other fields gets a new version. A new file in ``memories`` is a new memory, and one
    that was deleted is forgotten. A message with another text is corrected, and one whose lines were deleted is
    withdrawn. Months are made from messages, so their edits are refused. Edits of what has changed meanwhile are
    refused, too. Files with refused edits stay as they are.

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
    new = {path.relative_to(folder).as_posix() for path in folder.glob("memories/*.md")} - manifest["files"].keys()
    for name in [*_edited(folder, manifest), *sorted(new)]:
        kind, known = name.partition("/")[0], manifest["files"].get(name)
        try:
            text = _read(folder, name)
            if known is not None and kind != "months" and known != digest(current.get(name, "")):
                raise InputError("the memory has changed since the export; undo the edit, export, and edit again")
            if kind == "memories":
                _edit_memory(memory, name, current.get(name), text, editor, now, done, dry_run=dry_run)
                if known is None and not dry_run:
                    (folder / name).unlink()  # it is written with its fields
            elif kind == "days":
                _edit_day(memory, current[name], text or "", editor, now, done, dry_run=dry_run)
            else:
                raise InputError("a summary is made from messages; edit the day or the memory that is wrong")
        except (InputError, UnicodeDecodeError, RecursionError) as error:
            done.refused[name] = str(error)
    if not dry_run:
        _write(memory, folder, now, manifest, done.refused)
    return done


def _write(
    memory: Memory, folder: Path, now: datetime, old: Mapping[str, Any] | None, refused: Collection[str]
) -> dict[str, int]:
    """Write all files, except those with refused edits, and the manifest. Return the number of files by kind."""
    known: Mapping[str, str] = old["files"] if old else {}
    files = {**_memory_files(memory, now), **_day_files(memory), **_month_files(memory)}
    for place in [folder, *(folder / kind for kind in _KINDS)]:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in known.keys() - files.keys() - {*refused}:
        _checked(folder, name).unlink(missing_ok=True)
    for name, text in files.items():
        path = _checked(folder, name)
        if name in refused:
            continue
        if name not in known and path.exists() and _read(folder, name) != text:
            raise InputError(f"{path} exists and was not exported; move it away")
        if not path.exists() or _read(folder, name) != text:
            path.unlink(missing_ok=True)
            with create_private(path) as file:
                file.write(text.encode())
    digests = {name: digest(text) for name, text in files.items()} | {
        name: known[name] for name in refused if name in known
    }
    manifest = {"format": FORMAT, "owner": _owner(memory), "files": dict(sorted(digests.items()))}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8", newline="\n")
    return dict(Counter(name.partition("/")[0] for name in files))


def _checked(folder: Path, name: str) -> Path:
    """Return the path of a file.

    Raises:
        InputError: it is a symbolic link, or in one.
    """
    path = folder / name
    if path.is_symlink() or path.parent.is_symlink():
        raise InputError(f"{path} is, or is in, a symbolic link; remove it")
    return path


def _read(folder: Path, name: str) -> str | None:
    """Return the text of a file; None if there is none.

    Raises:
        InputError: it is a symbolic link, or in one.
        UnicodeDecodeError: it is not UTF-8.
    """
    path = _checked(folder, name)
    return _plain_lines(path.read_text("utf-8-sig")) if path.is_file() else None


def _plain_lines(text: str) -> str:
    """Return a text with one kind of line ends, which editors and git change."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


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
    return _plain_lines("\n".join([_FENCE, *lines, _FENCE, "", one.content, ""]))


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else list(value)  # type: ignore[call-overload]


def _parsed(text: str) -> tuple[dict[str, object], str]:
    """Return the fields and the content of a file of a memory.

    Raises:
        InputError: a field is no JSON.
    """
    lines = text.split("\n")
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
    return {f"days/{day}.md": _plain_lines("\n".join(_day_lines(memory, day, said))) for day, said in by_day.items()}


def _messages(memory: Memory) -> Iterator[Message]:
    """Yield all messages that became memory, by time, without what was withdrawn."""
    lake = memory.lake
    found: list[Message] = []
    for scope in memory.reader.scopes:
        rows = lake.tables.read(MESSAGES, where=pc.field("scope") == scope.key, scopes=[scope.key])
        pending = [one for file in lake.journal.pending(scope) for one in lake.journal.read(file).messages]
        corrections = lake.corrections.in_force(lake.journal.entries(scope))
        found += lake.as_evidence(with_edits([*rows_to_messages(rows), *pending]), corrections)
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
    for line in text.split("\n"):
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
    """Return the manifest of a folder; None if it has none that :func:`export_markdown` may have written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return None
    files = manifest.get("files")
    is_valid = isinstance(files, dict) and all(
        _NAME.fullmatch(name) and isinstance(written, str) for name, written in files.items()
    )
    return manifest if is_valid and isinstance(manifest.get("owner"), str) else None


def _edited(folder: Path, manifest: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the files that were edited or deleted since they were written."""
    found = []
    for name, written in sorted(manifest["files"].items() if manifest else ()):
        try:
            text = _read(folder, name)
        except (InputError, UnicodeDecodeError):
            text = None
        if text is None or digest(text) != written:
            found.append(name)
    return found
