"""The graphs of several scopes as one: their layers with common codes, and the aliases of all."""

from __future__ import annotations

import threading
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.graph.triples import Names, name_key
from memory_pipeline.graph.snapshot import Codes, GraphSnapshot, Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.graph.triples import Vocabulary
    from memory_pipeline.graph.state import GraphOverlay


_USER = "User"


class _Joined(NamedTuple):
    """A layer of one scope, and the same layer with common codes, in which some ids are replaced by others."""

    source: Layer
    renamed: Mapping[str, str]
    layer: Layer


class JoinedSnapshot(GraphSnapshot):
    """All facts of several graphs. `hidden` is as in :class:`GraphSnapshot`."""

    def __init__(
        self, layers: list[Layer], hidden: list[NDArray[np.int64]], names: Names, vocabulary: Vocabulary
    ) -> None:
        self.codes = layers[-1].codes
        self.layers = layers
        self.hidden = hidden
        self.names = names
        self.holds_one = vocabulary.holds_one


class JoinedGraphs:
    """The newest graph of the scopes that `scopes` returns. Safe to use from several threads.

    To the reader of a user, the entities ``user:ID`` and ``User`` are one, shown as ``User``. So is ``ID``, unless a
    graph has another entity of this name.
    """

    def __init__(self, scopes: Callable[[], Sequence[GraphOverlay]], user_id: str | None = None) -> None:
        self._scopes = scopes
        self._user = None if user_id is None else name_key(f"user:{user_id}")
        self._own_name = None if user_id is None else name_key(user_id)
        self._parts: list[GraphSnapshot] = []
        self._joined: list[_Joined] = []
        self._top: GraphSnapshot | None = None
        self._lock = threading.Lock()

    def snapshot(self) -> GraphSnapshot:
        """Return the newest graph; the same object as before if nothing has changed."""
        overlays = self._scopes()
        parts = [overlay.snapshot() for overlay in overlays]
        if len(parts) == 1 and (self._user is None or parts[0].codes.get(self._user) is None):
            return parts[0]
        with self._lock:
            is_same = len(parts) == len(self._parts) and all(map(is_, parts, self._parts))
            if self._top is None or not is_same:
                self._parts, self._top = parts, self._join(parts, overlays[0].vocabulary)
            return self._top

    def _join(self, parts: Sequence[GraphSnapshot], vocabulary: Vocabulary) -> JoinedSnapshot:
        claims = [(alias, name) for part in parts for alias, name in part.names.aliases.items()]
        if self._user is not None and self._own_name is not None:
            claims.append((self._user, name_key(_USER)))
            if all(part.codes.get(self._own_name) is None for part in parts):
                claims.append((self._own_name, name_key(_USER)))
        names = Names.claimed(claims)
        # Committed layers, large ones first, come before pending ones. So a change lays out few facts again.
        parts = sorted(parts, key=lambda part: -len(part.layers[0]))
        order = [(part, 0) for part in parts]
        order += [(part, place) for part in parts for place in range(1, len(part.layers))]
        joined: list[_Joined] = []
        codes: Codes | None = None
        known = iter(self._joined)
        for part, place in order:
            source, renamed = part.layers[place], _renamed(part, names)
            before = next(known, None)
            if before is None or before.source is not source or before.renamed != renamed:
                known = iter(())  # the codes of all layers above differ, too
                layer = source
                if codes is not None or renamed:
                    layer = Layer(self._rows(source.rows, renamed), Codes(codes), source.identity)
                before = _Joined(source, renamed, layer)
            joined.append(before)
            codes = before.layer.codes
        self._joined = joined
        hidden = [part.hidden[place] for part, place in order]
        return JoinedSnapshot([one.layer for one in joined], hidden, names, vocabulary)

    def _rows(self, rows: pa.Table, renamed: Mapping[str, str]) -> pa.Table:
        """Return facts with other ids of their ends, and with the reader's user as ``User``."""
        if not renamed:
            return rows
        for end in ("source", "target"):
            ids = rows[f"{end}_id"].combine_chunks().dictionary_encode()
            others = pa.array([renamed.get(one, one) for one in ids.dictionary.to_pylist()], pa.string())
            columns = {f"{end}_id": others.take(ids.indices)}
            if self._user in renamed:
                columns[end] = pc.if_else(pc.equal(rows[f"{end}_id"], self._user), _USER, rows[end])
            for name, column in columns.items():
                rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
        return rows


def _renamed(part: GraphSnapshot, names: Names) -> dict[str, str]:
    """Return the ids of a graph that are other ids in the joined one."""
    own = part.names.aliases
    return {
        alias: name
        for alias, name in names.aliases.items()
        if own.get(alias) != name and part.codes.get(alias) is not None
    }
