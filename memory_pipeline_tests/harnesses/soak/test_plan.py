"""The plan of a soak depends only on its seed. Its valid records are accepted, invalid ones refused."""

from __future__ import annotations

from collections import Counter

import pytest

from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import MemoryEvent
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.errors import InputError
from memory_pipeline.lake.files.strict_json import parse_json
from memory_pipeline_tests.harnesses.soak.generated import WORD, word
from memory_pipeline_tests.harnesses.soak.plan import FIRST, TIMES, Action, Plan, scope_of

TICKS = range(60)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(7)


@pytest.fixture(scope="module")
def actions(plan: Plan) -> list[Action]:
    return [action for writer in (0, 1) for tick in TICKS for action in plan.actions(writer, tick)]


def test_a_plan_depends_on_its_seed_alone(plan: Plan, actions: list[Action]) -> None:
    again = Plan(7)
    assert [again.action(action.key) for action in actions] == actions
    assert [again.operations(tick) for tick in TICKS] == [plan.operations(tick) for tick in TICKS]
    assert [again.trouble(tick) for tick in TICKS] == [plan.trouble(tick) for tick in TICKS]
    assert Plan(8).actions(0, 3) != plan.actions(0, 3)
    assert Plan(8).trouble(3) != plan.trouble(3) or Plan(8).operations(3) != plan.operations(3)


def test_time_increases_with_every_tick(plan: Plan) -> None:
    times = [plan.now(tick) for tick in (-1, *TICKS)]
    assert times == sorted(set(times))
    assert times[1] == FIRST.replace(hour=TIMES[0])


def test_every_kind_of_action_operation_and_kill_is_planned(plan: Plan, actions: list[Action]) -> None:
    assert {action.kind for action in actions} == {
        "talk", "compact", "refused", "garbage", "edits", "memories", "later", "echo",
    }  # fmt: skip
    operations = [operation for tick in range(300) for operation in plan.operations(tick)]
    assert {one.kind for one in operations} == {"run", "steps", "process", "expire", "consolidate", "forget"}
    assert {len(one.kills) for one in operations} == {0, 1, 2}
    numbers = [one.subject for one in operations if one.subject is not None]
    assert numbers == list(range(len(numbers)))
    assert {plan.subject(number).kind for number in numbers} == set(SubjectKind)
    troubles = [plan.trouble(tick) for tick in range(300)]
    assert {name for one in troubles for name, _ in one.kills} == {"w0", "w1", "r0", "r1"}
    assert {kind for one in troubles for kind, _ in one.faults} == {"500", "503", "reset", "lost", "half", "slow"}


def test_conversations_are_accepted_except_the_invalid_ones(plan: Plan, actions: list[Action]) -> None:
    for action in actions:
        if action.kind not in ("talk", "compact", "refused"):
            continue
        own = {"workspace_id": action.scope.workspace_id, "agent_id": action.scope.agent_id}
        is_anothers = action.body.get("agent_id", action.scope.agent_id) != action.scope.agent_id
        found = read_messages({**action.body, **own}, Admission(FIRST.date(), action.now), scope_of)
        assert bool(found.rejected) is (action.kind == "refused" and not is_anothers), action
        assert all(message.sent_at <= action.now for message in found.messages)


def test_each_message_has_a_unique_word_of_its_agent(plan: Plan, actions: list[Action]) -> None:
    said: dict[str, set[str]] = {}
    for action in actions:
        if action.kind == "talk":
            letters = {text[1] for text in action.words}
            assert letters == {plan.letter(action.scope)}
            for message in action.body["messages"]:
                [found] = WORD.findall(message["content"]) and [WORD.search(message["content"])]
                assert found is not None
                said.setdefault(found[0], set()).add(message["content"])
    assert all(len(texts) == 1 for texts in said.values())
    assert word("b", 1) != word("b", 2)


def test_garbage_lines_are_not_valid_records(actions: list[Action]) -> None:
    lines = [action.body["line"] for action in actions if action.kind == "garbage"]
    assert lines
    for line in lines:
        with pytest.raises(InputError):
            _record(line)


def _record(line: str) -> object:
    record = parse_json(line.encode())
    if "memory" in record:
        return MemoryEvent.from_record(record)
    return Edit.from_record(record) if "edit" in record else Message.from_record(record)


def test_messages_before_an_erasure_are_covered_and_others_are_not(plan: Plan, actions: list[Action]) -> None:
    forgotten = plan.forgotten(range(6))
    counts: Counter[tuple[int, bool]] = Counter()
    for action in actions:
        if action.kind == "talk" and action.subject is not None and action.subject < 4:
            for message in plan.messages(action):
                counts[action.subject, forgotten.covers(message)] += 1
    assert all(counts[number, True] for number in range(4))
    others = [action for action in actions if action.kind == "talk" and action.subject is None]
    assert not any(forgotten.covers(message) for action in others for message in plan.messages(action))


def test_notes_before_an_erasure_are_erased_and_others_are_not(plan: Plan, actions: list[Action]) -> None:
    numbers = range(5)
    forgotten = plan.forgotten(numbers)
    said = [action for action in actions if action.kind == "talk"]
    for number in numbers:
        own = [action for action in said if action.subject == number]
        before = [plan.now(action_tick(action)) < plan.forgotten_at(number) for action in own]
        assert [plan.is_erased(action, forgotten) for action in own] == before
        assert any(before)
    assert not all(before), "the last one is met again"
    others = [action for action in said if action.subject is None]
    assert not any(plan.is_erased(action, forgotten) for action in others)
    notes = [plan.note(action) for action in said]
    assert len({note.word for note in notes}) == len(notes)
    assert all([found[0] for found in WORD.finditer(note.text)] == [note.word] for note in notes)
    assert {note.reads for note in notes} == {0, 3, 4}
    assert {note.pool_type for note in notes} == {None, "shared", "agent_private"}
    assert {note.user_id is None for note in notes} == {True, False}


def action_tick(action: Action) -> int:
    return int(action.key.split("/")[1][1:])
