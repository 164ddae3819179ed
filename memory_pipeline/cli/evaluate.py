"""The command `eval`."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click

from memory_pipeline.cli.common import FILES, cli, json_option
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import VerbCommand, command
from memory_pipeline.errors import InputError
from memory_pipeline.parameters import Within
from memory_pipeline.rendering import to_json
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memory_pipeline.cli.common import Command
    from memory_pipeline.evaluation.labels import LabelledSet

_LEAST_BUDGET: Final = 50
_SOURCES: Final = ("memory", "rag", "history")
#: Options of the sets whose questions a model may answer.
_ANSWERING: Final = (
    "answer", "judge", "protocol", "budget", "sources", "questions", "answers", "context_tokens", "is_estimate",
)  # fmt: skip


def _options(function: Command) -> Command:
    root = click.option(
        "--root",
        metavar="URI",
        help="Keep the lake here and reuse it: a folder, or s3://bucket/prefix. Default: a temporary folder; "
        "MEMORY_PIPELINE_ROOT is ignored.",
    )
    return root(json_option(function))


@cli.group("eval")
def evaluate() -> None:
    """Measure retrieval quality, or the answers of a model, on labelled questions.

    Loads the conversations into a lake, runs the pipeline, and searches working memory for each question. Results are
    scored by message: hits are mapped to their messages, in rank order, without duplicates.

    \b
    any@k      share of questions with at least one evidence message among the first k
    all@k      share of questions with all evidence messages among the first k
    recall@k   mean share of a question's evidence among the first k
    MRR        mean of 1 / rank of the first evidence message
    nDCG@10    normalized discounted cumulative gain of the first 10
    @budget    the same for the first of 100 hits that fit into --tokens (4 bytes count as a token)

    Questions of the category `adversarial` are reported separately. Questions whose evidence matches no message are
    excluded and listed. The report ends with the share of answers that each grain's text still contains, and the text's
    length.
    """


def _measure(
    name: str,
    read: Callable[[int | None], LabelledSet],
    *,
    root: str | None,
    as_json: bool,
    max_results: Annotated[int, Within(1, 100)] = 10,
    tokens: Annotated[int, Within(1)] = 1_000,
    plot: Path | None = None,
    configuration: Path | None = None,
    answer: str | None = None,
    judge: str | None = None,
    protocol: Literal["paper", "omnimemeval"] = "paper",
    budget: str = "1000,4000,7000",
    sources: Sequence[Literal["memory", "rag", "history"]] = (),
    questions: Annotated[int | None, Within(1)] = None,
    answers: Path = Path("memory-pipeline-answers.jsonl"),
    context_tokens: Annotated[int, Within(2_000)] = 128_000,
    is_estimate: bool = False,
) -> None:
    """Measure retrieval, or with --answer the answers of a model.

    Args:
        max_results: hits, 1 to 100.
        tokens: token budget of the @budget metrics.
        plot: plot the metrics to a .svg or .png file (needs the extra `plot`).
        configuration: use this workspaces.yaml, e.g. to measure other models or another embedder.
        answer: answer each question with this model (LiteLLM's provider/model; MODEL@URL for your own server) instead
            of measuring retrieval.
        judge: judge the answers with this model. Default: --answer's.
        protocol: whose instructions for answers and verdicts.
        budget: tokens of the notes, one row each.
        sources: rows: memory, plain retrieval (BM25), the whole history. Default: all.
        questions: read only so many: questions of each type (longmemeval), or samples (locomo) and chats (beam).
        answers: keep answers and verdicts here. A stopped run goes on where it ended; no answer is paid twice.
        context_tokens: context of the answering model; limits the whole history.
        is_estimate: print the cost; ask nothing.
    """
    budgets, labels = _budgets(budget), read(questions)
    if answer is None:
        if judge is not None or is_estimate:
            raise click.UsageError("--judge and --estimate need --answer MODEL, the model that answers the questions")
        _measure_retrieval(labels, root, max_results, tokens, plot, configuration, as_json=as_json)
        return
    from pydantic import ValidationError

    from memory_pipeline.configuration.model_settings import Completion
    from memory_pipeline.evaluation.answer_file import AnswerFile
    from memory_pipeline.evaluation.answering import NoteSource, Plan, estimate
    from memory_pipeline.evaluation.harness import judge_answers
    from memory_pipeline.evaluation.judging import Benchmark, Protocol
    from memory_pipeline.evaluation.report import answer_lines, answer_record, estimate_lines

    def model(text: str) -> Completion:
        name, _, address = text.partition("@")
        try:
            return Completion(model=name, api_base=address or None, context_tokens=context_tokens)
        except ValidationError as error:
            raise InputError(f"model {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None

    plan = Plan(
        Benchmark(name),
        Protocol(protocol),
        model(answer),
        model(judge or answer),
        budgets,
        tuple(map(NoteSource, dict.fromkeys(sources or _SOURCES))),
    )
    if is_estimate:
        rows = estimate(labels, plan)
        click.echo(to_json(rows) if as_json else "\n".join(estimate_lines(rows)))
        return
    with _settings(root) as settings, progress(quiet=as_json) as bar:
        found = judge_answers(
            labels,
            settings,
            plan,
            AnswerFile(answers),
            configuration,
            say=lambda line: None if as_json else bar.echo(line, err=True),
        )
    click.echo(to_json(answer_record(plan, labels, found)) if as_json else "\n".join(answer_lines(plan, labels, found)))


def _budgets(text: str) -> tuple[int, ...]:
    """Return token budgets, which commas separate."""
    if not re.fullmatch(r"[0-9]{2,7}(,[0-9]{2,7})*", text) or min(map(int, text.split(","))) < _LEAST_BUDGET:
        problem = f"{text!r} is not accepted; expected e.g. 1000,4000, each at least {_LEAST_BUDGET}"
        raise click.BadParameter(problem, click.get_current_context(), param_hint="'--budget'")
    return tuple(map(int, text.split(",")))


@evaluate.command(cls=VerbCommand, method=_measure)
@FILES
@_options
def locomo(files: tuple[Path, ...], **options: Any) -> None:
    """Evaluate on FILES in LoCoMo's format (Maharana et al., ACL 2024).

    Each sample becomes an agent of the workspace `locomo`; its questions are in `qa`. With --answer, adversarial
    questions (category 5) have a figure of their own and do not count in the score.
    """
    from memory_pipeline.evaluation.formats import read_locomo_set

    _measure("locomo", partial(read_locomo_set, files), **options)


@evaluate.command(cls=VerbCommand, method=_measure)
@FILES
@_options
def longmemeval(files: tuple[Path, ...], **options: Any) -> None:
    """Evaluate on FILES of LongMemEval (Wu et al., ICLR 2025), such as longmemeval_s_cleaned.json.

    Each question becomes an agent of the workspace `longmemeval`, with the sessions of its history.
    """
    from memory_pipeline.evaluation.assistant_sets import read_longmemeval_set

    _measure("longmemeval", partial(read_longmemeval_set, files), **options)


@evaluate.command(cls=VerbCommand, method=_measure)
@FILES
@_options
def beam(files: tuple[Path, ...], **options: Any) -> None:
    """Evaluate on FILES of BEAM (Tavakoli et al., ICLR 2026): lines of the dataset, or folders of its repository.

    Each chat becomes an agent of the workspace `beam`, each of its batches a conversation. With --answer, the score is
    the mean of what the answers fulfil of their rubrics.
    """
    from memory_pipeline.evaluation.assistant_sets import read_beam_set

    _measure("beam", partial(read_beam_set, files), **options)


@evaluate.command(cls=VerbCommand, method=_measure, without=_ANSWERING)
@FILES
@_options
def jsonl(files: tuple[Path, ...], **options: Any) -> None:
    """Evaluate on FILES in JSONL. Each line is a conversation, in the format of `ingest`, or a question.

    \b
    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "c1",
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}
    {"workspace_id": "acme", "agent_id": "support",
     "question": "Where does Anna live?", "evidence": ["m1"],
     "answer": "Porto", "category": "places", "now": "2024-02-01T00:00:00Z"}      (answer, category, now: optional)

    One record per line, in any order and any file. `evidence` lists the ids of the messages that answer the question.
    Write {"conversation_id": "c1", "id": "m1"} for an id that several conversations of the agent use. `now` is the
    time of the question: later messages are not searched. Without it, all are.
    """
    from memory_pipeline.evaluation.formats import read_jsonl_set

    _measure("jsonl", lambda _: read_jsonl_set(files), **options)


@command(
    evaluate, lambda function: click.argument("files", nargs=-1, type=click.Path(path_type=Path))(_options(function))
)
def context(
    files: tuple[Path, ...],
    root: str | None,
    as_json: bool,
    tokens: Annotated[int, Within(50)] = 1_000,
    configuration: Path | None = None,
) -> None:
    """Judge the contexts of prompts. FILES are JSONL; without any, 60 prompts on the sample are judged.

    Each line is a conversation, in the format of `ingest`, or a prompt:

    \b
    {"workspace_id": "acme", "agent_id": "support", "user_id": "anna", "prompt": "What could I give my son?",
     "kind": "family", "now": "2024-02-01T00:00:00Z", "holds": ["Finn", ["dinosaurs", "rockets"]],
     "lacks": ["Lotta"], "newer": [["size 35", "size 34"]]}

    `holds` lists texts that the block must hold; of a list in it, any one is enough. `lacks` lists texts that it must
    not hold. Of each pair in `newer`, the second text must be after the first, or left out. `user_id`, `kind`, `now`,
    `lacks` and `newer` are optional. {"workspace_id": "acme", "agent_id": "support", "fill": ["Thanks!"]} lists texts
    that say nothing: at most a tenth of a block's lines may be such texts. A prompt is answered if all of this is true,
    and failed if the block holds nothing of `holds`. A question in the format of `eval jsonl` is answered if its block
    has one of its evidence messages, or something made of one.

    Args:
        tokens: token budget of a block, at least 50.
        configuration: use this workspaces.yaml, e.g. to measure other models or another embedder.
    """
    from memory_pipeline.evaluation.context import context_lines, context_record, evaluate_contexts, read_prompts

    prompts = read_prompts(files)
    with _settings(root) as settings, progress(quiet=as_json) as bar:
        results = evaluate_contexts(
            prompts,
            settings,
            tokens=tokens,
            configuration=configuration,
            say=lambda line: None if as_json else bar.echo(line, err=True),
        )
    click.echo(to_json(context_record(results)) if as_json else "\n".join(context_lines(results)))


def _measure_retrieval(
    labels: LabelledSet,
    root: str | None,
    max_results: int,
    tokens: int,
    chart: Path | None,
    configuration: Path | None,
    *,
    as_json: bool,
) -> None:
    from memory_pipeline.evaluation.harness import evaluate as measure
    from memory_pipeline.evaluation.plot import check_plot, plot
    from memory_pipeline.evaluation.report import report_lines, to_record

    if chart is not None:
        check_plot(chart)
    with _settings(root) as settings, progress(quiet=as_json) as bar:
        evaluation = measure(
            labels,
            settings,
            max_results=max_results,
            tokens=tokens,
            configuration=configuration,
            say=lambda line: None if as_json else bar.echo(line, err=True),
        )
    if chart is not None:
        plot(evaluation, chart)
    click.echo(to_json(to_record(evaluation)) if as_json else "\n".join(report_lines(evaluation)))


@contextmanager
def _settings(root: str | None) -> Iterator[Settings]:
    """Yield the settings of the lake at `root`, or of a temporary lake and Dagster instance."""
    settings = Settings.from_environment()
    if root is not None:
        yield replace(settings, root=root)
        return
    with tempfile.TemporaryDirectory(prefix="memory-pipeline-eval-") as folder:
        yield replace(settings, root=folder, has_dagster_home=False)
