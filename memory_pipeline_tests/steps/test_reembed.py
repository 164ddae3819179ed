"""The index of another embedder is built beside the one in use."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from memory_pipeline.client.pipeline import run_all
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget
from memory_pipeline.errors import ConfigurationError, LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.index.index_rows import DURABLE
from memory_pipeline.lake.index.lance_tables import Databases
from memory_pipeline.lake.index.shard_tables import ShardTables
from memory_pipeline.lake.index.vector_index import VectorIndex
from memory_pipeline.memories.ranker import Pool
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.factory import Models, default_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps import reembed as module
from memory_pipeline.steps.housekeeping import clean_files
from memory_pipeline.steps.reembed import Reembedding, drop_index, reembed
from memory_pipeline.steps.restore import restore_projections
from memory_pipeline.steps.retention import expire
from memory_pipeline.transfer.deriving import models_without_requests
from memory_pipeline_tests.building import ACME, NOW, PROCESSES, START, conversation, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.erasure.lakes import assert_verified

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from memory_pipeline.lake.index.vector_index import VectorIndex as Index
    from memory_pipeline_tests.conftest import CopiedLake

TEXTS = ("I live in Porto.", "I prefer green tea.", "My dog is called Bruno.", "I work as a nurse.")
ALL = {DURABLE, *map(str, Grain)}


class Counting:
    """An embedder whose vectors are stored. It notes the texts that it embeds, and fails on some."""

    def __init__(self, name: str, dimension: int, fails_on: str = "\0") -> None:
        self.name, self.dimension, self.texts = name, dimension, list[str]()
        self._made = HashingEmbedder(dimension)
        self._fails_on = fails_on

    def embed(self, texts: Sequence[str], uses: Sequence[object] = ()) -> NDArray[np.float32]:
        if uses:
            self.texts += texts
        vectors = self._made.embed(texts)
        vectors[[self._fails_on in text for text in texts]] = np.nan
        return vectors


def old() -> Counting:
    return Counting("old", 24)


def new(fails_on: str = "\0") -> Counting:
    return Counting("new", 16, fails_on)


def models(embedder: Any) -> Models:
    made = default_models()
    return Models(made.extractor, embedder, made.summarizer)


def fill(path: Path) -> None:
    lake = Lake(str(path))
    write(lake, conversation(*TEXTS))
    write(lake, conversation("I met Milo.", "I like figs.", name="Dora", conversation_id="c2", at="2024-01-17T08:00"))
    list(run_all(lake, models(old()), NOW))


def fill_computed(path: Path) -> None:
    lake = Lake(str(path))
    write(lake, conversation(*TEXTS))
    list(run_all(lake, default_models(), NOW))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TEXTS", 4)


@pytest.fixture
def lake(copied: CopiedLake) -> Lake:
    """A lake with an index by the old embedder."""
    return copied("reembed", fill)


@pytest.fixture
def computed(copied: CopiedLake) -> Lake:
    """A lake with an index by the built-in embedder."""
    return copied("reembed-computed", fill_computed)


def last(lake: Lake, embedder: Any, **options: Any) -> Reembedding:
    return [*reembed(lake, embedder, **options)][-1]


def say(lake: Lake, text: str, embedder: Any, conversation_id: str, at: str = "2024-01-15T08:40") -> None:
    write(lake, conversation(text, at=at, conversation_id=conversation_id))
    list(run_all(lake, models(embedder), NOW))


def contents(index: Index, where: str | None = None) -> dict[str, str]:
    """Return the contents of an index by id."""
    rows = index.scan(["id", "content"], where)
    return dict(zip(rows["id"].to_pylist(), rows["content"].to_pylist(), strict=True))


def with_vectors(index: Index) -> dict[str, str]:
    return contents(index, "vector IS NOT NULL")


def of(lake: Lake, embedder: Any) -> Index:
    index = Lake(lake.storage.uri).indices.find(embedder)
    assert index is not None
    return index


def rows_of_tables(lake: Lake) -> set[str]:
    first = Lake(lake.storage.uri).indices.all()[0]
    return set(contents(first, f"grain != '{DURABLE}'"))


def found(lake: Lake, embedder: Any, query: str) -> str:
    reader = MemoryReader(Lake(lake.storage.uri), ACME, embedder)
    return reader.search_memory("working", 0, 3_000, 1, query, now=NOW)[0].content


def cosine(lake: Lake, embedder: Any, query: str) -> float:
    """Return the best cosine of a query with the vectors that a search compares."""
    loaded = of(lake, embedder).load(ACME, Grain.WORKING, embedder)
    return float(np.nanmax(loaded.vectors @ embedder.embed([query])[0]))


def test_the_new_index_has_all_rows_with_vectors_and_is_used_when_it_is_complete(lake: Lake) -> None:
    embedder = new()
    steps = reembed(lake, embedder)
    first = next(steps)
    assert not first.is_complete
    assert 0 < first.done < first.total
    with pytest.raises(ConfigurationError, match=r"not complete.*reembed"):
        found(lake, new(), "Where do I live?")
    assert "Porto" in found(lake, old(), "Where do I live?"), "readers go on"
    end = [*steps][-1]
    assert (end.done, end.failed, end.is_complete) == (end.total, 0, True)
    assert "Porto" in found(lake, new(), "Where do I live?")
    index = of(lake, embedder)
    assert set(contents(index, f"grain != '{DURABLE}'")) == rows_of_tables(lake)
    assert contents(index) == with_vectors(index)
    assert set(index.scan(["grain"])["grain"].to_pylist()) == ALL
    assert cosine(lake, new(), "I live in Porto.") > 0.6
    assert cosine(lake, old(), "I live in Porto.") > 0.6
    assert len(embedder.texts) == len(set(embedder.texts)), "each text once"
    assert last(lake, again := new()).is_complete
    assert again.texts == []


def test_a_lake_on_s3_is_embedded_again_and_loses_its_old_index(s3_root: str) -> None:
    lake = Lake(s3_root)
    write(lake, conversation(*TEXTS[:2]))
    list(run_all(lake, models(old()), NOW))
    steps = reembed(lake, new())
    assert not next(steps).is_complete
    assert "Porto" in found(lake, old(), "Where do I live?"), "readers go on"
    end = [*steps][-1]
    assert (end.failed, end.is_complete) == (0, True)
    index = of(lake, new())
    assert contents(index) == with_vectors(index)
    assert set(contents(index, f"grain != '{DURABLE}'")) == rows_of_tables(lake)
    assert drop_index(lake, "old", new()) == ["old"]
    assert not [entry for entry in lake.storage.list("projections") if entry.path.startswith("projections/index-")]
    assert "Porto" in found(lake, new(), "Where do I live?")
    with pytest.raises(ConfigurationError, match="reembed"):
        found(lake, old(), "tea")


def test_memories_are_compared_by_their_vectors_of_the_readers_embedder(lake: Lake) -> None:
    last(lake, new())
    index = of(lake, new())
    known = index.memory_vectors([ACME])
    newest = lake.memory_rows.read([ACME], ["content"], "is_newest")["content"].to_pylist()
    assert set(known) == set(newest)
    for embedder in (old(), new()):
        reader = MemoryReader(Lake(lake.storage.uri), ACME, embedder)
        assert reader.memories.search("I prefer green tea.", now=NOW)
        state = reader._states()[0]
        _, layouts = state.layouts.of(Pool.RECALLED, None)
        blocks = [block for block, _ in layouts if len(block)]
        assert sum(map(len, blocks)) > 2
        assert all(block.vectors.present == len(block) for block in blocks), embedder.name


def test_after_the_change_a_run_embeds_only_what_is_new_and_so_after_a_change_back(lake: Lake) -> None:
    last(lake, new())
    later = new()
    say(lake, "I moved to Basel.", later, "late")
    ours = [text for text in later.texts if "Porto" in text and "Basel" not in text]
    assert ours == [], "the rows of the same hour have vectors"
    assert any("Basel" in text for text in later.texts)
    assert "Basel" in found(lake, new(), "Basel")
    assert "Basel" in found(lake, old(), "Basel"), "by words"
    back = old()
    end = last(lake, back)
    assert end.is_complete
    assert end.done < 12
    assert back.texts, "new texts"
    assert all("Basel" in text for text in back.texts)
    index = of(lake, old())
    assert contents(index) == with_vectors(index)
    assert last(lake, forth := new()).done == 0
    assert forth.texts == []


def test_runs_meanwhile_write_to_both_indices(lake: Lake) -> None:
    steps = reembed(lake, new())
    next(steps)
    say(lake, "I moved to Basel.", old(), "meanwhile")
    assert "Basel" in found(lake, old(), "Basel")
    list(steps)
    assert "Basel" in found(lake, new(), "Basel")
    index = of(lake, new())
    assert set(contents(index, f"grain != '{DURABLE}'")) == rows_of_tables(lake)
    assert contents(index) == with_vectors(index)
    assert any("Basel" in text for text in with_vectors(index).values())


def test_the_built_in_embedder_is_left_and_taken_again(computed: Lake) -> None:
    last(computed, new())
    assert contents(of(computed, new())) == with_vectors(of(computed, new()))
    say(computed, "I moved to Basel.", new(), "late")
    end = last(computed, HashingEmbedder())
    assert (end.total, end.is_complete) == (0, True)
    assert "Basel" in found(computed, HashingEmbedder(), "Basel")
    assert cosine(computed, HashingEmbedder(), "I moved to Basel.") > 0.6
    assert last(computed, HashingEmbedder(64)).is_complete, "another dimension"
    assert cosine(computed, HashingEmbedder(64), "I live in Porto.") > 0.6
    drop_index(computed, "new", HashingEmbedder())
    say(computed, "I have a cat.", HashingEmbedder(), "later")
    assert "cat" in found(computed, HashingEmbedder(64), "cat")


def test_an_erasure_meanwhile_and_afterwards_reaches_both_indices(lake: Lake) -> None:
    steps = reembed(lake, new())
    next(steps)
    report = forget(lake, models(old()), Subject.person("acme", ["Dora"]), NOW)
    list(steps)
    assert last(lake, new()).is_complete
    assert_verified(lake, report)
    assert not bytes_with(lake, b"figs")
    forget(lake, models(new()), Subject.person("acme", ["Anna"]), NOW)
    for text in (b"Porto", b"green tea", b"Bruno"):
        assert not bytes_with(lake, text), text
    assert [contents(index) for index in Lake(lake.storage.uri).indices.all()] == [{}, {}]


def test_an_erasure_while_rows_are_copied_leaves_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    original = VectorIndex.replace

    def overtaken(self: Index, *args: Any, **named: Any) -> Any:
        monkeypatch.setattr(VectorIndex, "replace", original)
        forget(Lake(lake.storage.uri), models(old()), Subject.person("acme", ["Dora"]), NOW)
        return original(self, *args, **named)

    monkeypatch.setattr(VectorIndex, "replace", overtaken)
    last(lake, new())
    assert not bytes_with(lake, b"figs")


def bytes_with(lake: Lake, text: bytes) -> list[Path]:
    folders = ("projections", "tables/facts", "tables/summaries", "cache")
    files = [path for name in folders for path in Path(lake.storage.uri, name).rglob("*") if path.is_file()]
    return [path for path in files if text in path.read_bytes()]


def test_rows_that_expire_leave_both_indices(lake: Lake) -> None:
    last(lake, new())
    lake.storage.write(
        "config/workspaces.yaml", b"defaults: {retention: {conversations: 30d, working: 30d, daily: 90d}}"
    )
    expire(Lake(lake.storage.uri), START, NOW)
    for index in Lake(lake.storage.uri).indices.all():
        assert contents(index, "grain = 'working'") == {}, index.name


def test_a_failed_text_is_tried_again_and_can_be_accepted(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"could not be embedded.*again"):
        last(lake, new(fails_on="Bruno"))
    with pytest.raises(ConfigurationError, match="not complete"):
        found(lake, new(), "tea")
    again = new(fails_on="Bruno")
    assert last(lake, again, accepts_missing=True).failed > 0
    assert all("Bruno" in text for text in again.texts)
    assert "Bruno" in found(lake, new(), "Bruno"), "by words"
    assert last(lake, new()).failed == 0


def test_a_dead_embedder_stops_it(lake: Lake) -> None:
    dead = new(fails_on="")
    with pytest.raises(LakeError, match="again"):
        last(lake, dead)
    assert len(dead.texts) <= 4, "the first part alone"


def test_a_dropped_index_is_gone_and_its_readers_are_told(lake: Lake) -> None:
    last(lake, new())
    with pytest.raises(ConfigurationError, match="in use"):
        drop_index(lake, "new", new())
    with pytest.raises(ConfigurationError, match="has no index; there are indices of old, new"):
        drop_index(lake, "other", new())
    assert drop_index(lake, "old", new()) == ["old"]
    assert not [*Path(lake.storage.uri, "projections").glob("index-*")]
    with pytest.raises(ConfigurationError, match="reembed"):
        found(lake, old(), "tea")
    with pytest.raises(ConfigurationError, match="reembed"):
        list(run_all(Lake(lake.storage.uri), models(old()), NOW))
    say(lake, "I moved to Basel.", new(), "late")
    assert "Basel" in found(lake, new(), "Basel")
    assert not [*Path(lake.storage.uri, "projections").glob("index-*")]
    assert last(lake, old()).is_complete
    assert "Basel" in found(lake, old(), "Basel")


def test_what_a_killed_drop_or_a_late_run_left_is_deleted(lake: Lake) -> None:
    last(lake, new())
    lake.indices.all()[0].describe({"is_dropped": True})
    assert [*Path(lake.storage.uri, "projections").glob("index-*")]
    clean_files(Lake(lake.storage.uri), NOW)
    assert not [*Path(lake.storage.uri, "projections").glob("index-*")]


def test_lost_tables_are_made_again_without_vectors_and_completed(lake: Lake) -> None:
    last(lake, new())
    index = of(lake, new())
    before = contents(index, f"grain != '{DURABLE}'")
    for path in Path(lake.storage.uri, "projections").glob(f"{index.name}-*"):
        Storage(lake.storage.uri).remove(f"projections/{path.name}")
    assert restore_projections(Lake(lake.storage.uri), new())
    assert contents(of(lake, new())) == before
    assert "Porto" in found(lake, new(), "Porto"), "by words"
    assert last(lake, new()).is_complete
    assert contents(of(lake, new())) == with_vectors(of(lake, new()))


def test_a_copy_of_the_lake_takes_the_vectors_along(lake: Lake) -> None:
    last(lake, new())
    for embedder in (old(), new()):
        made = models_without_requests(lake, embedder, lake.calls, NOW, vectors_of=lake).embedder
        assert not np.isnan(made.embed(["Anna: I live in Porto."])).any()


# --- killed ----------------------------------------------------------------------------------------------------------

#: What a re-embedding does to a lake.
CHANGES: tuple[tuple[type[Any], tuple[str, ...]], ...] = (
    (Storage, ("write", "create", "delete")),
    (Databases, ("edit", "create")),
    (ShardTables, ("_write",)),
    (VectorIndex, ("describe", "put_vectors")),
)
PARTS = [number / 24 for number in range(24)] if IS_THOROUGH else [0.0, 0.3, 0.6, 0.8, 0.97]


class Noting(Counting):
    """Notes the texts in a file, because its process is killed."""

    def __init__(self, path: Path) -> None:
        super().__init__("new", 16)
        self._path = path

    def embed(self, texts: Sequence[str], uses: Sequence[object] = ()) -> NDArray[np.float32]:
        with self._path.open("a") as file:
            file.writelines(f"{text!r}\n" for text in texts if uses)
        return super().embed(texts, uses)


def build(root: str, notes: Path, most: int, done: Any = None) -> None:
    """Re-embed. Kill this process at a change of the lake, or report the number of changes."""
    module._TEXTS = 4
    count = 0

    def counted(kind: type[Any], name: str) -> None:
        change = getattr(kind, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > most:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **named)

        setattr(kind, name, counting)

    for kind, names in CHANGES:
        for name in names:
            counted(kind, name)
    list(reembed(Lake(root), Noting(notes)))
    if done is not None:
        done.put(count)


def in_a_process(target: Callable[..., None], *arguments: Any) -> int:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    process.join()
    assert process.exitcode is not None
    return process.exitcode


def test_killed_at_any_change_it_continues_where_it_was(copied: CopiedLake, tmp_path: Path) -> None:
    changes = PROCESSES.Queue()
    made = Path(copied("reembed", fill).storage.uri)

    def copy(name: str) -> Lake:
        return Lake(str(shutil.copytree(made, tmp_path / name)))

    lake = copy("lake of all")
    assert in_a_process(build, lake.storage.uri, tmp_path / "whole", 1_000_000, changes) == 0
    count: int = changes.get()
    expected = {**with_vectors(of(lake, new()))}
    once = len((tmp_path / "whole").read_text().splitlines())
    for part in PARTS:
        lake, notes = copy(f"lake of {part}"), tmp_path / str(part)
        assert in_a_process(build, lake.storage.uri, notes, int(count * part)) == -signal.SIGKILL
        assert "Porto" in found(lake, old(), "Where do I live?"), part
        say(lake, "I moved to Basel.", old(), "meanwhile")
        assert in_a_process(build, lake.storage.uri, notes, 1_000_000) == 0
        index = of(lake, new())
        assert index.is_complete
        assert contents(index) == with_vectors(index), part
        assert set(contents(index, f"grain != '{DURABLE}'")) == rows_of_tables(lake), part
        assert expected.keys() - contents(index).keys() <= {one for one in expected if not one.startswith("working")}
        assert len([line for line in notes.read_text().splitlines() if "Basel" not in line]) <= once + 4, part
