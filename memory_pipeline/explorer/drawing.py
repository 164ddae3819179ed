"""Drawings as numbers for SVG: the neighbourhood of an entity, and bars."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.graph import GraphFact

#: Width and height of a drawing, and the distance of entities from its middle.
WIDTH, HEIGHT = 760, 520
_RADII: Final = (0.0, 170.0, 235.0)
#: Entities that are drawn; a list has all.
_MOST: Final = 28
_LONGEST: Final = 22


@dataclass(frozen=True, slots=True)
class DrawnEntity:
    """An entity at its place."""

    name: str
    x: float
    y: float

    @property
    def label(self) -> str:
        """The name, shortened."""
        return self.name if len(self.name) <= _LONGEST else f"{self.name[: _LONGEST - 1]}…"


@dataclass(frozen=True, slots=True)
class DrawnFact:
    """A fact as a line between two entities."""

    fact: GraphFact
    x1: float
    y1: float
    x2: float
    y2: float

    @property
    def middle(self) -> tuple[float, float]:
        """Where its label is."""
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """Entities and facts at their places, and how many entities were left out."""

    entities: Sequence[DrawnEntity]
    facts: Sequence[DrawnFact]
    left_out: int


def drawing_of(center: str, facts: Sequence[GraphFact]) -> Drawing:
    """Return the facts around an entity as a drawing: it is in the middle, and the others are in two rings."""
    names = [
        name for name in dict.fromkeys(one for fact in facts for one in (fact.source, fact.target)) if name != center
    ]
    shown, places = names[:_MOST], {center: (WIDTH / 2, HEIGHT / 2)}
    for number, name in enumerate(shown):
        angle = 2 * math.pi * number / max(1, len(shown)) - math.pi / 2
        radius = _RADII[1 + number % 2] if len(shown) > 8 else _RADII[1]
        places[name] = (WIDTH / 2 + 1.35 * radius * math.cos(angle), HEIGHT / 2 + radius * math.sin(angle))
    lines = [
        DrawnFact(fact, *places[fact.source], *places[fact.target])
        for fact in facts
        if fact.source in places and fact.target in places
    ]
    return Drawing([DrawnEntity(name, *place) for name, place in places.items()], lines, len(names) - len(shown))
