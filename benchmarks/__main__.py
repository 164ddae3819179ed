"""The command: ``python -m benchmarks [--quick] [--json] [NAME…] [--locomo FILE…]``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import progress

if TYPE_CHECKING:
    from benchmarks.measure import Table

NAMES = (
    "everyday",
    "ingest",
    "backfill",
    "search",
    "chat",
    "sessions",
    "service",
    "retrieval",
    "graph",
    "peers",
    "size",
    "install",
    "models",
    "tokens",
    "survival",
    "retention",
    "housekeeping",
    "marts",
    "ticks",
    "consolidation",
    "scale",
    "load",
)
_LIBRARIES = ("dagster", "deltalake", "lancedb", "litellm", "numpy", "pyarrow")


def main() -> None:
    """Run the named benchmarks, or all, and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed, size and what survives.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which to run: {', '.join(NAMES)}; all by default")
    parser.add_argument("--quick", action="store_true", help="smaller data: minutes instead of an hour")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--locomo",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="labelled files, whose answers survival seeks",
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        default=[],
        metavar="NAME=FILE,…",
        help="labelled sets for retrieval: LoCoMo's .json, or .jsonl as `memory-pipeline eval jsonl` takes it; "
        "NAME=FOLDER is one set, FOLDER alone a set for each file",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a workspaces.yaml for retrieval: other models")
    parser.add_argument("--prompts", action="store_true", help="retrieval also measures what goes into prompts")
    parser.add_argument("--fit", action="store_true", help="retrieval also fits the weights, leaving one set out")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in NAMES]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")

    os.environ.pop("DAGSTER_HOME", None)  # runs are counted and timed on a separate instance
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of each partition that it leaves out of an index
    tables: list[Table] = []
    # Labelled sets are not part of the project.
    for name in arguments.names or [name for name in NAMES if name != "retrieval" or arguments.sets]:
        progress(name)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="memory-benchmark-", ignore_cleanup_errors=True) as folder:
            options = _options(name, arguments)
            benchmark = importlib.import_module(f"benchmarks.{name}")
            found: list[Table] = benchmark.run(Path(folder), quick=arguments.quick, **options)
        progress(f"{name} took {time.perf_counter() - started:.0f} s")
        tables += found
        if not arguments.json:
            print("\n".join(line for table in found for line in table.lines()), flush=True)
    facts = _machine() | {"quick": arguments.quick}
    if arguments.json:
        json.dump({"machine": facts, "tables": [asdict(table) for table in tables]}, sys.stdout, indent=1)
        print()
    else:
        print("\n" + ", ".join(f"{name} {value}" for name, value in facts.items()))


def _options(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    if name == "survival":
        return {"files": arguments.locomo}
    if name == "retrieval":
        return {
            "sets": arguments.sets,
            "configuration": arguments.config,
            "prompts": arguments.prompts,
            "fit": arguments.fit,
        }
    return {}


def _machine() -> dict[str, str | int | bool]:
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        **{name: version(name) for name in _LIBRARIES},
    }


if __name__ == "__main__":
    main()
