"""Gemini: Google Takeout's "My Activity" as JSON, and the sessions of Gemini CLI in ``~/.gemini/tmp/*/chats``.

Takeout does not say which prompts belong together: a day is a conversation.

Sources: https://support.google.com/gemini/answer/13278892, https://github.com/AlexArchitect-Dev/gemini-takeout-refinery
and ``chatRecordingService.ts`` of https://github.com/google-gemini/gemini-cli
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.importers.html_text import text_of_page
from memory_pipeline.importers.reading import Format, each, file_mark, lines, spoken, talks_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

#: The words before a prompt in some languages.
_PROMPTED: Final = re.compile(
    r"(?:Prompted|Asked|Said|Eingegebener Prompt:?|Prompt:|Requête :|Instrucción:|Enviaste|送信したメッセージ:|提示:"
    r"|已提示)\s*"
)
_PRODUCTS: Final = ("gemini", "bard")
#: The program's own words in messages of the user of Gemini CLI.
_CONTEXT: Final = "This is the Gemini CLI. We are setting up the context for our chat"
_FILES: Final = "\n--- Content from referenced files ---"


def _is_activity(file: ExportFile) -> bool:
    return any(
        {"header", "title", "time"} <= one.keys()
        and any(name in f"{one['header']} {one.get('products')}".lower() for name in _PRODUCTS)
        for one in file.sample
    )


def _read_activity(file: ExportFile, notes: Notes) -> Iterator[Item]:
    def messages() -> Iterator[tuple[str, Any]]:
        for where, record in file.records():
            if isinstance(record, dict):
                yield where, (record, "user")
                yield where, (record, "assistant")
            else:
                yield where, record

    def message_in(part: tuple[dict[str, Any], str]) -> ChatMessage | None:
        record, role = part
        title, answers = str(record["title"]), record.get("safeHtmlItem") or []
        prompted = _PROMPTED.match(title)
        if not any(name in str(record["header"]).lower() for name in _PRODUCTS) or not (prompted or answers):
            if role == "user":
                notes.skip("other activities")
            return None
        at = time_of(record["time"])
        if role == "assistant":
            text = lines(*(text_of_page(one.get("html") or "").strip() for one in answers))
        else:
            files = [one.get("name") if isinstance(one, dict) else one for one in record.get("attachedFiles") or ()]
            image = "[image]" if record.get("imageFile") else ""
            text = lines(title[prompted.end() :] if prompted else title, image, *map(file_mark, files))
        said = spoken(role, text, at, id=f"{record['time']} {role}")
        return said | {"conversation": str(record["time"])[:10]}

    yield from talks_of(each(messages(), message_in), file.name, "activity")


def _is_session(file: ExportFile) -> bool:
    return any("sessionId" in one and ("projectHash" in one or "startTime" in one) for one in file.sample)


def _read_session(file: ExportFile, notes: Notes) -> Iterator[Item]:
    head = next(one for one in file.sample if "sessionId" in one)

    def messages() -> Iterator[tuple[str, Any]]:
        # Newer sessions have a message on each line, and an answer again when it has grown.
        newest: dict[object, tuple[str, Any]] = {}
        for number, (where, _, record) in enumerate(file.objects("messages")):
            key = record.get("id", number) if isinstance(record, dict) else number
            newest[key] = (where, record)
        for where, record in newest.values():
            if not isinstance(record, dict) or "type" in record:
                yield where, record
                for call in (record.get("toolCalls") or ()) if isinstance(record, dict) else ():
                    yield where, {"type": "tool", "call": call, "timestamp": record.get("timestamp")}

    def message_in(record: dict[str, Any]) -> ChatMessage | None:
        kind, at = record["type"], time_of(record.get("timestamp"))
        if kind == "tool":
            call = record["call"]
            result = {"args": call.get("args") or {}, "result": _result(call)}
            content = [{"type": "tool_call", "name": call["name"], **result}]
            return spoken("tool", content, time_of(call.get("timestamp")) or at, id=call.get("id"))
        said = record.get("content")
        text = _text(said).partition(_FILES)[0]
        if kind not in ("user", "gemini") or text.startswith(_CONTEXT):
            notes.skip("texts of the program")
            return None
        return spoken("user" if kind == "user" else "assistant", text, at, id=record.get("id"))

    start = time_of(head.get("startTime")) or file.modified
    yield from talks_of(each(messages(), message_in), file.name, str(head["sessionId"]), started_at=start)


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return lines(*(part.get("text", "[file]") if isinstance(part, dict) else part for part in parts))


def _result(call: dict[str, Any]) -> Any:
    shown = call.get("result")
    return shown if isinstance(shown, str) else call.get("resultDisplay") or shown


GEMINI = Format("gemini", "Gemini", _is_activity, read=_read_activity)
GEMINI_CLI = Format("gemini-cli", "Gemini CLI", _is_session, read=_read_session)
