"""All tiers of a memory together: which one answers, what a search of all of them finds, and their figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory_pipeline import Memory
from memory_pipeline.client.tiers import TierStatistics

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.fixture
def memory(root: str) -> Memory:
    return Memory(root, user_id="anna")


def test_the_fastest_tier_that_has_a_key_answers_and_is_named(memory: Memory) -> None:
    assert memory.read("city", now=NOW) is None
    for tier in ("shared", "long_term", "short_term", "session"):
        memory.write("city", {"in": tier}, tier=tier, now=NOW)
        assert memory.read("city", now=LATER) == (tier, {"in": tier})
    assert memory.read("city", session_id="other", now=LATER) == ("long_term", {"in": "long_term"})
    assert memory.read("city", now=NOW + timedelta(hours=1)) == ("long_term", {"in": "long_term"})
    memory.write("nothing", None, now=NOW)
    assert memory.read("nothing", now=LATER) == ("session", None)
    memory.pool("plans").write("trip", "Faro", now=NOW)
    assert memory.read("trip", pool="plans", now=LATER) == ("shared", "Faro")
    assert memory.read("trip", now=LATER) is None


def test_long_term_memory_of_an_agent_without_users_has_keys_too(root: str) -> None:
    memory = Memory(root)
    memory.write("city", "Porto", tier="long_term", now=NOW)
    assert memory.read("city", now=LATER) == ("long_term", "Porto")
    assert memory.read("k" * 200, now=LATER) is None


def test_a_search_of_all_tiers_finds_entries_of_sessions_and_pools(root: str, memory: Memory) -> None:
    memory.add("I moved to Porto.", now=NOW)
    memory.session("s1").store("flight", {"to": "Faro airport", "seats": [12, 13]}, now=NOW)
    memory.session("s1").short_term.store("hotel", "A hotel near Faro airport, by the sea.", now=NOW)
    memory.pool("board").write("faro", "Anna flies to Faro.", now=NOW)
    memory.pool("secret", run="r1").write("faro", "Faro", now=NOW)
    Memory(root, user_id="ben").session("s1").store("faro", "Ben flies to Faro.", now=NOW)
    assert [hit.grain for hit in memory.search("Porto", now=LATER)] == ["working"]
    found = memory.search("Faro airport", tiers="all", now=LATER)
    assert {hit.kind for hit in found[:3]} == {"session", "short_term", "shared"}
    assert found[0].score == 1
    assert [hit.identity for hit in found[:3]] == ["user:anna"] * 3
    assert "Ben" not in str(found)
    assert [hit.kind for hit in memory.search("Faro", tiers=["short_term"], now=LATER)] == ["short_term"]
    assert memory.search("Faro", tiers=["session"], now=NOW + timedelta(hours=1)) == []
    assert [hit.grain for hit in memory.search("Porto", tiers=["session", "long_term"], now=LATER)] == ["working"]


def test_statistics_count_what_is_alive(memory: Memory) -> None:
    assert memory.stats(now=NOW) == dict.fromkeys(["session", "short_term", "long_term", "shared"], TierStatistics())
    memory.write("a", 1, now=NOW)
    memory.session("s1").tool_state.store("b", 22, now=NOW)
    memory.write("c", "x", tier="short_term", now=NOW)
    memory.read("c", now=NOW)
    memory.write("d", 1, tier="shared", now=NOW)
    memory.remember("Anna lives in Porto.", now=NOW)
    figures = memory.stats(now=LATER)
    assert figures["session"] == (2, 3, 0)
    assert figures["short_term"] == (1, 3, 1)
    assert figures["shared"][0] == 1
    assert figures["long_term"][0] == 1
    assert memory.stats(now=NOW + timedelta(hours=1))["session"].entries == 0
