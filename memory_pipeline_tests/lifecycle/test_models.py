"""The whole pipeline with a model behind a real server: cost, failures and retries."""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

from memory_pipeline.cli import main
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.subjects import Subject
from memory_pipeline.erasure import forget, verify
from memory_pipeline.errors import ConfigurationError
from memory_pipeline.lake import Lake
from memory_pipeline.lake.schemas import ANSWERS, FACTS, MODEL_CALLS, SUMMARIES
from memory_pipeline.models.factory import dry_run_models
from memory_pipeline.reader import MemoryReader
from memory_pipeline.steps.dry_run import DryRunLake, dry_run
from memory_pipeline.steps.materialize import materialize
from memory_pipeline.steps.reembed import reembed
from memory_pipeline.steps.scheduling.planner import grain_status
from memory_pipeline_tests import oracle
from memory_pipeline_tests.building import (
    ACME,
    NOW,
    PROCESSES,
    START,
    conversation,
    hours,
    run,
    table_rows,
    versions,
    write,
)
from memory_pipeline_tests.effort import IS_THOROUGH
from memory_pipeline_tests.openai_server import Fault, OpenAIServer
from memory_pipeline_tests.oracle import EMBEDDING, configure, models_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory_pipeline.models.factory import Models

OTHER = Scope("globex", "sales")
TALKS = [
    conversation("I moved to Porto last week.", "My dog is called Bruno."),
    conversation("Bruno ate my passport on Tuesday.", at="2024-01-15T10:00", conversation_id="c2"),
    conversation("I moved to Oslo.", at="2024-02-20T09:00", conversation_id="c3"),
    conversation("Oslo was cold and I lost 40 euros.", at="2024-03-30T23:58", conversation_id="c4"),
    conversation("The contract is worth 9,000 euros.", at="2024-12-30T11:00", conversation_id="c5", scope=OTHER),
]
#: Requests for these talks: one passage per hour, one summary per day, week, month, quarter and year.
QUESTIONS = 5 + 4 + 4 + 4 + 2 + 2

ANSWER_FAULTS = ["400", "401", "404", "429", "500", "503", "context_length", "hang", "reset", "malformed", "html"]
ANSWER_FAULTS += ["truncated", "empty", "bad_content", "length", "refusal", "policy", "leak", "error_200"]
VECTOR_FAULTS = ["401", "500", "hang", "malformed", "wrong_dims", "nan"]
VECTOR_FAULTS += ["429", "reset", "html", "truncated", "empty", "wrong_count", "zero"] if IS_THOROUGH else []


def texts_of(*talks: dict[str, Any]) -> set[str]:
    return {message["content"] for talk in talks for message in talk["messages"]}


TEXTS = texts_of(*TALKS)


@pytest.fixture(scope="module")
def running() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture
def server(running: OpenAIServer) -> OpenAIServer:
    """The server of all tests here, without recorded requests."""
    running.reset()
    running.answer, running.latency, running.seed = oracle.answer, 0.0, 0
    return running


@pytest.fixture(scope="module")
def made_once(running: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = Lake(str(tmp_path_factory.mktemp("models") / "made"))
    running.reset()
    running.answer = oracle.answer
    write(lake, *TALKS)
    configure(lake, running)
    run(lake, models_at(lake))
    return Path(lake.storage.uri)


@pytest.fixture
def made(made_once: Path, server: OpenAIServer, root: str) -> Lake:
    """A copy of the computed talks; the server has no recorded requests."""
    shutil.copytree(made_once, root)
    return Lake(root)


def hour_of(number: int) -> str:
    """Return an hour of the 15th of January or a later day."""
    return f"{datetime(2024, 1, 15, tzinfo=UTC) + timedelta(hours=number):%Y-%m-%dT%H}"


def things_bought(count: int) -> list[dict[str, Any]]:
    """Return conversations, each in a separate hour."""
    return [
        conversation(f"I bought thing {number}.", at=f"{hour_of(number)}:00", conversation_id=f"c{number}")
        for number in range(count)
    ]


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.01)


def run_command(root: str) -> None:
    """Run the command in a separate process."""
    sys.argv = ["memory-pipeline", "run", "--root", root, "--now", "2026-01-12"]
    main()


def fallbacks(lake: Lake) -> list[str]:
    """Return the reasons of fallbacks, and `no vector` for each row without one."""
    rows = [*lake.tables.read(FACTS).to_pylist(), *lake.tables.read(SUMMARIES).to_pylist()]
    return [row["fallback"] for row in rows if row["fallback"]] + ["no vector" for row in rows if row["vector"] is None]


def said(lake: Lake) -> set[str]:
    """Return the texts of all turns in memory."""
    turns = [row for row in lake.tables.read(FACTS).to_pylist() if row["kind"] == "turn"]
    return {row["content"].partition(": ")[2] for row in turns}


def outcome(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    """Return all rows, without columns of their provenance."""
    tables = table_rows(lake)
    return {name: tables[name] for name in ("messages", "facts", "summaries", "ledger")}


def test_model_results_are_stored_with_their_provenance(made: Lake) -> None:
    assert said(made) == TEXTS
    facts = [row for row in made.tables.read(FACTS).to_pylist() if row["kind"] == "statement"]
    assert {row["content"] for row in facts} >= {"Anna said on 2024-01-15: My dog is called Bruno."}
    assert {(row["model"], row["prompt_version"], row["extraction_method"]) for row in facts} == {
        ("openai/oracle", "extraction-4", "extraction-4")
    }
    [day] = made.tables.read(SUMMARIES, ["2024-01-15"], grain="daily").to_pylist()
    assert (day["model"], day["prompt_version"], day["fallback"]) == ("openai/oracle", "daily-2", None)
    assert day["tokens_in"] > 100
    assert day["cost"] == pytest.approx((day["tokens_in"] + 2 * day["tokens_out"]) / 1e6)
    assert day["code_version"]
    calls = made.tables.read(MODEL_CALLS).to_pylist()
    assert Counter(call["outcome"] for call in calls) == {"ok": QUESTIONS}
    assert {call["workspace_id"] for call in calls} == {"acme", "globex"}


def test_a_second_run_costs_nothing_and_writes_nothing(lake: Lake, server: OpenAIServer) -> None:
    write(lake, *TALKS)
    configure(lake, server, EMBEDDING)
    run(lake, models_at(lake))
    before, calls = versions(lake), len(server.requests)
    fresh = Lake(lake.storage.uri)
    for grain in Grain:
        periods = grain_status(fresh, grain, START, NOW).made
        made = list(materialize(fresh, models_at(fresh), grain, periods))
        assert not any(part.changed or part.usage.calls for part in made)
    assert (versions(lake), len(server.requests)) == (before, calls)


def test_a_fresh_run_asks_the_same_questions_again_and_stores_the_new_answers(made: Lake, server: OpenAIServer) -> None:
    def changed(body: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(oracle.answer(body)).replace("moved to Oslo", "lives in Oslo"))
        return found

    def again(*, is_fresh: bool) -> bool:
        for grain in Grain:
            periods = grain_status(made, grain, START, NOW).made
            list(materialize(made, models_at(made, is_fresh=is_fresh), grain, periods))
        return "lives in Oslo" in " ".join(made.tables.read(FACTS)["content"].to_pylist())

    server.answer = changed
    assert not again(is_fresh=False)
    assert server.requests == []
    assert again(is_fresh=True)
    assert len(server.requests) == QUESTIONS
    before = outcome(made)
    made.tables.replace(FACTS, made.tables.keys(FACTS), FACTS.schema.empty_table())
    assert again(is_fresh=False)
    assert (len(server.requests), outcome(made)) == (QUESTIONS, before)
    server.faults = [Fault("500", times=None)]
    assert again(is_fresh=True)
    assert outcome(made) == before, "the stored answers remain if the model fails"


def test_stored_answers_are_reused_after_the_tables_are_deleted(made: Lake, server: OpenAIServer) -> None:
    """The partitions are recomputed byte for byte without a request."""
    before = outcome(made)
    for spec, fixed in [(FACTS, {}), *((SUMMARIES, {"grain": grain.value}) for grain in list(Grain)[1:])]:
        made.tables.replace(spec, made.tables.keys(spec, **fixed), spec.schema.empty_table(), **fixed)
    assert not said(made)
    for grain in Grain:
        list(materialize(made, models_at(made), grain, grain_status(made, grain, START, NOW).made))
    assert outcome(made) == before
    assert server.requests == []


def test_model_failures_of_every_kind_lose_nothing_and_are_retried(lake: Lake, server: OpenAIServer) -> None:
    """Each kind of fault affects the passage of one hour; everything else succeeds.

    Every fourth hour is answered; otherwise the circuit breaker would take the server for down.
    """
    struck = {kind: hour_of(number + number // 3) for number, kind in enumerate(ANSWER_FAULTS)}
    bad = [
        conversation("Bruno came by.", f"Bruno ran the {kind} way.", at=f"{hour}:00", conversation_id=kind)
        for kind, hour in struck.items()
    ]
    fine = [
        conversation(f"I paid {number} euros.", at=f"{hour_of(number)}:00", conversation_id=f"c{number}")
        for number in range(3, len(bad), 4)
    ]
    configure(lake, server, text=oracle.CONFIG.replace("timeout_seconds: 5", "timeout_seconds: 1"))
    write(lake, TALKS[2], TALKS[4])
    run(lake, models_at(lake))
    write(lake, *bad, *fine)
    server.faults = [
        Fault(kind, times=None, match=f"^(?=.*extraction).*the {kind} way", retry_after=0.01) for kind in struck
    ]
    run(lake, models_at(lake))
    assert said(lake) == texts_of(TALKS[2], TALKS[4], *bad, *fine)
    rows = lake.tables.read(FACTS).to_pylist()
    for kind, hour in struck.items():
        assert server.counts[f"fault {kind}"], kind
        found = [row for row in rows if row["period"] == hour]
        assert len(found) >= 2, kind
        assert all(row["fallback"] and row["model"] is None for row in found), kind
    assert {row["period"] for row in rows if row["fallback"]} == set(struck.values())
    assert not any(lake.tables.read(SUMMARIES)["fallback"].to_pylist())
    status = grain_status(lake, Grain.WORKING, START, NOW)
    assert [str(hour) for hour in status.unfinished] == sorted(struck.values())

    good = {text for text in oracle.asked(server.requests) if "Bruno" not in text}
    assert len(good) >= len(fine) + 2
    server.reset()
    configure(lake, server)
    run(lake, models_at(lake))
    assert fallbacks(lake) == []
    assert not good & set(oracle.asked(server.requests))
    # The passages and their summaries: two days, and one period of each coarser grain.
    assert server.counts["path chat"] == len(struck) + 2 + 4
    assert not any(run(lake, models_at(lake)).values())


@pytest.mark.parametrize("is_alone", [True, False])
def test_on_a_new_lake_a_failed_request_is_sent_and_corrected_once(
    lake: Lake, server: OpenAIServer, models: Models, is_alone: bool
) -> None:
    """The tables are created during the request, by this run or by another one."""
    write(lake, TALKS[0])
    configure(lake, server)
    others: list[dict[str, Any]] = [] if is_alone else [TALKS[2]]

    def answer(_: dict[str, Any]) -> str:
        while others:
            other = Lake(lake.storage.uri)
            write(other, others.pop())
            list(materialize(other, models, Grain.WORKING, hours("2024-02-20T09")))
        return "I'd rather not say."

    server.answer = answer
    list(materialize(lake, models_at(lake), Grain.WORKING, hours("2024-01-15T08")))
    assert [len(request.body["messages"]) for request in server.requests] == [2, 4]
    assert said(lake) == texts_of(TALKS[0], *([] if is_alone else [TALKS[2]]))


def test_rows_without_vectors_are_found_by_words_and_embedded_later(lake: Lake, server: OpenAIServer) -> None:
    """Each kind of fault affects all vectors of one hour, and the last kind also those of the summaries."""
    struck = {kind: hour_of(number) for number, kind in enumerate(VECTOR_FAULTS)}
    talks = {
        hour: conversation("Bruno is here.", f"Bruno ate my {kind} passport.", at=f"{hour}:00", conversation_id=kind)
        for kind, hour in struck.items()
    }
    write(lake, *talks.values())
    config = oracle.CONFIG.replace(oracle.HOURS, "").replace("completion", "extraction")  # summaries by rules
    for kind, hour in struck.items():
        brief = EMBEDDING.replace("timeout_seconds: 5", "timeout_seconds: 0.5") if kind == "hang" else EMBEDDING
        configure(lake, server, brief, text=config)
        server.faults = [Fault(kind, times=None, path="embeddings", retry_after=0.01)]
        list(materialize(lake, models_at(lake), Grain.WORKING, hours(hour)))
        assert server.counts[f"fault {kind}"], kind
        rows = lake.tables.read(FACTS, [hour]).to_pylist()
        assert {row["content"].partition(": ")[2] for row in rows} >= texts_of(talks[hour]), kind
        assert all(row["vector"] is None for row in rows), kind
        reader = MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support")
        [hit] = reader.search_memory(query=f"{kind} passport", now=NOW, maximum_days_ago=1000, max_results=1)
        assert f"{kind} passport" in hit.content
    for grain in list(Grain)[1:]:
        list(materialize(lake, models_at(lake), grain, grain_status(lake, grain, START, NOW).pending))
    assert said(lake) == texts_of(*talks.values())
    assert set(fallbacks(lake)) == {"no vector"}

    chats = server.counts["path chat"]
    server.faults = []
    configure(lake, server, EMBEDDING, text=config)
    run(lake, models_at(lake))
    assert fallbacks(lake) == []
    assert server.counts["path chat"] == chats == len(struck)
    assert not any(run(lake, models_at(lake)).values())
    assert lake.index.read([ACME], None, "grain = 'working'")["embed_model"].null_count == 0


@pytest.mark.parametrize("seed", range(3 if IS_THOROUGH else 1))
def test_one_call_in_twenty_fails_at_random(lake: Lake, server: OpenAIServer, seed: int) -> None:
    rng, count = random.Random(seed), 60 if IS_THOROUGH else 30
    talks = [
        conversation(f"I bought thing number {n}.", at=f"2024-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}T08:00",
                     conversation_id=f"c{n}")
        for n in range(count)
    ]  # fmt: skip
    configure(lake, server, EMBEDDING, text=oracle.CONFIG.replace("attempts: 2", "attempts: 1"))
    write(lake, talks[0])
    list(materialize(lake, models_at(lake), Grain.WORKING, lake.journal.pending_hours()))
    server.reset()
    write(lake, *talks[1:])
    server.seed = seed
    kinds = ["500", "reset", "malformed", "429", "bad_content", "truncated"]
    server.faults = [Fault(kind, times=None, probability=0.05 / 6, retry_after=0.01) for kind in kinds]
    run(lake, models_at(lake))
    assert len(said(lake)) == count
    assert len(fallbacks(lake)) >= 3
    for _ in range(8):
        if not fallbacks(lake):
            break
        run(lake, models_at(lake))
    assert fallbacks(lake) == []
    questions = oracle.asked(server.requests)
    failed = sum(count for name, count in server.counts.items() if name.startswith("fault"))
    assert failed >= 3
    assert len(questions) - len(set(questions)) <= failed  # one more for each failed request, none for the others


def test_a_run_does_not_wait_for_a_dead_server_and_keeps_its_answers(lake: Lake) -> None:
    count = 16
    write(lake, *things_bought(count))
    dying = OpenAIServer().start()
    served: list[int] = []

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        served.append(1)
        if len(served) == 6:
            dying.stop()
        return oracle.answer(body)

    dying.answer = answer
    configure(lake, dying)
    run(lake, models_at(lake))
    assert len(said(lake)) == count
    assert set(fallbacks(lake)) == {"unavailable"}
    paid = lake.tables.read(MODEL_CALLS)
    ok = paid.filter(pc.equal(paid["outcome"], "ok")).num_rows
    assert ok > 0
    assert paid.num_rows - ok < count - ok  # a dead server is not asked for each request

    with OpenAIServer(int(dying.base_url.split(":")[2].partition("/")[0])) as server:
        server.answer = oracle.answer
        run(lake, models_at(lake))
        assert fallbacks(lake) == []
        assert sum(oracle.name_of(request.body) == "extraction" for request in server.requests) == count - ok


def test_a_new_monthly_prompt_recomputes_months_and_coarser_grains(made: Lake, server: OpenAIServer) -> None:
    monthly = 'monthly: {{prompt: "Say it in the {{grain}} {{period}} briefly: {{length}}.", '
    configure(made, server, text=oracle.CONFIG.replace("monthly: {{", monthly))
    assert not any(run(made, models_at(made)).values())  # no requests without changes
    for grain in Grain:
        periods = [p for p in grain_status(made, grain, START, NOW).made if p.key.startswith("2024")]
        list(materialize(made, models_at(made), grain, periods))
    openings = Counter(text.partition("\n")[0] for text in oracle.asked(server.requests))
    assert openings.pop("Say it in the monthly 2024-01 briefly: 3200.") == 1
    assert openings.pop("Say it in the monthly 2024-02 briefly: 3200.") == 1
    assert openings.pop("Say it in the monthly 2024-03 briefly: 3200.") == 1
    asked = [re.search(r"The period is (\S+),", text) for text in oracle.asked(server.requests)]
    assert sorted(found.group(1) for found in asked if found) == ["2024", "2024-01", "2024-02", "2024-03", "2024-Q1"]
    assert len(server.requests) == 5


def test_two_concurrent_runs_pay_once(root: str, server: OpenAIServer) -> None:
    write(Lake(root), *TALKS)
    configure(Lake(root), server)
    server.latency = 0.05
    other = PROCESSES.Process(target=run_command, args=(root,))
    other.start()
    wait_until(lambda: bool(server.requests))
    run(Lake(root), models_at(Lake(root)))
    other.join(60)
    assert other.exitcode == 0
    questions = oracle.asked(server.requests)
    assert len(questions) == len(set(questions)) == QUESTIONS
    assert said(Lake(root)) == TEXTS


def test_a_killed_run_does_not_pay_twice(root: str, server: OpenAIServer) -> None:
    count = 12
    write(Lake(root), *things_bought(count))
    configure(Lake(root), server, text=oracle.CONFIG.replace("max_concurrency: 8", "max_concurrency: 2"))
    server.latency = 0.05
    process = PROCESSES.Process(target=run_command, args=(root,))
    process.start()
    wait_until(lambda: server.counts["path chat"] >= count // 2)
    process.kill()
    process.join()
    time.sleep(0.2)
    server.latency = 0
    lake = Lake(root)
    assert 0 < len(server.requests) < count
    started = time.monotonic()
    run(lake, models_at(lake))
    assert time.monotonic() - started < 30  # leases of dead processes are taken over at once
    assert len(said(lake)) == count
    assert fallbacks(lake) == []
    extractions = [text for text in oracle.asked(server.requests) if "bought" in text]
    # Requests that were open when it died are lost; that is at most the concurrency.
    assert len(extractions) - len(set(extractions)) <= 2


def test_a_dry_run_estimates_the_requests_of_the_run(lake: Lake, server: OpenAIServer) -> None:
    write(lake, *TALKS)
    configure(lake, server)
    assert calls_expected(lake) == QUESTIONS
    assert server.requests == []
    run(lake, models_at(lake))
    assert server.counts["path chat"] == QUESTIONS
    assert calls_expected(lake) == 0
    write(lake, conversation("I was born in 1984.", at="2024-01-15T14:00", conversation_id="late"))
    assert calls_expected(lake) == 6
    server.reset()
    run(lake, models_at(lake))
    assert server.counts["path chat"] == 6


def calls_expected(lake: Lake) -> int:
    rehearsal = DryRunLake(lake.storage.uri)
    models, asker = dry_run_models(rehearsal.configuration(), rehearsal.calls, "UTC", lambda: NOW)
    before = versions(lake)
    list(dry_run(rehearsal, models, START, NOW))
    assert versions(lake) == before
    return sum(usage.calls for usage in asker.expected.values())


@pytest.mark.parametrize("limit", ["usd_per_month: 0.006", "tokens_per_month: 5000"][: 2 if IS_THOROUGH else 1])
def test_a_budget_is_never_overspent_and_the_next_month_completes_the_rest(
    lake: Lake, server: OpenAIServer, limit: str
) -> None:
    write(lake, *TALKS)
    configure(lake, server, f"  budget: {{{{{limit}}}}}\n")
    run(lake, models_at(lake))
    assert said(lake) == TEXTS
    assert set(fallbacks(lake)) == {"budget"}
    spent = lake.calls.spent("acme", "2026-01")
    assert 0 < spent.calls < QUESTIONS - 6
    # Less than the cost of another request is left, and no answer exceeded the average by more than this.
    if limit.startswith("usd"):
        assert 0.0045 < (spent.cost or 0) < 0.0065
    else:
        assert 3_800 < spent.tokens_in + spent.tokens_out < 5_400
    assert lake.calls.spent("globex", "2026-01").calls == 6
    month = 2
    while fallbacks(lake) and month < 12:
        run(lake, models_at(lake, NOW.replace(month=month)))
        month += 1
    assert fallbacks(lake) == []


def test_rows_postponed_by_a_budget_are_not_lost(lake: Lake, server: OpenAIServer) -> None:
    write(lake, *TALKS)
    budget = "workspaces: {{acme: {{budget: {{tokens_per_month: 10, when_spent: wait}}}}}}\n"
    configure(lake, server, budget)
    run(lake, models_at(lake))
    assert said(lake) == {"The contract is worth 9,000 euros."}
    assert len(lake.journal.pending()) == 4  # those of acme, pending for readers
    status = grain_status(lake, Grain.WORKING, START, NOW)
    assert len(status.pending) == 4
    assert fallbacks(lake) == []
    configure(lake, server)
    run(lake, models_at(lake))
    assert said(lake) == TEXTS
    assert lake.journal.pending() == []
    assert server.counts["path chat"] == QUESTIONS


@pytest.mark.parametrize("trouble", ["slow", "down", "budget"] if IS_THOROUGH else ["slow"])
def test_an_erasure_asks_no_model_and_the_next_run_heals(lake: Lake, server: OpenAIServer, trouble: str) -> None:
    write(lake, TALKS[0], conversation("Bruno ate my passport on Tuesday.", "I flew home.", conversation_id="c2"))
    configure(lake, server, EMBEDDING)
    run(lake, models_at(lake))
    assert fallbacks(lake) == []
    server.reset()
    if trouble == "down":
        configure(lake, server, EMBEDDING.replace("{url}", "http://127.0.0.1:9/v1"))
    elif trouble == "slow":
        server.faults = [Fault("hang", times=None)]
    else:
        configure(lake, server, EMBEDDING, "  budget: {{tokens_per_month: 1, when_spent: wait}}\n")
    receipt = forget(lake, models_at(lake), Subject.conversation(ACME, "c2"), NOW)
    assert server.requests == []
    assert verify(lake, receipt).ok
    assert said(lake) == texts_of(TALKS[0])
    assert set(fallbacks(lake)) == {"unavailable", "no vector"}

    server.reset()
    configure(lake, server, EMBEDDING)
    run(lake, models_at(lake))
    assert fallbacks(lake) == []
    assert server.requests
    assert verify(lake, receipt).ok


def test_api_keys_reach_only_their_provider_and_are_not_stored(
    lake: Lake, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {"ACME_SECRET_KEY": "sk-acme-0123456789abcdef", "DEPLOYMENT_KEY": "sk-deployment-0123456789"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    write(lake, *TALKS)
    configure(
        lake,
        server,
        EMBEDDING.replace("dimension: 16,", "dimension: 16, api_key: env:DEPLOYMENT_KEY,"),
        "workspaces: {{acme: {{completion: {{api_key: env:ACME_SECRET_KEY}},"
        " embedding: {{api_key: env:ACME_SECRET_KEY}}}}}}\n",
        text=oracle.CONFIG.replace("attempts: 2", "attempts: 2, api_key: env:DEPLOYMENT_KEY"),
    )
    server.faults = [Fault("leak", times=6)]
    run(lake, models_at(lake))
    run(lake, models_at(lake))
    bodies = {str(request.body): request.headers["Authorization"] for request in server.requests}
    senders = {
        (key.removeprefix("Bearer "), "contract" in body)
        for body, key in bodies.items()
        if "contract" in body or "Bruno" in body
    }
    assert senders == {(keys["ACME_SECRET_KEY"], False), (keys["DEPLOYMENT_KEY"], True)}
    for path in Path(lake.storage.uri).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(key.encode() in data for key in keys.values()), path
    for table in (FACTS, SUMMARIES, MODEL_CALLS, ANSWERS):
        text = str(lake.tables.read(table).to_pylist())
        assert not any(key in text for key in keys.values())
    assert not any(key in caplog.text for key in keys.values())


def test_another_embedder_is_refused_until_the_vectors_are_recomputed(made: Lake, server: OpenAIServer) -> None:
    """The remedy in the error message works; only vectors are requested."""
    lake = made
    before = lake.tables.read(FACTS, columns=["id", "content"]).to_pylist()
    configure(lake, server, EMBEDDING)
    write(lake, conversation("I bought a canoe.", conversation_id="new"))
    with pytest.raises(ConfigurationError, match="memory-pipeline reembed --to MODEL"):
        run(lake, models_at(lake))
    with pytest.raises(ConfigurationError, match="memory-pipeline reembed --to MODEL"):
        MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support").search_memory(query="canoe")
    assert len(lake.journal.pending()) == 1

    fresh = Lake(lake.storage.uri)
    embedder = models_at(fresh).embedder
    assert list(reembed(fresh, embedder, fresh.calls))[-1].is_complete
    run(fresh, models_at(fresh))
    index = fresh.indices.of(embedder)
    assert index.read([ACME], None, "grain = 'working'").num_rows > len(before) / 2
    assert server.counts["path chat"] == 1 + 5  # the new message, and its summaries
    reader = MemoryReader.open(lake.storage.uri, workspace_id="acme", agent_id="support")
    [hit] = reader.search_memory(query="Anna: I bought a canoe.", now=NOW, maximum_days_ago=1000, max_results=1)
    assert "canoe" in hit.content


def test_the_model_sees_knowledge_from_hours_outside_the_run(lake: Lake, server: OpenAIServer) -> None:
    write(lake, conversation("I moved to Porto.", at="2024-01-15T10:00", conversation_id="between"))
    configure(lake, server)
    list(materialize(lake, models_at(lake), Grain.WORKING, hours("2024-01-15T10")))
    server.reset()
    write(
        lake,
        conversation("Anna is here.", at="2024-01-15T08:00", conversation_id="before"),
        conversation("Anna is here again.", at="2024-01-15T12:00", conversation_id="after"),
    )
    list(materialize(lake, models_at(lake), Grain.WORKING, hours("2024-01-15T08", "2024-01-15T12")))
    [before, after] = oracle.asked(server.requests)
    assert "Anna lives_in Porto" not in before
    assert "Anna lives_in Porto" in after
