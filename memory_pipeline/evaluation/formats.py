"""Read labelled sets in LoCoMo's format (Maharana et al., ACL 2024) and in JSONL."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.json_text import read_json
from memory_pipeline.domain.messages import timestamp_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, shown
from memory_pipeline.evaluation.labels import (
    ADVERSARIAL,
    UNCATEGORISED,
    Citation,
    LabelledQuestion,
    LabelledSet,
    labelled_set,
)
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.search.arguments import MAX_QUERY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


# A LoCoMo file is a sample or a list of samples. A sample has its conversations as ``session_N`` (a list of turns) with
# ``session_N_date_time``, at the top level or under ``conversation``, and questions with evidence under ``qa``. Turns
# have no times: they are placed a minute apart.


_SESSION = re.compile(r"session_([0-9]{1,6})")
_TIME_FORMAT = "%I:%M %p on %d %B, %Y"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a LoCoMo file: the conversations of two people, in the order of the sessions' numbers.

    `where` is file and number, for error messages. `questions` is the value of ``qa``, unchecked; None if it is
    missing.
    """

    where: str
    agent_id: str
    conversations: tuple[dict[str, Any], ...]
    questions: object


def read_locomo(path: Path, workspace_id: str = "locomo", agent_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the sessions of a LoCoMo file as conversations, in order.

    `agent_id` defaults to each sample's id, or the file's name.

    Raises:
        InputError: the file cannot be read or is not in this format.
    """
    for sample in read_samples(path, workspace_id, agent_id):
        yield from sample.conversations


def read_samples(path: Path, workspace_id: str = "locomo", agent_id: str | None = None) -> Iterator[Sample]:
    """Yield the samples of a LoCoMo file with their questions. Arguments and errors as for :func:`read_locomo`."""
    data = json_in(path, bytes_of(path))
    samples = data if isinstance(data, list) else [data]
    for number, sample in enumerate(samples, start=1):
        default = path.stem if len(samples) == 1 else f"{path.stem}-{number}"
        try:
            yield _sample(sample, f"file {path}, sample {number}", workspace_id, agent_id, default)
        except InputError as error:
            raise InputError(f"file {path}: {error}") from None
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            # A missing or misplaced value raises one of these.
            raise InputError(f"file {path}: sample {number} is not in LoCoMo's format: {error}") from None


def _sample(sample: Any, where: str, workspace: str, agent: str | None, default: str) -> Sample:
    if not isinstance(sample, Mapping):
        raise InputError(f"a sample must be an object, not {shown(sample)}")
    name = agent or _UNSAFE.sub("-", str(sample.get("sample_id") or default)).strip("-._") or "sample"
    talks = sample.get("conversation", sample)
    return Sample(where, name, tuple(_conversations(talks, workspace, name)), sample.get("qa"))


def _conversations(talks: Any, workspace: str, agent: str) -> Iterator[dict[str, Any]]:
    found = sorted(int(match[1]) for key in talks if (match := _SESSION.fullmatch(key)))
    if not found:
        raise InputError("it has no sessions; expected the keys session_1, session_1_date_time, … (LoCoMo)")
    for session in found:
        start = _start(talks, f"session_{session}_date_time")
        yield {
            "workspace_id": workspace,
            "agent_id": agent,
            "conversation_id": f"session_{session}",
            "messages": [
                {
                    "id": turn.get("dia_id"),
                    "role": "user",
                    "name": turn.get("speaker"),
                    "content": _content(turn),
                    "timestamp": (start + timedelta(minutes=minute)).isoformat(),
                }
                for minute, turn in enumerate(talks[f"session_{session}"])
            ],
        }


def _start(talks: Mapping[str, Any], key: str) -> datetime:
    try:
        return datetime.strptime(str(talks.get(key)).strip(), _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        raise InputError(
            f"{key} {shown(talks.get(key))} cannot be read; expected e.g. 1:56 pm on 8 May, 2023"
        ) from None


def _content(turn: Mapping[str, Any]) -> str:
    text, caption = turn.get("text") or "", turn.get("blip_caption")
    return f"{text} [shares an image: {caption}]".strip() if caption else text


_WORKSPACE = "locomo"
_CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": ADVERSARIAL}
#: Id of a turn in evidence: D8:6. The published files also have D:11:26 and D30:05.
_TURN = re.compile(r"D:?\s*([0-9]{1,6})\s*:\s*([0-9]{1,6})")


def read_locomo_set(paths: Sequence[Path], most: int | None = None) -> LabelledSet:
    """Read files in LoCoMo's format. Each sample becomes an agent. `most` is the number of samples; None for all.

    Raises:
        InputError: a file cannot be read or is not in this format, or two samples have the same name.
    """
    samples = [sample for path in paths for sample in read_samples(path, _WORKSPACE)][:most]
    by_name: dict[str, Sample] = {}
    for sample in samples:
        first = by_name.setdefault(sample.agent_id, sample)
        if first is not sample:
            raise InputError(
                f"{sample.where} and {first.where} are both called {shown(sample.agent_id)}; give each file once, and "
                "each sample a sample_id of its own"
            )
    talks = ((sample.where, talk) for sample in samples for talk in sample.conversations if talk["messages"])
    return labelled_set(talks, [question for sample in samples for question in _locomo_questions(sample)])


def read_jsonl_set(paths: Sequence[Path]) -> LabelledSet:
    """Read files with a conversation or a question per line. Evidence may be in another of the files.

    Raises:
        InputError: a file cannot be read, or a line is neither. The message gives the file and the line.
    """
    return labelled_set(*_jsonl_records(paths))


def read_questions(paths: Sequence[Path]) -> list[LabelledQuestion]:
    """Return the questions of files as for :func:`read_jsonl_set`, which need no conversations here."""
    return _jsonl_records(paths)[1]


def _jsonl_records(paths: Sequence[Path]) -> tuple[list[tuple[str, object]], list[LabelledQuestion]]:
    conversations: list[tuple[str, object]] = []
    questions: list[LabelledQuestion] = []
    for path in paths:
        for where, line in lines_of(path):
            try:
                record = parse_json(line)
                if "question" in record and "messages" not in record:
                    questions.append(question_of(record, where))
                elif "messages" in record and "question" not in record:
                    conversations.append((where, record))
                else:
                    raise InputError(
                        "each line must be a conversation (with messages) or a question (with question and evidence)"
                    )
            except InputError as error:
                raise InputError(f"{where}: {error}; `memory-pipeline eval jsonl --help` shows the format") from None
    return conversations, questions


def bytes_of(path: Path) -> bytes:
    """Return the content of a file, or raise InputError."""
    try:
        return path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        raise InputError(f"file {path} cannot be read: {error.strerror}") from None


def json_in(path: Path, data: bytes) -> Any:
    """Return the JSON value in `data`, which is all or a line of a file, or raise InputError."""
    try:
        return read_json(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"file {path} is not valid JSON: {error}") from None


def lines_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of each line that is not blank."""
    for number, line in enumerate(bytes_of(path).split(b"\n"), start=1):
        if line.strip():
            yield f"file {path}, line {number}", line


def _locomo_questions(sample: Sample) -> Iterator[LabelledQuestion]:
    if not isinstance(sample.questions, list):
        raise InputError(f"{sample.where} has no questions: qa must be a list, not {shown(sample.questions)}")
    scope = Scope(_WORKSPACE, sample.agent_id)
    for number, record in enumerate(sample.questions, start=1):
        where = f"{sample.where}, question {number}"
        try:
            if not isinstance(record, Mapping):
                raise InputError(f"expected an object with question, evidence and category, not {shown(record)}")
            yield LabelledQuestion(
                where=where,
                scope=scope,
                text=text_in(record),
                evidence=_turns(record.get("evidence")),
                category=(
                    category := _CATEGORIES.get(str(record.get("category"))) or category_of(record.get("category"))
                ),
                answer=_answer(record),
                is_unanswerable=category == ADVERSARIAL,
            )
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


def _turns(evidence: object) -> tuple[Citation, ...]:
    """Return the turns in LoCoMo's evidence, without duplicates. Text without a turn id is unchanged."""
    pieces = evidence if isinstance(evidence, list) else [] if evidence is None else [evidence]
    found = []
    for piece in map(str, pieces):
        turns = [f"D{int(talk)}:{int(turn)}" for talk, turn in _TURN.findall(piece)]
        found += turns or [piece]
    return tuple(Citation(name) for name in dict.fromkeys(found))


def question_of(record: Mapping[str, Any], where: str) -> LabelledQuestion:
    """Return the question of a record, asked at `now`, or `until` in other sets. Raise InputError if it is invalid."""
    evidence = record.get("evidence")
    if not isinstance(evidence, list):
        raise InputError(f"evidence must be a list of message ids, not {shown(evidence)}")
    now = record.get("now", record.get("until"))
    return LabelledQuestion(
        where=where,
        scope=Scope(record.get("workspace_id"), record.get("agent_id")),  # type: ignore[arg-type]  # Scope checks
        text=text_in(record),
        evidence=tuple(dict.fromkeys(_citation(each) for each in evidence)),
        category=category_of(record.get("category")),
        answer=_answer(record),
        now=None if now is None else timestamp_of("now", now),
    )


def _citation(value: object) -> Citation:
    if isinstance(value, str):
        return Citation(value)
    if isinstance(value, Mapping) and value.keys() == {"conversation_id", "id"}:
        talk, name = value["conversation_id"], value["id"]
        if isinstance(talk, str) and isinstance(name, str):
            return Citation(name, talk)
    raise InputError(
        f'evidence {shown(value)} is not a message id; expected a text, or {{"conversation_id": "…", "id": "…"}}'
    )


def text_in(record: Mapping[str, Any], key: str = "question") -> str:
    """Return a text to search for. Reject here any that a search would refuse, so that the error names the record."""
    text = record.get(key)
    try:
        if not isinstance(text, str) or not text.strip() or len(text) > MAX_QUERY:
            raise InputError(f"expected a text that is not blank, of at most {MAX_QUERY:,} characters")
        text.encode()
    except ValueError as error:
        reason = error if isinstance(error, InputError) else "it is not valid Unicode"
        raise InputError(f"{key} {shown(text)} is not accepted; {reason}") from None
    return text


def category_of(value: object) -> str:
    """Return a category. Raise InputError if it is invalid."""
    if value is None:
        return UNCATEGORISED
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).isprintable() or value == "":
        raise InputError(f"category {shown(value)} is not accepted; expected a name, such as multi-hop")
    return str(value)


def _answer(record: Mapping[str, Any]) -> str | None:
    answer = record.get("answer")
    return None if answer is None else str(answer).strip() or None
