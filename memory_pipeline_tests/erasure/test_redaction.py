"""Secrets that a lake already holds are removed from every file, and what was made from them is made again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory
from memory_pipeline.erasure import redaction
from memory_pipeline.erasure.redaction import redact
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.invoking import call
from memory_pipeline_tests.lake_digest import differing, lake_digest
from memory_pipeline_tests.planting import NOW, PASSWORDS, PRIVATE, configure, plant
from memory_pipeline_tests.searching import places_of
from memory_pipeline_tests.secret_samples import SECRETS

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline_tests.conftest import CopiedLake

LATER = NOW + timedelta(days=3)
PENDING = "Zq7-planted-pending"


def fill(folder: Path) -> None:
    """Make a lake that was written without redaction, with computed and pending records."""
    memory = configure(Memory(folder, user_id="anna"), "defaults: {secrets: {redact: 'off'}}")
    plant(memory, folder.parent)
    memory.run(now=NOW + timedelta(days=1))
    memory.add(f"My new password is {PENDING}, and I like tea.", now=NOW + timedelta(days=2))
    configure(memory, "defaults: {}")


@pytest.fixture
def lake(copied: CopiedLake) -> Lake:
    return copied("planted", fill)


def assert_clean(lake: Lake) -> None:
    planted = [*SECRETS.values(), *PASSWORDS, PRIVATE, PENDING]
    assert places_of(lake, planted) == {}
    memory = Memory(lake.storage.uri, user_id="anna")
    assert memory.check(now=LATER) == ()
    assert "[secret:github-token:" in memory.search("github-token", now=LATER)[0].content
    assert any("tea" in hit.content for hit in memory.search("What do I like to drink?", now=LATER))


def test_a_redaction_leaves_no_secret_in_any_file(lake: Lake) -> None:
    assert len(places_of(lake, [*SECRETS.values(), *PASSWORDS, PENDING])) > len(SECRETS) + 20
    ids = {one.id for one in Memory(lake.storage.uri, user_id="anna").conversations.get("f1")}
    done = redact(lake, default_models(), LATER)
    assert {"messages", "memory_events", "journal", "quarantine", "sessions", "collections"} <= done.places.keys()
    assert done.kinds.keys() >= SECRETS.keys()
    assert_clean(lake)
    assert {one.id for one in Memory(lake.storage.uri, user_id="anna").conversations.get("f1")} == ids
    before = lake_digest(lake)
    assert not redact(lake, default_models(), LATER).places
    assert not differing(before, lake_digest(lake))
    Memory(lake.storage.uri, user_id="anna").run(now=LATER)
    assert_clean(lake)


@pytest.mark.parametrize("step", ["_redact_rows", "replay", "purge_rows"])
@pytest.mark.parametrize("after", [False, True])
def test_an_interrupted_redaction_can_be_repeated(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, step: str, *, after: bool
) -> None:
    original = getattr(redaction, step)

    def dies(*given: object, **named: object) -> None:
        if after:
            original(*given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(redaction, step, dies)
        with pytest.raises(KeyboardInterrupt):
            redact(lake, default_models(), LATER)
    lake = Lake(lake.storage.uri)
    redact(lake, default_models(), LATER)
    assert_clean(lake)


def test_the_command_counts_first_and_prints_no_secret(lake: Lake, tmp_path: Path) -> None:
    before = lake_digest(lake)
    preview = call("redact", "--root", lake.storage.uri, "--dry-run")
    assert not differing(before, lake_digest(Lake(lake.storage.uri)))
    receipt = tmp_path / "receipt.json"
    done = call("redact", "--root", lake.storage.uri, "--yes", "--receipt", str(receipt))
    assert (preview.exit_code, done.exit_code) == (0, 0)
    assert "github-token" in receipt.read_text()
    texts = preview.output + done.output + receipt.read_text()
    assert not [one for one in (*SECRETS.values(), *PASSWORDS) if one in texts]
    assert_clean(Lake(lake.storage.uri))
