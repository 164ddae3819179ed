"""Convert records to table rows and back.

A column maps to the attribute of the same name; lists come back as tuples. Only exceptions are declared: computed
columns, columns that the caller supplies, and attributes with another name or form. Creating a codec fails if a column
or a field of the record is unaccounted for.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.identity import digest
from memory_pipeline.domain.scopes import SCOPE_COLUMNS, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from memory_pipeline.lake.schema_types import TableSpec

R = TypeVar("R")
#: Below this many rows, lists are faster to convert one by one.
_FEW = 30


@dataclass(frozen=True)
class Attribute:
    """An attribute of a record that is not the value of the column of its name.

    `make` builds it from the values of `columns` (lists as tuples, structs as tuples of their fields); by default it is
    the value itself.
    """

    columns: tuple[str, ...]
    make: Callable[..., Any] | None = None

    def of(self, row: Mapping[str, Any]) -> Any:
        """Return the attribute of one row, a mapping as Arrow returns it."""
        if self.make is None:
            return _frozen(row[self.columns[0]])
        return self.make(*[_frozen(row[name]) for name in self.columns])


#: Cached: many rows share an agent, and creating a scope validates it.
scope_of = lru_cache(maxsize=4_096)(Scope)
SCOPE = Attribute(SCOPE_COLUMNS, scope_of)
#: The attribute of a scope by column.
SCOPE_ATTRIBUTES = dict(zip(SCOPE_COLUMNS, ("workspace_id", "agent_id", "identity", "key"), strict=True))
_OF_SCOPE = {name: attrgetter(attribute) for name, attribute in SCOPE_ATTRIBUTES.items()}
_OF_RECORD = {name: attrgetter(f"scope.{attribute}") for name, attribute in SCOPE_ATTRIBUTES.items()}


def scopes_of(rows: pa.Table) -> list[Scope]:
    """Return the scope of each row."""
    return list(map(scope_of, *(rows[name].to_pylist() for name in SCOPE_COLUMNS)))


def scope_columns(scopes: Sequence[Scope]) -> dict[str, list[str]]:
    """Return the columns of rows of `scopes`, one for each row."""
    return {name: list(map(read, scopes)) for name, read in _OF_SCOPE.items()}


class Codec(Generic[R]):
    """Converts records of one class to rows of a table, and back.

    Args:
        spec: the table.
        record: the dataclass.
        columns: functions that compute the columns that are not attributes of a record.
        given: columns that the caller of :meth:`to_rows` supplies; a nullable one defaults to null.
        attributes: attributes that are not the value of a column, by name; a function converts the value of the column
            of that name. An attribute whose type is an enumeration needs none.
        unstored: the last fields of a record, which have no column; they come back as their defaults.
    """

    def __init__(
        self,
        spec: TableSpec,
        record: type[R],
        *,
        columns: Mapping[str, Callable[[R], object]] | None = None,
        given: Collection[str] = (),
        attributes: Mapping[str, Attribute | Callable[[Any], object]] | None = None,
        unstored: Collection[str] = (),
    ) -> None:
        names = [one.name for one in fields(record) if one.name not in unstored]  # type: ignore[arg-type]  # a dataclass
        self.spec, self._record, self._given = spec, record, frozenset(given)
        known: dict[str, Any] = {**_OF_RECORD} if "scope" in names else {}
        known = {name: attrgetter(name) for name in names if name in spec.schema.names} | known | dict(columns or {})
        self._columns = {name: known[name] for name in spec.schema.names if name in known and name not in self._given}
        forms = {"scope": SCOPE, **_enumerations(record), **(attributes or {})}
        self._attributes = {
            name: form if isinstance(form, Attribute) else Attribute((name,), form)
            for name in names
            for form in [forms.get(name)]
        }
        self._check(unstored)
        # Split once: for a single row, that is faster than asking each attribute.
        listed = list(self._attributes.values())
        self._firsts = [one.columns[0] for one in listed]
        is_plain = [one.make is None and not _is_list(spec.schema.field(one.columns[0]).type) for one in listed]
        self._others = [(place, one) for place, one in enumerate(listed) if not is_plain[place]]

    def _check(self, unstored: Collection[str]) -> None:
        columns = set(self.spec.schema.names)
        unknown = columns - self._columns.keys() - self._given
        unknown |= {name for one in self._attributes.values() for name in one.columns} - columns
        last = fields(self._record)[len(self._attributes) :]  # type: ignore[arg-type]  # a dataclass
        unknown |= {one.name for one in last if one.name not in unstored or one.default is MISSING}
        if unknown:
            raise TypeError(
                f"table {self.spec.name} and {self._record.__name__} do not fit: {', '.join(sorted(unknown))}"
            )

    def to_rows(self, records: Sequence[R], **given: Any) -> pa.Table:
        """Return records as rows, in their order.

        `given` are the columns that records do not hold: a sequence, an array, or one value for all rows.
        """
        columns = []
        for field in self.spec.schema:
            if field.name in self._columns:
                column = to_column(list(map(self._columns[field.name], records)), field.type)
            elif field.name not in given and not field.nullable:
                raise TypeError(f"table {self.spec.name} needs {field.name}")
            else:
                value = given.get(field.name)
                if value is None:
                    column = pa.nulls(len(records), field.type)
                elif isinstance(value, list | pa.Array | pa.ChunkedArray):
                    column = value
                else:
                    column = pa.repeat(pa.scalar(value, field.type), len(records))
            columns.append(column)
        return pa.table(columns, schema=self.spec.schema)

    def to_records(self, rows: pa.Table) -> list[R]:
        """Return rows as records, in their order. Rows are not validated again."""
        by_name = {
            name: to_values(rows[name]) for name in {n for one in self._attributes.values() for n in one.columns}
        }
        columns = []
        for one in self._attributes.values():
            values = [by_name[name] for name in one.columns]
            columns.append(values[0] if one.make is None else list(map(one.make, *values)))
        return [self._record(*values) for values in zip(*columns, strict=True)]

    def to_row(self, record: R) -> dict[str, Any]:
        """Return a record as one row, without the columns that the caller supplies."""
        return {name: read(record) for name, read in self._columns.items()}

    def to_record(self, row: Mapping[str, Any], check: Callable[[pa.Field, object], object] | None = None) -> R:
        """Return one row, a mapping with at least the columns of the record, as a record.

        `check` validates each value that is used unchanged, with its column. Without it, values are trusted and none
        may be missing.
        """
        if check is None:
            values = [row[name] for name in self._firsts]
            for place, one in self._others:
                values[place] = one.of(row)
            return self._record(*values)
        return self._record(
            *[
                one.make(*map(row.get, one.columns))
                if one.make is not None
                else check(self.spec.schema.field(one.columns[0]), row.get(one.columns[0]))
                for one in self._attributes.values()
            ]
        )


def _enumerations(record: type[object]) -> dict[str, type[StrEnum]]:
    """Return the enumerations that fields of a dataclass have as types, by the names of the fields."""
    found = {}
    for field in fields(record):  # type: ignore[arg-type]  # a dataclass
        kind = getattr(sys.modules[record.__module__], str(field.type), None)
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            found[field.name] = kind
    return found


def to_column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as a column; lists of records become lists of structs."""
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        return pa.array(values, kind)
    flat = [one for own in values for one in own]
    parts = [to_column([getattr(one, part.name) for one in flat], part.type) for part in kind.value_type]
    offsets = pa.array(np.cumsum([0, *map(len, values)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(parts, fields=list(kind.value_type)), type=kind)


def to_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return a column's values: lists as tuples, a missing list as an empty tuple, structs as tuples of their fields.

    Several times faster than to_pylist(), which builds a list for each list and a mapping for each struct.
    """
    if pa.types.is_struct(column.type):
        return list(zip(*(to_values(pc.struct_field(column, part.name)) for part in column.type), strict=True))
    if not _is_list(column.type):
        values: list[Any] = column.to_pylist()
        return values
    if len(column) < _FEW:
        return [() if value is None else _frozen(value) for value in column.to_pylist()]
    flat = to_values(pc.list_flatten(column))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return [tuple(flat[start:end]) for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def ids_digest(ids: Sequence[str]) -> str:
    """Return a digest of distinct ids that does not depend on their order.

    Ids end in hashes, so summing these as four 64-bit numbers is enough. Sorting a million ids would take a second.
    """
    width = 32
    whole = np.frombuffer("".join(own[-width:] for own in ids).encode(), np.uint64).reshape(-1, width // 8)
    return digest(len(ids), whole.sum(axis=0, dtype=np.uint64).tolist())


def fold_state(method: str, sources: Sequence[str], rows: Sequence[str]) -> str:
    """Return what the stored rows of a scope were folded from, and how: the method, the sources, and the rows.

    `sources` and `rows` are ids or digests. The rows are up to date if this is the stored state, whatever was
    interrupted or concurrent.
    """
    return " ".join([*([method] if method else []), ids_digest(sources), ids_digest(rows)])


def states_in(schema: pa.Schema, scopes: Sequence[Scope], columns: Mapping[str, object]) -> pa.Table:
    """Return the states of folds as rows of a projection, with null in all other columns than `columns`."""
    given: dict[str, Any] = {**scope_columns(scopes), **columns}
    schema = pa.schema([field.with_nullable(True) for field in schema])
    return pa.table(
        [
            pa.array(given[field.name], field.type) if field.name in given else pa.nulls(len(scopes), field.type)
            for field in schema
        ],
        schema=schema,
    )


def with_digest(rows: pa.Table) -> pa.Table:
    """Return rows of a projection with ``digest`` set to a digest of their other columns.

    The vector is left out, and what tables of earlier versions lack: ``ordered_at``, which the id of an event covers,
    and ``origin``, which follows from the evidence.
    """
    names = [name for name in rows.column_names if name not in ("digest", "vector", "ordered_at", "origin")]
    parts = [_sized(_as_text(rows[name])) for name in names]
    whole = pc.binary_join_element_wise(*parts, "") if rows.num_rows else pa.chunked_array([], pa.string())
    digests = [blake2b(text.encode(), digest_size=16).hexdigest() for text in whole.to_pylist()]
    place = rows.schema.get_field_index("digest")
    return rows.set_column(place, rows.schema.field(place), pa.array(digests, pa.string()))


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _is_list(column.type):
        values = _sized(_as_text(pa.chunked_array([pc.list_flatten(column)])))
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
        offsets = pa.array(np.cumsum([0, *lengths]), pa.int32())
        listed = pa.ListArray.from_arrays(offsets, values.combine_chunks().cast(pa.string()), mask=_nulls(column))
        return pa.chunked_array([pc.binary_join(listed, "")])
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def _nulls(column: pa.ChunkedArray) -> pa.Array:
    return pa.array(column.is_null().to_numpy(), pa.bool_())


def _sized(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Prefix each text with its length, so that joined texts are unambiguous. Null differs from an empty text."""
    lengths = pc.utf8_length(texts).cast(pa.string())
    return pc.fill_null(pc.binary_join_element_wise(lengths, texts, ":"), "-")


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return tuple(map(_frozen, value))
    return tuple(map(_frozen, value.values())) if kind is dict else value
