"""The events of coding agents: what their hook would do in its own process, done here."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Literal, Union

from fastapi import Body, Header, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from memory_pipeline.coding_agents.events import EVENTS, respond
from memory_pipeline.domain.tokens import Right
from memory_pipeline.service.endpoints import IDEMPOTENCY_HEADER, problem_responses

if TYPE_CHECKING:
    from fastapi import FastAPI

    from memory_pipeline.service.callers import OpenMemories

_EXAMPLE = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "prompt": "Where does Anna live?"}
_ANSWER = {"type": "object", "description": "What the hook prints."}


class HookEvent(BaseModel):
    """What a coding agent hands to its hooks: Claude Code, Codex or Cursor. It may have more fields."""

    model_config = ConfigDict(extra="allow")

    session_id: str | None = Field(None, description="the session.")
    conversation_id: str | None = Field(None, description="the session, as Cursor calls it.")
    prompt: str | None = Field(None, description="what the user says.")
    last_assistant_message: str | None = Field(None, description="what the model has answered.")
    text: str | None = Field(None, description="what the model has answered, as Cursor calls it.")


def add_hooks(app: FastAPI, memories: OpenMemories) -> None:
    """Add the route of the hooks to an application."""

    def hook(
        request: Request,
        event: Annotated[Literal[tuple(EVENTS)], Path(description="its name.")],  # type: ignore[valid-type]
        given: Annotated[HookEvent, Body(openapi_examples={"example": {"value": _EXAMPLE}})],
        idempotency_key: Annotated[Union[str, None], Header(alias=IDEMPOTENCY_HEADER, max_length=256)] = None,  # noqa: UP007  # read at run time
    ) -> Response:
        caller = request.state.caller
        caller.require(Right.WRITE)
        told = {**given.model_dump(), "hook_event_name": event}
        answer = respond(memories.of(caller), told, idempotency_key)
        return JSONResponse(answer) if answer else Response(status_code=HTTPStatus.NO_CONTENT)

    app.add_api_route(
        "/v1/hooks/{event}", hook, methods=["POST"], operation_id="hook", tags=["hooks"], summary="Hook",
        description="Remember what an event of a coding agent tells, and return what its hook prints. Plugins that "
        "`memory-pipeline install` writes call it.",
        response_class=Response,
        responses=problem_responses()
        | {
            200: {"description": "What the hook prints.", "content": {"application/json": {"schema": _ANSWER}}},
            204: {"description": "The hook prints nothing."},
        },
        openapi_extra={"x-level": str(Right.WRITE)},
    )  # fmt: skip
