"""Charts as SVG and PNG, with equal bytes for equal data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.evaluation.harness import Evaluation, QuestionResult
from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledQuestion, LabelledSet
from memory_pipeline.evaluation.metrics import Ranking, Scores
from memory_pipeline.evaluation.plot import check_plot, plot
from memory_pipeline.evaluation.survival import Remains
from memory_pipeline_tests.building import ACME

if TYPE_CHECKING:
    from pathlib import Path

REMAINS = [Remains(grain, 10 ** (6 - grain.rank), 12, 0.5 / (1 + grain.rank), 1 / (1 + grain.rank)) for grain in Grain]


def evaluation(*remains: Remains) -> Evaluation:
    ranking = Ranking(frozenset("ab"), tuple("bca"))
    outcome = QuestionResult(
        JudgedQuestion(LabelledQuestion("set, line 1", ACME, "?", ()), ranking.relevant), ranking, ranking, 2.0
    )
    scores = Scores.of([ranking], [1, 3])
    empty = LabelledSet({}, (), (), (), ())
    return Evaluation(empty, 3, 100, scores, scores, {"x": scores}, None, 2.0, 2.0, remains, 0, [outcome])


def test_both_curves_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    plot(evaluation(*REMAINS), path)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    for said in ("Evidence found, 1 questions", "12 answers retained by grain", "yearly", "any"):
        assert said in text


def test_equal_data_gives_equal_files(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "a.PNG", "b.PNG"):
        plot(evaluation(*REMAINS), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.PNG").read_bytes() == (tmp_path / "b.PNG").read_bytes()
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_set_without_answers_can_be_drawn(tmp_path: Path) -> None:
    plot(evaluation(), tmp_path / "chart.svg")
    assert "the set holds none" in (tmp_path / "chart.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("chart.pdf", "must end in .svg or .png"), ("no/chart.svg", "does not exist; create it first")],
)
def test_a_name_that_cannot_be_written_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        check_plot(tmp_path / name)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigurationError, match=r'pip install "memory-pipeline\[plot\]"'):
        check_plot(tmp_path / "chart.svg")
