"""Wrap a chat client, so that its prompts get context from memory and what is said is stored.

Wrapped are the calls of OpenAI's chat and Responses API, of Anthropic's messages, and of LiteLLM's functions and
Router: sync, async, streams, ``stream`` and ``with_raw_response``. The wrapped client is a copy, of the same class.
Everything else is passed through unchanged, and so are the answers, streams and errors of the client.

Before a call, what memory holds about the last message of the user is added to the beginning of that message. Later
calls of the conversation add only what is new. Earlier additions are repeated in their places: the model needs them,
and a provider's prompt cache stays valid. With a ``conversation_id`` and a database for sessions, this also holds for
calls of other processes within a day. After a call, the new messages and the answer are stored; those of a stream
when it ends. If the answer cannot be read, the new messages are stored without it.

Memory never raises. If it fails, a warning is logged once, and the call is made without it. If it takes long, the call
does not wait.
"""

from __future__ import annotations

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
from functools import partial, wraps
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from memory_pipeline.client.chat_calls import Argument, argument_of, with_calls
from memory_pipeline.client.streams import Heard, RecordedManager, RecordedStream, awaited, waited
from memory_pipeline.domain.chat_messages import answer_in, as_mapping, field_of, messages_in
from memory_pipeline.domain.sessions import MAX_TTL
from memory_pipeline.errors import ConfigurationError, InputError, LakeError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory_pipeline.reader.packing.items import InjectedContext
    from memory_pipeline.sessions.views import KeyValues, SessionMemory
    from memory_pipeline.writer import Receipt

Client = TypeVar("Client")

_log = logging.getLogger(__name__)
#: Conversations that are remembered: those with the latest calls.
_MAX_CONVERSATIONS: Final = 1_000
#: The header by which clients of OpenAI and Anthropic ask for a raw response: ``true``, or ``stream``.
_RAW: Final = "X-Stainless-Raw-Response"
#: The key of the ids of the messages that the model has read, among what it was told.
_SAID: Final = "messages"
#: Roles of messages that nobody says in the conversation.
_INSTRUCTIONS: Final = frozenset(["system", "developer"])


class ChatMemory(NamedTuple):
    """The methods of a :class:`~memory_pipeline.Memory` that the wrapper calls."""

    context: Callable[..., InjectedContext]
    add: Callable[..., Receipt]
    new_conversation_id: Callable[[datetime], str]
    session: Callable[[str], SessionMemory]


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
    with suppress(TypeError, AttributeError):  # a module, or an object that cannot be copied
        if (copied := with_calls(client, recorder.around)) is not None:
            return copied  # type: ignore[no-any-return]  # it behaves as the client does
    if (
        callable(client)
        and not isinstance(client, type)
        and not hasattr(client, "invoke")
        and argument_of(client) is not None
    ):
        return recorder.around(client)  # type: ignore[return-value]  # it has the same signature
    raise InputError(
        f"client {shown(client)} cannot be wrapped; expected a client of OpenAI or Anthropic, a Router of LiteLLM, or "
        "a function with the argument messages, such as litellm.completion; with another client, call memory.context "
        "before a prompt and memory.add after it"
    )


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
    """A call with its messages, and the messages with context to send in their place.

    Attributes:
        key: what names the conversation in a call of the Responses API that continues one.
    """

    messages: list[Any]
    prompt: list[Any]
    conversation: _Conversation | None = None
    key: object = None


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
        #: By the digests of all messages of their last call, with the answer, and of the last two.
        self._known: OrderedDict[str, _Conversation] = OrderedDict()
        #: Why the last call of a kind of work failed. A reason is a warning once, until the work succeeds.
        self._reasons: dict[Callable[..., Any], str] = {}
        self._thread = ThreadPoolExecutor(1, "memory")
        self._submit(self._warm_up)

    def _warm_up(self) -> None:
        """Read the index before the first prompt. The prompt reports errors."""
        with suppress(Exception):
            self._memory.context(conversation={}, exclude=())

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls `function` with context, and stores its messages and its answer."""
        argument = argument_of(function) or Argument("messages", None)

        if inspect.iscoroutinefunction(inspect.unwrap(function)):

            @wraps(function)
            async def with_memory_async(*args: Any, **options: Any) -> Any:
                messages = argument.messages(args, options)
                if not messages:
                    return await function(*args, **options)
                call = await awaited(self._submit(self._with_context, messages, options)) or _Call(messages, messages)
                args, options = argument.replaced(args, options, call.prompt)
                return await self._answered(call, function(*args, **options), options)

            return with_memory_async

        @wraps(function)
        def with_memory(*args: Any, **options: Any) -> Any:
            messages = argument.messages(args, options)
            if not messages:
                return function(*args, **options)
            call = waited(self._submit(self._with_context, messages, options)) or _Call(messages, messages)
            args, options = argument.replaced(args, options, call.prompt)
            answer = function(*args, **options)
            if inspect.isawaitable(answer):
                return self._answered(call, answer, options)
            answer, work = self._recorded(call, answer, _parsed(answer, options), options)
            waited(work)
            return answer

        return with_memory

    async def _answered(self, call: _Call, answer: Any, options: Mapping[str, Any]) -> Any:
        answer = await answer
        parsed = _parsed(answer, options)
        if parsed is not answer and inspect.isawaitable(parsed):
            parsed = await _or_none(parsed)
        answer, work = self._recorded(call, answer, parsed, options)
        await awaited(work)
        return answer

    def _recorded(
        self, call: _Call, answer: Any, parsed: Any, options: Mapping[str, Any]
    ) -> tuple[Any, Future[Any] | None]:
        """Return the answer for the caller, and the work that stores it; None if it is stored when a stream ends.

        `parsed` is the answer, or what a raw response contains.
        """
        if (options.get("stream") and parsed is answer) or _is_stream(parsed):
            stream = RecordedStream(parsed, lambda heard: self._submit(self._store, call, heard))
            if parsed is answer:
                return stream, None
            answer.parse = _returning(stream, is_async=inspect.iscoroutinefunction(answer.parse))
            return answer, None
        if answer_in(parsed) is None and parsed is answer and _is_manager(answer):
            return RecordedManager(answer, partial(self._submit, self._store, call)), None
        return answer, self._submit(self._store, call, parsed)

    def _submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        def guarded() -> Any:
            try:
                result = work(*args)
            except Exception as error:  # noqa: BLE001  # no error of memory may stop a conversation
                reason = getattr(error, "strerror", None) or str(error)
                level = logging.DEBUG if reason in self._reasons.values() else logging.WARNING
                self._reasons[work] = reason
                _log.log(level, "memory failed: %s: %s", type(error).__name__, error)
                return None
            self._reasons.pop(work, None)
            return result

        try:
            return self._thread.submit(guarded)
        except RuntimeError:  # the interpreter shuts down
            done: Future[Any] = Future()
            done.set_result(None)
            return done

    def _with_context(self, messages: list[Any], options: Mapping[str, Any]) -> _Call:
        """Return a call with the context for its last message, and with the earlier context of the conversation."""
        key = options.get("previous_response_id") or options.get("conversation") or None
        key = field_of(key, "id") or key
        conversation = self._conversation_of(messages, key)
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
        text = "\n".join(str(content) for role, content in _said(last) if role == "user")
        if text and _with_block(last, "") is not None and digests[-1] not in conversation.blocks:
            shown_ids = {item for block in blocks for item in block.ids}
            about = {"conversation_id": conversation.id, **self._labels}
            said = conversation.message_ids
            found = self._memory.context(
                text, self._max_tokens, conversation=about, exclude=shown_ids, known_messages=said
            )
            if found.parts:
                ids = frozenset(item.id for item in found.parts)
                new = _Block(str(found), ids)
                conversation.blocks[digests[-1]] = new
                if told is not None:
                    told.store(digests[-1], {"text": new.text, "ids": sorted(ids)}, ttl=MAX_TTL)
        left = dict(conversation.blocks)
        prompt = [
            message if (block := left.pop(digest, None)) is None else _with_block(message, block.text)
            for message, digest in zip(messages, digests, strict=True)
        ]
        return _Call(messages, prompt, conversation, key)

    def _told(self) -> KeyValues | None:
        """Return what processes told the named conversation; None without a database for sessions."""
        if self._named is None:
            return None
        try:
            return self._memory.session(self._named.id).told
        except (ConfigurationError, LakeError) as error:
            _log.debug("what a conversation was told is kept in this process only: %s", error)
            return None

    def _conversation_of(self, messages: list[Any], key: object) -> _Conversation:
        """Return the conversation that a key names, or that a list of messages continues, or a new one.

        The list may hold all of the conversation, or its end.
        """
        if self._named is not None:
            return self._named
        digests = [str(key)] if key is not None else [*_chain(messages)[::-1], *_ends(messages)[-2::-1]]
        for digest in digests:
            if digest in self._known:
                return self._known[digest]
        return _Conversation(self._memory.new_conversation_id(datetime.now(UTC)))

    def _added(self, asked: list[Any], answers: list[Any], conversation: _Conversation) -> Receipt:
        """Store what was asked with the answer; without the answer if it cannot be stored."""
        about = {"conversation_id": conversation.id, **self._labels}
        if answers:
            with suppress(InputError):
                return self._memory.add([*asked, *answers], idempotency_key=secrets.token_hex(16), **about)
        receipt = self._memory.add(asked, idempotency_key=secrets.token_hex(16), **about)
        if answers:
            _log.warning("an answer cannot be stored, but what was asked is")
        return receipt

    def _store(self, call: _Call, answer: Any) -> None:
        conversation = call.conversation or self._conversation_of(call.messages, call.key)
        asked = _without_instructions(call.messages)
        answers, answer_id = _answers(answer)
        if not asked:
            return
        receipt = self._added(asked, answers, conversation)
        messages = [*call.messages, *answers]
        # The server of the Responses API knows what was said before.
        before = conversation.message_ids if call.key is not None else frozenset()
        conversation.message_ids = before | frozenset(receipt.message_ids)
        if conversation is self._named and (told := self._told()) is not None:
            told.store(_SAID, {"ids": [], "said": receipt.message_ids}, ttl=MAX_TTL)
        names = [*_ends(messages)[-1:], *_chain(messages)[-1:]] if call.key is None else [str(call.key)]
        self._known |= dict.fromkeys([*names, *([] if answer_id is None else [answer_id])], conversation)
        while len(self._known) > _MAX_CONVERSATIONS:
            self._known.popitem(last=False)


def _without_instructions(messages: Sequence[Any]) -> list[Any]:
    return [message for message in messages if not all(role in _INSTRUCTIONS for role, _ in _said(message))]


def _answers(answer: Any) -> tuple[list[Any], str | None]:
    """Return the messages of an answer, and the id by which a call of the Responses API continues it."""
    try:
        found = answer.messages() if isinstance(answer, Heard) else answer_in(answer)
        if found is None:
            raise InputError(f"{type(answer).__name__} is no answer of a known client")
        found = _without_instructions(found)
    except Exception as error:  # noqa: BLE001  # it may be anything
        _log.warning("an answer cannot be read, but what was asked is stored: %s", error)
        return [], None
    answer_id = field_of(answer, "id")
    if isinstance(answer_id, str) and (isinstance(answer, Heard) or field_of(answer, "output") is not None):
        return found, answer_id
    # Other answers come back without their ids. Some servers give all of them the same.
    return [{**one, "id": None} if isinstance(one, Mapping) else one for one in map(as_mapping, found)], None


def _parsed(answer: Any, options: Mapping[str, Any]) -> Any:
    """Return what a raw response contains, perhaps to await; other answers unchanged, and None if it cannot be read."""
    if (options.get("extra_headers") or {}).get(_RAW) is None:
        return answer
    with suppress(Exception):  # the caller gets the same error
        return answer.parse() if options["extra_headers"][_RAW] != "stream" else None
    return None


async def _or_none(work: Any) -> Any:
    with suppress(Exception):  # the caller gets the same error
        return await work
    return None


def _returning(value: Any, *, is_async: bool) -> Callable[..., Any]:
    async def returned(*_: Any, **__: Any) -> Any:  # as the method that it replaces
        return value

    return returned if is_async else lambda *_, **__: value


def _is_stream(answer: Any) -> bool:
    return hasattr(answer, "__next__") or hasattr(answer, "__anext__")


def _is_manager(answer: Any) -> bool:
    return hasattr(type(answer), "__exit__") or hasattr(type(answer), "__aexit__")


def _said(message: Any) -> list[tuple[object, object]]:
    """Return the role and the text of a message and of its tool calls; empty if it says nothing."""
    return [(part.get("role"), part.get("content")) for part in messages_in(message) if part.get("content")]


def _digest(value: Iterable[object]) -> str:
    return blake2b(json.dumps(list(value), default=str).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _chain(messages: Sequence[Any]) -> list[str]:
    """Return a digest for each beginning of a list of messages. Instructions do not count: they may change."""
    digests: list[str] = []
    for said in _spoken(messages):
        digests.append(_digest([digests[-1] if digests else "", *said]))
    return digests


def _ends(messages: Sequence[Any]) -> list[str]:
    """Return a digest for each two messages in a row: the end of a conversation, in a list whose beginning is cut."""
    return [_digest(["end", *one, *other]) for one, other in pairwise(_spoken(messages))]


def _spoken(messages: Sequence[Any]) -> list[list[tuple[object, object]]]:
    said = ([part for part in _said(message) if part[0] not in _INSTRUCTIONS] for message in messages)
    return [parts for parts in said if parts]


def _with_block(message: Any, block: str) -> Any:
    """Return a message with context before its first text; None if it has no text."""
    message = as_mapping(message)
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": f"{block}\n\n{content}"}
    parts = [as_mapping(part) for part in content or ()]
    for place, part in enumerate(parts):
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            return {**message, "content": [*parts[:place], {"type": part.get("type"), "text": block}, *parts[place:]]}
    return None
