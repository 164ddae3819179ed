"""Settings: the environment is read once, and what is wrong with it is said in terms of its variables."""

from __future__ import annotations

import dataclasses
from datetime import date

import pytest

from memory_pipeline.errors import ConfigurationError
from memory_pipeline.settings import Settings


def test_without_variables_there_are_defaults() -> None:
    assert Settings.from_environment({}) == Settings(root="./memory-lake", start=date(2024, 1, 1), timezone=None)


def test_empty_variables_count_as_not_set() -> None:
    names = ("MEMORY_PIPELINE_ROOT", "MEMORY_PIPELINE_START", "MEMORY_PIPELINE_TIMEZONE")
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


def test_the_process_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMORY_PIPELINE_START", "MEMORY_PIPELINE_TIMEZONE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", "/somewhere")
    assert Settings.from_environment() == Settings(root="/somewhere")
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", "/elsewhere")
    assert Settings.from_environment().root == "/elsewhere"


@pytest.mark.parametrize("start", ["2007-01-01", "2018-01-01", "2024-01-01"])
def test_a_memory_starts_where_all_grains_begin(start: str) -> None:
    assert Settings.from_environment({"MEMORY_PIPELINE_START": start}).start.isoformat() == start


@pytest.mark.parametrize("start", ["2023-01-01", "2025-01-01", "2024-01-08", "2024-04-01", "2018-12-31"])
def test_a_start_that_is_not_a_monday_on_1_january_is_refused(start: str) -> None:
    message = (
        f"MEMORY_PIPELINE_START {start} is not a 1 January that is a Monday; accepted are .* 2018-01-01, 2024-01-01"
    )
    with pytest.raises(ConfigurationError, match=message):
        Settings.from_environment({"MEMORY_PIPELINE_START": start})
    with pytest.raises(ConfigurationError, match=message):
        Settings(start=date.fromisoformat(start))


@pytest.mark.parametrize(
    "start",
    ["yesterday", "2024", "2024-01", "01.01.2024", " 2024-01-01", "2024-13-01", pytest.param("x" * 10**6, id="1 MB")],
)
def test_a_start_that_is_no_date_is_refused(start: str) -> None:
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
