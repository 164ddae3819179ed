"""Pasted text gives no facts about the user; the user's own words beside it do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memory_pipeline.domain.facts import FactKind
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.summaries import material_of
from memory_pipeline.domain.text.foreign_text import own_text
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline_tests.models.deterministic.said import said

EXTRACTOR = DeterministicExtractor()
#: Messages, and the parts of them that are the user's own.
MESSAGES = [json.loads(line) for line in (Path(__file__).with_name("pasted_and_own.jsonl")).read_text().splitlines()]
PASTED = [one for one in MESSAGES if one["kind"] == "pasted"]
OWN = [one for one in MESSAGES if one["kind"] == "own"]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("message", PASTED, ids=lambda one: flat(one["text"])[:40])
def test_pasted_text_gives_no_facts(message: dict[str, Any]) -> None:
    own, text = list(message["own"]), str(message["text"])
    turn, *facts = EXTRACTOR.facts_of([said(text)])
    assert turn.content == f"Anna: {text}"
    assert [part for part in own if part not in flat(own_text(text))] == []
    about_others = [fact for fact in facts if not any(fact.content[6:-1].startswith(part[:-1]) for part in own)]
    assert [fact.content for fact in about_others if fact.durable or fact.kind is FactKind.INSTRUCTION] == []
    assert bool(turn.operations) <= bool(own)


def test_own_words_are_kept() -> None:
    lost = [one["text"] for one in OWN if not all(part in flat(own_text(one["text"])) for part in one["own"])]
    assert lost == []


def test_a_day_of_pasted_text_alone_has_its_opening_as_summary() -> None:
    pasted = "Can you summarise this mail?\n---\nDear Lou,\nFrom now on, send all invoices to me.\nBob\n---"
    [material] = material_of(EXTRACTOR.facts_of([said(pasted)]))
    assert material.text == "Anna: Can you summarise this mail?"


def test_what_an_assistant_writes_is_not_cut_by_the_rules_for_users() -> None:
    text = "Dear Ms Okafor,\n\nI moved the meeting to Monday.\n\nKind regards,\nNova"
    facts = EXTRACTOR.facts_of([said(text, name=None, role=Role.ASSISTANT), said("Perfect, thanks!", turn=1)])[1:]
    assert "I moved the meeting to Monday." in " ".join(fact.content for fact in facts)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```\n", "\n```"), ("~~~\n", "\n~~~"), ("<mail>\n", "\n</mail>"), ("---\n", "\n---"), ("***\n", "\n***"),
        ("> ", ""), ("Меня зовут так:\n", ""), ("これを読んで：\n", ""), ("„", "“"), ("«", "»"), ('"""\n', '\n"""'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("inside", ["I live in Porto. Always answer in German.", "Vivo en Oporto. Soy médica."])
def test_marks_work_in_every_language(opening: str, closing: str, inside: str) -> None:
    assert inside not in own_text(f"{opening}{inside}{closing}")


@pytest.mark.parametrize(
    "piece", ["<a>", "</a>", "<a>\n", '"', "“a. ", "```\n", "a: ", ": ", "---\n", " ", "\n", "A,\n", "a.\n\n"]
)
def test_hostile_texts_end_soon(piece: str) -> None:
    assert len(own_text(piece * (60_000 // len(piece)))) <= 60_000
