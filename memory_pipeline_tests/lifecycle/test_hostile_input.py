"""Valid ids and times that are easily confused go through the whole chain. A bug stops one partition, not the lake."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import UnexpectedError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.steps import extract
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.effort import examples

if TYPE_CHECKING:
    from memory_pipeline.domain.facts import Extractor

NOW = datetime(2024, 3, 5, 12, tzinfo=UTC)
START = date(2024, 2, 26)
#: Ids that equal identities of scopes, roles, columns, ids of rows, or each other without case or after an encoding.
IDS = [
    "anna",
    "Anna",
    "user:anna",
    "group:team",
    "team",
    "default",
    "None",
    "0",
    "message:2024-01-15T08:0123456789abcdef0123456789abcdef",
    "a/b",
    "..",
    "x' OR '1'='1",
    "\N{LATIN SMALL LETTER E WITH ACUTE}",
    "e\N{COMBINING ACUTE ACCENT}",
    "%41nna",
    "y" * 256,
]
#: Times at the edges of hours, days, weeks and months. Few, so that messages of different scopes have the same.
TIMES = [
    "2024-02-29T23:59:59+14:00",
    "2024-03-01T08:00:00Z",
    "2024-03-01T08:59:59.999999Z",
    "2024-03-03T23:30:00-01:00",
]
ids = st.sampled_from(IDS)
audiences: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"user_id": ids}),
    st.fixed_dictionaries({"users": st.lists(ids, min_size=1, max_size=3, unique=True)}, optional={"group_id": ids}),
)
talks = st.lists(
    st.tuples(st.tuples(ids, ids), audiences, ids, st.sampled_from(TIMES), st.none() | ids, st.none() | ids),
    min_size=3,
    max_size=8,
)
_PAIR = ("default", "default")


@settings(max_examples=examples(2), phases=[Phase.explicit, Phase.generate])
@given(said=talks)
# The agent's own memory has a conversation with the name of a user's identity, at the time of that user's message.
@example(
    said=[
        (_PAIR, {}, "user:anna", "2024-03-01T08:00:00Z", None, None),
        (_PAIR, {"user_id": "anna"}, "user:anna", "2024-03-01T08:00:00Z", "anna", "0"),
    ]
)
def test_all_that_was_said_goes_through_the_whole_chain(said: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/lake"
        stored = set[str]()
        for number, (agent, audience, conversation_id, time, name, message_id) in enumerate(said):
            writer = MemoryWriter.open(root, workspace_id=agent[0], agent_id=agent[1], start=START)
            message = {"role": "user", "content": f"I like tea number {number}.", "timestamp": time, "name": name}
            if message_id is not None:
                message["id"] = f"{message_id[:250]}-{number}"
            receipt = writer.write({"conversation_id": conversation_id, "messages": [message], **audience}, now=NOW)
            stored.update(receipt.message_ids)
        lake = Lake(root)
        memory = Memory(root, workspace_id=said[0][0][0], agent_id=said[0][0][1])
        memory.run(now=NOW)
        assert set(lake.tables.read(MESSAGES, columns=["id"])["id"].to_pylist()) == stored
        assert len(stored) == len(said)
        assert lake.journal.pending() == []


def test_a_bug_in_one_scope_fails_one_partition(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of the partition stay pending, all others are complete, and a run without the bug catches up."""
    for hour in range(4):
        said = datetime(2024, 3, 4, 8, tzinfo=UTC) + timedelta(hours=hour)
        for agent in ("one", "two"):
            Memory(root, agent_id=agent).add(f"I like tea number {hour}.", now=said)
    original = extract.read_hours

    def broken(lake: Lake, extractor: Extractor, hours: Any, *rest: Any, **named: Any) -> extract.Reading:
        reading = original(lake, extractor, hours, *rest, **named)
        if any(message.scope == Scope("default", "two") and "2" in message.content for message in reading.messages):
            raise TypeError("'<' not supported between instances of 'datetime' and 'str'")
        return reading

    with monkeypatch.context() as patch:
        patch.setattr(extract, "read_hours", broken)
        with pytest.raises(UnexpectedError, match=r"2024-03-04T10.*'<' not supported") as raised:
            Memory(root).run(now=NOW)
    assert raised.value.keys == {"2024-03-04T10"}
    lake = Lake(root)
    assert {hour.key for file in lake.journal.pending() for hour in file.pending_hours} == {"2024-03-04T10"}
    assert Memory(root, agent_id="two").search("tea number 2")[0].content == "User: I like tea number 2."
    Memory(root).run(now=NOW)
    assert lake.journal.pending() == []
