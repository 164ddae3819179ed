"""How a bucket is reached: endpoint, region and credentials of the standard AWS chain, the same for every library.

The chain is that of s3fs: ``AWS_*`` variables, ``~/.aws/config`` and ``~/.aws/credentials`` with ``AWS_PROFILE``, roles
that are assumed, programs that hand out keys, web identities, and the roles of containers and machines. Deltalake and
lancedb have chains of their own, which find less and read variables differently; so they are given what s3fs found.

Credentials that are renewed are asked for again whenever somebody opens a table: see :attr:`ObjectStore.for_rust`.
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

#: Where nobody names a region.
_REGION = "us-east-1"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
#: As botocore, which would say so much later; servers that are not Amazon's allow more than Amazon.
_BUCKET = re.compile(r"[A-Za-z0-9._-]{1,255}")
#: Seconds until a connection is given up, and until an answer is that has stopped to come.
CONNECT_TIMEOUT, READ_TIMEOUT = 5, 20
#: How often a request is sent that fails for a reason that passes, and how many of them are under way at a time.
ATTEMPTS, AT_ONCE = 4, 16
#: For so many seconds keys that are renewed are not asked for again: asking may run a program.
_ASKED_EVERY = 10.0
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Where a bucket's server is, and who asks.

    Attributes:
        bucket: its name.
        endpoint: the server's address; None for Amazon's own.
        region: the bucket's.
        is_virtual: whether the bucket's name is part of the server's, as in ``bucket.s3.amazonaws.com``.
        is_single_writer: whether no two processes ever write to the lake at a time.
        files: the file system of s3fs, which sends requests, one or many at a time, and renews credentials by itself.
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
        """Ask the standard chain.

        Raises:
            ConfigurationError: the bucket's name, or something in variables or files of AWS, is not accepted.
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
            # Not all servers know the checksums that Amazon's has had since 2025.
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
        try:
            session = AioSession()
            session.register_component("data_loader", _loader())
            # botocore alone of all AWS libraries does not know AWS_REGION.
            region = bucket_region() or session.get_config_variable("region") or _REGION
            # One of its own: what was found for another root may not do for this one. No listing is kept, for it would
            # hide files that another process wrote.
            files = S3FileSystem(
                session=session,
                config_kwargs=config,
                client_kwargs={"region_name": region},
                use_listings_cache=False,
                skip_instance_cache=True,
            )
            files.retries = 1  # those of the configuration are enough
            client = files.s3
            styles = session.get_scoped_config().get("s3")
            found = sync(files.loop, session.get_credentials)
        except (BotoCoreError, ValueError) as error:  # an address that is none is a ValueError
            raise ConfigurationError(
                f"what is set for AWS is not accepted: {error}; see the variables AWS_…, ~/.aws/config and "
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
        """``storage_options`` of deltalake and lancedb, which use one library underneath.

        They change when credentials were renewed: a handle with others than these is to be opened anew.
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
    """Return what reads botocore's descriptions of services, once for all sessions: they are large."""
    from botocore.loaders import create_loader

    return create_loader()


class _Credentials:
    """Keys as they are now. Safe to use from many threads.

    Args:
        found: credentials of s3fs; None where its chain found none.
        loop: in which they are asked.
    """

    def __init__(self, found: Any | None, loop: Any) -> None:
        self._found = found
        self._loop = loop
        self._lock = threading.Lock()
        self._keys: dict[str, str] | None = None
        self._ask_at = 0.0

    def now(self) -> dict[str, str]:
        """Return the keys by the names of ``storage_options``; none where the chain found none.

        Those of a role are renewed by botocore ten minutes before they end, or earlier.
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
                f"keys for S3 cannot be had from {self._found.method}: {error}; mend that, or name other credentials "
                "(AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            ) from None
        for name, key in zip(_KEYS, (keys.access_key, keys.secret_key, keys.token), strict=True):
            if key:
                yield name, key


def _with_digest(request: Any, **_: object) -> None:
    """Add to a request the digest of its body: some servers delete nothing without it, and know no newer checksum."""
    if "Content-MD5" not in request.headers:
        request.headers["Content-MD5"] = b64encode(md5(request.data, usedforsecurity=False).digest()).decode()
