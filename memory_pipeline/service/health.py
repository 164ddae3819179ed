"""What an operator's tools ask: whether the service lives, whether it is ready, its version, and its metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request  # noqa: TC002  # FastAPI reads annotations
from starlette.responses import JSONResponse, Response

from memory_pipeline.domain.periods import Grain
from memory_pipeline.lake.schemas import MODEL_CALLS, READ_RECEIPTS
from memory_pipeline.service.problems import ProblemError
from memory_pipeline.steps.scheduling.planner import grain_status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from prometheus_client.core import Metric

    from memory_pipeline.lake import Lake

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: Seconds for which the figures of the lake are not counted again.
_FRESH: Final = 15.0
_COLUMNS: Final = ("model", "purpose", "tokens_in", "tokens_out", "cost", "outcome")


class ServiceMetrics:
    """The metrics of one service.

    Attributes:
        registry: they are collected here.
    """

    def __init__(self, lake: Lake) -> None:
        self.registry = CollectorRegistry()
        self._counted = Counter(
            "memory_pipeline_operations", "Requests by operation and result.", ("operation", "result"),
            registry=self.registry,
        )  # fmt: skip
        self._timed = Histogram(
            "memory_pipeline_operation_duration_seconds",
            "Time to answer a request. What add has answered is searchable, so that of add is the delay from said to "
            "searchable.",
            ("operation",), buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self.registry.register(_LakeFigures(lake))
        ProcessCollector(registry=self.registry)

    def observed(self, operation: str, status: int, seconds: float) -> None:
        """Count a request."""
        result = "ok" if status < 400 else "client_error" if status < 500 else "server_error"
        self._counted.labels(operation, result).inc()
        self._timed.labels(operation).observe(seconds)


class _LakeFigures(Collector):
    """Figures of the lake: what is pending or due, and what models cost."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = Lock()
        self._counted: tuple[float, list[Metric]] = (0.0, [])

    def describe(self) -> list[Metric]:
        """Return nothing: the registry need not read the lake to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the figures, which may be some seconds old."""
        with self._lock:
            at, found = self._counted
            if not at or monotonic() - at > _FRESH:
                found = [*self._pending(), *self._due(), *self._calls()] if self._lake.exists else []
                self._counted = monotonic(), found
        yield from found

    def _pending(self) -> Iterator[Metric]:
        files = self._lake.journal.pending()
        oldest = min((file.written_at for file in files), default=None)
        age = 0.0 if oldest is None else (datetime.now(UTC) - oldest).total_seconds()
        yield GaugeMetricFamily(
            "memory_pipeline_pending_files", "Files of the journal that no run has loaded.", len(files)
        )
        yield GaugeMetricFamily(
            "memory_pipeline_pending_oldest_seconds", "Age of the oldest of these files.", max(0.0, age)
        )
        yield GaugeMetricFamily(
            "memory_pipeline_quarantined", "Records that were set aside.", len(self._lake.journal.quarantined())
        )

    def _due(self) -> Iterator[Metric]:
        now, calendar = datetime.now(UTC), self._lake.calendar
        due = GaugeMetricFamily("memory_pipeline_periods_due", "Closed periods to compute.", labels=["grain"])
        unfinished = GaugeMetricFamily(
            "memory_pipeline_periods_unfinished", "Periods that wait for a model or for budget.", labels=["grain"]
        )
        delay = GaugeMetricFamily(
            "memory_pipeline_summary_delay_seconds",
            "Time since the end of the oldest period that is due: the delay from said to summarised. 0 if none is.",
            labels=["grain"],
        )
        for grain in Grain:
            status = grain_status(self._lake, grain, self._lake.start, now)
            late = (now - calendar.closes_at(status.pending[0])).total_seconds() if status.pending else 0.0
            due.add_metric([grain], len(status.pending))
            unfinished.add_metric([grain], len(status.unfinished))
            delay.add_metric([grain], max(0.0, late))
        yield from (due, unfinished, delay)

    def _calls(self) -> Iterator[Metric]:
        by = ["model", "purpose"]
        calls = CounterMetricFamily("memory_pipeline_model_calls", "Requests to models.", labels=[*by, "outcome"])
        tokens = CounterMetricFamily("memory_pipeline_model_tokens", "Tokens of models.", labels=[*by, "direction"])
        dollars = CounterMetricFamily("memory_pipeline_model_cost_dollars", "Cost of models.", labels=by)
        rows = self._lake.tables.read(MODEL_CALLS, columns=_COLUMNS)
        sums = [("tokens_in", "sum"), ("tokens_out", "sum"), ("cost", "sum"), ("model", "count")]
        for one in rows.group_by([*by, "outcome"]).aggregate(sums).to_pylist():
            calls.add_metric([one["model"], one["purpose"], one["outcome"]], one["model_count"])
        for one in rows.group_by(by).aggregate(sums).to_pylist():
            labels = [one["model"], one["purpose"]]
            tokens.add_metric([*labels, "in"], one["tokens_in_sum"] or 0)
            tokens.add_metric([*labels, "out"], one["tokens_out_sum"] or 0)
            dollars.add_metric(labels, one["cost_sum"] or 0.0)
        reads = self._lake.tables.read(READ_RECEIPTS, columns=["cost"])["cost"].to_pylist()
        answered = CounterMetricFamily(
            "memory_pipeline_questions", "Reads that handed memory to a model, as far as receipts are kept.", len(reads)
        )
        cost = CounterMetricFamily(
            "memory_pipeline_question_cost_dollars", "Cost of models for these reads.", sum(one or 0.0 for one in reads)
        )
        yield from (calls, tokens, dollars, answered, cost)


def add_health(app: FastAPI, lake: Lake) -> ServiceMetrics:
    """Add ``/health/live``, ``/health/ready``, ``/version`` and ``/metrics``; return the metrics."""
    metrics = ServiceMetrics(lake)
    number = version("memory-pipeline")

    async def live() -> Response:
        """The process answers. Reads nothing."""
        return JSONResponse({"status": "ok"})

    def ready() -> Response:
        """The lake can be read and written."""
        problems = lake.storage.problems()
        if problems:
            raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", "; ".join(problems))
        return JSONResponse({"status": "ok"})

    async def version_() -> Response:
        """The version of the service."""
        return JSONResponse({"version": number})

    def scrape(request: Request) -> Response:
        """Metrics for Prometheus."""
        caller = request.state.caller
        if caller.token_id and not caller.is_for_many_users:
            raise ProblemError(
                HTTPStatus.FORBIDDEN, "not-allowed", "metrics are of all users; use a token for many users"
            )
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.registry), media_type=content_type)

    for path, endpoint, name in (
        ("/health/live", live, "live"), ("/health/ready", ready, "ready"), ("/version", version_, "version"),
        ("/metrics", scrape, "metrics"),
    ):  # fmt: skip
        app.add_api_route(path, endpoint, methods=["GET"], operation_id=name, include_in_schema=False)
    return metrics
