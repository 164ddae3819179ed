"""Measure whether the contexts of prompts hold what the prompts need."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from memory_pipeline.domain.messages import timestamp_of
from memory_pipeline.domain.scopes import Scope, optional_label
from memory_pipeline.errors import InputError, shown
from memory_pipeline.evaluation.formats import category_of, lines_of, question_of, text_in
from memory_pipeline.evaluation.harness import ingest, last_times, run
from memory_pipeline.evaluation.labels import labelled_set
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline.models.factory import reading_embedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline.sample import HISTORY, PROMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from memory_pipeline.evaluation.labels import JudgedQuestion, LabelledQuestion
    from memory_pipeline.reader.packing.items import InjectedContext, Recalled
    from memory_pipeline.settings import Settings

#: Share of the lines of a block that may be fill.
_FILL = 0.1
#: Attributes of a result in the record for JSON.
_SHOWN = ("verdict", "missing", "wrong", "lines", "fill", "tokens", "block")
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_EXPECTED = (
    "each line must be a conversation (with messages), a prompt (with prompt, and holds or lacks), a question (with "
    "question and evidence), or fill (with fill); `memory-pipeline eval context --help` shows the format"
)


class Verdict(StrEnum):
    """Whether a block holds all, some or nothing of what its prompt needs.

    A block that holds all, but also what it should not, or more than a tenth of its lines of fill, answers partly.
    """

    ANSWERED = "answered"
    PARTLY = "partly"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of a file, with what its block must hold.

    Attributes:
        holds: texts that the block must hold; of several in one place, any is enough.
        lacks: texts that it must not hold.
        newer: pairs of a newer and an older value: the older is after the newer, or is left out.
        relevant: ids of messages; at least one of them must be in the block, or be a source of one of its items.
    """

    scope: Scope
    user_id: str | None
    text: str
    kind: str
    now: datetime | None
    holds: tuple[tuple[str, ...], ...] = ()
    lacks: tuple[str, ...] = ()
    newer: tuple[tuple[str, str], ...] = ()
    relevant: frozenset[str] = frozenset()


class PromptSet(NamedTuple):
    """Conversations with their places, prompts, questions, and for each agent the texts that say nothing.

    The latter are in lower case.
    """

    conversations: Sequence[tuple[str, object]]
    prompts: Sequence[Prompt]
    questions: Sequence[LabelledQuestion]
    fill: Mapping[Scope, frozenset[str]]


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The block of a prompt, judged. `missing` and `wrong` are what it lacks, and what it should not hold."""

    prompt: Prompt
    verdict: Verdict
    missing: tuple[str, ...]
    wrong: tuple[str, ...]
    lines: int
    fill: int
    tokens: int
    block: str


def read_prompts(paths: Sequence[Path]) -> PromptSet:
    """Read JSONL files; without any, the sample's.

    Raises:
        InputError: a file cannot be read, or a line is invalid. The message gives the file and the line.
    """
    conversations: list[tuple[str, object]] = []
    prompts, questions = [], []
    fill: defaultdict[Scope, set[str]] = defaultdict(set)
    for where, line in (one for path in paths or (HISTORY, PROMPTS) for one in lines_of(path)):
        try:
            record = parse_json(line)
            if "messages" in record:
                conversations.append((where, record))
            elif "prompt" in record:
                prompts.append(_prompt(record))
            elif "question" in record:
                questions.append(question_of(record, where))
            elif "fill" in record:
                fill[_scope(record)].update(map(_plain, _texts(record, "fill")))
            else:
                raise InputError(_EXPECTED)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if not prompts and not questions:
        raise InputError(f"the files contain no prompts; {_EXPECTED}")
    return PromptSet(conversations, prompts, questions, {scope: frozenset(texts) for scope, texts in fill.items()})


def _prompt(record: Mapping[str, Any]) -> Prompt:
    newer = record.get("newer", [])
    if not isinstance(newer, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in newer):
        raise InputError(f"newer {shown(newer)} is not accepted; expected a list of pairs of texts")
    holds = record.get("holds", [])
    if not isinstance(holds, list):
        raise InputError(f"holds {shown(holds)} is not accepted; expected a list of texts, or of lists of texts")
    pairs = [tuple(map(_plain, _texts({"newer": pair}, "newer"))) for pair in newer]
    found = Prompt(
        scope=_scope(record),
        user_id=optional_label("user_id", record.get("user_id")),
        text=text_in(record, "prompt"),
        kind=category_of(record.get("kind")),
        now=None if record.get("now") is None else timestamp_of("now", record["now"]),
        holds=tuple(
            tuple(map(_plain, _texts({"holds": each if isinstance(each, list) else [each]}, "holds"))) for each in holds
        ),
        lacks=tuple(map(_plain, _texts(record, "lacks"))),
        newer=tuple((new, old) for new, old in pairs),
    )
    if not found.holds and not found.lacks:
        raise InputError(f"prompt {shown(found.text)} has neither holds nor lacks; name what its block must hold")
    return found


def _scope(record: Mapping[str, Any]) -> Scope:
    return Scope(record.get("workspace_id"), record.get("agent_id"))  # type: ignore[arg-type]  # Scope checks


def _texts(record: Mapping[str, Any], key: str) -> list[str]:
    texts = record.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise InputError(f"{key} {shown(texts)} is not accepted; expected a list of texts")
    return texts


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def evaluate_contexts(
    given: PromptSet,
    settings: Settings,
    *,
    tokens: int = 1_000,
    configuration: Path | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> list[PromptResult]:
    """Load the conversations, run the pipeline, and judge the context of each prompt, in the order of the files.

    `tokens` is the budget of a block. The other arguments and errors are as in
    :func:`~memory_pipeline.evaluation.harness.evaluate`.
    """
    lake = Lake(settings.root, settings.timezone)
    if configuration is not None:
        lake.put_configuration(configuration)
    labels = labelled_set(given.conversations, given.questions, needs_questions=False, scope_of=lake.new_scope)
    prompts = [*given.prompts, *map(_of_question, labels.questions)]
    ingest(lake, labels.messages.values(), say)
    last = last_times(labels)
    times = [one.now or last.get(one.scope, _EARLIEST) for one in prompts]
    run(lake, settings, max([*last.values(), *times]), say)
    embedder = reading_embedder(lake.configuration(), lambda: datetime.now(UTC))
    readers: dict[tuple[Scope, str | None], MemoryReader] = {}
    found = []
    for prompt, now in zip(prompts, times, strict=True):
        scope, user_id = prompt.scope, prompt.user_id
        reader = readers.get((scope, user_id)) or MemoryReader.open(
            settings.root,
            workspace_id=scope.workspace_id,
            agent_id=scope.agent_id,
            user_id=user_id,
            embedder=embedder,
        )
        readers[scope, user_id] = reader
        found.append(judged(prompt, reader.context(prompt.text, tokens, now=now), given.fill.get(scope, frozenset())))
    return found


def _of_question(judged: JudgedQuestion) -> Prompt:
    question = judged.question
    return Prompt(question.scope, None, question.text, question.category, question.now, relevant=judged.relevant)


def judged(prompt: Prompt, context: InjectedContext, fill: frozenset[str] = frozenset()) -> PromptResult:
    """Judge the block of a prompt. `fill` are texts that say nothing, in lower case."""
    lines = [_plain(part.text) for part in context.parts]
    block = "\n".join(lines)
    missing = [" or ".join(each) for each in prompt.holds if not any(text in block for text in each)]
    wrong = [text for text in prompt.lacks if text in block]
    wrong += [
        old for new, old in prompt.newer if old in block and (new not in block or block.find(old) < block.find(new))
    ]
    if prompt.relevant and not any(prompt.relevant & part.evidence for part in context.parts):
        missing.append("evidence")
    says_nothing = sum(_said(part) in fill for part in context.parts)
    if says_nothing > len(lines) * _FILL:
        wrong.append(f"{says_nothing} lines of fill")
    wanted = len(prompt.holds) + bool(prompt.relevant)
    is_nothing = wanted and len(missing) == wanted
    verdict = Verdict.FAILED if is_nothing else Verdict.PARTLY if missing or wrong else Verdict.ANSWERED
    return PromptResult(
        prompt, verdict, tuple(missing), tuple(wrong), len(lines), says_nothing, context.tokens, str(context)
    )


def _said(part: Recalled) -> str:
    """Return the text of an item without its speaker."""
    speaker, colon, text = part.content.partition(": ")
    return _plain(text if colon and " " not in speaker else part.content)


def context_lines(results: Sequence[PromptResult]) -> Iterator[str]:
    """Yield the lines of a report for a terminal."""
    kinds: defaultdict[str, list[PromptResult]] = defaultdict(list)
    for result in results:
        kinds[result.prompt.kind].append(result)
    width = max(map(len, [*kinds, "prompts"])) + 2
    names = [*(verdict.value for verdict in Verdict), "lines", "fill", "tokens"]
    yield f"{'kind':<{width}}{'prompts':>8}" + "".join(f"{name:>10}" for name in names)
    for kind, found in (*kinds.items(), ("all", results)):
        figures = _figures(found)
        yield f"{kind:<{width}}{figures['prompts']:>8,}" + "".join(f"{figures[name]:>10,}" for name in names)
    for result in results:
        if result.verdict is not Verdict.ANSWERED:
            missing = f"; missing: {', '.join(result.missing)}" if result.missing else ""
            wrong = f"; should not be there: {', '.join(result.wrong)}" if result.wrong else ""
            yield f"{result.verdict}: {shown(result.prompt.text)}{missing}{wrong}"


def context_record(results: Sequence[PromptResult]) -> dict[str, Any]:
    """Return the figures and the results as a record for JSON."""
    kinds = dict.fromkeys(result.prompt.kind for result in results)
    return {
        "overall": _figures(results),
        "kinds": {kind: _figures(one for one in results if one.prompt.kind == kind) for kind in kinds},
        "prompts": [
            {"prompt": one.prompt.text, "kind": one.prompt.kind, **{name: getattr(one, name) for name in _SHOWN}}
            for one in results
        ],
    }


def _figures(results: Iterable[PromptResult]) -> dict[str, int]:
    """Return counts, and the mean tokens of a block."""
    found = list(results)
    return {
        "prompts": len(found),
        **{verdict.value: sum(one.verdict is verdict for one in found) for verdict in Verdict},
        "lines": sum(one.lines for one in found),
        "fill": sum(one.fill for one in found),
        "tokens": round(sum(one.tokens for one in found) / len(found)) if found else 0,
    }
