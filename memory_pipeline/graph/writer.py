"""Writes what an agent itself has to say of its world: changes of the graph, through the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from memory_pipeline.domain.conversations import Admission
from memory_pipeline.domain.graph.operations import Edit, Verb
from memory_pipeline.domain.graph.triples import KIND
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.journal import EventClock

if TYPE_CHECKING:
    from datetime import date

    from memory_pipeline.domain.conversations import Scope
    from memory_pipeline.domain.periods import When
    from memory_pipeline.graph import Graph
    from memory_pipeline.lake import Lake

_KEYS = frozenset(["edit", "subject", "predicate", "object", "replaces", "confidence", "weight", "timestamp"])


class GraphWriter:
    """Changes one agent's graph. A change is durable when a method returns, and readers see it at once.

    Names are taken as they are written and compared without regard to case; predicates become snake_case. Of two
    changes the later one counts, whatever order they land in; those that one writer makes at one time are told apart
    by microseconds.

    Args:
        lake: where.
        scope: whose.
        start: the first day that is accepted.
        graph: what is known, for what must be known.
    """

    def __init__(self, lake: Lake, scope: Scope, start: date, graph: Graph) -> None:
        self._lake = lake
        self._scope = scope
        self._start = start
        self._graph = graph
        self._moments = EventClock()

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

        Where the predicate holds one object at a time, this takes the place of the one before.

        Args:
            subject: a name; ``User`` and ``Agent`` for these two.
            predicate: such as ``lives_in``.
            object: a name or a value.
            confidence: 0 to 1, how sure it is.
            weight: 0 to 1, how strong the relationship is; by the number of its evidence if not given.
            now: from when it holds; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; nothing was written.
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
            subject: as for :meth:`insert`, like all that follow.
            predicate: likewise.
            object: likewise.
            replaces: the object that it takes the place of. Needed where the predicate holds many, else the fact stands
                beside them.
            confidence: likewise.
            weight: likewise.
            now: likewise.

        Raises:
            InputError: an argument is not accepted; nothing was written.
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
        """Say that a fact holds no longer; return the id of the change. It stays in the graph's history.

        Args:
            subject: of the fact.
            predicate: likewise.
            object: likewise; None ends all that the subject has for the predicate.
            now: from when on; the clock's if not given.

        Raises:
            InputError: an argument is not accepted; nothing was written.
        """
        return self._change(Verb.DELETE, subject, predicate, object, None, 1.0, None, now)

    def add_entity(self, name: str, kind: str = "entity", *, now: When | None = None) -> str:
        """Make a name known: ``name is_a kind``; return the id of the change.

        Raises:
            InputError: an argument is not accepted; nothing was written.
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
        """Assert a fact between two entities that are known; return the id of the change.

        Raises:
            InputError: nothing was ever said of one of them, or an argument is not accepted; nothing was written.
        """
        for argument, name in (("source", source), ("target", target)):
            if not self._graph.knows(name, argument):
                raise InputError(f"{argument} {shown(name)} is not known; add it first with add_entity, or use insert")
        return self.insert(source, label, target, confidence=confidence, weight=weight, now=now)

    def apply(self, changes: Sequence[Mapping[str, object]], *, now: When | None = None) -> list[str]:
        """Make many changes with one write; return their ids, in their order.

        They are all checked before the first is written.

        Args:
            changes: each with ``edit`` (INSERT, UPDATE or DELETE), ``subject``, ``predicate``, ``object``, and where
                wanted ``replaces``, ``confidence``, ``weight``, and ``timestamp`` (a time with its zone, in place of
                `now`).
            now: the time at which they are made; the clock's if not given.

        Raises:
            InputError: one of them is not accepted; the message says which.
        """
        received_at = self._lake.calendar.moment("now", datetime.now(UTC) if now is None else now)
        if isinstance(changes, str | bytes | Mapping) or not isinstance(changes, Sequence):
            raise InputError(f"changes {shown(changes)} is not accepted; expected a list of mappings")
        admission = Admission(self._start, received_at, self._lake.calendar)
        edits = []
        with self._moments.at(received_at) as take:
            for place, change in enumerate(changes, start=1):
                try:
                    _check_keys(change)
                    at = change.get("timestamp")
                    order = {"timestamp": take() if at is None else at, "received_at": received_at, "turn": place}
                    edit = Edit.from_record({**change, **self._own, **order})
                    admission.check(edit.event_at)
                except InputError as error:
                    where = f"change {place}: " if len(changes) > 1 else ""
                    raise InputError(f"{where}{error}; nothing was written") from None
                edits.append(edit)
            taken = self._lake.tombstones.forgotten().filter(edits)
            self._lake.ensure(min((edit.event_at for edit in taken), default=None))
            self._lake.journal.append(taken)
        return [edit.id for edit in edits]

    @property
    def _own(self) -> dict[str, str]:
        return {"workspace_id": self._scope.workspace_id, "agent_id": self._scope.agent_id}

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
        [made] = self.apply([{"edit": verb, **terms, "confidence": confidence, "weight": weight}], now=now)
        return made


def _check_keys(change: object) -> None:
    if not isinstance(change, Mapping):
        raise InputError(f"{shown(change)} is not a mapping")
    unknown = sorted(str(key) for key in change.keys() - _KEYS)
    if unknown:
        raise InputError(f"{', '.join(map(shown, unknown))} is unknown; accepted: {', '.join(sorted(_KEYS))}")
