"""The pages, rendered by this process: no script, nothing from elsewhere, and every text of a memory escaped."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from memory_pipeline.domain.periods import Grain, Period
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.tokens import Right
from memory_pipeline.errors import InputError, MemoryPipelineError, shown
from memory_pipeline.explorer.calendar import PARTS, MemoryCalendar
from memory_pipeline.explorer.drawing import HEIGHT, WIDTH, drawing_of
from memory_pipeline.explorer.figures import agents_of, compressions_of, costs_of, delays_of, statuses_of
from memory_pipeline.reader import Hits
from memory_pipeline.reader.all_users import AllUsersReader
from memory_pipeline.service.callers import LOOPBACK, Caller, OpenMemories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Connection

    from memory_pipeline.client.memory import Memory
    from memory_pipeline.lake import Lake

_FOLDER: Final = Path(__file__).parent
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Pages of one memory, in the order of the navigation.
PAGES: Final = ("calendar", "search", "graph", "memories", "conversations")
_FACTS: Final = 200
_LISTED: Final = 100
_EVER: Final = 36_525


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """The memory that a page shows: of an agent, or of one of its users."""

    workspace: str
    agent: str
    user: str | None

    def url(self, page: str, **given: object) -> str:
        """Return the address of a page of this memory."""
        query = {"workspace": self.workspace, "agent": self.agent, "user": self.user, **given}
        return f"/{page}?{urlencode({name: one for name, one in query.items() if one not in (None, '')})}"

    def __str__(self) -> str:
        return f"{self.workspace} / {self.agent}" + (f" / {self.user}" if self.user else "")


class Explorer:
    """The pages of a lake. With `allows_corrections`, statements can be corrected and memories forgotten."""

    def __init__(
        self, lake: Lake, *, allows_corrections: bool = False, now: Callable[[], datetime] | None = None
    ) -> None:
        self._lake = lake
        self._allows_corrections = allows_corrections
        self._now = now or (lambda: datetime.now(UTC))
        self._memories = OpenMemories(lake, 100)
        #: A page of another origin does not know it.
        self._form_key = secrets.token_urlsafe(16)
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._templates.filters |= {
            "number": lambda one: f"{one:,}",
            "dollars": lambda one: f"${one:,.4f}",
            "span": _span,
        }

    def app(self) -> Starlette:
        """Return the application."""
        pages: Mapping[str, Callable[[Request], Response]] = {
            "/": self._home, "/calendar": self._calendar, "/source": self._source, "/search": self._search,
            "/graph": self._graph, "/memories": self._memories_page, "/memory": self._memory, "/quality": self._quality,
            "/conversations": self._conversations, "/conversation": self._conversation, "/item": self._item,
        }  # fmt: skip
        routes = [Route(path, self._guarded(page)) for path, page in pages.items()]
        routes += [Route("/explorer.css", _style)]
        if self._allows_corrections:
            routes += [Route("/correct", self._changing(self._correct), methods=["POST"]),
                       Route("/forget", self._changing(self._forget), methods=["POST"])]  # fmt: skip
        app = Starlette(routes=routes)
        app.add_middleware(_OnlyHere)
        return app

    def _guarded(self, page: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def answered(request: Request) -> Response:
            try:
                return page(request)
            except MemoryPipelineError as error:
                status = 400 if isinstance(error, InputError) else 503
                return self._page("problem.html", request, title="This cannot be shown", why=str(error), status=status)

        return answered

    def _changing(self, change: Callable[[FormData], Response]) -> Callable[..., Any]:
        async def answered(request: Request) -> Response:
            from anyio.to_thread import run_sync

            form = await request.form()
            if not secrets.compare_digest(str(form.get("key", "")), self._form_key):
                why = "the form is of another page, or of an explorer that was restarted; open the page again"
                return self._page("problem.html", request, title="Nothing was changed", why=why, status=403)
            return await run_sync(lambda: self._guarded(lambda _: change(form))(request))

        return answered

    def _page(self, template: str, request: Request, *, status: int = 200, **values: Any) -> HTMLResponse:
        place = values.pop("place", None)
        text = self._templates.get_template(template).render(
            place=place, pages=PAGES, here=request.url.path.strip("/"), allows_corrections=self._allows_corrections,
            form_key=self._form_key, given=dict(request.query_params), uri=self._lake.storage.uri, **values,
        )  # fmt: skip
        return HTMLResponse(text, status, _HEADERS)

    def _opened(self, request: Request) -> tuple[ShownMemory, Memory]:
        query = request.query_params
        return self._open(query.get("workspace", "default"), query.get("agent", "default"), query.get("user") or None)

    def _open(self, workspace: str, agent: str, user: str | None) -> tuple[ShownMemory, Memory]:
        caller = Caller("", Scope(workspace, agent), user, True, Right.ADMIN)
        return ShownMemory(workspace, agent, user), self._memories.of(caller)

    def _home(self, request: Request) -> Response:
        costs, now = costs_of(self._lake), self._now()
        agents = agents_of(self._lake, costs) if self._lake.exists else []
        query, found = request.query_params.get("query", ""), []
        if query:
            for row in agents[:_LISTED]:
                reader = AllUsersReader(self._lake, row.scope)
                hits = reader.search_memory("working", 0, _EVER, 5, query=query)
                found += [
                    (ShownMemory(row.scope.workspace_id, row.scope.agent_id, _user_of(hit.identity)), hit)
                    for hit in hits
                ]
        pending = self._lake.journal.pending() if self._lake.exists else []
        return self._page(
            "home.html", request, title="Memory", agents=agents, found=found, query=query, total=costs.total,
            statuses=statuses_of(self._lake, now), pending=len(pending),
            places={row.scope: ShownMemory(row.scope.workspace_id, row.scope.agent_id, None) for row in agents},
            Shown=ShownMemory, now=now,
        )  # fmt: skip

    def _calendar(self, request: Request) -> Response:
        place, memory = self._opened(request)
        calendar = MemoryCalendar(memory, self._now())
        given = request.query_params
        period = Period.parse(given["grain"], given["period"]) if given.get("period") else None
        hits = []
        if period is not None and period.grain in {Grain.DAILY, Grain.WORKING}:
            start, end = memory.lake.calendar.bounds(period)
            found = memory.reader.newest("working", _FACTS, since=start, until=end)
            hits = [hit for hit in found if start <= hit.starts_at < end][::-1]
        return self._page(
            "calendar.html", request, title=str(period or "Calendar"), place=place, period=period, hits=hits,
            parts=calendar.years if period is None else calendar.parts(period) if period.grain in PARTS else [],
            weeks=calendar.weeks(period) if period is not None and period.grain is Grain.MONTHLY else [],
            above=[] if period is None else calendar.around(period),
            summaries=[] if period is None else calendar.summaries(period),
        )  # fmt: skip

    def _source(self, request: Request) -> Response:
        place, memory = self._opened(request)
        node = memory.reader.expand(request.query_params.get("id", ""))
        plan = None
        if self._allows_corrections and request.query_params.get("correct"):
            plan = memory.correct(node.id, dry_run=True)
        return self._page("source.html", request, title="Sources", place=place, node=node, plan=plan)

    def _item(self, request: Request) -> Response:
        """Lead to the page of an item: a memory's own, or its sources."""
        place, _ = self._opened(request)
        identifier = request.query_params.get("id", "")
        page = "memory" if identifier.startswith("memory:") else "source"
        return RedirectResponse(place.url(page, id=identifier), headers=_HEADERS)

    def _search(self, request: Request) -> Response:
        place, memory = self._opened(request)
        given = request.query_params
        query, budget = given.get("query", ""), int(_number(given, "budget", 1_000))
        hits, context, recalled, floor = Hits(), None, None, _number(given, "floor", 0)
        if query:
            filters = {name: given[name] for name in ("since", "until", "person") if given.get(name)}
            grain = given.get("grain") or "working"
            hits = memory.reader.search_memory(
                grain,
                0,
                _EVER,
                20,
                query=query,
                minimum_score=floor or None,
                explain=True,
                **filters,  # type: ignore[arg-type]  # texts
            )
            context = memory.context(query, budget)
            recalled = memory.reader.recall(query, budget)
        return self._page(
            "search.html", request, title="Search", place=place, query=query, hits=hits, context=context,
            recalled=recalled, budget=budget, floor=floor, grains=[one.value for one in Grain],
        )  # fmt: skip

    def _graph(self, request: Request) -> Response:
        place, memory = self._opened(request)
        given, graph = request.query_params, memory.graph
        name = given.get("name", "")
        at = given.get("at") or None
        entity = graph.entity(name) if name else None
        facts = graph.facts_about(name, limit=_FACTS, at=at) if entity else graph.facts(limit=_FACTS)
        ended = [one for one in (graph.history(entity.name, limit=_FACTS) if entity else []) if one.until is not None]
        center = entity.name if entity else _busiest(facts)
        days = sorted({day for one in (*facts, *ended) for day in (one.since, one.until) if day is not None})
        return self._page(
            "graph.html", request, title=entity.name if entity else "Graph", place=place, entity=entity, name=name,
            facts=facts, ended=ended, at=at, days=days, drawing=drawing_of(center, facts) if facts else None,
            width=WIDTH, height=HEIGHT, center=center,
        )  # fmt: skip

    def _memories_page(self, request: Request) -> Response:
        place, memory = self._opened(request)
        given = request.query_params
        status = given.get("status") or "active"
        found = memory.reader.memories.list(status=status, kind=given.get("kind") or None, limit=500)
        by_temperature = {name: [one for one in found if one.temperature == name] for name in ("hot", "warm", "cold")}
        return self._page(
            "memories.html", request, title="Durable memories", place=place, found=by_temperature, of_status=status,
            kind=given.get("kind", ""), index=str(memory.reader.hot_index()),
        )  # fmt: skip

    def _memory(self, request: Request) -> Response:
        place, memory = self._opened(request)
        memories, identifier = memory.reader.memories, request.query_params.get("id", "")
        found = memories.get(identifier)
        if found is None:
            raise InputError(f"there is no memory {shown(identifier)} in {place}; it may have been erased")
        return self._page(
            "memory.html", request, title=found.title, place=place, memory=found, history=memories.history(found.id),
            events=memories.explain(found.id), links=memories.links(found.id), said_by=memories.said_by(found),
        )  # fmt: skip

    def _conversations(self, request: Request) -> Response:
        place, memory = self._opened(request)
        return self._page(
            "conversations.html", request, title="Conversations", place=place, found=memory.conversations.list(_FACTS)
        )

    def _conversation(self, request: Request) -> Response:
        place, memory = self._opened(request)
        identifier = request.query_params.get("id", "")
        traces = memory.trace(identifier)
        return self._page("conversation.html", request, title=identifier, place=place, traces=traces)

    def _quality(self, request: Request) -> Response:
        costs, now = costs_of(self._lake), self._now()
        statuses = statuses_of(self._lake, now)
        findings = None
        if request.query_params.get("checks"):
            from memory_pipeline.checks import CheckContext, all_checks, run_checks

            findings = [*run_checks(CheckContext(self._lake, now), all_checks())]
        most = max((one.dollars or one.tokens_in + one.tokens_out for one in costs.by_month.values()), default=0) or 1
        return self._page(
            "quality.html", request, title="Cost and quality", costs=costs, most=most, findings=findings,
            delays=delays_of(self._lake, statuses, now), compressions=compressions_of(self._lake),
        )  # fmt: skip

    def _correct(self, form: FormData) -> Response:
        place, memory = self._of_form(form)
        text = str(form.get("text", "")).strip() or None
        memory.correct(str(form["id"]), text, reason=str(form.get("reason", "")).strip() or None, editor="explorer")
        return RedirectResponse(place.url("conversations"), 303, _HEADERS)

    def _forget(self, form: FormData) -> Response:
        place, memory = self._of_form(form)
        memory.forget(str(form["id"]))
        return RedirectResponse(place.url("memory", id=str(form["id"])), 303, _HEADERS)

    def _of_form(self, form: FormData) -> tuple[ShownMemory, Memory]:
        given = {name: str(form.get(name) or "") for name in ("workspace", "agent", "user")}
        return self._open(given["workspace"], given["agent"], given["user"] or None)


class _OnlyHere:
    """Middleware that answers this machine alone, by the name that the browser uses, and no page of another origin."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            hosts = [urlsplit(f"//{headers.get('host', '')}").hostname]
            if (origin := headers.get("origin")) is not None:
                hosts.append(urlsplit(origin).hostname)
            if not LOOPBACK.issuperset(hosts):
                why = "The explorer answers this machine alone. Open it as http://localhost.\n"
                await Response(why, 403, _HEADERS, "text/plain")(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _style(_: Request) -> Response:
    return Response((_FOLDER / "explorer.css").read_bytes(), headers=_HEADERS, media_type="text/css")


def _user_of(identity: str) -> str | None:
    return identity.removeprefix("user:") if identity.startswith("user:") else None


def _number(given: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(given.get(name) or default)
    except ValueError:
        raise InputError(f"{name} {shown(given[name])} is no number") from None


def _busiest(facts: Any) -> str:
    names = [name for fact in facts for name in (fact.source, fact.target)]
    return max(names, key=names.count) if names else ""


def _span(delta: Any) -> str:
    seconds = delta.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "0" if not seconds else f"{seconds:.0f} s"
