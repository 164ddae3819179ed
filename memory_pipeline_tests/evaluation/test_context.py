"""`eval context`: what the contexts of prompts hold, on the sample and on small files."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline.evaluation.context import Prompt, Verdict, judged, read_prompts
from memory_pipeline.reader.packing.items import InjectedContext, Recalled
from memory_pipeline_tests.invoking import read

if TYPE_CHECKING:
    from pathlib import Path

#: Of the 60 prompts on the sample, at least so many are answered, and at most so many lines are fill.
ANSWERED, FILL = 52, 15


def test_the_contexts_of_the_sample_answer_their_prompts(tmp_path: Path) -> None:
    found = read("eval", "context", "--root", str(tmp_path / "lake"))
    overall = found["overall"]
    assert overall["prompts"] == 60
    assert len(found["kinds"]) == 10
    assert overall["answered"] >= ANSWERED, [one["prompt"] for one in found["prompts"] if one["verdict"] != "answered"]
    assert overall["fill"] <= FILL


def context(*contents: str) -> InjectedContext:
    return InjectedContext(
        tuple(
            Recalled(f"f{place}", Grain.WORKING, "2024-01-15T08", date(2024, 1, 15), content, source_ids=(f"m{place}",))
            for place, content in enumerate(contents)
        )
    )


def prompt(
    *holds: tuple[str, ...], lacks: tuple[str, ...] = (), newer: tuple[tuple[str, str], ...] = (), relevant: str = ""
) -> Prompt:
    ids = frozenset([relevant] if relevant else [])
    return Prompt(Scope("acme", "support"), None, "Where?", "places", None, holds, lacks, newer, ids)


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (prompt(("porto",)), Verdict.ANSWERED),
        (prompt(("lisbon", "porto"), ("bruno",)), Verdict.ANSWERED),
        (prompt(("porto",), ("lisbon",)), Verdict.PARTLY),
        (prompt(("lisbon",)), Verdict.FAILED),
        (prompt(("porto",), lacks=("bruno",)), Verdict.PARTLY),
        (prompt(("porto",), newer=(("porto", "bruno"),)), Verdict.ANSWERED),
        (prompt(("porto",), newer=(("bruno", "porto"),)), Verdict.PARTLY),
        (prompt(relevant="m1"), Verdict.ANSWERED),
        (prompt(relevant="m7"), Verdict.FAILED),
    ],
)
def test_a_block_is_judged_by_its_text_and_its_sources(asked: Prompt, verdict: Verdict) -> None:
    assert judged(asked, context("Anna: I live in Porto.", "Anna: My dog is called Bruno.")).verdict is verdict


def test_fill_counts_against_a_block() -> None:
    full = context("Anna: I live in Porto.", "Agent: Thanks!")
    found = judged(prompt(("porto",)), full, frozenset(["thanks!"]))
    assert (found.verdict, found.fill, found.lines) == (Verdict.PARTLY, 1, 2)


@pytest.mark.parametrize(
    "record",
    [
        {"workspace_id": "acme", "agent_id": "support", "prompt": "Where?"},
        {"workspace_id": "acme", "agent_id": "support", "prompt": " ", "holds": ["Porto"]},
        {"workspace_id": "acme", "agent_id": "support", "prompt": "Where?", "holds": "Porto"},
        {"workspace_id": "acme", "agent_id": "support", "prompt": "Where?", "holds": ["Porto"], "newer": [["a"]]},
        {"workspace_id": "acme", "agent_id": "support"},
        {"workspace_id": "acme", "agent_id": "support", "fill": ["Thanks!"]},
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, record: dict[str, object]) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps(record) + "\n", encoding="utf-8")
    with pytest.raises(InputError):
        read_prompts([path])
