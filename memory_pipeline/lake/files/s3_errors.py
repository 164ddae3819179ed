"""What a server of S3 refuses, or nobody answers, in words: what was asked, what came back, and what to do about it.

No message holds a key: servers repeat what they were sent, so that of their own words the code alone is shown.
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

#: What S3 calls a file that is not there; and a bucket.
MISSING, NO_BUCKET = "NoSuchKey", "NoSuchBucket"
#: What it says of a file that may only be created, and is there; and when others are creating it right now.
PRESENT, BUSY = ("PreconditionFailed", "412"), ("ConditionalRequestConflict", "409", "OperationAborted")

_KEYS = "see AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_WHERE = "set AWS_ENDPOINT_URL to the address of the server that holds the bucket (unset it for Amazon's)"
#: What servers say that know no condition.
UNCONDITIONAL = ("NotImplemented", "501", "InvalidArgument", "InvalidRequest", "BadRequest", "400")
#: What to do, by what S3 calls it.
_REMEDIES = {
    "AccessDenied": "let these keys list the bucket, and read, write and delete files in it: docs/s3.md has a policy",
    "AllAccessDisabled": "the bucket's owner has to open it again",
    "InvalidAccessKeyId": f"the server does not know the access key: {_KEYS}",
    "SignatureDoesNotMatch": f"the secret key does not belong to the access key: {_KEYS}",
    "ExpiredToken": "the session token has expired: fetch a new one, or name a profile or role that is renewed",
    "InvalidToken": "the session token does not belong to the keys: unset AWS_SESSION_TOKEN, or set that of these keys",
    "RequestTimeTooSkewed": "this machine's clock and the server's differ by more than 15 minutes: set it right",
    "PermanentRedirect": "the bucket lies in another region: set AWS_REGION to that",
    "InvalidBucketName": "the server accepts no bucket of that name",
    "MethodNotAllowed": f"there is no S3 there that can be written: {_WHERE}",
    "NotImplemented": "the server cannot do this: docs/s3.md says what it has to",
    "BadRequest": f"http and https may have been mixed up, or it speaks no S3: {_WHERE}",
    "NotS3": f"what answers there is no S3: {_WHERE}",
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
    """A server does not know how to create a file only if it is new.

    Attributes:
        code: what it answered.
    """

    def __init__(self, error: Exception, code: str) -> None:
        super().__init__(str(error))
        self.code = code


def code_of(error: BaseException | None) -> str:
    """Return what S3 calls an error; nothing where it did not come from a server of S3."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def explained(error: Exception, store: ObjectStore, what: str) -> MemoryPipelineError:
    """Return an error that says of another what it means.

    Args:
        error: of botocore or aiohttp, which s3fs uses.
        store: whom was asked.
        what: was asked for, as ``read s3://bucket/lake.json``.
    """
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
        return LakeError(f"nobody answers at {store.address} to {what}; start the server, or {_WHERE}")
    return _failed(error, store, what)


def _refused(error: ClientError, store: ObjectStore, what: str) -> MemoryPipelineError:
    code = code_of(error)
    if code == NO_BUCKET:
        return ConfigurationError(
            f"there is no bucket {shown(store.bucket)} at {store.address}; make it, name another with "
            f"MEMORY_PIPELINE_ROOT or --root, or {_WHERE}"
        )
    code = _OTHER_NAMES.get(code, code)
    if code in _REMEDIES:
        return ConfigurationError(f"{store.address} does not {what} ({code}); {_REMEDIES[code]}")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    return LakeError(
        f"{store.address} does not {what}: it answers {shown(code)} ({status}), time and again; it is safe to try it "
        "again"
    )


def _failed(error: Exception, store: ObjectStore, what: str) -> MemoryPipelineError:
    if isinstance(error, (HTTPClientError, IncompleteReadError, BrokenOffError)):
        return LakeError(
            f"{store.address} broke off time and again when asked to {what} ({type(error).__name__}); it is safe to "
            "try it again"
        )
    return ConfigurationError(f"{store.address} cannot be asked to {what}: {shown(str(error), 200)}; {_KEYS}")
