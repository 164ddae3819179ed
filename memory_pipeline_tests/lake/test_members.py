"""The index of members lists the groups of users and the users of groups."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.memories.events import MemoryEvent, MemoryVerb
from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.lake import Lake

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.domain.scopes import Scope

AT = datetime(2024, 1, 15, 8, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    lake.ensure()
    return lake


def said_in(group: Scope, *users: str, at: datetime = AT) -> MemoryEvent:
    return MemoryEvent.of(group, MemoryVerb.FORGET, at, memory_id="memory:1", received_at=at, users=users)


def groups_of(lake: Lake, user_id: str) -> list[str]:
    user = lake.scope("acme", "support", user_identity(user_id))
    return [group.identity for group in lake.members.groups_of(user)]


def test_members_are_listed_by_group_and_by_user(lake: Lake) -> None:
    team, board = (lake.scope("acme", "support", f"group:{name}") for name in ("team", "board"))
    lake.members.add([said_in(team, "anna", "ben"), said_in(board, "ben")])
    lake.members.add([said_in(team, "cleo")])
    assert lake.members.users_of(team) == ("anna", "ben", "cleo")
    assert sorted(groups_of(lake, "ben")) == ["group:board", "group:team"]
    assert groups_of(lake, "dora") == []
    assert not [entry.path for entry in lake.storage.list("journal/members") if "anna" in entry.path]


def test_a_member_is_known_since_the_first_record(lake: Lake) -> None:
    team = lake.scope("acme", "support", "group:team")
    later = AT + timedelta(days=1)
    lake.members.add([said_in(team, "anna", at=later), said_in(team, "anna")])
    lake.members.add([said_in(team, "anna", "ben", at=later)])
    assert sorted(lake.members.all(), key=lambda one: one[1]) == [(team, "anna", AT), (team, "ben", later)]


def test_a_removed_member_is_added_again_by_a_later_write_of_any_process(lake: Lake) -> None:
    team, writer = lake.scope("acme", "support", "group:team"), Lake(lake.storage.uri)
    writer.members.add([said_in(team, "anna", "ben")])
    assert lake.members.remove(team, "anna")
    assert not lake.members.remove(team, "anna")
    assert lake.members.users_of(team) == ("ben",)
    assert groups_of(lake, "anna") == []
    writer.members.add([replace(said_in(team, "anna", "ben"), event_at=AT + timedelta(days=2))])
    assert lake.members.users_of(team) == ("anna", "ben")
    assert groups_of(lake, "anna") == ["group:team"]
    assert {since for _, user, since in lake.members.all() if user == "anna"} == {AT + timedelta(days=2)}


def test_a_file_that_was_written_by_hand_opens_no_memory(lake: Lake, tmp_path: Path) -> None:
    team, board = (lake.scope("acme", "support", f"group:{name}") for name in ("team", "board"))
    anna, ben = (lake.scope("acme", "support", user_identity(user)) for user in ("anna", "ben"))
    lake.members.add([said_in(team, "anna"), said_in(board, "ben")])
    folder = tmp_path / "lake/journal/members/users"
    mine, theirs = folder / anna.key / f"{team.key}.json", folder / ben.key / f"{board.key}.json"
    (mine.parent / f"{'0' * 32}.json").write_bytes(theirs.read_bytes())
    (mine.parent / f"{ben.key}.json").write_bytes(theirs.read_bytes().replace(b"group:board", b"user:ben"))
    (mine.parent / f"{board.key}.json").write_text("[]")
    assert groups_of(lake, "anna") == ["group:team"]
