"""Query durable memories of one or several scopes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from memory_pipeline.domain.authority import authority_of
from memory_pipeline.domain.fields import ListFilters, MemoryFilters, Origin, check_names
from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.decay import needs_review
from memory_pipeline.domain.memories.events import Changes, memory_reference
from memory_pipeline.domain.memories.hot_index import HotEntry, hot_entries, within_limits
from memory_pipeline.domain.memories.record import CONTEXTS, MemoryKind, Status, Temperature
from memory_pipeline.domain.model_calls import TextLines
from memory_pipeline.domain.text.words import is_unicode
from memory_pipeline.domain.values import count_of, one_of
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Unpack

    import numpy as np
    from numpy.typing import NDArray

    from memory_pipeline.domain.authority import Authority
    from memory_pipeline.domain.memories.events import MemoryEvent
    from memory_pipeline.domain.memories.links import Link
    from memory_pipeline.domain.memories.record import DurableMemory, Header
    from memory_pipeline.domain.periods import Calendar, When
    from memory_pipeline.memories.snapshot import JoinedMemories, Rows
    from memory_pipeline.memories.state import JoinedOverlays

    # Inside of the class, `list` is its method.
    Found = list[DurableMemory]
    Headers = list[Header]
    Links = list[Link]

#: Maximum number of results of one call.
MAX_LISTED = 10_000
#: Default number of headers.
HEADERS = 200


class HotIndex(TextLines[HotEntry]):
    """The hot index of an agent's durable memories, as text for a system prompt."""


class DurableMemories:
    """Durable memories of one or several scopes. New changes are visible at once. Safe to use from several threads.

    Of a preference in several scopes, the user's own value is returned before a group's, and that before the agent's.
    """

    def __init__(self, state: JoinedOverlays) -> None:
        self._state = state

    def get(self, id: str, *, now: When | None = None) -> DurableMemory | None:  # noqa: A002  # every store calls it so
        """Return a memory of any status with all its fields; None if it is unknown.

        A merged memory is returned as it was; ``superseded_by`` names the memory it was merged into.

        Args:
            id: the id of a memory, or of one version of it (``memory:…#2``).
            now: the time at which to read it, by default the newest state.

        Raises:
            InputError: `id` is not the id of a memory, or `now` is not a time with a zone.
        """
        (memory_id, version), until = reference_of(id), until_of(now, self._state.calendar)
        if version is None:
            return self._state.get(memory_id, until)
        return next((one for one in self._state.history(memory_id, until) if one.version == version), None)

    def history(self, id: str, *, now: When | None = None) -> tuple[DurableMemory, ...]:  # noqa: A002  # as above
        """Return all versions of a memory, oldest first, each with its editor; none if it is unknown.

        Args:
            id: the id of a memory.
            now: as in :meth:`get`.

        Raises:
            InputError: `id` is not the id of a memory, or `now` is not a time with a zone.
        """
        return self._state.history(reference_of(id)[0], until_of(now, self._state.calendar))

    def explain(self, id: str) -> list[MemoryEvent]:  # noqa: A002  # as above
        """Return all changes of a memory, oldest first, each with its editor and reason.

        Those that repeat it, and those of merged memories, are included.

        Raises:
            InputError: `id` is not the id of a memory.
        """
        memory_id, _ = reference_of(id)
        memory = self._state.get(memory_id)
        own = {memory_id} if memory is None else {memory_id, memory.id, *memory.merged_ids}
        return self._state.events(own | self._state.aliases(own))

    def links(self, id: str, *, now: When | None = None) -> Links:  # noqa: A002  # as above
        """Return the links from and to a memory, strongest first; see :class:`MemoryWriter.link`.

        A link to a memory that was revoked or erased is gone with it. The links of a merged memory are those of the
        memory it was merged into. `now` as in :meth:`get`.

        Raises:
            InputError: `id` is not the id of a memory, or `now` is not a time with a zone.
        """
        return self._state.links([reference_of(id)[0]], until_of(now, self._state.calendar))

    def hot_index(self, *, now: When | None = None) -> HotIndex:
        """Return the hot index: a line for each memory that the last consolidation selected, within its two limits.

        The lines are for every system prompt. A new memory enters the index at the next consolidation. A revoked one
        leaves it at once. What neither the user nor the operator said comes last, with who said it.

        Args:
            now: read the index of the last consolidation before this time.

        Raises:
            InputError: `now` is not a time with a zone.
        """
        settings = self._state.settings
        top = self._state.snapshot(until_of(now, self._state.calendar))
        hot = top.headers(lambda rows: _recalled(rows) & rows.equal("temperature", Temperature.HOT.value))
        memories: Iterable[DurableMemory] = top.load([header.id for header in hot]).values()
        if len(top.parts) > 1:  # each scope keeps the limits, but not all together
            memories = within_limits(memories, settings.hot_entries, settings.hot_tokens)
        index = HotIndex()
        left = settings.hot_tokens
        for entry in hot_entries(memories, lambda memory: self._said_by(memory, top)):
            # A title may have become longer since.
            if len(index) < settings.hot_entries and entry.tokens <= left:
                index.append(entry)
                left -= entry.tokens
        return index

    def said_by(self, memory: DurableMemory) -> Authority:
        """Return who said a memory to the user of this reader; see :mod:`memory_pipeline.domain.authority`."""
        return self._said_by(memory, self._state.snapshot())

    def _said_by(self, memory: DurableMemory, top: JoinedMemories) -> Authority:
        identity = top.identity_of(memory.id)
        return authority_of(memory.source_type, memory.editor, memory.content, identity, self._state.user_id)

    def headers(self, limit: int = HEADERS, *, now: When | None = None) -> list[Header]:
        """Return the headers of the newest hot and warm memories, newest first. Contents are not read.

        `limit` is 1 to 10,000; `now` as in :meth:`get`.

        Raises:
            InputError: an argument is invalid.
        """
        count_of("limit", limit, 1, MAX_LISTED)
        return self._state.snapshot(until_of(now, self._state.calendar)).headers(_recalled, limit)

    def list(
        self,
        *,
        status: Status | Literal["any"] | str | None = Status.ACTIVE,
        review: bool = False,
        limit: int = 100,
        now: When | None = None,
        **filters: Unpack[ListFilters],
    ) -> Found:
        """Return the newest memories that match all conditions, newest first.

        Args:
            status: active, superseded (replaced), deprecated (forgotten), archived (faded), or any.
            review: only memories to review, whose context rot is 0.7 or more: old, not used, unimportant.
            limit: 1 to 10,000.
            now: the time at which to read them; by default the newest state.
            filters: see :class:`~memory_pipeline.domain.fields.ListFilters`.

        Raises:
            InputError: an argument is invalid.
        """
        check_names(filters, ListFilters)
        count_of("limit", limit, 1, MAX_LISTED)
        mask, until = _mask_of(status, filters), until_of(now, self._state.calendar)
        top = self._state.snapshot(until)
        headers = top.headers(mask, None if review else limit)
        memories = self._state.with_uses(top.load([header.id for header in headers]), until)
        found = [memories[header.id] for header in headers if header.id in memories]
        if not review:
            return found
        at = datetime.now(UTC) if now is None else self._state.calendar.moment("now", now)
        return [memory for memory in found if needs_review(memory, at)][:limit]

    def matching(self, *, status: Status | str | None = Status.ACTIVE, **filters: Unpack[MemoryFilters]) -> Headers:
        """Return the headers of all memories that match, newest first. Arguments as in :meth:`list`.

        Raises:
            InputError: an argument is invalid.
        """
        check_names(filters, MemoryFilters)
        return self._state.snapshot().headers(_mask_of(status, filters))

    def page(
        self,
        limit: int | None = None,
        *,
        before: str | None = None,
        since: datetime | None = None,
        now: When | None = None,
    ) -> Found:
        """Return the active memories in the reverse order of their ids, which begin with the hour of the first version.

        At most `limit`, by default all; only ids before `before`; only what was stated, updated or confirmed at `since`
        (UTC) or later. `now` as in :meth:`get`.

        Raises:
            InputError: `now` is not a time with a zone.
        """
        active, until = _mask_of(Status.ACTIVE, {}), until_of(now, self._state.calendar)
        top = self._state.snapshot(until)
        found = top.ids(lambda rows: active(rows) & (True if since is None else rows.since("updated_at", since)))
        ids = sorted((one for one in found if before is None or one < before), reverse=True)[:limit]
        memories = top.load(ids, alone=limit is not None)
        if limit is None:
            memories = self._state.with_uses(memories, until)
        return [memories[one] for one in ids if one in memories]

    def about(self, subject: str, *, kind: MemoryKind | str | None = None, limit: int = 100) -> Found:
        """Return the active memories with a subject, in any case, including cold ones, newest first.

        Args:
            subject: the person or thing.
            kind: only memories of this kind.
            limit: 1 to 10,000.

        Raises:
            InputError: an argument is invalid.
        """
        return self.list(kind=kind, subject=subject, limit=limit)

    def preference(self, user_id: str, key: str, default: Any = None, *, now: When | None = None) -> Any:
        """Return the value of a user's preference, or `default`. `now` as in :meth:`get`.

        Raises:
            InputError: an argument is invalid.
        """
        return self._preferences(user_id, key, now).get(key, default)

    def preferences(self, user_id: str, *, now: When | None = None) -> dict[str, Any]:
        """Return all preferences of a user by name, sorted. `now` as in :meth:`get`.

        Raises:
            InputError: `user_id` is invalid.
        """
        return self._preferences(user_id, None, now)

    def resolved(self, id: str, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Return the id of the memory that a memory was merged into, or its own id. `now` as in :meth:`get`.

        Raises:
            InputError: `id` is not the id of a memory, or `now` is not a time with a zone.
        """
        return self._state.resolved(reference_of(id)[0], until_of(now, self._state.calendar))

    def identity_of(self, id: str, *, now: When | None = None) -> str:  # noqa: A002  # as above
        """Return the user or group whose memory it is: ``user:`` or ``group:`` and an id; empty for the agent's own.

        `now` as in :meth:`get`.

        Raises:
            InputError: `id` is not the id of a memory, or `now` is not a time with a zone.
        """
        return self._state.snapshot(until_of(now, self._state.calendar)).identity_of(reference_of(id)[0])

    def _preferences(self, user_id: str, key: str | None, now: When | None) -> dict[str, Any]:
        owner = _text("user_id", user_id)
        mask = _mask_of(Status.ACTIVE, {"kind": MemoryKind.PREFERENCE, "user_id": owner, "key": key})
        top = self._state.snapshot(until_of(now, self._state.calendar))
        found = top.headers(mask)
        memories = top.load([header.id for header in found if header.key is not None])
        values = {
            memory.key or "": memory.value
            for memory in sorted(
                memories.values(), key=lambda one: (precedence(top.identity_of(one.id)), one.updated_at)
            )
            if memory.value is not None
        }
        return {name: json.loads(values[name]) for name in sorted(values)}


def precedence(identity: str) -> int:
    """Return the rank of a scope: the agent's own memory, then a group's, then a user's."""
    return 0 if not identity else 2 if identity.startswith("user:") else 1


def _mask_of(status: object, filters: MemoryFilters | ListFilters) -> Callable[[Rows], NDArray[np.bool_]]:
    """Return a function that masks the rows of memories that match. Descriptions of contexts never match.

    Raises:
        InputError: a filter is invalid.
    """
    names: Mapping[str, Any] = filters
    kind, tag = names.get("kind"), names.get("tag")
    texts: dict[str, str] = {
        name: _text(name, value)
        for name in ("predicate", "user_id", "key", "subject", "object")
        if (value := names.get(name)) is not None
    }
    equal: dict[str, Any] = {name: texts[name] for name in ("user_id", "key") if name in texts}
    if kind is not None:
        equal["kind"] = MemoryKind.parse(kind).value
    if status is not None and status != "any":
        equal["status"] = one_of(Status, "status", status).value
    if "predicate" in texts:
        equal["predicate"] = snake_case(texts["predicate"])
    called: dict[str, str] = {name: name_key(texts[name]) for name in ("subject", "object") if name in texts}
    label = None if tag is None else " ".join(_text("tag", tag).split())
    origin: Any = {name: names.get(name) for name in Origin.__annotations__}
    equal |= values_of(origin)

    def mask(rows: Rows) -> NDArray[np.bool_]:
        found = ~rows.equal("context", CONTEXTS)
        for name, value in equal.items():
            found &= rows.equal(name, value)
        for name, value in called.items():
            found &= rows.called(name, value)
        return found if label is None else found & rows.tagged(label)

    return mask


def values_of(origin: Origin) -> dict[str, Any]:
    """Return the values that attributes of memories must have.

    Raises:
        InputError: a value is invalid.
    """
    check_names(origin, Origin)
    return Changes.of(origin).to_record()


def reference_of(text: object) -> tuple[str, int | None]:
    """Return the id of a memory, and the version number if the id names a version.

    Raises:
        InputError: `text` is not the id of a memory.
    """
    memory_id = memory_reference(text)
    assert isinstance(text, str)  # noqa: S101  # nosec B101  # otherwise it would not be an id
    _, _, version = text.partition("#")
    return memory_id, int(version) if version else None


def until_of(now: When | None, calendar: Calendar) -> datetime | None:
    """Return the last time that is included: `now` and a second, or None for the newest state.

    Changes that are written at the same `now` are placed microseconds after one another.

    Raises:
        InputError: `now` is not a time with a zone.
    """
    return None if now is None else calendar.moment("now", now) + timedelta(seconds=1)


def _recalled(rows: Rows) -> NDArray[np.bool_]:
    is_active = rows.equal("status", Status.ACTIVE.value) & ~rows.equal("temperature", Temperature.COLD.value)
    return is_active & ~rows.equal("context", CONTEXTS)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TERM or not is_unicode(value):
        raise InputError(f"{name} {shown(value)} is not accepted; expected a text of 1 to {MAX_TERM} characters")
    return value
