"""Erasure where users have memories of their own: what goes, what the others keep, and what must not come back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from memory_pipeline.analytics import models_of
from memory_pipeline.checks import CheckContext, Finding, all_checks, run_checks
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.graph.operations import Edit
from memory_pipeline.domain.memories.events import Changes, MemoryEvent, MemoryVerb
from memory_pipeline.domain.messages import Message
from memory_pipeline.domain.scopes import Scope, user_identity
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, preview
from memory_pipeline.lake import Lake, VectorCollection, VectorItem
from memory_pipeline.lake.schemas import MESSAGES, MODEL_CALLS, SUMMARIES
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.scopes import known_scopes
from memory_pipeline_tests.building import ACME, START
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.erasure.lakes import EARLY, STEPS, assert_verified, interrupt, kept
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path
    from typing import Any

    from memory_pipeline.checks import Check
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.conftest import SharedFolder
    from memory_pipeline_tests.erasure.lakes import Record

ANNA, BEN, CLEO = "anna-71f3", "ben", "anna-71f3-2"  # the last id begins with the first one
PINS = ("pin-qa81", "pin-qa82", "pin-qa83", "pin-qa84", "pin-qa85", "pin-qa86")
SECRET = "5e" * 32
SUBJECT = Subject.user("acme", ANNA)


def talk(at: str, *texts: str, by: str | None = None, role: str = "user", **audience: Any) -> dict[str, Any]:
    """Return a conversation of one speaker at a time of January 2024, such as ``15T08:10``."""
    moment = datetime.fromisoformat(f"2024-01-{at}").replace(tzinfo=UTC)
    speaker = {} if by is None else {"user_id": by}
    messages = [
        {"role": role, "content": text, "timestamp": (moment + timedelta(seconds=place)).isoformat(), **speaker}
        for place, text in enumerate(texts)
    ]
    return {
        "workspace_id": "acme",
        "agent_id": "support",
        "conversation_id": "default",
        "messages": messages,
    } | audience


BOTH: dict[str, Any] = {"users": [ANNA, BEN]}
TEAM: dict[str, Any] = {"users": [ANNA, BEN], "group_id": "team"}
TALKS = [
    talk("15T07:00", "The office opens at nine."),
    talk("15T08:00", f"I moved to Porto. My PIN is {PINS[0]}.", user_id=ANNA),
    talk("15T08:05", "I have noted your PIN.", role="assistant", user_id=ANNA),
    talk("15T08:10", "I moved to Oslo. My PIN is 2222.", user_id=BEN),
    talk("15T08:20", "I moved to Rome. My PIN is 3333.", user_id=CLEO),
    talk("15T09:00", f"I like green tea. My PIN is {PINS[1]}.", by=ANNA, **BOTH),
    talk("15T09:10", "I moved to Lisbon.", "I like coffee.", by=BEN, **BOTH),
    talk("15T09:20", "We meet on Friday, as user:anna-71f3 says.", by=BEN, **BOTH),
    talk("15T09:30", f"I like bicycles. The door's PIN is {PINS[2]}.", by=ANNA, **TEAM),
    talk("15T09:40", "I like trains.", by=BEN, **TEAM),
    talk("15T09:45", "I like boats, and so does user:anna-71f3-2.", by=CLEO, users=[CLEO, BEN], group_id="team"),
    talk("16T09:00", f"I like maps. My PIN is {PINS[3]}.", by=ANNA, users=[ANNA], group_id="alone"),
    talk("16T09:10", f"I repeat: {PINS[3]}.", role="assistant", users=[ANNA], group_id="alone"),
]
#: Conversations that are pending when the user is erased.
LATER = [
    talk("20T08:00", f"I moved to Faro. My PIN is {PINS[4]}.", user_id=ANNA),
    talk("20T08:10", "I moved to Bergen.", user_id=BEN),
    talk("20T09:00", f"I live near the {PINS[5]}.", by=ANNA, **BOTH),
    talk("20T09:10", "I live near the harbour.", by=BEN, **BOTH),
]


def agents_own(lake: Lake) -> list[Record]:
    """Return what an agent itself wrote into the memories of users and of a group."""
    both = read_messages(talk("15T09:00", "?", by=BEN, **BOTH), Admission(START, EARLY), lake.new_scope).messages[0]
    at = datetime(2024, 1, 15, 10, tzinfo=UTC)

    def event(scope: Scope, verb: str, users: Collection[str] = (), **changes: Any) -> MemoryEvent:
        fields = Changes.of(changes)
        return MemoryEvent.of(scope, MemoryVerb(verb), at, fields, received_at=at, users=tuple(users))

    def edit(scope: Scope, users: Collection[str] = ()) -> Edit:
        record: dict[str, Any] = {
            "edit": "INSERT",
            "workspace_id": "acme",
            "agent_id": "support",
            "identity": scope.identity,
        }
        record |= {"subject": "Dora", "predicate": "knows", "object": "Carl"}
        record |= {"timestamp": at.isoformat(), "received_at": at.isoformat(), "users": list(users)}
        return Edit.from_record(record, lake.scope)

    own = lake.scope("acme", "support", user_identity(ANNA))
    preference = {"kind": "preference", "content": "likes mint", "key": "tea", "value": '"mint"'}
    return [
        event(own, "REMEMBER", kind="fact", content=f"The card ends in {PINS[0]}."),
        event(both.scope, "REMEMBER", both.users, kind="fact", content="The meeting is on Friday."),
        event(both.scope, "REMEMBER", both.users, user_id=ANNA, **preference),
        event(both.scope, "REMEMBER", both.users, user_id=BEN, **preference),
        edit(own),
        edit(both.scope, both.users),
    ]


def created(path: Path, *, per_user: bool = True) -> Lake:
    file = path.with_suffix(".yaml")
    file.write_text(f"defaults: {{per_user: {str(per_user).lower()}}}\n")
    lake = Lake(str(path), secret=SECRET)
    lake.put_configuration(file)
    return lake


def messages_of(lake: Lake, talks: Collection[dict[str, Any]]) -> list[Record]:
    read = [read_messages(one, Admission(START, EARLY, lake.calendar), lake.new_scope) for one in talks]
    assert not [rejected for one in read for rejected in one.rejected]
    return [message for one in read for message in one.messages]


def sent(lake: Lake, records: Collection[Record]) -> None:
    lake.members.add(records)
    lake.journal.append(list(records))


def without_anna(records: Collection[Record]) -> list[Record]:
    """Return the records as if the user had never written, and had been in no group."""
    left = []
    for one in records:
        texts = one.content if isinstance(one, Message) else ""
        user_id = getattr(one, "user_id", None) or getattr(getattr(one, "changes", None), "user_id", None)
        is_hers = ANNA in (user_id, one.scope.user_id) or one.users == (ANNA,)
        if not is_hers and "user:anna-71f3 " not in texts:
            left.append(replace(one, users=tuple(user for user in one.users if user != ANNA)))
    return left


def contents(lake: Lake) -> dict[str, str]:
    """Return digests of the lake, without its history."""
    return {
        name: text for name, text in lake_digest(lake).items() if name not in ("tables/ledger", "tables/tombstones")
    }


def bytes_of(lake: Lake, *texts: str) -> list[str]:
    """Return the files that hold one of the texts, and the paths that do."""
    entries = lake.storage.list("")
    return [
        entry.path
        for entry in entries
        if any(text in entry.path or text.encode() in (lake.storage.read(entry.path) or b"") for text in texts)
    ]


def built(path: Path, models: Models, change: Callable[[Collection[Record]], list[Record]] = list) -> Lake:
    """Build a lake with computed records, and with pending ones."""
    lake = created(path)
    sent(lake, change([*messages_of(lake, TALKS), *agents_own(lake)]))
    kept(lake, models, EARLY - timedelta(days=1, hours=8))
    sent(lake, change(messages_of(lake, LATER)))
    return lake


@pytest.fixture
def lake(shared_folder: SharedFolder, tmp_path: Path, models: Models) -> Lake:
    """A writable copy of a lake with computed and pending records."""
    once = shared_folder("erasure-users", lambda path: built(path, models))
    return Lake(str(shutil.copytree(once, tmp_path / "lake")))


@pytest.fixture
def never(shared_folder: SharedFolder, tmp_path: Path, models: Models) -> Lake:
    """A writable copy of the lake in which the user never wrote."""
    once = shared_folder("erasure-users-never", lambda path: built(path, models, without_anna))
    return Lake(str(shutil.copytree(once, tmp_path / "never")))


def a_call(lake: Lake) -> dict[str, Any]:
    """Return the row of a model call for the user."""
    own = lake.scope("acme", "support", user_identity(ANNA))
    ids = {"hour": "2024-01-17T00", "id": "i", "request_id": "i", "key": "1" * 32, "called_at": EARLY, "cost": 0.5}
    scope = {"workspace_id": "acme", "agent_id": "support", "identity": own.identity, "scope": own.key}
    use = {"purpose": "summary", "grain": "daily", "period": "2024-01-15", "model": "m", "outcome": "ok"}
    return ids | scope | use | {"texts": 1, "tokens_in": 1, "tokens_out": 1, "seconds": 1.0}


def test_an_erased_user_leaves_what_a_lake_has_in_which_the_user_never_wrote(
    lake: Lake, never: Lake, models: Models
) -> None:
    ids: dict[str, Any] = {"workspace_id": "acme", "agent_id": "support", "dimension": 2}
    for user in (ANNA, BEN):
        item = VectorItem("x", [1.0, 0.0], f"a note of {user}")
        VectorCollection.open(lake.storage.uri, **ids, user_id=user).upsert([item])
    row = a_call(lake)
    lake.tables.replace(MODEL_CALLS, [row["hour"]], pa.Table.from_pylist([row], schema=MODEL_CALLS.schema))
    assert bytes_of(lake, *PINS)
    receipt = forget(lake, models, SUBJECT, EARLY)

    assert_verified(lake, receipt)
    assert bytes_of(lake, *PINS, f'"{ANNA}"', f"user:{ANNA} ", f"user:{ANNA}:") == []
    assert [one for one in known_scopes(lake) if one.user_id == ANNA] == []
    assert [user for _, user, _ in lake.members.all() if user == ANNA] == []
    assert not preview(lake, SUBJECT, EARLY).counts
    # The collections of others and what was spent stay.
    left = [VectorCollection.open(lake.storage.uri, **ids, user_id=user).stats().items for user in (ANNA, BEN)]
    assert left == [0, 1]
    (call_left,) = lake.tables.read(MODEL_CALLS).to_pylist()
    assert (call_left["agent_id"], call_left["identity"], call_left["cost"]) == ("support", "user:erased", 0.5)
    lake.tables.replace(MODEL_CALLS, [row["hour"]], MODEL_CALLS.schema.empty_table())
    VectorCollection.open(never.storage.uri, **ids, user_id=BEN).upsert(
        [VectorItem("x", [1.0, 0.0], f"a note of {BEN}")]
    )
    assert differing(contents(lake), contents(never)) == []

    for one in (lake, never):
        kept(one, models, EARLY)
    assert differing(contents(lake), contents(never)) == []
    others_find_what_they_said(lake)

    # What is sent again, as after a restore, is dropped, and adds the user to no group.
    late = [*messages_of(lake, [*TALKS, *LATER]), *agents_own(lake)]
    lake.journal.append(lake.tombstones.forgotten().filter(late))
    lake.journal.append([one for one in late if ANNA in one.users or one.scope.user_id == ANNA])
    kept(lake, models, EARLY)
    assert not lake.journal.pending()
    assert differing(contents(lake), contents(never)) == []
    assert_verified(lake, receipt)
    checks_pass(lake)


def others_find_what_they_said(lake: Lake) -> None:
    def found(user_id: str) -> str:
        reader = MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support", user_id=user_id)
        hits = reader.search_memory(query="Where do we live, what do we like, and what is my PIN?", now=EARLY)
        return "\n".join(hit.content for hit in hits)

    assert "Bergen" in found(BEN)
    assert "trains" in found(BEN)
    assert "boats" in found(CLEO)
    assert "coffee" not in found(CLEO)
    assert not [pin for pin in PINS if pin in found(ANNA) + found(BEN) + found(CLEO)]


def checks_pass(lake: Lake) -> None:
    """All checks pass, without the tests of marts, and they name the scope of what they find."""
    marts = {model.name for model in models_of("tests")}

    def findings(checks: list[Check]) -> list[Finding]:
        return [finding for finding in run_checks(CheckContext(lake, EARLY), checks) if not finding.passed]

    checks = [check for check in all_checks() if check.name not in marts]
    assert findings(checks) == []
    ben = lake.scope("acme", "support", user_identity(BEN))
    lake.tables.drop_rows(SUMMARIES, None, lambda rows: pc.equal(rows["scope"], ben.key), ["scope"], grain="daily")
    found = findings(checks)
    assert any("acme/support/user:ben 2024-01-15" in finding.sample for finding in found)


def test_an_interrupted_erasure_of_a_user_starts_over(
    lake: Lake, never: Lake, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(lake, models, SUBJECT, EARLY, monkeypatch, STEPS if IS_THOROUGH else STEPS[::2])
    receipt = forget(lake, models, SUBJECT, EARLY)
    assert_verified(lake, receipt)
    assert bytes_of(lake, *PINS, f'"{ANNA}"') == []
    assert differing(contents(lake), contents(never)) == []


def test_pending_records_of_a_user_are_erased_before_any_run(tmp_path: Path, models: Models) -> None:
    lake, never = created(tmp_path / "lake"), created(tmp_path / "never")
    records = [*messages_of(lake, TALKS), *agents_own(lake)]
    sent(lake, records)
    sent(never, without_anna(records))
    receipt = forget(lake, models, SUBJECT, EARLY)
    assert_verified(lake, receipt)
    assert bytes_of(lake, *PINS, f'"{ANNA}"') == []
    assert differing(contents(lake), contents(never)) == []
    for group, users in (("group:team", (CLEO, BEN)), ("group:alone", ())):
        assert lake.members.users_of(lake.scope("acme", "support", group)) == tuple(sorted(users))


def test_a_user_who_writes_after_the_erasure_is_a_member_again(lake: Lake, models: Models) -> None:
    cutoff = datetime(2024, 1, 17, tzinfo=UTC)
    receipt = forget(lake, models, SUBJECT, cutoff)
    assert_verified(lake, receipt)
    both = lake.scope("acme", "support", messages_of(lake, [LATER[2]])[0].scope.identity)
    assert lake.members.users_of(both) == (ANNA, BEN)  # in pending records
    assert lake.members.users_of(lake.scope("acme", "support", "group:team")) == tuple(sorted([BEN, CLEO]))
    kept(lake, models, EARLY)
    own = lake.scope("acme", "support", user_identity(ANNA))
    rows = lake.tables.read(MESSAGES, scopes=[own.key]).to_pylist()
    assert [row["content"] for row in rows if row["scope"] == own.key] == [LATER[0]["messages"][0]["content"]]
    assert_verified(lake, receipt)
    assert not preview(lake, SUBJECT, cutoff).counts


def test_an_agent_is_erased_with_its_users_and_groups(lake: Lake, tmp_path: Path, models: Models) -> None:
    keys, never = [scope.key for scope in known_scopes(lake)], created(tmp_path / "never")
    others = [said | {"agent_id": "sales"} for said in (TALKS[1], TALKS[9])]  # of a user, and of a group
    for one in (lake, never):
        sent(one, messages_of(one, others))
        kept(one, models, EARLY)
    receipt = forget(lake, models, Subject.agent(ACME), EARLY)
    assert_verified(lake, receipt)
    assert {one.agent_id for one in known_scopes(lake)} == {"sales"}
    assert {group.agent_id for group, _, _ in lake.members.all()} == {"sales"}
    assert len(lake.storage.list("state/agents")) == 1
    assert bytes_of(lake, *keys) == []
    assert differing(contents(lake), contents(never)) == []


@pytest.mark.parametrize("user_id", [None, BEN])
def test_a_conversation_is_erased_from_all_scopes_or_from_one(lake: Lake, models: Models, user_id: str | None) -> None:
    sent(lake, messages_of(lake, [talk("15T08:30", "I like stamps.", user_id=BEN, conversation_id="c2")]))
    receipt = forget(lake, models, Subject.conversation(ACME, "default", user_id), EARLY)
    assert_verified(lake, receipt)
    kept(lake, models, EARLY)
    left = {(row["identity"], row["conversation_id"]) for row in lake.tables.read(MESSAGES).to_pylist()}
    assert (user_identity(BEN), "c2") in left
    assert (user_identity(BEN), "default") not in left
    others = {identity for identity, conversation_id in left if conversation_id == "default"}
    assert (user_identity(ANNA) in others) is (user_id is not None)
    assert bool(others) is (user_id is not None)

    lake.journal.append(messages_of(lake, TALKS))
    kept(lake, models, EARLY)
    again = {(row["identity"], row["conversation_id"]) for row in lake.tables.read(MESSAGES).to_pylist()}
    assert again == left


def test_users_who_share_a_memory_are_erased_by_what_they_said(tmp_path: Path, models: Models) -> None:
    lake = created(tmp_path / "lake", per_user=False)
    lake.journal.append(messages_of(lake, TALKS))
    kept(lake, models, EARLY)
    receipt = forget(lake, models, SUBJECT, EARLY)
    assert_verified(lake, receipt)
    left = [row["content"] for row in lake.tables.read(MESSAGES).to_pylist()]
    assert not [content for content in left if any(pin in content for pin in PINS[:3])]
    assert len([content for content in left if "moved to" in content]) == 3


def test_the_command_line_erases_a_user(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = ("--root", lake.storage.uri, "--now", EARLY.isoformat())
    who = ("--workspace", "acme", "--user", ANNA)
    assert "agents support" in call("forget", *where, *who, "--dry-run").output
    done = read("forget", *where, *who, "--yes")
    assert {part["place"] for part in done["removed"]} >= {"messages", "facts", "journal", "summaries"}
    verified = call("verify-erasure", done["receipt"])
    assert verified.exit_code == 0, verified.output
    assert f"user {ANNA}" in verified.output
    refused = call("forget", *where, *who, "--conversation", "default", "--yes")
    assert "--agent" in str(refused.exception)


def test_broken_lines_of_a_user_go_whoever_was_never_known_is_refused_and_no_model_is_needed(tmp_path: Path) -> None:
    root, file = str(tmp_path / "lake"), tmp_path / "in.jsonl"
    file.write_text('{"content": "a broken secret\n{"user_id": "anna", "content": "another\n')
    ingest = ("ingest", str(file), "--workspace", "acme", "--agent", "support", "--user", "anna", "--root", root)
    assert "2 records quarantined" in call(*ingest).output
    assert call("run", "--root", root).exit_code == 0
    where = ("--root", root, "--workspace", "acme", "--yes", "--receipt")
    preview = ("forget", "--root", root, "--workspace", "acme", "--dry-run", "--user")
    assert call(*preview, "nobody").exit_code == 1
    assert call(*preview, "anna").exit_code == 0
    assert call("forget", *where, str(tmp_path / "none.json"), "--user", "nobody").exit_code == 1
    assert not (tmp_path / "none.json").exists()
    # A hosted model without a key, and another embedder than the index's.
    hosted = "defaults: {embedding: {model: openai/text-embedding-3-small, dimension: 256}}"
    Lake(root).storage.write("config/workspaces.yaml", hosted.encode())
    for name in ("once.json", "again.json"):
        assert call("forget", *where, str(tmp_path / name), "--user", "anna").exit_code == 0
    assert call(*preview, "anna").exit_code == 0
    assert "pools" in (tmp_path / "once.json").read_text()
    assert not Lake(root).journal.quarantined()
    assert call("verify-erasure", str(tmp_path / "once.json")).exit_code == 0
    # Anna comes back. A line that states a time before the erasure does not.
    with file.open("a") as more:
        more.write('{"user_id": "anna", "content": "old", "timestamp": "2024-01-15T08:00:00Z"\n')
    again = call(*ingest).output
    assert "2 records quarantined" in again
    assert "1 messages or records dropped" in again
    assert call("verify-erasure", str(tmp_path / "once.json")).exit_code == 0
    assert call("forget", *where, str(tmp_path / "third.json"), "--user", "anna").exit_code == 0
    assert not Lake(root).journal.quarantined()
