"""The columns of every table, as pyarrow schemas. All times are UTC, in microseconds.

The type of a text column says whether it contains people's words: erasure searches those columns. A field's comment is
its description in the Dagster UI. Comments are not stored in the lake.
"""

from __future__ import annotations

import pyarrow as pa

from memory_pipeline.lake.schema_types import (
    AGENT,
    BY_SCOPE,
    COPY,
    EMBEDDING,
    ID,
    IDS,
    NOTE,
    ORDERED_AT,
    ORIGIN,
    PROVENANCE,
    RECEIVED_AT,
    SCOPE,
    SCORE,
    SPEAKER,
    TEXT,
    TEXTS,
    TIME,
    USER,
    USERS,
    VECTOR,
    WORD_LIST,
    WORDS,
    Holds,
    TableSpec,
    Texts,
    field,
)

_OPERATIONS = pa.list_(
    pa.struct({"verb": TEXT, "subject": TEXT, "predicate": TEXT, "object": TEXT, "confidence": SCORE})
)
_EDITS = pa.list_(pa.struct({"content": TEXT, "received_at": TIME}))

MESSAGES = TableSpec(
    "messages",
    [
        field("period", ID, "UTC hour of sent_at, such as 2024-01-15T08."),
        field("id", ID, "Hash of scope, conversation, and the message's id, or its content if it has no id."),
        *SCOPE,
        field("conversation_id", WORDS, "Conversation of the message."),
        field("user_id", USER, "User who speaks, or whose conversation it is; null if not set.", nullable=True),
        USERS,
        field("tags", WORD_LIST, "Tags of the conversation, sorted."),
        field("source_id", WORDS, "Message id set by the writer; null if not set.", nullable=True),
        field("turn", pa.int32(), "Position in the conversation as first written, from 0."),
        field("role", ID, "user, assistant, system or tool."),
        field("name", WORDS, "Name of the speaker; null if not set.", nullable=True),
        field("content", WORDS, "Text of the message."),
        field("sent_at", TIME, "Time of the message (UTC)."),
        field("utc_offset", pa.int16(), "Speaker's offset from UTC, minutes; null if unknown.", nullable=True),
        field("source", WORDS, "Where the conversation comes from, such as cron:nightly.", nullable=True),
        field("metadata", WORDS, "JSON object of the writer; null if none.", nullable=True),
        field("redactions", WORD_LIST, "What the writer removed from the text, sorted."),
        RECEIVED_AT,
        field("occurrence", pa.int32(), "n, if n - 1 messages before have equal text and time.", nullable=True),
        field("original", WORDS, "First text of an edited message; null if it was not edited.", nullable=True),
        field("edits", Texts(_EDITS, Holds.WORDS), "Later texts of the message, oldest first.", nullable=True),
    ],
    partition_by=("period",),
    order_by=BY_SCOPE,
)

FACTS = TableSpec(
    "facts",
    [
        field("period", ID, "UTC hour of event_at, such as 2024-01-15T08."),
        field("id", ID, "Hash of scope, sources and content."),
        *SCOPE,
        field("kind", ID, "turn (a whole message), statement, event, plan, preference, instruction or gist."),
        field("content", WORDS, "Text of the fact, starting with the speaker."),
        field("speaker", WORDS, "Name of the speaker."),
        field("role", ID, "Role of the speaker: user or assistant.", nullable=True),
        field("entities", WORD_LIST, "Names of people, places and things in the text, sorted."),
        field("importance", SCORE, "Importance, 0 to 1."),
        field("confidence", SCORE, "Confidence of the extraction, 0 to 1."),
        field("conversation_id", WORDS, "Conversation of the source messages."),
        field("message_ids", IDS, "Ids of the source messages."),
        field("turn", pa.int32(), "Position of the message in the conversation, from 0."),
        field("position", pa.int32(), "0 for a turn, otherwise the number of the sentence in its message."),
        field("event_at", TIME, "Time of the message (UTC)."),
        RECEIVED_AT,
        field("mentioned_at", TIME, "First day named in the text, at 00:00 UTC; null if none.", nullable=True),
        field("tags", WORD_LIST, "Tags of the conversation, sorted."),
        field("extraction_method", ID, "verbatim, or the name and version of the rules or prompt."),
        field("operations", Texts(_OPERATIONS, Holds.WORDS), "Changes to the knowledge graph.", nullable=True),
        field("durable", ID, "Kind of the durable memory to create; null if none.", nullable=True),
        field("is_point_in_time", pa.bool_(), "Whether it describes a single moment.", nullable=True),
        field("subject", WORDS, "Subject of a durable fact that is a triple; null for other facts.", nullable=True),
        field("predicate", COPY, "Predicate of the triple, in snake_case; null for other facts.", nullable=True),
        field("object", WORDS, "Object of the triple; null for other facts.", nullable=True),
        ORIGIN,
        *PROVENANCE,
        field("source_digest", ID, "Digest of the messages of the hour and the method.", nullable=True),
        field("digest", ID, "Digest of the fact, without model, prompt_version and source_digest."),
        field("source", WORDS, "Where the conversation comes from; null in older rows.", nullable=True),
        field("metadata", WORDS, "JSON object of the message's writer; null if none.", nullable=True),
        *EMBEDDING,
    ],
    partition_by=("period",),
    order_by=BY_SCOPE,
    not_compared=("vector",),
)

_KEY_POINT = pa.struct(
    {"sentence": TEXT, "source_ids": TEXTS, "event_at": TIME, "importance": SCORE, "entities": TEXTS}
)

SUMMARIES = TableSpec(
    "summaries",
    [
        field("grain", ID, "daily, weekly, monthly, quarterly or yearly."),
        field("period", ID, "Name of the period: 2024-01-15, 2024-W03, 2024-01, 2024-Q1 or 2024."),
        field("id", ID, "Hash of scope and period."),
        *SCOPE,
        field("period_start", TIME, "Start of the period (UTC)."),
        field("period_end", TIME, "End of the period (UTC), exclusive."),
        field("content", WORDS, "Text of the summary, one line per key point."),
        field(
            "key_points",
            Texts(pa.list_(_KEY_POINT), Holds.COPY),
            "Sentences with sources, time (UTC), importance and entities.",
        ),
        field("entities", WORD_LIST, "Names of people, places and things in the summary, sorted."),
        field("importance", SCORE, "Highest importance of the key points, 0 to 1."),
        field("source_ids", IDS, "Ids of all source facts (daily) or finer summaries, sorted."),
        field("source_digest", ID, "Digest of the sources and the method; changes with either."),
        field("source_digests", IDS, "Digests of finer summaries, in the order of source_ids.", nullable=True),
        field("tokens_in", pa.int64(), "Tokens read; estimated at 4 bytes per token if no model counted."),
        field("tokens_out", pa.int64(), "Tokens written, counted like tokens_in."),
        field("cost", SCORE, "Cost in US dollars; null if unknown.", nullable=True),
        field("summary_method", ID, "Name and version of the rules or prompt."),
        *PROVENANCE,
        field("code_version", ID, "Package version that wrote the summary.", nullable=True),
        field("digest", ID, "Digest of the summary, without method, model and usage."),
        *EMBEDDING,
    ],
    partition_by=("grain", "period"),
    order_by=BY_SCOPE,
    not_compared=("vector",),
)

LEDGER = TableSpec(
    "ledger",
    [
        field("bucket", ID, "Asset, and month or year of the period. Keeps commits small."),
        field("asset", ID, "Asset, such as working_facts or daily_summaries."),
        field("period", ID, "Materialized period."),
        field("input_digest", ID, "Digest of the input."),
        field("output_digest", ID, "Digest of the output rows; the digest of nothing if there was no input."),
        field("rows", pa.int64(), "Number of rows; 0 if there was no input."),
        field("agents", pa.int64(), "Number of agents with rows."),
        field("unfinished", pa.int64(), "Number of fallbacks and of items that wait for a model.", nullable=True),
        field("expired", pa.int64(), "Number of rows that have expired since.", nullable=True),
        field("refused", pa.int64(), "Number of rejected parts of model answers.", nullable=True),
        field("redacted", pa.int64(), "Number of messages from which secrets were removed.", nullable=True),
    ],
    partition_by=("bucket",),
    order_by=("period",),
)

ANSWERS = TableSpec(
    "answers",
    [
        field("grain", ID, "Grain of the partition that needed the answer."),
        field("period", ID, "Period of the partition that needed the answer."),
        field("key", ID, "Hash of everything that determines the answer: model, settings, prompt and input."),
        *SCOPE,
        field("purpose", ID, "extraction, summary or consolidation. Embeddings are stored with their rows instead."),
        field("model", ID, "Model that answered."),
        field("prompt_version", ID, "Version of the prompt.", nullable=True),
        field("tokens_in", pa.int64(), "Tokens read, in all requests for this answer."),
        field("tokens_out", pa.int64(), "Tokens written, in all requests for this answer."),
        field("cost", SCORE, "Cost of all requests in US dollars; null if unknown.", nullable=True),
        field("answer", WORDS, "Validated answer of the model."),
    ],
    partition_by=("grain", "period"),
    order_by=("key",),
)

MODEL_CALLS = TableSpec(
    "model_calls",
    [
        field("hour", ID, "UTC hour of called_at, such as 2024-01-15T08."),
        field("id", ID, "Id of the row."),
        field("request_id", ID, "Request id. A request for several scopes or periods has one row for each."),
        field("key", ID, "Hash of everything that determines the answer: model, settings, prompt and input."),
        field("called_at", TIME, "Time at which the request was sent (UTC)."),
        *SCOPE,
        field("purpose", ID, "extraction, summary, consolidation, embedding or reading."),
        field("grain", ID, "Grain of the partition that needed the answer; working for reading."),
        field("period", ID, "Period of the partition that needed the answer; for reading, the hour of the call."),
        field("model", ID, "Requested model."),
        field("prompt_version", ID, "Version of the prompt; null for embeddings.", nullable=True),
        field("texts", pa.int64(), "Number of embedded texts; 1 for a completion."),
        field("tokens_in", pa.int64(), "Tokens read, as counted by the provider; 0 if it did not answer."),
        field("tokens_out", pa.int64(), "Tokens written, as counted by the provider; 0 if it did not answer."),
        field("cost", SCORE, "Cost in US dollars; null if unknown.", nullable=True),
        field("seconds", pa.float64(), "Duration in seconds."),
        field("outcome", ID, "ok, or the reason for the failure: timeout, rate_limited, …"),
    ],
    partition_by=("hour",),
)

ACCESS_LOG = TableSpec(
    "access_log",
    [
        field("day", ID, "UTC day of called_at, such as 2024-01-15."),
        field("id", ID, "Id of the row."),
        field("called_at", TIME, "Time of the call (UTC)."),
        *SCOPE,
        field("asking_agent", ID, "Agent that read or changed the memory."),
        field("operation", ID, "Method, such as search_memory, recall, graph.facts_about or remember."),
        field("outcome", ID, "ok, or denied."),
        field("results", pa.int64(), "Number of results."),
        field("result_ids", IDS, "Ids of the first 20 results; fewer after an erasure."),
        field("grant_ids", IDS, "Ids of the grants that allowed it; none if it was denied."),
        field("level", ID, "Highest level of these grants: read, write or admin.", nullable=True),
    ],
    partition_by=("day",),
)

#: An item that a model was handed: of :class:`~memory_pipeline.reader.packing.items.Recalled` what makes its text.
_ITEM = pa.struct(
    [
        *(pa.field(name, pa.string()) for name in ("id", "grain", "period", "date", "content", "kind", "warning")),
        *(pa.field(name, pa.string()) for name in ("when", "label", "said_by", "said_at", "identity", "lost")),
        pa.field("sources", pa.list_(pa.string())),
    ]
)
READ_RECEIPTS = TableSpec(
    "read_receipts",
    [
        field("day", ID, "UTC day of called_at, such as 2024-01-15."),
        field("id", ID, "Id of the receipt."),
        field("called_at", TIME, "Time at which the read began (UTC)."),
        *SCOPE,
        field("asking_agent", ID, "Agent that read the memory."),
        field("operation", ID, "context, inject_knowledge or recall."),
        field("as_of", TIME, "The time of which memory was asked; null if it was the present.", nullable=True),
        field("conversation_id", WORDS, "Conversation for which it was read; null if none was given.", nullable=True),
        field(
            "items",
            Texts(pa.list_(_ITEM), Holds.WORDS),
            "What was handed over. The text and the ids of an item are empty once its source was erased or expired; "
            "`lost` says which.",
        ),
        field("model", ID, "Models that helped to choose; null if none did.", nullable=True),
        field("tokens_in", pa.int64(), "Tokens of the requests to them."),
        field("tokens_out", pa.int64(), "Tokens of their answers."),
        field("cost", SCORE, "Cost in US dollars; null if unknown.", nullable=True),
    ],
    partition_by=("day",),
)

_OPERATION = (
    field("period", ID, "UTC hour of event_at, such as 2024-01-15T08."),
    field("id", ID, "Hash of the operation and its evidence."),
    *SCOPE,
    field("verb", ID, "INSERT, UPDATE or DELETE."),
    field("subject_id", COPY, "Normalized subject; aliases are not resolved."),
    field("subject", WORDS, "Subject, as stated."),
    field("predicate", WORDS, "Predicate, in snake_case."),
    field("object", WORDS, "Object, as stated; empty if all objects are withdrawn."),
    field("confidence", SCORE, "Confidence, 0 to 1."),
    field("weight", SCORE, "Strength of the relationship, 0 to 1; null if not stated.", nullable=True),
    field("evidence_id", ID, "Id of the source message or edit."),
    field("is_edit", pa.bool_(), "Whether an agent made it directly; it is then stored only in this table."),
    field("conversation_id", WORDS, "Conversation of the source message; null for edits.", nullable=True),
    field("turn", pa.int32(), "Position of the message in the conversation, or of the edit in its write."),
    field("place", pa.int32(), "Position of the operation in its message, from 0."),
    field("event_at", TIME, "Time of the message or edit (UTC)."),
    SPEAKER,
    RECEIVED_AT,
    ORDERED_AT,
    ORIGIN,
)
_BY_SUBJECT = ("scope", "subject_id", "predicate", "event_at", "id")

GRAPH_OPERATIONS = TableSpec(
    "graph_operations",
    [*_OPERATION, USERS],
    partition_by=("period",),
    order_by=_BY_SUBJECT,
)

#: A projection: the rows of graph_operations by scope.
OPERATIONS = TableSpec(
    "operations",
    [*_OPERATION, field("digest", ID, "Digest of the other columns.")],
    partition_by=(),
    order_by=_BY_SUBJECT,
)

#: A projection: the fold of operations. Besides its facts, each scope has a row that says which operations are folded;
#: see :func:`~memory_pipeline.lake.codec.codec.fold_state`.
GRAPH_FACTS = TableSpec(
    "graph_facts",
    [
        field("id", ID, "Hash of scope, source, label, target and valid_from."),
        *SCOPE,
        field("source_id", WORDS, "Normalized source: lower case, aliases resolved."),
        field("source", WORDS, "Source, as last stated."),
        field("label", WORDS, "Predicate, in snake_case."),
        field("target_id", WORDS, "Normalized target: lower case, aliases resolved."),
        field("target", WORDS, "Target, as last stated."),
        field("confidence", SCORE, "Highest confidence of the evidence, 0 to 1."),
        field("weight", SCORE, "Strength, 0 to 1: as stated, otherwise 1 - 2^-n for n source messages."),
        field("valid_from", TIME, "Time at which the fact was first stated (UTC)."),
        field("valid_to", TIME, "Time at which it stopped being true (UTC); null if it is true.", nullable=True),
        field("superseded_by", ID, "Id of the fact that replaced it; null if none.", nullable=True),
        field("evidence", IDS, "Ids of the messages or edits that assert the fact, oldest first."),
        field("conversation_id", WORDS, "Conversation of the newest evidence; null for edits.", nullable=True),
        field("updated_at", TIME, "Time at which the fact was last stated (UTC)."),
        ORIGIN,
        field("source_hour", ID, "UTC hour of valid_from, such as 2024-01-15T08."),
        field("source_digest", ID, "State of the fold; null in facts.", nullable=True),
        field("digest", ID, "Digest of the other columns."),
    ],
    partition_by=(),
    order_by=("scope", "source_id", "label", "valid_from", "target_id", "id"),
)


def _event(editor: Texts, reason: Texts) -> tuple[pa.Field, ...]:
    """Return the columns of an event of a durable memory, with the texts in `editor` and `reason` for erasure."""
    return (
        field("id", ID, "Hash of the event."),
        *SCOPE,
        field("verb", ID, "REMEMBER, UPDATE, FORGET, …; of the consolidation PROMOTE, MERGE, SUPERSEDE, …"),
        field("memory_id", ID, "Memory that the event creates or changes."),
        field("other_id", ID, "Memory that is merged into it, or replaces it; null if none.", nullable=True),
        field("changes", WORDS, "Changed fields, as JSON."),
        field("editor", editor, "conversation, consolidation, agent, or a name set by the writer."),
        field("reason", reason, "Reason; null if not stated.", nullable=True),
        field("evidence", IDS, "Ids of the source messages; empty for events of an agent itself."),
        field("conversation_id", WORDS, "Conversation of the messages, or session; null if none.", nullable=True),
        field(
            "turn",
            pa.int32(),
            "Position of the message in its conversation, or of an edit in its write; of the consolidation, the pass.",
        ),
        field("place", pa.int32(), "Position of the event in its message, or in its pass."),
        field("event_at", TIME, "Time of the event (UTC); of the consolidation, the end of the day."),
    )


MEMORY_EVENTS = TableSpec(
    "memory_events",
    [
        field("period", ID, "UTC hour of event_at, such as 2024-01-15T08."),
        *_event(NOTE, NOTE),
        SPEAKER,
        RECEIVED_AT,
        ORDERED_AT,
        USERS,
        field("is_edit", pa.bool_(), "Whether an agent made it directly; it is then stored only in this table."),
    ],
    partition_by=("period",),
    order_by=("scope", "event_at", "turn", "place", "id"),
)

CONSOLIDATION_EVENTS = TableSpec(
    "consolidation_events",
    [
        field("period", ID, "Day of consolidation, in the deployment's time zone, such as 2024-01-15."),
        *_event(ID, WORDS),
    ],
    partition_by=("period",),
    order_by=("scope", "event_at", "turn", "place", "id"),
)

#: A projection: the rows of memory_events and consolidation_events by scope.
EVENTS = TableSpec(
    "events",
    [
        field("period", ID, "UTC hour of a memory event, or day of a consolidation event."),
        *_event(NOTE, WORDS),
        SPEAKER,
        RECEIVED_AT.with_nullable(True),
        ORDERED_AT,
        field("is_consolidation", pa.bool_(), "Whether its record is in consolidation_events."),
        field("is_edit", pa.bool_(), "Whether an agent made it directly."),
        field("digest", ID, "Digest of the other columns."),
    ],
    partition_by=(),
    order_by=("scope", "event_at", "turn", "place", "id"),
)

#: A projection: the fold of events. Besides the versions of memories, each scope has a row with version 0, which says
#: which events are folded; see :func:`~memory_pipeline.lake.codec.memories.fold_states`.
MEMORIES = TableSpec(
    "memories",
    [
        field("id", ID, "Id of the version: the memory's id, # and the version."),
        field("memory_id", ID, "Id of the memory; the same for all of its versions."),
        field("version", pa.int32(), "Version number, from 1."),
        field("is_newest", pa.bool_(), "Whether this is the newest version; older ones are history."),
        *SCOPE,
        field("kind", ID, "fact, rule, instruction, observation, preference, procedure, reflection, …"),
        field("title", WORDS, "Topic, on one line."),
        field("hook", WORDS, "One line for the hot index, at most 120 characters."),
        field("content", WORDS, "Text of the memory."),
        field("subject", WORDS, "Subject of a memory that is a triple; null for other memories.", nullable=True),
        field("predicate", WORDS, "Predicate, in snake_case; null for other memories.", nullable=True),
        field("object", WORDS, "Object of the triple; null for other memories.", nullable=True),
        field("user_id", USER, "User who has the preference; null for other memories.", nullable=True),
        field("key", WORDS, "Name of the preference, or of the entry of a context.", nullable=True),
        field("value", WORDS, "Value of the preference or the entry, as JSON; null if none.", nullable=True),
        field("importance", SCORE, "Importance as set, 0 to 1. Decay is not stored."),
        field("confidence", SCORE, "Confidence, 0 to 1."),
        field("decay_rate", SCORE, "Decay of the relevance per day since the last use."),
        field("access_count", pa.int64(), "Number of accesses."),
        field("last_accessed_at", TIME, "Time of the last access (UTC); null if there was none.", nullable=True),
        field("is_point_in_time", pa.bool_(), "Whether it describes one moment and soon becomes stale."),
        field("memory_class", ID, "factual, or experiential for an attempt and its outcome."),
        field("outcome_success", pa.bool_(), "Whether an experience ended well; null if unknown.", nullable=True),
        field("source_type", ID, "What made it: user, system, tool, workflow or agent."),
        field("context", WORDS, "Context of which it is an entry; null for other memories.", nullable=True),
        field("temperature", ID, "hot (always loaded), warm (recalled) or cold (only in archive searches)."),
        field("status", ID, "active, superseded, deprecated or archived."),
        field("status_reason", WORDS, "Reason for the last change of status or temperature.", nullable=True),
        field("superseded_by", ID, "Id of the memory that replaced it; null if none.", nullable=True),
        field("merged_ids", IDS, "Ids of the memories merged into this one."),
        field("source_ids", IDS, "Ids of the source messages or events, oldest first, at most the last 100."),
        field("conversation_ids", WORD_LIST, "Source conversations, at most the last 100."),
        field("tags", WORD_LIST, "Tags, sorted."),
        field("editor", NOTE, "conversation, consolidation, agent, or a name set by the writer."),
        field("event_id", ID, "Event that created this version."),
        field("match_keys", IDS, "Keys for matching; a statement with one of these keys updates this memory."),
        field("created_at", TIME, "Time at which the memory was first stated (UTC)."),
        field("updated_at", TIME, "Time at which the memory was last stated, updated or confirmed (UTC)."),
        field("changed_at", TIME, "Time of the last change of content or status (UTC)."),
        field("reviewed_at", TIME, "Time at which a model last found it not stale (UTC).", nullable=True),
        field("source_digest", ID, "Digests of folded events and of rows; in rows of version 0.", nullable=True),
        field("vector", VECTOR, "Embedding of a newest version's content, of unit length.", nullable=True),
        field("embed_model", ID, "Embedder of the vector; null if there is no vector.", nullable=True),
        field("digest", ID, "Digest of the other columns without the vector."),
    ],
    partition_by=(),
    order_by=("scope", "memory_id", "version"),
    not_compared=("vector",),
)
#: The condition on the rows of a projection that are not the state of a fold.
IS_FACT = "source_digest IS NULL"

#: A projection: the scopes of the records. It lists the agents of the lake.
SCOPES = TableSpec(
    "scopes",
    [
        field("id", ID, "Key of the scope."),
        *SCOPE,
        field("first_at", TIME, "Time of its first message, edit or event (UTC), even if that has expired since."),
        USERS,
        field("last_at", TIME, "Time of its last message, edit or event (UTC), even if that has expired since."),
        field("digest", ID, "Both times and the users as text; changes with the row."),
    ],
    partition_by=(),
    order_by=("scope",),
)

CONSOLIDATION = TableSpec(
    "consolidation",
    [
        field("bucket", ID, "First digit of the scope's key."),
        field("id", ID, "Key of the scope."),
        *SCOPE,
        field("through", ID, "Last consolidated day, such as 2024-01-15."),
        field("due", ID, "Next day on which only time causes a change; null if none.", nullable=True),
        field("days", IDS, "Days up to then with events, each with the digest of its events."),
        field("method", ID, "Digest of the rules, settings and models of the consolidation."),
        field("troubles", IDS, "Failed passes with their reasons; the next run repeats the day."),
    ],
    partition_by=("bucket",),
    order_by=("id",),
)

EXPIRATIONS = TableSpec(
    "expirations",
    [
        *AGENT,
        field("kept", ID, "Retention class: conversations, facts, preferences, daily, weekly, …, or graph."),
        field("through", ID, "Last expired period."),
        field("at", TIME, "Time at which the last expired period was last advanced (UTC)."),
    ],
    partition_by=("kept",),
    order_by=("workspace_id", "agent_id"),
)

TOMBSTONES = TableSpec(
    "tombstones",
    [
        field("kind", ID, "Kind of erased subject: agent, conversation or person."),
        field("id", ID, "Hash of the mark."),
        field("workspace_id", ID, "Workspace of the subject."),
        field("salt", ID, "Salt of the mark."),
        field("mark", ID, "Salted hash of the subject's identifiers."),
        field("words", pa.int32(), "Number of words in a person's name; 0 for other subjects."),
        field("forgotten_at", TIME, "Time of the erasure (UTC). Matching records up to this time are dropped."),
        field("hours", IDS, "UTC hours with matching data."),
        field("is_done", pa.bool_(), "Whether all matching data was removed."),
    ],
    partition_by=("kind",),
)

TABLES = {
    spec.name: spec
    for spec in (
        MESSAGES,
        FACTS,
        SUMMARIES,
        LEDGER,
        ANSWERS,
        MODEL_CALLS,
        GRAPH_OPERATIONS,
        MEMORY_EVENTS,
        CONSOLIDATION_EVENTS,
        CONSOLIDATION,
        EXPIRATIONS,
        TOMBSTONES,
        ACCESS_LOG,
        READ_RECEIPTS,
    )
}


def table_of(grain: str) -> tuple[TableSpec, dict[str, str]]:
    """Return the table with a grain's facts or summaries, and the values of its partition columns but the period."""
    return (FACTS, {}) if grain == "working" else (SUMMARIES, {"grain": str(grain)})


#: Tables that are derived from others, by scope; see :class:`~memory_pipeline.lake.index.scoped_rows.ScopedRows`.
PROJECTED = {spec.name: spec for spec in (OPERATIONS, GRAPH_FACTS, EVENTS, MEMORIES, SCOPES)}
