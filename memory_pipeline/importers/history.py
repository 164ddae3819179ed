"""Import the history in an export: recognise the formats of its files, and ingest their conversations."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.chat_messages import is_empty
from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.errors import ConfigurationError, InputError, shown
from memory_pipeline.importers.chat_lists import MESSAGES, OPENAI, SHAREGPT
from memory_pipeline.importers.chatgpt import CHATGPT
from memory_pipeline.importers.claude import CLAUDE
from memory_pipeline.importers.claude_code import CLAUDE_CODE
from memory_pipeline.importers.codex import CODEX
from memory_pipeline.importers.cogx import COGX
from memory_pipeline.importers.discord import DISCORD, DISCORD_PACKAGE
from memory_pipeline.importers.durable import DurableImport
from memory_pipeline.importers.files import UNREADABLE, export_at
from memory_pipeline.importers.gemini import GEMINI, GEMINI_CLI
from memory_pipeline.importers.hindsight import HINDSIGHT
from memory_pipeline.importers.langchain import LANGCHAIN
from memory_pipeline.importers.langmem import LANGMEM
from memory_pipeline.importers.letta import LETTA
from memory_pipeline.importers.mail import MAIL
from memory_pipeline.importers.mcp_memory import MCP_MEMORY
from memory_pipeline.importers.mem0 import MEM0
from memory_pipeline.importers.reading import BAD_RECORD, ImportedTalk, Notes, label, of_source, rejected
from memory_pipeline.importers.slack import SLACK
from memory_pipeline.importers.telegram import TELEGRAM
from memory_pipeline.importers.whatsapp import WHATSAPP
from memory_pipeline.importers.zep import ZEP, ZEP_THREAD
from memory_pipeline.writer.files import Ingestion, ingest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from memory_pipeline.domain.conversations import Admission
    from memory_pipeline.importers.files import Export, ExportFile
    from memory_pipeline.importers.reading import Format, Item
    from memory_pipeline.lake import Lake

#: The first one that matches a file counts: special formats come before general ones.
FORMATS: Final[tuple[Format, ...]] = (
    CHATGPT, CLAUDE, CLAUDE_CODE, CODEX, GEMINI, GEMINI_CLI, SLACK, DISCORD, DISCORD_PACKAGE, TELEGRAM, WHATSAPP, MAIL,
    COGX, MEM0, ZEP, ZEP_THREAD, LETTA, LANGMEM, HINDSIGHT, MCP_MEMORY, LANGCHAIN, SHAREGPT, OPENAI, MESSAGES,
)  # fmt: skip
_BROKEN: Final = re.compile(r"[\x00\ud800-\udfff]")
#: Names of unknown files that are shown.
_SHOWN: Final = 5


@dataclass
class ImportReport:
    """Result of an import.

    Attributes:
        files: the files that were read, by format.
        ingestion: what became of their conversations.
        memories, relations: durable memories and facts of the graph that were written.
        memories_repeated: those that were known.
        samples: the first of those that were written.
        first, last: times of the first and the last message.
        skipped: what is nobody's words, or says nothing, and how often.
        unread: the files that were not read, by reason.
        unknown: the first files in no known format.
        checks: what the user should check, and how often.
    """

    files: Counter[str] = field(default_factory=Counter)
    ingestion: Ingestion = field(default_factory=Ingestion)
    memories: int = 0
    relations: int = 0
    memories_repeated: int = 0
    samples: list[str] = field(default_factory=list)
    first: datetime | None = None
    last: datetime | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    unknown: list[str] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)


def import_history(
    lake: Lake,
    path: Path,
    admission: Admission,
    *,
    format: str | None = None,  # noqa: A002  # as the option is called
    timezone: str | None = None,
    at: datetime | None = None,
    date_order: str | None = None,
    me: str | None = None,
    default_scope: Mapping[str, str] | None = None,
    defaults: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> ImportReport:
    """Import the conversations of an export: a file, a folder or a zip archive. Create the lake if it does not exist.

    The format of each file is recognised by its content. Conversations get the source ``import:NAME``, by which
    :meth:`Memory.rollback` withdraws them. Importing an export again, or a later one, adds only what is new. Records
    that cannot be read are moved to the quarantine, with the reason.

    Args:
        lake: where to write.
        path: the export.
        admission: limits of accepted times.
        format: the name of the format; by default every file is recognised by its content.
        timezone: the zone of times that state none.
        at: the time of conversations that have none; by default the time of their file.
        date_order: the order in dates such as 3/4/24: ``dmy``, ``mdy`` or ``ymd``; by default it is found in the file.
        me: the name or the id, in the export, of the speaker who is the user. Others are stored under their names.
        default_scope: as for :func:`~memory_pipeline.writer.files.ingest_file`.
        defaults: likewise.
        progress: called with the number of bytes that were read, and the number of all.

    Raises:
        InputError: the export cannot be read, no file is in a known format, a name is unknown, or a zone is needed.
    """
    fields = {**(defaults or {}), **(default_scope or {})}
    if me is not None and any(fields.get(key) is not None for key in ("users", "group_id")):
        raise InputError(f"me {shown(me)} is not accepted for a group; import into the memory of one user")
    export, notes = export_at(path), Notes(_zone(timezone), timezone, at, date_order, me and me.strip())
    found = _recognised(export, _formats(format), is_forced=format is not None)
    if not found:
        names = ", ".join(one.name for one in FORMATS)
        raise InputError(f"{path} has no file in a known format; if you know it, name it with --format: {names}")
    for one, file in found:
        one.asks(file, notes)
        file.forget_beginning()
    report = ImportReport(skipped=notes.skipped, checks=notes.checks, unread=export.refused)
    known = {id(file) for _, file in found}
    companions = {name for one, _ in found for name in one.companions}
    unknown = [
        file.name for file in export.files.values() if id(file) not in known and file.path.name not in companions
    ]
    if unknown:
        report.unread["its format is not known"] += len(unknown)
        report.unknown = unknown[:_SHOWN]
    done, total = 0, sum(file.size for _, file in found)

    def count(size: int) -> None:
        nonlocal done
        done += size
        progress(min(done, total), total)

    export.read = count
    talks: set[str] = set()
    durable = DurableImport(lake, fields, admission.now, samples=report.samples)
    records = _records(found, notes, admission, report, talks, durable)
    report.ingestion = ingest(lake, records, admission, default_scope, defaults, is_import=True)
    notes.check_speakers()
    report.ingestion.conversations = len(talks)  # a long one is written in parts
    report.memories, report.relations, report.memories_repeated = durable.memories, durable.relations, durable.repeated
    return report


def _zone(name: str | None) -> Any:
    try:
        return None if name is None else Calendar(name).zone
    except ConfigurationError:
        raise InputError(f"timezone {shown(name)} is unknown; expected an IANA name such as Europe/Berlin") from None


def _formats(name: str | None) -> tuple[Format, ...]:
    found = tuple(one for one in FORMATS if name in (None, one.name))
    if not found:
        raise InputError(f"format {shown(name)} is unknown; expected {', '.join(one.name for one in FORMATS)}")
    return found


def _recognised(export: Export, formats: tuple[Format, ...], *, is_forced: bool) -> list[tuple[Format, ExportFile]]:
    """Return the files with their formats: those of one format together, each in the order that it asks for."""
    found = []
    for file in export.files.values():
        match = formats[0] if is_forced and len(export.files) == 1 else _match(file, formats)
        if match is not None:
            found.append((formats.index(match), match.order(file), file.name, file))
        file.forget_beginning()
    return [(formats[place], file) for place, *_, file in sorted(found, key=lambda one: one[:3])]


def _match(file: ExportFile, formats: tuple[Format, ...]) -> Format | None:
    for one in formats:
        try:
            if one.matches(file):
                return one
        except BAD_RECORD:
            continue
    return None


def _records(
    found: Iterable[tuple[Format, ExportFile]],
    notes: Notes,
    admission: Admission,
    report: ImportReport,
    talks: set[str],
    durable: DurableImport,
) -> Iterator[tuple[str, object]]:
    for one, file in found:
        report.files[one.name] += 1
        for item in _read(one, file, notes):
            if not isinstance(item, ImportedTalk):
                rejections = (
                    [of_source(item, one.name)] if isinstance(item, Rejection) else durable.take(item, one.name)
                )
                yield from ((rejection.where, rejection) for rejection in rejections)
                continue
            record = _conversation(item, one.name, notes, admission.now)
            times = [at for message in record["messages"] if (at := message["timestamp"]) is not None]
            if times and not (admission.admits(min(times)) and admission.admits(max(times))):
                times = [at for at in times if admission.admits(at)]
            report.first = min((at for at in (report.first, *times) if at), default=None)
            report.last = max((at for at in (report.last, *times) if at), default=None)
            if record["messages"]:
                talks.add(record["conversation_id"])
                yield item.where, record
        file.forget_beginning()
    yield from ((rejection.where, rejection) for rejection in durable.finish())


def _read(one: Format, file: ExportFile, notes: Notes) -> Iterator[Item]:
    try:
        yield from one.items(file, notes)
    except (*UNREADABLE, *BAD_RECORD) as error:
        yield rejected(error, file.name, file.name)


def _conversation(talk: ImportedTalk, name: str, notes: Notes, now: datetime) -> dict[str, Any]:
    """Return a conversation as an agent writes one."""
    messages, at = [], talk.started_at and min(talk.started_at, now)
    for message in talk.messages:
        if is_empty(message) or not message.get("role", message.get("from")):
            notes.skip("messages without text")
            continue
        at = message["timestamp"] or at
        messages.append(
            {
                **{key: value for key, value in message.items() if key != "speaker"},
                "timestamp": at,
                "id": None if message.get("id") is None else label(message["id"]),
                "name": notes.name_of(message),
                **({"content": _clean(message["content"])} if "content" in message else {}),
            }
        )
    return {
        "conversation_id": label(f"{name}:{talk.conversation_id}"),
        "source": f"import:{name}",
        "timezone": notes.timezone,
        "tags": sorted({label(tag) for tag in talk.tags if tag.strip()}),
        "messages": messages,
    }


def _clean(content: Any) -> Any:
    """Return a content without characters that no text may have."""
    if isinstance(content, str):
        return _BROKEN.sub("\ufffd", content)
    if isinstance(content, list):
        return [_clean(part) for part in content]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return {**content, "text": _clean(content["text"])}
    return content
