"""The size of an installation and the time of its first import, beside mem0, LangMem and LanceDB.

Each library is installed into a new environment by uv, with its bytecode. Size is that of `site-packages`, packages
are those that uv lists. An import is a new process: its CPU time less that of an empty one, the median of five
(``--quick``: one). Needs access to a package index; this package is installed from the checkout.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Table, progress

if TYPE_CHECKING:
    from benchmarks.measure import Cell

_CHECKOUT = Path(__file__).parents[1]
#: The packages to install, each with the imports to measure.
_INSTALLED = {
    str(_CHECKOUT): ("from memory_pipeline import Memory", "from memory_pipeline.reader import MemoryReader"),
    f"{_CHECKOUT}[run]": ("from memory_pipeline import Memory",),
    f"{_CHECKOUT}[models]": ("from memory_pipeline import Memory",),
    f"{_CHECKOUT}[pipeline]": ("import memory_pipeline.definitions",),
    "lancedb": ("import lancedb",),
    "mem0ai": ("from mem0 import Memory",),
    "langmem": ("from langmem import create_memory_manager",),
}


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Install into environments below `folder`, and measure."""
    uv = str(Path(sys.executable).with_name("uv"))
    table = Table("Installation", "a new environment, with bytecode; CPU seconds of the first import, less Python's")
    for number, (what, statements) in enumerate(_INSTALLED.items()):
        name = what.replace(str(_CHECKOUT), "memory-pipeline")
        progress(f"installing {name}")
        place = folder / str(number)
        python = str(place / "bin" / "python")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(place)], check=True)
        command = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, what]
        subprocess.run(command, check=True)
        listed = subprocess.run([uv, "pip", "list", "--python", python], check=True, capture_output=True, text=True)
        size: dict[str, Cell] = {"packages": len(listed.stdout.splitlines()) - 2, "MiB": _mebibytes(place)}
        for statement in statements:
            seconds = _cpu_seconds(python, statement, 1 if quick else 5)
            table.rows.append({"installed": name, **size, "statement": statement, "CPU s": seconds})
    return [table]


def _mebibytes(place: Path) -> Cell:
    return round(sum(path.lstat().st_size for path in place.rglob("*") if path.is_file()) / 2**20)


def _cpu_seconds(python: str, statement: str, times: int) -> Cell:
    def once(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once(statement)  # files come into the page cache
    taken = [once(statement) - once("pass") for _ in range(times)]
    return round(statistics.median(taken), 2)
