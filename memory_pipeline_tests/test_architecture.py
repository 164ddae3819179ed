"""Import rules that import-linter cannot check: the libraries that importing a module loads."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

import memory_pipeline
from memory_pipeline import Memory

HEAVY = {
    "alembic", "dagster", "deltalake", "duckdb", "fsspec", "lancedb", "litellm", "numpy", "polars", "pyarrow", "rich",
    "s3fs", "sqlalchemy",
}  # fmt: skip


#: What each module may bring along when it is imported; those that may bring more come later.
ALLOWED: list[tuple[str, set[str]]] = [
    ("memory_pipeline", set()),
    ("memory_pipeline.errors", set()),
    ("memory_pipeline.settings", set()),
    ("memory_pipeline.domain.periods", set()),
    ("memory_pipeline.domain.text.ranking", set()),
    ("memory_pipeline.models.factory", set()),
    ("memory_pipeline.cli", set()),
    ("memory_pipeline.writer", {"pyarrow", "numpy"}),
    ("memory_pipeline.tools", {"pyarrow", "numpy"}),
    ("memory_pipeline.reader", {"pyarrow", "numpy"}),
    ("memory_pipeline.client.memory", {"pyarrow", "numpy"}),
]
_IMPORTING = """
import importlib, json, sys

for module in sys.argv[2:]:
    importlib.import_module(module)
    print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))

from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter

writer = MemoryWriter.open(sys.argv[1], workspace_id='w', agent_id='a')
said = {'role': 'user', 'content': 'I moved to Porto.', 'timestamp': '2024-01-15T08:00:00Z'}
writer.write({'conversation_id': 'c', 'messages': [said]})
reader = MemoryReader.open(sys.argv[1], workspace_id='w', agent_id='a')
assert len(reader.search_memory('working', 0, 36525, 10, 'Porto')) == 1
print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))
"""


def test_modules_and_a_search_import_only_allowed_libraries(root: str) -> None:
    """One fresh interpreter imports one after the other, writes, and searches; what it has is never less."""
    modules = [module for module, _ in ALLOWED]
    result = subprocess.run(
        [sys.executable, "-c", _IMPORTING, root, *modules], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    *imported, after_search = [HEAVY & set(json.loads(line)) for line in result.stdout.splitlines()]
    for (module, allowed), found in zip(ALLOWED, imported, strict=True):
        assert found <= allowed, module
    assert not {"dagster", "polars", "litellm", "duckdb", "sqlalchemy", "alembic"} & after_search


_RUNNING = """
import sys
from memory_pipeline.cli import main

sys.argv[1:] = ["run", "--root", sys.argv[1]]
try:
    main()
finally:
    print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_run_with_nothing_new_imports_no_library_of_a_run(root: str) -> None:
    Memory(root, user_id="u").add("I moved to Porto.", now=datetime(2024, 1, 15, tzinfo=UTC))
    outputs = [
        subprocess.run([sys.executable, "-c", _RUNNING, root], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    heavy = {"polars", "lancedb", "duckdb", "sqlglot"}
    # The second run notes that the tables of projections, which the first one made, can be opened.
    assert {"polars", "lancedb", "duckdb"} <= {*outputs[0].splitlines()[-1].split()}
    assert not heavy & {*outputs[2].splitlines()[-1].split()}


def test_there_are_no_import_cycles() -> None:
    graph = grimp.build_graph("memory_pipeline", cache_dir=None)
    TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    ).prepare()  # raises CycleError


def test_no_class_name_has_two_meanings() -> None:
    modules = [ast.parse(path.read_text("utf-8")) for path in Path(memory_pipeline.__path__[0]).rglob("*.py")]
    names = Counter(node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
