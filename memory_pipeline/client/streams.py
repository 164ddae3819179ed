"""Streams of chat clients: passed on unchanged, and put together to the message that they say."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from memory_pipeline.domain.chat_messages import answer_in, field_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

_log = logging.getLogger(__name__)
#: Seconds that a call waits for memory. The first search of a process takes longest.
_MAX_WAIT: Final = 5.0
_SLOW: Final = "memory takes longer than %g s; the call does not wait for it"


def waited(work: Future[Any] | None) -> Any:
    """Wait for work of memory; return its result, or None if it takes too long."""
    try:
        return None if work is None else work.result(_MAX_WAIT)
    except TimeoutError:
        _log.warning(_SLOW, _MAX_WAIT)
        return None


async def awaited(work: Future[Any] | None) -> Any:
    """Wait as :func:`waited` does, in an event loop."""
    try:
        return None if work is None else await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(work)), _MAX_WAIT)
    except TimeoutError:
        _log.warning(_SLOW, _MAX_WAIT)
        return None


class Proxy:
    """An object with some of its attributes replaced. It is an instance of the same class."""

    def __init__(self, target: Any, replaced: dict[str, Any]) -> None:
        self._target = target
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._target, name)

    @property  # type: ignore[misc]  # nobody sets it
    def __class__(self) -> Any:  # what isinstance() looks at
        return type(self._target)


class Heard:
    """What the chunks of a stream add up to: those of OpenAI's chat or Responses API, LiteLLM or Anthropic."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[Any, dict[str, str]] = {}
        self._whole: Any = None

    def note(self, chunk: Any) -> None:
        """Add a chunk. What is not known is left out."""
        kind = field_of(chunk, "type")
        for choice in field_of(chunk, "choices") or ():
            delta = field_of(choice, "delta")
            if (field_of(choice, "index") or 0) == 0 and delta is not None:
                self._say(field_of(delta, "content"))
                for part in field_of(delta, "tool_calls") or ():
                    function = field_of(part, "function")
                    self._call(field_of(part, "index"), field_of(function, "name"), field_of(function, "arguments"))
        if kind == "response.output_text.delta":
            self._say(field_of(chunk, "delta"))
        elif kind in ("response.completed", "response.incomplete"):
            self._whole = field_of(chunk, "response")
        elif kind == "content_block_start":
            block = field_of(chunk, "content_block")
            self._say(field_of(block, "text"))
            if field_of(block, "name") is not None:
                self._call(field_of(chunk, "index"), field_of(block, "name"), None)
        elif kind == "content_block_delta":
            delta = field_of(chunk, "delta")
            self._say(field_of(delta, "text"))
            self._call(field_of(chunk, "index"), None, field_of(delta, "partial_json"))

    def _say(self, text: Any) -> None:
        if isinstance(text, str):
            self._text.append(text)

    def _call(self, place: Any, name: Any, arguments: Any) -> None:
        if name or arguments:
            call = self._calls.setdefault(place, {"name": "", "arguments": ""})
            call["name"] += name or ""
            call["arguments"] += arguments or ""

    def messages(self) -> list[Any]:
        """Return the messages of the answer; none if nothing was understood."""
        if self._whole is not None:
            return answer_in(self._whole) or []
        calls = [{"function": call} for _, call in sorted(self._calls.items(), key=lambda one: str(one[0]))]
        message = {"role": "assistant", "content": "".join(self._text) or None}
        return [message | ({"tool_calls": calls} if calls else {})] if self._text or calls else []

    @property
    def id(self) -> Any:
        """The id of a response of the Responses API, if it came to its end."""
        return field_of(self._whole, "id")


class RecordedStream(Proxy):
    """A stream of a client. When it ends, `store` gets what was heard."""

    def __init__(self, stream: Any, store: Callable[[Heard], Future[Any]]) -> None:
        super().__init__(stream, {"close": self._close, "aclose": self._aclose})
        self._store: Callable[[Heard], Future[Any]] | None = store
        self._heard = Heard()
        self._chunks: Any = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._chunks = self._chunks or iter(self._target)
        try:
            return self._noted(next(self._chunks))
        except BaseException:
            waited(self._ended())
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        self._chunks = self._chunks or aiter(self._target)
        try:
            return self._noted(await anext(self._chunks))
        except BaseException:
            await awaited(self._ended())
            raise

    def __enter__(self) -> Self:
        self._target.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        waited(self._ended())
        self._target.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await awaited(self._ended())
        await self._target.__aexit__(*error)

    def __del__(self) -> None:
        """Store what was heard of a stream that was not read to its end."""
        self._ended()

    def _close(self) -> Any:
        waited(self._ended())
        return self._target.close()

    async def _aclose(self) -> Any:
        await awaited(self._ended())
        return await self._target.aclose()

    def _noted(self, chunk: Any) -> Any:
        with suppress(Exception):  # a chunk of another kind must not end the stream
            self._heard.note(chunk)
        return chunk

    def _ended(self) -> Future[Any] | None:
        """Store what was heard, once."""
        if self._store is None:
            return None
        store, self._store = self._store, None
        return store(self._heard)


class RecordedManager(Proxy):
    """A context manager that opens a stream, as Anthropic's ``stream``. At its end, `store` gets the answer."""

    def __init__(self, manager: Any, store: Callable[[Any], Future[Any]]) -> None:
        super().__init__(manager, {})
        self._store = store
        self._stream: Any = None

    def __enter__(self) -> Any:
        self._stream = self._target.__enter__()
        return self._stream

    def __exit__(self, *error: object) -> Any:
        waited(self._store(self._answer()))
        return self._target.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._stream = await self._target.__aenter__()
        return self._stream

    async def __aexit__(self, *error: object) -> Any:
        await awaited(self._store(self._answer()))
        return await self._target.__aexit__(*error)

    def _answer(self) -> Any:
        for name in ("current_message_snapshot", "current_completion_snapshot"):
            with suppress(AssertionError, AttributeError):  # nothing was heard yet, or another kind of stream
                return getattr(self._stream, name)
        return None
