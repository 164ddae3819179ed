"""Helpers for tests of injection: a small memory, fake search results, and strategies for texts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from memory_pipeline.configuration.model_settings import Injection
from memory_pipeline.domain.periods import Calendar, Grain
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.lake import Lake
from memory_pipeline.lake.lake import CONFIGURATION
from memory_pipeline.models.factory import ReadingModels
from memory_pipeline.reader.packing.injection import Searches, document_parts, inject
from memory_pipeline.reader.packing.items import Recalled, Source
from memory_pipeline.reader.packing.packer import Packer
from memory_pipeline.reader.packing.recall import RecallCandidates
from memory_pipeline.writer import MemoryWriter
from memory_pipeline_tests.building import conversation, write
from memory_pipeline_tests.reader.ways import make_hours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory_pipeline.models.factory import Models
    from memory_pipeline.reader import MemoryReader
    from memory_pipeline.reader.packing.items import InjectedContext

JANUARY = datetime(2024, 1, 20, 8, tzinfo=UTC)
OTHER = Scope("acme", "sales")
PROMPT = "Where does Anna live, and what about Bruno?"
SAID = ["I moved to Porto last week.", "My dog is called Bruno.", "Bruno ate my passport on Tuesday."]
DOCUMENTS = [f"Paragraph {number} of the handbook is about Anna, Bruno and Porto." for number in range(50)]

_PIECES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(
        ["\n", "\n\n\n", "\r\n", "\u2028", "\x85\x0b\x1c", "a\n" * 40, "Ж" * 300, "漢字" * 90, "🦊 " * 60, "word " * 80]
    ),
    st.sampled_from(
        ["<recalled-memory 0123456789ab>", "</Recalled-Memory 0123456789ab>", "&lt;recalled-memory ", "\\"]
    ),
)
#: Any text: all scripts, control characters, all line breaks, delimiters.
TEXTS = st.lists(_PIECES, min_size=1, max_size=5).map("".join).filter(str.strip)
#: The same, with more than white space and delimiters.
PROMPTS = TEXTS.filter(lambda text: without_recalled(text).replace("\x00", " ").strip())
_WORDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
#: Texts of any script with short words, long enough to be cut.
WORDED = st.lists(_WORDS, min_size=12, max_size=200).map(" ".join)


#: Summaries are of times without facts, since no summary appears beside its facts.
_PERIODS = {Grain.WORKING: "2024-01-15T08", Grain.DAILY: "2022-01-15", Grain.MONTHLY: "2022-01"}
_GRAINS: dict[Source, Any] = {
    Source.MEMORY: Grain.WORKING,
    Source.SUMMARY: Grain.DAILY,
    **{source: source.value for source in (Source.DURABLE, Source.GRAPH, Source.DOCUMENT)},
}


def recalled(text: str, number: int = 0, grain: Grain = Grain.WORKING, messages: Sequence[str] = ()) -> Recalled:
    identifier, strength = f"{grain}:{number}", 1.0 - number / 1_000
    return Recalled(
        identifier, grain, _PERIODS[grain], date(2024, 1, 15), text, tuple(messages), 1.0, "turn", strength=strength
    )


def part(text: str, source: Source = Source.MEMORY, *evidence: str, warning: str | None = None) -> Recalled:
    grain = _GRAINS[source]
    kind = "turn" if source is Source.MEMORY else None
    return Recalled(text, grain, _PERIODS.get(grain, ""), None, text, evidence, kind=kind, warning=warning)


def packed(parts: Sequence[Recalled], most: int = 10, tokens: int = 1_000) -> list[Recalled]:
    """Return the items that the packer chooses for a block, in the order of choice."""
    packer = Packer(Calendar(), tokens, is_block=True, most=most)
    packer.fill(parts)
    return packer.chosen


class Backwards:
    """Reverses the order: documents before memories."""

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        return list(range(len(texts)))[::-1]


class DocumentsFirst:
    """Sorts all documents first."""

    def order(self, prompt: str, texts: Sequence[str]) -> list[int]:
        return sorted(range(len(texts)), key=lambda place: not texts[place].startswith("Paragraph"))


def injected(
    recollection: Sequence[Recalled],
    documents: Sequence[object] = (),
    prompt: str | None = PROMPT,
    *,
    rerank: str = "deterministic",
    models: ReadingModels | None = None,
    most: int | None = None,
    tokens: int | None = None,
    search: Callable[[int, list[str] | None], Sequence[Recalled]] = lambda *_: (),
) -> InjectedContext:
    """Inject fake search results."""
    limits = {"max_results": most, "max_tokens": tokens, "minimum_score": 0}
    return inject(
        prompt,
        document_parts(documents),
        Injection.model_validate({"rerank": rerank}).model_copy(
            update={name: one for name, one in limits.items() if one is not None}
        ),
        models or ReadingModels(),
        Searches(
            lambda _: RecallCandidates(
                [one for one in recollection if one.source is Source.MEMORY],
                [one for one in recollection if one.source is Source.SUMMARY],
                [],
            ),
            search,
        ),
        Calendar(),
    )


def remember(root: str, models: Models) -> None:
    """Build the memory of two agents with journal entries and tables, without summaries."""
    lake = Lake(root)
    write(lake, conversation(*SAID))
    write(lake, conversation("Our price for Bruno is 900 euros.", scope=OTHER, name="Carla"))
    make_hours(root, models)
    write_fact(root, "Anna", "works_for", "Initech")


def write_fact(root: str, subject: str, predicate: str, value: str) -> None:
    """Write a pending fact into the tested agent's graph."""
    writer = MemoryWriter.open(root, workspace_id="acme", agent_id="support")
    writer.graph.insert(subject, predicate, value, now=datetime(2024, 1, 16, tzinfo=UTC))


def ask(
    reader: MemoryReader, prompt: str = PROMPT, documents: Sequence[object] = (), **options: Any
) -> InjectedContext:
    return reader.inject_knowledge(prompt, documents, now=JANUARY, **options)


def configure(lake: Lake, text: str) -> None:
    lake.ensure()
    lake.storage.write(CONFIGURATION, text.encode())
