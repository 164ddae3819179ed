"""Commands that delete: forget, verify-erasure, redact, expire and vacuum."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from errno import EEXIST
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click

from memory_pipeline.cli.common import (
    cli,
    common,
    id_option,
    is_from_environment,
    json_option,
    lake_of,
    models_of,
    root_option,
    settings_of,
)
from memory_pipeline.cli.terminal import progress
from memory_pipeline.cli.verbs import command
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.errors import InputError, counted, shown
from memory_pipeline.operating_system import create_private
from memory_pipeline.parameters import Within
from memory_pipeline.rendering import expiration_lines, held_back_lines, housekeeping_lines, share_lines, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.erasure.forget import ErasurePreview
    from memory_pipeline.erasure.redaction import Redaction
    from memory_pipeline.evaluation.labels import LabelledQuestion
    from memory_pipeline.lake import Lake
    from memory_pipeline.steps.housekeeping import Cleaned


#: Hours and ids that a preview prints.
_SHOWN = 10
#: A longer text is no path.
_LONGEST_PATH = 256
#: Findings that a verification prints.
_FINDINGS = 50


def _erasure_options(function: Callable[..., Any]) -> Callable[..., Any]:
    agent = id_option(
        "--agent",
        "agent_id",
        "The agent. Alone: erase its whole memory. The environment names the agent of --conversation only.",
    )
    return id_option("--workspace", "workspace_id", "The workspace.", required=True)(agent(common(function)))


@command(cli, _erasure_options)
def forget(
    workspace_id: str,
    agent_id: str | None,
    root: str | None,
    as_json: bool,
    conversation: str | None = None,
    person: Sequence[str] = (),
    user: str | None = None,
    receipt: Path | None = None,
    dry_run: bool = False,
    yes: bool = False,
    now: datetime | None = None,
) -> None:
    """Erase an agent, a conversation, a user or a person. Writes a receipt.

    \b
        memory-pipeline forget --workspace acme --agent support                        a whole agent
        memory-pipeline forget --workspace acme --agent support --conversation c-17    one conversation
        memory-pipeline forget --workspace acme --user u-17                            a user, for all agents
        memory-pipeline forget --workspace acme --person "Anna Schmidt" --person u-17  a person, for all agents
        memory-pipeline forget --workspace acme --agent support --person "Anna Schmidt"   … for one agent

    --agent and --conversation delete from the agent's own memory and from those of its users and groups.

    --user deletes the user's own memory. In groups, it deletes the user's messages and what rests on them, and the user
    from the members. Give --person with each name to delete text with the name, too.

    --person deletes all data of a user with that id, and every other message, fact and summary point that
    contains the name as whole words, ignoring case and accents. A name that is also a word (Will, May) matches every
    use of that word: check with --dry-run first.

    Deletes from the journal, quarantine, tables, graph, index, model answers and marts, recomputes derived data,
    and deletes files and old versions from disk. Matching messages from before the erasure are dropped if they are sent
    again. Safe to repeat and to interrupt. Other agents can keep reading and writing; an agent that is erased should
    not write meanwhile.

    Exit code 1, also with --dry-run: the subject was never known here. One that was erased before is erased again.

    The receipt contains the erased names, so keep it outside of the lake. `memory-pipeline verify-erasure` reads it.

    Args:
        conversation: erase one conversation of the agent.
        person: erase a person by name or user id. Give it for each name of the person.
        user: erase a user by id: the user's memory, and the user's part of groups. With --conversation: only that one.
        receipt: new file for the receipt, outside of the lake. [default: ./erasure-TIME.json]
        dry_run: print what would be erased; change nothing.
        yes: do not ask for confirmation.
        now: the time of the erasure.
    """
    from memory_pipeline.erasure import forget as forget_subject
    from memory_pipeline.erasure import preview
    from memory_pipeline.erasure.forget import is_known

    if conversation is None and is_from_environment("agent_id"):
        agent_id = None  # what is erased must not depend on a forgotten variable
    subject = _subject(workspace_id, agent_id, conversation, person, user)
    lake = lake_of(settings_of(root))
    moment = now or datetime.now(UTC)
    if yes and dry_run:
        raise InputError("--yes and --dry-run do not go together; give one of them")
    found = preview(lake, subject, moment, sample=_SHOWN)
    if not found.counts and not is_known(lake, subject, moment):
        click.echo(f"{subject}: never known here; nothing was erased", err=True)
        sys.exit(1)
    if not yes:
        click.echo(
            to_json({"subject": subject.to_record(), "found": found}) if as_json else _preview_text(subject, found)
        )
        if dry_run:
            return
        if as_json:
            raise InputError("--json cannot ask for confirmation; give --yes to erase, or --dry-run for a preview")
        click.confirm("Erase this permanently?", abort=True)
    path = _receipt_path(lake, receipt, moment)
    _write_receipt(path, b"")
    tell = (lambda _: None) if as_json else (lambda text: click.echo(f"  {text}", err=True))
    done = forget_subject(lake, models_of(lake), subject, moment, tell)
    _write_receipt(path, done.to_json().encode())
    if as_json:
        click.echo(to_json({"receipt": str(path), "removed": done.removed, "files": done.files, "bytes": done.bytes}))
    else:
        click.echo(_receipt_text(done, path))


@cli.command(name="verify-erasure")
@click.argument("receipt", type=click.Path(path_type=Path))
@root_option("default: the lake that RECEIPT names")
@json_option
def verify_erasure(receipt: Path, root: str | None, as_json: bool) -> None:
    """Search a lake for data that RECEIPT lists as erased.

    Searches for the subject's names, the ids of deleted records and digests of deleted texts: in file names, in raw
    bytes, in every Parquet and JSON file, referenced or not, and in all versions of the index. Prints locations, never
    the content found.

    \b
    Exit code: 0 nothing is left
               1 something is left, or a file cannot be searched
               2 invalid arguments, not a receipt, or a receipt of another lake
    """
    from memory_pipeline.erasure import ErasureReport, verify

    try:
        text = receipt.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(
            f"receipt {receipt} cannot be read: {reason}; give the file that `memory-pipeline forget` wrote"
        ) from None
    try:
        parsed = ErasureReport.from_json(text)
    except InputError as error:
        raise InputError(f"receipt {receipt}: {error}") from None
    lake = lake_of(settings_of(root or parsed.lake))

    with progress(quiet=as_json) as bar:
        result = verify(lake, parsed, partial(bar.show, "files"))
    if as_json:
        click.echo(
            to_json(
                {
                    "ok": result.ok,
                    "files": result.files,
                    "bytes": result.bytes,
                    "places": result.places,
                    "findings": result.findings,
                    "unsearched": result.unsearched,
                    "beyond": result.beyond,
                    "remedies": result.remedies,
                }
            )
        )
    else:
        lines = [*map(str, result.findings), *(f"{file}: cannot be searched" for file in result.unsearched)]
        for line in lines[:_FINDINGS]:
            click.echo(line)
        if len(lines) > _FINDINGS:
            click.echo(f"… and {len(lines) - _FINDINGS:,} more")
        where = ", ".join(f"{place} {count:,}" for place, count in sorted(result.places.items()))
        verdict = "nothing is left" if result.ok else f"NOT erased; {'; '.join(result.remedies)}"
        click.echo(
            f"{parsed.subject}: {verdict} ({counted(result.files, 'file')}, {counted(result.bytes, 'byte')}: {where})"
        )
        for part in result.beyond:
            click.echo(f"  not searched: {part}")
    if not result.ok:
        sys.exit(1)


@command(cli)
def redact(
    root: str | None,
    as_json: bool,
    dry_run: bool = False,
    yes: bool = False,
    receipt: Path | None = None,
    now: datetime | None = None,
) -> None:
    """Remove the secrets that the lake already holds: API keys, tokens, passwords.

    What is written is redacted before it is stored, unless `secrets.redact` in the configuration says otherwise; see
    `memory-pipeline config --example`. This command is for what was written before, or under another setting. Secrets
    become markers such as [secret:github-token:3f2a9c01], what was made from them is made again, and the old bytes are
    deleted. No model is asked; the next run asks those whose input has changed.

    \b
        memory-pipeline redact --dry-run     count what would be redacted, by place and kind
        memory-pipeline redact --yes         redact it

    Safe to repeat, to interrupt and to run beside readers and writers. The receipt holds no secret.

    Args:
        dry_run: print what would be redacted; change nothing.
        yes: do not ask for confirmation.
        receipt: new file for the receipt. [default: none]
        now: the time of the redaction.
    """
    from memory_pipeline.erasure.redaction import redact as redact_lake

    if yes and dry_run:
        raise InputError("--yes and --dry-run do not go together; give one of them")
    lake, moment = lake_of(settings_of(root)), now or datetime.now(UTC)
    tell = (lambda _: None) if as_json else (lambda text: click.echo(f"  {text}", err=True))
    if not yes:
        found = redact_lake(lake, models_of(lake), moment, tell, dry_run=True)
        if dry_run or not found.places:
            click.echo(to_json(found) if as_json else _redaction_text(found, dry_run=True))
            return
        if as_json:
            raise InputError("--json cannot ask for confirmation; give --yes to redact, or --dry-run for a preview")
        click.echo(_redaction_text(found, dry_run=True))
        click.confirm("Redact this permanently?", abort=True)
    if receipt is not None:
        _write_receipt(receipt, b"")
    done = redact_lake(lake, models_of(lake), moment, tell)
    if receipt is not None:
        _write_receipt(receipt, to_json(done).encode())
    click.echo(to_json(done) if as_json else _redaction_text(done, dry_run=False))


def _redaction_text(done: Redaction, *, dry_run: bool) -> str:
    if not done.places:
        return "no secrets were found"
    places = [f"  {place:<18} {count:>10,}" for place, count in sorted(done.places.items())]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.most_common())
    lines = ["secrets would be removed from" if dry_run else "secrets were removed from", *places, f"  kinds: {kinds}"]
    if not dry_run:
        recomputed = sum(map(len, done.remade.values()))
        deleted = f"{counted(done.files, 'file')}, {counted(done.bytes, 'byte')} deleted from disk"
        lines.append(f"  {counted(recomputed, 'period')} recomputed; {deleted}")
        lines += [f"  not covered: {part}" for part in done.not_covered]
    return "\n".join(lines)


def _subject(
    workspace_id: str,
    agent_id: str | None,
    conversation_id: str | None,
    names: Sequence[str],
    user_id: str | None,
) -> Subject:
    if names and conversation_id is not None:
        raise InputError("--person and --conversation do not go together; give one of them")
    if user_id is not None and conversation_id is None:
        return Subject.user(workspace_id, user_id, names, agent_id)
    if names:
        return Subject.person(workspace_id, names, agent_id)
    if agent_id is None:
        raise InputError("no subject to erase is given; give --agent, --agent with --conversation, --user, or --person")
    scope = Scope(workspace_id, agent_id)
    return Subject.agent(scope) if conversation_id is None else Subject.conversation(scope, conversation_id, user_id)


def _receipt_path(lake: Lake, given: Path | None, now: datetime) -> Path:
    path = given or Path(f"erasure-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}.json")
    if lake.storage.is_local and path.resolve().is_relative_to(Path(lake.storage.uri).resolve()):
        raise InputError(
            f"--receipt {shown(str(path), 200)} is in the lake, but it contains the erased names; "
            "choose a file outside of the lake"
        )
    return path


def _write_receipt(path: Path, data: bytes) -> None:
    """Write a receipt, whole or not at all. Without data, check that it can be written: an erasure is not undone."""
    part = path.with_name(f".{path.name}.part")
    try:
        if path.exists() and path.stat().st_size:
            raise FileExistsError(EEXIST, "File exists")
        part.unlink(missing_ok=True)
        # The receipt holds the erased names in clear text, so only its owner may read it.
        with create_private(part) as file:
            file.write(data)
        if data:
            part.replace(path)
        else:
            part.unlink()
    except OSError as error:
        raise InputError(f"--receipt {path} cannot be written: {error.strerror}; name a new file") from None


def _preview_text(subject: Subject, found: ErasurePreview) -> str:
    lines = [str(subject)]
    if not found.counts:
        return f"{subject}: nothing to erase"
    lines += [f"  {place:<18} {count:>10,}" for place, count in found.counts.items()]
    agents = sorted({scope.agent_id for scope in found.scopes})
    more = f" and {len(agents) - _SHOWN:,} more" if len(agents) > _SHOWN else ""
    if agents:
        lines.append(f"  of agents {', '.join(agents[:_SHOWN])}{more}")
    if found.hours:
        lines.append(
            f"  in {counted(len(found.hours), 'hour')}, {found.hours[0]} to {found.hours[-1]}; "
            "coarser grains are recomputed"
        )
    return "\n".join([*lines, *(f"  {identifier}" for identifier in found.sample)])


def _receipt_text(done: ErasureReport, path: Path) -> str:
    lines = [f"{done.subject}: erased"]
    lines += [
        f"  {part.place:<18} {part.count:>10,} {part.what}"
        + (f" in {counted(len(part.partitions), 'partition')}" if part.partitions else "")
        for part in done.removed
    ]
    recomputed = sum(map(len, done.remade.values()))
    deleted = f"{counted(done.files, 'file')}, {counted(done.bytes, 'byte')} deleted from disk"
    lines.append(f"  {counted(recomputed, 'period')} recomputed; {deleted}")
    lines += [f"  not covered: {part}" for part in done.not_covered]
    return "\n".join([*lines, f"receipt: {path}", f"to verify: memory-pipeline verify-erasure {path}"])


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
