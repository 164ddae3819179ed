"""The requests that a search of shared memory in a bucket takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import AccessDeniedError
from memory_pipeline.lake import Lake
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import conversation, write

if TYPE_CHECKING:
    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.fault_proxy import FaultProxyProcess

A = Scope("acme", "A")


def test_the_check_of_a_grant_adds_no_request_to_a_search(proxy: FaultProxyProcess, far: str, models: Models) -> None:
    lake = Lake(far)
    write(lake, conversation("The code of the vault is 4711.", scope=A))
    list(materialize(lake, models, Grain.WORKING, lake.journal.pending_hours()))
    write(lake, conversation("The vault opens at nine.", at="2024-02-01T08:00", scope=A, conversation_id="c2"))
    writer = MemoryWriter.open(far, workspace_id="acme", agent_id="A", user_id="anna")
    message = {"role": "user", "content": "My vault is blue.", "timestamp": "2024-02-02T08:00:00Z"}
    writer.write({"conversation_id": "c3", "messages": [message]})

    def requests(reader: MemoryReader) -> int:
        """Return the smallest of three counts: parallel reads may each request the same file."""
        counts = list[int]()
        for _ in range(3):
            reader.search_memory("working", 0, 36_525, 10, "vault")
            proxy.reset_counts()
            assert reader.search_memory("working", 0, 36_525, 10, "vault")
            reader.recall("vault")
            counts.append(proxy.requests)
        return min(counts)

    own, of_anna = (MemoryReader.open(far, workspace_id="acme", agent_id="A", user_id=user) for user in (None, "anna"))
    shared, shared_of_anna = (
        MemoryReader.open(far, workspace_id="acme", agent_id="A", user_id=user, on_behalf_of="B")
        for user in (None, "anna")
    )
    writer.grant(team="sales")
    writer.add_to_team("sales", "B")
    writer.grant("B", user_id="anna")
    assert 0 < requests(shared) <= requests(own)
    assert 0 < requests(shared_of_anna) <= requests(of_anna)
    # A denied search costs the list of the folder, and what is new in it.
    writer.revoke(team="sales")
    for expected in ({"LIST": 1, "GET": 1}, {"LIST": 1}):
        proxy.reset_counts()
        with pytest.raises(AccessDeniedError):
            shared.search_memory("working", 0, 36_525, 10, "vault")
        assert {kind: count for kind, count in proxy.counts.items() if count} == expected
