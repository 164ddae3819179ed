"""The cost of hosted models: calls, tokens, and overhead beyond the models' latency.

The server is that of the tests (:mod:`memory_pipeline_tests.openai_server`), in a separate process, so that it does not
share the GIL. After a fixed latency it answers with a fact for each message and a point for each line
(:func:`memory_pipeline_tests.oracle.answer`). The benchmark fails if the server's counts of calls and tokens differ
from ``model_calls``.

- ideal: calls x latency / concurrency, a lower bound;
- overhead: (seconds - ideal) per call. Work that overlaps with waiting for other calls is free, so the overhead is the
  delay of a call. It grows once the processor is saturated;
- CPU: CPU time of this process per call, overlapping or not; next to it the server's, which shares the cores.

Four parts:

- completions: conversations to facts and days to summaries, as the steps do it: with a lease, a file per answer, and
  checks. For comparison, the same requests through the bare LiteLLM client in as many threads, and through the executor
  without a store: with retries and circuit breaker, but no leases, files, checks or budgets. Landing is the time of
  :meth:`memory_pipeline.lake.calls.call_store.Calls.settle` per answer, and is not in the overhead;
- embeddings: the same for texts in requests of 1 and of 64;
- remembered: hours with existing rows, and hours with stored answers but no rows;
- a year: agents that speak three hours a week, through :func:`memory_pipeline.in_process.run_all`; a repeated run;
  and a recomputation with another monthly prompt. ``run --estimate`` predicts the first and the last. The same year
  with deterministic models separates the models' overhead from the pipeline's.

``--quick``: half the calls, and one round instead of the faster of two; a quarter and 2 agents.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from benchmarks.generator import START, WORKSPACE, agent_name, busy, sentence, sparse
from benchmarks.ingest import write
from benchmarks.measure import Cell, Table, progress, versions
from memory_pipeline.domain.conversations import Admission, read_messages
from memory_pipeline.domain.facts import ConversationHour
from memory_pipeline.domain.model_calls import Purpose, Usage, Use
from memory_pipeline.domain.periods import Grain, Period, hour_of
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.summaries import Assignment, Material
from memory_pipeline.in_process import run_all
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.lake.schemas import FACTS, MODEL_CALLS
from memory_pipeline.models.factory import Models, configured_models, default_models, dry_run_models
from memory_pipeline.models.hosted.transport import litellm_client
from memory_pipeline.models.hosted.transport.executor import LlmExecutor
from memory_pipeline.settings import Settings
from memory_pipeline.steps.dry_run import DryRunLake, dry_run
from memory_pipeline.steps.extract import read_hours
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.results import RunResult
from memory_pipeline_tests import oracle
from memory_pipeline_tests.openai_answers import chat_reply, embedding_reply
from memory_pipeline_tests.openai_server import OpenAIServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from memory_pipeline.models.hosted.transport.dry_run import Expected
    from memory_pipeline.models.hosted.transport.requests import Answered, LlmRequest

_AT_ONCE = (1, 16, 64)
_BATCHES = (1, 64)
_DIMENSION = 768
#: Seconds before each answer.
_WRITING, _EMBEDDING, _YEAR = 0.2, 0.1, 0.05
_YEAR_AT_ONCE, _YEAR_BATCH = 16, 64
#: Hours of one agent are asked about at once, so that as many calls run as may.
_AT_WILL = {"known_facts": 0}
_MONTHLY = {"monthly": {"prompt": "Say briefly what {period} was about, in {length} characters."}}

_Row = dict[str, Cell]


def run(folder: Path, *, quick: bool) -> list[Table]:
    """Measure, with lakes below `folder`."""
    with _Server() as server:
        _warm_up(folder, server)
        return [
            _completions(folder, server, quick=quick),
            _embeddings(folder, server, quick=quick),
            _remembered(folder, server, quick=quick),
            *_year(folder, server, quick=quick),
        ]


# --- the server ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """The server's counts: calls and tokens by purpose, peak concurrency, and CPU time."""

    spent: dict[str, Usage]
    most_at_once: int
    cpu: float


@dataclass(frozen=True, slots=True)
class _Step:
    """The cost of a step: seconds and CPU of this process, counts of the server, and the ideal seconds."""

    seen: _Seen
    seconds: float
    cpu: float
    ideal: float

    @property
    def calls(self) -> int:
        return sum(usage.calls for usage in self.seen.spent.values())

    @property
    def overhead(self) -> float:
        """Milliseconds per call."""
        return (self.seconds - self.ideal) * 1000 / self.calls

    @property
    def cpu_ms(self) -> float:
        """Milliseconds per call."""
        return self.cpu * 1000 / self.calls

    def cells(self, base: _Step | None = None) -> _Row:
        base = base or self
        return {
            "seconds": self.seconds,
            "ideal": self.ideal,
            "overhead ms": self.overhead,
            "ratio": self.overhead / base.overhead,
            "CPU ms": self.cpu_ms,
            "CPU ratio": self.cpu_ms / base.cpu_ms,
            "server CPU ms": self.seen.cpu * 1000 / self.calls,
            "most at once": self.seen.most_at_once,
        }


class _Server:
    """The model server in a separate process."""

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.url: str = self._connection.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join(10)
        self._process.terminate()

    def measured(self, step: Callable[[], object], latency: float, at_once: int) -> _Step:
        """Run a step and return its cost."""
        self._ask(latency)
        started, cpu = time.perf_counter(), time.process_time()
        step()
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        seen: _Seen = self._ask(None)
        return _Step(seen, seconds, cpu, sum(usage.calls for usage in seen.spent.values()) * latency / at_once)

    def _ask(self, what: float | None) -> Any:
        self._connection.send(what)
        return self._connection.recv()


def serve(connection: Connection[Any, float | None]) -> None:
    """Serve until the pipe closes. A number resets the counts and sets the latency; None requests the counts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with OpenAIServer(dimension=_DIMENSION) as server:
        server.answer = oracle.answer
        connection.send(server.base_url)
        began = 0.0
        while True:
            try:
                latency = connection.recv()
            except EOFError:
                return
            while server.active:  # a client has its answer shortly before the server finishes the request
                time.sleep(0.001)
            if latency is None:
                connection.send(_seen(server, time.process_time() - began))
            else:
                server.reset()
                server.latency = latency
                began = time.process_time()
                connection.send(None)


def _seen(server: OpenAIServer, cpu: float) -> _Seen:
    """Return the server's counts. Tokens are those that it reported in its answers."""
    expected: Counter[str] = Counter()
    spent: dict[str, Usage] = {}
    for request in server.requests:
        body, purpose = request.body, Purpose.EMBEDDING.value
        if request.path == "chat":
            purpose, usage = oracle.name_of(body), chat_reply(body, oracle.answer(body))["usage"]
        else:
            usage = embedding_reply(body, 1)["usage"]
        told = Usage(1, usage["prompt_tokens"], usage.get("completion_tokens", 0))
        spent[purpose] = spent.get(purpose, Usage()) + told
        expected[f"path {request.path}"] += 1
        expected["status 200"] += 1
    _check("the server's counts", dict(expected), dict(server.counts))
    return _Seen(spent, server.peak, cpu)


def _check(what: str, expected: object, found: object) -> None:
    """Raise an error if two counts differ."""
    if expected != found:
        raise RuntimeError(f"{what}: expected {expected}, found {found}")


# --- lakes and requests ----------------------------------------------------------------------------------------------


def _lake(folder: Path, server: _Server, at_once: int, *, batch: int | None = None, **more: object) -> Lake:
    """Return a new lake that is configured to use the server."""
    lake = Lake(str(folder))
    lake.ensure()
    lake.storage.write("key", b"a-key-of-no-provider")
    _configure(lake, server, at_once, batch=batch, **more)
    return lake


def _configure(lake: Lake, server: _Server, at_once: int, *, batch: int | None = None, **more: object) -> None:
    """Write the configuration of a lake.

    Args:
        lake: the lake to configure.
        server: serves all models.
        at_once: the limit of concurrent calls.
        batch: texts per embedding request; None for the deterministic embedder.
        more: further sections of the defaults.
    """
    reached = {"api_base": server.url, "api_key": f"file:{lake.storage.locate('key')}", "price": {"input": 1.0}}
    defaults = {
        "max_concurrency": at_once,
        "completion": {"model": "openai/oracle", **reached},
        "budget": {"usd_per_month": 1_000_000},  # never spent, but checked
        **more,
    }
    if batch:
        vectors = {"model": "openai/vectors", "dimension": _DIMENSION, "batch_size": batch}
        defaults["embedding"] = {**vectors, **reached}
    lake.storage.write(CONFIGURATION, json.dumps({"defaults": defaults}).encode())


def _clock() -> datetime:
    return datetime.now(UTC)


def _models(lake: Lake) -> Models:
    return configured_models(lake.configuration(), lake.calls, lake.calendar.timezone, _clock)


def _new_calls(lake: Lake, known: set[str]) -> list[dict[str, Any]]:
    """Return the rows of ``model_calls`` that are new since the last call."""
    rows = [row for row in lake.tables.read(MODEL_CALLS).to_pylist() if row["id"] not in known]
    known |= {row["id"] for row in rows}
    _check("outcomes", set(), {row["outcome"] for row in rows} - {"ok"})
    return rows


def _by(rows: Iterable[dict[str, Any]], *columns: str) -> dict[str, Usage]:
    """Aggregate rows of ``model_calls``. Rows that share a request count as one call."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(" ".join(row[column] for column in columns), []).append(row)
    return {
        name: Usage(
            len({row["request_id"] for row in group}),
            sum(row["tokens_in"] for row in group),
            sum(row["tokens_out"] for row in group),
        )
        for name, group in groups.items()
    }


def _passages(lake: Lake, number: int) -> list[ConversationHour]:
    """Return passages of three messages each, from four hours."""
    agents = -(-number // 4)
    passages = []
    for talk in islice(busy(agents, 4, 12 * agents), number):
        messages = read_messages(talk, Admission(START.date(), START + timedelta(days=9), lake.calendar)).messages
        first = messages[0]
        passages.append(ConversationHour(first.scope, first.hour, first.conversation_id, tuple(messages), first.id))
    return passages


def _assignments(number: int, source: random.Random) -> list[Assignment]:
    """Return days of twelve facts each, four for each agent."""
    assignments = []
    for place in range(number):
        at = START + timedelta(days=place % 4)
        material = [
            Material(f"{place}-{n}", f"Nadia: {sentence(source)}", at + timedelta(minutes=n), n, 0.5, ("Nadia",))
            for n in range(12)
        ]
        scope, day = Scope(WORKSPACE, agent_name(place // 4)), Period.containing(Grain.DAILY, at.date())
        assignments.append(Assignment(scope, day, tuple(material)))
    return assignments


def _questions(lake: Lake, passages: Sequence[ConversationHour]) -> list[LlmRequest]:
    """Return the requests for passages."""
    models, asker = dry_run_models(lake.configuration(), lake.calls, lake.calendar.timezone, _clock)
    with patch.object(asker, "complete", wraps=asker.complete) as noted:
        models.extractor.extract(passages, dict)
    return [call.args[0] for call in noted.call_args_list]


def _through_the_door(questions: Sequence[LlmRequest], at_once: int) -> None:
    """Send requests through the bare client."""

    def ask(question: LlmRequest) -> Answered[str]:
        messages = [{"role": "system", "content": question.system}, {"role": "user", "content": question.user}]
        return litellm_client.complete(
            question.endpoint, messages, question.schema, name=question.name, api_key="a-key", secrets=()
        )

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(ask, questions))


def _warm_up(folder: Path, server: _Server) -> None:
    """Import LiteLLM and open as many connections as the benchmark uses."""
    progress("warming up")
    lake = _lake(folder / "warm", server, _AT_ONCE[-1], extraction=_AT_WILL)
    passages = _passages(lake, 2 * _AT_ONCE[-1])
    _through_the_door(_questions(lake, passages), _AT_ONCE[-1])
    _models(lake).extractor.extract(passages[:16], dict)
    lake.calls.settle()


# --- completions -----------------------------------------------------------------------------------------------------


def _completions(folder: Path, server: _Server, *, quick: bool) -> Table:
    table = Table(
        "completions",
        f"{_WRITING} s each; all but calls, tokens and seconds are for each call; ratios are to the door's of as many "
        "at once",
    )
    for at_once in _AT_ONCE:
        number = at_once * (3 if quick else 6)
        rounds = []
        for turn in range(1 if quick else 2):
            progress(f"{number:,} completions, {at_once} at once")
            rounds.append(_ways_to_ask(folder / f"completions-{at_once}-{turn}", server, at_once, number))
        fastest = {way: min((ways[way] for ways in rounds), key=lambda found: found[0].seconds) for way in rounds[0]}
        base = next(iter(fastest.values()))[0]
        table.rows += [
            {
                "way": way,
                "at once": at_once,
                "calls": step.calls,
                "tokens in": sum(usage.tokens_in for usage in step.seen.spent.values()),
                "tokens out": sum(usage.tokens_out for usage in step.seen.spent.values()),
                **step.cells(base),
                "landing ms": landing * 1000 / number,
            }
            for way, (step, landing) in fastest.items()
        ]
    return table


def _ways_to_ask(folder: Path, server: _Server, at_once: int, number: int) -> dict[str, tuple[_Step, float]]:
    """Send requests in each way. Return the costs, and the seconds of landing."""
    lake = _lake(folder, server, at_once, extraction=_AT_WILL)
    passages, assignments = _passages(lake, number), _assignments(number, random.Random("days"))
    questions = _questions(lake, passages)
    asker = LlmExecutor(lake.configuration(), None, _clock)
    models = _models(lake)
    ways: dict[str, Callable[[], object]] = {
        "door": partial(_through_the_door, questions, at_once),
        "asker, no store": lambda: asker.gather([partial(asker.complete, question, str) for question in questions]),
        "facts": lambda: models.extractor.extract(passages, dict),
        "summaries": lambda: models.summarizer.summarize(assignments),
    }
    found: dict[str, tuple[_Step, float]] = {}
    known: set[str] = set()
    for way, action in ways.items():
        step = server.measured(action, _WRITING, at_once)
        _check(f"calls, {way}", number, step.calls)
        started = time.perf_counter()
        lake.calls.settle()
        landing = time.perf_counter() - started if way in {"facts", "summaries"} else 0.0
        kept = step.seen.spent if landing else {}
        _check(f"model_calls, {way}", kept, _by(_new_calls(lake, known), "purpose"))
        found[way] = step, landing
    return found


# --- embeddings ------------------------------------------------------------------------------------------------------


def _embeddings(folder: Path, server: _Server, *, quick: bool) -> Table:
    table = Table(
        "embeddings",
        f"{_EMBEDDING} s each, {_DIMENSION} numbers, 8 texts of one agent's hour in a row; milliseconds are for each "
        "request, but for those of a text; ratios are to the door's",
    )
    for batch in _BATCHES:
        for at_once in _AT_ONCE:
            number = at_once * (2 if quick else 8 if batch == 1 else 4)
            progress(f"{number:,} requests for {batch} vectors, {at_once} at once")
            table.rows += _ways_to_embed(folder / f"vectors-{batch}-{at_once}", server, at_once, batch, number)
    return table


def _ways_to_embed(folder: Path, server: _Server, at_once: int, batch: int, number: int) -> list[_Row]:
    lake = _lake(folder, server, at_once, batch=batch)
    endpoint, embedder = lake.configuration().embedding, _models(lake).embedder
    source = random.Random("texts")
    texts = [f"{place}: {sentence(source)}" for place in range(number * batch)]
    hours = [hour_of(START + timedelta(hours=place)) for place in range(24)]
    scopes = [Scope(WORKSPACE, agent_name(place)) for place in range(10)]
    uses = [Use(scopes[place // 8 % 10], hours[place // 80 % 24]) for place in range(len(texts))]
    batches = [texts[start : start + batch] for start in range(0, len(texts), batch)]

    def through_the_door() -> None:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda some: litellm_client.embed(endpoint, some, api_key="a-key", secrets=()), batches))

    base = server.measured(through_the_door, _EMBEDDING, at_once)
    step = server.measured(lambda: embedder.embed(texts, uses), _EMBEDDING, at_once)
    _check("requests for vectors", (number, number), (base.calls, step.calls))
    lake.calls.settle(hours)
    rows = _new_calls(lake, set())
    _check("model_calls, vectors", step.seen.spent, _by(rows, "purpose"))
    _check("texts", len(texts), sum(row["texts"] for row in rows))
    return [
        {
            "way": way,
            "batch": batch,
            "at once": at_once,
            "requests": number,
            "texts/s": len(texts) / found.seconds,
            "ms/text": found.overhead / batch,
            **found.cells(base),
        }
        for way, found in (("door", base), ("embedder", step))
    ]


# --- remembered answers ----------------------------------------------------------------------------------------------


def _remembered(folder: Path, server: _Server, *, quick: bool) -> Table:
    number, at_once = (60, 16) if quick else (200, 16)
    lake = _lake(folder / "remembered", server, at_once, extraction=_AT_WILL)
    write(lake, busy(number // 20, 20, 3 * number))
    hours = [hour_of(START + timedelta(hours=place)) for place in range(20)]
    table = Table("remembered answers", f"{number:,} conversations of 20 hours; vectors are the deterministic ones")

    def measure(what: str, action: Callable[[Lake], object], calls: int) -> None:
        progress(what)
        fresh = Lake(lake.storage.uri)  # like a new process, which caches nothing
        step = server.measured(lambda: action(fresh), _WRITING, at_once)
        _check(f"calls, {what}", calls, step.calls)
        base = float(table.rows[0]["seconds"]) if table.rows else step.seconds
        cells = {
            "seconds": step.seconds,
            "ms/question": step.seconds * 1000 / number,
            "CPU ms": step.cpu * 1000 / number,
        }
        table.rows.append({"what": what, "calls": calls, **cells, "of the first": step.seconds / base})

    def remake(fresh: Lake) -> None:
        for _ in materialize(fresh, _models(fresh), Grain.WORKING, hours):
            pass

    def extract(fresh: Lake) -> None:
        models = _models(fresh)
        nothing = FACTS.schema.empty_table()
        models.extractor.extract(read_hours(fresh, models.extractor, hours, nothing).changed, dict)

    measure("hours made", remake, number)
    measure("made again", remake, 0)
    lake.tables.replace(FACTS, [hour.key for hour in hours], FACTS.schema.empty_table())
    measure("made again, rows gone, answers in the table", remake, 0)
    measure("facts alone, answers in the table", extract, 0)
    shutil.rmtree(folder / "remembered" / "tables" / "answers")
    measure("facts alone, asked", extract, number)
    measure("facts alone, answers in files", extract, 0)
    return table


# --- a year ----------------------------------------------------------------------------------------------------------


def _year(folder: Path, server: _Server, *, quick: bool) -> list[Table]:
    agents, weeks = (2, 13) if quick else (10, 52)
    lake = _lake(folder / "year", server, _YEAR_AT_ONCE, batch=_YEAR_BATCH)
    messages = write(lake, sparse(agents, weeks))
    now = START + timedelta(weeks=weeks, days=8)
    plain = Lake(str(shutil.copytree(folder / "year", folder / "plain")))
    progress("a year with the deterministic models")
    started = time.perf_counter()
    for _ in run_all(plain, Settings(root=plain.storage.uri), default_models(), now):
        pass
    without = time.perf_counter() - started

    whole: list[_Row] = [_whole("deterministic models", without)]
    parts: list[_Row] = []
    estimates: list[_Row] = []
    known: set[str] = set()

    def estimate(between: tuple[datetime, datetime] | None = None) -> tuple[dict[Expected, Usage], float]:
        progress("estimate")
        started = time.perf_counter()
        rehearsal = DryRunLake(lake.storage.uri)
        models, asker = dry_run_models(rehearsal.configuration(), rehearsal.calls, rehearsal.calendar.timezone, _clock)
        for _ in dry_run(rehearsal, models, START.date(), now, between):
            pass
        return dict(asker.expected), time.perf_counter() - started

    def measure(
        what: str,
        estimated: tuple[dict[Expected, Usage], float] | None = None,
        between: tuple[datetime, datetime] | None = None,
        *,
        base: float | None = None,
    ) -> None:
        progress(what)
        before = versions(lake)
        done: list[RunResult] = []

        def make_all() -> None:
            events = run_all(lake, Settings(root=lake.storage.uri), _models(lake), now, between)
            done.extend(event for event in events if isinstance(event, RunResult))

        step = server.measured(make_all, _YEAR, _YEAR_AT_ONCE)
        rows = _new_calls(lake, known)
        _check(f"model_calls, {what}", step.seen.spent, _by(rows, "purpose"))
        _check(f"rows that fell back, {what}", 0, sum(event.fallbacks + event.unfinished for event in done))
        commits = sum(versions(lake).values()) - sum(before.values())
        whole.append(_whole(what, step.seconds, step, commits, base))
        by_part = _by(rows, "grain", "purpose")
        for grain in Grain:
            for purpose in Purpose:
                usage = by_part.get(f"{grain} {purpose}")
                if usage:
                    tokens = {"tokens in": usage.tokens_in, "tokens out": usage.tokens_out}
                    parts.append({"run": what, "grain": grain, "for": purpose, "calls": usage.calls, **tokens})
        if estimated is not None:
            estimates.append(_compared(what, estimated, step))

    measure("first", estimate(), base=without)
    measure("again")
    _check("calls and commits, again", (0, 0), (whole[-1]["calls"], whole[-1]["table commits"]))
    everything = (START, START + timedelta(weeks=weeks))
    _configure(lake, server, _YEAR_AT_ONCE, batch=_YEAR_BATCH, summaries=_MONTHLY)
    measure("all partitions, another prompt for months", estimate(everything), everything)
    return [
        Table(
            "a year with models",
            f"{agents} agents, {weeks} weeks, {messages:,} messages; {_YEAR} s each, {_YEAR_AT_ONCE} at once, but "
            "hours of one agent follow one another; beyond: overhead less what the deterministic models take",
            whole,
        ),
        Table("a year with models: calls", "what each grain asked, from model_calls", parts),
        Table("a year with models: estimates", "calls that run --estimate told, and those that came", estimates),
    ]


def _whole(what: str, seconds: float, step: _Step | None = None, commits: int = 0, base: float | None = None) -> _Row:
    """Return a run's row. Without calls, it has no figures per call."""
    spent = step.seen.spent if step else {}
    calls = sum(usage.calls for usage in spent.values())
    return {
        "run": what,
        "seconds": seconds,
        "calls": calls,
        **{purpose.value: spent.get(purpose, Usage()).calls for purpose in Purpose},
        "tokens in": sum(usage.tokens_in for usage in spent.values()),
        "tokens out": sum(usage.tokens_out for usage in spent.values()),
        "ideal": step.ideal if step else 0.0,
        "overhead ms": step.overhead if step and calls else "",
        "beyond ms": step.overhead - base * 1000 / calls if step and calls and base is not None else "",
        "CPU ms": step.cpu_ms if step and calls else "",
        "most at once": step.seen.most_at_once if step else 0,
        "table commits": commits,
    }


def _compared(what: str, estimated: tuple[dict[Expected, Usage], float], step: _Step) -> _Row:
    """Compare an estimate with the actual counts. The number of completions must be equal."""
    expected, seconds = estimated
    told: dict[str, Usage] = {}
    for each, usage in expected.items():
        told[each.purpose] = told.get(each.purpose, Usage()) + usage
    row: _Row = {"run": what, "seconds": seconds, "of the run": seconds / step.seconds}
    for purpose in Purpose:
        come, said = step.seen.spent.get(purpose, Usage()), told.get(purpose, Usage())
        if purpose is not Purpose.EMBEDDING:
            _check(f"{purpose} calls that the estimate of {what!r} told", come.calls, said.calls)
        row[f"{purpose} told"], row[f"{purpose} came"] = said.calls, come.calls
    tokens = [
        sum(usage.tokens_in + usage.tokens_out for usage in usages)
        for usages in (told.values(), step.seen.spent.values())
    ]
    return row | {"tokens, told/came": tokens[0] / max(1, tokens[1])}
