"""The columns of every table, as pyarrow schemas. All times are UTC, in microseconds; `?` in a comment: may be null.

A field's comment is its description in the Dagster UI too, so it is written for whoever reads a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from memory_pipeline.domain.conversations import Scope

_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
_TIME = pa.timestamp("us", tz="UTC")
_SCORE = pa.float64()
_VECTOR = pa.list_(pa.float32())


def _field(name: str, kind: pa.DataType, comment: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"comment": comment})


@dataclass(frozen=True)
class TableSpec:
    """A table: its name, its columns, and how it is partitioned.

    Attributes:
        partition_by: the partition columns; all but the last are given one value in every read and write.
        order_by: the columns that sort the rows of a partition.
        not_compared: columns left out when two partitions are compared, because others decide them.
    """

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    order_by: tuple[str, ...] = ("id",)
    not_compared: tuple[str, ...] = ()


_SCOPE = (
    _field("workspace_id", _TEXT, "Workspace that the row belongs to."),
    _field("agent_id", _TEXT, "Agent that the row belongs to."),
)
#: Rows of one agent lie together, so that some agents of a large partition are read without the others.
_BY_AGENT = ("workspace_id", "agent_id", "id")
_EMBEDDING = (
    _field("vector", _VECTOR, "Embedding of the content; unit length; none where the embedder failed?", nullable=True),
    _field("embed_model", _TEXT, "Embedder that made the vector, none without one?", nullable=True),
)
#: How a row was come by, where a model was asked or should have been.
_PROVENANCE = (
    _field("model", _TEXT, "Model that was asked?", nullable=True),
    _field("prompt_version", _TEXT, "Prompt that it was asked with?", nullable=True),
    _field("fallback", _TEXT, "Why rules took the place of the model: timeout, rate_limited, …?", nullable=True),
)
_OPERATIONS = pa.list_(
    pa.struct(
        [
            pa.field("verb", _TEXT),
            pa.field("subject", _TEXT),
            pa.field("predicate", _TEXT),
            pa.field("object", _TEXT),
            pa.field("confidence", _SCORE),
        ]
    )
)

MESSAGES = TableSpec(
    "messages",
    pa.schema(
        [
            _field("period", _TEXT, "UTC hour in which it was sent, as 2024-01-15T08."),
            _field("id", _TEXT, "Hash of scope, conversation and the message's id, or its content where it has none."),
            *_SCOPE,
            _field("conversation_id", _TEXT, "Conversation that it belongs to."),
            _field("user_id", _TEXT, "User of the conversation?", nullable=True),
            _field("tags", _TEXTS, "Tags of the conversation, sorted."),
            _field("source_id", _TEXT, "Id that the writer gave the message?", nullable=True),
            _field("turn", pa.int32(), "Position, from 0, in the conversation as first written."),
            _field("role", _TEXT, "user, assistant, system or tool."),
            _field("name", _TEXT, "Name of the speaker?", nullable=True),
            _field("content", _TEXT, "What was said."),
            _field("sent_at", _TIME, "When it was said."),
            _field("received_at", _TIME, "When the journal took it."),
        ]
    ),
    partition_by=("period",),
    order_by=_BY_AGENT,
)

FACTS = TableSpec(
    "facts",
    pa.schema(
        [
            _field("period", _TEXT, "UTC hour of the message, as 2024-01-15T08."),
            _field("id", _TEXT, "Hash of scope, sources and content."),
            *_SCOPE,
            _field("kind", _TEXT, "turn (a whole message), statement, event, plan, preference or instruction."),
            _field("content", _TEXT, "The fact, beginning with its speaker."),
            _field("speaker", _TEXT, "Who said it."),
            _field("role", _TEXT, "Role of the speaker: user or assistant?", nullable=True),
            _field("entities", _TEXTS, "Names in it, sorted."),
            _field("importance", _SCORE, "0 to 1: how much is lost if it is forgotten."),
            _field("confidence", _SCORE, "0 to 1: how sure the extraction is."),
            _field("conversation_id", _TEXT, "Conversation that it comes from."),
            _field("message_ids", _TEXTS, "Messages that it rests on."),
            _field("turn", pa.int32(), "Position of its message in the conversation."),
            _field("position", pa.int32(), "0 for a turn, else the number of the sentence in its message."),
            _field("event_at", _TIME, "When it was said."),
            _field("mentioned_at", _TIME, "First day that the text speaks about?", nullable=True),
            _field("tags", _TEXTS, "Tags of the conversation, sorted."),
            _field("extraction_method", _TEXT, "What found it: verbatim, or the rules' or prompt's name and version."),
            _field("operations", _OPERATIONS, "What it changes of what the agent knows?", nullable=True),
            _field("durable", _TEXT, "Kind of durable memory that it is worth; none of working memory?", nullable=True),
            _field("is_point_in_time", pa.bool_(), "Whether it says how things stood at one moment?", nullable=True),
            _field("subject", _TEXT, "Subject, where it is durable and says one thing of one?", nullable=True),
            _field("predicate", _TEXT, "Predicate, in snake_case?", nullable=True),
            _field("object", _TEXT, "Object?", nullable=True),
            *_PROVENANCE,
            _field("source_digest", _TEXT, "Changes if its passage or the way of extraction did?", nullable=True),
            _field("digest", _TEXT, "Changes whenever anything about the fact changes."),
            *_EMBEDDING,
        ]
    ),
    partition_by=("period",),
    order_by=_BY_AGENT,
    not_compared=("vector",),
)

_KEY_POINT = pa.struct(
    [
        pa.field("sentence", _TEXT),
        pa.field("source_ids", _TEXTS),
        pa.field("event_at", _TIME),
        pa.field("importance", _SCORE),
        pa.field("entities", _TEXTS),
    ]
)

SUMMARIES = TableSpec(
    "summaries",
    pa.schema(
        [
            _field("grain", _TEXT, "daily, weekly, monthly, quarterly or yearly."),
            _field("period", _TEXT, "The period's name, as 2024-01-15, 2024-W03, 2024-01, 2024-Q1, 2024."),
            _field("id", _TEXT, "Hash of scope and period."),
            *_SCOPE,
            _field("period_start", _TIME, "First instant that the period's name covers."),
            _field("period_end", _TIME, "First instant after the period."),
            _field("content", _TEXT, "The summary, one line a point."),
            _field("key_points", pa.list_(_KEY_POINT), "Its sentences, each with the ids that it rests on."),
            _field("entities", _TEXTS, "Names in it, sorted."),
            _field("importance", _SCORE, "Highest importance of its points."),
            _field("source_ids", _TEXTS, "All that it was made from: facts, or finer summaries; sorted."),
            _field("source_digest", _TEXT, "Changes if a source or the method changed."),
            _field(
                "source_digests", _TEXTS, "Digests of the finer summaries in source_ids, in that order?", nullable=True
            ),
            _field("tokens_in", pa.int64(), "Tokens read, as the model counted; estimated at 4 bytes each by rules."),
            _field("tokens_out", pa.int64(), "Tokens written; likewise."),
            _field("cost", _SCORE, "US dollars?", nullable=True),
            _field("summary_method", _TEXT, "Rules or prompt that made it, with their version."),
            *_PROVENANCE,
            _field("code_version", _TEXT, "Version of this package that made it?", nullable=True),
            _field("digest", _TEXT, "Changes whenever anything about the summary changes."),
            *_EMBEDDING,
        ]
    ),
    partition_by=("grain", "period"),
    order_by=_BY_AGENT,
    not_compared=("vector",),
)

LEDGER = TableSpec(
    "ledger",
    pa.schema(
        [
            _field("bucket", _TEXT, "Asset, and month or year of the period; keeps a commit small."),
            _field("asset", _TEXT, "The asset, as working_facts or daily_summaries."),
            _field("period", _TEXT, "The period that was made."),
            _field("input_digest", _TEXT, "Digest of what it was made from."),
            _field("output_digest", _TEXT, "Digest of its rows; of nothing, where there was no material."),
            _field("rows", pa.int64(), "Number of its rows; 0 where it was looked at and there was no material."),
            _field("agents", pa.int64(), "Number of agents that have rows."),
            _field("unfinished", pa.int64(), "What waits for a model: made by a stand-in, or not yet?", nullable=True),
            _field("expired", pa.int64(), "How many of its rows have expired since?", nullable=True),
        ]
    ),
    partition_by=("bucket",),
    order_by=("period",),
)

ANSWERS = TableSpec(
    "answers",
    pa.schema(
        [
            _field("grain", _TEXT, "Grain of the partition that the question was asked for."),
            _field("period", _TEXT, "Period of the partition that the question was asked for."),
            _field("key", _TEXT, "Hash of all that decides the answer: model, settings, prompt, input."),
            *_SCOPE,
            _field("purpose", _TEXT, "extraction, summary or upkeep; vectors stand in the rows they were made for."),
            _field("model", _TEXT, "Model that answered."),
            _field("prompt_version", _TEXT, "Prompt that it was asked with?", nullable=True),
            _field("tokens_in", pa.int64(), "Tokens read, in all requests that it took."),
            _field("tokens_out", pa.int64(), "Tokens written; likewise."),
            _field("cost", _SCORE, "US dollars, likewise; none where nobody knows the price?", nullable=True),
            _field("answer", _TEXT, "What the model wrote, checked."),
        ]
    ),
    partition_by=("grain", "period"),
    order_by=("key",),
)

MODEL_CALLS = TableSpec(
    "model_calls",
    pa.schema(
        [
            _field("hour", _TEXT, "UTC hour in which the request was sent, as 2024-01-15T08."),
            _field("id", _TEXT, "Id of the line."),
            _field("request_id", _TEXT, "Id of the request; shares of one request have the same."),
            _field("key", _TEXT, "Hash of the question."),
            _field("called_at", _TIME, "When the request was sent."),
            *_SCOPE,
            _field("purpose", _TEXT, "extraction, summary, upkeep or embedding."),
            _field("grain", _TEXT, "Grain of the partition that it was for."),
            _field("period", _TEXT, "Period of the partition that it was for."),
            _field("model", _TEXT, "Model that was asked."),
            _field("prompt_version", _TEXT, "Prompt that it was asked with?", nullable=True),
            _field("texts", pa.int64(), "Texts that were embedded; 1 for a completion."),
            _field("tokens_in", pa.int64(), "Tokens read, as the provider counted them; 0 where it did not answer."),
            _field("tokens_out", pa.int64(), "Tokens written; likewise."),
            _field("cost", _SCORE, "US dollars; none where nobody knows the price?", nullable=True),
            _field("seconds", pa.float64(), "How long it took."),
            _field("outcome", _TEXT, "ok, or why it did not help: timeout, rate_limited, …"),
        ]
    ),
    partition_by=("hour",),
)

_OWNER = _field("owner", _TEXT, "Workspace and agent, as acme~support; see owner_of().")

GRAPH_OPERATIONS = TableSpec(
    "graph_operations",
    pa.schema(
        [
            _OWNER,
            _field("period", _TEXT, "UTC hour in which it was said, as 2024-01-15T08."),
            _field("id", _TEXT, "Hash of the operation and what it rests on."),
            *_SCOPE,
            _field("verb", _TEXT, "INSERT, UPDATE or DELETE."),
            _field("subject_id", _TEXT, "Subject, as names are compared, aliases not resolved."),
            _field("subject", _TEXT, "Subject, as it was said."),
            _field("predicate", _TEXT, "Predicate, in snake_case."),
            _field("object", _TEXT, "Object, as it was said; empty where all objects are withdrawn."),
            _field("confidence", _SCORE, "0 to 1: how sure it is."),
            _field("weight", _SCORE, "0 to 1: how strong the relationship is, if somebody said so?", nullable=True),
            _field("evidence_id", _TEXT, "Message or edit that it rests on."),
            _field("is_edit", pa.bool_(), "Whether the agent made it itself: then this table is its only record."),
            _field("conversation_id", _TEXT, "Conversation in which it was said?", nullable=True),
            _field("turn", pa.int32(), "Position of its message in the conversation, or of an edit in its write."),
            _field("place", pa.int32(), "Position in what the message says."),
            _field("event_at", _TIME, "When it was said."),
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
            _field("id", _TEXT, "Hash of scope, source, label, target and beginning."),
            *_SCOPE,
            _field("source_id", _TEXT, "Source, as names are compared: lower case, aliases resolved."),
            _field("source", _TEXT, "Source, as it was last said."),
            _field("label", _TEXT, "Predicate, in snake_case."),
            _field("target_id", _TEXT, "Target, as names are compared."),
            _field("target", _TEXT, "Target, as it was last said."),
            _field("confidence", _SCORE, "0 to 1: the highest of its evidence."),
            _field("weight", _SCORE, "0 to 1: as somebody said, or else 1 - 2^-n for n messages that it rests on."),
            _field("valid_from", _TIME, "When it was first said."),
            _field("valid_to", _TIME, "When it ceased to hold; none if it holds?", nullable=True),
            _field("superseded_by", _TEXT, "Id of the fact that took its place?", nullable=True),
            _field("evidence", _TEXTS, "Messages, or edits, that assert it; oldest first."),
            _field("conversation_id", _TEXT, "Conversation of the newest evidence?", nullable=True),
            _field("updated_at", _TIME, "When it was last said."),
            _field("source_hour", _TEXT, "UTC hour of valid_from, as 2024-01-15T08."),
            _field("source_digest", _TEXT, "Changes if the agent's operations or its vocabulary do; one for all rows."),
        ]
    ),
    partition_by=("owner",),
    order_by=("source_id", "label", "valid_from", "target_id", "id"),
)

#: What tells one event of a durable memory, whoever made it.
_EVENT = (
    _field("id", _TEXT, "Hash of what it does, to what, and when."),
    *_SCOPE,
    _field("verb", _TEXT, "REMEMBER, UPDATE, FORGET, BOOST, …; of the upkeep PROMOTE, MERGE, SUPERSEDE, COOL, …"),
    _field("memory_id", _TEXT, "Memory that it changes, or makes."),
    _field("other_id", _TEXT, "Memory that is taken in, or that takes the place?", nullable=True),
    _field("changes", _TEXT, "What it says of the memory, as JSON."),
    _field("editor", _TEXT, "Who did it: conversation, upkeep, agent, or a name that the writer gave."),
    _field("reason", _TEXT, "Why?", nullable=True),
    _field("evidence", _TEXTS, "Messages that it rests on; none of what an agent did itself."),
    _field("conversation_id", _TEXT, "Conversation in which it was said?", nullable=True),
    _field("turn", pa.int32(), "Position of its message, or of it in its write; of the upkeep the number of the pass."),
    _field("place", pa.int32(), "Position in what the message says, or in the pass."),
    _field("event_at", _TIME, "When it happened; of the upkeep the end of its day."),
)

MEMORY_EVENTS = TableSpec(
    "memory_events",
    pa.schema(
        [
            _OWNER,
            _field("period", _TEXT, "UTC hour in which it happened, as 2024-01-15T08."),
            *_EVENT,
            _field("is_edit", pa.bool_(), "Whether the agent made it itself: then this table is its only record."),
        ]
    ),
    partition_by=("owner",),
    order_by=("event_at", "turn", "place", "id"),
)

UPKEEP_EVENTS = TableSpec(
    "upkeep_events",
    pa.schema([_OWNER, _field("night", _TEXT, "Day at the end of which it was decided, as 2024-01-15."), *_EVENT]),
    partition_by=("owner",),
    order_by=("event_at", "turn", "place", "id"),
)

MEMORIES = TableSpec(
    "memories",
    pa.schema(
        [
            _OWNER,
            _field("id", _TEXT, "Id of the version: that of the memory, #, and the version."),
            _field("memory_id", _TEXT, "Id of the memory, which all of its versions share."),
            _field("version", pa.int32(), "From 1."),
            _field("is_newest", pa.bool_(), "Whether it is the newest version: older ones are history."),
            *_SCOPE,
            _field("kind", _TEXT, "fact, rule, instruction, observation, preference, procedure, reflection, …"),
            _field("title", _TEXT, "What it is about."),
            _field("hook", _TEXT, "A line for the hot index."),
            _field("content", _TEXT, "What it says."),
            _field("subject", _TEXT, "Subject, where it is a fact of three terms?", nullable=True),
            _field("predicate", _TEXT, "Predicate, in snake_case, likewise?", nullable=True),
            _field("object", _TEXT, "Object, likewise?", nullable=True),
            _field("user_id", _TEXT, "User whose preference it is?", nullable=True),
            _field("key", _TEXT, "Name of the preference?", nullable=True),
            _field("value", _TEXT, "What was set, as JSON?", nullable=True),
            _field("importance", _SCORE, "0 to 1, as it was set; never decayed in place."),
            _field("confidence", _SCORE, "0 to 1."),
            _field("decay_rate", _SCORE, "How fast its relevance fades, per day."),
            _field("access_count", pa.int64(), "How often it was used."),
            _field("last_accessed_at", _TIME, "When it was last used?", nullable=True),
            _field("is_point_in_time", pa.bool_(), "Whether it says how things stood at one moment."),
            _field("temperature", _TEXT, "hot (always loaded), warm (recalled) or cold (archive search alone)."),
            _field("status", _TEXT, "active, superseded, deprecated or archived."),
            _field("status_reason", _TEXT, "Why it stands so?", nullable=True),
            _field("superseded_by", _TEXT, "Memory that took its place?", nullable=True),
            _field("merged_ids", _TEXTS, "Memories that it took in."),
            _field("source_ids", _TEXTS, "Messages or events that it rests on."),
            _field("conversation_ids", _TEXTS, "Conversations in which it was said."),
            _field("tags", _TEXTS, "Labels, sorted."),
            _field("editor", _TEXT, "Who made this version."),
            _field("event_id", _TEXT, "Event that made this version."),
            _field("match_keys", _TEXTS, "What is said with one of these words is said of this memory."),
            _field("created_at", _TIME, "When it was first said."),
            _field("updated_at", _TIME, "When it was last said, updated or confirmed."),
            _field("changed_at", _TIME, "When what it says, or its status, last changed."),
            _field("reviewed_at", _TIME, "When a model last found that it is not stale?", nullable=True),
            _field("source_digest", _TEXT, "Changes if the agent's events do; one for all rows."),
            _field("vector", _VECTOR, "Embedding of a newest version's content; unit length?", nullable=True),
            _field("embed_model", _TEXT, "Embedder that made the vector, none without one?", nullable=True),
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
            *_SCOPE,
            _field("id", _TEXT, "Owner: workspace and agent."),
            _field("through", _TEXT, "Last night up to which the agent's memories were kept, as 2024-01-15."),
            _field("due", _TEXT, "Next night on which time alone changes something?", nullable=True),
            _field("days", _TEXTS, "Days up to then on which something happened, each with the digest of its events."),
            _field("method", _TEXT, "Digest of the rules, settings and models by which they were kept."),
            _field("troubles", _TEXTS, "Passes that failed, and why: that night is to be kept again."),
        ]
    ),
    partition_by=("workspace_id",),
    order_by=("agent_id",),
)

EXPIRATIONS = TableSpec(
    "expirations",
    pa.schema(
        [
            *_SCOPE,
            _field("kept", _TEXT, "What expired: conversations, facts, preferences, daily, weekly, …, graph."),
            _field("through", _TEXT, "Last period that expired: nothing up to and including it is kept."),
            _field("at", _TIME, "When the mark was last raised."),
        ]
    ),
    partition_by=("workspace_id",),
    order_by=("agent_id", "kept"),
)

TOMBSTONES = TableSpec(
    "tombstones",
    pa.schema(
        [
            _field("kind", _TEXT, "What was forgotten: agent, conversation or person."),
            _field("id", _TEXT, "Hash of the mark."),
            _field("workspace_id", _TEXT, "Workspace in which it was forgotten."),
            _field("salt", _TEXT, "What is hashed before the identifiers."),
            _field("mark", _TEXT, "Salted hash of the identifiers of what was forgotten."),
            _field("words", pa.int32(), "Words of a person's name; 0 for all else."),
            _field("forgotten_at", _TIME, "What was sent at or before this is dropped."),
            _field("hours", _TEXTS, "UTC hours in which something was found."),
            _field("is_done", pa.bool_(), "Whether everything that it matches was removed."),
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


def owner_of(scope: Scope) -> str:
    """Return the name of an agent's partition: no id holds a tilde, and no file system minds one."""
    return f"{scope.workspace_id}~{scope.agent_id}"


def index_schema(dimension: int) -> pa.Schema:
    """Return the columns of an index table: the same for facts and summaries of any grain."""
    return pa.schema(
        [
            # Without a declared key, merges that run at the same time double rows. It is declared in the schema, so
            # that no table is ever without it.
            pa.field("id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key:position": "1"}),
            pa.field("period", pa.string()),
            pa.field("kind", pa.string()),  # a fact's kind, or "summary"
            pa.field("content", pa.string()),
            pa.field("terms", pa.list_(pa.string())),  # the words that it is compared by, with its speaker and date
            pa.field("starts_at", pa.timestamp("us", tz="UTC")),
            pa.field("ends_at", pa.timestamp("us", tz="UTC")),  # of a fact: when it was said, as starts_at
            pa.field("mentioned_at", pa.timestamp("us", tz="UTC")),  # of a fact: the day that it speaks about
            pa.field("entities", pa.list_(pa.string())),
            pa.field("importance", pa.float64()),
            pa.field("conversation_id", pa.string()),
            pa.field("speaker", pa.string()),  # of a fact, and so are role, turn, position and tags
            pa.field("role", pa.string()),
            pa.field("turn", pa.int32()),
            pa.field("position", pa.int32()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("source_ids", pa.list_(pa.string())),  # messages of a fact, facts or finer summaries of a summary
            pa.field("digest", pa.string()),
            pa.field("embed_model", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), dimension)),
        ]
    )
