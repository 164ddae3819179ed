"""What a memory must hold, as plain as it can be said: the messages of each conversation, and who may read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Said(NamedTuple):
    """A message: its role, its text, and the user who said it, if it is not an assistant's."""

    role: str
    text: str
    user: str | None = None


@dataclass
class Model:
    """The messages of each conversation in the order in which they were said, and the users who take part."""

    talks: dict[str, list[Said]] = field(default_factory=dict)
    members: dict[str, frozenset[str]] = field(default_factory=dict)

    def add(self, talk: str, members: frozenset[str], *said: Said) -> None:
        self.talks.setdefault(talk, []).extend(said)
        self.members[talk] = members

    def regenerate(self, talk: str, text: str) -> None:
        self.talks[talk][-1] = self.talks[talk][-1]._replace(text=text)

    def erase(self, talk: str) -> None:
        self.talks[talk] = []

    def erase_user(self, user: str) -> None:
        for talk, said in self.talks.items():
            own = self.members[talk] == {user}
            self.talks[talk] = [] if own else [one for one in said if one.user != user]
            self.members[talk] -= {user}  # until the user joins again

    def of(self, user: str) -> dict[str, list[Said]]:
        """Return the conversations that a user may read."""
        return {talk: said for talk, said in self.talks.items() if user in self.members[talk]}

    def texts(self, user: str) -> Counter[str]:
        """Return the texts that a user may find, each with the number of times it was said."""
        return Counter(one.text for said in self.of(user).values() for one in said)
