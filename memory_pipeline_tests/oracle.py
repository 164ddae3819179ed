"""A deterministic model for tests, and the configuration of a lake that uses it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.periods import SUMMARY_GRAINS
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.models.factory import configured_models
from memory_pipeline_tests.building import NOW

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.openai_server import OpenAIServer, Request

Json = dict[str, Any]

_MESSAGE = re.compile(r"^\[(\d+)\] (\d{4}-\d{2}-\d{2}) \w+ \d{2}:\d{2} (\w+) ([^:]+): (.*)$", re.MULTILINE)
_LINE = re.compile(r"^\[(\d+)\] \d{4}-\d{2}-\d{2} (.*)$", re.MULTILINE)
_RANKED = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
_PROMPT = re.compile(r"^The prompt: (.*)$", re.MULTILINE)
_NAME = re.compile(r"(?<=\s)[A-Z]\w+")
_LIVES = re.compile(r"moved to (\w+)")

#: Has the model summarise every period, however short.
SUMMARIES = f"  summaries: {{{{{', '.join(f'{grain}: {{{{minimum_tokens: 0}}}}' for grain in SUMMARY_GRAINS)}}}}}\n"
#: Has the model read each hour alone, however short.
HOURS = "  extraction: {{minimum_tokens: 0}}\n"
CONFIG = (
    """
defaults:
  max_concurrency: 8
  completion: {{model: openai/oracle, api_base: "{url}", attempts: 2, backoff_seconds: 0.01, timeout_seconds: 5,
               price: {{input: 1.0, output: 2.0}}}}
"""
    + HOURS
    + SUMMARIES
)
#: Adds the models of readers: entities and reranking.
INJECTION = """
  injection: {{rerank: model, entities: model, attempts: 1}}
"""
EMBEDDING = """
  embedding: {{model: openai/vectors, api_base: "{url}", dimension: 16, attempts: 2, backoff_seconds: 0.01,
              timeout_seconds: 5, price: {{input: 0.1}}}}
"""


def answer(body: Json) -> Json:
    """Return one fact per message, one point per line, capitalized words as names, or an order by common words."""
    text = body["messages"][1]["content"]
    if name_of(body) == "entities":
        said = text.partition("\n")[2].rpartition("\n")[0]
        return {"names": list(dict.fromkeys(_NAME.findall(said)))[:20]}
    if name_of(body) == "rerank":
        wanted = _words(" ".join(_PROMPT.findall(text)))
        lines = [(-len(wanted & _words(line)), int(number)) for number, line in _RANKED.findall(text)]
        return {"order": [number for _, number in sorted(lines)]}
    if name_of(body) == "extraction":
        messages = _MESSAGE.findall(text)
        facts = [
            {
                "content": f"{who} said on {day}: {said}",
                "kind": "statement",
                "importance": 0.5,
                "confidence": 0.9,
                "entities": [who],
                "date": None,
                "messages": [int(number)],
                "durable": "instruction" if said.startswith("Always") else "fact" if _LIVES.search(said) else None,
                "point_in_time": False,
                "subject": who if (lives := _LIVES.search(said)) else None,
                "predicate": "lives in" if lives else None,
                "object": lives.group(1) if lives else None,
            }
            for number, day, _, who, said in messages
        ]
        operations = [
            {
                "operation": "UPDATE",
                "subject": who,
                "predicate": "lives in",
                "object": lives.group(1),
                "confidence": 1,
                "messages": [int(number)],
            }
            for number, _, _, who, said in messages
            if (lives := _LIVES.search(said))
        ]
        speakers = sorted({who for _, _, _, who, _ in messages})
        return {"summary": f"A conversation of {' and '.join(speakers)}.", "facts": facts, "operations": operations}
    tone = "In brief: " if "briefly" in body["messages"][0]["content"] else ""
    points = [
        {"sentence": f"{tone}{said[:90]}", "sources": [int(number)], "importance": 0.5}
        for number, said in _LINE.findall(text)
    ]
    return {"points": points[:12]}


def name_of(body: Json) -> str:
    """Return the task of a question, such as extraction."""
    name: str = body["response_format"]["json_schema"]["name"]
    return name


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def asked(requests: Iterable[Request]) -> list[str]:
    """Return the question of each chat request, with its instructions; a correction has its original question."""
    return [
        "\n".join(message["content"] for message in request.body["messages"][:2])
        for request in requests
        if request.path == "chat"
    ]


def configure(lake: Lake, server: OpenAIServer, *more: str, text: str = CONFIG) -> None:
    """Write the lake's configuration: the server for all completions, plus the texts in `more`."""
    lake.ensure()
    lake.storage.write(CONFIGURATION, (text + "".join(more)).format(url=server.base_url).encode())


def models_at(lake: Lake, now: datetime = NOW, *, is_fresh: bool = False) -> Models:
    """Return the lake's configured models with the time fixed at `now`."""
    return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, lambda: now, is_fresh=is_fresh)
