"""Settings: read from the environment; errors name the variable."""

from __future__ import annotations

import dataclasses
import os
from datetime import date
from pathlib import Path

import pytest

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.settings import Settings, is_secret_reference, resolve_secret, secrets_in_environment


def test_without_variables_there_are_defaults() -> None:
    assert Settings.from_environment({}) == Settings(root="./memory-lake", start=None, timezone=None)


def test_empty_variables_count_as_not_set() -> None:
    names = (
        "MEMORY_PIPELINE_ROOT",
        "MEMORY_PIPELINE_START",
        "MEMORY_PIPELINE_TIMEZONE",
        "MEMORY_PIPELINE_LOCATION",
        "MEMORY_PIPELINE_PARTITIONS_PER_RUN",
    )
    assert Settings.from_environment(dict.fromkeys(names, "")) == Settings()


def test_variables_are_read() -> None:
    environment = {
        "MEMORY_PIPELINE_ROOT": "s3://bucket/prefix",
        "MEMORY_PIPELINE_START": "2018-01-01",
        "MEMORY_PIPELINE_TIMEZONE": "Europe/Berlin",
        "MEMORY_PIPELINE_UNKNOWN": "ignored",
    }
    expected = Settings(root="s3://bucket/prefix", start=date(2018, 1, 1), timezone="Europe/Berlin")
    assert Settings.from_environment(environment) == expected


@pytest.mark.parametrize("text", ["1", "168", "10000"])
def test_a_number_of_partitions_per_run_is_read(text: str) -> None:
    assert Settings.from_environment({"MEMORY_PIPELINE_PARTITIONS_PER_RUN": text}).partitions_per_run == int(text)


@pytest.mark.parametrize("text", ["0", "-1", "10001", "1.5", "many", " 7", "१६", "9" * 400])
def test_an_invalid_number_of_partitions_per_run_is_rejected(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"MEMORY_PIPELINE_PARTITIONS_PER_RUN .* is not a whole number from 1"):
        Settings.from_environment({"MEMORY_PIPELINE_PARTITIONS_PER_RUN": text})


def test_the_process_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMORY_PIPELINE_START", "MEMORY_PIPELINE_TIMEZONE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", "/somewhere")
    assert Settings.from_environment() == Settings(root="/somewhere")
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", "/elsewhere")
    assert Settings.from_environment().root == "/elsewhere"


@pytest.mark.parametrize("start", ["2007-01-01", "2018-01-01", "2024-01-01"])
def test_a_memory_starts_where_all_grains_begin(start: str) -> None:
    assert Settings.from_environment({"MEMORY_PIPELINE_START": start}).start == date.fromisoformat(start)


@pytest.mark.parametrize("start", ["2023-01-01", "2025-01-01", "2024-01-08", "2024-04-01", "2018-12-31"])
def test_a_start_that_is_not_a_monday_on_1_january_is_refused(start: str) -> None:
    message = f"MEMORY_PIPELINE_START {start} is not a 1 January that is a Monday; expected .* 2018-01-01 or 2024-01-01"
    with pytest.raises(ConfigurationError, match=message):
        Settings.from_environment({"MEMORY_PIPELINE_START": start})
    with pytest.raises(ConfigurationError, match=message):
        Settings(start=date.fromisoformat(start))


@pytest.mark.parametrize(
    "start",
    ["yesterday", "2024", "2024-01", "01.01.2024", " 2024-01-01", "2024-13-01", pytest.param("x" * 10**6, id="1 MB")],
)
def test_a_start_that_is_not_a_date_is_rejected(start: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"MEMORY_PIPELINE_START .* is not a date such as 2024-01-01"
    ) as refusal:
        Settings.from_environment({"MEMORY_PIPELINE_START": start})
    assert len(str(refusal.value)) < 200


def test_a_start_outside_the_calendar_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        Settings(start=date(1, 1, 1))


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "Berlin", "+01:00", "../UTC", "/etc/localtime", "UTC;", pytest.param("x" * 10**6, id="1 MB")]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ConfigurationError, match="is unknown; expected an IANA name such as Europe/Berlin") as refusal:
        Settings.from_environment({"MEMORY_PIPELINE_TIMEZONE": zone})
    assert len(str(refusal.value)) < 250


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().root = "elsewhere"  # type: ignore[misc]


KEY = "sk-0123456789abcdef"


def test_a_key_is_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_secret("env:MODEL_KEY", {"MODEL_KEY": f"  {KEY}\n"}) == KEY
    monkeypatch.setenv("MODEL_KEY", KEY)
    assert resolve_secret("env:MODEL_KEY") == KEY


@pytest.mark.parametrize("content", [KEY, f"{KEY}\n", f"\n {KEY} \r\n"])
def test_a_key_is_found_in_a_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    assert resolve_secret(f"file:{tmp_path}/key") == KEY
    (tmp_path / "link").symlink_to("key")
    assert resolve_secret(f"file:{tmp_path}/link") == KEY


@pytest.mark.parametrize("value", ["", " ", "\n\t", f"{KEY}\n{KEY}", f"{KEY}\x00", f"{KEY}\u2019", f"{KEY}\udcff"])
def test_a_variable_that_holds_no_key_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"'env:MODEL_KEY' (is empty|contains line breaks)") as refusal:
        resolve_secret("env:MODEL_KEY", {"MODEL_KEY": value})
    assert KEY not in str(refusal.value)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigurationError, match="'env:MODEL_KEY': the variable is not set; set it in the"):
        resolve_secret("env:MODEL_KEY", {"model_key": KEY})


@pytest.mark.parametrize(
    "content", [b"", b" \n", KEY.encode() + b"\nsecond line", b"\xff" + KEY.encode(), b"x" * 70_000]
)
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    message = r"'file:.*/key' (is|contains) .*; it must contain (only )?the key"
    with pytest.raises(ConfigurationError, match=message) as refusal:
        resolve_secret(f"file:{tmp_path}/key")
    assert KEY not in str(refusal.value)
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none", tmp_path / "pipe", "/dev/zero", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigurationError, match=r"^'?file:/.*(the file does not exist|cannot be read)"):
            resolve_secret(f"file:{path}")


@pytest.mark.parametrize(
    "reference", ["", KEY, f"env:{KEY}", "env:", "env:A B", "env:A\n", "file:key", "file:", "http://x", "file:/a\x00b"]
)
def test_a_malformed_reference_may_be_a_key_and_is_not_shown(reference: str) -> None:
    assert not is_secret_reference(reference)
    with pytest.raises(
        ConfigurationError, match=f"^a value of {len(reference)} characters is not a reference"
    ) as refusal:
        resolve_secret(reference)
    assert KEY not in str(refusal.value)


def test_secrets_in_the_environment_are_known_by_the_names_of_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "OPENAI_API_KEY": f" {KEY}\n",
        "acme_key": f"{KEY}-and-more",
        "HF_Token": "hf_12345678",
        "CLIENT_SECRET": KEY,
        "DB_PASSWORD": "correct horse",
        "SHORT_KEY": "true",
        "KEY": "not-named-like-one",
        "KEY_FILE": "/run/secrets/key",
        "MONKEY": "bananas-and-more",
        "HOME": "/home/somebody",
    }
    assert secrets_in_environment(environment) == (f"{KEY}-and-more", KEY, "correct horse", "hf_12345678")
    assert secrets_in_environment({}) == ()
    monkeypatch.setenv("SOME_TOKEN", "a-token-of-the-process")
    assert "a-token-of-the-process" in secrets_in_environment()
