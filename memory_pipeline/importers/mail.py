"""E-mail: an mbox file, as Thunderbird, Apple Mail and Google Takeout write it, or a single message (``.eml``).

Each thread is a conversation. What a mail repeats of an earlier one, and its signature, are left out.

Sources: RFC 4155 (mbox), RFC 5322 and RFC 3834 (which mails are automatic), and the library ``email`` of Python.
"""

from __future__ import annotations

import re
from datetime import UTC
from email import policy
from email.parser import BytesParser
from email.utils import parseaddr, parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.conversations import Rejection
from memory_pipeline.domain.identity import digest
from memory_pipeline.importers.html_text import text_of_page
from memory_pipeline.importers.json_stream import MAX_VALUE
from memory_pipeline.importers.reading import BAD_RECORD, Format, ImportedTalk, file_mark, lines, rejected, spoken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage

    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import Item, Notes

#: The line before each mail of an mbox: who sent it, and when.
_FROM: Final = re.compile(rb"From .*\d\d:\d\d")
_HEADER: Final = re.compile(r"^[A-Za-z][A-Za-z0-9-]{1,40}:", re.MULTILINE)
_NAMES: Final = ("\nfrom:", "\ndate:", "\nsubject:", "\nreceived:", "\nmessage-id:", "\nreturn-path:", "\nto:")
_ESCAPED: Final = re.compile(rb"^>(>*From )", re.MULTILINE)
_REPLY: Final = re.compile(r"\s*(?:re|aw|sv|vs|antw|rv|res|odp|ynt|fwd?|wg)\s*(?:\[\d+\])?\s*[:：]", re.IGNORECASE)
#: From here on a mail repeats an earlier one.
_EARLIER: Final = re.compile(
    r"^\s*(?:-{2,}\s*(?:Original[ -]Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original"
    r"|Messaggio originale|Mensagem original|Oorspronkelijk bericht"
    r"|Forwarded message|Weitergeleitete Nachricht|Исходное сообщение)\b.*"
    r"|_{20,}\s*|(?:From|Von|De|Da|Van|От|发件人|差出人)\s*[:：].*\n(?:.*\n){0,2}?\s*(?:Sent|Date|Gesendet|Datum|Envoyé"
    r"|Enviado|Enviada|Inviato|Verzonden|Fecha|Data|Отправлено|发送时间|送信日時)\s*[:：].*)$",
    re.MULTILINE | re.IGNORECASE,
)
#: The line before a quotation, which may be broken in two.
_WROTE: Final = re.compile(
    r"^(?!>)(?:[^\n]{0,120}\d[^\n]{0,120}\n(?!>))?(?=[^\n]*(?:[\d@]|wrote|schrieb|écrit|escribió|scritto|escreveu|schreef"
    r"|napisał|skrev|kirjoitti|написал|пише|yazdı|写道))[^\n]{1,250}[:：][ \t]*\n(?:[ \t]*\n)*(?=>)",
    re.MULTILINE,
)
_QUOTED: Final = re.compile(r"^[ \t]*>.*(?:\n|\Z)", re.MULTILINE)
_SIGNATURE: Final = re.compile(
    r"^(?:-- ?|(?:Sent from|Get Outlook for|Von meinem .{2,20} gesendet|Envoyé de mon|Enviado desde mi|Inviato da"
    r"|Enviado do meu|Verstuurd vanaf)\b.{0,60})$",
    re.MULTILINE,
)
_BLANK: Final = re.compile(r"\n{3,}")


def _matches(file: ExportFile) -> bool:
    text = file.beginning
    head = text.partition("\n\n")[0] if "\r\n" not in text else text.partition("\r\n\r\n")[0]
    is_box = head.startswith("From ")
    if not is_box and not _HEADER.match(head):
        return False
    return sum(name in f"\n{head}".lower() for name in _NAMES) >= (2 if is_box else 3)


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    for number, data in enumerate(_messages(file), start=1):
        where = f"{file.name}, mail {number}"
        if len(data) > MAX_VALUE:
            yield Rejection(f"larger than {MAX_VALUE // 2**20} MB", where, data[:1_000].decode(errors="replace"))
            continue
        try:
            yield from _talk(data, where, file, notes)
        except (*BAD_RECORD, LookupError) as error:
            yield rejected(error, where, data[:10_000].decode(errors="replace"))


def _messages(file: ExportFile) -> Iterator[bytes]:
    """Yield the mails of a file. Of one that is too large, the beginning."""
    mail: list[bytes] = []
    size, was_blank = 0, True
    with file.open() as box:
        while line := box.readline(2**20):
            if was_blank and _FROM.match(line) and (mail or size == 0):
                if mail:
                    yield b"".join(mail)
                mail, size = [], 1
            elif size <= MAX_VALUE:
                mail.append(line)
                size += len(line)
            was_blank = line in (b"\n", b"\r\n")
    if mail:
        yield b"".join(mail)


def _talk(data: bytes, where: str, file: ExportFile, notes: Notes) -> Iterator[Item]:
    mail: EmailMessage = BytesParser(policy=policy.default).parsebytes(_ESCAPED.sub(rb"\1", data))
    labels = str(mail.get("X-Gmail-Labels") or "").lower()
    if any(label in labels for label in ("spam", "trash", "draft")):
        notes.skip("mails in spam, trash and drafts")
        return
    identity = str(mail.get("Message-ID") or "").strip() or digest("mail", data.hex())
    if identity in notes.seen:
        notes.skip("mails that the export repeats")
        return
    before = re.findall(r"<[^<>\s]+>", f"{mail.get('References') or ''} {mail.get('In-Reply-To') or ''}")
    subject = str(mail.get("Subject") or "").strip()
    name, address = parseaddr(str(mail.get("From") or ""))
    files = [file_mark(part.get_filename(), part.get_content_type()) for part in mail.iter_attachments()]
    text = lines("" if before or _REPLY.match(subject) else subject, own_words(_body(mail)), *files)
    role = "tool" if _is_automatic(mail) else "user"
    date = mail.get("Date")
    at = None if date is None else parsedate_to_datetime(str(date))
    at = at if at is None or at.tzinfo else at.replace(tzinfo=UTC)
    message = spoken(role, text, at, id=identity, name=name or address)
    thread = str(mail.get("X-GM-THRID") or "") or (before[0] if before else identity)
    notes.seen.add(identity)
    yield ImportedTalk(where, thread, [message], file.modified)


def _is_automatic(mail: EmailMessage) -> bool:
    stated = str(mail.get("Auto-Submitted") or "no").lower()
    bulk = str(mail.get("Precedence") or "").lower() in ("bulk", "junk", "list")
    return stated != "no" or bulk or mail.get("List-Unsubscribe") is not None


def _body(mail: EmailMessage) -> str:
    body: Any = mail.get_body(("plain", "html"))
    if body is None:
        return ""
    try:
        text = str(body.get_content())
    except LookupError:  # an unknown character set
        text = body.get_payload(decode=True).decode("utf-8", "replace")
    return text_of_page(text) if body.get_content_type() == "text/html" else text.replace("\r\n", "\n")


def own_words(text: str) -> str:
    """Return what a mail says without the mails that it answers and without its signature."""
    if found := _EARLIER.search(text):
        text = text[: found.start()]
    text = _QUOTED.sub("", _WROTE.sub("\n", text))
    if found := _SIGNATURE.search(text):
        text = text[: found.start()]
    return _BLANK.sub("\n\n", text).strip()


MAIL = Format("mail", "E-mail", _matches, read=_read)
