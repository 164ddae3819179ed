"""The command that coding agents run at each event.

::

    python -P -m memory_pipeline.coding_agents.hook --root LAKE --workspace ID --agent ID [--user ID] < event.json
    python -P -m memory_pipeline.coding_agents.hook --url URL [--user ID] < event.json

It asks the service, if one runs: the one that MEMORY_PIPELINE_URL or --url names, or else the one of this machine that
the lake's ``state/service.json`` tells of. That is cheap, because only parts of the standard library are imported.
Without a service, it opens the memory in this process.

It never stops the agent. Whatever fails is a line on the standard error, and the exit code is 0; so it is after 20 s.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Where the service of a lake says that it runs, by a path in the lake's folder.
SERVICE: Final = "state/service.json"
#: Seconds that the service has for an answer, and the whole hook.
_PATIENCE: Final = 5.0
_LIMIT: Final = 20.0
#: Fields of an event that no other event has.
_UNIQUE: Final = ("turn_id", "generation_id")


def main(arguments: Sequence[str]) -> None:
    """Handle the event on the standard input."""
    try:
        timer = threading.Timer(float(os.environ.get("MEMORY_PIPELINE_HOOK_SECONDS", _LIMIT)), _give_up)
        timer.daemon = True
        timer.start()
        answer = _answer(dict(zip(arguments[::2], arguments[1::2], strict=True)), sys.stdin.buffer.read())
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    except Exception as error:  # noqa: BLE001  # memory must not stop an agent
        _tell(f"{type(error).__name__}: {error}")


def _answer(options: Mapping[str, str], body: bytes) -> bytes:
    event = json.loads(body)
    key = _key(event, body)
    named = os.environ.get("MEMORY_PIPELINE_URL") or options.get("--url")
    url = named or _running(options)
    if url is not None:
        try:
            return _asked(url, options, event, key, body)
        except Exception as error:
            if named is not None:  # another memory than the one that was named would be wrong
                raise
            _tell(f"the service at {url} does not answer, so the hook takes longer: {error}")
    from memory_pipeline.client.memory import Memory
    from memory_pipeline.coding_agents.events import respond

    workspace, agent = options["--workspace"], options["--agent"]
    memory = Memory(options["--root"], workspace_id=workspace, agent_id=agent, user_id=options.get("--user"))
    found = respond(memory, event, key)
    return json.dumps(found).encode() if found else b""


def _asked(url: str, options: Mapping[str, str], event: Mapping[str, Any], key: str | None, body: bytes) -> bytes:
    """Return the answer of the service."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.parse import quote, urlsplit

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_PATIENCE)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    if token := os.environ.get("MEMORY_PIPELINE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    if user := options.get("--user"):
        headers["X-Memory-User"] = user.encode().decode("latin-1")
    if key is not None:
        headers["Idempotency-Key"] = key
    try:
        path = f"{parts.path.rstrip('/')}/v1/hooks/{quote(str(event.get('hook_event_name')), safe='')}"
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status not in {200, 204}:
        raise OSError(f"status {response.status}: {answer[:300].decode(errors='replace')}")
    return answer


def _running(options: Mapping[str, str]) -> str | None:
    """Return the address of the service that runs for the same lake and agent, or None."""
    from memory_pipeline.operating_system import is_running

    try:
        with open(os.path.join(options["--root"], SERVICE), "rb") as file:  # noqa: PTH118, PTH123  # pathlib takes 10 ms
            service = json.load(file)
    except (OSError, ValueError):
        return None
    same = (options["--workspace"], options["--agent"])
    token = os.environ.get("MEMORY_PIPELINE_TOKEN")
    # A token opens the memory of an agent of its own, whichever the service has by default.
    if not is_running(service["pid"]) or (token is None and same != (service["workspace"], service["agent"])):
        return None
    return str(service["url"])


def _key(event: Mapping[str, Any], body: bytes) -> str | None:
    """Return what identifies an event: equal if the hook runs again, different if the user says the same again."""
    from hashlib import sha256

    mark = next((str(event[name]) for name in _UNIQUE if event.get(name)), None)
    if mark is None:
        try:
            mark = str(os.stat(event["transcript_path"]).st_size)  # noqa: PTH116  # as above
        except (KeyError, TypeError, OSError, ValueError):
            return None
    return sha256(mark.encode() + b" " + body).hexdigest()


def _give_up() -> None:
    _tell("memory takes too long; the agent goes on without it")
    os._exit(0)


def _tell(text: str) -> None:
    sys.stderr.write(f"memory-pipeline: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
    # What was said is durable. An agent that no longer reads, or a thread that goes on, must not change the exit code.
    os._exit(0)
