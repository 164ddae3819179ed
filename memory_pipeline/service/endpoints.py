"""Endpoints of the routes: they read a request, call the method, and write its result."""

from __future__ import annotations

import inspect
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from fastapi import Body, Header, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, create_model
from starlette.responses import Response

from memory_pipeline.domain.identity import Reference
from memory_pipeline.domain.json_text import read_json
from memory_pipeline.domain.periods import Calendar
from memory_pipeline.domain.scopes import MAX_ID
from memory_pipeline.errors import AccessDeniedError, InputError, shown
from memory_pipeline.parameters import parameters_of, prose_of
from memory_pipeline.service.operations import BackgroundWork
from memory_pipeline.service.problems import CONTENT_TYPE, ProblemError, title_of
from memory_pipeline.service.results import to_bytes
from memory_pipeline.service.routes import DELETE, GET

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from memory_pipeline.client.memory import Memory
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
_TIME: Final = {"anyOf": [{"type": "string", "format": one} for one in ("date-time", "date")]}
_MESSAGE: Final = {
    "type": "object",
    "properties": {"role": {"type": "string"}, "content": {"type": "string"}, "timestamp": _TIME},
    "required": ["role", "content"],
}
_ONE: Final = [{"type": "string"}, _MESSAGE]
#: What JSON of any form looks like, by the name of the argument.
_SHAPES: Final[dict[str, dict[str, Any]]] = {
    "messages": {"anyOf": [*_ONE, {"type": "array", "items": {"anyOf": _ONE}}]},
    "query": {"anyOf": [{"type": "string"}, {"type": "array", "items": _MESSAGE}]},
    "metadata": {"type": "object", "additionalProperties": True},
    "conversation": {"type": "object", "additionalProperties": True},
}
#: Arguments that are ids, names or tags: not blank, without control characters.
_LABELS: Final = frozenset(
    "conversation_id context editor group_id key name person session_id source subject tag tags users".split()
)
_LABEL: Final = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$"
_PROBLEMS: Final = (400, 401, 403, 404, 409, 413, 422, 429, 500, 501, 503)
#: Arguments that put words into the memory of others than the user of a token.
_OTHERS: Final = frozenset({"users", "user_id", "group_id"})
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
            _refuse_others(arguments, caller.user_id)
        memory = memories.of(caller)
        part = route.opened(memory, **{name: path.pop(name) for name in route.opens})
        work = partial(_called, route, part, path, arguments, memory)
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


def _refuse_others(given: object, user_id: str | None) -> None:
    """Raise ProblemError if an argument, at any depth, names others than the user of a token."""
    if isinstance(given, list):
        for one in given:
            _refuse_others(one, user_id)
    if not isinstance(given, dict):
        return
    for name, value in given.items():
        if name in _OTHERS and value not in (None, [], user_id):
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "access-denied",
                f"{name} {shown(value)} names others than the token does; use a token for many users",
            )
        _refuse_others(value, user_id)


def _called(route: Route, part: Any, path: dict[str, str], arguments: dict[str, Any], memory: Memory) -> object:
    if route.touches is not None and memory.user_id is not None and not arguments.get("dry_run"):
        touched = route.touches(memory, **path, **arguments)
        if touched - {memory.writer.scope.identity}:
            raise ProblemError(
                HTTPStatus.FORBIDDEN, "access-denied", "this was said to others, too; only the agent's token changes it"
            )
    is_found = not path
    try:
        if route.tag == "memories" and path:
            Reference.parse(path["id"])
        is_found = not path or bool(arguments.keys() - {"now"})
        found = getattr(part, route.method.rpartition(".")[2])(**path, **arguments)
    except AccessDeniedError:
        raise
    except InputError as error:
        if is_found:
            raise
        raise ProblemError(HTTPStatus.NOT_FOUND, "not-found", str(error)) from None  # the path names nothing
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
    return {one: {"description": title_of(HTTPStatus(one)), "content": content} for one in statuses or _PROBLEMS}


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
    kind: Any = str if parameter is None else _type_of(parameter)
    hint: Any = Annotated[kind, Path(description=(parameter.description or None) if parameter is not None else None)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint)


def _key() -> inspect.Parameter:
    text = "Identifies this call. A call with the key of an earlier one adds nothing: give it to a retry."
    hint = Annotated[Union[str, None], Header(alias=IDEMPOTENCY_HEADER, description=text, max_length=256)]  # noqa: UP007  # read at run time
    return inspect.Parameter("idempotency_key", inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=None)


def _rest(route: Route, given: list[Parameter]) -> inspect.Parameter:
    """Return the other parameters as one: the body, or the query."""
    is_query = route.verb in {GET, DELETE}
    fields: dict[str, Any] = {one.name: _field(one, is_query=is_query) for one in given}
    name = "".join(part.capitalize() for part in route.operation.split("_")) + "Arguments"
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid", strict=not is_query), **fields)
    place = Query() if is_query else Body(openapi_examples={"example": {"value": dict(route.example)}})
    is_optional = is_query or not any(one.is_required for one in given)
    hint = Annotated[model, place] if is_query or not is_optional else Annotated[Union[model, None], place]  # noqa: UP007  # as above
    default = inspect.Parameter.empty if is_query or not is_optional else None
    return inspect.Parameter("given", inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _field(parameter: Parameter, *, is_query: bool) -> tuple[Any, Any]:
    kind: Any = _JSON_TEXT if is_query and parameter.kind == "json" else _type_of(parameter)
    if parameter.is_list:
        kind = Union[kind, list[kind]] if parameter.kind == "string" else list[kind]  # noqa: UP007  # as above
    described = parameter.description or None
    if parameter.is_required:
        return kind, Field(description=described)
    if isinstance(parameter.default, str | int | float | bool):
        return kind, Field(parameter.default, description=described)
    return Union[kind, None], Field(None, description=described)  # noqa: UP007  # as above


def _type_of(parameter: Parameter) -> Any:
    if parameter.choices:
        return Literal[parameter.choices]
    kind = _TYPES[parameter.kind]
    if parameter.kind in {"integer", "number"} and (parameter.least or parameter.most):
        return Annotated[kind, Field(ge=parameter.least, le=parameter.most)]
    if parameter.name in _LABELS:
        return Annotated[kind, Field(pattern=_LABEL, max_length=MAX_ID)]
    if parameter.kind == "time":
        return Annotated[kind, AfterValidator(_checked_time), WithJsonSchema(_TIME)]
    if parameter.kind == "string" and parameter.most:
        return Annotated[kind, Field(min_length=parameter.least, max_length=parameter.most)]
    shape = _SHAPES.get(parameter.name) if parameter.kind == "json" else None
    return kind if shape is None else Annotated[kind, WithJsonSchema(shape)]


def _parsed(text: str) -> object:
    """Return the value of a text of JSON. Raise InputError for another text."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        raise InputError(f"{shown(text)} is no JSON") from None


#: An object in a query.
_JSON_TEXT: Final = Annotated[
    str, AfterValidator(_parsed), WithJsonSchema({"type": "string", "contentMediaType": "application/json"})
]


def _checked_time(text: str) -> str:
    """Return a date, or a time with its zone, as it is. Raise InputError for another text."""
    Calendar().instant("time", text)
    return text
