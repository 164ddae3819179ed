"""Tokens that models read and write for 1,000 short messages, and what of them a provider bills.

The server is that of the tests, over HTTP. It answers with a fact for each message of the user, an operation for every
third, and a point for each line of a summary. Requests are counted as a provider counts them, with the tokenizer
``cl100k_base``: the schema of the answer, the system message and the user message.

- cached: tokens of a beginning that the request before of the same kind has, too. As OpenAI does it, it counts from
  1,024 tokens on, in steps of 128;
- billed at 10 %, at 50 %: the input if cached tokens cost so much of the others. OpenAI bills 10 % for gpt-5, 25 % for
  gpt-4.1 and 50 % for gpt-4o; Anthropic 10 %.

In the rows "a run an hour" each hour is asked about alone; in the others one run reads all hours. Below, to compare,
are the tokens of mem0's constant instructions, if each of those hours was one call of its ``add``:
ADDITIVE_EXTRACTION_PROMPT in mem0/configs/prompts.py of github.com/mem0ai/mem0 (8d5b786).
"""

from __future__ import annotations

import json
import random
import re
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from benchmarks.generator import START, WORKSPACE, text
from benchmarks.ingest import write
from benchmarks.measure import Table, progress
from memory_pipeline.client.pipeline import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.models.factory import configured_models
from memory_pipeline_tests import oracle
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.generator import Conversation
    from benchmarks.measure import Cell
    from memory_pipeline_tests.openai_server import Request

_MESSAGES = 1_000
_HOURS_A_DAY = 8
#: Tokens of mem0's constant instructions by ``cl100k_base``; see this module's docstring.
_MEM0 = 7_671
#: Fewest tokens of a beginning that is cached, and the step of its length.
_LEAST, _STEP = 1_024, 128
_LINE = re.compile(r"^\[(\d+)\] \S+ \w+ \d{2}:\d{2} user ([^:]+): (.*)$", re.MULTILINE)


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    messages = _MESSAGES // 10 if quick else _MESSAGES
    table = Table(
        "tokens",
        f"for {messages:,} messages of one user and an assistant; {_HOURS_A_DAY} hours a day, but one busy chat",
    )
    for name, an_hour, minimum in (
        ("5 an hour", 5, None),
        ("5 an hour, a run an hour", 5, 0),
        ("10 an hour", 10, None),
        ("10 an hour, a run an hour", 10, 0),
        ("a busy chat", 200, None),
    ):
        progress(name)
        table.rows += _measured(folder / name, name, messages, an_hour, minimum)
    return [table]


def _measured(folder: Path, name: str, messages: int, an_hour: int, minimum: int | None) -> list[dict[str, Cell]]:
    lake = Lake(str(folder))
    lake.ensure()
    with OpenAIServer() as server:
        server.answer = _answer
        defaults: dict[str, Any] = {"completion": {"model": "openai/m", "api_base": server.base_url}}
        if minimum is not None:
            defaults["extraction"] = {"minimum_tokens": minimum}
        lake.storage.write(CONFIGURATION, json.dumps({"defaults": defaults}).encode())
        talks = list(_talks(messages, an_hour))
        write(lake, talks)
        now = START + timedelta(days=400)
        models = configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: now)
        for _ in run_all(lake, models, now):
            pass
        requests = [request for request in server.requests if request.path == "chat"]
    kinds = {kind: [one for one in requests if oracle.name_of(one.body) == kind] for kind in ("extraction", "summary")}
    rows = {kind: _counted(asked) for kind, asked in kinds.items()}
    rows["all"] = {name: sum(row[name] for row in rows.values()) for name in rows["extraction"]}
    static = _MEM0 // _STEP * _STEP
    rows["mem0, its instructions"] = _billed(len(talks), len(talks) * _MEM0, (len(talks) - 1) * static, 0)
    return [{"messages": name, "for": kind, **row} for kind, row in rows.items()]


def _talks(messages: int, an_hour: int) -> Iterator[Conversation]:
    """Yield a conversation for each hour."""
    source = random.Random("tokens")
    for number in range(messages // an_hour):
        day, hour = divmod(number, _HOURS_A_DAY)
        begins = START + timedelta(days=day, hours=9 + hour)
        yield {
            "workspace_id": WORKSPACE,
            "agent_id": "helper",
            "user_id": "nadia",
            "conversation_id": f"day {day}",
            "messages": [
                {
                    "id": f"{number}-{place}",
                    "role": "assistant" if place % 2 else "user",
                    "name": None if place % 2 else "Nadia",
                    "content": text(source),
                    "timestamp": (begins + timedelta(seconds=15 * place)).isoformat(),
                }
                for place in range(an_hour)
            ],
        }


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    if oracle.name_of(body) == "summary":
        return oracle.answer(body)
    facts, operations = [], []
    for number, who, said in _LINE.findall(body["messages"][1]["content"]):
        about = {"messages": [int(number)], "confidence": 0.9}
        content = f"{who} said: {said}"
        facts.append(
            {"content": content, "kind": "statement", "importance": 0.5, "entities": [who], "date": None, **about}
            | {"durable": None, "point_in_time": False, "subject": None, "predicate": None, "object": None}
        )
        if int(number) % 3 == 0:
            thing = said.rstrip(".?!").rpartition(" ")[2]
            operation = {"operation": "INSERT", "subject": who, "predicate": "mentioned", "object": thing}
            operations.append({**operation, "known": None, **about})
    return {"summary": "Nadia told what happened.", "facts": facts, "operations": operations}


def _counted(requests: Sequence[Request]) -> dict[str, int]:
    """Return calls and tokens of requests of one kind."""
    from litellm import encode as encoded

    def encode(text: str) -> list[int]:
        return list(encoded("", text))  # cl100k_base for a model that it does not know

    before: list[int] = []
    read = cached = written = 0
    for request in requests:
        schema = json.dumps(request.body["response_format"]["json_schema"]["schema"], separators=(",", ":"))
        tokens = encode("\n".join([schema, *(message["content"] for message in request.body["messages"])]))
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, tokens, strict=False)))
        read += len(tokens)
        cached += same // _STEP * _STEP if same >= _LEAST else 0
        written += len(encode(json.dumps(_answer(request.body))))
        before = tokens
    return _billed(len(requests), read, cached, written)


def _billed(calls: int, read: int, cached: int, written: int) -> dict[str, int]:
    return {
        "calls": calls,
        "tokens in": read,
        "cached": cached,
        "billed at 10 %": read - cached * 9 // 10,
        "billed at 50 %": read - cached // 2,
        "tokens out": written,
    }
