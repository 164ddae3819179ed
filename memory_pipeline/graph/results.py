"""What the graph answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import Triple
from memory_pipeline.domain.text.recalled_text import mark_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date, datetime


@dataclass(frozen=True, slots=True)
class GraphFact(Triple):
    """A fact of the graph.

    Attributes:
        since, until: the first day of it, and the day of its end, in the lake's time zone.
        score: how well it fits what was asked; 0 where nothing was.
    """

    since: date
    until: date | None = None
    score: float = 0.0

    @property
    def line(self) -> str:
        """Its terms with its dates: ``Anna lives_in Porto (since 2024-01-15)``."""
        when = f"since {self.since}" if self.until is None else f"{self.since} to {self.until}"
        return f"{self.source} {self.label} {self.target} ({when})"

    def __str__(self) -> str:
        """Return the line, marked as recalled: ``⁍ Anna lives_in Porto (since 2024-01-15)``."""
        return mark_lines(self.line)


class Facts(list[GraphFact]):
    """Facts, and how many there are in all.

    Attributes:
        total: how many there are, those too that the limit has left out.
    """

    def __init__(self, facts: Iterable[GraphFact] = (), total: int = 0) -> None:
        super().__init__(facts)
        self.total = total

    def __str__(self) -> str:
        """Return a line for each."""
        return "\n".join(map(str, self))


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that the graph knows.

    Attributes:
        id: its name, as names are compared.
        name: as it was last said.
        aliases: other names for it, as names are compared; sorted.
        facts: how many facts hold of which it is source or target.
        updated_at: when the newest of them was said.
    """

    id: str
    name: str
    aliases: tuple[str, ...]
    facts: int
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Neighbor:
    """An entity that others lead to, and in how many steps."""

    name: str
    distance: int


class Neighbors(list[Neighbor]):
    """Neighbours, nearest first, and how many there are in all (`total`)."""

    def __init__(self, neighbors: Iterable[Neighbor] = (), total: int = 0) -> None:
        super().__init__(neighbors)
        self.total = total
