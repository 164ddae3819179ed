"""Damage files of lakes like a full disk, a power cut or an accident would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.schema_types import TableSpec

KINDS = ("cut", "empty", "missing")


def damage(path: Path, kind: str) -> None:
    """Cut a file in half, empty it or delete it."""
    if kind == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if kind == "cut" else b"")


def file_of(lake: Lake, spec: TableSpec, key: str | None = None, **fixed: str) -> Path:
    """Return the file that holds a partition, or the first partition."""
    if not spec.partition_by:
        return newest_file(lake, spec)
    [path] = lake.tables.state(spec, [key or min(lake.tables.keys(spec, **fixed))], shard=None, **fixed)
    return Path(lake.storage.uri, "tables", spec.name, path)


def newest_file(lake: Lake, spec: TableSpec) -> Path:
    """Return the newest file with rows of a projection."""
    folders = [f"{name}.lance" for name in lake.projections[spec.name].roster.tables()]
    files = [path for folder in folders for path in Path(lake.storage.uri, "projections", folder, "data").glob("*")]
    return max(files, key=lambda path: path.stat().st_mtime_ns)
