"""Journal to messages: what agents wrote becomes deduplicated rows, an hour a partition."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Message, Rejection, same_id_other_content
from memory_pipeline.lake.codec.facts import message_digest, messages_to_rows, rows_to_messages
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.lake.tables.ledger import MESSAGES_ASSET
from memory_pipeline.steps.digests import Digests
from memory_pipeline.steps.made import Made, together
from memory_pipeline.steps.shares import WHOLE, replace_in_shares

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.admit import Admitted
    from memory_pipeline.steps.shares import Share


def land_messages(
    lake: Lake, hours: list[Period], admitted: Callable[[Share], Admitted], shares: Sequence[Share] = WHOLE
) -> list[Made]:
    """Bring the messages of journal files of `hours` into the ``messages`` table; return what each hour then holds.

    A message that is there already is not doubled. Of several with one id, the one received first stays, in whatever
    order they land; one that says something else is set aside with its reason. What was forgotten goes. Nothing is
    acknowledged here.

    Args:
        lake: where.
        hours: the partitions.
        admitted: returns what has come of a share's agents.
        shares: the agents, as they are worked on one after the other.
    """
    made: dict[Share, list[Made]] = {}

    def merged(share: Share, old: pa.Table) -> pa.Table:
        incoming: list[Message] = []
        taken = admitted(share)
        for held in taken.contents.values():
            lake.journal.set_aside(held.rejected)
            incoming += held.messages
        kept, contradictions = _merge([*lake.tombstones.forgotten().filter(rows_to_messages(old)), *incoming])
        # Before the commit, which may drop the row of one of them; doing it twice does no harm.
        lake.journal.set_aside(contradictions)
        rows = messages_to_rows(kept)
        made[share] = _made(hours, rows, taken)
        return rows

    changed = replace_in_shares(lake, MESSAGES, [hour.key for hour in hours], shares, merged)
    sizes = lake.tables.sizes(MESSAGES)
    return [
        replace(whole, changed=whole.period.key in changed, bytes=sizes.get(whole.period.key, 0))
        for whole in together([made[share] for share in shares])
    ]


def _made(hours: list[Period], rows: pa.Table, admitted: Admitted) -> list[Made]:
    by_hour: dict[Period, list[Message]] = {hour: [] for hour in hours}
    for message in rows_to_messages(rows):
        by_hour[message.hour].append(message)
    return [
        Made(
            asset=MESSAGES_ASSET,
            period=hour,
            input_digest="",
            output_digest=outputs.combined,
            rows=len(messages),
            agents=len({message.scope for message in messages}),
            messages=len(messages),
            expired=admitted.expired[hour],
            forgotten=admitted.forgotten[hour],
            outputs=outputs,
        )
        for hour, messages in by_hour.items()
        for outputs in [Digests(map(message_digest, messages))]
    ]


def _merge(messages: Sequence[Message]) -> tuple[list[Message], list[Rejection]]:
    """Keep one message of each id; return those that contradict the kept one as rejections."""
    kept: dict[str, Message] = {}
    contradictions = []
    for message in sorted(messages, key=lambda m: (m.received_at, m.turn, json.dumps(m.to_record(), sort_keys=True))):
        first = kept.setdefault(message.id, message)
        if not first.says_the_same_as(message):
            where = f"conversation {message.conversation_id}"
            contradictions.append(Rejection(same_id_other_content(message, first), where, message.to_record()))
    return list(kept.values()), contradictions
