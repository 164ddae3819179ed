"""Charts of an evaluation. The only module that imports matplotlib, which is an extra of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.errors import InputError, require

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from memory_pipeline.evaluation.harness import Evaluation

_FORMATS = (".svg", ".png")


def check_plot(path: Path) -> None:
    """Raise if :func:`plot` could not write to `path`. Call it before a long run.

    Raises:
        InputError: the suffix is neither .svg nor .png, or the folder does not exist.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InputError(f"--plot {path} is not accepted; its name must end in .svg or .png")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: folder {path.parent} does not exist; create it first")
    require("plot", "matplotlib")


def plot(evaluation: Evaluation, path: Path) -> None:
    """Plot evidence found by number of turns, and retained answers by text size, as SVG or PNG.

    Raises:
        InputError: as for :func:`check_plot`, or the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    check_plot(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # No timestamps or random ids, so that equal data gives equal bytes.
    with rc_context({"svg.hashsalt": "memory-pipeline"}):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        found, remains = figure.subplots(1, 2)
        _draw_found(found, evaluation)
        _draw_remains(remains, evaluation)
        try:
            if path.suffix.lower() == ".svg":
                figure.savefig(path, metadata={"Date": None})
            else:
                figure.savefig(path, dpi=150)
        except OSError as error:
            raise InputError(f"--plot {path} cannot be written: {error.strerror}") from None


def _draw_found(axes: Axes, evaluation: Evaluation) -> None:
    from matplotlib.ticker import MaxNLocator

    overall = evaluation.curve()
    depths = list(overall.at)
    count = overall.questions or 1
    lines = {
        "any": [coverage.any / count for coverage in overall.at.values()],
        "recall": [coverage.recall for coverage in overall.at.values()],
        "all": [coverage.all / count for coverage in overall.at.values()],
    }
    for name, shares in lines.items():
        axes.plot(depths, [100 * share for share in shares], marker="o", markersize=3, label=name)
    axes.set(
        title=f"Evidence found, {overall.questions:,} questions",
        xlabel="first k turns",
        ylabel="percent",
        ylim=(0, 100),
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)


def _draw_remains(axes: Axes, evaluation: Evaluation) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    remains = [each for each in evaluation.remains if each.characters]
    # Room above 100 for the names of the grains.
    axes.set(xlabel="characters of text (log)", ylabel="percent", ylim=(0, 130), yticks=range(0, 101, 20))
    axes.grid(alpha=0.3)
    if not remains:
        axes.set_title("Answers retained: the set holds none")
        return
    sizes = [each.characters for each in remains]
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{remains[0].answers:,} answers retained by grain")
    axes.plot(sizes, [100 * each.values for each in remains], marker="o", label="numbers, dates and names")
    axes.plot(sizes, [100 * each.verbatim for each in remains], marker="o", label="all words")
    for each in remains:
        axes.annotate(
            each.grain,
            (each.characters, 100 * each.values),
            textcoords="offset points",
            xytext=(0, 6),
            rotation=90,
            ha="center",
        )
    axes.legend(loc="lower right")
