"""Previews are short, respect the configuration, and cannot steer the page."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory_pipeline.defs.metadata import MOST_CHARACTERS, MOST_PREVIEWS, markdown, previews_of, with_previews
from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import PartitionResult
from memory_pipeline_tests.building import ACME, conversation, hours, run, write

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake
    from memory_pipeline.models.factory import Models

HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "![](http://tracker.example/a.png) [click](javascript:alert(1)) <https://evil.example> www.evil.example a@b.cd",
    "```\n</code></pre>\n# A heading\n\nA paragraph with https://evil.example\n\n    ```",
    "` `` ``` ~~~~ | a | b |\n|---|---|\n- [ ] task\n1. one\n> quote\n[x]: http://evil.example",
    "invoice \u202egnp.exe\u2066 \u200b\u00ad\ufeff\U000e0041 zero width",
    "\x00\x07\x1b[31mred\r\noverwritten\x85next\u2028line\u2029paragraph\ttab",
    "\ud800 lone",
    "a" * 100_000,
    "\N{LATIN SMALL LETTER E}\N{COMBINING ACUTE ACCENT}" * 5_000,
    "",
    " \n ",
]
LONGEST = Scope("w" * 100, "a" * 100)


def is_harmless(text: str) -> bool:
    """Return whether a preview is one sentence and code blocks: lines that are empty or indented by four blanks."""
    first, blank, *rest = text.split("\n")
    return (
        len(text) <= MOST_CHARACTERS
        and re.fullmatch(r"(Most important facts|First points of the summaries) of [0-9 of]+ agents?:", first)
        is not None
        and not blank
        and all(not line or (line.startswith("    ") and line.strip()) for line in rest)
        and not any(unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} for c in text if c != "\n")
        and not any(unicodedata.category(c) == "Cf" for c in text if c not in "\u200c\u200d")
    )


@pytest.mark.parametrize("grain", [Grain.WORKING, Grain.DAILY])
def test_hostile_content_stays_code(grain: Grain) -> None:
    for content in HOSTILE:
        assert is_harmless(markdown(grain, {ACME: [content, content], LONGEST: [content] * 3}, 7)), content[:50]


@given(st.lists(st.text(), max_size=3), st.lists(st.text(min_size=60), max_size=3), st.integers(3, 10**9))
@example(["\r"], ["`" * 99], 3)
@example(["é" * 61 + " x" * 99], ["\u3042" * 500], 3)
def test_a_preview_of_any_text_is_short_and_harmless(few: list[str], many: list[str], total: int) -> None:
    agents = {ACME: few, Scope("acme", "sales"): many, LONGEST: [*many, *few][:3]}
    for grain in (Grain.WORKING, Grain.YEARLY):
        assert is_harmless(markdown(grain, agents, total))


def test_a_preview_shows_the_text_verbatim() -> None:
    agents = {
        ACME: ["2024-01-15 Anna: I moved to Porto.", "2024-01-15 Зоя: \u0645\u06cc\u200c\u0631\u0648\u0645 👩\u200d🚀."]
    }
    assert markdown(Grain.DAILY, agents, 1) == (
        "First points of the summaries of 1 agent:\n\n    acme / support\n      2024-01-15 Anna: I moved to Porto.\n"
        "      2024-01-15 Зоя: \u0645\u06cc\u200c\u0631\u0648\u0645 👩\u200d🚀."
    )
    long = markdown(Grain.WORKING, {ACME: ["word " * 100]}, 5).splitlines()
    assert long[0] == "Most important facts of 1 of 5 agents:"
    assert long[-1].endswith("word…")
    assert max(map(len, long)) <= 66


def test_previews_show_facts_but_no_turns(lake: Lake, models: Models) -> None:
    scopes = [Scope("acme", f"agent{number}") for number in range(5)]
    write(lake, *(conversation("Hello there!", "I moved to Porto.", scope=scope) for scope in scopes))
    write(lake, conversation("Hi!", at="2024-01-15T09:00", conversation_id="c9"))
    run(lake, models)
    found = previews_of(lake, hours("2024-01-15T08", "2024-01-15T09"))
    assert list(found) == hours("2024-01-15T08")
    [preview] = found.values()
    assert preview.startswith("Most important facts of 3 of 5 agents:")
    assert preview.count("Anna: I moved to Porto.") == 3
    assert "Hello" not in preview
    [day] = previews_of(lake, [Period.parse(Grain.DAILY, "2024-01-15")]).values()
    assert day.startswith("First points of the summaries of 3 of 6 agents:")
    assert "2024-01-15 Anna: I moved to Porto." in day


def test_a_workspace_without_previews_is_never_shown(lake: Lake, models: Models) -> None:
    write(
        lake,
        conversation("I moved to Porto."),
        conversation("The merger is on Friday.", scope=Scope("secret", "board")),
        conversation("The merger is off.", at="2024-01-16T08:00", scope=Scope("secret", "board")),
    )
    run(lake, models)
    lake.storage.write(CONFIGURATION, b"workspaces:\n  secret:\n    previews: false\n")
    days = [Period.parse(Grain.DAILY, key) for key in ("2024-01-15", "2024-01-16")]
    found = previews_of(lake, days)
    assert list(found) == days[:1]
    assert found[days[0]].startswith("First points of the summaries of 1 agent:")
    assert "merger" not in found[days[0]]
    assert "secret" not in found[days[0]]


def test_only_the_newest_changed_partitions_of_a_run_have_previews(lake: Lake, models: Models) -> None:
    days = [Period.parse(Grain.DAILY, f"2024-{month:02}-{day:02}") for month in (1, 2) for day in range(1, 29)]
    write(lake, *(conversation("I moved to Porto.", at=f"{day.key}T08:00", conversation_id=day.key) for day in days))
    list(materialize(lake, models, Grain.WORKING, hours(*(f"{day.key}T08" for day in days))))

    def shown() -> dict[str, list[Period]]:
        assets: dict[str, list[Period]] = {}
        for made, preview in with_previews(lake, days, materialize(lake, models, Grain.DAILY, days)):
            assets.setdefault(made.asset, []).extend([made.period] * (preview is not None))
        return assets

    assert shown() == {"daily_summaries": days[-MOST_PREVIEWS:], "daily_index": []}
    assert shown() == {"daily_summaries": [], "daily_index": []}


def test_results_are_yielded_as_they_arrive(lake: Lake) -> None:
    [hour] = hours("2024-01-15T08")
    made = [
        PartitionResult(asset, hour, "", "", 0, 0)
        for asset in ("messages", "working_facts", "graph_facts", "working_index")
    ]
    assert list(with_previews(lake, [hour], iter(made))) == [(part, None) for part in made]
    assert list(with_previews(lake, [hour], iter(made[1:2]))) == [(made[1], None)]
