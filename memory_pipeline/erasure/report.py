"""Receipts: what was forgotten, where it stood, and how to find out whether anything of it is left.

A receipt names its subject in clear, and so is kept outside of the lake. What was removed stands in it as hashes: ids,
which are hashes of content, and salted digests of texts.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from memory_pipeline.domain.erasure import Subject
from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.json_text import read_json
from memory_pipeline.errors import InputError, shown

#: What a receipt says that it is.
KIND, FORMAT = "memory-pipeline receipt of erasure", 1
#: Shorter texts may well have been said by others too.
LEAST_CHARACTERS = 24
_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed from one place.

    Attributes:
        place: a table's name, or ``journal``, ``quarantine``, ``calls``, ``index``, ``collections``.
        what: what was removed there, in words.
        count: how many.
        partitions: the partitions that it stood in, sorted; of the index, its tables.
    """

    place: str
    what: str
    count: int
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """What became of a subject.

    Attributes:
        subject: in clear.
        at: the time up to which it is forgotten, UTC.
        lake: the lake's address.
        tombstones: ids of what keeps it out.
        removed: what was removed, place by place.
        remade: the periods that were made again, by grain.
        ids: hexadecimal parts of the ids that are no more, sorted.
        salt: of the digests.
        contents: digests of texts of at least 24 characters that nothing else holds, sorted.
        files, bytes: what left the disk.
        not_covered: what it does not reach, in words.
    """

    subject: Subject
    at: datetime
    lake: str
    tombstones: tuple[str, ...]
    removed: tuple[Removed, ...]
    remade: dict[str, tuple[str, ...]]
    ids: tuple[str, ...]
    salt: str
    contents: tuple[str, ...]
    files: int
    bytes: int
    not_covered: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return it as a JSON object, with a digest over the rest of it."""
        record = {
            "what": KIND,
            "format": FORMAT,
            **{name: getattr(self, name) for name in self.__slots__},
            "subject": self.subject.to_record(),
            "at": self.at.isoformat(),
            "removed": [asdict(part) for part in self.removed],
        }
        plain = json.loads(json.dumps(record))
        return json.dumps({**plain, "digest": digest(plain)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ErasureReport:
        """Read and check what :meth:`to_json` gives.

        Raises:
            InputError: it is no receipt, or something in it was changed.
        """
        try:
            record: dict[str, Any] = read_json(text)
            own = record.pop("digest")
            if record["what"] != KIND:
                raise KeyError("what")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{shown(text, 40)} is no receipt; expected the file that `memory-pipeline forget` wrote"
            ) from None
        if record.get("format") != FORMAT:
            raise InputError(f"format {shown(record.get('format'))} of the receipt is unknown; accepted: {FORMAT}")
        if own != digest(record):
            raise InputError("the receipt was changed since it was written: its digest does not fit what it says")
        try:
            return cls._parsed(record)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the receipt cannot be read: {shown(str(error))}") from None

    @classmethod
    def _parsed(cls, record: dict[str, Any]) -> ErasureReport:
        return cls(
            subject=Subject.from_record(record["subject"]),
            at=datetime.fromisoformat(record["at"]),
            lake=_text(record["lake"]),
            tombstones=tuple(map(_hash, record["tombstones"])),
            removed=tuple(
                replace(Removed(**part), partitions=tuple(map(_text, part["partitions"])), count=int(part["count"]))
                for part in record["removed"]
            ),
            remade={_text(grain): tuple(map(_text, periods)) for grain, periods in record["remade"].items()},
            ids=tuple(map(_hash, record["ids"])),
            salt=_hash(record["salt"]),
            contents=tuple(map(_hash, record["contents"])),
            files=int(record["files"]),
            bytes=int(record["bytes"]),
            not_covered=tuple(map(_text, record["not_covered"])),
        )


def content_mark(salt: str, text: str) -> str:
    """Return the salted digest of a text, 32 hex digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=salt.encode()).hexdigest()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{shown(value)} is not a text")
    return value


def _hash(value: object) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise TypeError(f"{shown(value)} is not made of 32 hex digits")
    return value
