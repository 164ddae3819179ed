"""A small lake: two users, a group, a year, a session, a grant, and pending entries. And what its users read.

`test_old_lakes.py` has such a lake, written by commit 8111b33. To add one of another commit, run this with its code::

    git worktree add /tmp/old COMMIT
    cd memory_pipeline_tests/old_lakes
    PYTHONPATH=/tmp/old python small_lake.py fill /tmp/lakes/COMMIT
    PYTHONPATH=/tmp/old python small_lake.py read /tmp/lakes/COMMIT > COMMIT.json
    tar cJf COMMIT.tar.xz -C /tmp/lakes COMMIT
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import Any

from memory_pipeline import Memory
from memory_pipeline.domain.periods import Grain
from memory_pipeline.steps.scheduling.planner import grain_status

#: The pipeline ran then. Later entries are pending.
RUN_AT = datetime(2025, 1, 14, 9, tzinfo=UTC)
#: The time of all reads.
READ_AT = datetime(2025, 1, 14, 12, tzinfo=UTC)
USERS = (None, "anna", "ben")


def at(month: int, day: int, hour: int = 9) -> datetime:
    return datetime(2024, month, day, hour, tzinfo=UTC)


def fill(root: str) -> None:
    agent, anna, ben = (Memory(root, agent_id="helper", user_id=user) for user in USERS)
    agent.add([{"role": "user", "content": "Our office is at 12 Canal Street."}], conversation_id="own", now=at(1, 8))
    anna.add(
        [
            {"role": "user", "content": "I moved to Porto. I am allergic to walnuts."},
            {"role": "assistant", "content": "Noted: Porto, and no walnuts."},
            {"role": "user", "content": "From now on, always answer in Portuguese."},
        ],
        conversation_id="first",
        tags=["home"],
        now=at(1, 15),
    )
    ben.add("I work as a nurse in Cork. My sister is called Maeve.", conversation_id="first", now=at(2, 29))
    anna.add("We meet on Fridays at noon.", users=["anna", "ben"], conversation_id="plan", now=at(3, 1))
    ben.add("The rehearsal room is above the bakery.", users=["ben", "anna"], group_id="band", now=at(4, 2))
    anna.add("I moved to Faro.", conversation_id="second", now=at(6, 10))
    anna.add("My dog Bruno turned four today.", conversation_id="second", now=at(9, 30))
    ben.add("I like green tea. I sold my car.", conversation_id="second", now=at(12, 29, 23))

    anna.remember("The spare key is under the third flowerpot.", tags=["house"], now=at(5, 5))
    rule = anna.remember("Never book flights before ten.", "rule", now=at(5, 6))
    anna.writer.update(rule, content="Never book flights before eleven.", now=at(7, 1))
    ben.forget(ben.remember("A note that Ben withdrew.", now=at(5, 7)), now=at(5, 8))
    agent.writer.graph.insert("Office", "located_in", "Canal Street", now=at(5, 9))
    agent.writer.graph.update("Office", "located_in", "Mill Lane", now=at(8, 9))
    anna.contexts.create("trip", "project_context", now=at(6, 1))
    anna.contexts.put("trip", "hotel", "Mar Azul, three nights", now=at(6, 2))
    anna.contexts.snapshot("trip", "draft", now=at(6, 3))
    anna.contexts.put("trip", "hotel", "Mar Azul, four nights", now=at(6, 4))
    agent.grant("planner", now=at(7, 7))
    session = anna.session("desk")
    session.store("task", {"step": 2}, ttl=86_400, now=RUN_AT)

    agent.run(now=RUN_AT)
    anna.add("My new bicycle is red.", conversation_id="third", now=datetime(2025, 1, 14, 10, tzinfo=UTC))
    ben.remember("Ben prefers short answers.", "preference", now=datetime(2025, 1, 14, 11, tzinfo=UTC))


def reads(root: str) -> dict[str, Any]:
    """Return what users of the lake read, as JSON values."""
    return {str(user): _reads(Memory(root, agent_id="helper", user_id=user)) for user in USERS} | {
        "planner": [hit.content for hit in Memory(root, agent_id="planner").search_shared("office", "helper")]
    }


def pending(root: str) -> dict[str, list[str]]:
    """Return the periods that the next run computes, by grain."""
    lake = Memory(root).lake
    return {grain: [one.key for one in grain_status(lake, grain, lake.start, READ_AT).pending] for grain in Grain}


def _reads(memory: Memory) -> dict[str, Any]:
    listed, cursor = [], None
    while True:
        page = memory.list(cursor=cursor, limit=20)
        listed += [[hit.id, hit.content] for hit in page]
        cursor = page.cursor
        if cursor is None:
            break
    memories = memory.reader.memories
    grains = ("working", "daily", "weekly", "monthly", "quarterly", "yearly")
    return {
        "list": listed,
        "newest": {
            grain: [[hit.id, hit.content] for hit in memory.reader.search_memory(grain, 0, 4_000, 100, now=READ_AT)]
            for grain in grains
        },
        "graph": sorted([fact.id, fact.line, fact.when] for fact in memory.graph.facts()),
        "history": sorted(fact.line for fact in memory.graph.history("Office")),
        "versions": {
            one.id: [[version.version, version.content, version.status] for version in memory.history(one.id)]
            for one in memories.headers(now=READ_AT)
        },
        "hot": [str(entry) for entry in memory.reader.hot_index(now=READ_AT)],
        "trip": [[entry.key, entry.content] for entry in memory.contexts.entries("trip", now=READ_AT)]
        if memory.user_id == "anna"
        else [],
        "session": memory.session("desk").retrieve("task", now=READ_AT) if memory.user_id == "anna" else None,
        "conversation": [message.content for message in memory.conversations.get("first")],
    }


if __name__ == "__main__":
    os.environ["MEMORY_PIPELINE_START"] = "2024-01-01"
    if sys.argv[1] == "fill":
        fill(sys.argv[2])
    else:
        found = {"reads": reads(sys.argv[2]), "pending": pending(sys.argv[2])}
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1, sort_keys=True, default=str))
