"""Invariants of every answer of a reader, which hold during concurrent writes and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.domain.periods import SUMMARY_GRAINS, Grain
from memory_pipeline_tests.harnesses.soak.generated import CAST, PLACES, THINGS, WORD

if TYPE_CHECKING:
    import random
    from datetime import datetime

    from memory_pipeline.reader import MemoryReader
    from memory_pipeline_tests.harnesses.soak.plan import Action

#: Kinds of queries, with their frequency in percent.
QUESTIONS = {
    "search": 30, "newest": 15, "summaries": 15, "recall": 15, "inject": 10, "memories": 10, "graph": 5, "guest": 5,
}  # fmt: skip


class AnswerChecker:
    """Checks one agent's memory through a reader that stays open.

    Args:
        reader: the agent's reader, or one of a user.
        letter: the letter in the agent's unique words.
    """

    def __init__(self, reader: MemoryReader, letter: str) -> None:
        self.reader = reader
        self._letter = letter

    def miss(self, action: Action) -> list[str]:
        """Return violations right after a write: each word of the record must be found once."""
        wrong = []
        for word in action.words[:2]:
            if action.kind == "memories":
                found = self.reader.memories.search(word, 10, now=action.now)
                count = sum(word in one.memory.content for one in found)
                texts = [one.memory.content for one in found]
            else:
                count, texts = self._count(word, action.now)
            if count != 1:
                wrong.append(f"{action.key}: {action.kind} {word} was acknowledged and is found {count} times")
            wrong += self.strangers(texts)
        return wrong

    def remains(self, word: str, now: datetime, why: str = "was erased") -> list[str]:
        """Return a violation if a word is found that was erased, or that this reader must not see."""
        count, _ = self._count(word, now)
        return [f"{word} {why} and is found {count} times"] if count else []

    def finds(self, action: Action, now: datetime) -> list[str]:
        """Return violations of a later search for an acknowledged record."""
        word = action.words[0]
        count, texts = self._count(word, now)
        wrong = [] if count == 1 else [f"{action.key}: {word} was acknowledged, and is found {count} times"]
        return wrong + self.strangers(texts)

    def ask(self, what: str, chance: random.Random, now: datetime) -> list[str]:
        """Run a query of a kind in :data:`QUESTIONS` except ``search`` and ``guest``. Return violations."""
        about = " ".join(chance.choice(one) for one in (CAST, PLACES, THINGS))
        match what:
            case "newest":
                hits = self.reader.search_memory("working", 0, 365, 20, now=now)
                wrong = self.strangers([hit.content for hit in hits]) + _doubled([hit.id for hit in hits])
                if [hit.starts_at for hit in hits] != sorted((hit.starts_at for hit in hits), reverse=True):
                    wrong.append("the newest are not in order")
                return wrong
            case "summaries":
                grain = chance.choice(SUMMARY_GRAINS)
                hits = self.reader.search_memory(grain, 0, 400, 5, about, now=now)
                wrong = self.strangers([hit.content for hit in hits]) + _doubled([hit.id for hit in hits])
                # Each period has one summary of each scope, even while it is recomputed.
                return wrong + _doubled([f"{hit.period} of {hit.identity}" for hit in hits])
            case "recall":
                recalled = self.reader.recall(f"What of {about}?", 400, now=now)
                wrong = self.strangers([item.content for item in recalled]) + _doubled([item.id for item in recalled])
                if recalled.tokens > 400:
                    wrong.append(f"recall returned {recalled.tokens} tokens of 400")
                return wrong
            case "inject":
                known = self.reader.inject_knowledge(f"What of {about}?", [f"{about} is known."], now=now)
                wrong = self.strangers([part.text for part in known.parts])
                return wrong + [f"inject: {trouble}" for trouble in known.troubles]
            case "memories":
                found = self.reader.memories.search(about, 10, now=now)
                wrong = self.strangers([one.memory.content for one in found]) + _doubled([o.memory.id for o in found])
                hot = self.reader.hot_index()
                return wrong + self.strangers([str(hot)]) + ([f"{len(hot)} hot lines"] if len(hot) > 20 else [])
            case "graph":
                facts = self.reader.graph.facts_about(chance.choice(CAST))
                return self.strangers([str(fact) for fact in facts]) + _doubled([fact.id for fact in facts])
        raise AssertionError(what)

    def _count(self, word: str, now: datetime) -> tuple[int, list[str]]:
        hits = self.reader.search_memory(Grain.WORKING, 0, 400, 10, word, now=now)
        return sum(word in hit.content for hit in hits), [hit.content for hit in hits]

    def strangers(self, texts: list[str]) -> list[str]:
        """Return a violation for each word of another agent."""
        words = {found[0] for text in texts for found in WORD.finditer(text)}
        return [f"{word} of another agent was found" for word in sorted(words) if word[1] != self._letter]


def _doubled(names: list[str]) -> list[str]:
    return [f"{name} was found twice" for name in sorted({name for name in names if names.count(name) > 1})]
