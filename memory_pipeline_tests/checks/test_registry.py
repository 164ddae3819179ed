"""All checks together, and their output on the command line."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.checks import CheckContext, Offences, Severity, all_checks, checks_of, run_checks
from memory_pipeline.errors import InputError
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline_tests.building import ACME, NOW, conversation, hours, versions, write
from memory_pipeline_tests.checks.planting import plant
from memory_pipeline_tests.invoking import call

if TYPE_CHECKING:
    from memory_pipeline.lake import Lake

#: A time at which nothing is pending in the lakes of these tests.
AS_OF = NOW.isoformat()


def test_every_check_has_a_name_description_and_remedy() -> None:
    checks = all_checks()
    assert len({(check.asset, check.name) for check in checks}) == len(checks)
    for check in checks:
        assert re.fullmatch(r"[a-z][a-z0-9_]+", check.name)
        assert check.description.endswith(".")
        assert check.remedy
        assert not check.remedy.endswith(".")
        assert check.severity is Severity.ERROR or not check.blocks
    assert {check.asset for check in checks_of("daily_summaries")} == {"daily_summaries"}
    assert checks_of("nothing") == []


def test_all_checks_pass_in_a_complete_and_in_an_empty_lake(indexed: Lake, root: str) -> None:
    from memory_pipeline.lake import Lake

    before = versions(indexed)
    assert [finding for finding in run_checks(CheckContext(indexed, NOW), all_checks()) if not finding.passed] == []
    assert versions(indexed) == before  # nothing is written
    empty = Lake(f"{root}-empty")
    empty.ensure()
    assert [finding for finding in run_checks(CheckContext(empty, NOW), all_checks()) if not finding.passed] == []


def test_checks_that_share_a_scan_find_the_same_as_alone(lake: Lake) -> None:
    plant(lake, FACTS, "2024-01-15T08", lambda rows: rows.append(rows[0]))
    plant(lake, MESSAGES, "2024-01-15T11", list.clear)
    plant(lake, SUMMARIES, "2024-02-20", lambda rows: rows.pop(0), grain="daily")
    checks = [*checks_of("working_facts")[:8], *checks_of("daily_summaries")[:8], *checks_of("messages")[:4]]
    for periods in (None, hours("2024-01-15T08", "2024-01-15T11")):
        together = list(run_checks(CheckContext(lake, NOW, periods), checks))
        assert [finding.check for finding in together] == checks
        alone = [finding for check in checks for finding in run_checks(CheckContext(lake, NOW, periods), [check])]
        assert together == alone
    assert {finding.check.name for finding in together if finding.sample} >= {"unique_ids", "orphaned_sources"}


def test_a_check_that_raises_has_failed_and_others_still_run(lake: Lake) -> None:
    def fail(_: CheckContext) -> Offences:
        raise RuntimeError("out of paper\nand of ink")

    [real] = [check for check in checks_of("messages") if check.name == "quarantine"]
    broken = replace(real, run=fail, severity=Severity.WARNING)
    first, second = run_checks(CheckContext(lake, NOW), [broken, real])
    assert first.is_error
    assert first.trouble == "the check failed to run: RuntimeError: 'out of paper'"
    assert "`memory-pipeline repair --dry-run`" in first.remedy != first.check.remedy
    assert second.passed


def test_a_check_is_retried_when_files_disappear(lake: Lake) -> None:
    missing = iter([True, True, False])

    def read(_: CheckContext) -> Offences:
        if next(missing, True):
            raise FileNotFoundError("part-0.parquet")
        return Offences()

    check = replace(all_checks()[0], run=read)
    [finding] = run_checks(CheckContext(lake, NOW), [check])
    assert finding.passed
    [gone] = run_checks(CheckContext(lake, NOW), [check])
    assert gone.trouble == "the check failed to run: FileNotFoundError: 'part-0.parquet'"


def invoke(lake: Lake, *arguments: str) -> tuple[int, str]:
    result = call("check", "--root", lake.storage.uri, "--now", AS_OF, *arguments)
    return result.exit_code, result.stdout


def test_the_command_prints_passed_checks(lake: Lake) -> None:
    code, output = invoke(lake, "--asset", "weekly_summaries")
    lines = output.splitlines()
    number = len(checks_of("weekly_summaries"))
    assert code == 0
    assert lines[-1] == f"{number} of {number} checks passed, 0 with a warning, 0 failed"
    assert len(lines) == number + 1
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert re.search(r"^ok +weekly_summaries +unique_ids +rows 3, rows_too_many 0, ", output, re.MULTILINE)


def test_a_warning_is_printed_and_is_no_failure(lake: Lake) -> None:
    write(lake, conversation("I sold the car.", at="2024-05-01T10:00", conversation_id="c9"))
    [file] = lake.journal.pending()
    lake.storage.write(f"{folder_of(ACME)}/2024-05-01T10__x.jsonl", lake.storage.read(file.path) or b"")
    lake.storage.delete([file.path])
    code, output = invoke(lake, "--asset", "messages")
    assert code == 0
    assert "warning  messages             journal_backlog   1 offender\n           2024-05-01T10, 1 file\n" in output
    assert "to do: compute pending periods with `memory-pipeline run`" in output


def test_a_failure_is_printed_with_a_sample_of_offenders_and_exit_code_1(lake: Lake) -> None:
    plant(lake, FACTS, "2024-01-15T08", lambda rows: rows.extend(rows * 3))
    code, output = invoke(lake, "--asset", "working_facts")
    assert code == 1
    assert re.search(r"^FAILED +working_facts +unique_ids +\d+ offenders$", output, re.MULTILINE)
    assert "Porto" not in output
    code, output = invoke(lake, "--asset", "working_facts", "--from", "2024-01-16", "--to", "2024-02-28")
    assert "FAILED   working_facts        unique_ids" not in output
    code, output = invoke(lake, "--asset", "working_facts", "--from", "2024-01-15", "--to", "2024-01-15", "--json")
    assert code == 1
    found = {record["check"]: record for record in json.loads(output)}
    assert found["unique_ids"]["result"] == "failed"
    assert found["unique_ids"]["offenders"] == found["unique_ids"]["numbers"]["rows_too_many"] > 0
    assert found["schema"]["result"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--asset", "nonsense"], "--asset 'nonsense' has no checks; accepted: messages, "),
        (["--from", "2024-01-15"], "--from and --to go together"),
        (["--from", "2024-01-15", "--to", "2024-01-14"], "--to 2024-01-14 is before --from 2024-01-15"),
    ],
)
def test_invalid_arguments_are_refused(lake: Lake, arguments: list[Any], said: str) -> None:
    result = call("check", "--root", lake.storage.uri, *arguments)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_checks_use_the_given_time(lake: Lake) -> None:
    plant(lake, SUMMARIES, "2024-02-20", lambda rows: rows.pop(0), grain="daily")
    assert invoke(lake, "--asset", "daily_summaries")[0] == 1
    open_day = NOW.replace(year=2024, month=2, day=20) + timedelta(hours=2)
    result = call(
        "check", "--root", lake.storage.uri, "--asset", "daily_summaries", "--now", open_day.isoformat(), "--json"
    )
    found = {record["check"]: record["result"] for record in json.loads(result.stdout)}
    assert found["coverage"] == "ok"
