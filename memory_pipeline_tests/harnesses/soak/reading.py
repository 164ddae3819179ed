"""A reader of a soak: queries in a loop and logs times and violations."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import AccessDeniedError
from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.reader import MemoryReader
from memory_pipeline_tests.harnesses.soak.answers import QUESTIONS, AnswerChecker
from memory_pipeline_tests.harnesses.soak.generated import CAST, WORD
from memory_pipeline_tests.harnesses.soak.shared import GUEST, SHARING, Log, SharedFolder, Tail

if TYPE_CHECKING:
    from memory_pipeline_tests.harnesses.soak.plan import Action

#: Records of the shop are searched only as long as they cannot have expired.
_FRESH = timedelta(hours=40)
#: Seconds between two queries, so that readers do not saturate the machine.
_REST = 0.1
#: The number of recently acknowledged records to search.
_REMEMBERED = 2_000


class Reader:
    """One reader process.

    Args:
        shared: the shared folder.
        number: the number of the reader.
        limit: the number of queries; None for no limit.
    """

    def __init__(self, shared: SharedFolder, number: int, limit: int | None = None) -> None:
        self._shared = shared
        self._plan = shared.plan
        self._limit = limit
        self._log = Log(shared.reading(f"r{number}"))
        self._chance = random.Random(time.time_ns())
        self._tails = [Tail(shared.oracle(f"w{number}")) for number in range(self._plan.writers)]
        self._known: list[Action] = []
        self._secret: list[Action] = []
        self._gone: list[tuple[Scope, str | None, str]] = []
        self._looked_at = (0, 0)
        #: What each writer last did with the grant of the guest, and how often it did something.
        self._sharing = [("", 0)] * self._plan.writers
        self._checkers: dict[tuple[Scope, str | None], AnswerChecker] = {}

    def run(self) -> None:
        asked = 0
        while self._limit is None or asked < self._limit:
            clock = self._shared.clock
            if clock.is_over and self._limit is None:
                return
            self._learn()
            if self._known:
                self._ask(clock.is_rough)
                asked += 1
            time.sleep(_REST)

    def _learn(self) -> None:
        """Read the actions acknowledged since the last call."""
        for number, tail in enumerate(self._tails):
            for record in tail.read():
                if record["is"] in ("sharing", *SHARING):
                    self._sharing[number] = (record["is"], self._sharing[number][1] + 1)
                if record["is"] != "done":
                    continue
                action = self._plan.action(record["action"])
                if action.kind == "talk" and action.words:
                    (self._known if action.subject is None else self._secret).append(action)
        del self._known[:-_REMEMBERED]
        self._forget()

    def _ask(self, is_rough: bool) -> None:
        [what] = self._chance.choices(list(QUESTIONS), list(QUESTIONS.values()))
        clock = self._shared.clock
        record: dict[str, Any] = {"what": what}
        started = time.perf_counter()
        try:
            if what == "search":
                wrong = self._search()
            elif what == "guest":
                record["is_denied"], wrong = self._read_shared()
            else:
                user_id = self._chance.choice([None, self._chance.choice(self._known).user_id])
                scope = self._chance.choice(self._plan.scopes)
                wrong = self._checker(scope, user_id).ask(what, self._chance, clock.now)
        except Exception as error:  # noqa: BLE001  # every error is logged
            error_text = f"{type(error).__name__}: {error}"[:500]
            record["failed"] = error_text
            # Faults may have begun or ended during the query.
            record["is_rough"] = is_rough or clock.is_rough or self._shared.clock.is_rough
        else:
            record["seconds"] = round(time.perf_counter() - started, 5)
            if wrong:
                record["wrong"] = wrong
        self._log.append(record, durable="wrong" in record)

    def _search(self) -> list[str]:
        """Search for a record: it must be found once, or not at all after its erasure."""
        clock = self._shared.clock
        if self._gone and self._chance.random() < 0.2:
            scope, user_id, word = self._chance.choice(self._gone)
            return self._checker(scope, user_id).remains(word, clock.now)
        action = self._chance.choice(self._known)
        if action.scope.workspace_id == "shop" and self._age(action, clock.now) > _FRESH:
            return self._checker(action.scope).ask("newest", self._chance, clock.now)
        if action.user_id is not None and action.scope.workspace_id != "shop" and self._chance.random() < 0.3:
            stranger = self._chance.choice([None, "u-nobody"])
            return self._checker(action.scope, stranger).remains(action.words[0], clock.now, "is of others")
        return self._checker(action.scope, action.user_id).finds(action, clock.now)

    def _read_shared(self) -> tuple[bool, list[str]]:
        """Read as the guest. Return whether that was denied, and a violation if it was not after a revoke returned."""
        number = self._chance.randrange(self._plan.writers)
        scope = self._plan.shared(number)
        self._learn()
        sharing = self._sharing[number]
        guest = MemoryReader(self._shared.lake(), Scope(scope.workspace_id, GUEST), HashingEmbedder())
        wrong: list[str] = []
        try:
            # Without ids of results: the log of access has real times, all of them after the simulated erasures.
            found = guest.of_agent(scope.agent_id).memories.preferences(f"u-{self._chance.choice(CAST).lower()}")
        except AccessDeniedError:
            is_denied = True
        else:
            is_denied = False
            wrong = self._checker(scope).strangers([str(found)])
        self._learn()
        if self._sharing[number] == sharing and sharing[0] == SHARING[not is_denied]:
            wrong.append(f"{scope} is {sharing[0]} and the guest was {'denied' if is_denied else 'answered'}")
        return is_denied, wrong

    def _forget(self) -> None:
        """Collect the words of erased subjects."""
        receipts = sum(1 for path in (self._shared.folder / "receipts").iterdir() if path.stat().st_size)
        known = (receipts, len(self._secret))
        if not receipts or known == self._looked_at:
            return
        self._looked_at = known
        numbers = [number for number in range(1_000) if self._shared.is_forgotten(number)]
        forgotten = self._plan.forgotten(numbers)
        self._gone = [
            (action.scope, action.user_id, found[0])
            for action in self._secret[-_REMEMBERED:]
            for message in self._plan.messages(action)
            if forgotten.covers(message) and (found := WORD.search(message.content))
        ]

    @staticmethod
    def _age(action: Action, now: datetime) -> timedelta:
        return now - min(datetime.fromisoformat(one["timestamp"]) for one in action.body["messages"])

    def _checker(self, scope: Scope, user_id: str | None = None) -> AnswerChecker:
        if (scope, user_id) not in self._checkers:
            reader = MemoryReader(self._shared.lake(), scope, HashingEmbedder(), user_id=user_id)
            self._checkers[scope, user_id] = AnswerChecker(reader, self._plan.letter(scope))
        return self._checkers[scope, user_id]


def read(folder: str, number: str) -> None:
    """Run the n-th reader."""
    Reader(SharedFolder(Path(folder)), int(number)).run()
