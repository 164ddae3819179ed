"""Traces and metrics for OpenTelemetry, with its conventions for generative AI. The only module that imports it.

Nothing is recorded, and nothing is imported, unless the program has set up OpenTelemetry, or :func:`configure` has
found ``OTEL_EXPORTER_OTLP_ENDPOINT`` in the environment. Spans and metrics have ids and counts, never texts.

See https://github.com/open-telemetry/semantic-conventions-genai for the names.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from memory_pipeline.errors import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

_NAME: Final = "memory_pipeline"
_API: Final = "opentelemetry.trace"
_SYSTEM: Final = "memory_pipeline"
#: Ids of records in one span.
_MOST_IDS: Final = 100
#: Whether an operation of memory is going on. What it calls is a part of it.
_is_inside: ContextVar[bool] = ContextVar("_is_inside", default=False)


def observed(operation: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that traces and measures a method of a reader or writer.

    The object must have a ``scope``; the result may be an id, or records or a receipt with ids.

    Args:
        operation: as ``gen_ai.operation.name``, such as ``search_memory``.
    """

    def declared(method: Callable[P, R]) -> Callable[P, R]:
        @wraps(method)
        def call(*args: P.args, **named: P.kwargs) -> R:
            if _API not in sys.modules or _is_inside.get():
                return method(*args, **named)
            token = _is_inside.set(True)
            try:
                with _measured(operation, _store_of(args[0])) as span:
                    found = method(*args, **named)
                    if span.is_recording():
                        span.set_attributes(_records(found))
                    return found
            finally:
                _is_inside.reset(token)

        return call

    return declared


@contextmanager
def step(name: str, attributes: Mapping[str, str | int]) -> Iterator[None]:
    """Trace a step of the pipeline, or a call to a model."""
    if _API not in sys.modules:
        yield
        return
    from opentelemetry import trace

    with trace.get_tracer(_NAME).start_as_current_span(name, attributes=dict(attributes)):
        yield


def add_to_step(attributes: Mapping[str, str | int | float]) -> None:
    """Add attributes to the span of a step."""
    if _API in sys.modules:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(dict(attributes))


def configure(service: str) -> None:
    """Send traces and metrics by OTLP over HTTP, if the environment names where to.

    The usual variables of OpenTelemetry decide: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``,
    ``OTEL_SERVICE_NAME`` (by default `service`) and so on.

    Raises:
        MissingExtraError: the exporter is not installed.
    """
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_SDK_DISABLED") == "true":
        return
    require("telemetry", "opentelemetry.exporter.otlp.proto.http")
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    os.environ.setdefault("OTEL_SERVICE_NAME", service)
    resource = Resource.create()
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    metrics.set_meter_provider(MeterProvider([reader], resource=resource))


@contextmanager
def _measured(operation: str, store: Mapping[str, str]) -> Iterator[Any]:
    from opentelemetry import metrics, trace

    meter = metrics.get_meter(_NAME)
    duration = meter.create_histogram("memory.operation.duration", "s", "Duration of an operation of memory.")
    attributes = {"gen_ai.operation.name": operation, "gen_ai.provider.name": _SYSTEM}
    began, failed = perf_counter(), {}
    try:
        with trace.get_tracer(_NAME).start_as_current_span(
            operation, kind=trace.SpanKind.CLIENT, attributes={**attributes, **store}, record_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                failed = {"error.type": type(error).__name__}  # its message may have words of the user
                span.set_attributes(failed)
                raise
    finally:
        duration.record(perf_counter() - began, {**attributes, **failed})


def _store_of(part: Any) -> dict[str, str]:
    """Return the ids of the memory of a reader or writer. The key of a scope names no user."""
    scope = part.scope
    return {"gen_ai.memory.store.id": scope.key, "gen_ai.agent.id": scope.agent_id}


def _records(found: object) -> dict[str, Any]:
    """Return the ids of what an operation has found or written."""
    if isinstance(found, str):
        return {"gen_ai.memory.record.id": found}
    many = getattr(found, "parts", None) or getattr(found, "message_ids", None) or found
    if not isinstance(many, list | tuple):
        return {}
    ids = [one if isinstance(one, str) else getattr(one, "id", "") for one in many]
    return {f"{_SYSTEM}.record.count": len(ids), f"{_SYSTEM}.record.ids": ids[:_MOST_IDS]}
