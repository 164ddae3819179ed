"""How a bucket is reached: endpoint, region and credentials of the standard AWS chain, the same for every library.

The chain is botocore's: ``AWS_*`` variables, ``~/.aws/config`` and ``~/.aws/credentials`` with ``AWS_PROFILE``, web
identities, and the roles of containers and machines. Variables and files mean the same to fsspec, to deltalake and to
lancedb that way, which read them differently: an ``endpoint_url`` of a profile, say, or ``AWS_REGION``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memory_pipeline.settings import bucket_region

#: Where nobody names a region.
_REGION = "us-east-1"
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Where a bucket's server is, and who asks.

    Attributes:
        endpoint: the server's address; None for Amazon's own.
        region: the bucket's.
        keys: access key, secret key and session token (which may be empty) where the chain found lasting ones. Of
            credentials that are renewed, such as a role's, each library fetches its own.
    """

    endpoint: str | None
    region: str
    keys: tuple[str, str, str] | None = field(default=None, repr=False)

    @classmethod
    def from_chain(cls) -> ObjectStore:
        """Ask the standard chain."""
        import botocore.session

        session = botocore.session.get_session()
        # botocore alone of all AWS libraries does not know AWS_REGION.
        region = bucket_region() or session.get_config_variable("region") or _REGION
        endpoint: str = session.create_client("s3", region_name=region).meta.endpoint_url
        found = session.get_credentials()
        keys = None
        if found is not None and not hasattr(found, "refresh_needed"):
            keys = (found.access_key, found.secret_key, found.token or "")
        return cls(None if endpoint.endswith(_AMAZON) else endpoint, region, keys)

    @property
    def for_fsspec(self) -> dict[str, Any]:
        """Arguments of the file system, which knows the chain itself."""
        arguments: dict[str, Any] = {"client_kwargs": {"region_name": self.region}, "endpoint_url": self.endpoint}
        if self.keys is not None:
            arguments |= dict(zip(("key", "secret", "token"), (key or None for key in self.keys), strict=True))
        return arguments

    @property
    def for_rust(self) -> dict[str, str]:
        """``storage_options`` of deltalake and lancedb, which use one library underneath."""
        options = {"aws_region": self.region}
        if self.endpoint is not None:
            options |= {"aws_endpoint": self.endpoint, "allow_http": str(self.endpoint.startswith("http://")).lower()}
        if self.keys is not None:
            names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
            options |= {name: key for name, key in zip(names, self.keys, strict=True) if key}
        return options
