"""Credentials, endpoints and regions of the AWS chain apply to all libraries, and are renewed for all."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from memory_pipeline.domain.periods import Grain
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.files import s3_options as object_store_module
from memory_pipeline.lake.files.s3_options import ObjectStore
from memory_pipeline.lake.schemas import LEDGER
from memory_pipeline.steps.materialize import materialize as make_periods
from memory_pipeline_tests.building import ACME, conversation, hours, write

if TYPE_CHECKING:
    from pathlib import Path

    from memory_pipeline.models.factory import Models
    from memory_pipeline_tests.s3_server import S3Server

invents_keys = pytest.mark.skipif(
    "MEMORY_PIPELINE_TEST_S3" in os.environ, reason="its keys are made up, which only the tests' own server takes"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without AWS settings."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def keys_program(home: Path, lasting: timedelta) -> str:
    """Return a command that prints new keys at each call and counts its calls."""
    program, calls = home / "keys.sh", home / "calls"
    until = (datetime.now(UTC) + lasting).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = (
        '{"Version": 1, "AccessKeyId": "key-%s", "SecretAccessKey": "secret-%s", "SessionToken": "token-%s", '
        f'"Expiration": "{until}"}}'
    )
    program.write_text(
        f"printf x >> {calls}\nread number < {calls}\nprintf '{answer}' ${{#number}} ${{#number}} ${{#number}}\n"
    )
    return f"/bin/sh {program}"


@invents_keys
def test_a_profile_with_an_endpoint_and_a_program_for_keys_is_enough(
    home: Path, s3_server: S3Server, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All libraries can use the lake with only a profile."""
    (home / "config").write_text(
        f"[profile lakes]\nregion = eu-north-1\nendpoint_url = {s3_server.url}\n"
        f"credential_process = {keys_program(home, timedelta(hours=2))}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lakes")
    lake = Lake(s3_server.new_root())
    options = lake.storage.options or {}
    assert options["aws_endpoint"] == s3_server.url
    assert options["aws_region"] == "eu-north-1"
    assert options["aws_session_token"].startswith("token-")
    write(lake, conversation("My dog is called Rex."))
    make(lake, models)
    assert lake.index.read([ACME], ["content"], "grain = 'working'").num_rows == 2
    assert len((home / "calls").read_text()) == 1, "keys that last are asked for once"


def make(lake: Lake, models: Models) -> None:
    """Compute the hour of the conversation."""
    for _ in make_periods(lake, models, Grain.WORKING, hours("2024-01-15T08")):
        pass


@invents_keys
def test_keys_about_to_expire_are_renewed_for_open_tables_too(
    home: Path, s3_server: S3Server, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store_module, "_ASKED_EVERY", 0.0)
    (home / "config").write_text(
        f"[default]\nendpoint_url = {s3_server.url}\ncredential_process = {keys_program(home, timedelta(minutes=5))}\n"
    )
    lake = Lake(s3_server.new_root())
    write(lake, conversation("My dog is called Rex."))
    make(lake, models)
    first, second = lake.storage.options, lake.storage.options
    assert first != second, "each look hands out others"
    for attempt in range(2):
        assert lake.tables.version(LEDGER) >= 0, attempt
        handle = lake.tables._handles._handles[f"tables/{LEDGER.name}"]
        used = handle._storage_options or {}
        assert used["aws_access_key_id"].removeprefix("key-") == used["aws_session_token"].removeprefix("token-")
    assert lake.index.count(ACME, Grain.WORKING) == 2
    number = len((home / "calls").read_text())
    assert lake.tables.version(LEDGER) >= 0
    assert len((home / "calls").read_text()) > number


def test_a_failing_credential_process_is_reported(home: Path, s3_server: S3Server) -> None:
    (home / "config").write_text(f"[default]\nendpoint_url = {s3_server.url}\ncredential_process = /bin/false\n")
    with pytest.raises(ConfigurationError, match="custom-process"):
        Lake("s3://lakes/x").storage.read("y")


def test_without_keys_the_error_names_their_sources(home: Path, s3_server: S3Server) -> None:
    (home / "config").write_text(f"[default]\nendpoint_url = {s3_server.url}\n")
    with pytest.raises(ConfigurationError, match=r"there are no keys to read .*AWS_PROFILE"):
        Lake("s3://lakes/x")


@invents_keys
def test_a_role_is_assumed_for_all_libraries(
    home: Path, s3_server: S3Server, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "config").write_text(
        f"[profile base]\naws_access_key_id = test\naws_secret_access_key = test\n"
        f"[profile lakes]\nrole_arn = arn:aws:iam::123456789012:role/lakes\nsource_profile = base\n"
        f"region = us-east-1\nendpoint_url = {s3_server.url}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lakes")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_server.url)
    lake = Lake(s3_server.new_root())
    assert (lake.storage.options or {})["aws_session_token"]
    write(lake, conversation("My dog is called Rex."))
    make(lake, models)
    assert lake.index.count(ACME, Grain.WORKING) == 2


def test_the_address_style_of_the_bucket_follows_the_configuration(home: Path) -> None:
    def options(bucket: str = "lakes") -> dict[str, str]:
        found = ObjectStore.from_chain(bucket).for_rust
        return {name: found[name] for name in ("aws_virtual_hosted_style_request", "aws_endpoint") if name in found}

    (home / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert options() == {"aws_virtual_hosted_style_request": "true"}, "Amazon's own"
    assert options("with.dots") == {"aws_virtual_hosted_style_request": "false"}, "no certificate is of such a name"
    (home / "config").write_text("[default]\nendpoint_url = https://ceph.example:7443/\n")
    assert options() == {"aws_virtual_hosted_style_request": "false", "aws_endpoint": "https://ceph.example:7443"}
    (home / "config").write_text(
        "[default]\nendpoint_url = https://ceph.example:7443\ns3 =\n    addressing_style = virtual\n"
    )
    assert options() == {"aws_virtual_hosted_style_request": "true", "aws_endpoint": "https://lakes.ceph.example:7443"}
    (home / "config").write_text("[default]\ns3 =\n    addressing_style = path\n")
    assert options() == {"aws_virtual_hosted_style_request": "false"}


def test_keys_are_never_shown(home: Path) -> None:
    (home / "credentials").write_text("[default]\naws_access_key_id = AKIAX\naws_secret_access_key = hush-hush\n")
    store = ObjectStore.from_chain("lakes")
    assert store.for_rust["aws_secret_access_key"] == "hush-hush"
    assert "hush" not in repr(store)
    assert "hush" not in json.dumps(repr(store.__reduce_ex__))
