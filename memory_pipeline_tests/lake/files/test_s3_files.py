"""Files of a bucket on a real server: pages, odd names, large files, failed deletions, and error messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memory_pipeline.errors import ConfigurationError, LakeError, MemoryPipelineError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files import s3_files as bucket_module
from memory_pipeline.lake.files.s3_files import Bucket
from memory_pipeline.lake.files.s3_options import ObjectStore
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline_tests.fault_proxy import Fault, FaultProxy
from memory_pipeline_tests.lake.odd_servers import refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline_tests.s3_server import S3Server

ODD = [
    "a b/c+d",
    "a/100%25",
    "a/100%",
    "é/ü",
    "日本/語",
    "a/b?c=d&e",
    "a/#x",
    "a/'quoted'",
    "a/~t",
    "a/=x",
    "a//b",
    "a/&lt;",
]


@pytest.fixture
def storage(s3_root: str) -> Storage:
    return Storage(s3_root)


@pytest.fixture
def proxied(s3_server: S3Server) -> Iterator[tuple[Storage, FaultProxy]]:
    """A lake's files behind a proxy that injects faults."""
    with FaultProxy(s3_server.url) as proxy, s3_server.in_environment(proxy.url):
        storage = Storage(s3_server.new_root())
        storage.require_creating()
        proxy.reset_counts()
        yield storage, proxy


def test_unusual_names_round_trip(storage: Storage) -> None:
    for name in ODD:
        storage.write(name, name.encode())
    assert [entry.path for entry in storage.list("")] == sorted(ODD)
    assert {name: storage.read(name) for name in ODD} == {name: name.encode() for name in ODD}
    assert {"a b", "é", "日本"} < {*storage.folders("")}
    assert not storage.create(ODD[0], b"")
    storage.delete(ODD[:-1])
    assert [entry.path for entry in storage.list("")] == ODD[-1:]
    storage.remove(ODD[-1].partition("/")[0])
    assert storage.list("") == []


def test_more_files_than_a_page_are_listed_and_deleted(
    proxied: tuple[Storage, FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, proxy = proxied
    monkeypatch.setattr(bucket_module, "_PAGE", 10)
    monkeypatch.setattr(bucket_module, "_BULK", 10)
    names = [f"d/{number:04}" for number in range(11)]
    for name in names:
        storage.write(name, b"x")
    storage.write("e", b"x")
    proxy.reset_counts()
    assert [entry.path for entry in storage.list("d")] == names
    assert storage.sizes(names[-2:], "d") == dict.fromkeys(names[-2:], 1)
    assert proxy.counts["LIST"] == 4
    proxy.reset_counts()
    storage.delete(names)
    assert proxy.requests == 2, "ten at a time"
    assert [entry.path for entry in storage.list("")] == ["e"]


def test_each_operation_costs_one_request(proxied: tuple[Storage, FaultProxy]) -> None:
    storage, proxy = proxied
    for look in (
        lambda: storage.write("a/b", b"123"),
        lambda: storage.read("a/b"),
        lambda: storage.read("a/missing"),
        lambda: storage.create("a/c", b""),
        lambda: storage.list("a"),
        lambda: storage.list("missing"),
        lambda: storage.folders("missing"),
        lambda: storage.has("a"),
        lambda: storage.is_there("a/b"),
        lambda: storage.arrow_filesystem().open_input_file(storage.file_path("a/b")).read(),
        lambda: storage.delete(["a/b", "a/c", "a/missing"]),
    ):
        proxy.reset_counts()
        look()
        assert proxy.requests == 1


def test_a_missing_file_is_reported(storage: Storage) -> None:
    assert storage.read("x") is None
    assert not storage.is_there("x")
    assert not storage.has("x")
    with pytest.raises(FileNotFoundError):
        storage.arrow_filesystem().open_input_file(storage.file_path("x"))


@pytest.mark.parametrize("whole", [64, 10_000, 4 * 2**20])
def test_parquet_files_of_any_size_round_trip(storage: Storage, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "_WHOLE", whole)
    rows = pa.table({"a": range(20_000), "b": [f"text {number % 977}" for number in range(20_000)]})
    files, path = storage.arrow_filesystem(), storage.file_path("d/x.parquet")
    with files.open_output_stream(path) as file:
        pq.write_table(rows, file, row_group_size=5_000)
        size = file.tell()
    assert storage.list("d")[0].size == size
    assert pq.read_table(path, filesystem=files) == rows
    assert pq.read_table(path, filesystem=files, columns=["b"], filters=[("a", "=", 19_999)])["b"].to_pylist() == [
        "text 459"
    ]


def test_a_truncated_answer_is_never_accepted(proxied: tuple[Storage, FaultProxy]) -> None:
    storage, proxy = proxied
    lines = b"".join(b'{"line": %d}\n' % number for number in range(1_000))
    storage.write("a", lines)
    proxy.faults = [Fault("half", method="GET", times=2)]
    assert storage.read("a") == lines
    proxy.faults = [Fault("half", method="GET", times=None)]
    with pytest.raises(LakeError, match="broke off repeatedly when asked to read s3://"):
        storage.read("a")


def test_temporary_faults_are_retried(proxied: tuple[Storage, FaultProxy]) -> None:
    storage, proxy = proxied
    for kind in ("500", "503", "reset", "lost"):
        proxy.faults = [Fault(kind, times=1)]
        storage.write("a", kind.encode())
        proxy.faults = [Fault(kind, times=1)]
        assert storage.read("a") == kind.encode()
        proxy.faults = [Fault(kind, times=1)]
        assert [entry.path for entry in storage.list("")] == ["a"]
    proxy.faults = [Fault("503", times=None)]
    with pytest.raises(LakeError, match="it is safe to try again"):
        storage.write("a", b"")


def test_failed_deletions_are_reported(proxied: tuple[Storage, FaultProxy]) -> None:
    """Erasure relies on it."""
    storage, proxy = proxied
    for name in ("d/a", "d/b", "d/c"):
        storage.write(name, b"x")
    proxy.faults = [Fault("500", method="POST|DELETE", times=None)]
    deletions: list[Callable[[], object]] = [lambda: storage.remove("d"), lambda: storage.delete(["d/a"])]
    for delete in deletions:
        with pytest.raises(LakeError, match="does not delete"):
            delete()
    proxy.faults = []
    assert len(storage.list("d")) == 3


def test_servers_without_bulk_delete_delete_one_by_one(
    storage: Storage, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore.from_chain(s3_root.split("/")[2])
    with refusing(501, "NotImplemented") as server, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        narrow = ObjectStore.from_chain(store.bucket)
    prefix = s3_root.split("/")[3]
    bucket = Bucket(store)
    for name in ("a", "b", "c"):
        storage.write(name, b"x")
    monkeypatch.setattr(store.files.s3, "delete_objects", narrow.files.s3.delete_objects, raising=False)
    with refusing(501, "NotImplemented") as server:
        narrow.files.s3.meta.events.register(
            "before-send.s3", lambda request, **_: setattr(request, "url", server.url + "/x?delete")
        )
        bucket.delete([f"{prefix}/{name}" for name in ("a", "b", "c", "missing")])
        assert len(server.asked) == 1
    assert storage.list("") == []


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (404, "NoSuchBucket", ConfigurationError, "there is no bucket 'b' at http://127.*MEMORY_PIPELINE_ROOT"),
        (403, "AccessDenied", ConfigurationError, r"does not read s3://b/x/y \(AccessDenied\); let these keys"),
        (403, "InvalidAccessKeyId", ConfigurationError, "does not know the access key: see AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", ConfigurationError, "secret key does not belong"),
        (400, "ExpiredToken", ConfigurationError, "session token has expired"),
        (403, "RequestTimeTooSkewed", ConfigurationError, "clock"),
        (400, "AuthorizationHeaderMalformed", ConfigurationError, "another region: set AWS_REGION"),
        (400, "InvalidBucketName", ConfigurationError, "accepts no bucket of that name"),
        (405, "MethodNotAllowed", ConfigurationError, "AWS_ENDPOINT_URL"),
        (418, "Teapot", LakeError, r"answers 'Teapot' \(418\)"),
    ],
)
def test_errors_of_a_server_name_the_remedy(
    status: int, code: str, kind: type[MemoryPipelineError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA0123456789ABCDEF")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-indeed")
    with refusing(status, code, "you sent AKIA0123456789ABCDEF and very-secret-indeed") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        storage = Storage("s3://b/x")
        with pytest.raises(kind, match=words) as refused:
            storage.read("y")
        assert len(server.asked) == 1, "such errors do not pass"
        assert "AKIA" not in f"{refused.value!r}"
        assert "very-secret" not in f"{refused.value!r}{storage.__dict__}"


def test_redirects_are_not_followed_endlessly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with refusing(301, "PermanentRedirect") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(ConfigurationError, match="set AWS_REGION to"):
            Storage("s3://b/x").read("y")


def test_a_server_that_is_not_s3_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with refusing(404, "", "<html>hello", is_xml=False) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(ConfigurationError, match="the server that answers there is not S3"):
            Storage("s3://b/x").list("")
    with refusing(200, "", "<html>hello", is_xml=False) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(LakeError, match=r"lake.json is not a lake manifest: not valid JSON.*AWS_ENDPOINT_URL"):
            Lake("s3://b/x")


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "https://127.0.0.1:1"])
def test_an_unreachable_server_is_reported_quickly(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(LakeError, match=f"no server answers at {address} to read s3://b/x/y; .*AWS_ENDPOINT_URL"):
        Storage("s3://b/x").read("y")


def test_plain_http_at_an_https_address_is_reported(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with (
        s3_server.in_environment(s3_server.url.replace("http:", "https:")),
        pytest.raises(ConfigurationError, match="if the server speaks plain http, say so in AWS_ENDPOINT_URL"),
    ):
        Storage("s3://b/x").read("y")


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 256, "a?b"])
def test_an_invalid_bucket_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected letters, digits"):
        Storage(f"s3://{name}/x")


@pytest.mark.parametrize(
    ("variable", "value"),
    [("AWS_PROFILE", "nobody"), ("AWS_ENDPOINT_URL", "127.0.0.1:99"), ("AWS_REGION", "not a region")],
)
def test_invalid_variables_are_named(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=f"the settings for AWS are not accepted: .*{value}"):
        Storage("s3://b/x")
