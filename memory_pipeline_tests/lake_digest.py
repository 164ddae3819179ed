"""Digests of a lake's contents. Two lakes built from the same journal have equal digests.

In a test::

    assert differing(lake_digest(left), lake_digest(right)) == []
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.access_log import USE
from memory_pipeline.lake.schemas import ACCESS_LOG, LEDGER, READ_RECEIPTS, TABLES
from memory_pipeline.lake.tables.marts import Marts
from memory_pipeline.steps.group import by_scope
from memory_pipeline.steps.results import NO_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.lake import Lake

#: Columns that depend on a clock or on chance.
_LEFT_OUT = {
    "messages": {"received_at"},
    "model_calls": {"hour", "id", "request_id", "called_at", "seconds"},
    "expirations": {"at"},
    "access_log": {"day", "id", "called_at"},
    "tombstones": {"id", "salt", "mark", "forgotten_at"},
}
_DIGITS = 16
#: Like `json.dumps`, but reuses the encoder for a hundred thousand values.
_as_json = json.JSONEncoder(sort_keys=True, default=str).encode


def lake_digest(lake: Lake) -> dict[str, str]:
    """Return a digest of each table, of each agent's index rows, and of the journal. Empty ones are omitted.

    ======================================== ========================================================================
    ``tables/messages`` and so on            all rows, without columns that depend on a clock or on chance
    ``index/{workspace}/{agent}/{grain}``    all rows of an agent in the index
    ``projections/operations`` and so on     all rows of a projection
    ``journal/pending/{workspace}/{agent}``  the records of its files, however they are split into files
    ``journal/quarantine``                   the quarantined records
    ======================================== ========================================================================

    Each digest starts with the number of rows. Collections are not included. For marts see :func:`marts_digest`.
    """
    found = {f"tables/{name}": digest_of_rows(_rows(lake, name), _LEFT_OUT.get(name, set())) for name in TABLES}
    found |= {f"projections/{name}": digest_of_rows(rows.scan()) for name, rows in lake.projections.items()}
    for grain in Grain:
        parts = by_scope(lake.index.scan_all(grain, None))
        found |= {f"index/{_named(scope)}/{grain}": digest_of_rows(rows) for scope, rows in parts.items()}
    found |= _pending(lake)
    aside = [json.dumps(rejection.record, sort_keys=True, default=str) for rejection in lake.journal.quarantined()]
    found["journal/quarantine"] = _of_lines(aside)
    return {name: text for name, text in found.items() if not text.startswith("0 ")}


def marts_digest(lake: Lake) -> dict[str, str]:
    """Return a digest of each mart, which starts with the number of rows."""
    marts = Marts(lake.storage)
    found = {name: marts.dataset(name) for name in lake.storage.folders("marts")}
    return {f"marts/{name}": digest_of_rows(mart.to_table()) for name, mart in found.items() if mart is not None}


def differing(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """Return the differences of two lakes, one line each with both digests."""
    names = sorted(left.keys() | right.keys())
    return [
        f"{name}: {left.get(name, 'nothing')} | {right.get(name, 'nothing')}"
        for name in names
        if left.get(name) != right.get(name)
    ]


def digest_of_rows(rows: pa.Table, left_out: set[str] | frozenset[str] = frozenset()) -> str:
    """Return the number of rows and a digest that does not depend on their order or chunking."""
    columns = [_texts(rows[name]) for name in sorted(rows.column_names) if name not in left_out]
    return _of_lines(["\x1f".join(row) for row in zip(*columns, strict=True)])


def _named(scope: Scope) -> str:
    return str(scope)


def _rows(lake: Lake, name: str) -> pa.Table:
    rows = lake.tables.read(TABLES[name])
    if name == ACCESS_LOG.name:  # uses of memories depend on who read them, not on the journal
        return rows.filter(pc.not_equal(rows["operation"], USE))
    if name == READ_RECEIPTS.name:  # so do receipts
        return rows.slice(0, 0)
    if name != LEDGER.name:
        return rows
    # Backfills of a range also record empty periods. These entries say nothing about the contents.
    is_empty = pc.and_(pc.equal(rows["output_digest"], NO_ROWS), pc.equal(rows["input_digest"], NO_ROWS))
    return rows.filter(pc.invert(is_empty))


def _pending(lake: Lake) -> dict[str, str]:
    """Return the digests of pending journal records."""
    lines: dict[str, list[str]] = {}
    for file in lake.journal.pending():
        scope = lake.journal.scope_of(file)
        name = "unknown" if scope is None else _named(scope)
        for line in (lake.storage.read(file.path) or b"").splitlines():
            lines.setdefault(f"journal/pending/{name}", []).append(_without_clock(line))
    return {name: _of_lines(texts) for name, texts in lines.items()}


def _without_clock(line: bytes) -> str:
    try:
        record = json.loads(line)
        record.pop("received_at", None)
    except (ValueError, AttributeError):
        return line.decode(errors="backslashreplace")
    return json.dumps(record, sort_keys=True)


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return the values as texts. Vectors become bytes, which is many times faster."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
    if is_list and pa.types.is_floating(kind.value_type):
        return [_bytes_of(vector) for chunk in column.chunks for vector in chunk]
    return [_as_json(value) for value in column.to_pylist()]


def _bytes_of(vector: Any) -> str:
    return "null" if not vector.is_valid else vector.values.to_numpy(zero_copy_only=False).tobytes().hex()


def _of_lines(lines: list[str]) -> str:
    total = blake2b(digest_size=_DIGITS)
    # Sort by hash, because texts may be large.
    for each in sorted(blake2b(line.encode(errors="surrogatepass"), digest_size=_DIGITS).digest() for line in lines):
        total.update(each)
    return f"{len(lines)} {total.hexdigest()}"
