"""The source and the metadata of messages reach hits, and are exact filters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import InputError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS
from memory_pipeline.models.factory import default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.tools.functions import memory_tools
from memory_pipeline_tests.building import ACME, NOW
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from memory_pipeline_tests.conftest import CopiedLake

SAID: dict[str, tuple[str | None, dict[str, Any] | None]] = {
    "The red printer is broken.": ("slack", {"ticket": 7, "by": {"team": ["a", 2.0]}}),
    "The blue printer works.": ("mail", {"ticket": 8, "urgent": True}),
    "The green printer hums.": ("slack", None),
    "The black printer is off.": (None, {"ticket": "7", "urgent": 1}),
    "The white printer is new.": (None, None),
}
#: Filters with the colours that they find.
WANTED: list[tuple[dict[str, Any], set[str]]] = [
    ({}, {"red", "blue", "green", "black", "white"}),
    ({"source": "slack"}, {"red", "green"}),
    ({"source": "Slack"}, set()),
    ({"source": "sla"}, set()),
    ({"metadata": {"ticket": 7}}, {"red"}),
    ({"metadata": {"ticket": 7.0}}, {"red"}),
    ({"metadata": {"ticket": "7"}}, {"black"}),
    ({"metadata": {"urgent": True}}, {"blue"}),
    ({"metadata": {"urgent": 1}}, {"black"}),
    ({"metadata": {"by": {"team": ["a", 2]}}}, {"red"}),
    ({"metadata": {"by": {}}}, set()),
    ({"metadata": {}}, {"red", "blue", "green", "black", "white"}),
    ({"source": "slack", "metadata": {"ticket": 7}}, {"red"}),
    ({"source": "mail", "metadata": {"ticket": 7}}, set()),
    ({"metadata": {"ticket": 8, "urgent": True}}, {"blue"}),
    ({"source": "slack", "tag": "office"}, {"red", "green"}),
]


def say(root: str) -> None:
    memory = Memory(root, agent_id=ACME.agent_id, workspace_id=ACME.workspace_id)
    for number, (text, (source, metadata)) in enumerate(SAID.items()):
        message = {"role": "user", "name": "Anna", "content": text, "timestamp": f"2024-01-1{number}T08:00:00+00:00"}
        memory.add([message | ({"metadata": metadata} if metadata else {})], source=source, tags=["office"])


def fill(path: Path) -> None:
    say(str(path))
    Memory(path).run(now=NOW)


@pytest.fixture(params=["pending", "stored", "some pending"])
def said(request: pytest.FixtureRequest, copied: CopiedLake, tmp_path: Path) -> str:
    if request.param == "stored":
        return copied("attributes", fill).storage.uri
    say(str(tmp_path / "said"))
    if request.param == "some pending":
        Memory(tmp_path / "said").run(now=NOW)
        reader = Memory(str(tmp_path / "said"), agent_id=ACME.agent_id, workspace_id=ACME.workspace_id)
        reader.add([{"role": "user", "content": "Hello.", "timestamp": "2024-01-20T08:00:00+00:00"}], source="chat")
    return str(tmp_path / "said")


def colours(hits: Any) -> set[str]:
    return {hit.content.split()[2] for hit in hits if "printer" in hit.content}


@pytest.mark.parametrize("rows", [250_000, 0])
def test_filters_are_exact_in_pending_and_in_stored_rows(said: str, rows: int) -> None:
    reader = MemoryReader(Lake(said), ACME, default_models().embedder, resident_rows=rows)
    memory = Memory(said, agent_id=ACME.agent_id, workspace_id=ACME.workspace_id)
    for filters, expected in WANTED:
        for query in (None, "printer"):
            hits = reader.search_memory("working", 0, 3_000, 50, query, now=NOW, **filters)
            assert colours(hits) == expected, (filters, query)
        assert colours(memory.search("printer", now=NOW, **filters)) == expected, filters
        text = str(reader.recall("printer", now=NOW, **filters))
        assert {colour for colour in ("red", "blue", "green") if f"{colour} printer" in text} <= expected, filters


def test_hits_have_what_the_writer_gave(said: str) -> None:
    memory = Memory(said, agent_id=ACME.agent_id, workspace_id=ACME.workspace_id)
    for hit in memory.search("printer", now=NOW):
        if "Hello" in hit.content:
            continue
        source, metadata = SAID[hit.content.removeprefix("Anna: ")]
        assert (hit.source, hit.metadata) == (source, metadata or {})


def test_facts_have_them_too(copied: CopiedLake) -> None:
    lake = copied("attributes", fill)
    rows = lake.tables.read(FACTS, columns=["content", "source", "metadata"]).to_pylist()
    assert {row["source"] for row in rows} == {"slack", "mail", None}
    assert any(row["metadata"] and '"ticket": 7' in row["metadata"] for row in rows)


def test_the_command_and_the_tool_filter_by_them(said: str) -> None:
    own = ("--root", said, "--workspace", ACME.workspace_id, "--agent", ACME.agent_id)
    found = read(
        "search",
        "printer",
        *own,
        "--from-source",
        "slack",
        "--metadata",
        '{"ticket": 7}',
        "--now",
        "2026-01-12",
        "--max-days-ago",
        "3000",
    )
    [hit] = [one for one in found["hits"] if one["grain"] == "working"]
    assert (hit["source"], hit["metadata"]["ticket"]) == ("slack", 7)
    tools = memory_tools(MemoryReader(Lake(said), ACME, default_models().embedder), now=NOW)
    text = tools.call("search_memory", {"query": "printer", "maximum_days_ago": 3_000, "metadata": '{"ticket": 8}'})
    assert "blue" in text
    assert "red" not in text
    assert "expected an object" in str(tools.call("search_memory", {"metadata": "{"}))
    assert "metadata" in str(call("search", *own, "--metadata", "[1]").exception)


def test_what_is_no_source_or_metadata_is_refused(copied: CopiedLake) -> None:
    memory = Memory(copied("attributes", fill).storage.uri)
    refused: list[dict[str, Any]] = [{"source": ""}, {"source": "a\x1fb"}, {"metadata": [7]}, {"metadata": {7: 7}}]
    for filters in refused:
        with pytest.raises(InputError, match=r"source|metadata"):
            memory.search("printer", **filters)


def test_an_erasure_reaches_them(copied: CopiedLake) -> None:
    lake = copied("attributes", fill)
    memory = Memory(lake.storage.uri, agent_id=ACME.agent_id, workspace_id=ACME.workspace_id)
    message = {"role": "user", "content": "It is fixed.", "timestamp": "2024-01-20T08:00:00+00:00"}
    memory.add([message | {"metadata": {"customer": "Milosz"}}])
    memory.run(now=NOW)
    forget(lake, default_models(), Subject.person(ACME.workspace_id, ["Milosz"]), NOW)
    files = [path for path in Path(lake.storage.uri).rglob("*") if path.is_file() and "tombstones" not in str(path)]
    left = [path for path in files if b"Milosz" in path.read_bytes() and "erasures" not in str(path)]
    assert left == []


def test_stored_secrets_are_not_in_what_is_derived(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.lake.ensure()
    memory.lake.storage.write("config/workspaces.yaml", b"defaults: {secrets: {redact: derived}}")
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"  # it opens nothing
    message = {"role": "user", "content": "It is fixed.", "timestamp": "2024-01-20T08:00:00+00:00"}
    memory.add([message | {"metadata": {"token": secret, "ticket": 7}}])
    for _ in range(2):
        [hit] = memory.search("fixed", now=NOW, metadata={"ticket": 7})
        assert secret not in str(hit.metadata)
        memory.run(now=NOW)
