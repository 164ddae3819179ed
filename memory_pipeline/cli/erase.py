"""Commands that erase: forget, verify-erasure and redact."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from errno import EEXIST
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from memory_pipeline.rendering import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.erasure import ErasureReport
    from memory_pipeline.erasure.forget import ErasurePreview
    from memory_pipeline.erasure.redaction import Redaction
    from memory_pipeline.lake import Lake


#: Hours and ids that a preview prints.
_SHOWN = 10
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
    source: str | None = None,
    person: Sequence[str] = (),
    user: str | None = None,
    receipt: Path | None = None,
    dry_run: bool = False,
    yes: bool = False,
    now: datetime | None = None,
) -> None:
    """Erase an agent, a conversation, an import, a user or a person. Writes a receipt.

    \b
        memory-pipeline forget --workspace acme --agent support                        a whole agent
        memory-pipeline forget --workspace acme --agent support --conversation c-17    one conversation
        memory-pipeline forget --workspace acme --agent support --source import:slack  what an import brought
        memory-pipeline forget --workspace acme --user u-17                            a user, for all agents
        memory-pipeline forget --workspace acme --person "Anna Schmidt" --person u-17  a person, for all agents
        memory-pipeline forget --workspace acme --agent support --person "Anna Schmidt"   … for one agent

    --agent, --conversation and --source delete from the agent's own memory and from those of its users and groups;
    with --user, the last two only from that user's. --source deletes the conversations of a source, and memories and
    facts of the graph that were imported from it. `memory-pipeline rollback` withdraws them without deleting.

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
        source: erase all that came from a source, such as import:chatgpt.
        person: erase a person by name or user id. Give it for each name of the person.
        user: erase a user by id: the user's memory, and the user's part of groups. With --conversation or --source:
            only from that user's memory.
        receipt: new file for the receipt, outside of the lake. [default: ./erasure-TIME.json]
        dry_run: print what would be erased, what rests on it, and which reads handed it to a model; change nothing.
        yes: do not ask for confirmation.
        now: the time of the erasure.
    """
    from memory_pipeline.erasure import forget as forget_subject
    from memory_pipeline.erasure import preview
    from memory_pipeline.erasure.forget import is_known

    if conversation is None and source is None and is_from_environment("agent_id"):
        agent_id = None  # what is erased must not depend on a forgotten variable
    lake = lake_of(settings_of(root))
    subject = _subject(lake, workspace_id, agent_id, conversation, source, person, user)
    moment = now or datetime.now(UTC)
    if yes and dry_run:
        raise InputError("--yes and --dry-run do not go together; give one of them")
    found = preview(lake, subject, moment, sample=_SHOWN, only_counts=yes)
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
    lake: Lake,
    workspace_id: str,
    agent_id: str | None,
    conversation_id: str | None,
    source: str | None,
    names: Sequence[str],
    user_id: str | None,
) -> Subject:
    if sum((bool(names), conversation_id is not None, source is not None)) > 1:
        raise InputError("--person, --conversation and --source do not go together; give one of them")
    is_part = conversation_id is not None or source is not None
    if user_id is not None and not is_part:
        return Subject.user(workspace_id, user_id, names, agent_id)
    if names:
        return Subject.person(workspace_id, names, agent_id)
    if agent_id is None:
        kinds = "--agent, --agent with --conversation or --source, --user, or --person"
        raise InputError(f"no subject to erase is given; give {kinds}")
    scope = Scope(workspace_id, agent_id)
    if source is not None:
        from memory_pipeline.erasure.forget import subject_of_source

        return subject_of_source(lake, scope, source, user_id)
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
    rests_on = found.radius.lines(_SHOWN) if found.radius else ()
    return "\n".join([*lines, *(f"  {identifier}" for identifier in found.sample), *rests_on])


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
