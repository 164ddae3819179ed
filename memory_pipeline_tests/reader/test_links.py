"""Recall and injection follow links between memories, as many steps as `hops` says."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from memory_pipeline import Memory

if TYPE_CHECKING:
    from pathlib import Path

CHAIN = ["The boiler in the cellar broke.", "Pipes froze last winter.", "The plumber is called Otto.", "Otto is away."]


def test_links_are_followed_within_hops(tmp_path: Path) -> None:
    memory = Memory(str(tmp_path))
    ids = [memory.remember(text) for text in CHAIN]
    memory.remember("The violin lesson is on Friday.")
    for source, target in pairwise(ids):
        memory.writer.link(target, source, "follows", 0.9)  # links are followed in both directions
    prompt = "What about the boiler in the cellar?"
    for hops in range(4):
        assert [one.content for one in memory.reader.recall(prompt, hops=hops)] == CHAIN[: hops + 1]
        assert {one.content for one in memory.reader.inject_knowledge(prompt, hops=hops).parts} == {*CHAIN[: hops + 1]}
    assert [one.id for one in memory.reader.recall(prompt, hops=3, exclude=[ids[1]])] == [ids[0]]
    memory.forget(ids[2])
    assert [one.content for one in memory.reader.recall(prompt, hops=3)] == CHAIN[:2]
    memory.writer.unlink(ids[1], ids[0], "follows")
    assert [one.content for one in memory.reader.recall(prompt, hops=3)] == CHAIN[:1]


@pytest.mark.parametrize("conditions", [{"person": "Anna"}, {"tag": "home"}, {"until": "2020-01-01"}])
def test_conditions_bind_what_links_lead_to(tmp_path: Path, conditions: dict[str, str]) -> None:
    memory = Memory(str(tmp_path))
    first, second = (memory.remember(text) for text in CHAIN[:2])
    memory.writer.link(first, second, "follows", 0.9)
    found = memory.reader.recall("What about the boiler in the cellar?", **conditions)  # type: ignore[arg-type]  # a table
    assert CHAIN[1] not in [one.content for one in found]
