"""The six grains of memory, from the hour to the year."""

from __future__ import annotations

from enum import StrEnum

from memory_pipeline.errors import InputError, shown


class Grain(StrEnum):
    """How long a period is. Members are ordered from fine to coarse by :attr:`rank`."""

    WORKING = "working"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    QUARTERLY = "quarterly"
    YEARLY = "yearly"

    @property
    def rank(self) -> int:
        """0 for working memory, 5 for the year."""
        return _ORDER.index(self)

    @property
    def coarser(self) -> Grain | None:
        """The grain that this one is rolled up into; None for the year."""
        return _ORDER[self.rank + 1] if self.rank + 1 < len(_ORDER) else None

    @property
    def finer(self) -> Grain | None:
        """The grain that this one is made from; None for working memory."""
        return _ORDER[self.rank - 1] if self.rank else None

    @classmethod
    def parse(cls, text: object) -> Grain:
        """Return the grain called `text`.

        Raises:
            InputError: no grain has that name.
        """
        try:
            return cls(text)  # type: ignore[arg-type]  # whatever is no member raises ValueError
        except ValueError:
            names = ", ".join(cls)
            raise InputError(f"grain {shown(text)} is unknown; accepted: {names}") from None


_ORDER = tuple(Grain)

#: The grains that hold summaries, finest first.
SUMMARY_GRAINS = _ORDER[1:]
