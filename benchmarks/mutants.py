"""How many small faults the tests notice: a seeded list of mutants, and the share of them that some test fails on.

A mutant is a copy of the product with one change: a comparison, a constant, a sign, a condition, a returned value or a
call that is left out. ``python -m benchmarks.mutants`` makes 200 mutants of ``domain`` and runs the tests of ``domain``
on each. With ``--outside``, it makes 200 of all other packages and runs the tests of the mutated module, then those of
its package. A mutant on which they take longer than ``--seconds`` is killed, too: it usually loops::

    python -m benchmarks.mutants --count 50 --seed 3 --json mutants.json

The list depends on the seed and on the code. Compare the share before and after a change of the tests. Survivors are
printed; some are equal to the original, which no test can notice.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PRODUCT, TESTS = "memory_pipeline", "memory_pipeline_tests"
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "+"),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one place in a module, whose path is relative to the project. Offsets are in bytes."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before!r} → {self.after!r}"

    def applied(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> Iterator[Mutant]:
    """Yield all mutants of a module, in the order of its code. Annotations and texts are left as they are."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def change(node: ast.AST, start: int, end: int, after: str) -> Mutant:
        return Mutant(path, getattr(node, "lineno", 0), start, end, source[start:end].decode(), after)

    def begin(node: ast.expr | ast.stmt) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def finish(node: ast.expr | ast.stmt) -> int:
        return starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)

    for node in _code(ast.parse(source)):
        for left, old, new, right in _swapped(node):
            if (place := source.find(old.encode(), finish(left), begin(right))) >= 0:
                yield change(node, place, place + len(old), new)
        match node:
            case ast.UnaryOp(op=ast.Not()):
                yield change(node, begin(node), begin(node.operand), "")
            case ast.Constant(value=bool(value)):
                yield change(node, begin(node), finish(node), str(not value))
            case ast.Constant(value=int(number) | float(number)):
                yield change(node, begin(node), finish(node), str(number + 1))
            case ast.If() | ast.IfExp() | ast.While():
                yield change(node, begin(node.test), finish(node.test), f"(not ({ast.unparse(node.test)}))")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield change(node, begin(value), finish(value), "None")
            case ast.Expr(value=ast.Call()):
                yield change(node, begin(node), finish(node), "...")


def _swapped(node: ast.AST) -> list[tuple[ast.expr, str, str, ast.expr]]:
    """Return the operators of a node with what to write instead, each between its operands."""
    match node:
        case ast.Compare():
            pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
            return [(left, *_COMPARISONS[type(operator)], right) for left, operator, right in pairs]
        case ast.BoolOp():
            old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            return [(node.values[0], old, new, node.values[1])]
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return [(node.left, *_OPERATORS[type(node.op)], node.right)]
    return []


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without annotations and what only type checkers read."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield child
            yield from _code(child)


def chosen(count: int, seed: int, *, outside: bool) -> list[Mutant]:
    """Return a seeded choice of mutants of ``domain``, or of all other packages."""
    found: list[Mutant] = []
    for path in sorted((ROOT / PRODUCT).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(f"{PRODUCT}/domain/") != outside:
            found += mutants_of(name, path.read_bytes())
    return sorted(random.Random(seed).sample(found, min(count, len(found))), key=str)


def tests_of(path: str) -> list[str]:
    """Return the tests to run on a mutant of a module: those that mirror it, then those of its package."""
    parts = Path(path).with_suffix("").parts[1:]
    mirrored = [
        Path(TESTS, *parts[:-1], f"test_{parts[-1]}.py"),
        Path(TESTS, f"test_{parts[0]}.py"),
        Path(TESTS, parts[0]),
    ]
    existing = [one.as_posix() for one in mirrored if (ROOT / one).exists()]
    return existing or [f"{TESTS}/client"]


def _is_killed(mutant: Mutant, folder: Path, seconds: float) -> bool:
    """Return whether a test fails on a mutant. `folder` is a copy of the project, and is again afterwards."""
    module = folder / mutant.path
    source = module.read_bytes()
    module.write_bytes(mutant.applied(source))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        tests = subprocess.run(
            [*command, *tests_of(mutant.path)],
            cwd=folder, env=environment, timeout=seconds, capture_output=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    finally:
        module.write_bytes(source)
    return tests.returncode != 0


def main() -> None:
    """Print the survivors, and the share of killed mutants."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--outside", action="store_true", help="mutants of all packages but domain")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once; each has a copy of the project")
    parser.add_argument("--seconds", type=float, default=600, help="time limit of the tests of a mutant")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write each mutant and whether it was killed")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    arguments = parser.parse_args()
    mutants = chosen(arguments.count, arguments.seed, outside=arguments.outside)
    if arguments.list:
        print(*mutants, sep="\n")
        return
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder, str(number)) for number in range(arguments.jobs)]
        for copy in copies:
            for name in filter(None, files.split("\0")):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, copy / name)

        def judged(mutant: Mutant) -> tuple[Mutant, bool]:
            copy = copies.pop()
            try:
                return mutant, _is_killed(mutant, copy, arguments.seconds)
            finally:
                copies.append(copy)

        results = []
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for number, result in enumerate(pool.map(judged, mutants), start=1):
                results.append(result)
                progress(f"{number} of {len(mutants)}: {'killed' if result[1] else 'SURVIVED'} {result[0]}")
    survivors = [mutant for mutant, is_killed in results if not is_killed]
    print(*survivors, sep="\n")
    print(f"{len(results) - len(survivors)} of {len(results)} mutants were killed")
    if arguments.json:
        records = [asdict(mutant) | {"is_killed": is_killed} for mutant, is_killed in results]
        arguments.json.write_text(json.dumps(records, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
