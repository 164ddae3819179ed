"""Remove a subject from the receipts of reads."""

from __future__ import annotations

import secrets
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.erasure.report import content_mark
from memory_pipeline.erasure.scanner import hex_of
from memory_pipeline.lake.read_receipts import ERASED, lost, texts_of
from memory_pipeline.lake.schemas import IS_FACT, READ_RECEIPTS, SUMMARIES
from memory_pipeline.reader.packing.items import DURABLE, compact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.domain.erasure import Tombstone
    from memory_pipeline.domain.subjects import Subject
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.erasure.scanner import SubjectScanner
    from memory_pipeline.lake import Lake

    Row = dict[str, Any]

_SUMMARIES = frozenset(grain.value for grain in SUMMARY_GRAINS)


def remove_receipts(
    lake: Lake, scanner: SubjectScanner, tombstones: Sequence[Tombstone], log: ErasureLog, *, is_resumed: bool = False
) -> None:
    """Remove a subject's receipts until the cutoff, and its items from those of others. `tombstones` are its own.

    Call it when all else is removed. An item goes if memory does not have it any more, or a message that it rests on,
    or if it names the person. If the erasure `is_resumed`, what was removed before is unknown, and all items go.
    """
    lake.read_receipts.settle()
    subject = scanner.subject
    is_own = _owned(subject)
    found = cache(lambda: _removed(lake, scanner, log))  # reads the lake, so only for a receipt that may lose an item

    def without(row: Row) -> Row | None:
        if row["workspace_id"] != subject.workspace_id:
            return row
        # A read after the cutoff may still have found what is erased. What was said after it may name the person.
        is_before = row["called_at"] <= scanner.at
        if is_before and is_own(row):
            return None
        if subject.agent_id not in (None, row["agent_id"]):
            return row

        def is_removed(item: Row) -> bool:
            return is_resumed or (is_before and _names(scanner, item)) or found()(item)

        talk = row["conversation_id"]
        items = [lost(item, ERASED) if not item["lost"] and is_removed(item) else item for item in row["items"]]
        is_named = bool(talk) and is_before and scanner.mentions([talk])
        return {**row, "items": items, "conversation_id": None if is_named else talk}

    rewritten = lake.read_receipts.rewrite(without)
    log.take(READ_RECEIPTS.name, "receipts that went or lost items", rewritten)
    lake.read_receipts.note_erasure(tombstones)


def _names(scanner: SubjectScanner, item: Row) -> bool:
    return bool(scanner.mentions([*texts_of([item]), item["identity"] or ""]))


def _owned(subject: Subject) -> Callable[[Row], bool]:
    identities = set(map(user_identity, subject.user_ids))

    def is_own(row: Row) -> bool:
        if subject.kind is SubjectKind.AGENT:
            return subject.agent_id in (row["agent_id"], row["asking_agent"])
        if subject.agent_id not in (None, row["agent_id"]):
            return False
        if subject.kind is SubjectKind.CONVERSATION:
            is_same = row["conversation_id"] in subject.conversation_ids
            return is_same and subject.identity in (None, row["identity"])
        return row["identity"] in identities

    return is_own


def _removed(lake: Lake, scanner: SubjectScanner, log: ErasureLog) -> Callable[[Row], bool]:
    """Return a function that returns whether an item is gone from memory, or rests on what is."""
    salt = secrets.token_hex(16)
    ids, contents = map(frozenset, log.gone(lake, scanner, salt))
    memories: defaultdict[str, list[str]] = defaultdict(list)  # of the scopes that lost something
    rows = lake.memory_rows.read(log.scopes, ["memory_id", "content"], IS_FACT)
    for memory_id, content in zip(rows["memory_id"].to_pylist(), rows["content"].to_pylist(), strict=True):
        memories[memory_id].append(compact(content))

    @cache
    def points(grain: str, period: str) -> set[tuple[str, str]]:
        rows = lake.tables.read(SUMMARIES, [period], columns=["id", "key_points"], shard=None, grain=grain)
        return {
            (row["id"], compact(point["sentence"])) for row in rows.to_pylist() for point in row["key_points"] or ()
        }

    def is_removed(item: Row) -> bool:
        if any(content_mark(salt, text) in contents for text in texts_of([item])):
            return True
        if item["grain"] in _SUMMARIES:
            # A summary that was made again may have lost the point; then nothing says whose it was.
            is_touched = hex_of(item["id"]) in log.ids
            key = item["id"].partition("#")[0], item["content"] or ""
            return is_touched and key not in points(item["grain"], item["period"])
        if item["grain"] == DURABLE and item["id"] in memories:
            return not any(content in (item["content"] or "") for content in memories[item["id"]])
        return any(hex_of(one) in ids for one in (item["id"], *(item["sources"] or ())) if one)

    return is_removed
