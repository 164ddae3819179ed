"""The columns of tables and indexes, as the Dagster UI shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import dagster as dg
import pyarrow as pa

from memory_pipeline.lake.index.index_rows import index_schema
from memory_pipeline.lake.schema_types import TableSpec
from memory_pipeline.lake.schemas import FACTS, SUMMARIES

#: What the columns of an index hold where they do not come from the table under the same name.
_OF_INDEX = {
    "id": "Id of the row, as in the table.",
    "period": "The period's name, as in the table.",
    "kind": "A fact's kind, or summary.",
    "content": "The fact, beginning with its speaker, or the summary.",
    "terms": "Words that it is found by, with its speaker's and its date's.",
    "starts_at": "When a fact was said; when a summary's period begins.",
    "ends_at": "When a fact was said; when a summary's period ends.",
    "importance": "0 to 1: how much is lost if it is forgotten.",
    "source_ids": "What it rests on: messages of a fact, facts or finer summaries of a summary.",
    "digest": "Changes whenever anything about it changes.",
    "vector": "Embedding of the content; unit length; none where the embedder failed.",
}
#: Names that Arrow gives to the items of lists.
_ITEM = re.compile(r"\b(item|element): ")
#: The dimension is the embedder's, which is not known before a run.
_SIZE = re.compile(r"fixed_size_list<(.*)>\[\d+\]")


def table_columns(spec: TableSpec) -> Mapping[str, dg.TableSchema]:
    """Return the metadata that tells the columns of a table of the lake."""
    return _metadata(_column(field, field.metadata[b"comment"].decode(), field.nullable) for field in spec.schema)


def index_columns() -> Mapping[str, dg.TableSchema]:
    """Return the metadata that tells the columns of an index table, the same for all grains."""
    comments = {field.name: field.metadata[b"comment"].decode() for spec in (SUMMARIES, FACTS) for field in spec.schema}
    comments |= _OF_INDEX
    return _metadata(
        _column(field, comments[field.name], nullable=field.name not in {"id", "period", "kind", "content", "digest"})
        for field in index_schema(1)
    )


def _metadata(columns: Iterable[dg.TableColumn]) -> Mapping[str, dg.TableSchema]:
    return {"dagster/column_schema": dg.TableSchema(columns=list(columns))}


def _column(field: pa.Field, comment: str, nullable: bool) -> dg.TableColumn:
    # In the schemas a question mark says that a column may be null; here Dagster says it.
    told = comment.removesuffix("?")
    description = told if told.endswith((".", "…")) else f"{told}."
    return dg.TableColumn(
        field.name, _type(field.type), description, constraints=dg.TableColumnConstraints(nullable=nullable)
    )


def _type(kind: pa.DataType) -> str:
    """Name a type as people do: the fields of a structure are told by the column's description."""
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return f"list<{', '.join(field.name for field in kind.value_type)}>"
    return _ITEM.sub("", _SIZE.sub(r"list<\1>", str(kind)))
