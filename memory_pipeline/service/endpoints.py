"""Endpoints of the routes: they read a request, call the method, and write its result."""

from __future__ import annotations

import inspect
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from fastapi import Body, Header, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.responses import Response

from memory_pipeline.parameters import parameters_of, prose_of
from memory_pipeline.service.operations import BackgroundWork
from memory_pipeline.service.problems import CONTENT_TYPE, ProblemError
from memory_pipeline.service.results import to_bytes
from memory_pipeline.service.routes import DELETE, GET

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from memory_pipeline.parameters import Kind, Parameter
    from memory_pipeline.service.callers import Caller, OpenMemories
    from memory_pipeline.service.operations import Operations
    from memory_pipeline.service.results import Schemas
    from memory_pipeline.service.routes import Route

#: The header of a call that may be repeated.
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
_TYPES: Final[dict[Kind, Any]] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "time": str, "file": str, "json": Any,
}  # fmt: skip
_PROBLEMS: Final = (400, 401, 403, 404, 409, 413, 422, 429, 500, 501, 503)
#: Arguments that put words into the memory of others than the user of a token.
_OTHERS: Final = ("users", "group_id")
#: Characters of an argument that is written into an error.
_SHOWN: Final = 100


def add_route(app: FastAPI, route: Route, memories: OpenMemories, operations: Operations, schemas: Schemas) -> None:
    """Add a route to an application."""
    in_path = [part.partition(":")[0].strip("{}") for part in route.path.split("/") if part.startswith("{")]
    known = {one.name: one for one in parameters_of(route.function)}
    known |= {one.name: one for one in parameters_of(_opener(route)) if one.name in route.opens} if route.opens else {}
    has_key = "idempotency_key" in known and "idempotency_key" not in route.without
    hidden = {*route.without, *in_path, "idempotency_key"}
    given = [one for one in known.values() if one.name not in hidden]

    def endpoint(request: Request, given: Any = None, idempotency_key: str | None = None, **path: str) -> Response:
        caller: Caller = request.state.caller
        caller.require(route.level)
        arguments = {} if given is None else {name: getattr(given, name) for name in given.model_fields_set}
        if idempotency_key is not None:
            arguments["idempotency_key"] = idempotency_key
        if caller.token_id and not caller.is_for_many_users:
            for name in _OTHERS:
                if arguments.get(name):
                    raise ProblemError(
                        HTTPStatus.FORBIDDEN,
                        "access-denied",
                        f"{name} names others than the user of this token; use a token for many users",
                    )
        memory = memories.of(caller)
        part = route.opened(memory, **{name: path.pop(name) for name in route.opens})
        work = partial(_called, route, part, path, arguments)
        if route.is_long and not arguments.get("dry_run"):
            owner = caller.token_id, caller.scope, caller.user_id
            return operation_response(operations.start(owner, route.operation, work), HTTPStatus.ACCEPTED)
        found = work()
        if route.status == HTTPStatus.NO_CONTENT:
            return Response(status_code=route.status)
        return Response(to_bytes(found), route.status, media_type="application/json")

    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # FastAPI reads it
        [
            inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request),
            *(_in_path(name, known.get(name)) for name in in_path),
            *([_key()] if has_key else []),
            *([_rest(route, given)] if given else []),
        ]
    )
    title = route.operation.replace("_", " ").capitalize()
    app.add_api_route(
        route.path, endpoint, methods=[route.verb], operation_id=route.operation, tags=[route.tag], summary=title,
        description=route.help or prose_of(route.function), status_code=202 if route.is_long else route.status,
        response_class=Response, responses=_responses(route, schemas),
        openapi_extra={"x-level": str(route.level)},
    )  # fmt: skip


def _called(route: Route, part: Any, path: dict[str, str], arguments: dict[str, Any]) -> object:
    found = getattr(part, route.method.rpartition(".")[2])(**path, **arguments)
    if route.missing and (found is None or (found in ([], ()) and route.verb is GET)):
        names = {name: one[:_SHOWN] for name, one in path.items()}
        raise ProblemError(HTTPStatus.NOT_FOUND, "not-found", route.missing.format_map({"session_id": "", **names}))
    return route.result(found)


def operation_response(operation: BackgroundWork, status: HTTPStatus) -> Response:
    """Return the answer that shows an operation."""
    headers = {"Location": f"/v1/operations/{operation.id}"}
    if operation.status == "running":
        headers["Retry-After"] = "1"
    return Response(to_bytes(operation), status, headers, "application/json")


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of answers that are problems."""
    content = {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {one: {"description": HTTPStatus(one).phrase, "content": content} for one in statuses or _PROBLEMS}


def _responses(route: Route, schemas: Schemas) -> dict[int | str, dict[str, Any]]:
    found = problem_responses()
    if route.status == HTTPStatus.NO_CONTENT:
        return found | {204: {"description": "Done."}}
    content = {"application/json": {"schema": route.schema(schemas)}}
    if not route.is_long:
        return found | {route.status: {"description": "The result.", "content": content}}
    operation = {"application/json": {"schema": schemas.of(BackgroundWork)}}
    if any(one.name == "dry_run" for one in parameters_of(route.function)):
        found[200] = {"description": "The plan, of a dry run.", "content": content}
    headers = {"Location": {"description": "The operation.", "schema": {"type": "string"}}}
    return found | {202: {"description": "The work goes on.", "content": operation, "headers": headers}}


def _opener(route: Route) -> Callable[..., object]:
    from memory_pipeline.client.memory import Memory

    return Memory.session if "session_id" in route.opens else route.function


def _in_path(name: str, parameter: Parameter | None) -> inspect.Parameter:
    text = parameter.description if parameter is not None else ""
    hint = Annotated[str, Path(description=text or None, min_length=1)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint)


def _key() -> inspect.Parameter:
    text = "Identifies this call. A call with the key of an earlier one adds nothing: give it to a retry."
    hint = Annotated[Union[str, None], Header(alias=IDEMPOTENCY_HEADER, description=text, max_length=256)]  # noqa: UP007  # read at run time
    return inspect.Parameter("idempotency_key", inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=None)


def _rest(route: Route, given: list[Parameter]) -> inspect.Parameter:
    """Return the other parameters as one: the body, or the query."""
    fields: dict[str, Any] = {one.name: _field(one) for one in given}
    name = "".join(part.capitalize() for part in route.operation.split("_")) + "Arguments"
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    is_query = route.verb in {GET, DELETE}
    place = Query() if is_query else Body(openapi_examples={"example": {"value": dict(route.example)}})
    is_optional = is_query or not any(one.is_required for one in given)
    hint = Annotated[model, place] if is_query or not is_optional else Annotated[Union[model, None], place]  # noqa: UP007  # as above
    default = inspect.Parameter.empty if is_query or not is_optional else None
    return inspect.Parameter("given", inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _field(parameter: Parameter) -> tuple[Any, Any]:
    kind: Any = Literal[parameter.choices] if parameter.choices else _TYPES[parameter.kind]
    if parameter.is_list:
        kind = Union[kind, list[kind]] if parameter.kind == "string" else list[kind]  # noqa: UP007  # as above
    more: dict[str, Any] = {"description": parameter.description or None}
    if parameter.kind in {"integer", "number"} and (parameter.least or parameter.most):
        more |= {"ge": parameter.least, "le": parameter.most}
    if parameter.is_required:
        return kind, Field(**more)
    default = parameter.default if isinstance(parameter.default, str | int | float | bool) else None
    return Union[kind, None], Field(default, **more)  # noqa: UP007  # as above
