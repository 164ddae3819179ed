"""The S3 server in memory answers like S3, and is no more lenient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from memory_pipeline.lake import Lake
from memory_pipeline_tests.building import conversation, run, write
from memory_pipeline_tests.harnesses.cluster.services import ObjectServer
from memory_pipeline_tests.lake_digest import differing, lake_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memory_pipeline.models.factory import Models


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as started:
        if started._process is None:
            pytest.skip("another server takes its place")
        yield started


@pytest.fixture
def s3(server: ObjectServer) -> Iterator[Any]:
    with server.in_environment():
        once = Config(retries={"max_attempts": 0})
        session = botocore.session.Session()
        yield session.create_client("s3", region_name="us-east-1", endpoint_url=server.url, config=once)


def code(error: pytest.ExceptionInfo[ClientError]) -> int:
    return int(error.value.response["ResponseMetadata"]["HTTPStatusCode"])


def test_a_conditional_write_is_refused_unless_its_condition_holds(s3: Any) -> None:
    there = {"Bucket": "lakes", "Key": "conditions/one"}
    first = s3.put_object(**there, Body=b"one", IfNoneMatch="*")
    with pytest.raises(ClientError) as refused:
        s3.put_object(**there, Body=b"two", IfNoneMatch="*")
    assert code(refused) == 412
    second = s3.put_object(**there, Body=b"two", IfMatch=first["ETag"])
    with pytest.raises(ClientError) as refused:
        s3.put_object(**there, Body=b"three", IfMatch=first["ETag"])
    assert code(refused) == 412
    assert s3.get_object(**there)["Body"].read() == b"two"
    assert s3.head_object(**there)["ETag"] == second["ETag"]


def test_ranges_of_an_object_can_be_read(s3: Any) -> None:
    there = {"Bucket": "lakes", "Key": "ranges/a b+c%d"}
    s3.put_object(**there, Body=b"0123456789")
    for asked, expected in (("bytes=2-4", b"234"), ("bytes=7-99", b"789"), ("bytes=8-", b"89"), ("bytes=-3", b"789")):
        assert s3.get_object(**there, Range=asked)["Body"].read() == expected
    assert s3.head_object(**there)["ContentLength"] == 10
    with pytest.raises(ClientError) as refused:
        s3.get_object(**there, Range="bytes=10-")
    assert code(refused) == 416
    with pytest.raises(ClientError) as missing:
        s3.get_object(Bucket="lakes", Key="ranges/none")
    assert missing.value.response["Error"]["Code"] == "NoSuchKey"


def test_listings_have_pages_and_folders(s3: Any) -> None:
    keys = [*(f"pages/{folder}/{number:04}" for folder in ("a", "b") for number in range(7)), "pages/z"]
    for key in [*keys, "pages", "pages2/x"]:
        s3.put_object(Bucket="lakes", Key=key, Body=b"")
    found: list[str] = []
    token: dict[str, str] = {}
    pages = 0
    while True:
        page = s3.list_objects_v2(Bucket="lakes", Prefix="pages/", MaxKeys=4, **token)
        found += [entry["Key"] for entry in page.get("Contents", [])]
        pages += 1
        if not page["IsTruncated"]:
            break
        token = {"ContinuationToken": page["NextContinuationToken"]}
    assert (found, pages) == (keys, 4)
    folders: list[str] = []
    token = {}
    for _ in range(3):
        page = s3.list_objects_v2(Bucket="lakes", Prefix="pages/", Delimiter="/", MaxKeys=1, **token)
        folders += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
        folders += [entry["Key"] for entry in page.get("Contents", [])]
        token = {"ContinuationToken": page.get("NextContinuationToken", "")}
    assert folders == ["pages/a/", "pages/b/", "pages/z"]
    assert not page["IsTruncated"]
    after = s3.list_objects_v2(Bucket="lakes", Prefix="pages/", StartAfter="pages/b/0005")["Contents"]
    assert [entry["Key"] for entry in after] == ["pages/b/0006", "pages/z"]
    s3.delete_objects(Bucket="lakes", Delete={"Objects": [{"Key": key} for key in keys[:-1]]})
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket="lakes", Prefix="pages/")["Contents"]] == ["pages/z"]


def test_a_multipart_upload_is_visible_once_complete(s3: Any) -> None:
    there = {"Bucket": "lakes", "Key": "uploads/one"}
    upload = s3.create_multipart_upload(**there)["UploadId"]
    for number in (2, 1):
        s3.upload_part(**there, UploadId=upload, PartNumber=number, Body=str(number).encode() * 3)
    with pytest.raises(ClientError):
        s3.head_object(**there)
    parts = [{"PartNumber": number, "ETag": "any"} for number in (1, 2)]
    s3.complete_multipart_upload(**there, UploadId=upload, MultipartUpload={"Parts": parts})
    s3.copy_object(Bucket="lakes", Key="uploads/two", CopySource=there)
    assert s3.get_object(Bucket="lakes", Key="uploads/two")["Body"].read() == b"111222"


def test_a_lake_on_the_server_equals_a_lake_in_a_folder(server: ObjectServer, tmp_path: Path, models: Models) -> None:
    with server.in_environment():
        lakes = [Lake(server.new_root()), Lake(str(tmp_path / "lake"))]
        for lake in lakes:
            write(lake, conversation("I moved to Porto.", "I like figs."))
            run(lake, models)
        assert differing(lake_digest(lakes[0]), lake_digest(lakes[1])) == []
