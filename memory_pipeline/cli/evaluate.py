"""The command `eval`."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from memory_pipeline.cli.common import FILES, cli
from memory_pipeline.cli.terminal import progress
from memory_pipeline.rendering import to_json
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.cli.common import Command
    from memory_pipeline.evaluation.labels import LabelledSet


class _Options(TypedDict):
    """The options that :func:`evaluation_options` adds."""

    max_results: int
    tokens: int
    plot: Path | None
    configuration: Path | None
    root: str | None
    as_json: bool


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
            click.option(
                "--config",
                "configuration",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Use this workspaces.yaml, e.g. to measure other models or another embedder.",
            ),
            click.option(
                "--root",
                metavar="URI",
                help="Keep the lake here and reuse it: a folder, or s3://bucket/prefix. Default: a temporary folder; "
                "MEMORY_PIPELINE_ROOT is ignored.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        ]
    ):
        command = option(command)
    return command


@cli.group("eval")
def evaluate() -> None:
    """Measure retrieval quality on labelled questions.

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
def locomo(files: tuple[Path, ...], **options: Unpack[_Options]) -> None:
    """Evaluate on FILES in LoCoMo's format (Maharana et al., ACL 2024).

    Each sample becomes an agent of the workspace `locomo`; its questions are in `qa`.
    """
    from memory_pipeline.evaluation.formats import read_locomo_set

    _evaluate(read_locomo_set(files), **options)


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
    time of the question: messages from more than a day later are not searched. Without it, all are.
    """
    from memory_pipeline.evaluation.formats import read_jsonl_set

    _evaluate(read_jsonl_set(files), **options)


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
