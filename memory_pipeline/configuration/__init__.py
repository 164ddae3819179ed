"""Settings of workspaces and agents, from ``config/workspaces.yaml`` of the lake.

:class:`Configuration` is the parsed file with all inheritance resolved.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from memory_pipeline.configuration.model_settings import (
    DETERMINISTIC,
    EXTRACTION_PLACEHOLDERS,
    SUMMARY_PLACEHOLDERS,
    Budget,
    Completion,
    Embedding,
    Endpoint,
    ExtractionSettings,
    Injection,
    Price,
    Summarization,
    TextModelSettings,
)
from memory_pipeline.configuration.sections import MemoriesSettings
from memory_pipeline.configuration.workspaces import Configuration, parse_retention

__all__ = [
    "DETERMINISTIC",
    "EXAMPLE",
    "EXTRACTION_PLACEHOLDERS",
    "SUMMARY_PLACEHOLDERS",
    "Budget",
    "Completion",
    "Configuration",
    "Embedding",
    "Endpoint",
    "ExtractionSettings",
    "Injection",
    "MemoriesSettings",
    "Price",
    "Summarization",
    "TextModelSettings",
    "parse_retention",
]

#: A configuration to start from: every key with its meaning and its default. Keys after ``#`` without a space are
#: commented out; each is valid when uncommented.
EXAMPLE: Final = files("memory_pipeline.configuration").joinpath("example.yaml").read_text(encoding="utf-8")
