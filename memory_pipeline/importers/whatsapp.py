"""WhatsApp's "Export chat": a text, or a zip with ``_chat.txt`` (iOS) or the text (Android) in it.

A line begins with a local time in the format of the phone's region. The order of day, month and year is found from all
lines of the file: only one order may be possible, or only one makes time go forward. Else the user is asked.

Sources: https://faq.whatsapp.com/1180414079177245 and https://github.com/Pustur/whatsapp-chat-parser
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.identity import digest
from memory_pipeline.errors import InputError
from memory_pipeline.importers.reading import (
    BAD_RECORD,
    Clock,
    Format,
    NoZoneError,
    file_mark,
    lines,
    rejected,
    spoken,
    talks_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.domain.conversations import Rejection
    from memory_pipeline.importers.files import ExportFile
    from memory_pipeline.importers.reading import ChatMessage, Item, Notes

_BIDI: Final = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
_MORNING: Final = r"a\.?\s?m\.?|午前|上午|凌晨|早上|오전|ص|π\.?μ\.?|पूर्वाह्न"
_AFTERNOON: Final = r"p\.?\s?m\.?|午後|下午|中午|晚上|오후|م|μ\.?μ\.?|अपराह्न"
_STAMP: Final = (
    r"(?P<first>\d{1,4})\s?[./\-年]\s?(?P<second>\d{1,2})\s?[./\-月]\s?(?P<third>\d{1,4})[.日]?[,،]?\s{1,3}"
    r"(?:(?:klo|um|kl\.?|at|a las|à|às|alle|o)\s)?"
    rf"(?:(?P<before>{_MORNING}|{_AFTERNOON})\s?)?(?P<hour>\d{{1,2}})[:.](?P<minute>\d{{2}})(?:[:.](?P<seconds>\d{{2}}))?"
    rf"(?:\s?(?P<after>{_MORNING}|{_AFTERNOON}))?"
)
_LINE: Final = re.compile(
    rf"[{_BIDI}]*(?:\[{_STAMP}\]|{_STAMP.replace('?P<', '?P<a_')}\s[-–]) ?(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
_AFTER: Final = re.compile(_AFTERNOON, re.IGNORECASE)
_SPEAKER: Final = re.compile(r"(?P<name>[^:\n]{1,120}?):(?: (?P<text>.*)|(?P<empty>\s*))\Z", re.DOTALL)
_ORDERS: Final = {"dmy": (2, 1, 0), "mdy": (2, 0, 1), "ymd": (0, 1, 2)}
_PHOTO: Final = (
    "image|photo|gif|bild|foto|imagen|imagem|immagine|afbeelding|изображение|фото|görüntü|obraz|画像|图像|圖片|사진"
)
_MEDIA: Final = re.compile(
    rf"[<(]?(?:(?P<image>{_PHOTO})|(?P<audio>audio|аудио|音频|오디오|ses)|(?P<video>video|vidéo|vídeo|видео|视频|동영상|wideo)"
    r"|sticker|document|dokument|documento|media|medien|médias?|multimedia|mídia|arquivo|стикер|документ|contact card)"
    r"\b.{0,12}?\b(?:omitted|weggelassen|ausgeschlossen|omitid[oa]s?|omis(?:es?)?|absente?|omess[oia]|ocult[oa]d?[oa]?"
    r"|weggelaten|отсутствует|пропущен[оаы]?|dahil edilmedi|pominięt[oey])[>)]?",
    re.IGNORECASE,
)
#: The place of a file that is or is not in the archive: iOS's ``<attached: name>``, Android's ``name (file attached)``.
_ATTACHED: Final = re.compile(
    r"<[^<>:\n]{2,40}: (?P<ios>[^<>\n]{1,200}\.\w{2,5})>|(?P<android>[^\n]{1,200}\.\w{2,5}) \([^()\n]{3,40}\)"
)
#: Android has no media in it: ``<Media omitted>`` in the phone's language.
_LEFT_OUT: Final = re.compile(r"<[^<>\n]{3,60}>")
_DELETED: Final = re.compile(
    r"(?:this message was deleted|you deleted this message"
    r"|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht"
    r"|se eliminó este mensaje|eliminaste este mensaje|ce message a été supprimé|vous avez supprimé ce message"
    r"|questo messaggio è stato eliminato|hai eliminato questo messaggio|esta mensagem foi apagada|mensagem apagada"
    r"|dit bericht is verwijderd|данное сообщение удалено|bu mesaj silindi)\.?",
    re.IGNORECASE,
)
_EDITED: Final = re.compile(r"\s*\u200e?<[^<>\n]{5,60}>\Z")
_IMAGES: Final = (".jpg", ".jpeg", ".png", ".webp", ".gif")
_SOUNDS: Final = (".opus", ".m4a", ".mp3", ".aac", ".ogg")
_FILMS: Final = (".mp4", ".mov", ".3gp")
_CHAT: Final = re.compile(
    r".{0,20}?WhatsApp.{0,8}?\s(?:-|with|mit|con|avec|com|met|с)\s(?P<name>.+?)(?: ?\(\d+\))?", re.IGNORECASE
)


class _Stamp(NamedTuple):
    """The numbers of a line's time, in the order of the file, and what follows."""

    numbers: tuple[str, str, str]
    hour: int
    minute: int
    second: int
    rest: str

    def at(self, order: str) -> datetime:
        """Return the local time. Raise ValueError if the order is impossible."""
        year, month, day = (self.numbers[place] for place in _ORDERS[order])
        if len(year) == 3 or (len(year) == 1) or len(month) > 2 or len(day) > 2:
            raise ValueError("not a date in this order")
        full = int(year) + (2000 if len(year) == 2 else 0)
        full -= 543 if full > 2400 else 0  # the Buddhist calendar of phones in Thailand
        return datetime(full, int(month), int(day), self.hour, self.minute, self.second)  # noqa: DTZ001  # local


def _stamp_of(line: str) -> _Stamp | None:
    found = _LINE.match(line)
    if found is None:
        return None
    side = "" if found["first"] else "a_"
    mark = found[f"{side}before"] or found[f"{side}after"]
    hour = int(found[f"{side}hour"])
    if mark:
        hour = hour % 12 + (12 if _AFTER.fullmatch(mark) else 0)
    numbers = (found[f"{side}first"], found[f"{side}second"], found[f"{side}third"])
    return _Stamp(numbers, hour, int(found[f"{side}minute"]), int(found[f"{side}seconds"] or 0), found["rest"])


def _matches(file: ExportFile) -> bool:
    if file.sample:
        return False
    first = file.beginning.split("\n", 50)[:50]
    return sum(_stamp_of(line) is not None for line in first) >= (2 if len(first) > 2 else 1)


def _asks(file: ExportFile, notes: Notes) -> None:
    if notes.zone is None:
        raise NoZoneError(file.name)
    if notes.date_order is not None and notes.date_order not in _ORDERS:
        raise InputError(f"date order {notes.date_order!r} is unknown; expected dmy, mdy or ymd")
    notes.known[file.name] = notes.date_order or _order_in(file)


def _order_in(file: ExportFile) -> str:
    """Return the order of day, month and year in a file: the one that is possible and makes time go forward."""
    previous: dict[str, datetime] = {}
    back: Counter[str] = Counter(dict.fromkeys(_ORDERS, 0))
    is_dotted, is_unclear = True, False
    with file.text() as text:
        for line in text:
            if (stamp := _stamp_of(line)) is None:
                continue
            is_dotted = is_dotted and "." in line[:12] and "/" not in line[:12]
            if len(stamp.numbers[0]) < 4:  # a year of two digits stands last
                back.pop("ymd", None)
            for order in list(back):
                try:
                    at = stamp.at(order)
                except ValueError:
                    del back[order]
                    continue
                back[order] += at < previous.get(order, at)
                previous[order] = at
            is_unclear = is_unclear or len({previous[order] for order in back}) > 1
    if is_dotted and "dmy" in back:  # no region writes the month before the day with dots
        return "dmy"
    best = [order for order in back if back[order] == min(back.values())]
    if len(best) != 1 and (is_unclear or not best):
        problem = "can be read in several ways" if best else "cannot be read"
        raise InputError(f"the dates in {file.name} {problem}; name their order with --date-order dmy, mdy or ymd")
    return best[0]


def _read(file: ExportFile, notes: Notes) -> Iterator[Item]:
    if file.name not in notes.known:
        _asks(file, notes)
    order, clock = notes.known[file.name], Clock(notes)

    def messages() -> Iterator[ChatMessage | Rejection]:
        repeated: Counter[str] = Counter()
        minute = None
        for where, stamp, text in _entries(file):
            try:
                local = stamp.at(order)
                said = _message(text, notes)
                if said is None:
                    continue
                if local != minute:
                    minute = local
                    repeated.clear()
                key = f"{local.isoformat()} {digest('said', said[1])[:12]}"
                repeated[key] += 1
                identity = key if repeated[key] == 1 else f"{key} {repeated[key]}"
                yield spoken("user", said[1], clock.instant(local), id=identity, name=said[0])
            except BAD_RECORD as error:
                yield rejected(error, where, text)

    chat = _chat_name(file)
    first = () if chat else ((stamp, text) for _, stamp, text in _entries(file))
    identity = chat or next((digest("chat", list(stamp.numbers), text) for stamp, text in first), "")
    yield from talks_of(messages(), file.name, identity, tags=(chat,))


def _chat_name(file: ExportFile) -> str:
    """Return the name of the chat, by the name of the file or of the archive around ``_chat.txt``; else nothing."""
    found = _CHAT.fullmatch(file.path.stem) or _CHAT.fullmatch(file.path.parent.name.removesuffix(".zip"))
    return found["name"].strip() if found else ""


def _entries(file: ExportFile) -> Iterator[tuple[str, _Stamp, str]]:
    """Yield the place, the time and the text of each message: lines without a time continue the one before."""
    current: tuple[str, _Stamp] | None = None
    texts: list[str] = []
    with file.text() as text:
        for number, line in enumerate(text, start=1):
            stamp = _stamp_of(line.rstrip("\r\n"))
            if stamp is None:
                if current is not None and len(texts) < 10_000:
                    texts.append(line.rstrip("\r\n"))
                continue
            if current is not None:
                yield *current, "\n".join(texts)
            current, texts = (f"{file.name}, line {number}", stamp), [stamp.rest]
    if current is not None:
        yield *current, "\n".join(texts)


def _message(text: str, notes: Notes) -> tuple[str, str] | None:
    """Return who said what; None for a notice, such as that someone joined, and for what was deleted."""
    found = _SPEAKER.match(text)
    if found is None:
        notes.skip("notices of the service")
        return None
    name = found["name"].strip(_BIDI + " ").removeprefix("~").strip("\u202f\xa0 ")
    said = found["text"] or ""
    is_marked, said = said.startswith("\u200e"), _EDITED.sub("", said) if "\u200e<" in said[1:] else said
    said = said.strip(_BIDI + " ")
    if _DELETED.fullmatch(said):
        notes.skip("messages that were deleted")
        return None
    first, _, rest = said.partition("\n")
    media = _media(first.strip(_BIDI))
    if is_marked and media is None:
        notes.skip("notices of the service")
        return None
    return name, said if media is None else lines(media, rest)


def _media(line: str) -> str | None:
    """Return the mark of a file that the line stands for, if it does."""
    if attached := _ATTACHED.fullmatch(line):
        return _mark(attached["ios"] or attached["android"])
    if media := _MEDIA.fullmatch(line):
        return file_mark(None, next((kind for kind in ("image", "audio", "video") if media[kind]), None))
    return "[file]" if _LEFT_OUT.fullmatch(line) else None


def _mark(name: str) -> str:
    ending = name.lower()
    for kind, endings in (("image", _IMAGES), ("audio", _SOUNDS), ("video", _FILMS)):
        if ending.endswith(endings):
            return f"[{kind}]"
    return file_mark(name)


WHATSAPP = Format("whatsapp", "WhatsApp", _matches, read=_read, asks=_asks)
