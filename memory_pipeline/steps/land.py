"""Journal to messages: what agents wrote becomes deduplicated rows, an hour a partition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Message, Rejection, same_id_other_content
from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.lake.ledger import MESSAGES_ASSET
from memory_pipeline.lake.rows import message_digest, messages_to_rows, rows_to_messages
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.steps.made import Made

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from memory_pipeline.domain.periods import Period
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.admit import Admitted


def land_messages(lake: Lake, hours: list[Period], admitted: Admitted) -> list[Made]:
    """Bring the messages of journal files of `hours` into the ``messages`` table; return what each hour then holds.

    A message that is there already is not doubled. Of several with one id, the one received first stays, in whatever
    order they land; one that says something else is set aside with its reason. What was forgotten goes. Nothing is
    acknowledged here.
    """
    incoming: list[Message] = []
    for held in admitted.contents.values():
        lake.journal.set_aside(held.rejected)
        incoming += held.messages

    def merged(old: pa.Table) -> pa.Table:
        kept, contradictions = _merge([*lake.tombstones.forgotten().filter(rows_to_messages(old)), *incoming])
        # Before the commit, which may drop the row of one of them; doing it twice does no harm.
        lake.journal.set_aside(contradictions)
        return messages_to_rows(kept)

    result = lake.tables.transform(MESSAGES, [hour.key for hour in hours], merged)
    sizes = lake.tables.sizes(MESSAGES)
    by_hour: dict[Period, list[Message]] = {hour: [] for hour in hours}
    for message in rows_to_messages(result.rows):
        by_hour[message.hour].append(message)
    return [
        Made(
            asset=MESSAGES_ASSET,
            period=hour,
            input_digest="",
            output_digest=digest_of_all(message_digest(message) for message in messages),
            rows=len(messages),
            agents=len({message.scope for message in messages}),
            messages=len(messages),
            bytes=sizes.get(hour.key, 0),
            changed=hour.key in result.changed,
            expired=admitted.expired[hour],
            forgotten=admitted.forgotten[hour],
        )
        for hour, messages in by_hour.items()
    ]


def _merge(messages: Sequence[Message]) -> tuple[list[Message], list[Rejection]]:
    """Keep one message of each id; return those that contradict the kept one as rejections."""
    kept: dict[str, Message] = {}
    contradictions = []
    for message in sorted(messages, key=lambda m: (m.received_at, m.turn, json.dumps(m.to_record(), sort_keys=True))):
        first = kept.setdefault(message.id, message)
        if not first.says_the_same_as(message):
            where = f"conversation {message.conversation_id}"
            contradictions.append(Rejection(same_id_other_content(message), where, message.to_record()))
    return list(kept.values()), contradictions
