"""Which rows of facts and summaries cannot be made again, because what they were made from has expired."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.retention import RetentionClass
from memory_pipeline.errors import DamagedError
from memory_pipeline.lake.schemas import MESSAGES, table_of
from memory_pipeline.lake.tables.tombstones import ExpirationMarks

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from memory_pipeline.lake import Lake


def has_lost(facts: pa.Table, marks: ExpirationMarks, messages: Collection[str]) -> NDArray[np.bool_]:
    """Return a mask of the facts that cannot be extracted again: they have expired messages outside `messages`.

    `facts` needs the columns workspace_id, agent_id, period and message_ids.
    """
    lost = marks.mask(facts, RetentionClass.CONVERSATIONS)
    for row in np.flatnonzero(lost):
        lost[row] = not all(source in messages for source in facts["message_ids"][row].as_py())
    return lost


#: The owner of rows of which only the number is known.
_UNKNOWN = "unknown agents"


def lost_rows(lake: Lake, grain: Grain, keys: Collection[str]) -> dict[str, Counter[str]]:
    """Return, by period and agent, how many rows of ``facts`` or ``summaries`` in damaged files cannot be made again.

    The rows of a damaged file are those of the index that are in no readable file. If the index does not have all of
    them, all count as lost, provided that sources of any agent have expired. Periods without lost rows are left out.
    """
    marks = ExpirationMarks.of(lake.tables)
    spec, fixed = table_of(grain)
    classes = [kept for kept in RetentionClass if kept.grain is grain.finer]
    if grain is Grain.WORKING:
        classes = [RetentionClass.CONVERSATIONS]
    first = {key: lake.calendar.sources(Period(grain, key))[0].key if fixed else key for key in keys}
    latest = marks.latest(classes)
    old = sorted(key for key in keys if first[key] <= latest)
    if not old:
        return {}
    sound = lake.tables.read(spec, old, columns=["id", "period"], shard=None, damaged="skip", **fixed)
    counts, readable = lake.tables.counts(spec, **fixed), Counter(sound["period"].to_pylist())
    missing = {key: count for key in old if (count := counts.get(key, 0) - readable[key]) > 0}
    if not missing:
        return {}
    columns = ["id", "workspace_id", "agent_id", "period", "source_ids"]
    try:
        rows = lake.index.scan_all(grain, missing.keys(), columns)
    except DamagedError:
        return {key: Counter({_UNKNOWN: count}) for key, count in missing.items()}
    rows = rows.filter(pc.invert(pc.is_in(rows["id"], sound["id"].combine_chunks())))
    if grain is Grain.WORKING:
        messages = lake.tables.read(MESSAGES, missing.keys(), columns=["id"], damaged="skip")["id"].to_pylist()
        is_lost = has_lost(rows.rename_columns({"source_ids": "message_ids"}), marks, set(messages))
    else:
        of_first = pa.array([first[key] for key in rows["period"].to_pylist()], pa.string())
        dated = rows.set_column(rows.schema.get_field_index("period"), "period", of_first)
        is_lost = np.any([marks.mask(dated, each) for each in classes], axis=0)
    indexed = Counter(rows["period"].to_pylist())
    found = {key: Counter({_UNKNOWN: count}) for key, count in missing.items() if indexed[key] < count}
    lost = rows.filter(pa.array(is_lost))
    for workspace_id, agent_id, key in zip(*(lost[name].to_pylist() for name in columns[1:4]), strict=True):
        if indexed[key] >= missing[key]:
            found.setdefault(key, Counter())[f"{workspace_id}/{agent_id}"] += 1
    return found
