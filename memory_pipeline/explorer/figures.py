"""Figures of a lake: its agents, what is due, what models cost, and how long memory takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline.lake.schemas import MODEL_CALLS, READ_RECEIPTS, SUMMARIES
from memory_pipeline.reader.activity import activities, users_of
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.scheduling.planner import GrainStatus

_BY: Final = ("workspace_id", "agent_id", "grain", "purpose", "model")


@dataclass(slots=True)
class Spent:
    """What requests to models cost. Dollars are None if no price is known."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0

    def add(self, row: Mapping[str, object]) -> None:
        """Add a sum of rows of the calls."""
        self.calls += int(str(row["model_count"]))
        self.tokens_in += int(str(row["tokens_in_sum"] or 0))
        self.tokens_out += int(str(row["tokens_out_sum"] or 0))
        self.dollars += float(str(row["cost_sum"] or 0.0))


@dataclass(frozen=True, slots=True)
class Costs:
    """What models cost, by agent, grain and month.

    `questions` counts the reads that handed memory to a model, of which receipts are kept; `of_questions` is what
    models cost for them.
    """

    by_agent: Mapping[tuple[str, str], Spent]
    by_grain: Mapping[tuple[str, str], Spent]
    by_month: Mapping[str, Spent]
    total: Spent
    questions: int
    of_questions: float

    @property
    def of_a_question(self) -> float:
        """Dollars that models cost for one read that answered a question."""
        return self.of_questions / self.questions if self.questions else 0.0


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent, with whom it talks, and when last."""

    scope: Scope
    users: Sequence[str]
    groups: int
    last_at: datetime
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True, slots=True)
class Delay:
    """How long a grain's oldest period that is due has waited, beside what is aimed at."""

    grain: str
    due: int
    waited: timedelta
    target: timedelta

    @property
    def is_late(self) -> bool:
        """Whether it waited longer than is aimed at."""
        return self.waited > self.target


@dataclass(frozen=True, slots=True)
class Compression:
    """The summaries of a grain: their number, and the tokens that went in and came out."""

    grain: str
    count: int
    tokens_in: int
    tokens_out: int

    @property
    def ratio(self) -> float | None:
        """The size of the sources, as times of that of the summaries."""
        return self.tokens_in / self.tokens_out if self.tokens_out else None


def costs_of(lake: Lake) -> Costs:
    """Return what models cost."""
    agents: dict[tuple[str, str], Spent] = defaultdict(Spent)
    grains: dict[tuple[str, str], Spent] = defaultdict(Spent)
    months: dict[str, Spent] = defaultdict(Spent)
    total = Spent()
    if lake.exists:
        rows = lake.tables.read(MODEL_CALLS, columns=["hour", *_BY, "tokens_in", "tokens_out", "cost"])
        sums = [("tokens_in", "sum"), ("tokens_out", "sum"), ("cost", "sum"), ("model", "count")]
        for row in rows.group_by(["hour", *_BY]).aggregate(sums).to_pylist():
            for spent in (
                agents[row["workspace_id"], row["agent_id"]], grains[row["grain"], row["purpose"]],
                months[row["hour"][:7]], total,
            ):  # fmt: skip
                spent.add(row)
    reads = lake.tables.read(READ_RECEIPTS, columns=["cost"])["cost"].to_pylist() if lake.exists else []
    by_grain, by_month = dict(sorted(grains.items())), dict(sorted(months.items()))
    return Costs(dict(agents), by_grain, by_month, total, len(reads), sum(one or 0.0 for one in reads))


def agents_of(lake: Lake, costs: Costs) -> list[AgentRow]:
    """Return all agents, those that talked last first."""
    rows = []
    for own, group in groupby(activities(lake), key=lambda one: one.scope.own):
        scopes = [*group]
        users = sorted({user for one in scopes for user in users_of(lake, one.scope)})
        spent = costs.by_agent.get((own.workspace_id, own.agent_id), Spent())
        groups = sum(one.scope.is_group for one in scopes)
        rows.append(AgentRow(own, users, groups, max(one.last_at for one in scopes), spent))
    return sorted(rows, key=lambda row: row.last_at, reverse=True)


def statuses_of(lake: Lake, now: datetime) -> list[GrainStatus]:
    """Return the state of each grain."""
    return [grain_status(lake, grain, lake.start, now) for grain in Grain] if lake.exists else []


def delays_of(lake: Lake, statuses: Sequence[GrainStatus], now: datetime) -> list[Delay]:
    """Return how long each grain keeps what was said waiting. An hour is due at once, a summary within six hours."""
    found = []
    for status in statuses:
        oldest = status.pending[0] if status.pending else None
        waited = timedelta() if oldest is None else max(timedelta(), now - lake.calendar.closes_at(oldest))
        target = timedelta(hours=1 if status.grain is Grain.WORKING else 6)
        found.append(Delay(status.grain.value, len(status.pending), waited, target))
    return found


def compressions_of(lake: Lake) -> list[Compression]:
    """Return how much smaller the summaries of each grain are than their sources."""
    found = []
    for grain in SUMMARY_GRAINS if lake.exists else ():
        rows = lake.tables.read(SUMMARIES, columns=["tokens_in", "tokens_out"], grain=grain.value)
        sums = (sum(one or 0 for one in rows[name].to_pylist()) for name in ("tokens_in", "tokens_out"))
        found.append(Compression(grain.value, len(rows), *sums))
    return found
