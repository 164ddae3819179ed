"""Turns LoCoMo's public format (Maharana et al., ACL 2024) into conversations.

A file is one sample, or a list of samples; a sample holds its talks as ``session_N`` (a list of turns) with
``session_N_date_time``, at its top or under ``conversation``. Turns have no time of their own: they get a minute each.
Questions about the talks, with the turns that answer them, stand under ``qa``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.json_text import read_json
from memory_pipeline.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SESSION = re.compile(r"session_([0-9]{1,6})")
_TIME_FORMAT = "%I:%M %p on %d %B, %Y"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Sample:
    """What a file says of one pair of people.

    Attributes:
        where: the file and the sample's number in it, for messages.
        agent_id: whose memory the talks become.
        conversations: the talks, in the order of their numbers.
        questions: what stands under ``qa``, unchecked; None if nothing does.
    """

    where: str
    agent_id: str
    conversations: tuple[dict[str, Any], ...]
    questions: object


def read_locomo(path: Path, workspace_id: str = "locomo", agent_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the talks of a LoCoMo file as conversations, in the order of their numbers.

    Args:
        path: the file.
        workspace_id: the workspace of the conversations.
        agent_id: their agent; each sample's own id, or the file's name, if not given.

    Raises:
        InputError: the file is not readable, or not in this format; the message says what is missing.
    """
    for sample in read_samples(path, workspace_id, agent_id):
        yield from sample.conversations


def read_samples(path: Path, workspace_id: str = "locomo", agent_id: str | None = None) -> Iterator[Sample]:
    """Yield the samples of a LoCoMo file, questions included; arguments and errors as of :func:`read_locomo`."""
    try:
        data = read_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"file {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"file {path} is not valid JSON: {error}") from None
    samples = data if isinstance(data, list) else [data]
    for number, sample in enumerate(samples, start=1):
        default = path.stem if len(samples) == 1 else f"{path.stem}-{number}"
        try:
            yield _sample(sample, f"file {path}, sample {number}", workspace_id, agent_id, default)
        except InputError as error:
            raise InputError(f"file {path}: {error}") from None
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            # Whatever is not where it should be ends in one of these.
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
        raise InputError("it holds no talks; expected keys session_1, session_1_date_time, … (LoCoMo)")
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
