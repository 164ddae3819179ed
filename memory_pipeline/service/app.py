"""The application: routes, documentation and errors. `server` listens, `gate` lets requests in."""

from __future__ import annotations

from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import MemoryPipelineError
from memory_pipeline.service import problems
from memory_pipeline.service.callers import USER_HEADER, Callers, OpenMemories
from memory_pipeline.service.endpoints import add_route, operation_response, problem_responses
from memory_pipeline.service.gate import Gate
from memory_pipeline.service.health import add_health
from memory_pipeline.service.hooks import add_hooks
from memory_pipeline.service.mcp_http import McpOverHttp
from memory_pipeline.service.operations import BackgroundWork, Operations
from memory_pipeline.service.problems import ProblemError, problem_of, title_of
from memory_pipeline.service.results import Schemas
from memory_pipeline.service.routes import ROUTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from memory_pipeline.lake import Lake

_ABOUT: Final = f"""Long-term memory for AI agents.

Send `Authorization: Bearer TOKEN`. A token opens the memory of one agent or user; with a token for many users, name the
user of each request in `{USER_HEADER}`. A list is an object with `items`. Errors are problem details (RFC 9457).

What takes long (erasing, correcting, running the pipeline) answers 202 with an operation; ask for it at its `Location`.
A write that was answered with 201 is durable.
"""
#: Requests a second of one token, and the size of a body in bytes, by default.
RATE, MOST_BYTES = 100.0, 4 * 2**20
#: Memories that stay open.
MOST_OPEN: Final = 1_000


def service_app(
    lake: Lake,
    default: Scope | None = None,
    *,
    allows_open: bool = False,
    rate: float = RATE,
    max_bytes: int = MOST_BYTES,
    most_open: int = MOST_OPEN,
    origins: tuple[str, ...] = (),
    auto_run: bool = False,
    logs: bool = False,
) -> FastAPI:
    """Return the service of a lake, an ASGI application.

    Args:
        lake: the lake.
        default: the agent for requests without a token.
        allows_open: whether these are accepted while the lake has no tokens. Only a service that this machine alone
            reaches may allow them.
        rate: requests a second of one token; twice as many at once. 0 for no limit.
        max_bytes: size of a request's body.
        most_open: memories that stay open; others are opened again.
        origins: web pages that may call (CORS), such as ``https://app.example.org``.
        auto_run: see :class:`~memory_pipeline.Memory`.
        logs: whether each request is logged to standard output, as a line of JSON without texts.
    """
    schemas, operations = Schemas(), Operations()
    memories = OpenMemories(lake, most_open, auto_run=auto_run)
    mcp = McpOverHttp(memories)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mcp.running():
            yield
        operations.close()

    app = FastAPIOffline(
        title="memory-pipeline", version=version("memory-pipeline"), description=_ABOUT, lifespan=lifespan,
        redoc_url=None, redirect_slashes=False, separate_input_output_schemas=False,
    )  # fmt: skip
    for route in ROUTES:
        add_route(app, route, memories, operations, schemas)

    def operation(request: Request, id: Annotated[str, Path(description="its id.")]) -> Response:  # noqa: A002  # as in other paths
        caller = request.state.caller
        found = operations.of((caller.token_id, caller.scope, caller.user_id), id)
        if found is None:
            raise ProblemError(HTTPStatus.NOT_FOUND, "not-found", "there is no such operation; a restart forgets them")
        return operation_response(found, HTTPStatus.OK)

    work = {"application/json": {"schema": schemas.of(BackgroundWork)}}
    app.add_api_route(
        "/v1/operations/{id}", operation, methods=["GET"], operation_id="operation", tags=["operations"],
        summary="Operation", description="Return long work with its state and, once it has ended, its result.",
        response_class=Response,
        responses=problem_responses() | {200: {"description": "The operation.", "content": work}},
    )  # fmt: skip
    add_hooks(app, memories)
    metrics = add_health(app, lake)
    mcp.add_to(app)
    _add_errors(app)
    _complete_openapi(app, schemas)
    callers = Callers(lake, default or Scope("default", "default"), allows_open=allows_open, rate=rate)
    app.add_middleware(Gate, callers=callers, observed=metrics.observed, logs=logs, max_bytes=max_bytes)
    if origins:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], expose_headers=["Location", "Retry-After"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", USER_HEADER, "Mcp-Session-Id"],
        )  # fmt: skip
    return app


def _add_errors(app: FastAPI) -> None:
    def answer(_: Request, error: Exception) -> Response:
        return problem_of(error).response()

    def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101  # it is registered for it alone
        status, headers = HTTPStatus(error.status_code), dict(error.headers or {})
        if status is HTTPStatus.METHOD_NOT_ALLOWED:  # each method of a path has a route of its own
            routes = [
                one for one in app.routes if isinstance(one, Route) and one.matches(request.scope)[0] != Match.NONE
            ]
            headers["Allow"] = ", ".join(sorted({method for one in routes for method in one.methods or ()}))
        kind = title_of(status).lower().replace(" ", "-")
        return ProblemError(status, kind, str(error.detail), headers=headers).response()

    def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101  # as above
        found = [{"pointer": "/" + "/".join(map(str, one["loc"])), "detail": one["msg"]} for one in error.errors()]
        what = "; ".join(f"{one['pointer']}: {one['detail']}" for one in found[:3])
        return ProblemError(
            HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input", f"the request is not valid: {what}", errors=found
        ).response()

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(ProblemError, answer)
    app.add_exception_handler(MemoryPipelineError, answer)
    app.add_exception_handler(Exception, answer)


def _complete_openapi(app: FastAPI, schemas: Schemas) -> None:
    """Add to the OpenAPI document what FastAPI does not know: the results, the problem and the token."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = described()
            components = document.setdefault("components", {})
            own = components.setdefault("schemas", {})
            for unused in ("HTTPValidationError", "ValidationError"):
                own.pop(unused, None)
            own |= schemas.components | {"Problem": problems.SCHEMA}
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents
