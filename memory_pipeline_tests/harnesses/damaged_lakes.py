"""Every kind of damage to every kind of file of a lake: is it seen, and is it healed or named?

Commands run in processes of their own, as users run them, and their output is read as users read it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import traceback
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2024, 3, 20, 12, tzinfo=UTC)
_AT = ["--now", NOW.isoformat()]


def build(root: Path) -> None:
    """Build a lake that has every kind of file."""
    from memory_pipeline import Memory
    from memory_pipeline.cli import cli  # imports what the commands need before processes are forked
    from memory_pipeline.client.pipeline import run_all
    from memory_pipeline.domain.model_calls import Answer, Call, Purpose, Use
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.retention import RetentionClass
    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake.collections.collection import VectorCollection
    from memory_pipeline.lake.collections.item import VectorItem
    from memory_pipeline.lake.index import projection
    from memory_pipeline.lake.tables.tombstones import raise_marks
    from memory_pipeline.models.factory import default_models

    def memory(user_id: str | None = None, agent_id: str = "support") -> Memory:
        return Memory(str(root), user_id=user_id, agent_id=agent_id, workspace_id="acme")

    def said(text: str, at: datetime, name: str = "Anna") -> list[dict[str, Any]]:
        return [{"role": "user", "name": name, "content": text, "timestamp": at.isoformat()}]

    start = datetime(2024, 1, 15, 8, tzinfo=UTC)
    for number, (user_id, text) in enumerate(
        [
            ("anna", "I moved to Porto. My sister is called Marta."),
            ("anna", "I like green tea. Please always answer in short sentences."),
            ("ben", "My dog is called Rex. I work at Acme."),
            ("carl", "I sold the yellow van."),
            ("anna", "I adopted a cat called Minka."),
        ]
    ):
        at = start + timedelta(days=8 * number)
        memory(user_id).add(said(text, at), conversation_id=f"c{number}", now=at)
    at = start + timedelta(days=3)
    memory().add(said("The team meets on Tuesdays.", at), users=["anna", "ben"], group_id="team", now=at)
    memory().add(said("The shop opens at nine.", at), conversation_id="own", now=at)
    anna = memory("anna")
    anna.remember("Anna is allergic to walnuts.", now=at)
    anna.remember("Sending the invoice twice annoyed her.", outcome_success=False, now=at)
    anna.writer.set_preference("anna", "language", "Portuguese", now=at)
    anna.writer.graph.insert("Anna", "owns", "a bakery", now=at)
    anna.contexts.create("recipes", "knowledge_base", now=at)
    anna.contexts.put("recipes", "rye", "Let the dough rest.", now=at)
    memory().writer.grant("sales", now=at)
    memory().writer.grant("sales", "anna", "write", now=at)
    memory(agent_id="sales").add(said("Sales started in May.", at), conversation_id="s", now=at)
    lake = anna.lake
    use = Use(Scope("acme", "support"), Period.parse("working", "2024-01-15T08"))

    def ask(key: str) -> tuple[Call, Answer]:
        common = ("openai/m", "facts-1")
        call = Call(key, key, key, use, Purpose.EXTRACTION, *common, 1, 10, 2, 0.01, 1.5, "ok", start)
        return call, Answer(key, use, Purpose.EXTRACTION, *common, '{"facts": []}', 10, 2, 0.01)

    call, answer = ask("a" * 32)
    lake.calls.keep([call], answer)
    raise_marks(lake.tables, {("acme", "old", RetentionClass.FACTS): "2020-01-01T00"}, start)
    lake.storage.write("config/workspaces.yaml", b"workspaces:\n  acme:\n    previews: false\n")
    unindexed, projection._UNINDEXED = projection._UNINDEXED, 1  # so that small tables have indices, too
    try:
        list(run_all(lake, default_models(), NOW))  # with marts
        memory("carl").forget(everything=True, now=NOW)
        at = NOW - timedelta(days=2)
        anna.add(said("I went to Faro.", at), conversation_id="late", now=at)
        list(run_all(lake, default_models(), NOW))  # with marts
    finally:
        projection._UNINDEXED = unindexed
    memory(agent_id="sales").reader.of_agent("support").search_memory(maximum_days_ago=1_000, query="shop", now=NOW)
    lake.access_log.settle(datetime.now(UTC))
    call, answer = ask("b" * 32)
    lake.calls.keep([call], answer)
    at = NOW - timedelta(hours=2)
    anna.add(said("I bought a red kettle.", at), conversation_id="pending", now=at)
    broken = root.parent / "broken.jsonl"
    broken.write_text('{"conversation_id": "x", "messages": [{"role": "user"}]}\n')
    from click.testing import CliRunner

    CliRunner().invoke(cli, ["ingest", str(broken), "--root", str(root), "--workspace", "acme", "--agent", "support"])
    broken.unlink()
    session = anna.session("s1")
    session.store("step", 3, ttl=86_400)
    session.short_term.store("topic", "kettles", ttl=86_400)
    session.persist()
    anna.pool("board").write("phase", "test")
    vectors = VectorCollection.open(str(root), workspace_id="acme", agent_id="support", dimension=3)
    vectors.upsert([VectorItem(id="doc", vector=[1.0, 0.0, 0.0], content="A manual.", metadata={"page": "3"})])
    # The log of SQLite holds all pages until a connection empties it: from them, a damaged file is read without loss.
    with closing(sqlite3.connect(root / "sessions/sessions.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def facts_of(root: Path) -> dict[str, str]:
    """Return everything that a reader can read of a lake, by name."""
    from memory_pipeline import Memory
    from memory_pipeline.errors import DamagedError
    from memory_pipeline.lake import Lake
    from memory_pipeline.lake.collections.collection import VectorCollection
    from memory_pipeline_tests.lake_digest import lake_digest, marts_digest

    lake = Lake(str(root))
    found = lake_digest(lake) | marts_digest(lake)
    lake = Lake(str(root))
    found["config"] = (lake.storage.read("config/workspaces.yaml") or b"").hex()
    found["grants"] = str(sorted(str(event) for event in lake.access.among(lake.journal.entries())))
    found["groups"] = str(sorted(str(one[:2]) for one in lake.members.all()))
    found["id"] = lake.id
    for user_id in ("anna", "ben", None):
        memory = Memory(str(root), user_id=user_id, agent_id="support", workspace_id="acme")
        for query in ("Where does Anna live?", "red kettle", "When does the team meet?", "shop opens"):
            hits = memory.search(query, 3, now=NOW)
            found[f"search {user_id} {query}"] = str([(hit.content, round(hit.score or 0, 6)) for hit in hits])
        found[f"context {user_id}"] = str(memory.context("walnuts tea", now=NOW))
        memories = memory.reader.memories.list(limit=100, now=NOW)
        found[f"memories {user_id}"] = str(sorted(one.content for one in memories))
    session = anna_session(root)
    found["session"] = str((session.items(), [one.key for one in session.short_term.list()]))
    found["saved"] = str(session.load())
    found["pool"] = str(Memory(str(root), user_id="anna", agent_id="support", workspace_id="acme").pool("board").read())
    try:
        vectors = VectorCollection.open(str(root), workspace_id="acme", agent_id="support", dimension=3)
        found["collection"] = str(vectors.search([1.0, 0.0, 0.0]))
    except DamagedError as error:  # repair names it, and leaves it alone
        found["collection"] = str(error)
    return found


def anna_session(root: Path) -> Any:
    from memory_pipeline import Memory

    return Memory(str(root), user_id="anna", agent_id="support", workspace_id="acme").session("s1")


def _kinds() -> dict[str, Callable[[Path, Path], None]]:
    """Return the kinds of damage by name: functions of a file and of an older version of it."""

    def bit(place: float) -> Callable[[Path, Path], None]:
        def flip(path: Path, _: Path) -> None:
            data = bytearray(path.read_bytes())
            if data:
                data[min(len(data) - 1, int(len(data) * place))] ^= 4
            path.write_bytes(bytes(data))

        return flip

    def folder(path: Path, _: Path) -> None:
        path.unlink()
        path.mkdir()

    return {
        "deleted": lambda path, _: path.unlink(),
        "emptied": lambda path, _: path.write_bytes(b"") and None,
        "zeroed": lambda path, _: path.write_bytes(bytes(path.stat().st_size)) and None,
        "cut": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None,
        "bit in the middle": bit(0.5),
        "bit near the start": bit(0.15),
        "bit at the end": bit(1.0),
        "garbage": lambda path, _: path.write_bytes(os.urandom(max(64, path.stat().st_size))) and None,
        "older version": lambda path, older: shutil.copy(older, path) and None,
        "folder": folder,
    }


KINDS = _kinds()


def targets(root: Path) -> dict[str, Path]:
    """Return one file of each kind of a lake by its name, relative to the root."""
    found: dict[str, Path] = {}

    def add(name: str, pattern: str, *, last: bool = True) -> None:
        paths = sorted(path for path in root.glob(pattern) if path.is_file() and not path.name.endswith(".crc"))
        if paths:
            found[name] = paths[-1 if last else 0].relative_to(root)

    add("lake.json", "lake.json")
    add("copy of lake.json", "state/lake.json")
    add("configuration", "config/workspaces.yaml")
    add("journal file", "journal/pending/*/*.jsonl")
    add("grant", "journal/pending/*/*.access.json")
    add("member of a group", "journal/members/groups/*/*.json")
    add("group of a user", "journal/members/users/*/*.json")
    add("quarantine", "journal/quarantine/*.json")
    add("model answer, pending", "calls/pending/answers/*.json")
    add("sessions.db", "sessions/sessions.db")
    add("saved session", "sessions/saved/*.json")
    add("embedder", "projections/_embedder.json")
    add("owner of a collection", "vectordb/*/scope.json")
    for table in sorted((root / "tables").iterdir()):
        add(f"table {table.name}", f"tables/{table.name}/**/*.parquet")
        add(f"log of {table.name}", f"tables/{table.name}/_delta_log/*.json")
        add(f"checkpoint of {table.name}", f"tables/{table.name}/_delta_log/*.checkpoint.parquet")
        add(f"hint of {table.name}", f"tables/{table.name}/_delta_log/_last_checkpoint")
    for mart in sorted((root / "marts").iterdir())[:1]:
        add("mart", f"marts/{mart.name}/**/*.parquet")
        add("log of a mart", f"marts/{mart.name}/_delta_log/*.json")
    for folder in ("projections", "vectordb/*"):
        kinds = {path.name.partition("-")[0]: path for path in root.glob(f"{folder}/*.lance")}
        for kind, table in kinds.items():
            path = table.relative_to(root)
            name = "collection" if folder != "projections" else kind
            add(f"manifest of {name}", f"{path}/_versions/*.manifest", last=False)  # the newest comes first
            add(f"data of {name}", f"{path}/data/*.lance")
            add(f"transaction of {name}", f"{path}/_transactions/*")
            add(f"index of {name}", f"{path}/_indices/*/*")
            add(f"deletions of {name}", f"{path}/_deletions/*")
            add(f"hint of {name}", f"{path}/_versions/latest*")
    add("roster of projections", "state/projections/*")
    add("first day", "state/starts/*")
    add("agent with users", "state/agents/*/*")
    add("agent with users", "state/agents/*")
    return found


@dataclass
class Outcome:
    """What `check` and `repair` did with one damaged file."""

    seen: list[str]
    repaired: int
    after: list[str]
    differing: list[str]
    output: str

    @property
    def word(self) -> str:
        """The outcome in a word."""
        if any(crash in self.output for crash in CRASHES):
            return "CRASH"
        if not self.differing and not self.after:
            return "healed" if self.seen else "nothing lost"
        if "LOST" in self.output and self.seen:
            return "named" if self.after else "named, and goes on"
        return "BAD" if self.seen else "UNSEEN"


CRASHES = ("Traceback (most recent call last)", "panicked at", "/.cargo/", "/rustc/", "this is a bug")
#: The checks that take long and find no damage.
_SLOW = ("retention", "fallbacks", "long_summaries", "duplicate_share", "fed_back_recall")


def failing(root: Path) -> list[str]:
    """Return the assets and offenders of the checks of a lake that fail."""
    from memory_pipeline.checks import CheckContext, all_checks, run_checks
    from memory_pipeline.lake import Lake

    checks = [check for check in all_checks() if check.name not in _SLOW and not check.remedy.startswith("`memory-pip")]
    found = run_checks(CheckContext(Lake(str(root)), NOW), checks)
    return [
        f"{one.check.asset} {one.check.name}: {one.trouble or ', '.join(one.sample)}" for one in found if one.is_error
    ]


def command(*arguments: str) -> int:
    """Run a command in this process; return its exit code."""
    from memory_pipeline.cli import main

    sys.argv = ["memory-pipeline", *arguments]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `work` in a process of its own, with all that it printed as ``output``."""
    with tempfile.TemporaryFile() as result, tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            for number in (1, 2):
                os.dup2(output.fileno(), number)
            for number, name in ((1, "stdout"), (2, "stderr")):
                stream = io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), write_through=True)
                setattr(sys, name, stream)
                setattr(sys, f"__{name}__", stream)
            try:
                found = work()
            except BaseException:  # noqa: BLE001  # a panic is no exception
                traceback.print_exc()
                found = {}
            os.write(result.fileno(), json.dumps(found).encode())
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        result.seek(0)
        output.seek(0)
        return {**json.loads(result.read() or b"{}"), "output": output.read().decode(errors="replace")}


def repaired(root: Path) -> dict[str, Any]:
    """Check, repair and check a lake, and read all of it."""
    seen = failing(root)
    code = command("repair", *_AT, "--root", str(root))
    return {"seen": seen, "repaired": code, "after": failing(root), "reads": facts_of(root)}


def outcome(sound: Path, expected: dict[str, str], path: Path, kind: str, root: Path) -> Outcome:
    """Damage a copy of a lake, and see what the commands do."""
    shutil.copytree(sound, root)
    siblings = sorted(each for each in (sound / path).parent.glob(f"*{path.suffix}") if each != sound / path)
    KINDS[kind](root / path, siblings[0] if siblings else sound / path)
    done = in_child(lambda: repaired(root))
    reads = done.get("reads", {})
    differing = sorted(key for key in expected.keys() | reads.keys() if expected.get(key) != reads.get(key))
    return Outcome(
        done.get("seen", []), done.get("repaired", 70), done.get("after", ["died"]), differing, done["output"]
    )
