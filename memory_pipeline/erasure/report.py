"""Receipts of erasures, which `memory-pipeline verify-erasure` checks.

A receipt names its subject in clear, so store it outside of the lake. It lists removed rows as hashes only: ids, which
are hashes of content, and salted digests of texts.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime  # noqa: TC003  # pydantic reads the annotations
from hashlib import blake2b
from typing import Annotated, Any

from pydantic import Field, PlainValidator, TypeAdapter

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.json_text import read_json
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.errors import InputError, shown

KIND, FORMAT = "memory-pipeline receipt of erasure", 1
#: Shorter texts get no digest, because others may well have said the same.
LEAST_CHARACTERS = 24
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


@dataclass(frozen=True, slots=True)
class Removed:
    """Items removed from one place.

    Attributes:
        place: a table's name, or ``journal``, ``quarantine``, ``calls``, ``index``, ``collections``,
            ``sessions``.
        what: a description of the items.
        partitions: sorted; for the index, the names of its tables.
    """

    place: str
    what: str
    count: int
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The receipt of an erasure.

    Attributes:
        subject: in clear.
        at: the cutoff, UTC.
        lake: the lake's address.
        tombstones: ids of the tombstones that reject new data of the subject.
        remade: keys of the recomputed periods by grain.
        ids: hexadecimal parts of the removed ids, sorted.
        salt: the salt of the digests.
        contents: digests of removed texts of at least 24 characters, sorted.
        files, bytes: number and size of the deleted files.
        not_covered: descriptions of data that the erasure does not reach.
    """

    subject: Annotated[Subject, PlainValidator(Subject.from_record)]
    at: datetime
    lake: str
    tombstones: tuple[_Hash, ...]
    removed: tuple[Removed, ...]
    remade: dict[str, tuple[str, ...]]
    ids: tuple[_Hash, ...]
    salt: _Hash
    contents: tuple[_Hash, ...]
    files: int
    bytes: int
    not_covered: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the receipt as JSON, with a digest of its other fields."""
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
        """Parse the output of :meth:`to_json`. Raise InputError if it is not a receipt, or was changed."""
        try:
            record: dict[str, Any] = read_json(text)
            stated_digest = record.pop("digest")
            if record["what"] != KIND:
                raise KeyError("what")
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            raise InputError(
                f"{shown(text, 40)} is not a receipt; expected the file that `memory-pipeline forget` wrote"
            ) from None
        if record.get("format") != FORMAT:
            raise InputError(f"format {shown(record.get('format'))} of the receipt is unknown; accepted: {FORMAT}")
        if stated_digest != digest(record):
            raise InputError("the receipt was changed after it was written: its digest does not match its content")
        try:
            return _RECEIPT.validate_python(record)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the receipt cannot be read: {shown(str(error))}") from None


_RECEIPT = TypeAdapter(ErasureReport)


def content_mark(salt: str, text: str) -> str:
    """Return the salted digest of a text as 32 hex digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=salt.encode()).hexdigest()
