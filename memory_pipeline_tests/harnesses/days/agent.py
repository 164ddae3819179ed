"""An agent that talks with two users for thirty days, each conversation in the way of one kind of client."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_pipeline import Memory
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.harnesses.days.model import Model, Said

START = datetime(2024, 2, 19, 7, tzinfo=UTC)
ANNA, BEN = "anna", "ben"
#: What people say again and mean again.
REPEATED = ("yes", "continue", "run the tests", "I ran 5 km today.")
#: How clients send a turn: the new message alone, the new pair, the whole list, its end, or its end after a summary.
STYLES = ("single", "pair", "whole", "window", "summary", "timed")
#: Messages of earlier turns that a client with a window sends again.
_WINDOW = 4


@dataclass
class Client:
    """A client with one conversation, and the messages that it holds."""

    talk: str
    user: str
    members: frozenset[str]
    style: str
    held: list[dict[str, Any]] = field(default_factory=list)
    turns: int = 0

    @property
    def users(self) -> list[str] | None:
        """The users to name in a call; None if the memory's own user is the only one."""
        return sorted(self.members) if len(self.members) > 1 else None


class Agent:
    """Acts on a memory and notes in the model what it must hold then."""

    def __init__(self, root: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.root = root
        self.model = Model()
        self.memories = {user: Memory(root, user_id=user, agent_id="helper") for user in (ANNA, BEN)}
        self.clients: list[Client] = []
        self.log: list[str] = []
        self._said = 0
        for style in STYLES:
            self._open(style, self.random.choice((ANNA, BEN)))
        for user in (ANNA, BEN):
            self.clients.append(Client("group", user, frozenset((ANNA, BEN)), "single"))

    def _open(self, style: str, user: str) -> None:
        self.clients.append(Client(f"{style}-{len(self.clients)}", user, frozenset((user,)), style))

    def act(self, now: datetime) -> None:
        """Do one thing: most often a turn; sometimes it is sent twice, or its answer is made again."""
        client = self.random.choice(self.clients)
        skewed = now + timedelta(seconds=self.random.randint(-90, 90))
        kinds = ["turn"] * 6 + ["retry"] * 2
        if client.style == "whole" and client.turns and client.held and self.model.talks.get(client.talk):
            kinds += ["regenerate"] * 2
        kind = self.random.choice(kinds)
        self.log.append(f"{now:%d %H:%M} {kind} of {client.talk} by {client.user}")
        if kind == "regenerate":
            self._regenerate(client, skewed)
        else:
            self._turn(client, skewed, times=2 if kind == "retry" else 1)

    def _turn(self, client: Client, now: datetime, times: int) -> None:
        client.turns += 1
        question = {"role": "user", "content": self._text(client)}
        answer = {"role": "assistant", "content": self._answer(client)}
        if client.style == "timed":
            question["timestamp"] = now.isoformat()
            answer["timestamp"] = (now + timedelta(seconds=2)).isoformat()
        new = [question] if client.talk == "group" else [question, answer]
        client.held += new
        said = [Said(one["role"], one["content"], client.user if one["role"] == "user" else None) for one in new]
        for user in sorted(client.members - self.model.members.get(client.talk, client.members)):
            if client.users:
                self._join(client, user, now)
        self.model.add(client.talk, client.members, *said)
        for messages, options in self._calls(client, new, now):
            for _ in range(times):
                self.memories[client.user].add(
                    messages, conversation_id=client.talk, users=client.users, now=now, **options
                )

    def _calls(self, client: Client, new: list[dict[str, Any]], now: datetime) -> list[tuple[Any, dict[str, Any]]]:
        """Return the arguments of the calls that send a turn.

        A whole list shows by itself what is new. All other calls have a key, because a client may send them again.
        """
        system = {"role": "system", "content": f"You are a helper. It is {now:%H:%M}."}
        key = f"{client.talk}-{client.turns}-{self.random.random()}"
        if client.style == "single":
            return [(one, {"idempotency_key": f"{key}-{place}"}) for place, one in enumerate(new)]
        if client.style == "pair":
            return [(new, {"history": False, "idempotency_key": key})]
        if client.style in {"whole", "timed"}:
            return [([system, *client.held], {} if client.turns > 1 else {"idempotency_key": key})]
        ends = client.held[-_WINDOW - len(new) :]
        if client.style == "summary" and len(ends) < len(client.held):
            system["content"] += f" Summary of {len(client.held) - len(ends)} earlier messages."
        return [([system, *ends], {"idempotency_key": key})]

    def _join(self, client: Client, user: str, now: datetime) -> None:
        """Let a user into the group again, which takes an explicit call."""
        self.log.append(f"{now:%d %H:%M} {user} joins {client.talk}")
        writer = MemoryWriter.open(self.root, workspace_id="default", agent_id="helper", users=client.users)
        writer.add_member(user, now=now)

    def _regenerate(self, client: Client, now: datetime) -> None:
        text = self._answer(client)
        client.held[-1] = {**client.held[-1], "content": text}
        self.model.regenerate(client.talk, text)
        self.memories[client.user].add(list(client.held), conversation_id=client.talk, now=now)

    def _text(self, client: Client) -> str:
        if self.random.random() < 0.3:
            return self.random.choice(REPEATED)
        return self._unique("My note")

    def _answer(self, client: Client) -> str:
        """Return an answer. Clients that send new messages alone may get the same answer twice."""
        if client.style in {"single", "pair"} and self.random.random() < 0.3:
            return "Done."
        return self._unique("Answer")

    def _unique(self, what: str) -> str:
        self._said += 1
        word = "".join(chr(ord("a") + int(digit)) for digit in f"{self._said:04}")
        return f"{what} about the harbour is {word}{word[::-1]}."

    def run(self, now: datetime) -> None:
        self.log.append(f"{now:%d %H:%M} run")
        self.memories[ANNA].run(now=now)

    def erase_conversation(self, now: datetime) -> None:
        """Erase a conversation whose client goes on and sends its whole list."""
        [client] = [one for one in self.clients if one.style == "whole"]
        self.log.append(f"{now:%d %H:%M} erase {client.talk}")
        if self.model.talks.get(client.talk):
            self.memories[client.user].forget(conversation_id=client.talk, now=now)
            self.model.erase(client.talk)

    def erase_user(self, user: str, now: datetime) -> None:
        """Erase a user, whose clients go on as if nothing had been erased."""
        self.log.append(f"{now:%d %H:%M} erase {user}")
        if any(self.model.of(user).values()):
            self.memories[user].forget(everything=True, now=now)
            self.model.erase_user(user)
