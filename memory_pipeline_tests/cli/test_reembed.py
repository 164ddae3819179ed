"""The command that changes the embedder, with a hosted one behind LiteLLM."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory_pipeline import Memory
from memory_pipeline.client.reembedding import change_embedder
from memory_pipeline.lake import Lake
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.lake.schemas import MODEL_CALLS
from memory_pipeline.steps import reembed as module
from memory_pipeline_tests.building import NOW, PROCESSES
from memory_pipeline_tests.invoking import call, read
from memory_pipeline_tests.openai_server import Fault, OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline_tests.conftest import CopiedLake

TEXTS = ("I live in Porto.", "I prefer green tea.", "My dog is called Bruno.")
OPTIONS = "api_base: {url}, backoff_seconds: 0.01, attempts: 2, price: {{input: 1.0}}"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def fill(path: Path) -> None:
    memory = Memory(str(path), user_id="anna")
    memory.add([{"role": "user", "content": text, "timestamp": "2024-01-15T08:00:00+00:00"} for text in TEXTS])
    memory.run(now=NOW)


@pytest.fixture
def root(copied: CopiedLake) -> str:
    return copied("reembed-command", fill).storage.uri


def configured(tmp_path: Path, server: OpenAIServer, model: str = "openai/v", more: str = "") -> Path:
    file = tmp_path / "next.yaml"
    options = OPTIONS.format(url=server.base_url)
    file.write_text(f"# ours\ndefaults:\n  embedding: {{model: {model}, dimension: 16, {options}}}\n{more}")
    return file


def sent(server: OpenAIServer) -> list[str]:
    return [text for request in server.requests for text in request.body["input"]]


def found(root: str, query: str) -> list[str]:
    return [hit.content for hit in Memory(root, user_id="anna").search(query, now=NOW)]


def states(root: str) -> dict[str, str]:
    rows = read("reembed", "--root", root)
    return {row["embedder"].partition(" ")[0].rpartition("-")[0]: row["state"] for row in rows}


def test_the_embedder_is_changed_and_changed_back(root: str, tmp_path: Path, server: OpenAIServer) -> None:
    assert states(root) == {"hashed-ngrams": "in use"}
    text = read("config", "--root", root)["text"]
    kept = call("reembed", "--root", root, "--config", str(configured(tmp_path, server)), "--keep")
    assert "the index is complete" in kept.output
    assert states(root) == {"hashed-ngrams": "in use", "openai/v": "complete"}
    assert (read("config", "--root", root)["text"], len(sent(server))) == (text, len(set(sent(server))))
    before = len(sent(server))
    done = call("reembed", "--root", root, "--config", str(configured(tmp_path, server)))
    assert "openai/v is in use now" in done.output
    assert states(root) == {"hashed-ngrams": "complete", "openai/v": "in use"}
    assert len(sent(server)) == before
    assert read("config", "--root", root)["text"].startswith("# ours\n")
    assert any("Porto" in text for text in found(root, "Porto"))

    server.dimension = 24
    done = call("reembed", "--root", root, "--to", "openai/w", "--dimension", "24")
    assert "openai/w is in use now" in done.output, done.output
    back = read("reembed", "--root", root, "--to", "openai/v")
    assert (back["total"], back["is_complete"]) == (0, True)
    assert states(root) == {"hashed-ngrams": "complete", "openai/v": "in use", "openai/w": "complete"}
    assert call("reembed", "--root", root, "--to", "deterministic").exit_code == 0
    assert states(root)["hashed-ngrams"] == "in use"
    assert call("reembed", "--root", root, "--drop", "openai/w").exit_code == 0
    assert "in use" in str(call("reembed", "--root", root, "--drop", "deterministic").exception)
    assert states(root) == {"hashed-ngrams": "in use", "openai/v": "complete"}
    assert call("check", "--root", root).exit_code == 0


def test_progress_rate_and_cost_are_shown(
    root: str, tmp_path: Path, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TEXTS", 2)
    done = call("reembed", "--root", root, "--config", str(configured(tmp_path, server)))
    assert "rows embedded" in done.stderr
    assert "a second" in done.stderr
    assert " left" in done.stderr
    assert "and about $" in done.stderr
    assert "$0.0" in done.stdout
    calls = Lake(root).tables.read(MODEL_CALLS).to_pylist()
    assert {row["purpose"] for row in calls} == {"embedding"}
    assert sum(row["cost"] for row in calls) > 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to", "openai/v"), "dimension"),
        (("--to", "openai/v", "--config", "next.yaml"), "--to"),
        (("--drop", "openai/v"), "has no index"),
        (("--drop", "openai/v", "--to", "openai/w"), "--drop"),
        (("--to", "nonsense"), "nonsense"),
    ],
)
def test_faults_are_named(root: str, arguments: tuple[str, ...], text: str) -> None:
    done = call("reembed", "--root", root, *arguments)
    assert text in str(done.exception), done.output
    assert states(root) == {"hashed-ngrams": "in use"}


def test_a_budget_holds_and_the_embedder_stays(root: str, tmp_path: Path, server: OpenAIServer) -> None:
    budget = "  budget: {usd_per_month: 0.00001}\n"
    done = call("reembed", "--root", root, "--config", str(configured(tmp_path, server, more=budget)))
    assert "again" in str(done.exception)
    assert states(root) == {"hashed-ngrams": "in use", "openai/v": "being built"}
    assert any("Porto" in text for text in found(root, "Porto"))
    assert server.requests == []


def test_a_server_that_fails_is_asked_again_later(root: str, tmp_path: Path, server: OpenAIServer) -> None:
    server.faults = [Fault("400", times=None)]
    done = call("reembed", "--root", root, "--config", str(configured(tmp_path, server)))
    assert "again" in str(done.exception)
    server.faults = []
    assert call("reembed", "--root", root, "--config", str(configured(tmp_path, server))).exit_code == 0


def reembed_until(root: str, file: str, puts: int) -> None:
    """Re-embed. Kill this process before the vectors of some part are stored."""
    module._TEXTS = 2
    original, count = VectorIndex.put_vectors, 0

    def counted(self: VectorIndex, name: str, rows: Any) -> None:
        nonlocal count
        count += 1
        if count > puts:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, name, rows)

    VectorIndex.put_vectors = counted  # type: ignore[method-assign]
    list(change_embedder(Lake(root), lambda: NOW, configuration=Path(file)))


def test_no_text_is_paid_for_twice_after_a_kill(root: str, tmp_path: Path, server: OpenAIServer) -> None:
    file = configured(tmp_path, server)
    for puts in (0, 1, 1_000):
        process = PROCESSES.Process(target=reembed_until, args=(root, str(file), puts))
        process.start()
        process.join()
        assert process.exitcode == (0 if puts == 1_000 else -signal.SIGKILL)
    assert states(root)["openai/v"] == "in use"
    requests = [tuple(request.body["input"]) for request in server.requests]
    assert len(requests) == len(set(requests)), "no request was sent twice"
    assert len(sent(server)) <= len(set(sent(server))) + 1
