"""Messages to working facts: turns as they were said, and what their sentences assert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.identity import digest_of_all
from memory_pipeline.lake.rows import facts_to_rows, message_digest, rows_to_messages
from memory_pipeline.lake.schemas import FACTS, MESSAGES
from memory_pipeline.steps.group import agents_in, by_period
from memory_pipeline.steps.made import Made, content_digest, table_asset

if TYPE_CHECKING:
    from memory_pipeline.domain.facts import Extractor
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.ports import Embedder
    from memory_pipeline.lake import Lake


def extract_facts(lake: Lake, extractor: Extractor, embedder: Embedder, hours: list[Period]) -> list[Made]:
    """Make the ``facts`` partitions of `hours` from their messages; return what each holds."""
    keys = [hour.key for hour in hours]
    messages = rows_to_messages(lake.tables.read(MESSAGES, keys))
    messages.sort(key=lambda m: (m.sent_at, m.scope.workspace_id, m.scope.agent_id, m.conversation_id, m.turn, m.id))
    facts = extractor.extract([message for message in messages if message.role.is_memorable])
    result = lake.tables.replace(FACTS, keys, facts_to_rows(facts, embedder))

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
