"""Digests over many rows, which are gathered share by share: of a row some forty bytes stay in memory, no more."""

from __future__ import annotations

import json
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Digests that are turned into text at a time.
_AT_ONCE = 10_000
#: How :func:`~memory_pipeline.domain.identity.digest` writes a list of texts.
_DUMP = {"ensure_ascii": False, "separators": (",", ":")}


class Digests:
    """Digests on the way to one over all of them, whatever their order.

    Args:
        digests: texts; a column of a table is taken as it is.
    """

    def __init__(self, digests: Iterable[str] | pa.Array | pa.ChunkedArray = ()) -> None:
        if not isinstance(digests, pa.Array | pa.ChunkedArray):
            digests = pa.array(list(digests), pa.large_string())
        self._chunks: list[pa.Array] = _chunks(digests)

    def __add__(self, other: Digests) -> Digests:
        """Return both together; nothing is copied."""
        both = Digests()
        both._chunks = [*self._chunks, *other._chunks]
        return both

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._chunks))

    @cached_property
    def combined(self) -> str:
        """What :func:`~memory_pipeline.domain.identity.digest_of_all` makes of them."""
        digests = pa.chunked_array(self._chunks, pa.large_string()).combine_chunks()
        digests = digests.take(pc.array_sort_indices(digests))
        whole = blake2b(b"[[", digest_size=16)
        for start in range(0, len(digests), _AT_ONCE):
            text = json.dumps(digests.slice(start, _AT_ONCE).to_pylist(), **_DUMP)  # type: ignore[arg-type]
            whole.update(b"," * bool(start) + text[1:-1].encode())
        whole.update(b"]]")
        return whole.hexdigest()


def marks_of(rows: pa.Table) -> Digests:
    """Return what tells rows of ``facts`` or ``summaries`` apart; vectors count by their model."""
    models = pc.fill_null(rows["embed_model"], "None")
    return Digests(pc.binary_join_element_wise(rows["digest"], models, "/"))


def _chunks(digests: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = digests.chunks if isinstance(digests, pa.ChunkedArray) else [digests]
    return [chunk.cast(pa.large_string()) for chunk in chunks]
