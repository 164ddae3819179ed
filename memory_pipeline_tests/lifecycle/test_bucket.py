"""The whole command-line workflow on S3: ingest, run, search, check, expire and erase, down to every key."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import botocore.session
import pytest

from memory_pipeline.analytics import Warehouse, models_of
from memory_pipeline.domain.periods import Grain
from memory_pipeline.erasure.verification import old_versions
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files.storage import Storage
from memory_pipeline.lake.schemas import MESSAGES
from memory_pipeline.steps.materialize import materialize
from memory_pipeline_tests.building import ACME, conversation, hours, run, write
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.invoking import call, read

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.s3_server import S3Server

SECRET = b"Zanzibar"
NOW = "2024-03-01T12:00"
_WHO = ("--workspace", "acme", "--agent", "support")


def keys_with(root: str, word: bytes) -> list[str]:
    storage = Storage(root)
    return [entry.path for entry in storage.list("") if word in (storage.read(entry.path) or b"")]


def ingested(s3_root: str, tmp_path: Path) -> Lake:
    """Return a lake with two conversations in the journal and a rejected record, written by the command line."""
    lines = tmp_path / "said.jsonl"
    said = [
        conversation("I prefer tea to coffee.", "My dog is called Rex.", at="2024-01-15T09:05"),
        conversation("I will move to Zanzibar.", at="2024-01-15T09:25", conversation_id="c2", name="Bert"),
        {**conversation("Hello."), "agent_id": ""},
    ]
    lines.write_text("".join(json.dumps(record) + "\n" for record in said))
    call("ingest", str(lines), "--now", NOW, "--root", s3_root)
    lake = Lake(s3_root)
    assert len(lake.journal.quarantined()) == 1
    return lake


def test_erased_data_is_gone_from_every_key_of_a_bucket(s3_root: str, tmp_path: Path, models: Models) -> None:
    lake = ingested(s3_root, tmp_path)
    list(materialize(lake, models, Grain.WORKING, hours("2024-01-15T09")))
    assert lake.journal.pending() == []
    assert "Rex" in json.dumps(read("search", "dog", *_WHO, "--now", NOW, "--root", s3_root))
    receipt = tmp_path / "receipt.json"
    assert keys_with(s3_root, SECRET)
    where = ("--now", NOW, "--root", s3_root)
    done = call("forget", *_WHO, "--conversation", "c2", "--yes", "--receipt", str(receipt), *where)
    assert done.exit_code == 0, done.output
    assert "keeps versions" not in done.output
    assert keys_with(s3_root, SECRET) == []
    assert keys_with(s3_root, b"Rex")
    verified = call("verify-erasure", str(receipt), "--root", s3_root)
    assert "nothing is left" in verified.output
    assert "versions" not in verified.output


@pytest.mark.skipif(not IS_THOROUGH, reason="takes a minute; make test-thorough runs it")
def test_a_lake_on_s3_is_summarized_checked_analysed_and_expires(s3_root: str, tmp_path: Path, models: Models) -> None:
    where = ("--root", s3_root)
    lake = ingested(s3_root, tmp_path)
    run(lake, models, datetime.fromisoformat(f"{NOW}+00:00"))
    checked = call("check", "--now", NOW, *where)
    assert checked.exit_code == 0, checked.output
    marts = {model.name for model in models_of("marts")}
    assert {name for name, _ in Warehouse(lake).build_all(marts)} == marts
    configuration = tmp_path / "workspaces.yaml"
    configuration.write_text("defaults:\n  retention: {working: 30d, conversations: 30d}\n")
    assert call("config", "--put", str(configuration), *where).exit_code == 0
    expired = call("expire", "--now", NOW, *where)
    assert expired.exit_code == 0, expired.output
    assert lake.tables.read(MESSAGES).num_rows == 0
    assert lake.index.count(ACME, Grain.WORKING) == 0
    assert lake.index.count(ACME, Grain.DAILY) == 1
    assert call("check", "--now", NOW, *where).exit_code == 0


def test_a_bucket_with_versioning_is_reported(s3_server: S3Server, s3_root: str, tmp_path: Path) -> None:
    bucket = "with-versions"
    client = botocore.session.Session().create_client("s3", region_name="us-east-1", endpoint_url=s3_server.url)
    client.create_bucket(Bucket=bucket)
    assert old_versions(Lake(s3_root)) == []
    lake = Lake(f"s3://{bucket}/lake")
    assert old_versions(lake) == []
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    [said] = old_versions(lake)
    assert "keeps versions of files that were deleted or overwritten" in said
    assert "docs/s3.md" in said
    write(lake, conversation("I will move to Zanzibar in May."))
    receipt = tmp_path / "receipt.json"
    done = call("forget", *_WHO, "--yes", "--receipt", str(receipt), "--now", NOW, "--root", lake.storage.uri)
    assert said in done.output
    verified = call("verify-erasure", str(receipt), "--root", lake.storage.uri)
    assert verified.exit_code == 0
    assert "nothing is left" in verified.output
    assert f"not searched: {said}" in verified.output
