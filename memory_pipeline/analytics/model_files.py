"""Parse the header of a SQL file in ``dbt_like_sql``: the comment block at its top.

::

    -- Size of each agent's memory at each grain.          description, in sentences
    -- Row: one agent and grain.                           meaning of a row
    -- Owner: team:memory                                  a team, or an e-mail address
    -- Incremental: month                                  marts: the column whose values are rebuilt separately
    -- Columns:                                            the columns of the result, in order
    --   agent_id - Agent.
    -- Checks: daily_summaries                             tests: the asset under test
    -- Severity: error                                     tests: error or warning

A line without one of these names continues the entry above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The folders of models, in build order.
FOLDERS = ("staging", "marts", "tests")
SEVERITIES = ("error", "warning")
_FIELDS = {
    "staging": {"Row", "Owner", "Columns"},
    "marts": {"Row", "Owner", "Columns", "Incremental"},
    "tests": {"Row", "Owner", "Checks", "Severity"},
}
_REQUIRED = {
    "staging": (),
    "marts": ("Row", "Owner", "Columns"),
    "tests": ("Row", "Owner", "Checks", "Severity"),
}
_FIELD = re.compile(r"([A-Z][a-z]+):(?:\s+(.*))?$")
_COLUMN = re.compile(r"([a-z_][a-z0-9_]*) - (\S.*)$")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OWNER = re.compile(r"team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True, slots=True)
class Model:
    """One SQL file: a SELECT and its header.

    Attributes:
        sql: the whole file.
        row: meaning of a row.
        owner: ``team:NAME`` or an e-mail address.
        columns: description of each column, in order; required for marts.
        incremental: the column of months; each month of the mart is rebuilt separately.
        asset, severity: for a test: the asset under test, and error or warning.
    """

    folder: str
    name: str
    description: str
    sql: str
    row: str = ""
    owner: str = "team:memory"
    columns: Mapping[str, str] = field(default_factory=dict)
    incremental: str | None = None
    asset: str | None = None
    severity: str | None = None

    @property
    def file(self) -> str:
        """The path relative to ``dbt_like_sql``."""
        return f"{self.folder}/{self.name}.sql"


def read_model(folder: str, path: Path) -> Model:
    """Read a SQL file.

    Raises:
        InputError: the header is invalid; the message names the file and line.
    """
    file = f"{folder}/{path.name}"
    if not _NAME.fullmatch(path.stem):
        raise InputError(f"{file}: expected a name of lowercase letters, digits and _ that begins with a letter")
    sql = path.read_text(encoding="utf-8")
    entries: dict[str, str] = {}
    lines: dict[str, int] = {}
    columns: dict[str, str] = {}
    for line, name, text in _parts(file, sql):
        if name in entries:
            raise InputError(f"{file}:{line}: {name} is given twice")
        if name not in {"", *_FIELDS[folder]}:
            known = ", ".join(sorted(_FIELDS[folder]))
            raise InputError(f"{file}:{line}: {shown(name)} is not accepted in {folder}; accepted: {known}")
        entries[name], lines[name] = " ".join(text), line
        if name == "Columns":
            columns = _columns(file, line, text)
        elif name and not entries[name]:
            raise InputError(f"{file}:{line}: {name} is empty")
        _check(file, line, name, entries[name])
    if "Incremental" in entries and columns and entries["Incremental"] not in columns:
        raise InputError(
            f"{file}:{lines['Incremental']}: Incremental {shown(entries['Incremental'])} is not a column; columns: "
            f"{', '.join(columns)}"
        )
    if not entries.get(""):
        raise InputError(f"{file}:1: the description is missing; expected a comment")
    if missing := [name for name in _REQUIRED[folder] if name not in entries]:
        raise InputError(f"{file}:1: the header lacks {', '.join(missing)}; see dbt_like_sql/README.md")
    return Model(
        folder=folder,
        name=path.stem,
        description=entries[""],
        sql=sql,
        row=entries.get("Row", ""),
        owner=entries.get("Owner", "team:memory"),
        columns=columns,
        incremental=entries.get("Incremental"),
        asset=entries.get("Checks"),
        severity=entries.get("Severity"),
    )


def _check(file: str, line: int, name: str, text: str) -> None:
    expected = None
    if name == "Owner" and not _OWNER.fullmatch(text):
        expected = "team:NAME or an e-mail address"
    elif name == "Severity" and text not in SEVERITIES:
        expected = " or ".join(SEVERITIES)
    elif name in {"Checks", "Incremental"} and not _NAME.fullmatch(text):
        expected = "the name of an asset" if name == "Checks" else "the name of a column"
    if expected:
        raise InputError(f"{file}:{line}: {name} {shown(text)} is not accepted; expected {expected}")


def _parts(file: str, sql: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the entries of the header: line number, name ("" for the description), and lines of text."""
    start, name, text = 1, "", list[str]()
    for number, line in enumerate(sql.splitlines(), start=1):
        if not line.startswith("--"):
            break
        content = line.removeprefix("--").strip()
        if match := _FIELD.match(content):
            yield start, name, text
            start, name, text = number, match[1], [match[2]] if match[2] else []
        elif content:
            text.append(content)
    else:
        raise InputError(f"{file}: expected a SELECT below the header")
    yield start, name, text


def _columns(file: str, start: int, lines: list[str]) -> dict[str, str]:
    columns: dict[str, str] = {}
    last = ""
    for number, line in enumerate(lines, start=start + 1):
        if match := _COLUMN.match(line):
            last = match[1]
            if last in columns:
                raise InputError(f"{file}:{number}: column {last} is described twice")
            columns[last] = match[2]
        elif last:
            columns[last] += f" {line}"
        else:
            raise InputError(f"{file}:{number}: {shown(line)} is not accepted; expected `name - description`")
    return columns
