"""Settings of workspaces and agents, from ``config/workspaces.yaml`` of the lake.

:class:`Configuration` is the parsed file with all inheritance resolved.
"""

from __future__ import annotations

from memory_pipeline.configuration.example import EXAMPLE
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
from memory_pipeline.configuration.workspaces import Configuration

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
]
