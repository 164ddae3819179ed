"""Valid and faulty answers in OpenAI's format, for :mod:`~memory_pipeline_tests.openai_server`."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Route = Literal["chat", "embeddings", "rerank", "responses", "messages"]

CHAT_FAULTS = frozenset({"bad_content", "fenced", "length", "refusal", "filtered"})
EMBEDDING_FAULTS = frozenset({"wrong_dims", "wrong_count", "reorder", "nan", "zero"})
OTHER_FAULTS = frozenset(
    "quota context_length policy leak error_200 slow hang reset dribble padded malformed html truncated empty".split()
)
#: Faults with their status, code and message.
ERRORS = {
    "429": (429, "rate_limit_exceeded", "Rate limit reached for requests."),
    "quota": (429, "insufficient_quota", "You exceeded your current quota, please check your plan and billing."),
    "context_length": (400, "context_length_exceeded", "This model's maximum context length is 8192 tokens."),
    "policy": (400, "content_policy_violation", "Your request was rejected by the safety system."),
}
DELAYS = {"slow": 1.0, "hang": 3600.0, "dribble": 0.05, "padded": 0.05}


@dataclass(slots=True)
class Fault:
    """A fault and the requests that it strikes; :mod:`~memory_pipeline_tests.openai_server` lists the kinds."""

    kind: str
    times: int | None = 1
    after: int = 0
    every: int | None = None
    path: Route | None = None
    match: str | None = None
    probability: float | None = None
    retry_after: float | str | None = None
    delay: float | None = None
    dims: int = 7
    #: Number of matching requests, and of those struck.
    seen: int = field(default=0, init=False)
    struck: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if (
            not re.fullmatch("[45][0-9]{2}", self.kind)
            and self.kind not in CHAT_FAULTS | EMBEDDING_FAULTS | OTHER_FAULTS
        ):
            raise ValueError(f"no fault is called {self.kind!r}")

    def strikes(self, path: Route, text: str, chance: float) -> bool:
        """Count the request and return whether it is struck; `chance` is a random number from 0 to 1."""
        others = {"chat": EMBEDDING_FAULTS, "embeddings": CHAT_FAULTS, "rerank": EMBEDDING_FAULTS | CHAT_FAULTS}
        if self.kind in others[path] or self.path not in {None, path}:
            return False
        if self.match is not None and not re.search(self.match, text):
            return False
        self.seen += 1
        number = self.seen - self.after
        if number < 1 or (self.every is not None and number % self.every):
            return False
        if (self.probability is not None and chance >= self.probability) or self.struck == self.times:
            return False
        self.struck += 1
        return True


def chat_reply(body: Json, answer: str | Json | None, kind: str = "") -> Json:
    """Return the answer to a chat request; `None` gives the default, an object becomes JSON."""
    answer = default_answer(body) if answer is None else answer
    content: str | None = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    finish, refusal = "stop", None
    if kind == "bad_content":
        content = "I would rather tell it in my own words."
    elif kind == "fenced":
        content = f"Here is what you asked for:\n\n```json\n{content}\n```\n\nIs there anything else?"
    elif kind == "length":
        content, finish = (content or "")[: len(content or "") // 2], "length"
    elif kind == "refusal":
        content, refusal = None, "I cannot help with that."
    elif kind == "filtered":
        content, finish = None, "content_filter"
    message: Json = {"role": "assistant", "content": content, "refusal": refusal}
    if isinstance(answer, dict) and "tool_calls" in answer:
        message |= {"content": None, "tool_calls": answer["tool_calls"]}
        finish = "tool_calls"
    asked = "".join(str(message.get("content")) for message in body["messages"])
    usage = _usage(asked, completion_tokens=count_tokens(content or ""))
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return _reply("chat.completion", body, choices=[choice], usage=usage)


def as_stream(reply: Json) -> bytes:
    """Return a chat reply as server-sent events: a chunk for each word, or for each half of a tool call."""
    [choice] = reply["choices"]
    message = choice["message"]
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in re.findall(r"\s*\S+", message["content"] or "")]
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        half = len(function["arguments"]) // 2
        begun = {**call, "index": number, "function": {**function, "arguments": function["arguments"][:half]}}
        deltas += [{"tool_calls": [begun]}]
        deltas += [{"tool_calls": [{"index": number, "function": {"arguments": function["arguments"][half:]}}]}]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    records = [{**reply, "object": "chat.completion.chunk", "choices": [chunk], "usage": None} for chunk in chunks]
    return b"".join(f"data: {json.dumps(record)}\n\n".encode() for record in records) + b"data: [DONE]\n\n"


def response_reply(text: str) -> Json:
    """Return the answer to a request of the Responses API: a search, then a text."""
    said = {"type": "output_text", "text": text, "annotations": []}
    message = {
        "type": "message",
        "id": f"m_{hash(text)}",
        "role": "assistant",
        "status": "completed",
        "content": [said],
    }
    search = {
        "type": "web_search_call",
        "id": "w1",
        "status": "completed",
        "action": {"type": "search", "query": "tea"},
    }
    return {
        "id": f"resp_{hash(text)}", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [search, message], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def response_stream(reply: Json) -> bytes:
    """Return an answer of the Responses API as server-sent events: one for each word, and the whole."""
    message = reply["output"][-1]
    begun = {**reply, "output": [], "status": "in_progress"}
    empty = {**message["content"][0], "text": ""}
    place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.content_part.added", **place, "part": empty},
    ]
    words = re.findall(r"\s*\S+", message["content"][0]["text"])
    events += [{"type": "response.output_text.delta", **place, "delta": word, "logprobs": []} for word in words]
    events.append({"type": "response.completed", "response": {**reply, "output": [message]}})
    return _events([{**event, "sequence_number": number} for number, event in enumerate(events)])


def message_reply(text: str) -> Json:
    """Return the answer to a request of Anthropic's API: a text and a call of a tool."""
    return {
        "id": f"msg_{hash(text)}", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": text}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def message_stream(reply: Json) -> bytes:
    """Return an answer of Anthropic's API as server-sent events."""
    said, call = reply["content"]
    events: list[Json] = [
        {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    words = re.findall(r"\s*\S+", said["text"])
    deltas = [{"type": "text_delta", "text": word} for word in words]
    events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {**call, "input": {}}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": json.dumps(call["input"])},
        },
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return _events(events)


def _events(events: list[Json]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def embedding_reply(body: Json, dimension: int, kind: str = "") -> Json:
    """Return the vectors for a request, as numbers or in base64, as requested."""
    given = body["input"] if isinstance(body["input"], list) else [body["input"]]
    texts = [text if isinstance(text, str) else json.dumps(text) for text in given]
    vectors = [embedding(text, dimension) for text in texts]
    if kind in {"nan", "zero"}:
        vectors[0] = np.zeros_like(vectors[0])
        vectors[0][0] = np.nan if kind == "nan" else 0.0
    elif kind == "wrong_count":
        vectors = vectors[:-1] or vectors * 2
    is_base64 = body.get("encoding_format") == "base64"
    data: list[Json] = [
        {
            "object": "embedding",
            "index": index,
            "embedding": base64.b64encode(vector.tobytes()).decode() if is_base64 else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    return _reply("list", body, data=data[::-1] if kind == "reorder" else data, usage=_usage("".join(texts)))


def rerank_reply(body: Json, results: list[Json] | None) -> Json:
    """Return `results`, by default the documents by the number of words that they share with the query."""
    words = set(re.findall(r"\w+", body["query"].lower()))
    shared = [len(words & set(re.findall(r"\w+", text.lower()))) for text in body["documents"]]
    order = sorted(range(len(shared)), key=lambda place: -shared[place])
    ranked = [{"index": place, "relevance_score": shared[place] / (len(words) or 1)} for place in order]
    tokens = _usage("".join([body["query"], *body["documents"]]))
    meta = {"billed_units": {"search_units": 1}, "tokens": {"input_tokens": tokens["prompt_tokens"]}}
    return _reply("rerank", body, results=ranked if results is None else results, meta=meta, usage=tokens)


def embedding(text: str, dimension: int) -> NDArray[np.float32]:
    """Return a unit vector hashed from the text."""
    numbers = np.frombuffer(hashlib.shake_256(text.encode()).digest(4 * dimension), "<u4") / 2.0**31 - 1.0
    return np.asarray(numbers / np.linalg.norm(numbers), np.float32)


def default_answer(body: Json) -> str | Json:
    """Return the smallest instance of the request's schema; without one, "{}" for JSON, else the last message."""
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        return json.dumps(least_instance(wanted["json_schema"]["schema"]))
    return {} if wanted.get("type") == "json_object" else str(body["messages"][-1]["content"])


def least_instance(schema: Json, definitions: Json | None = None) -> Any:  # noqa: PLR0911  # one for each type
    """Return the smallest value that a JSON schema accepts: no optional keys, shortest lists, smallest numbers."""
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return least_instance(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for key in ("anyOf", "oneOf"):
        if key in schema:  # null first, since a recursive record would never end
            return least_instance(min(schema[key], key=lambda one: one.get("type") != "null"), definitions)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    match "null" if "null" in kind else kind if isinstance(kind, str) else kind[0]:
        case "object":
            properties = schema.get("properties", {})
            return {name: least_instance(properties.get(name, {}), definitions) for name in schema.get("required", [])}
        case "array":
            return [least_instance(schema.get("items", {}), definitions) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "x" * schema.get("minLength", 0)
        case "integer":
            return max(math.ceil(schema.get("minimum", 0)), math.floor(schema.get("exclusiveMinimum", -1)) + 1)
        case "number":
            return max(schema.get("minimum", 0), schema.get("exclusiveMinimum", -1) + 1)
        case "boolean":
            return False
    return None


def count_tokens(text: str) -> int:
    """Return one token per 4 bytes."""
    return -(-len(text.encode()) // 4)


def _usage(asked: str, **answered: int) -> Json:
    tokens = count_tokens(asked)
    return {"prompt_tokens": tokens, **answered, "total_tokens": tokens + sum(answered.values())}


def _reply(kind: str, body: Json, **parts: Any) -> Json:
    return {"id": "reply", "object": kind, "created": int(time.time()), "model": body.get("model"), **parts}
