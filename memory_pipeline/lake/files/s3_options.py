"""Endpoint, region and credentials of a bucket, from the standard AWS chain, the same for every library.

The chain is that of s3fs: ``AWS_*`` variables, ``~/.aws/config`` and ``~/.aws/credentials`` with ``AWS_PROFILE``,
assumed roles, credential processes, web identities, and the roles of containers and machines. The chains of deltalake
and lancedb find less and read variables differently, so these libraries receive what s3fs found.

Renewable credentials are requested again whenever a table is opened: see :attr:`ObjectStore.for_rust`.
"""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from dataclasses import dataclass, field
from functools import cache
from hashlib import md5
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fsspec.asyn import sync

from memory_pipeline.errors import ConfigurationError, shown
from memory_pipeline.lake.files.storage_errors import LIMITS
from memory_pipeline.settings import bucket_region, has_single_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The default region.
_REGION = "us-east-1"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
#: botocore checks this too, but much later. Other servers allow more than Amazon.
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
#: Timeouts in seconds, for connecting and for an answer that stops.
CONNECT_TIMEOUT, READ_TIMEOUT = 5, 20
#: Number of attempts of a request that fails temporarily, and number of concurrent requests.
ATTEMPTS, AT_ONCE = 4, 16
#: Renewable credentials are cached for this many seconds, because requesting them may run a program.
_ASKED_EVERY = 10.0
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Address of a bucket's server, and credentials.

    Attributes:
        endpoint: the server's address; None for Amazon's.
        is_virtual: whether the server's name contains the bucket's, as in ``bucket.s3.amazonaws.com``.
        is_single_writer: whether no two processes ever write to the lake at the same time.
        files: the file system of s3fs, which sends the requests and renews credentials.
    """

    bucket: str
    endpoint: str | None
    region: str
    is_virtual: bool
    is_single_writer: bool
    files: Any = field(repr=False, compare=False)
    _credentials: _Credentials = field(repr=False, compare=False)

    @classmethod
    def from_chain(cls, bucket: str) -> ObjectStore:
        """Return the settings of the standard chain.

        Raises:
            ConfigurationError: the bucket's name, or a variable or file of AWS, is invalid.
        """
        if not _BUCKET.fullmatch(bucket):
            raise ConfigurationError(
                f"bucket {shown(bucket)} is not accepted; expected letters, digits, '.', '_' and '-', as in "
                "s3://bucket/prefix"
            )
        from aiobotocore.session import AioSession
        from botocore.exceptions import BotoCoreError
        from s3fs import S3FileSystem

        config = {
            "connect_timeout": CONNECT_TIMEOUT,
            "read_timeout": READ_TIMEOUT,
            "max_pool_connections": 2 * AT_ONCE,
            "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
            # Not all servers support the checksums that Amazon introduced in 2025.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
        try:
            session = AioSession()
            session.register_component("data_loader", _loader())
            # Of all AWS libraries, only botocore ignores AWS_REGION.
            region = bucket_region() or session.get_config_variable("region") or _REGION
            # Not cached: an instance for another root may not fit, and cached listings would hide files that others
            # have written.
            files = S3FileSystem(
                session=session,
                config_kwargs=config,
                client_kwargs={"region_name": region},
                use_listings_cache=False,
                skip_instance_cache=True,
            )
            files.retries = 1  # the configuration already retries
            client = files.s3
            styles = session.get_scoped_config().get("s3")
            found = sync(files.loop, session.get_credentials)
        except (BotoCoreError, ValueError) as error:  # an invalid address is a ValueError
            raise ConfigurationError(
                f"the settings for AWS are not accepted: {error}; check the variables AWS_…, ~/.aws/config and "
                "~/.aws/credentials"
            ) from None
        client.meta.events.register("before-sign.s3.DeleteObjects", _with_digest)
        endpoint: str = client.meta.endpoint_url
        is_amazons = endpoint.endswith(_AMAZON)
        style = styles.get("addressing_style") if isinstance(styles, dict) else None
        is_virtual = style == "virtual" or (is_amazons and style != "path" and "." not in bucket)
        return cls(
            bucket,
            None if is_amazons else endpoint,
            region,
            is_virtual,
            has_single_writer(),
            files,
            _Credentials(found, files.loop),
        )

    @property
    def address(self) -> str:
        """The server's address, for messages."""
        return self.endpoint or f"Amazon S3 ({self.region})"

    @property
    def for_rust(self) -> dict[str, str]:
        """``storage_options`` of deltalake and lancedb, which share a library.

        They change when credentials are renewed; handles with older ones must be reopened.
        """
        options = LIMITS | {"aws_region": self.region, "aws_virtual_hosted_style_request": str(self.is_virtual).lower()}
        if self.endpoint is not None:
            parts = urlsplit(self.endpoint)
            host = f"{self.bucket}.{parts.netloc}" if self.is_virtual else parts.netloc
            options["aws_endpoint"] = f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
            options["allow_http"] = str(parts.scheme == "http").lower()
        return options | dict(self._credentials.now())


@cache
def _loader() -> Any:
    """Return botocore's loader of service descriptions. Shared, because these are large."""
    from botocore.loaders import create_loader

    return create_loader()


class _Credentials:
    """The current credentials; none if `found` is None. Safe to use from many threads."""

    def __init__(self, found: Any | None, loop: Any) -> None:
        self._found = found
        self._loop = loop
        self._lock = threading.Lock()
        self._keys: dict[str, str] | None = None
        self._ask_at = 0.0

    def now(self) -> dict[str, str]:
        """Return the credentials by the names of ``storage_options``; empty if the chain found none.

        botocore renews those of a role ten minutes before they expire, or earlier.
        """
        with self._lock:
            is_renewed = hasattr(self._found, "refresh_needed")
            if self._keys is None or (is_renewed and monotonic() >= self._ask_at):
                self._keys = dict(self._ask())
                self._ask_at = monotonic() + _ASKED_EVERY
            return self._keys

    def _ask(self) -> Iterator[tuple[str, str]]:
        if self._found is None:
            return
        from botocore.exceptions import BotoCoreError

        try:
            keys = sync(self._loop, self._found.get_frozen_credentials)
        except (BotoCoreError, RuntimeError) as error:
            raise ConfigurationError(
                f"keys for S3 cannot be obtained from {self._found.method}: {error}; fix that, or name others "
                "(AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            ) from None
        for name, key in zip(_KEYS, (keys.access_key, keys.secret_key, keys.token), strict=True):
            if key:
                yield name, key


def _with_digest(request: Any, **_: object) -> None:
    """Add the digest of its body to a request: some servers need it for deletes and know no newer checksum."""
    if "Content-MD5" not in request.headers:
        request.headers["Content-MD5"] = b64encode(md5(request.data, usedforsecurity=False).digest()).decode()
