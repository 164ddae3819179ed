"""Wrap a chat client, so that its prompts get context from memory and what is said is stored.

Wrapped are ``chat.completions.create`` and ``parse`` of an OpenAI-compatible client, or a function with the same
arguments, such as ``litellm.completion`` or ``litellm.acompletion``. Everything else is passed through unchanged, and
so are the answers, streams and errors of the client.

Before a call, what memory holds about the last message of the user is added to the beginning of that message. Later
calls of the conversation add only what is new. Earlier additions are repeated in their places: the model needs them,
and a provider's prompt cache stays valid. With a ``conversation_id`` and a database for sessions, this also holds for
calls of other processes within a day. After a call, the new messages and the answer are stored; those of a stream
when it ends.

Memory never raises. If it fails, a warning is logged, and the call is made without it. If it takes long, the call does
not wait.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import wraps
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

from memory_pipeline.domain.chat_messages import as_mapping, messages_in
from memory_pipeline.domain.sessions import MAX_TTL
from memory_pipeline.errors import ConfigurationError, InputError, LakeError, shown
from memory_pipeline.reader.packing.items import InjectedContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from memory_pipeline.sessions.views import KeyValues, SessionMemory
    from memory_pipeline.writer import Receipt

Client = TypeVar("Client")

_log = logging.getLogger(__name__)
#: Seconds that a call waits for memory. The first search of a process takes longest.
_MAX_WAIT: Final = 5.0
_SLOW: Final = "memory takes longer than %g s; the call does not wait for it"
#: Conversations that are remembered: those with the latest calls.
_MAX_CONVERSATIONS: Final = 1_000
#: The key of the ids of the messages that the model has read, among what it was told.
_SAID: Final = "messages"
#: Roles of messages that nobody says in the conversation.
_INSTRUCTIONS: Final = frozenset(["system", "developer"])


class ChatMemory(Protocol):
    """What the wrapper needs of a :class:`~memory_pipeline.Memory`."""

    def context(
        self, query: str = "", max_tokens: int = 1_000, *, conversation: Mapping[str, object], exclude: Collection[str]
    ) -> InjectedContext:
        """Return the context for a prompt."""
        ...

    def add(
        self,
        messages: object,
        *,
        conversation_id: str,
        idempotency_key: str,
        tags: Sequence[str],
        source: str | None,
    ) -> Receipt:
        """Store what was said."""
        ...

    def new_conversation_id(self, now: datetime) -> str:
        """Return an id for a conversation that begins `now`."""
        ...

    def session(self, session_id: str) -> SessionMemory:
        """Return the session of a conversation."""
        ...


def wrapped(
    memory: ChatMemory,
    client: Client,
    conversation_id: str | None,
    max_tokens: int,
    tags: Sequence[str],
    source: str | None,
) -> Client:
    """Return a client with memory; see :meth:`memory_pipeline.Memory.wrap`.

    Raises:
        InputError: the client is of another kind.
    """
    recorder = _Recorder(memory, conversation_id, max_tokens, {"tags": tags, "source": source})
    completions = getattr(getattr(client, "chat", None), "completions", None)
    if callable(getattr(completions, "create", None)):
        return recorder.of_client(client)  # type: ignore[no-any-return]  # it behaves as the client does
    if callable(client) and not isinstance(client, type):
        return recorder.around(client)  # type: ignore[return-value]  # it has the same signature
    raise InputError(
        f"client {shown(client)} cannot be wrapped; expected a client with chat.completions.create, as OpenAI's, or a "
        "function such as litellm.completion"
    )


class _Proxy:
    """An object with some of its attributes replaced."""

    def __init__(self, target: Any, replaced: Mapping[str, Any]) -> None:
        self._target = target
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._target, name)

    def __enter__(self) -> Self:
        self._target.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._target.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._target.__aexit__(*error)


class _Block(NamedTuple):
    """Context that was added to a message, and the ids of its items."""

    text: str
    ids: frozenset[str]


@dataclass(slots=True)
class _Conversation:
    """A conversation.

    Attributes:
        id: its id.
        blocks: the context that was added, by the digest of the message that it was added to.
        message_ids: of the stored messages of its last call.
    """

    id: str
    blocks: dict[str, _Block] = field(default_factory=dict)
    message_ids: frozenset[str] = frozenset()


class _Call(NamedTuple):
    """A call with its messages, and the messages with context to send in their place."""

    messages: list[Any]
    prompt: list[Any]
    conversation: _Conversation | None


class _Recorder:
    """Adds context to the calls of one client, and stores what is said.

    One thread does the work of memory in order, so that a prompt finds what was said in the call before.
    """

    def __init__(
        self, memory: ChatMemory, conversation_id: str | None, max_tokens: int, labels: Mapping[str, Any]
    ) -> None:
        self._memory = memory
        self._max_tokens = max_tokens
        self._labels = labels
        self._named = None if conversation_id is None else _Conversation(conversation_id)
        #: By the digest of all messages of their last call, with the answer.
        self._known: OrderedDict[str, _Conversation] = OrderedDict()
        self._thread = ThreadPoolExecutor(1, "memory")
        self._submit(self._warm_up)

    def _warm_up(self) -> None:
        """Read the index before the first prompt. The prompt reports errors."""
        with suppress(Exception):
            self._memory.context(conversation={}, exclude=())

    def of_client(self, client: Any) -> Any:
        """Return a client whose calls are wrapped, and those of its copies."""
        completions = client.chat.completions
        calls = {
            name: self.around(getattr(completions, name)) for name in ("create", "parse") if hasattr(completions, name)
        }
        copies = {
            name: self._copying(getattr(client, name)) for name in ("with_options", "copy") if hasattr(client, name)
        }
        return _Proxy(client, {"chat": _Proxy(client.chat, {"completions": _Proxy(completions, calls)}), **copies})

    def _copying(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def copied(*args: Any, **options: Any) -> Any:
            return self.of_client(method(*args, **options))

        return copied

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `function` with context, and stores its messages and its answer."""

        def request(args: tuple[Any, ...], options: dict[str, Any], call: _Call) -> Any:
            if "messages" in options:
                return function(*args, **{**options, "messages": call.prompt})
            return function(args[0], call.prompt, *args[2:], **options)

        if inspect.iscoroutinefunction(inspect.unwrap(function)):

            @wraps(function)
            async def with_memory_async(*args: Any, **options: Any) -> Any:
                messages = _messages_in(args, options)
                if messages is None:
                    return await function(*args, **options)
                call = await _awaited(self._submit(self._with_context, messages)) or _Call(messages, messages, None)
                answer = await request(args, options, call)
                if options.get("stream"):
                    return _Stream(answer, lambda heard: self._submit(self._store, call, heard))
                await _awaited(self._submit(self._store, call, _message_of(answer)))
                return answer

            return with_memory_async

        @wraps(function)
        def with_memory(*args: Any, **options: Any) -> Any:
            messages = _messages_in(args, options)
            if messages is None:
                return function(*args, **options)
            call = _waited(self._submit(self._with_context, messages)) or _Call(messages, messages, None)
            answer = request(args, options, call)
            if options.get("stream"):
                return _Stream(answer, lambda heard: self._submit(self._store, call, heard))
            _waited(self._submit(self._store, call, _message_of(answer)))
            return answer

        return with_memory

    def _submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        def guarded() -> Any:
            try:
                return work(*args)
            except Exception as error:  # noqa: BLE001  # no error of memory may stop a conversation
                _log.warning("memory failed: %s: %s", type(error).__name__, error)
                return None

        try:
            return self._thread.submit(guarded)
        except RuntimeError:  # the interpreter shuts down
            done: Future[Any] = Future()
            done.set_result(None)
            return done

    def _with_context(self, messages: list[Any]) -> _Call:
        """Return a call with the context for its last message, and with the earlier context of the conversation."""
        conversation = self._conversation_of(messages)
        told = self._told() if conversation is self._named else None
        if told is not None:
            known = told.items()
            conversation.message_ids = frozenset(known.pop(_SAID, {"said": ()})["said"])
            conversation.blocks |= {
                key: _Block(one["text"], frozenset(one["ids"])) for key, one in known.items() if "text" in one
            }
        digests = [_digest(_said(message)) for message in messages]
        blocks = [conversation.blocks[digest] for digest in digests if digest in conversation.blocks]
        last = as_mapping(messages[-1])
        if isinstance(last, Mapping) and last.get("role") == "user" and digests[-1] not in conversation.blocks:
            text = "\n".join(str(content) for role, content in _said(last) if role == "user")
            shown_ids = {item for block in blocks for item in block.ids}
            about = {"conversation_id": conversation.id, **self._labels}
            found = self._memory.context(text, self._max_tokens, conversation=about, exclude=shown_ids)
            # The model reads the messages of this conversation anyway.
            parts = [item for item in found.parts if not item.evidence or not item.evidence <= conversation.message_ids]
            if parts:
                ids = frozenset(item.id for item in parts)
                new = _Block(str(InjectedContext(tuple(parts))), ids)
                conversation.blocks[digests[-1]] = new
                if told is not None:
                    told.store(digests[-1], {"text": new.text, "ids": sorted(ids)}, ttl=MAX_TTL)
        left = dict(conversation.blocks)
        prompt = [
            message if (block := left.pop(digest, None)) is None else _with_block(message, block.text)
            for message, digest in zip(messages, digests, strict=True)
        ]
        return _Call(messages, prompt, conversation)

    def _told(self) -> KeyValues | None:
        """Return what processes told the named conversation; None without a database for sessions."""
        if self._named is None:
            return None
        try:
            return self._memory.session(self._named.id).told
        except (ConfigurationError, LakeError) as error:
            _log.debug("what a conversation was told is kept in this process only: %s", error)
            return None

    def _conversation_of(self, messages: list[Any]) -> _Conversation:
        """Return the conversation that a list of messages continues, or a new one."""
        if self._named is not None:
            return self._named
        for digest in reversed(_chain(messages)):
            if digest in self._known:
                return self._known[digest]
        return _Conversation(self._memory.new_conversation_id(datetime.now(UTC)))

    def _store(self, call: _Call, answer: Any) -> None:
        conversation = call.conversation or self._conversation_of(call.messages)
        messages = call.messages if answer is None else [*call.messages, answer]
        said = [message for message in messages if not all(role in _INSTRUCTIONS for role, _ in _said(message))]
        if said:
            key = secrets.token_hex(16)
            receipt = self._memory.add(said, conversation_id=conversation.id, idempotency_key=key, **self._labels)
            conversation.message_ids = frozenset(receipt.message_ids)
            if conversation is self._named and (told := self._told()) is not None:
                told.store(_SAID, {"ids": [], "said": receipt.message_ids}, ttl=MAX_TTL)
            self._known[_chain(messages)[-1]] = conversation
            while len(self._known) > _MAX_CONVERSATIONS:
                self._known.popitem(last=False)


class _Stream(_Proxy):
    """A stream of a client. When it ends, `store` gets the message that its chunks add up to."""

    def __init__(self, stream: Any, store: Callable[[dict[str, Any]], Future[Any]]) -> None:
        super().__init__(stream, {"close": self._close, "aclose": self._aclose})
        self._store: Callable[[dict[str, Any]], Future[Any]] | None = store
        self._text: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._chunks: Any = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._chunks = self._chunks or iter(self._target)
        try:
            return self._noted(next(self._chunks))
        except BaseException:
            _waited(self._ended())
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        self._chunks = self._chunks or aiter(self._target)
        try:
            return self._noted(await anext(self._chunks))
        except BaseException:
            await _awaited(self._ended())
            raise

    def __exit__(self, *error: object) -> None:
        _waited(self._ended())
        super().__exit__(*error)

    async def __aexit__(self, *error: object) -> None:
        await _awaited(self._ended())
        await super().__aexit__(*error)

    def __del__(self) -> None:
        """Store what was heard of a stream that was not read to its end."""
        self._ended()

    def _close(self) -> Any:
        _waited(self._ended())
        return self._target.close()

    async def _aclose(self) -> Any:
        await _awaited(self._ended())
        return await self._target.aclose()

    def _noted(self, chunk: Any) -> Any:
        for choice in getattr(chunk, "choices", None) or ():
            delta = getattr(choice, "delta", None)
            if getattr(choice, "index", 0) != 0 or delta is None:
                continue
            self._text.append(getattr(delta, "content", None) or "")
            for part in getattr(delta, "tool_calls", None) or ():
                call = self._calls.setdefault(part.index, {"name": "", "arguments": ""})
                for name in call:
                    call[name] += getattr(part.function, name, None) or ""
        return chunk

    def _ended(self) -> Future[Any] | None:
        """Store the message, once."""
        if self._store is None:
            return None
        store, self._store = self._store, None
        calls = [{"function": call} for _, call in sorted(self._calls.items())]
        message = {"role": "assistant", "content": "".join(self._text) or None}
        return store(message | ({"tool_calls": calls} if calls else {}))


def _waited(work: Future[Any] | None) -> Any:
    """Wait for work of memory; return its result, or None if it takes too long."""
    try:
        return None if work is None else work.result(_MAX_WAIT)
    except TimeoutError:
        _log.warning(_SLOW, _MAX_WAIT)
        return None


async def _awaited(work: Future[Any] | None) -> Any:
    try:
        return None if work is None else await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(work)), _MAX_WAIT)
    except TimeoutError:
        _log.warning(_SLOW, _MAX_WAIT)
        return None


def _message_of(answer: Any) -> Any:
    choices = getattr(answer, "choices", None)
    return choices[0].message if choices else None


def _messages_in(args: Sequence[Any], options: Mapping[str, Any]) -> list[Any] | None:
    """Return the messages of a call: an argument with this name, or the second. None if there are none."""
    messages = options.get("messages", args[1] if len(args) > 1 else None)
    return list(messages) if isinstance(messages, list | tuple) and messages else None


def _said(message: Any) -> list[tuple[object, object]]:
    """Return the role and the text of a message and of its tool calls; empty if it says nothing."""
    return [(part.get("role"), part.get("content")) for part in messages_in(message) if part.get("content")]


def _digest(value: Iterable[object]) -> str:
    return blake2b(json.dumps(list(value), default=str).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _chain(messages: Sequence[Any]) -> list[str]:
    """Return a digest for each beginning of a list of messages. Instructions do not count: they may change."""
    digests: list[str] = []
    for message in messages:
        said = [part for part in _said(message) if part[0] not in _INSTRUCTIONS]
        if said:
            digests.append(_digest([digests[-1] if digests else "", *said]))
    return digests


def _with_block(message: Any, block: str) -> Any:
    """Return a message with context before its text."""
    message = as_mapping(message)
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{block}\n\n{content}"}
    return {**message, "content": [{"type": "text", "text": block}, *content]}
