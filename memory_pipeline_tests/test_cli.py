"""The command line, with the output for people and as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from codecs import BOM_UTF8
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import click
import pytest

from memory_pipeline import demo
from memory_pipeline.cli import cli
from memory_pipeline.errors import ConfigurationError, InputError
from memory_pipeline.lake import Lake
from memory_pipeline.sample import HISTORY
from memory_pipeline_tests.building import conversation, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

COMMANDS = [
    "ingest", "import", "convert", "run", "search", "recall", "inject", "expand", "graph", "memories", "consolidate",
    "mcp", "eval", "status", "sql", "config", "demo", "vacuum", "check", "repair", "forget", "verify-erasure", "expire",
    "agents", "users", "members", "capture", "extract", "share", "unshare", "shares", "team", "sessions",
    "contexts", "receipt", "receipts", "redact", "trace", "correct", "corrections", "undo", "rollback", "restore",
    "rebuild", "export", "reembed", "serve", "tokens", "ui", "dagster", "install",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, root: str, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", root)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)


def ingest(path: Path, *conversations: dict[str, Any]) -> Any:
    path.write_text("".join(json.dumps(record) + "\n" for record in conversations), encoding="utf-8")
    return read("ingest", str(path))


TALKS = [
    conversation("I moved to Porto.", "My dog is called Bruno."),
    conversation("Bruno ate my passport.", at="2024-01-31T08:00", conversation_id="c2"),
]


@pytest.fixture
def filled(tmp_path: Path) -> None:
    ingest(tmp_path / "talks.jsonl", *TALKS)


@pytest.fixture
def made(shared_folder: SharedFolder, models: Models, root: str) -> None:
    """The same lake after a run, built once for all tests."""

    def fill(folder: Path) -> None:
        write(Lake(str(folder)), *TALKS)
        run(Lake(str(folder)), models)

    shutil.copytree(shared_folder("cli-made", fill), root)


SCOPE = ["--workspace", "acme", "--agent", "support"]


def options_without_help(group: click.Group) -> list[str]:
    found: list[str] = []
    for name, one in group.commands.items():
        found += [f"{name} {one.name} {option.name}" for option in one.params
                  if isinstance(option, click.Option) and not option.help]  # fmt: skip
        found += options_without_help(one) if isinstance(one, click.Group) else []
    return found


def test_every_option_has_help_from_the_docstring_of_its_function() -> None:
    assert options_without_help(cli) == []
    boost = call("memories", "boost", "--help").output
    assert "Raise a memory's importance, up to 1." in boost
    assert "How much, 0 to 1." in boost
    assert "[default: 0.1]" in boost


def test_every_command_has_help() -> None:
    assert sorted(COMMANDS) == sorted(cli.commands)
    overview = call("--help").output
    for command in COMMANDS:
        assert command in overview
        assert "Usage:" in call(command, "--help").output
    assert "timestamp" in call("ingest", "--help").output


@pytest.mark.parametrize("command", [["mcp", *SCOPE], ["convert", "locomo", "x.json"]], ids=lambda words: words[0])
def test_commands_that_print_no_json_refuse_the_option(command: list[str]) -> None:
    result = call(*command, "--json")
    assert result.exit_code == 2
    assert "No such option" in result.output
    assert "--json" in result.output


def test_an_ingested_file_can_be_searched_and_expanded(filled: None) -> None:
    done = read("run", "--now", "2025-02-01")
    assert [(grain["grain"], len(grain["periods"])) for grain in done] == [
        ("working", 2), ("daily", 2), ("weekly", 2), ("monthly", 2), ("quarterly", 1), ("yearly", 1),
    ]  # fmt: skip
    [hit] = read("search", "Where is the dog's passport?", *SCOPE, "--now", "2024-02-01", "--max-results", "1")["hits"]
    assert hit["content"] == "Anna: Bruno ate my passport."
    [year] = read("search", "passport", *SCOPE, "--grain", "yearly", "--now", "2025-02-01")["hits"]
    walk = read("expand", f"{year['id']}#2", *SCOPE)
    while walk["sources"]:
        [walk] = walk["sources"]
    assert (walk["what"], walk["content"]) == ("message", "08:00 Anna: Bruno ate my passport.")


def test_a_second_run_computes_nothing_and_recomputing_a_range_changes_nothing(made: None) -> None:
    assert all(not grain["periods"] for grain in read("run"))
    again = read("run", "--from", "2024-01-15", "--to", "2024-01-31")
    assert [len(grain["periods"]) for grain in again] == [2, 17, 3, 2, 1, 1]
    assert not any(grain["changed"] for grain in again if grain["rows"])


def test_status_counts_existing_pending_and_missing_periods(
    made: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counts() -> dict[str, tuple[int, int, int]]:
        grains = read("status")["grains"]
        return {g["grain"]: (len(g["made"]), len(g["pending"]), len(g["missing"])) for g in grains}

    assert counts() == {
        "working": (2, 0, 0), "daily": (2, 0, 0), "weekly": (2, 0, 0),
        "monthly": (2, 0, 0), "quarterly": (1, 0, 0), "yearly": (1, 0, 0),
    }  # fmt: skip
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", str(tmp_path / "unmade"))
    ingest(tmp_path / "talks.jsonl", *TALKS)
    assert counts()["working"] == (0, 2, 2)


def test_records_set_aside_are_counted_and_shown(tmp_path: Path) -> None:
    bad = conversation("fine", "no time")
    del bad["messages"][1]["timestamp"]
    path = tmp_path / "talks.jsonl"
    path.write_bytes(
        json.dumps(bad).encode()
        + b"\n{broken\n\xff\xfe\n"
        + json.dumps(conversation("x", conversation_id="c2")).encode()
    )
    result = call("ingest", str(path))
    assert result.exit_code == 0
    assert "2 new messages of 2 conversations" in result.output
    assert "3 records quarantined" in result.output
    assert "line 1, conversation c1, message 2: timestamp None is not a time" in result.output
    assert "line 2: not valid JSON" in result.output
    assert "line 3: not valid UTF-8" in result.output
    assert "records in journal/quarantine: 3" in call("status").output
    assert len(read("status")["quarantined"]) == 3


def test_ingest_fails_if_all_records_of_a_file_are_set_aside(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "good.jsonl", tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    good.write_text(json.dumps(conversation("x")) + "\nbroken")
    bad.write_text('{"messages": [], "messages": []}\nbroken')
    empty.write_text("")
    assert call("ingest", str(bad)).exit_code == 1
    assert call("ingest", str(bad), "--json").exit_code == 1
    assert call("ingest", str(bad), str(good)).exit_code == 1
    assert json.loads(call("ingest", str(good), str(bad), "--json").stdout)[str(good)]["repeated"] == 1
    assert call("ingest", str(good)).exit_code == 0
    assert call("ingest", str(empty)).exit_code == 0


def test_conversations_are_read_from_standard_input(tmp_path: Path) -> None:
    lines = BOM_UTF8 + b"".join(json.dumps(talk).encode() + b"\n" for talk in TALKS)
    (tmp_path / "talks.jsonl").write_bytes(lines)
    command = [sys.executable, "-m", "memory_pipeline.cli", "ingest", "-"]
    with (tmp_path / "talks.jsonl").open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=PIPE) as pipe:
        done = subprocess.run(command, stdin=pipe.stdout, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 new messages of 2 conversations" in done.stdout


def test_records_before_the_first_day_are_set_aside_and_the_setting_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talks.jsonl"
    path.write_text(json.dumps(conversation("Old.", at="2023-05-01T08:00")), encoding="utf-8")
    monkeypatch.setenv("MEMORY_PIPELINE_START", "2024-01-01")
    assert call("ingest", str(path)).exit_code == 1
    assert "MEMORY_PIPELINE_START" in call("status").output
    monkeypatch.setenv("MEMORY_PIPELINE_START", "2018-01-01")
    assert ingest(path, conversation("Old.", at="2023-05-01T08:00"))[str(path)]["accepted"] == 1
    assert read("status")["quarantined"] == []


def test_the_first_day_follows_the_oldest_record_in_any_order(tmp_path: Path) -> None:
    ingest(tmp_path / "new.jsonl", conversation("I moved to Porto."))
    ingest(tmp_path / "old.jsonl", conversation("I moved to Rome.", at="2017-05-01T08:00", conversation_id="c2"))
    assert {each["grain"]: each["missing"] for each in read("status")["grains"]}["working"][0] == "2017-05-01T08"
    assert call("run", "--now", "2024-06-01").exit_code == 0
    made = {each["grain"]: each["made"] for each in read("status", "--now", "2024-06-01")["grains"]}
    assert made["working"][0] == "2017-05-01T08"
    assert made["yearly"] == ["2017"]


def test_converted_locomo_files_can_be_ingested(tmp_path: Path) -> None:
    sample = {
        "speaker_a": "Ada", "speaker_b": "Bo",
        "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a canoe."}],
        "session_1_date_time": "1:56 pm on 8 May, 2024",
    }  # fmt: skip
    path = tmp_path / "sample.json"
    path.write_text(json.dumps(sample), encoding="utf-8")
    assert "convert locomo" in call("ingest", str(path)).output
    converted = tmp_path / "converted.jsonl"
    converted.write_text(call("convert", "locomo", str(path)).stdout, encoding="utf-8")
    assert read("ingest", str(converted))[str(converted)]["accepted"] == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["search", "x", *SCOPE, "--root", "nowhere"], InputError, "there is no memory lake at .*nowhere; set --root"),
        (["status", "--root", "ftp://x"], ConfigurationError, "lake root 'ftp://x' is not accepted"),
        (["run", "--from", "2024-01-01"], InputError, "--from and --to go together"),
        (["run", "--from", "2024-02-01", "--to", "2024-01-01"], InputError, "--to 2024-01-01 is before"),
        (["search", "x", "--workspace", " ", "--agent", "a"], InputError, "workspace_id ' ' is not valid"),
        (["expand", "nonsense", *SCOPE], InputError, "is not valid; expected an id"),
        (["sql", "nothing"], InputError, "'nothing' is unknown; accepted: "),
        (["ingest", "missing.jsonl"], InputError, "missing.jsonl cannot be read: No such file"),
    ],
)
def test_errors_name_the_value_and_the_remedy(
    filled: None, arguments: list[str], error: type[Exception], message: str
) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, error)
    with pytest.raises(error, match=message):
        raise result.exception


def test_an_error_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from memory_pipeline.cli import main

    monkeypatch.setattr("sys.argv", ["memory-pipeline", "status", "--root", "nowhere"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("memory-pipeline: there is no memory lake at")
    assert error.count("\n") == 1


def test_the_demo_shows_what_is_remembered_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = HISTORY.read_text(encoding="utf-8").splitlines(keepends=True)
    if not IS_THOROUGH:  # the beginning of the year and the conversations of users show the same
        talks = talks[:10] + [talk for talk in talks[10:] if '"user_id"' in talk]
        (tmp_path / "history.jsonl").write_text("".join(talks), encoding="utf-8")
        monkeypatch.setattr(demo, "HISTORY", tmp_path / "history.jsonl")
    first = call("demo")
    assert first.exit_code == 0
    count = sum(len(json.loads(talk)["messages"]) for talk in talks)
    for text in (
        f"{count} new messages of {len(talks)} conversations",
        "Ruben: The important thing: I'm badly allergic to hazelnuts.",
        "Ruben allergic_to hazelnuts (since 2025-01-09)",
        "2025 ← 2025-Q",
        "Give me distances in kilometres, never in miles. (instruction)",
        "<recalled-memory ",
        "under the third flowerpot",
        "in Henrike's cold room",
        "nadia 1, ruben 0, milo 0",
        "nadia 1, ruben 1, milo 0",
        "make dev",
    ):
        assert text in first.output
    assert "Nothing changed" not in first.output
    again = call("demo").output
    assert "Nothing changed" in again
    assert again.partition("\n3. ")[2] == first.output.partition("\n3. ")[2] != ""
    shown = read("demo")
    assert shown["ingested"]["repeated"] == count
    assert shown["users"]["pins"] == {"nadia": 1, "ruben": 0, "milo": 0}


def test_a_configuration_is_shown_validated_and_replaced(filled: None, tmp_path: Path) -> None:
    assert "does not exist: deterministic models are used" in call("config").output
    example = call("config", "--example").output
    path = tmp_path / "mine.yaml"
    path.write_text(example, encoding="utf-8")
    assert "is now in use" in call("config", "--put", str(path)).output
    assert call("config").output == example
    held = read("config", *SCOPE)
    assert held["extraction"]["model"] == "openrouter/openai/gpt-5-mini"
    path.write_text("defaults: {summaries: {montly: {}}}", encoding="utf-8")
    refused = call("config", "--put", str(path))
    assert isinstance(refused.exception, ConfigurationError)
    assert "did you mean monthly?" in str(refused.exception)
    assert call("config").output == example  # the one in use stays
    assert isinstance(call("config", "--workspace", "acme").exception, InputError)
    assert isinstance(call("config", "--put", "missing.yaml").exception, InputError)


def test_an_estimate_counts_the_calls_that_the_run_makes(filled: None, root: str) -> None:
    from memory_pipeline_tests import oracle
    from memory_pipeline_tests.openai_server import OpenAIServer

    assert "no model calls expected" in call("run", "--estimate").output
    with OpenAIServer() as server:
        server.answer = oracle.answer
        oracle.configure(Lake(root), server)
        expected = read("run", "--estimate", "--now", "2025-02-01")
        assert "10 calls, about $0.0" in call("run", "--estimate", "--now", "2025-02-01").output
        assert sum(row["calls"] for row in expected) == 10
        assert all(row["cost"] > 0 for row in expected)
        assert server.requests == []
        done = read("run", "--now", "2025-02-01")
        assert {grain["grain"]: grain["calls"] for grain in done} == {row["grain"]: row["calls"] for row in expected}
        assert len(server.requests) == 10
        report = read("sql", "model_cost", "--run")
        assert sum(row["calls"] for row in report) == 10
        assert {(row["workspace_id"], row["agent_id"]) for row in report} == {("acme", "support")}
        [summary] = read("search", *SCOPE, "--grain", "yearly", "--now", "2025-02-01")["hits"]
        assert read("expand", summary["id"], *SCOPE)["provenance"]["model"] == "openai/oracle"
