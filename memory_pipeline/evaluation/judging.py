"""How published benchmarks ask for an answer and judge it: instructions, and the scores of a judge's verdicts.

The instructions state the published rules in our own words. Two protocols exist, because products publish figures of
both:

``paper``
    LongMemEval: a yes or no by rules that differ by the type of question; a question that cannot be answered needs an
    answer that says so. LoCoMo: CORRECT or WRONG. BEAM: a score of 0, 0.5 or 1 for each criterion of the rubric, and
    for the order of events the normalised tau-b, in which events that are missing share the last rank.
``omnimemeval``
    As in OmniMemEval: CORRECT or WRONG for LongMemEval too, and for BEAM's order of events tau-b of the events found,
    times the share found.

Sources: github.com/xiaowu0162/LongMemEval, github.com/snap-research/locomo, github.com/mohammadtavakoli78/BEAM,
github.com/MemTensor/OmniMemEval.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Final

from memory_pipeline.models.hosted.transport.requests import InvalidAnswerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.evaluation.labels import LabelledQuestion


class Benchmark(StrEnum):
    """A published set of conversations and questions."""

    LONGMEMEVAL = "longmemeval"
    LOCOMO = "locomo"
    BEAM = "beam"


class Protocol(StrEnum):
    """Whose rules are followed."""

    PAPER = "paper"
    OMNIMEMEVAL = "omnimemeval"


#: Version of the instructions; part of the key of each stored answer.
VERSION: Final = "1"
_EVENT_ORDERING: Final = "event-ordering"

_CAREFUL: Final = """Notes from earlier conversations follow, then a question. Answer from the notes.
- Read the dates. If notes disagree, the newest one is right.
- Turn relative times such as "last year" into dates, counted from the date of the note that says them.
- Use general knowledge only to understand the notes, not in place of them.
- Name every item that the question asks for, and nothing else. Be short and precise."""
_INSTRUCTIONS: Final = {
    (Benchmark.LONGMEMEVAL, Protocol.PAPER): """You are a chat assistant. Notes from your earlier chats with the user
follow, then the current date and a question of the user. Answer step by step: first collect what is relevant in the
notes, then reason about it, then answer. If the notes do not contain the answer, say so.""",
    (Benchmark.LOCOMO, Protocol.PAPER): """Notes from a conversation of two people follow, then a question. Answer it
from the notes, with a short phrase and the words of the notes where possible. Give dates as dates. If the notes do not
contain the answer, say that it was not mentioned.""",
    (Benchmark.BEAM, Protocol.PAPER): """Answer the question from the notes that follow, and from nothing else. Be
direct. If the notes do not contain the answer, say so.""",
    (Benchmark.LONGMEMEVAL, Protocol.OMNIMEMEVAL): _CAREFUL,
    (Benchmark.LOCOMO, Protocol.OMNIMEMEVAL): _CAREFUL,
    (Benchmark.BEAM, Protocol.OMNIMEMEVAL): """Notes from earlier conversations with the user follow, then a question.
Answer it from the notes, thoroughly and in detail, with their dates, names, numbers and preferences. If they do not
suffice, give the best answer they allow and say what is missing.""",
}

#: Instructions for the judge.
JUDGE: Final = "You judge whether an answer agrees with what is known to be right. You are precise and fair."
_YES: Final = """
Question: {question}

{gold_name}: {gold}

Answer: {answer}

Reply with yes or no alone."""
_SAME: Final = """Is the correct answer contained in the answer? An answer that says the same in other words, or
that has all the steps that lead to the correct answer, contains it. An answer with only a part of what is asked does
not."""
_RULES: Final = {
    "temporal-reasoning": f"""{_SAME}
A number of days, weeks or months may differ by one.""",
    "knowledge-update": """Is the correct answer, which is the newest one, contained in the answer? It may also mention
what was right before, as long as it gives the newest as the answer.""",
    "single-session-preference": """Does the answer meet the wish that is described? It need not meet every point. It is
right if it remembers what is personal about the user and uses it correctly.""",
}
_ABSTAINS: Final = """The question cannot be answered. Does the answer say so? It may say that something is missing, or
that other things are known but not this."""
_CORRECT: Final = """Compare the answer with the correct answer, and label it as CORRECT or WRONG. Be generous: an
answer that is longer, or that says the same in other words, is CORRECT as long as it is about the same thing. A date
is CORRECT if it is the same date or period, in any form.

Question: {question}

Correct answer: {gold}

Answer: {answer}

Reply with a JSON object: {{"label": "CORRECT"}} or {{"label": "WRONG"}}."""
_CRITERION: Final = """Does the answer meet one criterion? Judge by the meaning: other words, and other forms of a
number or date, are equal. Ignore style and length unless the criterion asks for them. A criterion may also forbid
something; then it is met if that is absent and the answer deals with the question.

Question: {question}

Criterion: {criterion}

Answer: {answer}

Reply with a JSON object: {{"score": 1}} if it meets the criterion, {{"score": 0.5}} if it meets a part of it or is
partly wrong, {{"score": 0}} if not, or if the answer does not deal with the question."""
_ORDER: Final = """The right order of some events is listed. At which place does the answer mention each of them?

Question: {question}

Events:
{events}

Answer: {answer}

Reply with a JSON object that has one place for each listed event, in their order, 1 for what the answer mentions first,
and 0 for an event that it does not mention: {{"places": [2, 1, 0]}}."""


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """A question to the judge. `read` returns the score of its reply, 0 to 1, or raises InvalidAnswerError."""

    text: str
    read: Callable[[str], float]


def instructions(benchmark: Benchmark, protocol: Protocol) -> str:
    """Return the instructions for the model that answers."""
    return _INSTRUCTIONS[benchmark, protocol]


def question_for(question: LabelledQuestion, notes: str) -> str:
    """Return the input of the model that answers: notes, the current date if the set has one, and the question."""
    today = f"Current date: {question.now:%Y/%m/%d (%a) %H:%M}\n" if question.now else ""
    return f"Notes:\n\n{notes or '(none)'}\n\n{today}Question: {question.text}\n\nAnswer:"


def checks(benchmark: Benchmark, protocol: Protocol, question: LabelledQuestion, answer: str) -> list[JudgeCheck]:
    """Return what to ask the judge about an answer. The score of the answer is the mean of their scores."""
    values = {"question": question.text, "gold": question.answer or "", "answer": answer}
    if benchmark is Benchmark.BEAM:
        if question.category == _EVENT_ORDERING:
            events = "\n".join(f"{number}. {event}" for number, event in enumerate(question.rubric, start=1))
            count, is_paper = len(question.rubric), protocol is Protocol.PAPER
            return [
                JudgeCheck(_ORDER.format(events=events, **values), lambda text: _order(text, count, is_paper=is_paper))
            ]
        return [JudgeCheck(_CRITERION.format(criterion=one, **values), _criterion) for one in question.rubric]
    if question.is_unanswerable:
        return [JudgeCheck(_ABSTAINS + _YES.format(gold_name="Why not", **values), _yes)]
    if benchmark is Benchmark.LONGMEMEVAL and protocol is Protocol.PAPER:
        name = "Wish" if question.category == "single-session-preference" else "Correct answer"
        return [JudgeCheck(_RULES.get(question.category, _SAME) + _YES.format(gold_name=name, **values), _yes)]
    return [JudgeCheck(_CORRECT.format(**values), _label)]


def score(values: Sequence[float]) -> float:
    """Return the score of an answer from those of its checks."""
    return fmean(values) if values else 0.0


def tau_b(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Kendall's tau-b of two rankings, -1 to 1; 0 if one of them has only ties (Kendall 1945)."""
    pairs = [(a - b, c - d) for (a, c), (b, d) in combinations(zip(one, other, strict=True), 2)]
    agreeing = sum((x * y > 0) - (x * y < 0) for x, y in pairs)
    free = sum(x != 0 for x, _ in pairs) * sum(y != 0 for _, y in pairs)
    return agreeing / sqrt(free) if free else 0.0


def _yes(reply: str) -> float:
    return float("yes" in reply.lower())


def _label(reply: str) -> float:
    labels = set(re.findall(r"CORRECT|WRONG", reply))
    if len(labels) != 1:
        raise InvalidAnswerError('expected {"label": "CORRECT"} or {"label": "WRONG"}')
    return float(labels == {"CORRECT"})


def _criterion(reply: str) -> float:
    value = _object(reply).get("score")
    if not isinstance(value, int | float) or value not in (0, 0.5, 1):
        raise InvalidAnswerError("expected a score of 0, 0.5 or 1")
    return float(value)


def _order(reply: str, count: int, *, is_paper: bool) -> float:
    places = _object(reply).get("places")
    if not isinstance(places, list) or len(places) != count or not all(isinstance(one, int) for one in places):
        raise InvalidAnswerError(f"expected {count} places, each a whole number")
    found = [(right, place) for right, place in enumerate(places, start=1) if place > 0]
    if is_paper:
        ranks = [place if place > 0 else max(places) + 1 for place in places]
        return (tau_b(range(count), ranks) + 1) / 2 if found else 0.0
    if len(found) < 2:
        return 0.5 * len(found) / count
    return (tau_b(*zip(*found, strict=True)) + 1) / 2 * len(found) / count


def _object(reply: str) -> dict[str, object]:
    found = re.search(r"\{[^{}]*\}", reply)
    try:
        value = json.loads(found[0]) if found else None
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise InvalidAnswerError("expected a JSON object")
    return value
