"""The command that measures how well memory is searched."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from memory_pipeline.cli.common import FILES, cli, show_progress
from memory_pipeline.rendering import to_json
from memory_pipeline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline.cli.common import Command
    from memory_pipeline.evaluation.labels import LabelledSet


class _Options(TypedDict):
    """What :func:`evaluation_options` gives a command."""

    max_results: int
    tokens: int
    plot: Path | None
    configuration: Path | None
    root: str | None
    as_json: bool


def evaluation_options(command: Command) -> Command:
    """Add what every labelled set is evaluated with."""
    for option in reversed(
        [
            click.option("--max-results", default=10, show_default=True, type=click.IntRange(1, 100), help="1 to 100."),
            click.option(
                "--tokens",
                default=1_000,
                show_default=True,
                type=click.IntRange(min=1),
                help="Budget of returned context: what is found within it is measured too.",
            ),
            click.option(
                "--plot",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Draw the figures as .svg or .png (needs the extra `plot`).",
            ),
            click.option(
                "--config",
                "configuration",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="Put this workspaces.yaml into the lake first: other models, another embedder.",
            ),
            click.option(
                "--root",
                metavar="URI",
                help="Keep the lake here, and use it again the next time: a folder, or s3://bucket/prefix. Without "
                "it the lake is a temporary folder; MEMORY_PIPELINE_ROOT is never used.",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON for machines."),
        ]
    ):
        command = option(command)
    return command


@cli.group("eval")
def evaluate() -> None:
    """Measure how well memory is searched, on labelled questions.

    The conversations go into a lake, the pipeline runs over it, and each question is asked of working memory through
    the reader, as an agent would. What counts is the turn: hits give their messages, in order, each once.

    \b
    any@k      questions of which one turn of the evidence is among the first k
    all@k      questions of which all of the evidence is among the first k
    recall@k   mean share of a question's evidence among the first k
    MRR        mean of 1 / rank of the first turn of the evidence
    nDCG@10    mean gain of the first 10, discounted by rank, as a share of the best order's
    @budget    the same for those of 100 hits, in order, whose lines fit into --tokens (4 bytes count as a token)

    Questions of the category `adversarial` are reported apart. A question whose evidence names no message is set
    aside and shown. At last: how much of the answers remains in the text of each grain, and how long that text is.
    """


@evaluate.command()
@FILES
@evaluation_options
def locomo(files: tuple[Path, ...], **options: Unpack[_Options]) -> None:
    """Evaluate on FILES in LoCoMo's format (Maharana et al., ACL 2024).

    Each sample is an agent of the workspace `locomo`; its questions stand under `qa`.
    """
    from memory_pipeline.evaluation.formats import read_locomo_set

    _evaluate(read_locomo_set(files), **options)


@evaluate.command()
@FILES
@evaluation_options
def jsonl(files: tuple[Path, ...], **options: Unpack[_Options]) -> None:
    """Evaluate on FILES of which each line is a conversation, as `ingest` takes it, or a question.

    \b
    {"workspace_id": "acme", "agent_id": "support", "conversation_id": "c1",
     "messages": [{"id": "m1", "role": "user", "name": "Anna", "content": "I moved to Porto.",
                   "timestamp": "2024-01-15T08:03:00+01:00"}]}
    {"workspace_id": "acme", "agent_id": "support",
     "question": "Where does Anna live?", "evidence": ["m1"],
     "answer": "Porto", "category": "places", "now": "2024-02-01T00:00:00Z"}      (answer, category, now: optional)

    Each stands on one line, in any order and in any of the files. Evidence are ids of messages that answer the
    question, each enough to be named; an id that several conversations of the agent use is written
    {"conversation_id": "c1", "id": "m1"}. `now` is when the question is asked: what was said more than a day later is
    not found; without it, everything is.
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
    show_progress(quiet=as_json)
    with _settings(options["root"]) as settings:
        evaluation = measure(
            labels,
            settings,
            max_results=options["max_results"],
            tokens=options["tokens"],
            configuration=options["configuration"],
            say=lambda line: click.echo(line, err=True),
        )
    if chart is not None:
        plot(evaluation, chart)
    click.echo(to_json(to_record(evaluation)) if as_json else "\n".join(report_lines(evaluation)))


@contextmanager
def _settings(root: str | None) -> Iterator[Settings]:
    """Yield the settings of the lake at `root`, or of a temporary one, whose runs nobody keeps."""
    settings = Settings.from_environment()
    if root is not None:
        yield replace(settings, root=root)
        return
    with tempfile.TemporaryDirectory(prefix="memory-pipeline-eval-") as folder:
        yield replace(settings, root=folder, has_dagster_home=False)
