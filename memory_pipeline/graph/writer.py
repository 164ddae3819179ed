"""Write an agent's own changes of its graph, through the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.graph.operations import Edit, Verb
from memory_pipeline.domain.graph.triples import KIND
from memory_pipeline.errors import InputError, shown
from memory_pipeline.graph.graph import Graph
from memory_pipeline.graph.state import GraphOverlay
from memory_pipeline.lake.event_clock import TOLERANCE, EventClock, placed_after
from memory_pipeline.overlay import one_read

if TYPE_CHECKING:
    from datetime import date

    from memory_pipeline.domain.periods import When
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.overlay import PendingJournal

_KEYS = frozenset("edit subject predicate object replaces confidence weight timestamp origin conversation_id".split())


class GraphWriter:
    """Changes one agent's graph. A change is durable and visible to readers when the method returns.

    Names keep their spelling and are compared without regard to case; predicates are converted to snake_case. A change
    follows all changes of the same subject and predicate that its writer sees, whatever their clocks said. One with a
    `now` more than five minutes before them is about the past, as is one with a ``timestamp``. Of two changes that do
    not know of each other, the later time wins. Changes of one writer at the same time are ordered by added
    microseconds. `start` is the first accepted day. `users` are the members of the group, if the scope is a group's.
    """

    def __init__(
        self, lake: Lake, scope: Scope, start: date, pending: PendingJournal, users: Sequence[str] = ()
    ) -> None:
        self._lake = lake
        self._scope = scope
        self._start = start
        self._state = GraphOverlay(lake, scope, pending)
        self._users = users
        self._clock = EventClock()

    def insert(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002  # the term's own name
        *,
        confidence: float = 1.0,
        weight: float | None = None,
        now: When | None = None,
    ) -> str:
        """Assert a fact; return the id of the change.

        If the predicate is single-valued, the new fact replaces the old one.

        Args:
            subject: a name; ``User`` and ``Agent`` are the two sides of the conversation.
            predicate: such as ``lives_in``.
            object: a name or a value.
            confidence: how certain the fact is, 0 to 1.
            weight: strength of the relationship, 0 to 1; by default it follows from the amount of evidence.
            now: when the fact begins; the current time by default.

        Raises:
            InputError: an argument is invalid. Nothing was written.
        """
        return self._change(Verb.INSERT, subject, predicate, object, None, confidence, weight, now)

    def update(
        self,
        subject: str,
        predicate: str,
        object: str,  # noqa: A002  # as above
        *,
        replaces: str | None = None,
        confidence: float = 1.0,
        weight: float | None = None,
        now: When | None = None,
    ) -> str:
        """Assert a fact in place of another; return the id of the change.

        Args:
            subject: as in :meth:`insert`.
            predicate: such as ``lives_in``.
            object: a name or a value.
            replaces: the object of the old fact. It is required for a multi-valued predicate; without it, the new fact
                is added.
            confidence: how certain the fact is, 0 to 1.
            weight: strength of the relationship, 0 to 1; by default it follows from the amount of evidence.
            now: when the fact begins; the current time by default.

        Raises:
            InputError: an argument is invalid. Nothing was written.
        """
        return self._change(Verb.UPDATE, subject, predicate, object, replaces, confidence, weight, now)

    def delete(
        self,
        subject: str,
        predicate: str,
        object: str | None = None,  # noqa: A002  # as above
        *,
        now: When | None = None,
    ) -> str:
        """End a fact; return the id of the change. The fact stays in the graph's history.

        Without an object, all facts with this subject and predicate end.

        Raises:
            InputError: an argument is invalid. Nothing was written.
        """
        return self._change(Verb.DELETE, subject, predicate, object, None, 1.0, None, now)

    def add_entity(self, name: str, kind: str = "entity", *, now: When | None = None) -> str:
        """Add an entity, as the fact ``name is_a kind``; return the id of the change.

        Raises:
            InputError: an argument is invalid. Nothing was written.
        """
        return self.insert(name, KIND, kind, now=now)

    def add_relationship(
        self,
        source: str,
        label: str,
        target: str,
        *,
        confidence: float = 1.0,
        weight: float | None = None,
        now: When | None = None,
    ) -> str:
        """Assert a fact between two known entities; return the id of the change.

        Raises:
            InputError: an entity is unknown, or an argument is invalid. Nothing was written.
        """
        graph = Graph(self._state, self._lake.calendar)
        for argument, name in (("source", source), ("target", target)):
            if not graph.knows(name, argument):
                raise InputError(f"{argument} {shown(name)} is unknown; add it with add_entity first, or use insert")
        return self.insert(source, label, target, confidence=confidence, weight=weight, now=now)

    def apply(self, changes: Sequence[Mapping[str, object]], *, now: When | None = None) -> list[str]:
        """Make many changes with one write; return their ids, in order. All are validated first.

        A change is a mapping with ``edit`` (INSERT, UPDATE or DELETE), ``subject``, ``predicate``, ``object``, and
        optionally ``replaces``, ``confidence``, ``weight``, ``timestamp`` (a time with its zone, in place of `now`),
        ``origin`` (who says it, if not the operator: ``user``, ``assistant``, ``import`` or ``tool``), and
        ``conversation_id`` (of an import: its source).

        Raises:
            InputError: a change is invalid; the message says which. Nothing was written.
        """
        received_at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        if isinstance(changes, str | bytes | Mapping) or not isinstance(changes, Sequence):
            raise InputError(f"changes {shown(changes)} is not accepted; expected a list of mappings")
        changes = self._lake.redactor_of(self._scope.workspace_id).value(changes)
        admission = Admission(self._start, received_at, self._lake.calendar)
        edits = []
        within = timedelta.max if now is None else TOLERANCE
        with self._clock.at(received_at) as take, one_read():
            for place, change in enumerate(changes, start=1):
                try:
                    _check_keys(change)
                    at = change.get("timestamp")
                    order = {"timestamp": take() if at is None else at, "received_at": received_at, "turn": place}
                    edit = self._edit({**change, **order, "users": self._users}, within if at is None else None)
                    admission.check(edit.event_at)
                except InputError as error:
                    where = f"change {place}: " if len(changes) > 1 else ""
                    raise InputError(f"{where}{error}; nothing was written") from None
                edits.append(edit)
            accepted = self._lake.tombstones.forgotten().filter(edits)
            self._lake.ensure(min((edit.event_at for edit in accepted), default=None))
            self._lake.members.add(accepted)
            self._lake.journal.append(accepted)
        return [edit.id for edit in edits]

    def _edit(self, record: Mapping[str, object], within: timedelta | None) -> Edit:
        """Return the edit of a record. It follows what this writer sees `within` that time; None for nothing."""
        edit = Edit.from_record(record, lambda *_: self._scope)
        if within is None or not self._lake.exists:
            return edit
        main = edit.operations[-1]
        seen = self._state.placed_from(edit.event_at, main.subject, main.predicate)
        place = None if edit.id in seen else placed_after(edit.event_at, seen.values(), within)
        return edit if place is None else Edit.from_record({**record, "ordered_at": place}, lambda *_: self._scope)

    def _change(
        self,
        verb: Verb,
        subject: str,
        predicate: str,
        value: str | None,
        replaces: str | None,
        confidence: float,
        weight: float | None,
        now: When | None,
    ) -> str:
        terms = {"subject": subject, "predicate": predicate, "object": value, "replaces": replaces}
        [identifier] = self.apply([{"edit": verb, **terms, "confidence": confidence, "weight": weight}], now=now)
        return identifier


def _check_keys(change: object) -> None:
    if not isinstance(change, Mapping):
        raise InputError(f"{shown(change)} is not accepted; expected a mapping")
    unknown = sorted(str(key) for key in change.keys() - _KEYS)
    if unknown:
        raise InputError(f"{', '.join(map(shown, unknown))} is unknown; accepted: {', '.join(sorted(_KEYS))}")
