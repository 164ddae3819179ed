"""Lines of code of the product by package: ``make size``. Fails above the limit in pyproject.toml.

A line of code holds a token that is neither a comment nor part of a docstring. Blank lines do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ROOT / "memory_pipeline"
_NO_CODE = frozenset({
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
})  # fmt: skip


def lines_of_code(source: str) -> int:
    """Return the number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def main() -> int:
    """Print the lines of each package; return 1 if there are more than the limit."""
    sizes: Counter[str] = Counter()
    for path in sorted(PRODUCT.rglob("*.py")):
        package = path.relative_to(PRODUCT).parts[0].removesuffix(".py")
        sizes[package] += lines_of_code(path.read_text("utf-8"))
    for package, lines in sizes.most_common():
        print(f"{lines:7,}  {package}")
    total = sizes.total()
    limit = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["memory_pipeline"]["lines_of_code"]
    print(f"{total:7,}  in all; the limit is {limit:,}")
    if total > limit:
        print(
            f"{total - limit:,} lines too many: delete what the change makes unnecessary, or raise lines_of_code in "
            "pyproject.toml and say why in the commit",
            file=sys.stderr,
        )
    return int(total > limit)


if __name__ == "__main__":
    sys.exit(main())
