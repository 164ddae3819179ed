"""A writer of a soak: performs the planned actions tick by tick and logs them.

After a kill it resumes. It repeats the interrupted action unchanged, like any client without an answer, or drops it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ulid import ULID

from memory_pipeline import Memory
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.sessions import MAX_TTL
from memory_pipeline.errors import InputError
from memory_pipeline.lake.journal import folder_of
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer
from memory_pipeline.reader import MemoryReader
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.harnesses.soak import generated
from memory_pipeline_tests.harnesses.soak.answers import AnswerChecker
from memory_pipeline_tests.harnesses.soak.plan import Action
from memory_pipeline_tests.harnesses.soak.shared import GUEST, POOL, SHARING, Log, SharedFolder, Tail, TappedJournal

#: Attempts of an action during network faults, and the seconds between them.
_ATTEMPTS, _PAUSE = 60, 0.3
#: Seconds between two actions of a writer, so that a tick takes a while.
_REST = 0.05


class Writer:
    """One writer process.

    Args:
        shared: the shared folder.
        number: the number of the writer.
    """

    def __init__(self, shared: SharedFolder, number: int) -> None:
        self._shared = shared
        self._number = number
        self._done: set[str] = set()
        self._tick = -1
        self._begun = ""
        #: Ids of durable memories by agent, in order.
        self._noted: dict[Scope, list[tuple[str, datetime]]] = {}
        path = shared.oracle(f"w{number}")
        for record in Tail(path).read():
            self._recall(record)
        self._log = Log(path)
        self._lake = shared.lake()
        self._journal = TappedJournal(self._lake, self._log)
        self._lake.journal = self._journal
        self._writers: dict[Scope, MemoryWriter] = {}
        self._memories: dict[tuple[Scope, str | None], Memory] = {}
        self._checkers: dict[tuple[Scope, str | None], AnswerChecker] = {}

    def _recall(self, record: dict[str, Any]) -> None:
        match record["is"]:
            case "tick":
                self._tick = record["tick"]
            case "begun":
                self._begun = record["action"]
            case "done" | "dropped":
                self._done.add(record["action"])
                for scope, memory_id, at in record.get("noted", ()):
                    self._noted.setdefault(Scope(*scope), []).append((memory_id, datetime.fromisoformat(at)))

    def run(self) -> None:
        while True:
            clock = self._shared.clock
            if self._tick >= clock.tick:
                if clock.is_over:
                    self._log.append({"is": "over"}, durable=True)
                    return
                time.sleep(0.05)
                continue
            tick = self._tick + 1
            self._share_with_guest(tick)
            for action in self._shared.plan.actions(self._number, tick):
                if action.key not in self._done:
                    self._do(action)
                    time.sleep(0 if clock.is_over else _REST)
            self._tick = tick
            self._log.append({"is": "tick", "tick": tick}, durable=True)

    def _share_with_guest(self, tick: int) -> None:
        """Let the guest read the agent's memory, or take that back, in turns. Until the log says so, both may hold."""
        verb = SHARING[tick % 2]
        writer = self._writer(self._shared.plan.shared(self._number))
        self._log.append({"is": "sharing"})
        try:
            writer.grant(GUEST) if tick % 2 == 0 else writer.revoke(GUEST)
        except Exception as error:  # noqa: BLE001  # every error is logged
            what, is_rough = f"{type(error).__name__}: {error}"[:500], self._shared.clock.is_rough
            self._log.append({"action": verb, "is": "failed", "what": what, "is_rough": is_rough})
        else:
            self._log.append({"is": verb})

    def _do(self, action: Action) -> None:
        """Repeat an action until it succeeds."""
        if action.key == self._begun and action.is_dropped:
            self._end(action, "dropped")
            return
        self._log.append({"action": action.key, "is": "begun"}, durable=True)
        self._journal.action = action.key
        for attempt in range(_ATTEMPTS):
            try:
                noted = self._perform(action)
                break
            except (InputError, AssertionError) as error:
                if action.kind != "later":  # the changed memory may have been erased
                    self._log.append({"action": action.key, "is": "wrong", "what": f"{action.kind}: {error}"})
                self._end(action, "dropped")
                return
            except Exception as error:
                what = f"{type(error).__name__}: {error}"[:500]
                is_rough = self._shared.clock.is_rough
                self._log.append({"action": action.key, "is": "failed", "what": what, "is_rough": is_rough})
                if action.is_dropped:
                    self._end(action, "dropped")
                    return
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_PAUSE)
        self._end(action, "done", noted)
        if action.is_looked_for and action.subject is None and action.kind in ("talk", "memories"):
            self._look(action)

    def _end(self, action: Action, how: str, noted: list[tuple[str, str]] | None = None) -> None:
        scope = [action.scope.workspace_id, action.scope.agent_id]
        record = {"action": action.key, "is": how, "noted": [[scope, *one] for one in noted or ()]}
        self._log.append(record, durable=True)
        self._recall(record)

    def _perform(self, action: Action) -> list[tuple[str, str]]:
        """Perform an action once. Return the ids and times of durable memories."""
        writer = self._writer(action.scope)
        match action.kind:
            case "talk":
                writer.write(action.body, now=action.now)
                self._share(action)
            case "compact":
                writer.compact(action.body, keep=1, summarizer=ExtractiveSummarizer(), now=action.now)
            case "refused":
                with suppress(InputError):
                    writer.write(action.body, now=action.now)
                    raise AssertionError(f"{action.key} should have been refused")
            case "garbage":
                # Like another program that writes a file with a valid name and invalid content.
                at = datetime.fromisoformat(action.body["at"])
                owner = folder_of(action.scope)
                line = (action.body["line"] + "\n").encode()
                self._lake.ensure()
                self._lake.storage.write(f"{owner}/{at:%Y-%m-%dT%H}__{ULID()}.jsonl", line)
            case "edits":
                writer.graph.apply(action.body, now=action.now)
            case "memories":
                ids = writer.change_memories(action.body, now=action.now)
                return [
                    (memory_id, change["timestamp"])
                    for memory_id, change in zip(ids, action.body, strict=True)
                    if "key" not in change
                ]
            case "later":
                noted = self._noted.get(action.scope, [])
                if noted:
                    memory_id, said_at = noted[-1]
                    at = max(datetime.fromisoformat(action.body["timestamp"]), said_at + timedelta(seconds=30))
                    chance = self._shared.plan._chance("later", action.key)
                    writer.change_memories([generated.later(chance, memory_id, at)], now=action.now)
            case "echo":
                reader = self._checker(action.scope).reader
                block = reader.inject_knowledge(action.body["query"], max_tokens=300, now=action.now).block
                said = {"role": "assistant", "content": block, "timestamp": action.now.isoformat()}
                if block.strip():
                    talk = {"conversation_id": action.key.replace("/", "-"), "messages": [said]}
                    receipt = writer.write(talk, now=action.now)
                    assert not receipt.message_ids, f"recalled memory was written again: {block[:200]!r}"
        return []

    def _share(self, action: Action) -> None:
        """Note an action in its session, and in pools that agents of the workspace share."""
        scope, note = action.scope, self._shared.plan.note(action)
        if (owner := (scope, note.user_id)) not in self._memories:
            self._memories[owner] = Memory(
                self._lake.storage.uri,
                workspace_id=scope.workspace_id,
                agent_id=scope.agent_id,
                user_id=note.user_id,
            )
        memory, now = self._memories[owner], note.now
        session = memory.session(note.session_id)
        session.store(action.key, note.text, ttl=MAX_TTL, now=now)
        read = session.retrieve(action.key, now=now)
        assert read == note.text, f"{action.key} reads {read} in its session"
        session.short_term.store(action.key, note.text, now=now)  # is promoted when it has expired
        for _ in range(note.reads):
            session.short_term.retrieve(action.key, now=now)
        if note.pool_type is not None:
            memory.pool("notes", type=note.pool_type).write(action.key, note.text, now=now)
        memory.pool(POOL, scope="global").write(action.key, 1, now=now)
        self._log.append({"action": action.key, "is": "shared", "workspace": scope.workspace_id}, durable=True)

    def _look(self, action: Action) -> None:
        """Search for a record right after its write: it must be found once."""
        started = time.perf_counter()
        try:
            wrong = self._checker(action.scope, action.user_id).miss(action)
        except Exception as error:  # noqa: BLE001  # every error is logged
            is_rough = self._shared.clock.is_rough
            what = f"{type(error).__name__}: {error}"[:500]
            self._log.append({"action": action.key, "is": "failed", "what": f"reading: {what}", "is_rough": is_rough})
            return
        seconds = time.perf_counter() - started
        self._log.append({"action": action.key, "is": "looked", "seconds": seconds})
        for what in wrong:
            self._log.append({"action": action.key, "is": "wrong", "what": what}, durable=True)

    def _writer(self, scope: Scope) -> MemoryWriter:
        if scope not in self._writers:
            self._writers[scope] = MemoryWriter(self._lake, scope)
        return self._writers[scope]

    def _checker(self, scope: Scope, user_id: str | None = None) -> AnswerChecker:
        if (scope, user_id) not in self._checkers:
            reader = MemoryReader(self._shared.lake(), scope, HashingEmbedder(), user_id=user_id)
            self._checkers[scope, user_id] = AnswerChecker(reader, self._shared.plan.letter(scope))
        return self._checkers[scope, user_id]


def write(folder: str, number: str) -> None:
    """Run the n-th writer."""
    Writer(SharedFolder(Path(folder)), int(number)).run()
