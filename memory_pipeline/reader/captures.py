"""Compare stored conversations with rules of capture."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.capture import Capture, Talk, rule_for
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope
from memory_pipeline.lake.codec.codec import scope_of
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.reader.activity import pending_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.configuration import Configuration
    from memory_pipeline.domain.capture import CaptureRule
    from memory_pipeline.lake import Lake

#: Hours of messages that are read at a time.
_HOURS_AT_ONCE = 24 * 31
#: Separates tags in a text; no tag contains a control character.
_SEPARATOR = "\x1f"
_COLUMNS = (*SCOPE_COLUMNS, "conversation_id", "tags", "source")


class StoredConversation(NamedTuple):
    """A stored conversation, the number of its messages, and the rule that it fits, if any."""

    scope: Scope
    talk: Talk
    messages: int
    rule: CaptureRule | None

    @property
    def capture(self) -> Capture:
        """The capture that the rules give it."""
        return Capture.FULL if self.rule is None else self.rule.mode


def stored_conversations(
    lake: Lake, configuration: Configuration, progress: Callable[[int], None] = lambda _: None
) -> list[StoredConversation]:
    """Return all conversations in the lake, loaded or pending, with the rules of `configuration` that they fit.

    A conversation whose messages differ in tags or source is returned once for each difference. `progress` is called
    with the number of messages read so far.
    """
    counts: Counter[tuple[Scope, str, tuple[str, ...], str | None]] = Counter()
    for scope, conversation_id, tags, source, messages in _loaded(lake):
        counts[scope, conversation_id, tags, source] += messages
        progress(counts.total())
    for _, file in pending_files(lake):
        for message in lake.journal.read(file).messages:
            counts[message.scope, message.conversation_id, message.tags, message.source] += 1
    found = []
    for (scope, conversation_id, tags, source), messages in counts.items():
        talk = Talk(scope.agent_id, conversation_id, tags, source)
        rule = rule_for(configuration.capture(scope.workspace_id, scope.agent_id), talk)
        found.append(StoredConversation(scope, talk, messages, rule))
    return sorted(
        found, key=lambda one: (one.scope.ids, one.talk.conversation_id, one.talk.tags, one.talk.source or "")
    )


def _loaded(lake: Lake) -> Iterator[tuple[Scope, str, tuple[str, ...], str | None, int]]:
    keys = lake.tables.keys(MESSAGES)
    for start in range(0, len(keys), _HOURS_AT_ONCE):
        rows = lake.tables.read(MESSAGES, keys[start : start + _HOURS_AT_ONCE], columns=_COLUMNS)
        tags = pc.binary_join(rows["tags"], _SEPARATOR)
        rows = rows.set_column(_COLUMNS.index("tags"), pa.field("tags", pa.string()), tags)
        for row in rows.group_by(list(_COLUMNS)).aggregate([([], "count_all")]).to_pylist():
            listed = tuple(row["tags"].split(_SEPARATOR)) if row["tags"] else ()
            scope = scope_of(*map(row.get, SCOPE_COLUMNS))
            yield scope, row["conversation_id"], listed, row["source"], row["count_all"]
