"""Match a subject in file names, raw bytes, texts, changes of memories, and rows.

An agent is matched by its id in columns, keys and file names, never as a word in text: another agent may well speak of
"support". A conversation is matched by its id within its agent's data. A person is matched as whole words in any text,
by the same rule as forgotten messages. Removed rows are matched anywhere, by their ids and by digests of their texts.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from memory_pipeline.domain.scopes import Scope, user_identity
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.domain.text.words import Mentions
from memory_pipeline.domain.unread import ids_in
from memory_pipeline.erasure.changes import texts_in, texts_of
from memory_pipeline.erasure.report import LEAST_CHARACTERS, content_mark
from memory_pipeline.lake.collections.collection import COLLECTIONS
from memory_pipeline.lake.layout import key_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memory_pipeline.domain.subjects import Subject


#: Columns and keys that never name a person: ids set by the deployment, and words of this package and of Delta's log.
_NO_PERSONS = frozenset(
    """
    workspace_id agent_id identity owner user_id users id key bucket asset grain period kind role verb model
    prompt_version embed_model extraction_method summary_method code_version fallback purpose outcome path predicate
    partitionBy partitionValues partition_by engineInfo engine operation schemaString access to_agent to_team by_agent
    level
    """.split()
)
#: Holds column names in Delta's log and checkpoints.
_SCHEMA = "schemaString"
_CHANGES = "changes"
#: Columns and keys with the time of a record; the first one present counts.
_TIMES = (
    "sent_at",
    "event_at",
    "period_start",
    "starts_at",
    "updated_at",
    "timestamp",
    "called_at",
    "first_mentioned_at",
)
_ENDS = ("period_end", "ends_at")
_PENDING = re.compile(r"journal/pending/(?P<folder>[^/]*)/")
_HEX = re.compile(r"[0-9a-f]{32}")
_DATED = re.compile(r"(\d{4}-\d\d-\d\d) ")
#: Shorter names occur in binary data by chance. In printable runs a lower limit is safe.
LEAST_BYTES, _LEAST_LETTERS = 6, 4
_PRINTABLE = re.compile(rb"[\t\x20-\x7e]{8,}")

Whose = tuple[str | None, str | None]
#: The owner of rows in files that belong to no single agent.
ANYBODY: Whose = (None, None)


class PersonMentions(Mentions):
    """Finds a person's names in texts, and the user's entity. Names shorter than `least` are left out."""

    def __init__(self, subject: Subject, least: int = 0) -> None:
        super().__init__(name for name in subject.names if len(name) >= least)
        self._subject = subject

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._subject.user_ids)

    def mentioned_in(self, text: str) -> bool:
        """Return whether a text mentions the person."""
        return super().mentioned_in(text) or self._subject.is_mentioned_in(text)


class SubjectMatcher:
    """Matches a subject and its removed rows. Records after the cutoff `at` do not match.

    `ids` are the hexadecimal parts of removed ids, `contents` the digests of removed texts, with `salt`. `scopes` are
    those of the lake, which tell whose lines of the journal are in the quarantine, and who has written again.
    """

    def __init__(
        self,
        subject: Subject,
        at: datetime,
        ids: Iterable[str] = (),
        salt: str = "",
        contents: Iterable[str] = (),
        scopes: Iterable[Scope] = (),
    ) -> None:
        self._subject = subject
        self._at = at
        self._ids = frozenset(ids)
        self._salt, self._contents = salt, frozenset(contents)
        scopes = list(scopes)
        self._again = pa.array(
            {scope.identity for scope in scopes if scope.identity and subject.owns(scope)}, pa.string()
        )
        #: Whether the agent or the person has written again.
        self._is_back = any(map(subject.owns, scopes))
        self._owners: dict[str, Whose] = {scope.key: (scope.workspace_id, scope.agent_id) for scope in scopes}
        self._mentions = PersonMentions(subject)
        self._long = PersonMentions(subject, _LEAST_LETTERS)
        self._users = frozenset(subject.user_ids)
        self._talks = pa.array(subject.conversation_ids, pa.string())
        self._identities = pa.array(map(user_identity, subject.user_ids), pa.string())
        self._paths = self._path_pattern()
        self._raw = self._raw_patterns()

    def is_within_reach(self, whose: Whose) -> bool:
        """Return whether data of a workspace and agent may hold the subject. None means any."""
        return whose[0] in (None, self._subject.workspace_id) and (
            self._subject.agent_id is None or whose[1] in (None, self._subject.agent_id)
        )

    def whose(self, path: str) -> Whose:
        """Return the workspace and the agent of a collection. The rows of other tables say whose they are."""
        folder = path.split("/")[1] if path.startswith(f"{COLLECTIONS}/") else ""
        return self._owners.get(key_in(folder) or "", ANYBODY)

    def in_path(self, path: str) -> Counter[str]:
        """Search the path of a file or a folder."""
        found: Counter[str] = Counter()
        if self._paths is not None and self._paths.search(f"/{path}/"):
            found["its path names the agent"] += 1
        known = set(_HEX.findall(path)) & self._ids
        found.update({"its path has the id of a removed row": len(known)} if known else {})
        parts = path.split("/")
        # Folders of the journal, the index and the graph have names of workspaces and agents, not of persons.
        free = parts[4:] if parts[:2] == ["journal", "pending"] else parts[3:] if parts[0] == COLLECTIONS else parts
        if any(map(self._mentions.mentioned_in, free)):
            found["its path has a name of the person"] += 1
        return found

    def in_bytes(self, data: bytes, *, unreadable: bool) -> Counter[str]:
        """Search raw bytes. If they are `unreadable` in any other way, also search for names."""
        found: Counter[str] = Counter()
        for what, pattern, always in self._raw:
            if (always or unreadable) and (hits := len(pattern.findall(data))):
                found[f"{what} (in its bytes)"] += hits
        if unreadable and self._long:
            runs = (run.decode("ascii") for run in _PRINTABLE.findall(data))
            found["a name of the person (in its bytes)"] += sum(map(self._long.mentioned_in, runs))
        if self._ids and (hits := len(self._ids.intersection(_HEX.findall(data.decode("latin-1"))))):
            found["ids of removed rows (in its bytes)"] += hits
        return +found

    def in_text(self, text: str) -> Counter[str]:
        """Search a text of unknown origin."""
        found = self._in_texts([text], "its text", are_persons=True)
        subject = self._subject
        if subject.kind is SubjectKind.AGENT and self.names_agent(text):
            found["it names the agent"] += 1
        if any(f'"{conversation_id}"' in text for conversation_id in subject.conversation_ids):
            found["it names the conversation"] += 1
        if any(f'"{user_id}"' in text for user_id in self._users) or self._users.intersection(ids_in(text, "user_id")):
            found["it names the user"] += 1
        return found

    def names_agent(self, text: str) -> bool:
        """Return whether a text, such as a broken record, has the agent's id and names no other workspace."""
        workspaces = ids_in(text, "workspace_id")
        is_within = not workspaces or workspaces[0] == self._subject.workspace_id
        return is_within and self._subject.agent_id in ids_in(text, "agent_id")

    def in_record(self, record: object, whose: Whose = ANYBODY) -> Counter[str]:
        """Search a JSON value."""
        found: Counter[str] = Counter()
        subject = self._subject
        later = False
        if isinstance(record, Mapping):
            if whose == ANYBODY and (file := _PENDING.match(str(record.get("where")))):  # a quarantined line
                whose = self._owners.get(key_in(file["folder"]) or "", ANYBODY)
            owner: Whose = (_id(record.get("workspace_id"), whose[0]), _id(record.get("agent_id"), whose[1]))
            later = self._is_later(record)
            if (
                subject.kind is SubjectKind.AGENT
                and None not in owner
                and self.is_within_reach(owner)
                and owner != whose
            ):
                found["records of the agent"] += not later
            whose = owner
            if self.is_within_reach(whose) and not later:
                found += self._in_ids(record)
            for key, value in record.items():
                if key == _CHANGES and isinstance(value, Mapping) and self.is_within_reach(whose) and not later:
                    found += self._in_mentions(texts_of(value), f"key {key}", key)
                if isinstance(value, str):
                    free = key not in _NO_PERSONS and self.is_within_reach(whose) and not later
                    found += self._in_texts([value, str(key)], f"key {key}", are_persons=free)
                    if key == "record" and self.is_within_reach(whose) and not later:  # a quarantined line
                        found += self.in_text(value)
                else:  # of a later record, names count nothing
                    found += self._in_later(value, key) if later else self.in_record(value, whose)
        elif isinstance(record, list):
            for value in record:
                found += self.in_record(value, whose)
        elif isinstance(record, str):
            found += self._in_texts([record], "a list", are_persons=self.is_within_reach(whose))
        return +found

    def _in_later(self, value: object, key: str) -> Counter[str]:
        texts = _strings_in(value) if isinstance(value, list) else ()
        return self._in_texts(texts, f"key {key}", are_persons=False)

    def in_rows(self, rows: pa.Table, whose: Whose = ANYBODY) -> Counter[str]:
        """Search rows of any table. `whose` is their workspace and agent, if no columns name them."""
        found: Counter[str] = Counter()
        for name, values in leaves(rows):
            found += self._in_texts(values, f"column {name}", are_persons=False)
        within = self._within(rows, whose)
        if "first_at" in within.column_names:  # it repeats the index of members, which tells who is a member again
            within = within.select([name for name in within.column_names if name not in ("users", "digest")])
        if not within.num_rows:
            return found
        names, subject = set(within.column_names), self._subject
        if subject.kind is SubjectKind.AGENT and "agent_id" in names:
            found["rows of the agent"] += self._count(within, pa.scalar(True), pa.scalar(self._is_back))
        elif subject.kind is SubjectKind.CONVERSATION and "conversation_id" in names:
            ids = within["conversation_id"].cast(pa.string())
            found["rows of the conversation"] += pc.sum(pc.is_in(ids, self._talks)).as_py() or 0
        elif subject.kind is SubjectKind.CONVERSATION and "conversation_ids" in names:
            all_ids = pc.list_flatten(within["conversation_ids"]).cast(pa.string())
            found["rows of the conversation"] += pc.sum(pc.is_in(all_ids, self._talks)).as_py() or 0
        elif subject.kind is SubjectKind.PERSON:
            users = pa.array(subject.user_ids, pa.string())
            if "user_id" in names:
                ids = within["user_id"].cast(pa.string())
                again = pc.is_in(pc.binary_join_element_wise("user", ids, ":"), self._again)
                found["rows of the user"] += self._count(within, pc.is_in(ids, users), again)
            if "identity" in names:
                ids = within["identity"].cast(pa.string())
                own, again = pc.is_in(ids, self._identities), pc.is_in(ids, self._again)
                found["rows of the user"] += self._count(within, own, again)
            if "users" in names:
                listed = pc.is_in(pc.list_flatten(within["users"]).cast(pa.string()), users)
                found["members of groups"] += pc.sum(listed).as_py() or 0
            for name, texts in leaves(self._until_cutoff(within)):
                column = name.split(".", maxsplit=1)[0] if not name.endswith(f".{_SCHEMA}") else _SCHEMA
                # An agent chooses the key of a preference. Keys of other tables are hashes.
                is_chosen = column == "key" and "memory_id" in names
                found += self._in_mentions(texts, f"column {name}", "" if is_chosen else column)
        return +found

    def _count(self, rows: pa.Table, own: pa.ChunkedArray, again: pa.ChunkedArray) -> int:
        """Count the subject's `own` rows.

        Of a subject that has written `again`, rows without a time, and summaries of periods that end after the cutoff,
        are not counted: they may be of what was written later.
        """
        time, end = _time_column(rows), _end_column(rows)
        is_open: Any = pa.scalar(time is None)
        if time is not None:
            is_open = pc.is_null(rows[time])
        if end is not None:
            at = pa.scalar(self._at, rows[end].type)
            is_open = pc.or_(is_open, pc.fill_null(pc.greater(rows[end], at), fill_value=False))
        counted = pc.and_not(own, pc.and_(again, is_open))
        return rows.num_rows * counted.as_py() if isinstance(counted, pa.Scalar) else pc.sum(counted).as_py() or 0

    def _in_ids(self, record: Mapping[str, Any]) -> Counter[str]:
        found: Counter[str] = Counter()
        subject = self._subject
        if subject.kind is SubjectKind.CONVERSATION:
            user_id = record.get("user_id")  # a record in the quarantine has no identity
            whose = (None, record.get("identity") or (isinstance(user_id, str) and user_identity(user_id)))
            is_of_source = subject.source is not None and record.get("source") == subject.source
            is_own = is_of_source or record.get("conversation_id") in subject.conversation_ids
            found["records of the conversation"] += is_own and subject.identity in whose
        if subject.kind is SubjectKind.PERSON:
            is_own = record.get("user_id") in self._users or record.get("identity") in self._identities.to_pylist()
            found["records of the user"] += is_own
            users = record.get("users")
            found["members of groups"] += isinstance(users, list) and any(user in users for user in self._users)
        return found

    def _in_texts(self, values: Iterable[str], where: str, *, are_persons: bool) -> Counter[str]:
        """Search for removed ids and texts, and for names if `are_persons`."""
        texts = list(values)
        found: Counter[str] = Counter()
        if self._ids:
            known = self._ids.intersection(*[_HEX.findall("\n".join(texts))]) if texts else set()
            found[f"ids of removed rows ({where})"] += len(known)
        if self._contents:
            long = (text for text in texts if len(text) >= LEAST_CHARACTERS)
            found[f"removed texts ({where})"] += sum(content_mark(self._salt, text) in self._contents for text in long)
        if are_persons:
            found += self._in_mentions(texts, where, "")
        return found

    def _in_mentions(self, values: Iterable[str], where: str, column: str) -> Counter[str]:
        if not self._mentions or column in _NO_PERSONS:
            return Counter()
        return Counter({f"names of the person ({where})": sum(map(self._mentions.mentioned_in, values))})

    def _within(self, rows: pa.Table, whose: Whose) -> pa.Table:
        """Return the rows that may hold the subject, without those after the cutoff."""
        subject = self._subject
        names = set(rows.column_names)
        if not self.is_within_reach(whose):
            return rows.slice(0, 0)
        for name, expected in (("workspace_id", subject.workspace_id), ("agent_id", subject.agent_id)):
            if name in names and expected is not None:
                rows = rows.filter(pc.equal(rows[name].cast(pa.string()), expected))
        if subject.identity is not None and "identity" in names:
            rows = rows.filter(pc.equal(rows["identity"].cast(pa.string()), subject.identity))
        time = _time_column(rows)
        if time is not None and rows.num_rows:
            at = pa.scalar(self._at, pa.timestamp("us", tz="UTC"))
            time_of_row = rows[time].cast(pa.timestamp("us", tz=rows[time].type.tz))
            if rows[time].type.tz is None:
                time_of_row = pc.assume_timezone(time_of_row, "UTC")
            rows = rows.filter(pc.fill_null(pc.less_equal(time_of_row, at), fill_value=True))
        return rows

    def _until_cutoff(self, rows: pa.Table) -> pa.Table:
        """Cut the part after the cutoff from summaries of periods that end after it."""
        end = _end_column(rows)
        if end is None or "content" not in rows.column_names:
            return rows
        at, last = self._at, self._at.date()
        if all(moment is None or _aware(moment) <= at for moment in rows[end].to_pylist()):
            return rows
        records = rows.drop_columns([name for name in ("vector",) if name in rows.column_names]).to_pylist()
        for record in records:
            if record[end] is None or _aware(record[end]) <= at:
                continue
            points = record.get("key_points") or []
            # Points have times. The index has none: if the subject is back, lines of this day may be later.
            is_day_later = "key_points" not in record and self._is_back
            until = last - timedelta(days=1) if is_day_later else last
            later = [point["sentence"] for point in points if point["sentence"] and _aware(point["event_at"]) > at]
            record["content"] = "\n".join(
                line
                for line in (record["content"] or "").split("\n")
                if _day_of(line, last) <= until and not any(sentence in line for sentence in later)
            )
            if points:
                record["key_points"] = [point for point in points if _aware(point["event_at"]) <= at]
            record |= {name: [] for name in ("entities", "terms") if name in record}
        return pa.Table.from_pylist(records)

    def _is_later(self, record: Mapping[str, Any]) -> bool:
        for name in _TIMES:
            value = record.get(name)
            if isinstance(value, str):
                try:
                    return _aware(datetime.fromisoformat(value)) > self._at
                except ValueError:
                    return False
        return False

    def _path_pattern(self) -> re.Pattern[str] | None:
        subject = self._subject
        if subject.kind is not SubjectKind.AGENT:
            return None
        own = Scope(subject.workspace_id, subject.agent_id or "")
        return re.compile(rf"/(journal/pending|{COLLECTIONS})/[^/]*{own.key}/")

    def _raw_patterns(self) -> list[tuple[str, re.Pattern[bytes], bool]]:
        """Return for each pattern: description, pattern, and whether it also applies to otherwise readable files."""
        subject = self._subject
        workspace, agent = (re.escape((one or "").encode()) for one in (subject.workspace_id, subject.agent_id))
        if subject.kind is SubjectKind.AGENT:
            owner = rb"(?<![\w.-])%b/%b(?![\w.-])" % (workspace, agent)
            is_rare = len(workspace + agent) >= LEAST_BYTES
            return [("the agent's name", re.compile(owner, re.IGNORECASE), True)] if is_rare else []
        is_person = subject.kind is SubjectKind.PERSON
        names = list(subject.names if is_person else subject.conversation_ids)
        if is_person and subject.user_id is not None:
            names += [user_identity(subject.user_id), f'"{subject.user_id}"']
            names += [] if subject.user_id.isalpha() else [subject.user_id]  # others may well use a word
        what = "a name of the person" if is_person else "the conversation's id"
        return [
            (what, re.compile(rb"(?<![A-Za-z0-9])%b(?![A-Za-z0-9])" % re.escape(name.encode()), re.IGNORECASE), False)
            for name in names
            if len(name.encode()) >= LEAST_BYTES
        ]


def leaves(rows: pa.Table, among: pa.Array | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield all text columns, nested ones too, with their distinct texts.

    With `among`, other texts may be left out.
    """
    for name in rows.column_names:
        for path, array in _texts(name, rows[name]):
            column = array.cast(pa.string())
            if among is not None:
                column = column.filter(_has_any(column, among) if path == _CHANGES else pc.is_in(column, among))
            texts = [text for text in pc.unique(column).to_pylist() if text is not None]
            yield path, [text_value for text in texts for text_value in texts_in(text)] if path == _CHANGES else texts


def _has_any(changes: pa.ChunkedArray, texts: pa.Array) -> pa.Array:
    """Return for each change whether it contains one of the texts, in JSON or, if it is not JSON, as it is."""
    listed = texts.to_pylist()
    written = listed + [json.dumps(text, ensure_ascii=is_ascii)[1:-1] for text in listed for is_ascii in (True, False)]
    return pl.Series(changes).str.contains_any(written).to_arrow()


def _texts(name: str, column: pa.ChunkedArray | pa.Array) -> Iterator[tuple[str, Any]]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        yield from _texts(name, column.cast(kind.value_type))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        yield name, column
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _texts(f"{name}.{field.name}", pc.struct_field(column, field.name))
    elif pa.types.is_map(kind):
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            yield from _texts(f"{name}.key", chunk.keys)
            yield from _texts(f"{name}.value", chunk.items)
    elif _is_list(kind) and not pa.types.is_primitive(kind.value_type):
        yield from _texts(name, pc.list_flatten(column))


def _strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _strings_in(part)


def _time_column(rows: pa.Table) -> str | None:
    names = set(rows.column_names)
    return next((name for name in _TIMES if name in names and pa.types.is_timestamp(rows[name].type)), None)


def _end_column(rows: pa.Table) -> str | None:
    return next((name for name in _ENDS if name in rows.column_names and pa.types.is_timestamp(rows[name].type)), None)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _id(value: object, otherwise: str | None) -> str | None:
    return value if isinstance(value, str) else otherwise


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _day_of(line: str, otherwise: date) -> date:
    dated = _DATED.match(line)
    try:
        return date.fromisoformat(dated[1]) if dated else otherwise
    except ValueError:
        return otherwise
