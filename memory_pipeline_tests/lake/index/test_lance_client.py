"""lancedb is imported without its REST client, which other programs of the process can still use."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from memory_pipeline.lake.index.lance_client import without_rest_client

with without_rest_client():
    import lancedb
client = {name for name in sys.modules if name.startswith("lance_namespace_urllib3_client")}
assert not client, client

from lance_namespace import ListTablesResponse

answer = ListTablesResponse(tables=["a"])
assert isinstance(answer, ListTablesResponse) and answer.tables == ["a"]
assert ListTablesResponse.from_json(answer.to_json()) == answer
from lance_namespace_urllib3_client.models import ListTablesResponse as real
assert type(answer) is real
assert not isinstance(1, ListTablesResponse)
with without_rest_client():
    assert sys.modules["lance_namespace_urllib3_client"].models.ListTablesResponse is real
"""


def test_the_rest_client_is_imported_only_if_it_is_used() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)
