"""Lists of messages that a chat sends again at each turn: what is known to be stored of them is not read again."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.conversations import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memory_pipeline.domain.scopes import Scope

#: Conversations of which the last list is remembered.
_MOST: Final = 10
#: Shorter lists are read whole. Of longer ones, the last known messages are read again, to find what follows them.
_SHORT, _COMPARED = 50, 20


@dataclass(frozen=True, slots=True)
class History:
    """A list of messages that are all stored.

    Attributes:
        fields: the conversation without its messages.
        records: copies of the messages as they were sent.
        ids: of the stored messages.
        scope: of the conversation.
        state: see :meth:`KnownHistories.find`.
    """

    fields: dict[str, object]
    records: list[object]
    ids: tuple[str, ...]
    scope: Scope
    state: object

    @property
    def omitted(self) -> tuple[str, ...]:
        """The ids of the messages that need not be read again."""
        return self.ids[: len(self.ids) - _COMPARED]


class KnownHistories:
    """The last list of each of the latest conversations, if it was long and all of its messages are stored."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, History] = OrderedDict()

    def find(self, conversation: Mapping[str, Any], state: object) -> History | None:
        """Return the known list with which a conversation begins; None if there is none.

        `state` changes with everything that may delete stored messages.
        """
        known, messages = self._known.get(conversation.get("conversation_id")), conversation.get("messages")
        if known is None or known.state != state or known.fields != _without_messages(conversation):
            return None
        begins = isinstance(messages, list) and messages[: len(known.records)] == known.records
        return known if begins else None

    def remember(
        self, conversation: Mapping[str, Any], receipt: Receipt, scope: Scope, state: object, known: History | None
    ) -> None:
        """Remember a conversation, which begins with `known`, if its receipt says that all of its messages are stored.

        Lists that are not plain JSON are not remembered: a caller may change their messages later.
        """
        messages, ids = conversation["messages"], (*receipt.repeated, *receipt.accepted)
        is_plain = receipt == Receipt(receipt.accepted, receipt.repeated, receipt.files)
        if not isinstance(messages, list) or not is_plain or not _SHORT <= len(ids) == len(messages):
            return
        before = [] if known is None else known.records
        try:
            added = json.loads(json.dumps(messages[len(before) :]))
        except (TypeError, ValueError):
            return
        if added == messages[len(before) :]:
            name = conversation["conversation_id"]
            self._known.pop(name, None)  # the newest is the last
            self._known[name] = History(_without_messages(conversation), [*before, *added], ids, scope, state)
            while len(self._known) > _MOST:
                self._known.popitem(last=False)


def _without_messages(conversation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in conversation.items() if name != "messages"}
