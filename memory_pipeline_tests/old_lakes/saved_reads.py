"""Five hundred reads of the small lake. Their saved digests tell whether a change of the code changes what is read.

To save the reads of the newest lake after an intended change::

    python -m memory_pipeline_tests.old_lakes.saved_reads COMMIT

and say in the commit which reads changed, and why.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline import Memory
from memory_pipeline.domain.periods import Grain
from memory_pipeline.tools import memory_tools
from memory_pipeline_tests.old_lakes.small_lake import READ_AT, USERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
QUERIES = (
    "Where does Anna live?", "Where do I live?", "What is Anna allergic to?", "walnuts", "Porto", "Faro Porto",
    "When do we meet?", "Where is the rehearsal room?", "What does Ben do for work?", "Who is Maeve?", "Bruno",
    "Where is the spare key?", "May I book a flight at nine?", "Which hotel did we choose?", "hotel", "green tea",
    "What colour is the bicycle?", "Where is our office?", "What happened in June 2024?", "How should I answer?",
    "What is the capital of Peru?", "the", "日本", "!?",
)  # fmt: skip
EARLIER = datetime(2024, 6, 15, tzinfo=UTC)


def _hits(hits: Any) -> list[tuple[str, str, float]]:
    """Return hits in the order of their scores. Processors differ in the last digits, which order equal ones."""
    found = [(hit.id, hit.content, round(hit.score or 0.0, 3)) for hit in hits]
    return sorted(found, key=lambda one: (-one[2], one[0]))


def _newest(memory: Memory, grain: Grain) -> list[tuple[str, str, float]]:
    return _hits(memory.reader.search_memory(grain, 0, 4_000, 100, now=READ_AT))


#: Reads of a memory and a query, by name.
ASKED: dict[str, Callable[[Memory, str], Any]] = {
    "search": lambda memory, query: _hits(memory.search(query, now=READ_AT)),
    "search turns": lambda memory, query: _hits(memory.search(query, 5, sources=("turns",), now=READ_AT)),
    "search 2024": lambda memory, query: _hits(
        memory.search(query, since="2024-02-01", until="2024-07-01", now=READ_AT)
    ),
    "context": lambda memory, query: str(memory.context(query, 400, now=READ_AT)),
    "recall": lambda memory, query: [
        (one.id, one.text) for one in memory.reader.recall(query, max_tokens=300, now=READ_AT)
    ],
    "memories": lambda memory, query: [one.memory.id for one in memory.reader.memories.search(query, now=READ_AT)],
    "graph": lambda memory, query: [fact.line for fact in memory.graph.search(query)],
}
#: Other reads of a memory, by name.
READ: dict[str, Callable[[Memory], Any]] = {
    **{f"newest {grain}": partial(_newest, grain=grain) for grain in Grain},
    "listed": lambda memory: [(hit.id, hit.content) for hit in memory.list()],
    "listed facts": lambda memory: [(hit.id, hit.content) for hit in memory.list("fact")],
    "earlier": lambda memory: _hits(memory.search("Porto", now=EARLIER)),
    "memories earlier": lambda memory: [one.content for one in memory.reader.memories.list(now=EARLIER)],
    "facts": lambda memory: sorted((fact.id, fact.line, fact.when) for fact in memory.graph.facts()),
    "neighbours": lambda memory: str(memory.graph.neighbors("Anna", 2)) if memory.graph.entity("Anna") else None,
    "conversations": lambda memory: [str(one) for one in memory.conversations.list(now=READ_AT)],
    "sql": lambda memory: memory.graph.query("SELECT count(*) FROM facts").rows,
}


def saved_digests(commit: str) -> dict[str, str]:
    """Return the saved digests of the reads of a lake."""
    found: dict[str, str] = json.loads((HERE / f"{commit}.reads.json").read_text("utf-8"))
    return found


def digests(root: str) -> dict[str, str]:
    """Return a digest of each read of a lake."""
    return {
        name: sha256(json.dumps(value, default=str, ensure_ascii=False).encode()).hexdigest()[:12]
        for name, value in _values(root)
    }


def _values(root: str) -> Iterator[tuple[str, Any]]:
    for user in USERS:
        memory = Memory(root, agent_id="helper", user_id=user)
        for (name, ask), query in product(ASKED.items(), QUERIES):
            yield f"{user}: {name}: {query}", ask(memory, query)
        for name, read in READ.items():
            yield f"{user}: {name}", read(memory)
        tools = memory_tools(memory.reader, now=READ_AT)
        yield f"{user}: schemas of tools", tools.functions
        yield f"{user}: search_memory", tools.call("search_memory", {"query": "Where does Anna live?"})


if __name__ == "__main__":
    os.environ["MEMORY_PIPELINE_START"] = "2024-01-01"
    with tempfile.TemporaryDirectory() as folder, tarfile.open(HERE / f"{sys.argv[1]}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
        found = digests(f"{folder}/{sys.argv[1]}")
    (HERE / f"{sys.argv[1]}.reads.json").write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", "utf-8")
    sys.stdout.write(f"{len(found)} reads are saved\n")
