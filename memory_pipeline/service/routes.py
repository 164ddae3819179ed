"""The routes of the service. Each names a method of the library, of which it has the schema and the help."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPMethod
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.client.conversations import Conversation
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.tokens import Right
from memory_pipeline.service.results import Schemas, returned_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memory_pipeline.client.memory import Memory
    from memory_pipeline.domain.periods import When
    from memory_pipeline.reader import Hit

GET, POST, PUT, PATCH, DELETE = (HTTPMethod[name] for name in ("GET", "POST", "PUT", "PATCH", "DELETE"))


@dataclass(frozen=True, slots=True)
class Route:
    """A route that calls one method.

    Attributes:
        path: with the parameters of the path in braces.
        method: the method, as ``package.module:Class.method``.
        opened: returns the object of the method, of a memory and the parameters of the path that `opens` names.
        level: what the token must allow.
        status: of a success.
        name: the id of the operation; by default the name of the method.
        without: parameters that it does not take.
        result: returns the result as it is shown.
        returns: the type of that; by default that of the method.
        missing: the error if the result is None or, of a list, empty.
        is_long: whether the work goes on in the background, unless it is only planned (``dry_run``).
        touches: returns the identities of the memories that a call would change, of a memory and its arguments. A
            request for a user may change the user's own alone.
        example: a body, for the documentation.
        help: the first sentence of the help, if that of the method does not fit.
    """

    verb: HTTPMethod
    path: str
    method: str
    opened: Callable[..., Any] = lambda memory: memory
    level: Right = Right.READ
    status: int = 200
    name: str = ""
    opens: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    result: Callable[[Any], object] = lambda found: found
    returns: Any = None
    missing: str = ""
    is_long: bool = False
    touches: Callable[..., set[str]] | None = None
    example: Mapping[str, object] = field(default_factory=dict)
    help: str = ""

    @property
    def operation(self) -> str:
        """The id of the operation."""
        return self.name or self.method.rpartition(".")[2]

    @property
    def tag(self) -> str:
        """The part of the memory that it belongs to: ``memories``, ``graph`` and so on."""
        return self.path.split("/")[2]

    @property
    def function(self) -> Callable[..., Any]:
        """The method."""
        found: Callable[..., Any] = resolve_name(f"memory_pipeline.{self.method}")
        return found

    def schema(self, schemas: Schemas) -> dict[str, Any]:
        """Return the JSON schema of the result."""
        return schemas.of_result(returned_by(self.function) if self.returns is None else self.returns)


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """What was written.

    Attributes:
        id: its id.
    """

    id: str


@dataclass(frozen=True, slots=True)
class SessionValue:
    """A value of a session.

    Attributes:
        value: any JSON.
    """

    value: object


@dataclass(frozen=True, slots=True)
class RemovedValues:
    """What was removed.

    Attributes:
        count: number of entries.
    """

    count: int


class Items:
    """Everything in a memory, by id."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def get(self, id: str, *, now: When | None = None) -> Hit | None:  # noqa: A002  # as in the library
        """Return what was said, a summary or a durable memory by its id. A memory that was forgotten is not found.

        Args:
            id: its id.
            now: ignore everything after this time; by default the current time.
        """
        found = self._memory.reader.get(id, now=now)
        if found is not None and found.grain == "durable":
            memory = self._memory.reader.memories.get(id, now=now)
            return found if memory is not None and memory.is_active else None
        return found


def _reader(memory: Memory) -> object:
    return memory.reader


def _writer(memory: Memory) -> object:
    return memory.writer


def _graph(memory: Memory) -> object:
    return memory.graph


def _conversations(memory: Memory) -> object:
    return memory.conversations


def _session(memory: Memory, session_id: str) -> object:
    return memory.session(session_id)


def _corrected(memory: Memory, **given: Any) -> set[str]:
    return {memory.correct(**{**given, "dry_run": True}).identity}


def _rolled_back(memory: Memory, **given: Any) -> set[str]:
    return {one.identity for one in memory.rollback(**{**given, "dry_run": True})}


def _undone(memory: Memory, *, id: str, **_: Any) -> set[str]:  # noqa: A002  # as in the library
    return {one.scope.identity for one in memory.corrections() if one.id == id}


_NO_MEMORY = "there is no memory with id {id}"
_ADD = {"messages": [{"role": "user", "content": "I moved to Porto."}], "conversation_id": "c1"}

ROUTES: Final = (
    Route(POST, "/v1/memories", "client.memory:Memory.add", level=Right.WRITE, status=201,
          example=_ADD),
    Route(GET, "/v1/memories", "client.memory:Memory.list"),
    Route(GET, "/v1/memories/{id}", "service.routes:Items.get", Items, missing=_NO_MEMORY),
    Route(PATCH, "/v1/memories/{id}", "writer:MemoryWriter.update", _writer, Right.WRITE,
          result=StoredMemory, returns=StoredMemory, example={"content": "Anna is vegan.", "reason": "she said so"}),
    Route(DELETE, "/v1/memories/{id}", "client.memory:Memory.forget", level=Right.WRITE, status=204, name="delete",
          without=frozenset({"conversation_id", "source", "everything", "dry_run"}),
          help="Forget a durable memory. Searches do not find it; its history remains."),
    Route(GET, "/v1/memories/{id}/history", "client.memory:Memory.history", missing=_NO_MEMORY),
    Route(GET, "/v1/memories/{id}/sources", "reader:MemoryReader.expand", _reader),
    Route(GET, "/v1/memories/{id}/trace", "client.memory:Memory.trace"),
    Route(POST, "/v1/remember", "client.memory:Memory.remember", level=Right.WRITE, status=201, result=StoredMemory,
          returns=StoredMemory, example={"text": "Anna is vegetarian.", "kind": "fact"}),
    Route(POST, "/v1/search", "client.memory:Memory.search", example={"query": "Where does Anna live?", "limit": 5}),
    Route(POST, "/v1/context", "client.memory:Memory.context", example={"query": "Plan a dinner", "max_tokens": 500}),
    Route(POST, "/v1/recall", "reader:MemoryReader.recall", _reader, example={"query": "What does Anna eat?"}),
    Route(GET, "/v1/hot-index", "reader:MemoryReader.hot_index", _reader),
    Route(POST, "/v1/forget", "client.memory:Memory.forget", level=Right.ADMIN, is_long=True,
          without=frozenset({"id"}), example={"conversation_id": "c1", "dry_run": True},
          help="Erase a conversation, an import, or everything of this user or agent, from all files."),
    Route(POST, "/v1/correct", "client.memory:Memory.correct", level=Right.WRITE, is_long=True, touches=_corrected,
          example={"id": "message:2026-01-05T09:7a", "text": "I live in Faro.", "dry_run": True}),
    Route(POST, "/v1/rollback", "client.memory:Memory.rollback", level=Right.ADMIN, is_long=True, touches=_rolled_back,
          example={"source": "import:chatgpt", "dry_run": True}),
    Route(GET, "/v1/corrections", "client.memory:Memory.corrections"),
    Route(POST, "/v1/corrections/{id}/undo", "client.memory:Memory.undo", level=Right.WRITE, is_long=True,
          touches=_undone),
    Route(GET, "/v1/conversations", "client.conversations:Conversations.list", _conversations,
          name="list_conversations", without=frozenset({"active_within"}), returns=list[Conversation]),
    Route(GET, "/v1/conversations/{conversation_id:path}", "client.conversations:Conversations.get", _conversations,
          name="get_conversation", returns=list[Message], missing="there is no conversation {conversation_id}"),
    Route(GET, "/v1/sessions/{session_id}", "sessions.views:KeyValues.items", _session, opens=("session_id",),
          name="get_session"),
    Route(DELETE, "/v1/sessions/{session_id}", "sessions.views:SessionMemory.clear", _session, Right.WRITE,
          opens=("session_id",), name="clear_session", result=RemovedValues, returns=RemovedValues),
    Route(GET, "/v1/sessions/{session_id}/values/{key:path}", "sessions.views:KeyValues.retrieve", _session,
          opens=("session_id",), name="get_session_value", without=frozenset({"default"}), result=SessionValue,
          returns=SessionValue, missing="session {session_id} has no value {key}"),
    Route(PUT, "/v1/sessions/{session_id}/values/{key:path}", "sessions.views:KeyValues.store", _session, Right.WRITE,
          opens=("session_id",), name="put_session_value", status=204, example={"value": 3, "ttl": 300}),
    Route(DELETE, "/v1/sessions/{session_id}/values/{key:path}", "sessions.views:KeyValues.remove", _session,
          Right.WRITE, opens=("session_id",), name="delete_session_value", status=204),
    Route(GET, "/v1/graph/facts", "graph:Graph.facts", _graph, name="graph_facts"),
    Route(GET, "/v1/graph/facts/{id}", "graph:Graph.fact", _graph, name="graph_fact",
          missing="there is no graph fact with id {id}"),
    Route(POST, "/v1/graph/search", "graph:Graph.search", _graph, name="graph_search",
          without=frozenset({"names"}), example={"query": "Who does Anna know?"}),
    Route(GET, "/v1/graph/history", "graph:Graph.history", _graph, name="graph_history"),
    Route(GET, "/v1/graph/entities/{name:path}/facts", "graph:Graph.facts_about", _graph, name="graph_facts_about"),
    Route(GET, "/v1/graph/entities/{name:path}/neighbors", "graph:Graph.neighbors", _graph, name="graph_neighbors"),
    Route(GET, "/v1/graph/entities/{name:path}", "graph:Graph.entity", _graph, name="graph_entity",
          missing="the graph has no entity {name}"),
    Route(GET, "/v1/summaries/{grain}", "reader:MemoryReader.newest", _reader, name="list_summaries"),
    Route(GET, "/v1/summaries/{grain}/{period}", "reader:MemoryReader.summaries_of", _reader, name="get_summary",
          missing="there is no {grain} summary of {period}; it may not be computed yet"),
    Route(GET, "/v1/receipts", "client.memory:Memory.receipts"),
    Route(GET, "/v1/receipts/{id}", "client.memory:Memory.receipt", missing="receipt {id} is unknown"),
    Route(POST, "/v1/run", "client.memory:Memory.run", level=Right.ADMIN, is_long=True, returns=list[Any]),
)  # fmt: skip
