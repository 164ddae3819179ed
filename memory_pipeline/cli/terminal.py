"""Progress on standard error: bars on a terminal, lines of the log elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

import click

from memory_pipeline.settings import is_dumb_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

_SECONDS_BETWEEN_LINES = 10.0


class ShownProgress(Protocol):
    """The progress of a command."""

    def show(self, label: str, done: int = 0, total: int | None = None) -> None:
        """Show that `done` of `total` are done. If the total is unknown, the bar only moves."""
        ...

    def echo(self, text: str, *, err: bool = False) -> None:
        """Print a line of the result, or to standard error."""
        ...


@contextmanager
def progress(*, quiet: bool, has_bar: bool = True) -> Iterator[ShownProgress]:
    """Show the progress of a command on standard error, unless `quiet`.

    On a terminal it is a bar, which disappears at the end. Meanwhile, print with :meth:`ShownProgress.echo`. Elsewhere,
    and without `has_bar`, the log of this package is printed, a line per batch. Logs of other libraries stay hidden.
    """
    if quiet:
        yield _Nothing()
        return
    is_bar = has_bar and sys.stderr.isatty() and not is_dumb_terminal()
    handler = _Bar(_bars()) if is_bar else _Lines(sys.stderr)
    handler.setFormatter(logging.Formatter("  %(message)s"))
    log = logging.getLogger("memory_pipeline")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()


class _Nothing:
    def show(self, label: str, done: int = 0, total: int | None = None) -> None:
        pass

    def echo(self, text: str, *, err: bool = False) -> None:
        click.echo(text, err=err)


class _Lines(logging.StreamHandler[TextIO]):
    """Prints log records, and how far it is from time to time."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._printed_at = time.monotonic()

    def show(self, label: str, done: int = 0, total: int | None = None) -> None:
        if total is not None and time.monotonic() - self._printed_at > _SECONDS_BETWEEN_LINES:
            self._printed_at = time.monotonic()
            click.echo(f"  {label}: {done:,} of {total:,}", self.stream)

    def echo(self, text: str, *, err: bool = False) -> None:
        click.echo(text, err=err)


class _Bar(logging.Handler):
    """A bar. Log records with an attribute `progress` (label, done, total) move it, others are printed above it."""

    def __init__(self, bars: Progress) -> None:
        super().__init__(logging.INFO)
        self._bars = bars
        self._task = bars.add_task("", total=None)
        self._label = ""

    def show(self, label: str, done: int = 0, total: int | None = None) -> None:
        if label != self._label:
            self._label = label
            self._bars.reset(self._task, total=total, completed=done, description=label)
        self._bars.update(self._task, completed=done, total=total)
        self._bars.start()

    def echo(self, text: str, *, err: bool = False) -> None:
        self._bars.stop()  # it comes back with the next step
        click.echo(text, err=err)

    def emit(self, record: logging.LogRecord) -> None:
        moved: tuple[str, int, int] | None = getattr(record, "progress", None)
        if moved is None:
            self.echo(self.format(record), err=True)
        else:
            self.show(*moved)

    def close(self) -> None:
        self._bars.stop()
        super().close()


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # They would redirect what Python prints, but not what click prints.
        redirect_stdout=False,
        redirect_stderr=False,
    )
