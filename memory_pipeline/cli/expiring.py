"""Commands that delete what is old or unused: expire and vacuum."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import click

from memory_pipeline.cli.common import cli, lake_of, settings_of
from memory_pipeline.cli.verbs import command
from memory_pipeline.errors import InputError, counted
from memory_pipeline.parameters import Within
from memory_pipeline.rendering import expiration_lines, held_back_lines, housekeeping_lines, share_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory_pipeline.evaluation.labels import LabelledQuestion
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.housekeeping import Cleaned

#: A longer text is no path.
_LONGEST_PATH = 256


@command(cli)
def expire(
    root: str | None,
    as_json: bool,
    dry_run: bool = False,
    what_if: str | None = None,
    evaluate: Sequence[Path] = (),
    evaluate_format: Literal["jsonl", "locomo", "longmemeval", "beam"] = "jsonl",
    grace: Annotated[int, Within(0, 60 * 24 * 30)] = 0,
    now: datetime | None = None,
) -> None:
    """Delete memory that is past its retention. Deletes it from tables, index, old versions and disk.

    `retention` in config/workspaces.yaml sets a plan (free, starter, pro, standard) or durations of your own; see
    `memory-pipeline config --example`. By default nothing expires. Age counts from the end of a period. A period is
    held back until its parent is summarized; the output lists what is held back and why.

    \b
        memory-pipeline expire --dry-run                     what would be deleted today
        memory-pipeline expire --dry-run --now 2027-01-01    what would be deleted on that day
        memory-pipeline expire                               delete it
        memory-pipeline expire --what-if free                what another plan would delete
        memory-pipeline expire --what-if "{plan: pro, daily: 150d}" --evaluate questions.jsonl

    Afterwards it does what `memory-pipeline vacuum` does, with or without a retention plan.

    Safe to repeat and to interrupt. The Dagster job `expire_memory` does the same every night.

    Args:
        dry_run: print what would be deleted and why; delete nothing.
        what_if: print the rows and bytes that would be deleted if all workspaces had this retention; delete nothing. It
            is a plan, or a section `retention` as of a workspace: a YAML file, or the text of one.
        evaluate: with --what-if: also print how many answers of the questions in this file each grain would lose.
        evaluate_format: format of the files, as the command of `eval`. Those in JSONL need no conversations.
        grace: keep replaced files so many minutes, for other programs that may read them. Readers of this package need
            0.
        now: the current time.
    """
    from memory_pipeline.lake.orphans import AGE
    from memory_pipeline.steps.housekeeping import clean_files
    from memory_pipeline.steps.retention import expire as delete_expired

    if evaluate and what_if is None:
        raise InputError("--evaluate needs --what-if, the retention to try")
    settings = settings_of(root)
    lake = lake_of(settings)
    if what_if is not None:
        asked = _questions(evaluate, evaluate_format) if evaluate else []
        _try_retention(lake, what_if, asked, now or datetime.now(UTC), as_json=as_json)
        return
    kept = timedelta(minutes=grace)
    done = delete_expired(lake, lake.start, now or datetime.now(UTC), dry_run=dry_run, grace=kept)
    # By the clock, not by --now: other processes may be writing.
    cleaned = clean_files(lake, datetime.now(UTC), age=max(kept, AGE), dry_run=dry_run)
    if as_json:
        record = asdict(replace(done, periods={}))
        del record["periods"]
        click.echo(to_json({"dry_run": dry_run, **record, **_record(cleaned)}))
    else:
        click.echo("\n".join([*expiration_lines(done, dry_run=dry_run), *housekeeping_lines(cleaned, dry_run=dry_run)]))


def _questions(files: Sequence[Path], name: str) -> Sequence[LabelledQuestion]:
    from memory_pipeline.evaluation.assistant_sets import read_beam_set, read_longmemeval_set
    from memory_pipeline.evaluation.formats import read_locomo_set, read_questions

    if name == "jsonl":
        return read_questions(files)
    read = {"locomo": read_locomo_set, "longmemeval": read_longmemeval_set, "beam": read_beam_set}[name]
    return read(files).asked


def _try_retention(
    lake: Lake, plan: str, questions: Sequence[LabelledQuestion], now: datetime, *, as_json: bool
) -> None:
    from memory_pipeline.configuration import parse_retention
    from memory_pipeline.evaluation.formats import bytes_of
    from memory_pipeline.evaluation.labels import answers_of
    from memory_pipeline.evaluation.report import loss_lines
    from memory_pipeline.evaluation.survival import losses
    from memory_pipeline.steps.retention import Inventory, held_back

    answers = answers_of(questions)
    is_file = len(plan) < _LONGEST_PATH and Path(plan).is_file()
    text = bytes_of(Path(plan)).decode(errors="replace") if is_file else plan
    retention = parse_retention(text, plan if is_file else "--what-if", lake.configuration().retentions()[""])
    inventory = Inventory(lake, held_back(lake, lake.start, now), now, retention)
    shares = inventory.sizes()
    lost = losses(lake, inventory.kept, answers) if answers else []
    if as_json:
        held = {str(each.held_back_by): each.kept for each in inventory.plan if each.held_back_by}
        tables = [each._asdict() for each in shares]
        click.echo(to_json({"retention": retention.describe(), "tables": tables, "held_back": held, "answers": lost}))
        return
    click.echo("\n".join([*share_lines(shares), *held_back_lines(inventory.plan), *(loss_lines(lost) if lost else ())]))


@command(cli)
def vacuum(
    root: str | None, as_json: bool, dry_run: bool = False, older_than: Annotated[int, Within(0, 60 * 24 * 365)] = 60
) -> None:
    """Delete unused files, and compact small files of the index.

    Each run replaces files of tables and index; the replaced files stay for readers that are already open. `vacuum`
    deletes them, old log entries, and files that killed processes left more than an hour ago. It deletes no memory and
    changes no search result.

    \b
        memory-pipeline vacuum --dry-run          what would be deleted
        memory-pipeline vacuum                    delete it
        memory-pipeline vacuum --older-than 0     delete all replaced files; only while nothing else uses the lake

    Safe to repeat, to interrupt and to run beside readers and writers. The Dagster job `expire_memory` does the same
    every night, and `memory-pipeline run` once a day.

    Args:
        dry_run: print what would be deleted; delete nothing.
        older_than: delete files replaced so many minutes ago (full hours for tables). Open readers may still use newer
            ones.
    """
    from memory_pipeline.steps.housekeeping import clean_files

    lake = lake_of(settings_of(root))
    cleaned = clean_files(lake, datetime.now(UTC), age=timedelta(minutes=older_than), dry_run=dry_run)
    if as_json:
        record = {"dry_run": dry_run, **asdict(cleaned.gone), **_record(cleaned), "seconds": cleaned.seconds}
        click.echo(to_json(record))
        return
    gone = f"{counted(cleaned.gone.files, 'file')}, {counted(cleaned.gone.bytes, 'byte')}"
    total = f"{gone} would be deleted" if dry_run else f"{gone} deleted ({cleaned.seconds:.1f} s)"
    click.echo("\n".join([*housekeeping_lines(cleaned, dry_run=dry_run), total]))


def _record(cleaned: Cleaned) -> dict[str, object]:
    return {
        "old_versions": {kind: asdict(gone) for kind, gone in cleaned.old_versions.items()},
        "left_behind": {kind: asdict(gone) for kind, gone in cleaned.left_behind.items()},
        "compacted": cleaned.compacted,
        "bytes_written": cleaned.bytes_written,
    }
