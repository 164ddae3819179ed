"""Random conversations of users and groups with hostile ids, through reading, runs and erasure."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.erasure.verification import verify
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.effort import examples
from memory_pipeline_tests.erasure.lakes import kept

#: Pairs of ids that a path, a separator, a query or a comparison without case would confuse.
AGENTS = [
    ("x') OR ('1'='1", "😀" * 256),
    ("😀" * 256, "s"),
    ("a", "b/c"),
    ("a/b", "c"),
    ("A", "b/c"),
    ("con", "a."),
    ("a~b", "c"),
    ("a", "b~c"),
    ("O'Brien", "agent:main"),
]
USERS = [
    "Anna",
    "anna",
    "anna smith",
    "o'brien",
    "../anna",
    "user:anna",
    'say "hi"',
    "üñí 🏳️‍🌈",
    "x' OR '1'='1",
    "y" * 256,
]
GROUPS = ["team", "Team", "user:anna", "a/b"]
LATER = datetime(2024, 3, 1, tzinfo=UTC)

Audience = dict[str, Any]
Talk = tuple[tuple[str, str], Audience | None]

members = st.lists(st.sampled_from(USERS), min_size=1, max_size=3, unique=True)
audiences = st.one_of(
    st.just({}),
    st.builds(lambda user: {"user_id": user}, st.sampled_from(USERS)),
    st.builds(lambda users: {"users": users}, members),
    st.builds(lambda users, group: {"users": users, "group_id": group}, members, st.sampled_from(GROUPS)),
)
talks = st.lists(st.tuples(st.sampled_from(AGENTS), audiences), min_size=2, max_size=5)


def users_of(audience: Audience) -> list[str]:
    return [*audience.get("users", ()), *([audience["user_id"]] if "user_id" in audience else ())]


def group_of(audience: Audience) -> object:
    """Return what makes two audiences the same scope."""
    return audience.get("group_id") or frozenset(users_of(audience))


def expected(said: Sequence[Talk], agent: tuple[str, str], user: str | None) -> set[str]:
    """Return the words that a user of an agent may read, by the rules of an audience."""
    own = [(number, audience) for number, (of, audience) in enumerate(said) if of == agent and audience is not None]
    joined = {group_of(audience) for _, audience in own if user in users_of(audience)}
    return {word(number) for number, audience in own if not audience or (user and group_of(audience) in joined)}


def word(number: int) -> str:
    return f"harbour{'abcdefghij'[number] * 3}"


def seen(lake: Lake, agent: tuple[str, str], user: str | None, among: int) -> list[set[str]]:
    """Return the words that a user reads in each way."""
    reader = MemoryReader.open(lake.storage.uri, workspace_id=agent[0], agent_id=agent[1], user_id=user)
    found = [
        [hit.content for hit in reader.search_memory(maximum_days_ago=36_500, max_results=100, now=LATER)],
        [hit.content for hit in reader.search_memory("daily", 0, 36_500, 100, now=LATER)],
        str(reader.recall("Which harbour?", now=LATER)),
        str(reader.graph.facts()),
    ]
    return [{word(number) for number in range(among) if word(number) in str(each)} for each in found]


@settings(max_examples=examples(2), phases=[Phase.explicit, Phase.generate])
@given(said=talks, forgotten=st.sampled_from(USERS))
def test_everybody_reads_what_the_audiences_allow(said: list[tuple[tuple[str, str], Audience]], forgotten: str) -> None:
    models = default_models()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(f"{folder}/lake")
        for number, (agent, audience) in enumerate(said):
            text = f"I live in {word(number).title()}. {word(number)} is where we met."
            at = f"2024-01-15T08:{number:02}:00Z"
            messages = [{"id": "m1", "role": "user", "content": text, "timestamp": at}]
            writer = MemoryWriter.open(lake.storage.uri, workspace_id=agent[0], agent_id=agent[1])
            writer.write({"conversation_id": f"../it's {number}", "messages": messages, **audience})
        check(lake, said)
        kept(lake, models, LATER)
        check(lake, said)
        workspace_id = said[0][0][0]
        receipt = forget(lake, models, Subject.user(workspace_id, forgotten), LATER)
        check(
            lake,
            [
                (agent, without(audience, forgotten) if agent[0] == workspace_id else audience)
                for agent, audience in said
            ],
        )
        found = verify(lake, receipt)
        assert (found.findings, found.unsearched) == ([], [])


def check(lake: Lake, said: Sequence[Talk]) -> None:
    for agent in {of for of, _ in said}:
        users = {user for of, audience in said for user in users_of(audience or {}) if of == agent}
        for user in (None, "nobody", *sorted(users)):
            allowed = expected(said, agent, user)
            everything, *others = seen(lake, agent, user, len(said))
            assert everything == allowed, (agent, user)
            assert set().union(*others) <= allowed, (agent, user)


def without(audience: Audience, user: str) -> Audience | None:
    """Return an audience without a user; None if nobody is left to read what was said to it."""
    users = users_of(audience)
    left = [one for one in users if one != user]
    if len(left) == len(users):
        return audience
    return {"users": left, "group_id": group_of(audience)} if left else None
