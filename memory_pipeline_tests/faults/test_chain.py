"""The whole pipeline behind a faulty network, or killed at a request, gives the same lake as without faults."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.errors import LakeError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import FACTS, MESSAGES, SUMMARIES
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.building import ACME, NOW, conversation, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.fault_proxy import Fault
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from typing import Self

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.fault_proxy import FaultProxyProcess

#: Conversations of one or two hours, from which all grains are computed.
SAID = (
    conversation("I moved to Porto.", "I like figs.", conversation_id="c1"),
    conversation("I work at the harbour.", at="2024-01-15T10:00", conversation_id="c2"),
)[: 2 if IS_THOROUGH else 1]
#: The maximum number of retries after clear errors.
AGAIN = 6


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digest of the lake without faults."""
    from memory_pipeline.models.factory import default_models

    lake = Lake(str(tmp_path_factory.mktemp("chain") / "lake"))
    write(lake, *SAID)
    run(lake, default_models())
    return lake_digest(lake)


@pytest.mark.parametrize("seed", range(1, 9 if IS_THOROUGH else 2))
@pytest.mark.parametrize("percent", [1, 3, 10] if IS_THOROUGH else [4])
def test_random_faults_lose_and_duplicate_nothing(
    far: str, proxy: FaultProxyProcess, models: Models, expected: dict[str, str], seed: int, percent: int
) -> None:
    kinds = ("500", "503", "late", "reset", "lost", "half")
    faults = [Fault(kind, probability=percent / 100 / len(kinds), times=None) for kind in kinds]
    proxy.stats(faults=[asdict(fault) for fault in faults], seed=seed)
    done = 0
    for _ in range(AGAIN):
        try:
            # A new object caches nothing, like a new process.
            lake = Lake(far)
            if done == 0:
                write(lake, *SAID)
                done = 1
            run(lake, models)
            reader = MemoryReader(lake, ACME, models.embedder)
            assert len(reader.search_memory("working", 0, 10_000, 10, "figs", now=NOW)) >= 1
            done = 2
            break
        except LakeError as error:
            assert "again" in str(error)  # noqa: PT017  # other errors than these end the test
            assert "\x1b" not in str(error)  # noqa: PT017
    struck = sum(proxy.counts[kind] for kind in kinds)
    proxy.faults = []
    assert done == 2, f"it did not succeed in {AGAIN} times"
    assert struck >= 3
    assert differing(lake_digest(Lake(far)), expected) == []


#: A process that builds the lake. It may be killed at each write request.
MAKE = """
import sys
from memory_pipeline.lake import Lake
from memory_pipeline.models.factory import default_models
from memory_pipeline_tests.building import run
run(Lake(sys.argv[1]), default_models())
"""


class Watcher:
    """Reads partitions repeatedly and records the number of rows of each."""

    def __init__(self, uri: str) -> None:
        self.seen: dict[tuple[str, str], set[int]] = {}
        self._lake = Lake(uri)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def look(self) -> None:
        for spec in (MESSAGES, FACTS, SUMMARIES):
            counts = Counter(self._lake.tables.read(spec, columns=["period"])["period"].to_pylist())
            for period in self.seen.keys() | {(spec.name, period) for period in counts}:
                if period[0] == spec.name:
                    self.seen.setdefault(period, {0}).add(counts[period[1]])

    def _watch(self) -> None:
        while not self._stopping.wait(1.0):
            self.look()


@pytest.mark.skipif(not IS_THOROUGH, reason="takes a process and two runs for each request; make test-thorough runs it")
@pytest.mark.parametrize("kind", ["hang", "stall"])
@pytest.mark.parametrize("after", range(200 if IS_THOROUGH else 1))
def test_the_next_run_completes_a_run_killed_at_a_request(
    far: str, proxy: FaultProxyProcess, models: Models, expected: dict[str, str], kind: str, after: int
) -> None:
    write(Lake(far), *SAID)
    # Before the request is executed, or after it is executed and before the answer.
    proxy.faults = [Fault(kind, method="PUT|DELETE|POST", after=after)]
    with Watcher(far) as watcher:
        process = subprocess.Popen([sys.executable, "-c", MAKE, far], stderr=subprocess.PIPE)
        try:
            while process.poll() is None and not proxy.wait_until_hanging(0.2):
                pass
            if process.poll() == 0:
                pytest.skip(f"the whole run has no more than {after} requests that write")
            assert process.poll() is None, process.communicate()[1].decode()
        finally:
            process.kill()
            process.communicate()
        proxy.faults = []
        run(Lake(far), models)
        watcher.look()
    assert differing(lake_digest(Lake(far)), expected) == []
    half = {period: counts for period, counts in watcher.seen.items() if len(counts) != 2}
    assert len(watcher.seen) >= 7
    assert not half, f"partitions were seen with other numbers of rows than none and all: {half}"
