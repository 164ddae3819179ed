"""Read published sets of chats between a user and an assistant: LongMemEval and BEAM.

LongMemEval (Wu et al., ICLR 2025): a file is a list of questions, each with its own history of sessions. BEAM (Tavakoli
et al., ICLR 2026): a file has a chat per line, with its probing questions, as in the published dataset; a folder of its
repository, with ``chat.json`` and ``probing_questions/probing_questions.json``, is one chat.

Messages have no times of their own: they are placed a minute apart from the time of their session.
"""

from __future__ import annotations

import ast
import re
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError, shown
from memory_pipeline.evaluation.formats import bytes_of, json_in, lines_of, text_in
from memory_pipeline.evaluation.labels import Citation, LabelledQuestion, LabelledSet, labelled_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

_LONGMEMEVAL: Final = "longmemeval"
_BEAM: Final = "beam"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
#: BEAM's plan of a message, at the end of its text.
_PLAN: Final = re.compile(r"\s*->->\s*[\d,\s]+$")
#: BEAM's categories of questions that cannot be answered from the chat.
_ABSTENTION: Final = "abstention"
_ANSWERS: Final = ("answer", "ideal_response", "ideal_answer", "ideal_summary", "expected_compliance")

_Talks = list[tuple[str, object]]


def read_longmemeval_set(paths: Sequence[Path], most: int | None = None) -> LabelledSet:
    """Read files of LongMemEval. Each question becomes an agent, because each has a history of its own.

    `most` is the number of questions read of each type; None for all.

    Raises:
        InputError: a file cannot be read or is not in this format.
    """
    talks: _Talks = []
    questions: list[LabelledQuestion] = []
    counts: dict[str, int] = {}
    for path in paths:
        records = json_in(path, bytes_of(path))
        for number, record in enumerate(records if isinstance(records, list) else [records], start=1):
            where = f"file {path}, question {number}"
            with _layout(where, "LongMemEval"):
                category = str(record["question_type"])
                counts[category] = counts.get(category, 0) + 1
                if most is None or counts[category] <= most:
                    questions.append(_longmemeval_question(record, where, category, talks))
    return labelled_set(talks, questions)


def _longmemeval_question(record: Any, where: str, category: str, talks: _Talks) -> LabelledQuestion:
    name = str(record["question_id"])
    agent = _UNSAFE.sub("-", name)
    evidence = []
    sessions = zip(record["haystack_session_ids"], record["haystack_dates"], record["haystack_sessions"], strict=True)
    for place, (session, day, turns) in enumerate(sessions, start=1):
        messages = _messages(turns, f"{session}_{place}", _time(day))
        evidence += [one["id"] for one in messages if turns[one["turn"]].get("has_answer")]
        talks.extend(_talk(where, _LONGMEMEVAL, agent, f"{place}-{session}", messages))
    is_unanswerable = name.endswith("_abs")
    return LabelledQuestion(
        where,
        Scope(_LONGMEMEVAL, agent),
        text_in(record),
        () if is_unanswerable else tuple(map(Citation, evidence)),
        category,
        str(record["answer"]).strip(),
        _time(record["question_date"]),
        is_unanswerable=is_unanswerable,
    )


def read_beam_set(paths: Sequence[Path], most: int | None = None) -> LabelledSet:
    """Read files or folders of BEAM. Each chat becomes an agent, each of its batches a conversation.

    The evidence of an update is its newest statement. `most` is the number of chats; None for all.

    Raises:
        InputError: a file cannot be read or is not in this format.
    """
    talks: _Talks = []
    questions: list[LabelledQuestion] = []
    chats = ((path, number, chat) for path in paths for number, chat in enumerate(_chats(path), start=1))
    for count, (path, number, chat) in enumerate(chats):
        if count == most:
            break
        where = f"file {path}, chat {number}"
        with _layout(where, "BEAM"):
            agent = "chat-" + _UNSAFE.sub("-", str(chat["conversation_id"]))
            known = set()
            for place, batch in enumerate(chat["chat"], start=1):
                turns = list(_turns(batch))
                if turns:
                    day = next((turn["time_anchor"] for turn in turns if turn.get("time_anchor")), "January-01-2024")
                    start = datetime.strptime(day, "%B-%d-%Y").replace(hour=8, tzinfo=UTC)
                    messages = _messages(turns, "", start)
                    known |= {one["id"] for one in messages}
                    talks.extend(_talk(where, _BEAM, agent, f"batch-{place}", messages))
            probing = chat["probing_questions"]
            probing = ast.literal_eval(probing) if isinstance(probing, str) else probing
            for category, records in probing.items():
                questions += [
                    _beam_question(record, f"{where}, {category} {place}", agent, category, known)
                    for place, record in enumerate(records, start=1)
                ]
    return labelled_set(talks, questions)


def _chats(path: Path) -> Iterator[Any]:
    if path.is_dir():
        files = {"chat": "chat.json", "probing_questions": "probing_questions/probing_questions.json"}
        parts = {name: json_in(path / file, bytes_of(path / file)) for name, file in files.items()}
        yield {"conversation_id": path.name, **parts}
        return
    for _, line in lines_of(path):
        yield json_in(path, line)


def _beam_question(record: Any, where: str, agent: str, category: str, known: set[str]) -> LabelledQuestion:
    source = record.get("source_chat_ids")
    if isinstance(source, dict) and "updated_info" in source:
        source = source["updated_info"]
    rubric = record.get("rubric") or ()
    rubric = ast.literal_eval(rubric) if isinstance(rubric, str) and rubric.startswith("[") else rubric
    answer = next((str(record[name]) for name in _ANSWERS if record.get(name)), None)
    return LabelledQuestion(
        where,
        Scope(_BEAM, agent),
        text_in(record),
        tuple(Citation(each) for each in dict.fromkeys(_ids(source)) if each in known),
        category.replace("_", "-"),
        answer,
        rubric=(rubric,) if isinstance(rubric, str) else tuple(map(str, rubric)),
        is_unanswerable=category == _ABSTENTION,
    )


def _turns(batch: Any) -> Iterator[Any]:
    """Yield the messages of a batch, which the sizes of the dataset nest differently."""
    if isinstance(batch, dict) and "role" in batch:
        yield batch
    elif isinstance(batch, dict | list):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _turns(part)


def _ids(source: Any) -> Iterator[str]:
    if isinstance(source, dict | list):
        for part in source.values() if isinstance(source, dict) else source:
            yield from _ids(part)
    elif source is not None:
        yield f"m{source}"


def _messages(turns: Sequence[Any], prefix: str, start: datetime) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{prefix}_{place}" if prefix else f"m{turn['id']}",
            "role": turn["role"],
            "content": content,
            "timestamp": (start + timedelta(minutes=place)).isoformat(),
            "turn": place,
        }
        for place, turn in enumerate(turns)
        if (content := _PLAN.sub("", str(turn["content"] or "")).strip())
    ]


def _talk(
    where: str, workspace: str, agent: str, conversation: str, messages: Iterable[dict[str, Any]]
) -> Iterator[tuple[str, object]]:
    listed = [{name: value for name, value in one.items() if name != "turn"} for one in messages]
    if listed:
        yield (
            where,
            {
                "workspace_id": workspace, "agent_id": agent, "conversation_id": _UNSAFE.sub("-", conversation),
                "messages": listed,
            },
        )  # fmt: skip


def _time(text: str) -> datetime:
    """Return a time such as ``2023/05/20 (Sat) 02:21``, which is taken as UTC."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)\s*", " ", str(text)).strip(), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


@contextmanager
def _layout(where: str, name: str) -> Iterator[None]:
    """Report a missing or misplaced value as an InputError that names the record."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except KeyError as error:
        raise InputError(f"{where} is not in {name}'s format: it has no {shown(error.args[0])}") from None
    except (LookupError, TypeError, AttributeError, ValueError, SyntaxError) as error:
        raise InputError(f"{where} is not in {name}'s format: {type(error).__name__}: {error}") from None
