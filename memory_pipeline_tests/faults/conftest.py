"""A lake on S3 behind a proxy that injects faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memory_pipeline_tests.fault_proxy import FaultProxyProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline_tests.s3_server import S3Server


@pytest.fixture(scope="session")
def proxy_process(s3_server: S3Server) -> Iterator[FaultProxyProcess]:
    """A proxy in front of the S3 server, for all tests, because it starts slowly.

    It is a separate process, because some calls of deltalake hold the GIL while they wait for an answer.
    """
    with FaultProxyProcess(s3_server.url) as proxy:
        yield proxy


@pytest.fixture
def proxy(s3_server: S3Server, proxy_process: FaultProxyProcess) -> Iterator[FaultProxyProcess]:
    """A proxy in front of the S3 server, without faults. The environment names the proxy."""
    proxy_process.stats(faults=[], latency=0.0, reset=True, seed=1)
    with s3_server.in_environment(proxy_process.url):
        yield proxy_process


@pytest.fixture
def far(s3_server: S3Server, proxy: FaultProxyProcess) -> str:
    """The address of a lake behind the proxy that does not exist yet."""
    del proxy
    return s3_server.new_root()
