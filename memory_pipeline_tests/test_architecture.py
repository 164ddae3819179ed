"""The import rules that import-linter cannot see: what comes along when a module is imported."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"dagster", "litellm", "polars", "lancedb", "deltalake", "duckdb", "pyarrow", "numpy", "s3fs", "fsspec"}


def imported_by(module: str) -> set[str]:
    """Import a module in a fresh interpreter; return which heavy packages it brought along."""
    code = f"import sys, json, {module}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return HEAVY & set(json.loads(result.stdout))


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("memory_pipeline", set()),
        ("memory_pipeline.errors", set()),
        ("memory_pipeline.settings", set()),
        ("memory_pipeline.domain.periods", set()),
        ("memory_pipeline.domain.ranking", set()),
        ("memory_pipeline.models.selection", set()),
        ("memory_pipeline.cli", set()),
        ("memory_pipeline.writer", {"fsspec", "pyarrow", "numpy"}),
        ("memory_pipeline.tools", {"fsspec", "pyarrow", "numpy", "lancedb", "deltalake"}),
        ("memory_pipeline.reader", {"fsspec", "pyarrow", "numpy", "lancedb", "deltalake"}),
    ],
)
def test_a_module_brings_along_only_what_it_may(module: str, allowed: set[str]) -> None:
    assert imported_by(module) <= allowed


def test_a_search_needs_neither_dagster_nor_polars(root: str) -> None:
    code = (
        "import sys; from memory_pipeline.writer import MemoryWriter; from memory_pipeline.reader import MemoryReader; "
        f"writer = MemoryWriter.open({root!r}, workspace_id='w', agent_id='a'); "
        "writer.write({'conversation_id': 'c', 'messages': "
        "[{'role': 'user', 'content': 'I moved to Porto.', 'timestamp': '2024-01-15T08:00:00Z'}]}); "
        f"reader = MemoryReader.open({root!r}, workspace_id='w', agent_id='a'); "
        "assert len(reader.search_memory('working', 0, 36525, 10, 'Porto')) == 1; "
        "assert not {'dagster', 'polars', 'litellm', 'duckdb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
