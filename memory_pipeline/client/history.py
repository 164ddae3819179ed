"""What a memory does about messages: import them, trace, correct and forget them, go back before them."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, cast, overload

from memory_pipeline.client.opened import AtTime, clock
from memory_pipeline.client.tiers import TieredMemory
from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.memories.events import AGENT
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.domain.values import count_of
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within
from memory_pipeline.writer import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from memory_pipeline.client.correcting import CorrectionResult
    from memory_pipeline.client.tracing import MessageTrace
    from memory_pipeline.domain.corrections import Correction
    from memory_pipeline.domain.messages import Message
    from memory_pipeline.domain.periods import When
    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.erasure.forget import ErasurePreview
    from memory_pipeline.importers import ImportReport
    from memory_pipeline.steps.archiving import Restoration


#: Restored memory stays at most so many days.
MAX_DAYS_RESTORED: Final = 36_525


class AddedReceipt(Receipt):
    """The receipt of :meth:`Memory.add`. It can tell what was learned at once."""

    __slots__ = ("_traced",)
    _traced: Callable[[Sequence[str]], list[MessageTrace]]

    @classmethod
    def of(cls, receipt: Receipt, conversation_id: str, traced: Callable[[Sequence[str]], list[MessageTrace]]) -> Self:
        """Return the receipt of a writer as that of a memory, which traces ids of messages with `traced`."""
        values = {one.name: getattr(receipt, one.name) for one in fields(receipt)}
        made = cls(**{**values, "conversation_id": conversation_id})
        object.__setattr__(made, "_traced", traced)  # no field: it is neither compared nor copied
        return made

    def trace(self) -> list[MessageTrace]:
        """Return what became of each message that was added or changed, as :meth:`Memory.trace` does.

        At once, this is what the rules read from it: facts, graph facts and durable memories with their ids, or why
        nothing was learned. It is read when it is asked for, so that adding takes no longer.
        """
        ids = (*self.accepted, *self.edited)
        return self._traced(ids) if ids else []


class HistoricMemory(TieredMemory):
    """Imports messages, traces them, corrects what was learned from them, forgets them, and goes back in time."""

    def import_history(
        self,
        path: str | PathLike[str],
        *,
        format: str | None = None,  # noqa: A002  # as the command's option
        timezone: str | None = None,
        at: When | None = None,
        date_order: str | None = None,
        me: str | None = None,
        now: When | None = None,
    ) -> ImportReport:
        """Import the history in an export of another product, such as ChatGPT, into the memory of this user.

        Import it again, or a later one, to add only what is new. Records that cannot be read are quarantined. What the
        files say of other users is not read: everything becomes memory of this user, or of the agent without one.

        Args:
            path: the export: a file, a folder or a zip archive.
            format: as in ``memory-pipeline import --help``; by default each file is recognised by its content.
            timezone: the zone of times that state none, such as Europe/Berlin.
            at: the time of conversations that have none; by default that of their file.
            date_order: the order in dates such as 3/4/24: ``dmy``, ``mdy`` or ``ymd``; by default found in the file.
            me: in chats of several people, the name or the id of the speaker who is this user. Others are stored under
                their names. Give it with the first import of a chat.
            now: the current time.

        Raises:
            InputError: the export cannot be read, no file is in a known format, or its times need a `timezone`.
        """
        from memory_pipeline.importers import import_history

        lake, scope = self.lake, self._scope
        own = {"workspace_id": scope.workspace_id, "agent_id": scope.agent_id}
        admission = Admission(lake.accepts_from, lake.calendar.moment("now", now or clock()), lake.calendar)
        return import_history(
            lake,
            Path(path),
            admission,
            format=format,
            timezone=timezone,
            at=None if at is None else lake.calendar.moment("at", at),
            date_order=date_order,
            me=me,
            default_scope=own,
            defaults=own if self.user_id is None else {**own, "user_id": self.user_id},
        )

    def as_of(self, at: When) -> Self:
        """Return this memory as it stood at a time, by what had been received then. It cannot be changed.

        ``with_now`` leaves out what was said after a time; this also leaves out what was received later about earlier
        times, such as an import, an edit of a message, a correction or the end of a fact. Everything can be read:
        messages, facts, graph, durable memories, the hot index, contexts, grants and summaries. What was erased or has
        expired since then is missing, and so is the memory of other agents that they do not grant any more.

        It is made again from the records, in a temporary folder that is deleted with the returned object: about four
        seconds for a thousand messages. Keep the object for several reads. No model is asked: what models had answered
        to the same input is used, rules stand in for other facts, and other summaries are not kept. Needs
        ``memory-pipeline[run]``.

        Raises:
            InputError: `at` is not a time with its zone.
            LakeError: the lake does not exist.
        """
        from memory_pipeline.client.as_of import NoSessions, lake_as_of

        moment = self.lake.calendar.moment("at", at)
        past = copy(self)
        for name in [name for name in vars(past) if isinstance(getattr(type(past), name, None), cached_property)]:
            if name != "_embedder":
                del vars(past)[name]
        vars(past)["lake"] = lake_as_of(self.lake, self.reader.scopes, self._embedder, moment)
        vars(past)["_sessions"] = NoSessions(moment)
        return cast("Self", AtTime(past, moment))

    def trace(self, id: str) -> list[MessageTrace]:  # noqa: A002  # as in forget
        """Return what became of a message, or of each message of a conversation, oldest first.

        It says whether a message waits or is loaded, what read it, what was learned from it (facts, graph facts,
        durable memories, lines of summaries), when a memory was last used, or why nothing was learned. Needs
        ``memory-pipeline[run]``.

        Args:
            id: the id of a message, as :meth:`add` returns it, or of a conversation.

        Raises:
            InputError: there is no such message or conversation in this memory.
        """
        return self._traced(id)

    def _traced(self, id: str | Sequence[str]) -> list[MessageTrace]:  # noqa: A002  # as above
        from memory_pipeline.client.tracing import trace

        return trace(self.lake, self.reader.scopes, id)

    def correct(
        self,
        id: str,  # noqa: A002  # as in forget
        text: str | None = None,
        *,
        words: str | None = None,
        reason: str | None = None,
        editor: str = AGENT,
        dry_run: bool = False,
        now: When | None = None,
    ) -> CorrectionResult:
        """Withdraw a statement that is wrong, or replace it, and make again everything that rests on it.

        The message stays as it was said. The sentences on which the item rests are no evidence any more, for any later
        run, model or import of the same words; what somebody says later counts. Facts, graph facts, durable memories
        and all summaries that rest on these messages are made again, no other periods are, and consolidation decides
        anew about this memory. Needs ``memory-pipeline[run]``.

        Args:
            id: of a message, a fact, a durable memory that was learned from messages, a graph fact, or a line of a
                summary: its id with ``#`` and the number of the line.
            text: what was meant, in the words of the speaker; by default nothing replaces it.
            words: some of the wrong words, if the item says more than that: only the sentences with these words are
                withdrawn.
            reason: why, for :meth:`corrections`.
            editor: who corrects it.
            dry_run: only return what would be made again: the blast radius.
            now: the time of the correction.

        Raises:
            InputError: there is no such item, its messages have expired, or it rests on no sentence with `words`.
            PartitionsError: some periods cannot be derived; the next run tries again.
        """
        from memory_pipeline.client.correcting import correct

        at = self.lake.calendar.moment("now", now or clock())
        redactor = self.lake.redactor_of(self._scope.workspace_id)
        given = [None if one is None else redactor.text(one) for one in (text, reason)]
        models = None if dry_run else self._models
        return correct(self.lake, self.reader, models, id, given[0], words, given[1], editor, at)

    @overload
    def forget(
        self,
        id: str | None = None,
        *,
        conversation_id: str | None = None,
        source: str | None = None,
        everything: bool = False,
        dry_run: Literal[False] = False,
        now: When | None = None,
    ) -> ErasureReport | None: ...

    @overload
    def forget(
        self,
        id: str | None = None,
        *,
        conversation_id: str | None = None,
        source: str | None = None,
        everything: bool = False,
        dry_run: Literal[True],
        now: When | None = None,
    ) -> ErasurePreview: ...

    def forget(
        self,
        id: str | None = None,  # noqa: A002  # the usual name in stores
        *,
        conversation_id: str | None = None,
        source: str | None = None,
        everything: bool = False,
        dry_run: bool = False,
        now: When | None = None,
    ) -> ErasureReport | ErasurePreview | None:
        """Forget a durable memory, erase a conversation or an import, or erase everything of this user or agent.

        A durable memory is revoked: searches do not find it, but its history remains. A conversation, a source, a user
        and an agent are erased from all files, with what was made of them; this needs ``memory-pipeline[run]``. The
        report of an erasure is its receipt, for ``memory-pipeline verify-erasure``.

        Args:
            id: of a durable memory.
            conversation_id: a conversation of this user or agent.
            source: all that came from a source, such as ``import:chatgpt``: conversations, and memories and facts of
                the graph that were imported. What is erased does not come back if it is imported again;
                :meth:`rollback` withdraws messages without erasing them.
            everything: all memory of this user, also what the user said in groups; without a user, all of the agent,
                users included.
            dry_run: only return what would be erased, what rests on it, and which reads handed it to a model.
            now: the current time. What is said later remains.

        Raises:
            InputError: not exactly one of them is given, or there is no such memory.
        """
        if sum((id is not None, conversation_id is not None, source is not None, everything)) != 1:
            raise InputError(
                "forget takes the id of a durable memory, a conversation_id, a source, or everything=True; give one"
            )
        if id is not None and not dry_run:
            self.writer.forget(id, now=now)
            return None
        from memory_pipeline.client.correcting import is_own, revocation
        from memory_pipeline.erasure import forget, preview
        from memory_pipeline.erasure.forget import subject_of_source

        if id is not None:
            return revocation(self.lake, self.reader, id)
        workspace_id, agent_id = self._scope.workspace_id, self._scope.agent_id
        if conversation_id is not None:
            subject = Subject.conversation(self._scope, conversation_id, self.user_id)
        elif source is not None:
            subject = subject_of_source(self.lake, self._scope.own, source, self.user_id)
        elif self.user_id is not None:
            subject = Subject.user(workspace_id, self.user_id, agent_id=agent_id)
        else:
            subject = Subject.agent(self._scope)
        at = self.lake.calendar.moment("now", now or clock())
        if dry_run:
            return preview(self.lake, subject, at, is_shown=is_own(self.reader.scopes))
        return forget(self.lake, self._models, subject, at)

    def restore(
        self,
        *,
        since: When | None = None,
        until: When | None = None,
        days: Annotated[int, Within(1, MAX_DAYS_RESTORED)] = 30,
        dry_run: bool = False,
        now: When | None = None,
    ) -> Restoration:
        """Bring back what retention has moved to the archive: the same messages, facts and summaries, with their ids.

        Periods that overlap the span of time come back, by default all. Searches, contexts and SQL find them again. No
        model is asked. Retention leaves them for some days and then archives them again. With a user, this is what the
        user's memory reads; without one, all of the agent, users included.

        Args:
            since: only periods that end after this time.
            until: only periods that begin before this time.
            days: how long retention leaves them.
            dry_run: only return what would come back.
            now: the current time.

        Raises:
            InputError: `days` is out of range.
            LakeError: an erasure is not finished.
            DamagedError: a file of the archive cannot be read.
        """
        from memory_pipeline.steps.archiving import archived_scopes, restore_rows

        calendar = self.lake.calendar
        first = None if since is None else calendar.instant("since", since)
        last = None if until is None else calendar.instant("until", until, is_end=True)
        at = calendar.moment("now", now or clock())
        days = count_of("days", days, 1, MAX_DAYS_RESTORED)
        scopes = self.reader.scopes if self.user_id is not None else archived_scopes(self.lake, self._scope)
        return restore_rows(self.lake, scopes, first, last, at + timedelta(days=days), dry_run=dry_run)

    def rollback(
        self,
        *,
        source: str | None = None,
        since: When | None = None,
        until: When | None = None,
        reason: str | None = None,
        editor: str = AGENT,
        dry_run: bool = False,
        now: When | None = None,
    ) -> list[CorrectionResult]:
        """Withdraw all messages of an import, or of a span of time in which they were received.

        As with :meth:`correct`, the messages stay as they were said, and everything that rests on them is made again
        without them. They are not learned again if they are sent again. :meth:`undo` takes each back. Return a result
        for each memory that had such messages: of the user, of the user's groups, of the agent.

        Args:
            source: the `source` of their conversations, such as ``import:chatgpt``.
            since: only what was received from this time on.
            until: only what was received before this time.
            reason: why, for :meth:`corrections`.
            editor: who withdraws them.
            dry_run: only return what would be made again.
            now: the time of the correction.

        Raises:
            InputError: neither a source nor a time is given.
            PartitionsError: some periods cannot be derived; the next run tries again.
        """
        from memory_pipeline.client.correcting import rollback

        if source is None and since is None and until is None:
            raise InputError("rollback takes a source, or since and until, the times of receipt; none is given")
        calendar = self.lake.calendar
        first, last = (None if one is None else calendar.moment("since or until", one) for one in (since, until))

        def chosen(message: Message) -> bool:
            is_of_time = (first is None or message.received_at >= first) and (
                last is None or message.received_at < last
            )
            return is_of_time and source in {None, message.source}

        models = None if dry_run else self._models
        return rollback(
            self.lake, self.reader.scopes, models, chosen, reason, editor, calendar.moment("now", now or clock())
        )

    def undo(self, id: str, *, editor: str = AGENT, now: When | None = None) -> None:  # noqa: A002  # as in correct
        """Undo a correction: what it withdrew counts again, and what rests on it is made again.

        Args:
            id: of the correction, as :meth:`correct` and :meth:`corrections` return it.
            editor: who undoes it.
            now: the current time.

        Raises:
            InputError: no correction of this memory that is in force has the id.
        """
        from memory_pipeline.client.correcting import undo

        undo(self.lake, self.reader.scopes, self._models, id, editor, self.lake.calendar.moment("now", now or clock()))

    def corrections(self) -> list[Correction]:
        """Return all corrections of this memory, oldest first, with those that undo others."""
        entries = [entry for scope in self.reader.scopes for entry in self.lake.journal.entries(scope)]
        found = self.lake.corrections.among(entries)
        return sorted(found, key=lambda one: (one.at, one.id))
