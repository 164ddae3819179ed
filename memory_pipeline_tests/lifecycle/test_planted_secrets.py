"""Secrets are planted in every way in. No file of the lake holds one, and what was said around them can be found."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.text.secrets import kinds_in
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline_tests.planting import NOW, PRIVATE, configure, plant, said
from memory_pipeline_tests.searching import places_of
from memory_pipeline_tests.secret_samples import SECRETS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "lake", user_id="anna")


def test_planted_secrets_are_in_no_file(memory: Memory, tmp_path: Path) -> None:
    planted = plant(memory, tmp_path)
    assert places_of(memory.lake, planted) == {}
    for days in (1, 2):
        memory.run(now=NOW + timedelta(days=days))
        memory.context("What do I use?", now=NOW + timedelta(days=days))
    assert places_of(memory.lake, planted) == {}
    rows = memory.lake.tables.read(MESSAGES)
    assert {*SECRETS, "password", "passphrase"} - {"passphrase"} <= {
        one for row in rows["redactions"].to_pylist() for one in row or ()
    }
    assert all(set(row["redactions"] or ()) == kinds_in(row["content"]) for row in rows.to_pylist())
    assert "Porto" in memory.search("Where did I move?", now=NOW + timedelta(days=2))[0].content


def test_a_secret_can_be_found_by_its_kind(memory: Memory) -> None:
    memory.add(f"For deployments I use {SECRETS['github-token']} now.", now=NOW)
    [hit, *_] = memory.search("What do I use for deployments?", now=NOW)
    assert "[secret:github-token:" in hit.content


def test_a_conversation_with_secrets_that_is_sent_again_adds_nothing(memory: Memory) -> None:
    talk = [said("My password is hunter2."), {"role": "assistant", "content": "I noted it."}]
    memory.add(talk, conversation_id="c", now=NOW)
    longer = [*talk, said("And my token is a1B2c3D4e5F6g7.")]
    receipt = Memory(memory.lake.storage.uri, user_id="anna").add(
        longer, conversation_id="c", now=NOW + timedelta(minutes=1)
    )
    assert len(memory.conversations.get("c")) == 3
    assert receipt is not None


@pytest.mark.parametrize("is_loaded", [False, True])
def test_what_was_stored_with_a_secret_before_is_not_doubled(memory: Memory, *, is_loaded: bool) -> None:
    memory = configure(memory, "defaults: {secrets: {redact: 'off'}}")
    talk = [said("My password is hunter2."), {"role": "assistant", "content": "Ok."}, said("And I like tea.")]
    memory.add(talk, conversation_id="c", now=NOW)
    timed = {**said("password: hunter3"), "timestamp": NOW}
    memory.add([timed], conversation_id="d", now=NOW)
    if is_loaded:
        memory.run(now=NOW + timedelta(days=1))
    memory = configure(memory, "defaults: {}")
    longer = [*talk, {"role": "assistant", "content": "Fine."}]
    memory.add(longer, conversation_id="c", now=NOW + timedelta(days=2))
    memory.add([timed], conversation_id="d", now=NOW + timedelta(days=2))
    assert [one.content[:6] for one in memory.conversations.get("c")] == ["My pas", "Ok.", "And I ", "Fine."]
    assert len(memory.conversations.get("d")) == 1


def test_messages_are_stored_as_they_were_said_if_only_what_is_derived_is_redacted(memory: Memory) -> None:
    memory = configure(memory, "defaults: {secrets: {redact: derived}}")
    secret = SECRETS["github-token"]
    memory.add([said(f"I use {secret} for deployments. <private>{PRIVATE}</private>")], conversation_id="c", now=NOW)
    memory.remember(f"The token is {secret}.", now=NOW)
    for _ in range(2):
        assert secret in memory.conversations.get("c")[0].content
        assert all(secret not in hit.content for hit in memory.search("deployments", now=NOW))
        places = places_of(memory.lake, [secret, PRIVATE])
        assert {place.split("/")[1] for place in places.pop(secret)} <= {"pending", "messages"}
        assert places == {}
        memory.run(now=NOW + timedelta(days=1))


def test_a_workspace_may_store_secrets_and_may_have_formats_of_its_own(memory: Memory) -> None:
    memory = configure(
        memory,
        "defaults: {secrets: {patterns: [{kind: staff, pattern: 'EMP-[0-9]{6}'}]}}\n"
        "workspaces: {open: {secrets: {redact: 'off'}}}",
    )
    memory.add("I am EMP-123456.", now=NOW)
    assert "[secret:staff:" in memory.search("Who am I?", now=NOW)[0].content
    other = Memory(memory.lake.storage.uri, user_id="anna", workspace_id="open")
    other.add(f"I am EMP-123456, password: hunter2, <private>{PRIVATE}</private>.", now=NOW)
    assert {*places_of(memory.lake, ["EMP-123456", "hunter2", PRIVATE])} == {"EMP-123456", "hunter2"}


def test_without_redaction_the_same_search_finds_them(memory: Memory, tmp_path: Path) -> None:
    memory = configure(memory, "defaults: {secrets: {redact: 'off'}}")
    planted = plant(memory, tmp_path)
    memory.run(now=NOW + timedelta(days=1))
    places = places_of(memory.lake, planted)
    folders = {place.partition("/")[0] for listed in places.values() for place in listed}
    assert {"journal", "tables", "projections", "vectordb", "sessions"} <= folders
    assert len(places) > len(SECRETS) + 20
