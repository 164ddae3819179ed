"""Write an agent's conversations to the journal, and look up stored messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from memory_pipeline.domain.chat_messages import as_mapping
from memory_pipeline.domain.conversations import (
    audience_in,
    with_times,
)
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import Scope, label_of, optional_label, user_identity
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings
from memory_pipeline.writer.adding import ConversationWriter
from memory_pipeline.writer.sharing import GrantedWriter, Shareable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.summaries import Summarizer
    from memory_pipeline.graph.writer import GraphWriter

_log = logging.getLogger(__name__)
#: Pending entries of a scope that start a run in the background, and those of which a writer warns once.
MANY, _TOO_MANY = 1_000, 5_000


class MemoryWriter(ConversationWriter):
    """Writes one agent's conversations, durable memories and, as :attr:`graph`, its graph.

    A conversation is written to the memory of those who take part: of its `user_id`, of the group of its `users`, or of
    the group with its `group_id`; else of the users that its messages name. If none is named, it is the agent's own. A
    writer for a user writes for this user, and for groups that the user is in: it may start a group, but no user joins
    one that has memory without :meth:`add_member`.

    A write is durable when it returns, and readers find it at once. A conversation may be written again with more
    messages; stored messages are not duplicated.
    """

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        *,
        workspace_id: str,
        agent_id: str,
        user_id: str | None = None,
        users: Sequence[str] | None = None,
        group_id: str | None = None,
        start: When | None = None,
        timezone: str | None = None,
    ) -> MemoryWriter:
        """Open a writer on the lake at `uri`. The first write creates the lake.

        Args:
            uri: a folder or ``s3://bucket/prefix``.
            workspace_id: any text up to 256 characters without control characters.
            agent_id: in the same format.
            user_id: the user whose memory is written, unless a conversation names others. Without users, memory is the
                agent's own. Naming a user creates the lake.
            users: the users of a group, in place of `user_id`.
            group_id: the group with this id, of which `users` are members.
            start: first accepted day, by default MEMORY_PIPELINE_START. Without either, memory begins with its oldest
                record.
            timezone: time zone in which days begin, for a new lake; by default MEMORY_PIPELINE_TIMEZONE.

        Raises:
            InputError: an id or `start` is invalid.
            ConfigurationError: the address or the time zone is invalid.
        """
        settings = Settings.from_environment()
        first = settings.start if start is None else Calendar().instant("start", start).date()
        lake = Lake(uri, timezone or settings.timezone, first)
        own = Scope(workspace_id, agent_id)
        fields = {"user_id": user_id, "users": users, "group_id": group_id}
        audience = audience_in(fields, ())
        if not audience.identity:
            return cls(lake, own)
        scope = lake.new_scope(workspace_id, agent_id, audience.identity)
        return cls(lake, scope, users=audience.users, user_id=user_id)

    def for_user(self, user_id: str) -> MemoryWriter:
        """Return a writer of the same agent for a user. It shares the lake, and creates it.

        Raises:
            InputError: `user_id` is invalid, or this writer is for another user or a group.
        """
        if self._scope.is_group or self._user_id not in {None, user_id}:
            mine = shown(", ".join(self.users))
            raise InputError(f"this writer is for {mine}, not {shown(user_id)}; open another one")
        if self._user_id is not None:
            return self
        scope = self._lake.new_scope(**self._ids, identity=user_identity(label_of("user_id", user_id)))
        return MemoryWriter(self._lake, scope, self._start, user_id=user_id)

    def of_agent(self, agent_id: str, user_id: str | None = None) -> GrantedWriter:
        """Return a writer of durable memories that another agent of the workspace lets this one change.

        With `user_id`, it changes the memory of that user, in place of the other agent's own. The other agent grants
        this with the level ``write``; ``admin`` also lets this one grant and revoke. Each call looks the grant up.

        Raises:
            InputError: an id is invalid.
            AccessDeniedError: `user_id` is given and the lake does not exist.
        """
        return self._of_agent(Scope(self._scope.workspace_id, agent_id), optional_label("user_id", user_id))

    @cached_property
    def _of_agent(self) -> Callable[[Scope, str | None], GrantedWriter]:
        @lru_cache(maxsize=16)
        def opened(owner: Scope, user_id: str | None) -> GrantedWriter:
            return GrantedWriter(self._lake, self._scope.own, owner, user_id, self._start)

        return opened

    @property
    def _shareable(self) -> Shareable:
        return Shareable(self._lake, self._scope, self._user_id)

    def compact(
        self,
        conversation: Mapping[str, object],
        *,
        keep: int = 10,
        summarizer: Summarizer | None = None,
        now: When | None = None,
    ) -> dict[str, object]:
        """Return a conversation with all but its last messages replaced by a summary, to fit a context window.

        The conversation is written first, so nothing is lost. The summary is a system message, which never becomes
        memory. Recalled text is not summarized, but remains in the last messages. If the conversation is not captured,
        rules summarize it and nothing is stored.

        Args:
            conversation: as for :meth:`write`.
            keep: number of last messages to keep. A conversation with at most one more is returned unchanged.
            summarizer: by default the model that the lake's configuration names for days.
            now: time of receipt; by default the current time.

        Raises:
            InputError: as for :meth:`write`, or `keep` is negative.
        """
        conversation = as_mapping(conversation)  # type: ignore[assignment]  # write() refuses anything but a mapping
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise InputError(f"keep {shown(keep)} is not accepted; expected a number of messages from 0")
        self.write(conversation, now=now)
        records = list(conversation["messages"])  # type: ignore[call-overload]  # write() has checked it
        if len(records) <= keep + 1:
            return dict(conversation)
        last_records = records[len(records) - keep :]
        dropped = {**conversation, "messages": records[: len(records) - keep]}
        summary = self.summarize(dropped, summarizer=summarizer, now=now)
        if summary is None:  # only recalled text, which can be recalled again
            return {**conversation, "messages": last_records or records}
        return {**conversation, "messages": [summary, *last_records]}

    def summarize(
        self, conversation: Mapping[str, object], *, summarizer: Summarizer | None = None, now: When | None = None
    ) -> dict[str, object] | None:
        """Return a system message that summarizes a conversation, or None if nothing was said. Write nothing.

        Arguments are those of :meth:`compact`; messages need no timestamps.

        Raises:
            InputError: as for :meth:`write`.
        """
        # Imported late: the rules compile many patterns.
        from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer, summary_of
        from memory_pipeline.models.factory import configured_models

        record = self._own(conversation)
        at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        messages, _ = self._accepted(with_times(record, self._admission(at))[0], at, skips_empty=True)
        if not messages:
            return None
        if not isinstance(record, Mapping) or not self._is_captured(record):
            summarizer = ExtractiveSummarizer()  # the answers of a model are stored
        elif summarizer is None:
            configuration, zone = self._lake.configuration(), self._lake.calendar.timezone
            summarizer = configured_models(configuration, self._lake.calls, zone, lambda: datetime.now(UTC)).summarizer
        return summary_of(messages, self._lake.calendar, summarizer)

    def add_member(self, user_id: str, *, now: When | None = None) -> bool:
        """Let a user read the memory of this writer's group, and write to it. Return false for one who is a member.

        Raises:
            InputError: this writer is not of a group, or an argument is invalid.
        """
        group, label = self._group(), label_of("user_id", user_id)
        if label in self._lake.members.users_of(group):
            return False
        at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        self._lake.ensure(at)
        self._lake.members.add_since({(group, label): at})
        return True

    def remove_member(self, user_id: str) -> bool:
        """Remove a user from this writer's group. The user no longer sees its memory, until :meth:`add_member`.

        Return whether the user was a member. The group keeps what the user said. A write of a writer for no user that
        names the user adds it again.

        Raises:
            InputError: this writer is not of a group, or `user_id` is invalid.
        """
        return self._lake.members.remove(self._group(), label_of("user_id", user_id))

    def _group(self) -> Scope:
        if not self._scope.is_group:
            raise InputError("this writer is not of a group; open it with group_id and users")
        return self._scope

    @cached_property
    def graph(self) -> GraphWriter:
        """Changes the agent's graph directly, rather than through conversations."""
        from memory_pipeline.graph.writer import GraphWriter

        return GraphWriter(self._lake, self._scope, self._start, self._pending, self._users)
