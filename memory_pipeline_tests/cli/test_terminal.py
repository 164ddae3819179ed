"""Bars and colour on a terminal, plain lines elsewhere, and errors as JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.cli import main
from memory_pipeline_tests.building import conversation
from memory_pipeline_tests.invoking import call

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "memory_pipeline.cli"]
#: Codes of colours, also after others: 31 to 97, 38;5;197.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3|9)\d[;m]")
BAR, BOLD = "━", "\x1b[1m"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(conversation("I moved to Porto.")) + "\n{broken", encoding="utf-8")
    return str(path)


def on_terminal(*arguments: str, **environment: str) -> str:
    """Run a command on a pseudo-terminal; return what the terminal gets."""
    own, of_command = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=of_command, stdout=of_command, stderr=of_command,
        env={**variables, "TERM": "xterm-256color", **environment},
    ):  # fmt: skip
        os.close(of_command)
        parts = []
        try:
            while part := os.read(own, 65_536):
                parts.append(part)
        except OSError:  # Linux reports the end so
            pass
    os.close(own)
    return b"".join(parts).decode()


def test_a_terminal_shows_bars_and_colour(root: str, file: str) -> None:
    ingested = on_terminal("ingest", file, "--root", root)
    assert BAR in ingested
    assert COLOUR.search(ingested)
    assert "1 new message of 1 conversation" in ingested
    assert ingested.rindex(BAR) < ingested.index("1 new message"), "the bar is gone before the result"
    assert BOLD in on_terminal("agents", "--root", root)
    assert COLOUR.search(on_terminal("agents", "--root", f"{root}/nowhere"))
    processed = on_terminal("run", "--root", root, "--now", "2024-01-17")
    assert BAR in processed
    assert "working            1 periods processed" in processed
    assert "materialized" not in processed, "the bar stands for these lines"


def test_no_color_leaves_bars_without_colour(root: str, file: str) -> None:
    ingested = on_terminal("ingest", file, "--root", root, NO_COLOR="1")
    assert BAR in ingested
    assert not COLOUR.search(ingested)
    assert "\x1b" not in on_terminal("agents", "--root", root, NO_COLOR="1")


def test_a_dumb_terminal_gets_plain_lines(root: str, file: str) -> None:
    shown = on_terminal("ingest", file, "--root", root, TERM="dumb")
    assert "1 new message" in shown
    assert not {"\x1b", BAR} & set(shown)


def test_pipes_get_plain_lines_and_json_gets_no_progress(root: str, file: str) -> None:
    where = ["--root", root]
    command = [*COMMAND, "run", "--now", "2024-01-17", *where]
    ingested = call("ingest", file, *where)
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "materialized" in shown.stderr
    others = [ingested, call("agents", *where), call("agents", "--bad", *where)]
    assert not {"\x1b", BAR} & set(shown.stdout + shown.stderr + "".join(one.output for one in others))
    as_json = call("run", "--now", "2024-01-17", "--json", *where)
    assert as_json.stderr == ""
    assert json.loads(as_json.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "kind", "message"),
    [
        (["status", "--root", "nowhere"], 2, "InputError", "there is no memory lake at"),
        (["status", "--root", "ftp://x"], 2, "ConfigurationError", "lake root 'ftp://x' is not accepted"),
        (["status", "--bad"], 2, "NoSuchOption", "No such option '--bad'"),
        (["search", "x", "--grain", "hourly"], 2, "BadParameter", "'hourly' is not one of"),
        (["memories", "forget"], 2, "MissingParameter", "Missing option '--workspace'"),
        (["unheard"], 2, "NoSuchCommand", "No such command 'unheard'"),
    ],
)
def test_errors_are_json_if_the_output_is(
    arguments: list[str],
    code: int,
    kind: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes = []
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", ["memory-pipeline", *arguments, *more])
        with pytest.raises(SystemExit) as exit_:
            main()
        codes.append(exit_.value.code)
        shown = capsys.readouterr()
        assert message in shown.err
        assert shown.out == ""
    assert codes == [code, code]
    [line] = shown.err.splitlines()
    error = json.loads(line)["error"]
    assert error["type"] == kind
    assert message in error["message"]
    assert error.keys() == {"type", "message"}
