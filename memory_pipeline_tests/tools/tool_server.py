"""An HTTP server on loopback with OpenAI's chat protocol, which calls tools as the test says.

::

    with ToolServer([[("search_memories", {"query": "Porto"})]]) as server:
        litellm.completion("openai/test", messages, tools=..., api_base=server.base_url, api_key="k")

Each reply contains the tool calls of one round; after the last round it answers with the tools' texts. Like the real
ones, it rejects conversations with unanswered calls or with answers to no call.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Name and arguments of a call. Text arguments are sent unchanged.
Call = tuple[str, dict[str, Any] | str]


class ToolServer:
    """A server on a port of loopback.

    Attributes:
        rounds: the tool calls of each reply.
        requests: bodies of the requests.
        refusals: reasons of rejected requests.
    """

    def __init__(self, rounds: Sequence[Sequence[Call]]) -> None:
        self.rounds = list(rounds)
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the assistant's message.

        Raises:
            ValueError: OpenAI's servers would reject the conversation.
        """
        offered = {tool["function"]["name"] for tool in body.get("tools") or []}
        open_calls: set[str] = set()
        told: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    raise ValueError(f"tool_call_id {message['tool_call_id']} answers no call")
                open_calls.remove(message["tool_call_id"])
                told.append(message["content"])
                continue
            if open_calls:
                raise ValueError(f"tool calls {sorted(open_calls)} are not answered")
            if message["role"] == "user":
                told = []
                done = 0
            for call in message.get("tool_calls") or []:
                open_calls.add(call["id"])
            done += bool(message.get("tool_calls"))
        if open_calls:
            raise ValueError(f"tool calls {sorted(open_calls)} are not answered")
        if done == len(self.rounds):
            return {"role": "assistant", "content": "I found: " + "\n".join(told)}
        asked = self.rounds[done]
        if not {name for name, _ in asked} <= offered:
            raise ValueError(f"{[name for name, _ in asked]} are not among the tools {sorted(offered)}")
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": f"call_{len(body['messages'])}_{number}",
                    "type": "function",
                    "function": {
                        "name": name,
                        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                    },
                }
                for number, (name, arguments) in enumerate(asked)
            ],
        }


def _handler(owner: ToolServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are sent one after the other

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name in the base class
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            owner.requests.append(body)
            try:
                message = owner.reply(body)
            except (ValueError, KeyError) as error:
                owner.refusals.append(str(error))
                self._send(400, {"error": {"message": str(error), "type": "invalid_request_error", "code": None}})
                return
            reason = "tool_calls" if "tool_calls" in message else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            self._send(
                200,
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": body["model"],
                    "choices": [choice],
                    "usage": usage,
                },
            )

        def _send(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler
