"""The columns of every table, as pyarrow schemas. All times are UTC, in microseconds; `?` in a comment: may be null.

The type of a text column says whether it contains people's words: erasure searches those columns.

A field's comment is also its description in the Dagster UI, so it is written for readers of the table.
"""

from __future__ import annotations

import pyarrow as pa

from memory_pipeline.lake.schema_types import (
    BY_AGENT,
    COPY,
    EMBEDDING,
    ID,
    IDS,
    NOTE,
    PROVENANCE,
    SCOPE,
    SCORE,
    TEXT,
    TEXTS,
    TIME,
    USER,
    VECTOR,
    WORD_LIST,
    WORDS,
    Holds,
    TableSpec,
    Texts,
    field,
)

_OPERATIONS = pa.list_(
    pa.struct(
        [
            pa.field("verb", TEXT),
            pa.field("subject", TEXT),
            pa.field("predicate", TEXT),
            pa.field("object", TEXT),
            pa.field("confidence", SCORE),
        ]
    )
)

MESSAGES = TableSpec(
    "messages",
    pa.schema(
        [
            field("period", ID, "UTC hour in which it was sent, as 2024-01-15T08."),
            field("id", ID, "Hash of scope, conversation and the message's id, or its content where it has none."),
            *SCOPE,
            field("conversation_id", WORDS, "Conversation that it belongs to."),
            field("user_id", USER, "User of the conversation?", nullable=True),
            field("tags", WORD_LIST, "Tags of the conversation, sorted."),
            field("source_id", WORDS, "Id that the writer gave the message?", nullable=True),
            field("turn", pa.int32(), "Position, from 0, in the conversation as first written."),
            field("role", ID, "user, assistant, system or tool."),
            field("name", WORDS, "Name of the speaker?", nullable=True),
            field("content", WORDS, "What was said."),
            field("sent_at", TIME, "When it was said."),
            field("received_at", TIME, "When the journal took it."),
        ]
    ),
    partition_by=("period",),
    order_by=BY_AGENT,
)

FACTS = TableSpec(
    "facts",
    pa.schema(
        [
            field("period", ID, "UTC hour of the message, as 2024-01-15T08."),
            field("id", ID, "Hash of scope, sources and content."),
            *SCOPE,
            field("kind", ID, "turn (a whole message), statement, event, plan, preference or instruction."),
            field("content", WORDS, "The fact, beginning with its speaker."),
            field("speaker", WORDS, "Who said it."),
            field("role", ID, "Role of the speaker: user or assistant?", nullable=True),
            field("entities", WORD_LIST, "Names in it, sorted."),
            field("importance", SCORE, "0 to 1: how much is lost if it is forgotten."),
            field("confidence", SCORE, "0 to 1: how sure the extraction is."),
            field("conversation_id", WORDS, "Conversation that it comes from."),
            field("message_ids", IDS, "Messages that it rests on."),
            field("turn", pa.int32(), "Position of its message in the conversation."),
            field("position", pa.int32(), "0 for a turn, else the number of the sentence in its message."),
            field("event_at", TIME, "When it was said."),
            field("mentioned_at", TIME, "First day that the text speaks about?", nullable=True),
            field("tags", WORD_LIST, "Tags of the conversation, sorted."),
            field("extraction_method", ID, "What found it: verbatim, or the rules' or prompt's name and version."),
            field(
                "operations", Texts(_OPERATIONS, Holds.WORDS), "What it changes of what the agent knows?", nullable=True
            ),
            field("durable", ID, "Kind of durable memory that it is worth; none of working memory?", nullable=True),
            field("is_point_in_time", pa.bool_(), "Whether it says how things stood at one moment?", nullable=True),
            field("subject", WORDS, "Subject, where it is durable and says one thing of one?", nullable=True),
            field("predicate", COPY, "Predicate, in snake_case?", nullable=True),
            field("object", WORDS, "Object?", nullable=True),
            *PROVENANCE,
            field("source_digest", ID, "Changes if its passage or the way of extraction did?", nullable=True),
            field("digest", ID, "Changes whenever anything about the fact changes."),
            *EMBEDDING,
        ]
    ),
    partition_by=("period",),
    order_by=BY_AGENT,
    not_compared=("vector",),
)

_KEY_POINT = pa.struct(
    [
        pa.field("sentence", TEXT),
        pa.field("source_ids", TEXTS),
        pa.field("event_at", TIME),
        pa.field("importance", SCORE),
        pa.field("entities", TEXTS),
    ]
)

SUMMARIES = TableSpec(
    "summaries",
    pa.schema(
        [
            field("grain", ID, "daily, weekly, monthly, quarterly or yearly."),
            field("period", ID, "The period's name, as 2024-01-15, 2024-W03, 2024-01, 2024-Q1, 2024."),
            field("id", ID, "Hash of scope and period."),
            *SCOPE,
            field("period_start", TIME, "First instant that the period's name covers."),
            field("period_end", TIME, "First instant after the period."),
            field("content", WORDS, "The summary, one line a point."),
            field(
                "key_points",
                Texts(pa.list_(_KEY_POINT), Holds.COPY),
                "Its sentences, each with the ids that it rests on.",
            ),
            field("entities", WORD_LIST, "Names in it, sorted."),
            field("importance", SCORE, "Highest importance of its points."),
            field("source_ids", IDS, "All that it was made from: facts, or finer summaries; sorted."),
            field("source_digest", ID, "Changes if a source or the method changed."),
            field("source_digests", IDS, "Digests of the finer summaries in source_ids, in that order?", nullable=True),
            field("tokens_in", pa.int64(), "Tokens read, as the model counted; estimated at 4 bytes each by rules."),
            field("tokens_out", pa.int64(), "Tokens written; likewise."),
            field("cost", SCORE, "US dollars?", nullable=True),
            field("summary_method", ID, "Rules or prompt that made it, with their version."),
            *PROVENANCE,
            field("code_version", ID, "Version of this package that made it?", nullable=True),
            field("digest", ID, "Changes whenever anything about the summary changes."),
            *EMBEDDING,
        ]
    ),
    partition_by=("grain", "period"),
    order_by=BY_AGENT,
    not_compared=("vector",),
)

LEDGER = TableSpec(
    "ledger",
    pa.schema(
        [
            field("bucket", ID, "Asset, and month or year of the period; keeps a commit small."),
            field("asset", ID, "The asset, as working_facts or daily_summaries."),
            field("period", ID, "The period that was made."),
            field("input_digest", ID, "Digest of what it was made from."),
            field("output_digest", ID, "Digest of its rows; of nothing, where there was no material."),
            field("rows", pa.int64(), "Number of its rows; 0 where it was looked at and there was no material."),
            field("agents", pa.int64(), "Number of agents that have rows."),
            field("unfinished", pa.int64(), "What waits for a model: made by a stand-in, or not yet?", nullable=True),
            field("expired", pa.int64(), "How many of its rows have expired since?", nullable=True),
        ]
    ),
    partition_by=("bucket",),
    order_by=("period",),
)

ANSWERS = TableSpec(
    "answers",
    pa.schema(
        [
            field("grain", ID, "Grain of the partition that the question was asked for."),
            field("period", ID, "Period of the partition that the question was asked for."),
            field("key", ID, "Hash of all that decides the answer: model, settings, prompt, input."),
            *SCOPE,
            field("purpose", ID, "extraction, summary or upkeep; vectors stand in the rows they were made for."),
            field("model", ID, "Model that answered."),
            field("prompt_version", ID, "Prompt that it was asked with?", nullable=True),
            field("tokens_in", pa.int64(), "Tokens read, in all requests that it took."),
            field("tokens_out", pa.int64(), "Tokens written; likewise."),
            field("cost", SCORE, "US dollars, likewise; none where nobody knows the price?", nullable=True),
            field("answer", WORDS, "What the model wrote, checked."),
        ]
    ),
    partition_by=("grain", "period"),
    order_by=("key",),
)

MODEL_CALLS = TableSpec(
    "model_calls",
    pa.schema(
        [
            field("hour", ID, "UTC hour in which the request was sent, as 2024-01-15T08."),
            field("id", ID, "Id of the line."),
            field("request_id", ID, "Id of the request; shares of one request have the same."),
            field("key", ID, "Hash of the question."),
            field("called_at", TIME, "When the request was sent."),
            *SCOPE,
            field("purpose", ID, "extraction, summary, upkeep or embedding."),
            field("grain", ID, "Grain of the partition that it was for."),
            field("period", ID, "Period of the partition that it was for."),
            field("model", ID, "Model that was asked."),
            field("prompt_version", ID, "Prompt that it was asked with?", nullable=True),
            field("texts", pa.int64(), "Texts that were embedded; 1 for a completion."),
            field("tokens_in", pa.int64(), "Tokens read, as the provider counted them; 0 where it did not answer."),
            field("tokens_out", pa.int64(), "Tokens written; likewise."),
            field("cost", SCORE, "US dollars; none where nobody knows the price?", nullable=True),
            field("seconds", pa.float64(), "How long it took."),
            field("outcome", ID, "ok, or why it did not help: timeout, rate_limited, …"),
        ]
    ),
    partition_by=("hour",),
)

_OWNER = field("owner", ID, "Workspace and agent, as acme~support; see owner_of().")

GRAPH_OPERATIONS = TableSpec(
    "graph_operations",
    pa.schema(
        [
            _OWNER,
            field("period", ID, "UTC hour in which it was said, as 2024-01-15T08."),
            field("id", ID, "Hash of the operation and what it rests on."),
            *SCOPE,
            field("verb", ID, "INSERT, UPDATE or DELETE."),
            field("subject_id", COPY, "Subject, as names are compared, aliases not resolved."),
            field("subject", WORDS, "Subject, as it was said."),
            field("predicate", WORDS, "Predicate, in snake_case."),
            field("object", WORDS, "Object, as it was said; empty where all objects are withdrawn."),
            field("confidence", SCORE, "0 to 1: how sure it is."),
            field("weight", SCORE, "0 to 1: how strong the relationship is, if somebody said so?", nullable=True),
            field("evidence_id", ID, "Message or edit that it rests on."),
            field("is_edit", pa.bool_(), "Whether the agent made it itself: then this table is its only record."),
            field("conversation_id", WORDS, "Conversation in which it was said?", nullable=True),
            field("turn", pa.int32(), "Position of its message in the conversation, or of an edit in its write."),
            field("place", pa.int32(), "Position in what the message says."),
            field("event_at", TIME, "When it was said."),
        ]
    ),
    partition_by=("owner",),
    order_by=("subject_id", "predicate", "event_at", "id"),
)

GRAPH_FACTS = TableSpec(
    "graph_facts",
    pa.schema(
        [
            _OWNER,
            field("id", ID, "Hash of scope, source, label, target and beginning."),
            *SCOPE,
            field("source_id", WORDS, "Source, as names are compared: lower case, aliases resolved."),
            field("source", WORDS, "Source, as it was last said."),
            field("label", WORDS, "Predicate, in snake_case."),
            field("target_id", WORDS, "Target, as names are compared."),
            field("target", WORDS, "Target, as it was last said."),
            field("confidence", SCORE, "0 to 1: the highest of its evidence."),
            field("weight", SCORE, "0 to 1: as somebody said, or else 1 - 2^-n for n messages that it rests on."),
            field("valid_from", TIME, "When it was first said."),
            field("valid_to", TIME, "When it ceased to hold; none if it holds?", nullable=True),
            field("superseded_by", ID, "Id of the fact that took its place?", nullable=True),
            field("evidence", IDS, "Messages, or edits, that assert it; oldest first."),
            field("conversation_id", WORDS, "Conversation of the newest evidence?", nullable=True),
            field("updated_at", TIME, "When it was last said."),
            field("source_hour", ID, "UTC hour of valid_from, as 2024-01-15T08."),
            field("source_digest", ID, "Changes if the agent's operations or its vocabulary do; one for all rows."),
        ]
    ),
    partition_by=("owner",),
    order_by=("source_id", "label", "valid_from", "target_id", "id"),
)


def _event(editor: Texts, reason: Texts) -> tuple[pa.Field, ...]:
    """Return the columns of an event of a durable memory, with the texts in `editor` and `reason` for erasure."""
    return (
        field("id", ID, "Hash of what it does, to what, and when."),
        *SCOPE,
        field("verb", ID, "REMEMBER, UPDATE, FORGET, BOOST, …; of the upkeep PROMOTE, MERGE, SUPERSEDE, COOL, …"),
        field("memory_id", ID, "Memory that it changes, or makes."),
        field("other_id", ID, "Memory that is taken in, or that takes the place?", nullable=True),
        field("changes", WORDS, "What it says of the memory, as JSON."),
        field("editor", editor, "Who did it: conversation, upkeep, agent, or a name that the writer gave."),
        field("reason", reason, "Why?", nullable=True),
        field("evidence", IDS, "Messages that it rests on; none of what an agent did itself."),
        field("conversation_id", WORDS, "Conversation in which it was said?", nullable=True),
        field(
            "turn", pa.int32(), "Position of its message, or of it in its write; of the upkeep the number of the pass."
        ),
        field("place", pa.int32(), "Position in what the message says, or in the pass."),
        field("event_at", TIME, "When it happened; of the upkeep the end of its day."),
    )


MEMORY_EVENTS = TableSpec(
    "memory_events",
    pa.schema(
        [
            _OWNER,
            field("period", ID, "UTC hour in which it happened, as 2024-01-15T08."),
            *_event(NOTE, NOTE),
            field("is_edit", pa.bool_(), "Whether the agent made it itself: then this table is its only record."),
        ]
    ),
    partition_by=("owner",),
    order_by=("event_at", "turn", "place", "id"),
)

UPKEEP_EVENTS = TableSpec(
    "upkeep_events",
    pa.schema(
        [_OWNER, field("night", ID, "Day at the end of which it was decided, as 2024-01-15."), *_event(ID, WORDS)]
    ),
    partition_by=("owner",),
    order_by=("event_at", "turn", "place", "id"),
)

MEMORIES = TableSpec(
    "memories",
    pa.schema(
        [
            _OWNER,
            field("id", ID, "Id of the version: that of the memory, #, and the version."),
            field("memory_id", ID, "Id of the memory, which all of its versions share."),
            field("version", pa.int32(), "From 1."),
            field("is_newest", pa.bool_(), "Whether it is the newest version: older ones are history."),
            *SCOPE,
            field("kind", ID, "fact, rule, instruction, observation, preference, procedure, reflection, …"),
            field("title", WORDS, "What it is about."),
            field("hook", WORDS, "A line for the hot index."),
            field("content", WORDS, "What it says."),
            field("subject", WORDS, "Subject, where it is a fact of three terms?", nullable=True),
            field("predicate", WORDS, "Predicate, in snake_case, likewise?", nullable=True),
            field("object", WORDS, "Object, likewise?", nullable=True),
            field("user_id", USER, "User whose preference it is?", nullable=True),
            field("key", WORDS, "Name of the preference?", nullable=True),
            field("value", WORDS, "What was set, as JSON?", nullable=True),
            field("importance", SCORE, "0 to 1, as it was set; never decayed in place."),
            field("confidence", SCORE, "0 to 1."),
            field("decay_rate", SCORE, "How fast its relevance fades, per day."),
            field("access_count", pa.int64(), "How often it was used."),
            field("last_accessed_at", TIME, "When it was last used?", nullable=True),
            field("is_point_in_time", pa.bool_(), "Whether it says how things stood at one moment."),
            field("temperature", ID, "hot (always loaded), warm (recalled) or cold (archive search alone)."),
            field("status", ID, "active, superseded, deprecated or archived."),
            field("status_reason", WORDS, "Why it stands so?", nullable=True),
            field("superseded_by", ID, "Memory that took its place?", nullable=True),
            field("merged_ids", IDS, "Memories that it took in."),
            field("source_ids", IDS, "Messages or events that it rests on."),
            field("conversation_ids", WORD_LIST, "Conversations in which it was said."),
            field("tags", WORD_LIST, "Labels, sorted."),
            field("editor", NOTE, "Who made this version."),
            field("event_id", ID, "Event that made this version."),
            field("match_keys", IDS, "What is said with one of these words is said of this memory."),
            field("created_at", TIME, "When it was first said."),
            field("updated_at", TIME, "When it was last said, updated or confirmed."),
            field("changed_at", TIME, "When what it says, or its status, last changed."),
            field("reviewed_at", TIME, "When a model last found that it is not stale?", nullable=True),
            field("source_digest", ID, "Changes if the agent's events do; one for all rows."),
            field("vector", VECTOR, "Embedding of a newest version's content; unit length?", nullable=True),
            field("embed_model", ID, "Embedder that made the vector, none without one?", nullable=True),
        ]
    ),
    partition_by=("owner",),
    order_by=("memory_id", "version"),
    not_compared=("vector",),
)

UPKEEP = TableSpec(
    "upkeep",
    pa.schema(
        [
            *SCOPE,
            field("id", ID, "Owner: workspace and agent."),
            field("through", ID, "Last night up to which the agent's memories were kept, as 2024-01-15."),
            field("due", ID, "Next night on which time alone changes something?", nullable=True),
            field("days", IDS, "Days up to then on which something happened, each with the digest of its events."),
            field("method", ID, "Digest of the rules, settings and models by which they were kept."),
            field("troubles", IDS, "Passes that failed, and why: that night is to be kept again."),
        ]
    ),
    partition_by=("workspace_id",),
    order_by=("agent_id",),
)

EXPIRATIONS = TableSpec(
    "expirations",
    pa.schema(
        [
            *SCOPE,
            field("kept", ID, "What expired: conversations, facts, preferences, daily, weekly, …, graph."),
            field("through", ID, "Last period that expired: nothing up to and including it is kept."),
            field("at", TIME, "When the mark was last raised."),
        ]
    ),
    partition_by=("workspace_id",),
    order_by=("agent_id", "kept"),
)

TOMBSTONES = TableSpec(
    "tombstones",
    pa.schema(
        [
            field("kind", ID, "What was forgotten: agent, conversation or person."),
            field("id", ID, "Hash of the mark."),
            field("workspace_id", ID, "Workspace in which it was forgotten."),
            field("salt", ID, "What is hashed before the identifiers."),
            field("mark", ID, "Salted hash of the identifiers of what was forgotten."),
            field("words", pa.int32(), "Words of a person's name; 0 for all else."),
            field("forgotten_at", TIME, "What was sent at or before this is dropped."),
            field("hours", IDS, "UTC hours in which something was found."),
            field("is_done", pa.bool_(), "Whether everything that it matches was removed."),
        ]
    ),
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
        GRAPH_FACTS,
        MEMORY_EVENTS,
        UPKEEP_EVENTS,
        MEMORIES,
        UPKEEP,
        EXPIRATIONS,
        TOMBSTONES,
    )
}
