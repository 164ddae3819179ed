"""The reader of all users: a list for operators."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader, all_users
from memory_pipeline.reader.all_users import AllUsersReader, UserHit
from memory_pipeline.tools import memory_tools
from memory_pipeline.tools.langgraph import MemoryStore
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import ACME, NOW, run
from memory_pipeline_tests.users import GROUP, HOMES, IN_GROUP, LATER, OF_AGENT, PINS, write_users

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import SharedFolder

EVER: dict[str, Any] = {"maximum_days_ago": 36_525, "now": NOW}


@pytest.fixture(params=["pending", "both"])
def lake(shared_folder: SharedFolder, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake of users whose entries are all pending, or of which one is. Tests only read it."""
    monkeypatch.setattr(all_users, "_AT_ONCE", 2)

    def fill(folder: Path) -> None:
        lake = write_users(str(folder / "lake"))
        if request.param == "both":
            run(lake, default_models())
            writer = MemoryWriter(lake, ACME).for_user("ben")
            message = {"role": "user", "content": "The kettle is new.", "timestamp": LATER.isoformat()}
            writer.write({"conversation_id": "later", "messages": [message]})

    return Lake(str(shared_folder(f"reader-all-users-{request.param}", fill) / "lake"))


@pytest.fixture
def pending(shared_folder: SharedFolder) -> Lake:
    folder = shared_folder("reader-all-users-pending", lambda folder: write_users(str(folder / "lake")))
    return Lake(str(folder / "lake"))


def reader_on(lake: Lake, **options: Any) -> Any:
    return MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support", **options)


def listed(lake: Lake, query: str | None = None, **options: Any) -> dict[str, tuple[str, ...]]:
    hits = reader_on(lake, users="all").search_memory(query=query, **{**EVER, "max_results": 100, **options})
    assert hits.total == len(hits)
    assert all(isinstance(hit, UserHit) for hit in hits)
    return {hit.content: hit.users for hit in hits if isinstance(hit, UserHit)}


def test_entries_of_all_users_are_listed_with_their_users(lake: Lake) -> None:
    found = listed(lake)
    assert found.pop("User: The kettle is new.", ("ben",)) == ("ben",)
    homes = {f"User: I live in {HOMES[user]}. My PIN is {PINS[user]}." for user in HOMES}
    assert found.keys() == {f"User: {OF_AGENT}", f"User: {IN_GROUP}"} | homes
    assert found[f"User: {OF_AGENT}"] == ()
    assert found[f"User: {IN_GROUP}"] == GROUP
    assert found["User: I live in Oslo. My PIN is 2222."] == ("ben",)


def test_the_list_is_that_of_the_readers_of_each_user(lake: Lake) -> None:
    for options in (
        {},
        {"kind": "statement"},
        {"grain": "daily"},
        {"since": "2024-01-16"},
        {"minimum_importance": 0.3},
    ):
        expected: dict[str, Any] = {}
        for user in (None, *HOMES):
            hits = reader_on(lake, user_id=user).search_memory(**{**EVER, "max_results": 100, **options})
            expected |= {hit.id: hit.ends_at for hit in hits}
        hits = reader_on(lake, users="all").search_memory(**{**EVER, "max_results": 100, **options})
        assert {hit.id: hit.ends_at for hit in hits} == expected
        assert [hit.ends_at for hit in hits] == sorted(expected.values(), reverse=True)


def test_pages_together_are_the_whole_list(lake: Lake) -> None:
    reader = reader_on(lake, users="all")
    whole = reader.search_memory(**EVER, max_results=100)
    pages = [reader.search_memory(**EVER, max_results=2, offset=offset) for offset in range(0, whole.total, 2)]
    assert [hit for page in pages for hit in page] == list(whole)
    assert {page.total for page in pages} == {whole.total}
    assert reader.search_memory(**EVER, offset=whole.total) == []


def test_entries_with_all_words_are_listed(lake: Lake) -> None:
    assert set(listed(lake, "PIN").values()) == {("anna",), ("ben",), ("cleo",)}
    assert set(listed(lake, "living in OSLO").values()) == {("ben",)}
    assert listed(lake, "Oslo Rome") == {}
    assert listed(lake, "the boats", now=LATER - timedelta(days=300)) == {}
    assert set(listed(lake, person="user", kind="statement").values()) >= {("anna",), ("ben",), ("cleo",), GROUP, ()}


def test_another_agent_is_not_listed(lake: Lake) -> None:
    reader = MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="sales", users="all")
    assert reader.search_memory(**EVER) == []


REFUSED: dict[str, Callable[[Any], object]] = {
    "recall": lambda reader: reader.recall("PIN"),
    "imagine": lambda reader: reader.imagine(["PIN"]),
    "context": lambda reader: reader.context("PIN"),
    "inject_knowledge": lambda reader: reader.inject_knowledge("PIN"),
    "hot_index": lambda reader: reader.hot_index(),
    "search_archive": lambda reader: reader.search_archive("PIN"),
    "get": lambda reader: reader.get("x"),
    "receipt": lambda reader: reader.receipt("x"),
    "receipts": lambda reader: reader.receipts(),
    "expand": lambda reader: reader.expand("x"),
    "graph": lambda reader: reader.graph,
    "memories": lambda reader: reader.memories,
    "newest": lambda reader: reader.newest("working", 1),
    "summaries_of": lambda reader: reader.summaries_of("daily", "2024-01-15"),
    "of_agent": lambda reader: reader.of_agent("sales"),
}


def test_nothing_else_reads_all_users(pending: Lake) -> None:
    reader = reader_on(pending, users="all")
    for name, way in REFUSED.items():
        with pytest.raises(InputError, match=f"{name} is not available for all users; open the reader with one user"):
            way(reader)


def test_every_method_that_reads_is_refused_or_lists() -> None:
    public = {name for name in dir(MemoryReader) if not name.startswith("_")}
    others = {"open", "open_tables", "for_user", "search_memory", "note_uses", "scope", "scopes", "calendar"}
    assert public - REFUSED.keys() == others
    assert {name for name in dir(AllUsersReader) if not name.startswith("_")} == {"search_memory"}


def test_all_users_are_not_for_a_model(pending: Lake) -> None:
    reader = reader_on(pending, users="all")
    assert isinstance(reader, AllUsersReader)
    offers: list[Callable[[Any], object]] = [memory_tools, MemoryStore]
    for offer in offers:
        with pytest.raises(InputError, match="a reader of all users is not for a model"):
            offer(reader)


@pytest.mark.parametrize("options", [{"users": "everybody"}, {"users": "all", "user_id": "anna"}])
def test_other_values_are_refused(pending: Lake, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected 'all' without user_id"):
        reader_on(pending, **options)


def test_query_text_is_the_earlier_name_of_query(lake: Lake) -> None:
    reader = reader_on(lake, users="all")
    found = reader.search_memory(query_text="PIN", **EVER)
    assert found
    assert found == reader.search_memory(query="PIN", **EVER)


def test_a_query_without_a_word_is_refused(pending: Lake) -> None:
    with pytest.raises(InputError, match="query 'of the' has no word to filter by"):
        reader_on(pending, users="all").search_memory(query="of the")
