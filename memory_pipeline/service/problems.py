"""Errors as problem details, by RFC 9457."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from memory_pipeline.errors import (
    AccessDeniedError,
    ConfigurationError,
    InputError,
    LakeError,
    MemoryPipelineError,
    MissingExtraError,
    VersionConflictError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONTENT_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:memory-pipeline:problem:"

_log = logging.getLogger(__name__)

#: The JSON schema of a problem.
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "title": "Problem",
    "description": "An error, by RFC 9457.",
    "properties": {
        "type": {"type": "string", "description": f"the kind of error, such as {_TYPE}invalid-input."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "what is wrong, and what to do about it."},
        "errors": {
            "type": "array",
            "description": "the invalid parts of the request.",
            "items": {
                "type": "object",
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                "required": ["pointer", "detail"],
            },
        },
    },
    "required": ["type", "title", "status", "detail"],
}

#: Errors of the library: the kind, and the status. The first that fits counts.
_KINDS: Final[tuple[tuple[type[Exception], str, HTTPStatus], ...]] = (
    (AccessDeniedError, "access-denied", HTTPStatus.FORBIDDEN),
    (InputError, "invalid-input", HTTPStatus.UNPROCESSABLE_ENTITY),
    (VersionConflictError, "version-conflict", HTTPStatus.CONFLICT),
    (MissingExtraError, "not-installed", HTTPStatus.NOT_IMPLEMENTED),
    (ConfigurationError, "configuration", HTTPStatus.SERVICE_UNAVAILABLE),
    (LakeError, "lake", HTTPStatus.SERVICE_UNAVAILABLE),
    (MemoryPipelineError, "failed", HTTPStatus.INTERNAL_SERVER_ERROR),
)


#: Titles by RFC 9110. Python before 3.13 has those of an earlier one.
_TITLES: Final = {413: "Content Too Large", 422: "Unprocessable Content"}


def title_of(status: HTTPStatus) -> str:
    """Return the title of a status, the same on each version of Python."""
    return _TITLES.get(status, status.phrase)


class ProblemError(Exception):
    """An answer that is a problem."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Iterable[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.headers = dict(headers or {})
        self.errors = [*errors]

    @property
    def record(self) -> dict[str, object]:
        """The problem as a JSON object."""
        found = {"type": f"{_TYPE}{self.kind}", "title": title_of(self.status), "status": int(self.status)}
        return found | {"detail": self.detail} | ({"errors": self.errors} if self.errors else {})

    def response(self) -> Response:
        """Return the answer."""
        data = json.dumps(self.record, ensure_ascii=False).encode(errors="backslashreplace")
        return Response(data, int(self.status), self.headers, CONTENT_TYPE)


def problem_of(error: Exception) -> ProblemError:
    """Return an error as a problem. What is no error of this package is logged, and not shown to the client."""
    if isinstance(error, ProblemError):
        return error
    for of, kind, status in _KINDS:
        if isinstance(error, of):
            headers = {"Retry-After": "5"} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
            return ProblemError(status, kind, str(error), headers=headers)
    _log.error("a request failed", exc_info=error)
    return ProblemError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the service failed; its log has the traceback, please report it"
    )
