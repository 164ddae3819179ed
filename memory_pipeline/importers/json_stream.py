"""Read JSON from a text stream piece by piece, so that a list of any length needs little memory."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.errors import InputError
from memory_pipeline.lake.files.strict_json import MAX_DEPTH, depth_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

#: The longest single value, in characters. Longer ones are passed over.
MAX_VALUE: Final = 64 * 2**20
_CHUNK: Final = 2**20
#: Characters of a value that cannot be read which are kept, to show them.
_BEGINNING: Final = 1_000
#: An error this near to the end of what was read may only mean that the rest is still to come.
_NEAR_END: Final = 16
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_OUTSIDE: Final = re.compile(r'["\[\]{},]')
_IN_STRING: Final = re.compile(r'\\.|"', re.DOTALL)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)
_DECODER: Final = json.JSONDecoder()


class BadValueError(InputError):
    """A value is not valid JSON, too large or nested too deep; the stream has passed it. `beginning` is its text."""

    def __init__(self, reason: str, beginning: str) -> None:
        super().__init__(reason)
        self.beginning = beginning


class JsonStream:
    """A cursor on JSON text: iterate :meth:`items` or :meth:`fields`, and take or skip each value.

    ::

        for key in stream.fields():
            if key == "messages":
                for _ in stream.items():
                    take(stream.value())
            else:
                stream.skip()
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text, self._at, self._is_done = "", 0, False

    def peek(self) -> str:
        """Return the next character that is not space, or an empty text at the end."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def items(self) -> Iterator[None]:
        """Pause before each item of a list. Take or skip it before going on."""
        self._take("[")
        while (char := self.peek()) != "]":
            if char == ",":
                self._at += 1
            elif char in ":}":  # also the end
                raise InputError("the JSON ends in the middle of a list, or is damaged there")
            else:
                yield
        self._at += 1

    def fields(self) -> Iterator[str]:
        """Yield the keys of an object. Take or skip the value of each before going on."""
        self._take("{")
        while (char := self.peek()) != "}":
            if char == ",":
                self._at += 1
            elif char == '"':
                key = str(self.value())
                self._take(":")
                yield key
            else:
                raise InputError("the JSON ends in the middle of an object, or is damaged there")
        self._at += 1

    def value(self) -> Any:
        """Return the next value.

        Raises:
            BadValueError: it cannot be read. What comes after it can.
        """
        self.peek()
        size = _CHUNK
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                # A number at the end may go on.
                if end < len(self._text) or self._is_done or not isinstance(value, int | float):
                    self._at = end
                    if depth_of(value) <= MAX_DEPTH:
                        return value
                    raise BadValueError(f"nested more than {MAX_DEPTH} levels deep", _beginning(value))
            except RecursionError:
                problem = f"nested more than {MAX_DEPTH} levels deep"
                break
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _NEAR_END
                if self._is_done or not is_cut:
                    problem = f"not valid JSON: {error.msg}"
                    break
            if len(self._text) - self._at > MAX_VALUE:
                problem = f"larger than {MAX_VALUE // 2**20} MB"
                break
            self._fill(size)
            size *= 2
        beginning = self._text[self._at : self._at + _BEGINNING]
        self.skip()
        raise BadValueError(problem, beginning)

    def skip(self) -> None:
        """Pass over the next value, whatever its size, without checking it."""
        self.peek()
        depth, is_in_string = 0, False
        while True:
            found = (_IN_STRING if is_in_string else _OUTSIDE).search(self._text, self._at)
            if found is None:
                # Keep a backslash at the end: what it escapes comes next.
                keep = is_in_string and self._text.endswith("\\")
                self._at = max(self._at, len(self._text) - keep)
                if not self._fill():
                    return
                continue
            char = found[0]
            if is_in_string:
                is_in_string = char != '"'
            elif char == '"':
                is_in_string = True
            elif char in "[{":
                depth += 1
            elif depth:
                depth -= char != ","
            else:  # the end of the list or object around it
                self._at = found.start()
                return
            self._at = found.end()
            if not depth and not is_in_string and char != ",":
                return

    def _take(self, char: str) -> None:
        if self.peek() != char:
            raise InputError(f"expected {char} in the JSON, found {self.peek()!r}")
        self._at += 1

    def _fill(self, size: int = _CHUNK) -> bool:
        """Read on. Return whether there was more."""
        more = self._file.read(size)
        self._text, self._at = self._text[self._at :] + more, 0
        self._is_done = not more
        return bool(more)


def _beginning(value: object) -> str:
    try:
        return json.dumps(value)[:_BEGINNING]
    except RecursionError:
        return ""


def beginning_of(text: str) -> Any:
    """Return the list or object with which a JSON text begins, as far as `text` goes; None if it is neither.

    What is open at its end is closed there.
    """
    open_brackets: list[str] = []
    end, closing = 0, ""
    for found in _TOKEN.finditer(text):
        mark = found[0]
        if mark == '"':  # a string that does not end
            break
        if mark in ("[", "{"):
            open_brackets.append("]" if mark == "[" else "}")
        elif mark in ("]", "}"):
            if not open_brackets or open_brackets.pop() != mark:
                break
        elif mark != ",":
            continue
        end, closing = found.start() if mark == "," else found.end(), "".join(reversed(open_brackets))
        if not open_brackets or len(open_brackets) > MAX_DEPTH:
            break
    try:
        return json.loads(text[:end] + closing) if end else None
    except json.JSONDecodeError as error:  # the part before a damaged value can be read
        return beginning_of(text[: error.pos]) if 0 < error.pos < end else None
