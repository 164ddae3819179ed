"""Errors of an S3 server, as messages: what was requested, what came back, and what to do.

No message contains a key: servers repeat what they were sent, so only their error code is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import ClientError as BrokenOffError
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError

from memory_pipeline.errors import ConfigurationError, LakeError, MemoryPipelineError, shown

if TYPE_CHECKING:
    from memory_pipeline.lake.files.s3_options import ObjectStore

#: S3's codes for a missing file and a missing bucket.
MISSING, NO_BUCKET = "NoSuchKey", "NoSuchBucket"
#: Codes for a conditional write to an existing file, and while others are creating the same file.
PRESENT, BUSY = ("PreconditionFailed", "412"), ("ConditionalRequestConflict", "409", "OperationAborted")

_KEYS = "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_WHERE = "set AWS_ENDPOINT_URL to the address of the server that holds the bucket (unset it for Amazon's)"
#: Codes of servers that do not support conditional writes.
UNCONDITIONAL = ("NotImplemented", "501", "InvalidArgument", "InvalidRequest", "BadRequest", "400")
#: Remedies, by S3's error code.
_REMEDIES = {
    "AccessDenied": "let these keys list the bucket, and read, write and delete files in it: docs/s3.md has a policy",
    "AllAccessDisabled": "the bucket's owner has to open it again",
    "InvalidAccessKeyId": f"the server does not know the access key: {_KEYS}",
    "SignatureDoesNotMatch": f"the secret key does not belong to the access key: {_KEYS}",
    "ExpiredToken": "the session token has expired: fetch a new one, or name a profile or role that is renewed",
    "InvalidToken": "the session token does not belong to the keys: unset AWS_SESSION_TOKEN, or set that of these keys",
    "RequestTimeTooSkewed": "this machine's clock and the server's differ by more than 15 minutes: set it right",
    "PermanentRedirect": "the bucket is in another region: set AWS_REGION to that",
    "InvalidBucketName": "the server accepts no bucket of that name",
    "MethodNotAllowed": f"no writable S3 server answers there: {_WHERE}",
    "NotImplemented": "the server does not support this: docs/s3.md lists the requirements",
    "BadRequest": f"http and https may be mixed up, or it is not an S3 server: {_WHERE}",
    "NotS3": f"the server that answers there is not S3: {_WHERE}",
}
_OTHER_NAMES = {
    "403": "AccessDenied",
    "Forbidden": "AccessDenied",
    "ExpiredTokenException": "ExpiredToken",
    "TokenRefreshRequired": "ExpiredToken",
    "InvalidClientTokenId": "InvalidAccessKeyId",
    "UnrecognizedClientException": "InvalidAccessKeyId",
    "301": "PermanentRedirect",
    "307": "PermanentRedirect",
    "TemporaryRedirect": "PermanentRedirect",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "IllegalLocationConstraintException": "PermanentRedirect",
    "405": "MethodNotAllowed",
    "501": "NotImplemented",
    "400": "BadRequest",
    "404": "NotS3",
}


class NoConditionError(ConfigurationError):
    """A server does not support creating a file only if it is absent; `code` is its error code."""

    def __init__(self, error: Exception, code: str) -> None:
        super().__init__(str(error))
        self.code = code


def code_of(error: BaseException | None) -> str:
    """Return S3's code for an error, or an empty text for errors that are not S3's."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def explained(error: Exception, store: ObjectStore, what: str) -> MemoryPipelineError:
    """Return an error that explains one of botocore or aiohttp. `what` is the request: ``read s3://b/lake.json``."""
    if isinstance(error, ClientError):
        return _refused(error, store, what)
    if isinstance(error, NoCredentialsError):
        return ConfigurationError(f"there are no keys to {what} with; {_KEYS}")
    if isinstance(error, SSLError):
        return ConfigurationError(
            f"no secure connection to {store.address} can be made to {what}; if the server speaks plain http, say so "
            "in AWS_ENDPOINT_URL; if an authority of your own signs its certificate, name that in AWS_CA_BUNDLE and "
            "SSL_CERT_FILE"
        )
    if isinstance(error, ResponseParserError):
        return ConfigurationError(f"{store.address} does not {what}; {_REMEDIES['NotS3']}")
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)):
        return LakeError(f"no server answers at {store.address} to {what}; start the server, or {_WHERE}")
    return _failed(error, store, what)


def _refused(error: ClientError, store: ObjectStore, what: str) -> MemoryPipelineError:
    code = code_of(error)
    if code == NO_BUCKET:
        return ConfigurationError(
            f"there is no bucket {shown(store.bucket)} at {store.address}; create it, name another with "
            f"MEMORY_PIPELINE_ROOT or --root, or {_WHERE}"
        )
    code = _OTHER_NAMES.get(code, code)
    if code in _REMEDIES:
        return ConfigurationError(f"{store.address} does not {what} ({code}); {_REMEDIES[code]}")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    return LakeError(
        f"{store.address} does not {what}: it answers {shown(code)} ({status}), repeatedly; it is safe to try again"
    )


def _failed(error: Exception, store: ObjectStore, what: str) -> MemoryPipelineError:
    if isinstance(error, (HTTPClientError, IncompleteReadError, BrokenOffError)):
        return LakeError(
            f"{store.address} broke off repeatedly when asked to {what} ({type(error).__name__}); it is safe to try "
            "again"
        )
    return ConfigurationError(f"{store.address} cannot be asked to {what}: {shown(str(error), 200)}; {_KEYS}")
