"""Calls and answers that are not in the tables yet: a small file for each question.

::

    calls/pending/answers/{key}.json    an answer, and the requests that it took
    calls/pending/calls/{ulid}.json     requests without an answer, or after another process had stored one

The name of an answer's file is the key of its question, so finding it takes one read.
"""

from __future__ import annotations

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ulid import ULID

from memory_pipeline.domain.messages import timestamp_of
from memory_pipeline.domain.model_calls import Answer, Call, Purpose
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.codec.calls import answer_to_row, call_to_row, row_to_answer, row_to_call
from memory_pipeline.lake.files.strict_json import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from memory_pipeline.lake.files.storage import FileInfo, Storage

_log = logging.getLogger(__name__)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_PENDING = "calls/pending"
_ANSWERS = f"{_PENDING}/answers"
_CALLS = f"{_PENDING}/calls"
_KEY = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(rf"{_PENDING}/(?:answers/(?P<key>{_KEY.pattern})|calls/[0-9A-HJKMNP-TV-Z]{{26}})\.json")
#: Number of concurrent reads or deletes over the network.
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Content of a pending file: requests of one question, its answer, if any, and the time of storage."""

    calls: tuple[Call, ...]
    answer: Answer | None
    kept_at: datetime

    @property
    def vectors(self) -> Answer | None:
        """The answer, if it comes from an embedder."""
        return self.answer if self.answer is not None and self.answer.purpose is Purpose.EMBEDDING else None


class PendingCalls:
    """Writes, lists, reads and deletes pending files. Safe to use from many threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._unreadable: dict[str, str] = {}

    def write(self, kept: PendingCall) -> str:
        """Write a file durably and return its path.

        Raises:
            InputError: the answer's key is not a digest.
        """
        record = {
            "kept_at": kept.kept_at.isoformat(),
            "calls": [{**call_to_row(call), "called_at": call.called_at.isoformat()} for call in kept.calls],
            "answer": None if kept.answer is None else answer_to_row(kept.answer),
        }
        data = json.dumps(record, ensure_ascii=False).encode()
        if kept.answer is not None:
            if not _KEY.fullmatch(kept.answer.key):
                raise InputError(f"key {shown(kept.answer.key)} is not valid; expected 32 hex digits")
            path = f"{_ANSWERS}/{kept.answer.key}.json"
            if self._storage.create(path, data):
                return path
            # The existing answer stays. Neither the cost of this one nor the calls of the other may be lost.
        path = f"{_CALLS}/{ULID()}.json"
        self._storage.write(path, data)
        return path

    def find(self, key: str) -> PendingCall | None:
        """Return the stored answer to a question, or None, in one read."""
        path = f"{_ANSWERS}/{key}.json"
        data = self._storage.read(path)
        return None if data is None else self._parsed(path, data, "")

    def list(self) -> list[FileInfo]:
        """Return the pending files. Files with a foreign place or name are ignored."""
        return [entry for entry in self._storage.list(_PENDING) if _NAME.fullmatch(entry.path)]

    def read(self, entries: Iterable[FileInfo]) -> dict[FileInfo, PendingCall]:
        """Return the contents of files. Missing and unreadable ones are omitted.

        An unreadable file is read again only after it has changed.
        """
        unread = [entry for entry in entries if self._unreadable.get(entry.path) != entry.tag]
        contents = {}
        for entry, data in zip(unread, self._each(lambda entry: self._storage.read(entry.path), unread), strict=True):
            call = None if data is None else self._parsed(entry.path, data, entry.tag)
            if call is not None:
                contents[entry] = call
        return contents

    def damaged(self) -> dict[str, str]:
        """Return the files that cannot be read, with the reasons."""
        found = {}
        for entry in self.list():
            try:
                data = self._storage.read(entry.path)
                if data is not None:
                    _from_bytes(entry.path, data)
            except InputError as error:
                found[entry.path] = str(error)
        return found

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files. Missing ones are ignored."""
        self._each(lambda path: self._storage.delete([path]), paths)

    def _each(self, do: Callable[[_Item], _Result], items: Sequence[_Item]) -> Sequence[_Result]:
        if self._storage.is_local or len(items) < 2:
            return [do(item) for item in items]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(do, items))

    def _parsed(self, path: str, data: bytes, tag: str) -> PendingCall | None:
        try:
            return _from_bytes(path, data)
        except InputError as error:
            if path not in self._unreadable:
                _log.warning("%s cannot be read and is ignored: %s", self._storage.locate(path), error)
            self._unreadable[path] = tag or self._unreadable.get(path, "")
            return None


def _from_bytes(path: str, data: bytes) -> PendingCall:
    record = parse_json(data)
    answer, calls = record.get("answer"), record.get("calls")
    if not isinstance(calls, list):
        raise InputError(f"calls {shown(calls)} is not valid; expected a list")
    pending = PendingCall(
        calls=tuple(row_to_call(_row(call)) for call in calls),
        answer=None if answer is None else row_to_answer(_row(answer)),
        kept_at=timestamp_of("kept_at", record.get("kept_at")),
    )
    name = _NAME.fullmatch(path)
    key = name and name["key"]
    if key and (pending.answer is None or pending.answer.key != key):
        raise InputError("the key of its answer does not match its name")
    return pending


def _row(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"expected a JSON object, not {shown(value)}")
    return value
