"""The command `eval`."""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click

from memory_pipeline.cli.common import FILES, cli
from memory_pipeline.cli.terminal import progress
from memory_pipeline.errors import shown
from memory_pipeline.rendering import to_json
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.cli.common import Command
    from memory_pipeline.evaluation.labels import LabelledSet

_LEAST_BUDGET: Final = 50


class _Options(TypedDict):
    """The options that :func:`evaluation_options` adds."""

    max_results: int
    tokens: int
    plot: Path | None
    configuration: Path | None
    root: str | None
    as_json: bool


class _Answering(TypedDict):
    """The options that :func:`answering_options` adds."""

    answer: str | None
    judge: str | None
    protocol: str
    budget: tuple[int, ...]
    sources: tuple[str, ...]
    questions: int | None
    answers: Path
    context_tokens: int
    is_estimate: bool


class _AllOptions(_Options, _Answering):
    """All options of a published set."""


class _Budgets(click.ParamType[tuple[int, ...]]):
    """Token budgets, separated by commas."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse whole numbers of at least 50."""
        if isinstance(value, tuple):
            return value
        if not re.fullmatch(r"[0-9]{2,7}(,[0-9]{2,7})*", value) or min(map(int, value.split(","))) < _LEAST_BUDGET:
            self.fail(f"{value!r} is not accepted; expected e.g. 1000,4000, each at least {_LEAST_BUDGET}", param, ctx)
        return tuple(map(int, value.split(",")))


def answering_options(command: Command) -> Command:
    """Add the options for answers that a model gives and another one judges."""
    for option in reversed(
        [
            click.option(
                "--answer",
                metavar="MODEL",
                help="Answer each question with this model (LiteLLM's provider/model; MODEL@URL for your own server) "
                "instead of measuring retrieval.",
            ),
            click.option("--judge", metavar="MODEL", help="Judge the answers with this model. Default: --answer's."),
            click.option(
                "--protocol",
                type=click.Choice(["paper", "omnimemeval"]),
                default="paper",
                show_default=True,
                help="Whose instructions for answers and verdicts.",
            ),
            click.option(
                "--budget",
                type=_Budgets(),
                default="1000,4000,7000",
                show_default=True,
                help="Tokens of the notes, one row each.",
            ),
            click.option(
                "--source",
                "sources",
                multiple=True,
                type=click.Choice(["memory", "rag", "history"]),
                default=("memory", "rag", "history"),
                help="Rows: memory, plain retrieval (BM25), the whole history. Repeatable; default: all.",
            ),
            click.option(
                "--questions",
                type=click.IntRange(min=1),
                help="Read only so many: questions of each type (longmemeval), or samples (locomo) and chats (beam).",
            ),
            click.option(
                "--answers",
                type=click.Path(path_type=Path, dir_okay=False),
                default="memory-pipeline-answers.jsonl",
                show_default=True,
                help="Keep answers and verdicts here. A stopped run goes on where it ended; no answer is paid twice.",
            ),
            click.option(
                "--context-tokens",
                default=128_000,
                show_default=True,
                type=click.IntRange(min=2_000),
                help="Context of the answering model; limits the whole history.",
            ),
            click.option("--estimate", "is_estimate", is_flag=True, help="Print the cost; ask nothing."),
        ]
    ):
        command = option(command)
    return command


_CONFIG = click.option(
    "--config",
    "configuration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Use this workspaces.yaml, e.g. to measure other models or another embedder.",
)
_ROOT = click.option(
    "--root",
    metavar="URI",
    help="Keep the lake here and reuse it: a folder, or s3://bucket/prefix. Default: a temporary folder; "
    "MEMORY_PIPELINE_ROOT is ignored.",
)


def evaluation_options(command: Command) -> Command:
    """Add the options common to all formats."""
    for option in reversed(
        [
            click.option(
                "--max-results", default=10, show_default=True, type=click.IntRange(1, 100), help="Hits, 1 to 100."
            ),
            click.option(
                "--tokens",
                default=1_000,
                show_default=True,
                type=click.IntRange(min=1),
                help="Token budget of the @budget metrics.",
            ),
            click.option(
                "--plot",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Plot the metrics to a .svg or .png file (needs the extra `plot`).",
            ),
            _CONFIG,
            _ROOT,
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        ]
    ):
        command = option(command)
    return command


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


@evaluate.command()
@FILES
@evaluation_options
@answering_options
def locomo(files: tuple[Path, ...], **options: Unpack[_AllOptions]) -> None:
    """Evaluate on FILES in LoCoMo's format (Maharana et al., ACL 2024).

    Each sample becomes an agent of the workspace `locomo`; its questions are in `qa`. With --answer, adversarial
    questions (category 5) have a figure of their own and do not count in the score.
    """
    from memory_pipeline.evaluation.formats import read_locomo_set

    _measure("locomo", read_locomo_set(files, options["questions"]), options)


@evaluate.command()
@FILES
@evaluation_options
@answering_options
def longmemeval(files: tuple[Path, ...], **options: Unpack[_AllOptions]) -> None:
    """Evaluate on FILES of LongMemEval (Wu et al., ICLR 2025), such as longmemeval_s_cleaned.json.

    Each question becomes an agent of the workspace `longmemeval`, with the sessions of its history.
    """
    from memory_pipeline.evaluation.assistant_sets import read_longmemeval_set

    _measure("longmemeval", read_longmemeval_set(files, options["questions"]), options)


@evaluate.command()
@FILES
@evaluation_options
@answering_options
def beam(files: tuple[Path, ...], **options: Unpack[_AllOptions]) -> None:
    """Evaluate on FILES of BEAM (Tavakoli et al., ICLR 2026): lines of the dataset, or folders of its repository.

    Each chat becomes an agent of the workspace `beam`, each of its batches a conversation. With --answer, the score is
    the mean of what the answers fulfil of their rubrics.
    """
    from memory_pipeline.evaluation.assistant_sets import read_beam_set

    _measure("beam", read_beam_set(files, options["questions"]), options)


@evaluate.command()
@FILES
@evaluation_options
def jsonl(files: tuple[Path, ...], **options: Unpack[_Options]) -> None:
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

    _evaluate(read_jsonl_set(files), **options)


def _measure(name: str, labels: LabelledSet, options: _AllOptions) -> None:
    """Measure retrieval, or with --answer the answers of a model."""
    if options["answer"] is None:
        if options["judge"] is not None or options["is_estimate"]:
            raise click.UsageError("--judge and --estimate need --answer MODEL, the model that answers the questions")
        own: Any = {key: value for key, value in options.items() if key in _Options.__annotations__}
        _evaluate(labels, **own)
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
            return Completion(model=name, api_base=address or None, context_tokens=options["context_tokens"])
        except ValidationError as error:
            raise click.UsageError(f"model {shown(text)}: {error.errors()[0]['msg']}") from None

    plan = Plan(
        Benchmark(name),
        Protocol(options["protocol"]),
        model(options["answer"]),
        model(options["judge"] or options["answer"]),
        options["budget"],
        tuple(map(NoteSource, dict.fromkeys(options["sources"]))),
    )
    as_json = options["as_json"]
    if options["is_estimate"]:
        rows = estimate(labels, plan)
        click.echo(to_json(rows) if as_json else "\n".join(estimate_lines(rows)))
        return
    with _settings(options["root"]) as settings, progress(quiet=as_json) as bar:
        answers = judge_answers(
            labels,
            settings,
            plan,
            AnswerFile(options["answers"]),
            options["configuration"],
            say=lambda line: None if as_json else bar.echo(line, err=True),
        )
    click.echo(
        to_json(answer_record(plan, labels, answers)) if as_json else "\n".join(answer_lines(plan, labels, answers))
    )


@evaluate.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--tokens", default=1_000, show_default=True, type=click.IntRange(50), help="Token budget of a block, at least 50."
)
@_CONFIG
@_ROOT
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with each block.")
def context(
    files: tuple[Path, ...], *, tokens: int, configuration: Path | None, root: str | None, as_json: bool
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


def _evaluate(labels: LabelledSet, **options: Unpack[_Options]) -> None:
    from memory_pipeline.evaluation.harness import evaluate as measure
    from memory_pipeline.evaluation.plot import check_plot, plot
    from memory_pipeline.evaluation.report import report_lines, to_record

    chart, as_json = options["plot"], options["as_json"]
    if chart is not None:
        check_plot(chart)
    with _settings(options["root"]) as settings, progress(quiet=as_json) as bar:
        evaluation = measure(
            labels,
            settings,
            max_results=options["max_results"],
            tokens=options["tokens"],
            configuration=options["configuration"],
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
