"""Answers of models in a local file, so that an evaluation that was stopped goes on where it ended.

Each line is one answer as a JSON object: key, model, version of the instructions, text, tokens and cost. The key is a
hash of the model, the instructions and the input. A damaged line, such as the last one after a crash, is asked again.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.model_calls import Answer, Purpose, Usage, Use
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta
    from pathlib import Path

    from memory_pipeline.domain.model_calls import Call, Kind, Payer
    from memory_pipeline.domain.periods import Period

_FIELDS: Final = ("key", "model", "prompt_version", "text", "tokens_in", "tokens_out", "cost")
_NOBODY: Final = Scope("evaluation", "evaluation")


class AnswerFile:
    """A :class:`~memory_pipeline.domain.model_calls.CallStore` of one process, without budgets. Thread-safe.

    Raises:
        InputError: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, dict[str, Any]] = {}
        try:
            self._file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise InputError(f"answers {path} cannot be opened: {error.strerror}; name a file with --answers") from None
        self._file.seek(0)
        line = "\n"
        for line in self._file:
            try:
                record = json.loads(line)
                self._answers[record["key"]] = {name: record[name] for name in _FIELDS}
            except (ValueError, TypeError, KeyError):
                continue
        if not line.endswith("\n"):
            self._file.write("\n")

    def load(self, periods: Collection[Period]) -> None:
        """Do nothing: all answers are in memory."""

    def find(self, key: str, period: Period) -> Answer | None:
        """Return the answer with a key, or None."""
        record = self._answers.get(key)
        return None if record is None else Answer(use=Use(_NOBODY, period), purpose=Purpose.EVALUATION, **record)

    def claim(self, key: str, lease: timedelta) -> bool:
        """Return True: one process writes the file."""
        del key, lease
        return True

    def release(self, key: str) -> None:
        """Do nothing."""

    def keep(self, calls: Sequence[Call], answer: Answer | None = None) -> None:
        """Append an answer; failed calls are not stored."""
        del calls
        if answer is None:
            return
        record = {name: getattr(answer, name) for name in _FIELDS}
        with self._lock:
            self._answers[answer.key] = record
            self._file.write(f"{json.dumps(record, ensure_ascii=False)}\n")
            self._file.flush()

    def settle(self, written: Collection[Period] = ()) -> dict[Period, Usage]:
        """Return nothing: no partition uses these answers."""
        del written
        return {}

    def spent(self, payer: Payer, month: str, *, look: bool = False) -> Usage:
        """Return nothing: an evaluation has no budget."""
        del payer, month, look
        return Usage()

    def answered(self, kind: Kind, month: str) -> Usage:
        """Return nothing, as :meth:`spent`."""
        del kind, month
        return Usage()
