"""Evaluation of labelled sets with a real lake, pipeline and reader. The conversations are invented."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.model_calls import count_tokens
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.evaluation.harness import Evaluation, evaluate, turns_of, within
from memory_pipeline.evaluation.labels import ADVERSARIAL, Citation, LabelledQuestion, labelled_set
from memory_pipeline.evaluation.report import report_lines, to_record
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.reader import Hit
from memory_pipeline.settings import Settings
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import ACME, conversation, table_rows
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.evaluation.labels import LabelledSet

OTHER = Scope("acme", "sales")
TALKS = [
    conversation("I moved to Porto in spring.", "My dog is called Bruno.", "Lunch was fine.", at="2022-03-15T08:00"),
    conversation("Bruno ate my passport.", at="2022-05-31T08:00", conversation_id="c2"),
    conversation("The oven cost 900 euros.", at="2023-01-10T08:00", scope=OTHER),
]


def ask(text: str, *evidence: Citation, scope: Scope = ACME, **more: str | datetime | None) -> LabelledQuestion:
    return LabelledQuestion("set, line 1", scope, text, evidence, **more)  # type: ignore[arg-type]


QUESTIONS = [
    ask("What is the dog called?", Citation("m2"), category="pets", answer="Bruno"),
    ask("What did Bruno do to the passport?", Citation("m1", "c2"), Citation("m2"), category="pets"),
    ask("How much was the oven?", Citation("m1"), scope=OTHER, category="prices", answer="900 euros"),
    ask("What colour is the canoe?", Citation("m3"), category=ADVERSARIAL, answer="green"),
    ask("Who sails?", Citation("m77")),
]


def labels_of(*questions: LabelledQuestion) -> LabelledSet:
    return labelled_set([(f"set, line {number}", talk) for number, talk in enumerate(TALKS, start=1)], questions)


def figures(evaluation: Evaluation) -> dict[str, object]:
    """Return all but the milliseconds."""
    return to_record(evaluation) | {"milliseconds": None}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(root=str(tmp_path_factory.mktemp("evaluated") / "lake"))


@pytest.fixture(scope="module")
def evaluation(settings: Settings) -> Evaluation:
    return evaluate(labels_of(*QUESTIONS), settings)


def test_every_question_is_searched_in_its_own_agent(evaluation: Evaluation) -> None:
    assert evaluation.overall.questions == 3
    assert evaluation.overall.at[10].any == 3
    assert evaluation.overall.at[10].all == 3
    assert evaluation.overall.at[10].recall == 1
    assert evaluation.overall.within_budget.all == 3
    assert evaluation.overall.mrr == 1
    [dog, passport, oven, _] = evaluation.outcomes
    assert dog.ranking.turns[0] in dog.ranking.relevant
    assert set(passport.ranking.turns[:2]) == passport.ranking.relevant
    assert len(oven.ranking.turns) == 1  # the other agent has nothing else
    assert evaluation.p95 >= evaluation.p50 > 0


def test_metrics_are_per_category_and_exclude_adversarial_questions(evaluation: Evaluation) -> None:
    assert {name: scores.questions for name, scores in evaluation.categories.items()} == {"pets": 2, "prices": 1}
    assert evaluation.adversarial is not None
    assert evaluation.adversarial.questions == 1


def test_excluded_questions_have_a_reason(evaluation: Evaluation) -> None:
    [set_aside] = evaluation.labels.questions_set_aside
    assert (set_aside.text, "m77" in set_aside.reason) == ("Who sails?", True)


def test_retained_answers_are_measured_at_each_grain(evaluation: Evaluation) -> None:
    assert [each.grain for each in evaluation.remains] == list(Grain)
    assert {each.answers for each in evaluation.remains} == {
        2
    }  # without those without an answer and the adversarial ones
    assert all(each.characters for each in evaluation.remains)


def test_a_second_evaluation_in_the_same_lake_gives_the_same_metrics(
    settings: Settings, evaluation: Evaluation
) -> None:
    said: list[str] = []
    before = table_rows(Lake(settings.root))
    assert figures(evaluate(labels_of(*QUESTIONS), settings, say=said.append)) == figures(evaluation)
    assert said[0] == "0 new messages written, 5 already known"
    assert table_rows(Lake(settings.root)) == before


def test_another_lake_gives_the_same_metrics(tmp_path: Path, evaluation: Evaluation) -> None:
    again = evaluate(labels_of(*QUESTIONS), Settings(root=str(tmp_path)))
    assert figures(again) == figures(evaluation)


def test_depths_follow_the_number_of_results(settings: Settings, evaluation: Evaluation) -> None:
    few = evaluate(labels_of(*QUESTIONS), settings, max_results=2)
    assert list(few.overall.at) == [1, 2]
    assert all(len(outcome.ranking.turns) <= 2 for outcome in few.outcomes)
    assert list(few.curve().at) == [1, 2]
    assert few.curve().at[2] == few.overall.at[2]
    assert list(evaluate(labels_of(*QUESTIONS), settings, max_results=20).overall.at) == [1, 5, 10, 20]


def test_a_tiny_budget_holds_nothing(settings: Settings, evaluation: Evaluation) -> None:
    assert evaluate(labels_of(*QUESTIONS), settings, tokens=1).overall.within_budget.recall == 0


def test_messages_after_a_question_are_not_found(settings: Settings, evaluation: Evaluation) -> None:
    early = datetime(2022, 4, 1, tzinfo=UTC)
    again = evaluate(labels_of(replace(QUESTIONS[1], now=early)), settings)
    assert again.overall.at[10].recall == 0.5


def test_a_set_without_answers_has_no_curve(settings: Settings, evaluation: Evaluation) -> None:
    again = evaluate(labels_of(replace(QUESTIONS[0], answer=None)), settings)
    assert again.remains == []
    assert not any("share still found" in line for line in report_lines(again))


def test_a_set_of_excluded_questions_lists_them(settings: Settings, evaluation: Evaluation) -> None:
    again = evaluate(labels_of(QUESTIONS[4]), settings)
    assert again.overall.questions == 0
    text = "\n".join(report_lines(again))
    assert "excluded: 1 question" in text
    assert "names no message of acme/support" in text


def test_a_lake_with_another_text_of_a_message_is_refused(settings: Settings, evaluation: Evaluation) -> None:
    other = conversation("I moved to Oslo.", at="2022-03-15T08:00")
    labels = labelled_set([("set, line 1", other)], [QUESTIONS[0]])
    with pytest.raises(InputError, match="has another text of message 'm1' in conversation 'c1'; use another --root"):
        evaluate(labels, settings)


def test_a_configuration_is_validated_and_used(root: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    with OpenAIServer() as server:
        server.answer = oracle.answer
        mine.write_text(oracle.CONFIG.format(url=server.base_url), encoding="utf-8")
        evaluate(labels_of(QUESTIONS[0]), Settings(root=root), configuration=mine)
        assert server.requests
    assert Lake(root).storage.read(CONFIGURATION) == mine.read_bytes()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, InputError, "cannot be read: No such file"),
        (b"\xff", ConfigurationError, "not UTF-8 at byte 0"),
        (b"defaults: {nothing: 1}", ConfigurationError, "nothing"),
    ],
)
def test_an_invalid_configuration_is_refused_before_the_run(
    root: str, tmp_path: Path, content: bytes | None, error: type[Exception], message: str
) -> None:
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        evaluate(labels_of(QUESTIONS[0]), Settings(root=root), configuration=path)
    assert not Lake(root).exists


def hit(text: str, *sources: str) -> Hit:
    when = datetime(2024, 1, 15, tzinfo=UTC)
    return Hit("id", Grain.WORKING, "2024-01-15T00", "turn", text, when, when, when.date(), sources, "c1", 1.0)


def test_turns_of_hits_are_in_order_without_duplicates() -> None:
    assert turns_of([hit("x", "b", "a"), hit("y", "a"), hit("z", "c")]) == ("b", "a", "c")


def test_a_budget_ends_at_the_first_line_that_does_not_fit() -> None:
    hits = [hit("short", "a"), hit("long " * 100, "b"), hit("short", "c")]
    line = count_tokens("[2024-01-15] short")
    assert list(within(line, hits)) == hits[:1]
    assert list(within(line - 1, hits)) == []
    assert list(within(10_000, hits)) == hits
