"""Receipts of reads: what was handed over, what became of it, retention, erasure, and what may go wrong."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.erasure.redaction import redact
from memory_pipeline.lake import Lake, waiting_rows
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import READ_RECEIPTS
from memory_pipeline.reader import ItemState, ReadReceipt
from memory_pipeline.steps.retention import expire
from memory_pipeline_tests.erasure.lakes import assert_verified
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder

START = datetime(2024, 1, 15, 8, tzinfo=UTC)
LATER = datetime(2024, 2, 20, tzinfo=UTC)
QUESTION = "Where does Anna live, and what is her dog called?"


def memory(root: str, user_id: str | None = "anna", agent: str = "support") -> Memory:
    return Memory(root, workspace_id="acme", agent_id=agent, user_id=user_id)


@pytest.fixture
def made(shared_folder: SharedFolder, root: str, models: Models) -> str:
    """A lake with the memory of Anna and of Ruben, and the summaries of January."""

    def fill(folder: Path) -> None:
        anna, ruben = memory(str(folder)), memory(str(folder), "ruben")
        anna.add([said("I moved to Porto.")], conversation_id="c1", now=START)
        anna.add([said("My dog is called Bruno.")], conversation_id="c2", now=START + timedelta(hours=1))
        anna.remember("Always answer in Portuguese.", "instruction", now=START)
        ruben.add([said("I moved to Oslo.", "Ruben")], conversation_id="c3", now=START)
        anna.run(now=LATER)

    shutil.copytree(shared_folder("read-receipts", fill), root)
    return root


def said(text: str, name: str = "Anna") -> dict[str, str]:
    return {"role": "user", "name": name, "content": text}


def received(one: Memory, receipt_id: str) -> ReadReceipt:
    found = one.receipt(receipt_id)
    assert found is not None
    return found


def states(receipt: ReadReceipt) -> dict[str, ItemState]:
    return {item.text: item.state for item in receipt.items}


def rows(root: str) -> list[dict[str, Any]]:
    lake = Lake(root)
    lake.read_receipts.settle()
    found: list[dict[str, Any]] = lake.tables.read(READ_RECEIPTS).to_pylist()
    return found


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_receipt_has_what_was_handed_over(made: str, is_settled: bool) -> None:
    anna = memory(made)
    context = anna.context(QUESTION, conversation={"conversation_id": "c9"})
    recalled = anna.reader.recall(QUESTION)
    injected = anna.reader.inject_knowledge(QUESTION, [{"id": "d1", "content": "Dogs need walks."}])
    past = anna.context(QUESTION, now=START + timedelta(minutes=30))
    if is_settled:
        anna.lake.read_receipts.settle(datetime.now(UTC))
        assert anna.lake.storage.list("receipts") == []
    receipt = received(anna, context.receipt_id)
    assert receipt.text == context.block
    assert (receipt.operation, receipt.conversation_id, receipt.as_of) == ("context", "c9", None)
    assert [item.id for item in receipt.items] == [part.id for part in context.parts]
    assert set(states(receipt).values()) == {ItemState.HELD}
    assert (receipt.model, receipt.cost) == (None, None)
    [turn] = [item for item in receipt.items if "Anna: I moved to Porto." in item.text and item.grain == "working"]
    assert turn.message_ids == tuple(one.id for one in anna.conversations.get("c1"))
    assert received(anna, recalled.receipt_id).text == str(recalled)
    of_documents = received(anna, injected.receipt_id)
    assert of_documents.text == injected.block
    assert states(of_documents)["[d1] Dogs need walks."] is ItemState.DOCUMENT
    assert received(anna, past.receipt_id).as_of == START + timedelta(minutes=30)
    assert anna.receipts(conversation_id="c9") == [context.receipt_id]
    assert set(anna.receipts()) == {one.receipt_id for one in (context, injected, recalled, past)}
    assert len(anna.receipts(limit=2)) == 2


def test_a_receipt_is_of_its_user_and_agent_alone(made: str) -> None:
    anna = memory(made)
    receipt_id = anna.context(QUESTION).receipt_id
    for other in (memory(made, "ruben"), memory(made, None), memory(made, agent="sales")):
        assert other.receipt(receipt_id) is None
        assert other.receipts() == []
    assert anna.receipt("receipt-nonsense") is anna.receipt("") is None
    assert anna.receipt(receipt_id[:-1] + ("0" if receipt_id[-1] != "0" else "1")) is None


def test_what_is_known_now_is_shown(made: str, models: Models) -> None:
    anna = memory(made)
    anna.remember("Anna's code is 4711.", "fact", now=LATER)
    kept = anna.remember("Anna prefers window seats.", "preference", now=LATER)
    context = anna.context("Where does Anna live? What is her code, and what are her seats?")
    before = received(anna, context.receipt_id)
    assert set(states(before).values()) == {ItemState.HELD}
    [instruction] = [part for part in context.parts if part.kind == "instruction"]
    [code] = [part for part in context.parts if "4711" in part.content]
    anna.forget(instruction.id)
    anna.writer.update(code.id, content="Anna's code is 1147.")
    anna.writer.graph.update("User", "lives_in", "Lisbon", now=datetime.now(UTC))
    after = received(anna, context.receipt_id)
    assert after.text == before.text == context.block, "the receipt does not change"
    found = {item.id: item for item in after.items}
    assert found[instruction.id].state is ItemState.WITHDRAWN
    assert (found[code.id].state, found[code.id].now) == (ItemState.CHANGED, "Anna's code is 1147.")
    assert found[kept].state is ItemState.HELD
    facts = [item for item in after.items if item.grain == "graph" and "lives_in" in item.text]
    assert all(item.state is ItemState.ENDED and " to " in item.now for item in facts)
    assert any("withdrawn" in line for line in after.lines())


def test_what_rests_on_a_corrected_statement_is_withdrawn(made: str) -> None:
    anna = memory(made)
    of_turns = anna.reader.recall("What is the dog of Anna called?").receipt_id
    of_points = anna.reader.recall("Summarise January 2024.").receipt_id
    [message] = anna.conversations.get("c2")
    anna.correct(message.id, reason="it was a cat")
    for receipt_id in (of_turns, of_points):
        for text, state in states(received(memory(made), receipt_id)).items():
            assert state is (ItemState.WITHDRAWN if "Bruno" in text else ItemState.HELD), text


def test_points_of_summaries_lead_to_their_messages(made: str) -> None:
    anna = memory(made)
    recalled = anna.reader.recall("Summarise January 2024.")
    receipt = received(anna, recalled.receipt_id)
    assert set(states(receipt).values()) == {ItemState.HELD}
    said_ids = {one.id for name in ("c1", "c2") for one in anna.conversations.get(name)}
    assert {one for item in receipt.items for one in item.message_ids} <= said_ids
    assert all(item.message_ids for item in receipt.items)


def test_receipts_can_be_switched_off_and_expire(made: str, models: Models) -> None:
    anna = memory(made)
    kept = anna.context(QUESTION).receipt_id
    lake = Lake(made)
    now = datetime.now(UTC)
    lake.read_receipts.settle(now + timedelta(days=29))
    assert memory(made).receipt(kept) is not None
    lake.storage.write(CONFIGURATION, b"workspaces: {acme: {receipts: 5d}}\n")
    Lake(made).read_receipts.settle(now + timedelta(days=4))
    assert memory(made).receipt(kept) is not None
    Lake(made).read_receipts.settle(now + timedelta(days=7))
    assert memory(made).receipt(kept) is None
    assert rows(made) == []
    lake.storage.write(CONFIGURATION, b"defaults: {receipts: none}\nworkspaces: {other: {receipts: 90d}}\n")
    quiet = memory(made)
    assert quiet.context(QUESTION).receipt_id == quiet.reader.recall(QUESTION).receipt_id == ""
    assert quiet.context(QUESTION).parts
    assert rows(made) == []


def test_switching_off_deletes_those_that_were_kept(made: str) -> None:
    memory(made).context(QUESTION)
    assert rows(made)
    Lake(made).storage.write(CONFIGURATION, b"workspaces: {acme: {receipts: none}}\n")
    Lake(made).read_receipts.settle(datetime.now(UTC) + timedelta(seconds=1))
    assert rows(made) == []


def test_items_lose_their_text_when_their_sources_expire(made: str) -> None:
    anna = memory(made)
    context = anna.context(QUESTION)
    anna.lake.storage.write(CONFIGURATION, b"workspaces: {acme: {retention: {conversations: 2d, facts: 2d}}}\n")
    lake = Lake(made)
    assert expire(lake, lake.start, LATER).rows
    later = memory(made)
    receipt = received(later, context.receipt_id)
    assert {item.state for item in receipt.items if item.grain == "working"} == {ItemState.EXPIRED}
    assert all(item.text == item.id == "" for item in receipt.items if item.grain == "working")
    assert {item.state for item in receipt.items if item.grain == "durable"} == {ItemState.HELD}
    assert "Anna: My dog is called Bruno." in context.block
    assert "Said before" not in receipt.text
    assert not any("'content': 'Anna: My dog" in data for data in files(made).values())


def files(root: str) -> dict[str, str]:
    """The content of all files of receipts, also of those that no version of the table lists."""
    found = [path for folder in ("receipts", "tables/read_receipts") for path in Path(root, folder).rglob("*")]
    return {
        str(path): str(pq.read_table(path).to_pylist()) if path.suffix == ".parquet" else path.read_text("utf-8")
        for path in found
        if path.is_file() and path.suffix != ".crc"
    }


SUBJECTS = [
    Subject.person("acme", ["Bruno"]),
    Subject.conversation(Scope("acme", "support"), "c2", "anna"),
    Subject.user("acme", "anna"),
    Subject.agent(Scope("acme", "support")),
]


@pytest.mark.parametrize("is_settled", [False, True])
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: one.kind.value)
def test_an_erasure_reaches_receipts(made: str, models: Models, subject: Subject, is_settled: bool) -> None:
    anna, ruben = memory(made), memory(made, "ruben")
    context = anna.context(QUESTION)
    assert "Bruno" in context.block
    summary = anna.reader.recall("Summarise January 2024.").receipt_id
    about = anna.context(QUESTION, conversation={"conversation_id": "c2"}).receipt_id
    other = ruben.context("Where do I live?")
    if is_settled:
        Lake(made).read_receipts.settle()
    for one in (anna, ruben):
        one.lake.read_receipts.find("receipt-0")  # writes what waits
    report = forget(Lake(made), models, subject, datetime.now(UTC))
    assert_verified(Lake(made), report)
    assert not any("Bruno" in data for data in files(made).values())
    left = {row["id"] for row in rows(made)}
    if subject.kind.value == "agent":
        assert left == set()
        return
    assert other.receipt_id in left
    unchanged = received(memory(made, "ruben"), other.receipt_id)
    assert unchanged.text == other.block
    if subject.kind.value == "user" or subject.user_ids == ("anna",):
        assert left == {other.receipt_id}
        return
    after = received(memory(made), context.receipt_id)
    assert {item.state for item in after.items} == {ItemState.HELD, ItemState.ERASED}
    assert "I moved to Porto." in after.text, "what is left is still shown"
    assert "Bruno" not in after.text
    assert ItemState.HELD in states(received(memory(made), summary)).values()
    assert (about in left) is (subject.kind.value == "person")


def test_an_interrupted_erasure_finds_the_receipts_again(
    made: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = memory(made)
    anna.context(QUESTION)
    Lake(made).read_receipts.settle()
    subject = Subject.conversation(Scope("acme", "support"), "c2", "anna")
    with monkeypatch.context() as patch:

        def killed(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr(sys.modules["memory_pipeline.erasure.forget"], "remove_receipts", killed)
        with pytest.raises(KeyboardInterrupt):
            forget(Lake(made), models, subject, datetime.now(UTC))
    assert any("Bruno" in data for data in files(made).values())
    report = forget(Lake(made), models, subject, datetime.now(UTC))
    assert not any("Bruno" in data for data in files(made).values())
    assert_verified(Lake(made), report)


def test_a_late_row_of_a_read_before_an_erasure_has_no_text(made: str, models: Models) -> None:
    """Another process may write its rows when the erasure is done."""
    anna = memory(made)
    context = anna.context(QUESTION)
    own = waiting_rows._WAITING.pop((os.getpid(), anna.lake.storage.uri, "receipts/pending"))
    forget(Lake(made), models, Subject.conversation(Scope("acme", "support"), "c2", "anna"), datetime.now(UTC))
    waiting_rows._WAITING[os.getpid(), anna.lake.storage.uri, "receipts/pending"] = own
    receipt = received(memory(made), context.receipt_id)
    assert receipt.items
    Lake(made).read_receipts.settle()
    assert not any("Bruno" in data for data in files(made).values())
    assert {item.state for item in received(memory(made), context.receipt_id).items} == {ItemState.ERASED}


def test_an_erasure_by_an_earlier_version_is_finished_by_a_run(
    made: str, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    anna = memory(made)
    before = anna.context(QUESTION).receipt_id
    Lake(made).read_receipts.settle()
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["memory_pipeline.erasure.forget"], "remove_receipts", lambda *_, **__: None)
        patch.setattr("memory_pipeline.lake.read_receipts.ReadReceipts.note_erasure", lambda *_: None)
        forget(Lake(made), models, Subject.conversation(Scope("acme", "support"), "c2", "anna"), datetime.now(UTC))
    after = memory(made).context("Where does Anna live?").receipt_id
    assert any("Bruno" in data for data in files(made).values())
    for _ in range(2):
        Lake(made).read_receipts.settle(datetime.now(UTC))
        assert not any("Bruno" in data for data in files(made).values())
        assert {item.state for item in received(memory(made), before).items} == {ItemState.ERASED}
        assert ItemState.HELD in {item.state for item in received(memory(made), after).items}


SCRIPT = """
import sys, os, signal
from memory_pipeline import Memory
memory = Memory(sys.argv[1], workspace_id="acme", agent_id="support", user_id="anna")
print(memory.context("Where does Anna live?").receipt_id, flush=True)
if sys.argv[2] == "settle":
    lake = memory.lake
    lake.storage.delete = lambda paths: os.kill(os.getpid(), signal.SIGKILL)
    lake.read_receipts.settle()
"""


def test_a_process_leaves_its_receipts_at_its_end(made: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, made, ""], capture_output=True, text=True, check=True)
    assert received(memory(made), done.stdout.strip()).items


def test_a_kill_between_table_and_files_doubles_nothing(made: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, made, "settle"], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    receipt_id = done.stdout.strip()
    assert Lake(made).storage.list("receipts")
    assert memory(made).receipts() == [receipt_id]
    assert [row["id"] for row in rows(made)] == [receipt_id]
    assert Lake(made).storage.list("receipts") == []
    assert memory(made).receipts() == [receipt_id]


def test_damaged_rows_are_set_aside(made: str) -> None:
    anna = memory(made)
    receipt_id = anna.context(QUESTION).receipt_id
    anna.lake.read_receipts.find(receipt_id)
    [file] = anna.lake.storage.list("receipts")
    data = anna.lake.storage.read(file.path) or b""
    anna.lake.storage.write(file.path, b'{"id": 1}\nnonsense\n' + data)
    assert received(anna, receipt_id).items
    assert [row["id"] for row in rows(made)] == [receipt_id]
    assert len(Lake(made).journal.quarantined()) == 2


def test_a_read_succeeds_without_its_receipt(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    anna = memory(made)

    def fails(*_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(waiting_rows, "append", fails)
    context = anna.context(QUESTION)
    assert context.parts
    assert context.receipt_id == ""


KEY = "AKIAQ3EGRN5VTW7ZHXKP"


def test_secrets_are_not_stored(made: str, models: Models) -> None:
    anna = memory(made)
    anna.remember("The old badge of Anna is B-774422.", "fact", now=LATER)
    known = anna.reader.inject_knowledge("What is the badge of Anna?", [{"content": f"Use the key {KEY}."}])
    assert KEY in known.block
    shown = received(anna, known.receipt_id)
    assert KEY not in shown.text
    assert "Use the key [secret:" in shown.text
    assert not any(KEY in data for data in files(made).values())
    # What became a secret later is cleaned by redaction.
    Lake(made).read_receipts.settle()
    assert any("B-774422" in data for data in files(made).values())
    own = b"defaults: {secrets: {patterns: [{kind: badge, pattern: 'B-[0-9]{6}'}]}}\n"
    anna.lake.storage.write(CONFIGURATION, own)
    assert redact(Lake(made), models, datetime.now(UTC), dry_run=True).places["read_receipts"] == 1
    assert redact(Lake(made), models, datetime.now(UTC)).places["read_receipts"] == 1
    assert not any("B-774422" in data for data in files(made).values())


def test_nothing_handed_over_has_no_receipt(root: str) -> None:
    empty = memory(root)
    assert empty.context("Where does Anna live?").receipt_id == ""
    assert empty.receipt("receipt-1") is None
    assert empty.receipts() == []
    assert not Path(root).exists()


def test_wrapped_clients_have_receipts_by_conversation(made: str) -> None:
    anna = memory(made)
    sent: list[Any] = []

    def completion(messages: list[dict[str, str]]) -> dict[str, Any]:
        sent.append(messages)
        return {"choices": [{"message": {"role": "assistant", "content": "In Porto."}}]}

    anna.wrap(completion, conversation_id="w1")(messages=[{"role": "user", "content": "Where does Anna live?"}])
    [receipt_id] = anna.receipts(conversation_id="w1")
    assert received(anna, receipt_id).text in sent[0][-1]["content"]


def test_the_command_shows_a_receipt(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_PIPELINE_ROOT", made)
    who = ("--workspace", "acme", "--agent", "support", "--user", "anna")
    receipt_id = read("inject", QUESTION, *who)["receipt_id"]
    assert read("recall", QUESTION, *who)["receipt_id"] in read("receipts", *who)
    assert receipt_id in call("receipts", *who).output
    shown = call("receipt", receipt_id, *who).output
    assert "held" in shown
    assert "I moved to Porto." in shown
    assert read("receipt", receipt_id, *who)["items"][0]["state"] == "held"
    assert "is unknown" in str(call("receipt", "receipt-1", *who).exception)
