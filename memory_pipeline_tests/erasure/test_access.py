"""Erasure of agents and users from grants and teams."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, preview, verify
from memory_pipeline.errors import AccessDeniedError
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.erasure.lakes import assert_verified

if TYPE_CHECKING:
    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.models.factory import Models

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
A, B = Scope("acme", "agent-one"), Scope("acme", "agent-two")


def writer_of(root: str, scope: Scope) -> MemoryWriter:
    return MemoryWriter.open(root, workspace_id=scope.workspace_id, agent_id=scope.agent_id)


@pytest.fixture
def shared(root: str) -> str:
    """A lake in which two agents share with each other, with a third one and with a team."""
    for own, other in ((A, B), (B, A)):
        writer = writer_of(root, own)
        message = {"role": "user", "content": f"The vault of {own.agent_id} is green.", "timestamp": NOW.isoformat()}
        writer.write({"conversation_id": "c", "messages": [message]}, now=NOW)
        writer.grant(other.agent_id, now=NOW)
        writer.grant("third", now=NOW)
        writer.grant(other.agent_id, user_id="anna-71", now=NOW)
        writer.grant(team="sales", now=NOW)
        writer.add_to_team("sales", other.agent_id, now=NOW)
    return root


def grants(root: str, scope: Scope) -> list[tuple[str | None, str | None]]:
    return [(one.to_agent, one.to_team) for one in writer_of(root, scope).grants()]


def removed(report: ErasureReport) -> dict[str, int]:
    return {part.what: part.count for part in report.removed if part.what.startswith("grants")}


def test_an_erased_agent_shares_nothing_and_is_named_by_no_grant(shared: str, models: Models) -> None:
    subject = Subject.agent(A)
    assert preview(Lake(shared), subject, LATER).counts["grants"] == 8
    report = forget(Lake(shared), models, subject, LATER)
    assert removed(report) == {"grants, revokes and changes of teams": 8}
    assert (grants(shared, A), grants(shared, B)) == ([], [("third", None), (None, "sales")])
    assert_verified(Lake(shared), report)
    for path in Path(shared, "journal").rglob("*"):
        assert not path.is_file() or b"agent-one" not in path.read_bytes(), path
    # A new agent of the same name does not inherit access.
    with pytest.raises(AccessDeniedError):
        MemoryReader.open(shared, workspace_id="acme", agent_id="agent-two", on_behalf_of="agent-one").newest(
            "daily", 1
        )
    assert removed(forget(Lake(shared), models, subject, LATER)) == {}
    writer_of(shared, B).grant("agent-one", now=LATER + timedelta(seconds=1))
    assert_verified(Lake(shared), report)  # what is written later is no finding


def test_a_grant_that_comes_back_is_found(shared: str, models: Models) -> None:
    granted = [one for one in writer_of(shared, B).access_history() if one.to_agent == "agent-one"]
    path = Path(Lake(shared).storage.locate(Lake(shared).journal.path_in(B, f"{granted[0].id}.access.json")))
    content = path.read_bytes()
    report = forget(Lake(shared), models, Subject.agent(A), LATER)
    path.write_bytes(content)
    assert [str(one) for one in verify(Lake(shared), report).findings]


def test_the_grant_of_a_context_goes_with_the_person_that_it_is_named_after(shared: str, models: Models) -> None:
    writer = writer_of(shared, A)
    for name in ("Anna's plans", "plans"):
        writer.contexts.create(name, now=NOW)
        writer.contexts.put(name, "figs", "Buy figs.", now=NOW)
        writer.grant("third", context=name, now=NOW)
    subject = Subject.person("acme", ["Anna"])
    assert preview(Lake(shared), subject, LATER).counts["grants"] == 1
    report = forget(Lake(shared), models, subject, LATER)
    assert removed(report) == {"grants, revokes and changes of teams": 1}
    assert [one.context for one in writer.grants() if one.context] == ["plans"]
    assert [context.name for context in writer.contexts.list()] == ["plans"]
    assert_verified(Lake(shared), report)


def test_an_erased_user_is_shared_no_more(shared: str, models: Models) -> None:
    subject = Subject.user("acme", "anna-71")
    assert preview(Lake(shared), subject, LATER).counts["grants"] == 2
    report = forget(Lake(shared), models, subject, LATER)
    assert removed(report) == {"grants, revokes and changes of teams": 2}
    assert len(grants(shared, A)) == 3
    assert_verified(Lake(shared), report)
    for path in Path(shared, "journal").rglob("*"):
        assert not path.is_file() or b"anna-71" not in path.read_bytes(), path
