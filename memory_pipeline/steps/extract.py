"""Messages to working facts: turns as they were said, and what their sentences assert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.lake.ledger import table_asset
from memory_pipeline.lake.rows import facts_to_rows, message_digest, rows_to_messages
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.made import Made, content_digest

if TYPE_CHECKING:
    import pyarrow as pa

    from memory_pipeline.domain.conversations import Message
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


def _order(message: Message) -> tuple[object, ...]:
    scope = message.scope
    said = (message.sent_at, scope.workspace_id, scope.agent_id, message.conversation_id)
    return (*said, message.turn, message.id)


def extract_facts(lake: Lake, extractor: Extractor, embedder: Embedder, hours: list[Period]) -> list[Made]:
    """Make the ``facts`` partitions of `hours` from their messages; return what each holds."""
    keys = [hour.key for hour in hours]
    messages: list[Message] = []

    def extracted(_: pa.Table) -> pa.Table:
        # Read inside the attempt: whoever commits facts in between makes this start over, with newer messages.
        messages[:] = sorted(rows_to_messages(lake.tables.read(MESSAGES, keys)), key=_order)
        facts = extractor.extract([message for message in messages if message.role.is_memorable])
        return facts_to_rows(facts, embedder)

    result = lake.tables.transform(FACTS, keys, extracted)

    inputs: dict[Period, list[str]] = {hour: [] for hour in hours}
    for message in messages:
        inputs[message.hour].append(message_digest(message))
    sizes = lake.tables.sizes(FACTS)
    return [
        Made(
            asset=table_asset(hour.grain),
            period=hour,
            input_digest=digest_of_all(inputs[hour]),
            output_digest=content_digest(rows),
            rows=rows.num_rows,
            agents=agents_in(rows),
            messages=len(inputs[hour]),
            bytes=sizes.get(hour.key, 0),
            changed=hour.key in result.changed,
        )
        for hour, rows in by_period(result.rows, hours).items()
    ]
