"""Find memories that say the same: on each save by their words, and in pass 2 of the consolidation, which merges them.

Neither loses content.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.memories.draft import named
from memory_pipeline.domain.memories.events import NOTHING_SAID, Changes, MemoryVerb, key_of
from memory_pipeline.domain.memories.permanence import PERMANENT_KINDS
from memory_pipeline.domain.memories.record import (
    MAX_CONTENT,
    DurableMemory,
    one_line_summary,
    sentences,
    signs,
    title_of,
)
from memory_pipeline.domain.text.words import STOP_WORDS, parts_of, plain, spaced, stem, word_set
from memory_pipeline.errors import InputError, ModelError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence
    from datetime import datetime

    from memory_pipeline.domain.memories.draft import ConsolidationSettings, Curator, Draft, Similar
    from memory_pipeline.domain.memories.record import MemoryKind

_ARTICLES = frozenset(["a", "an", "the"])
#: Words for numbers and dates, beside those with a digit.
_NUMBER_WORDS = word_set(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion
    first second third fourth fifth sixth seventh eighth ninth tenth last half quarter double twice once
    monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december
    spring summer autumn winter morning noon afternoon evening night midnight
    daily weekly monthly quarterly yearly today yesterday tomorrow am pm
    """
)
_NUMBER_FORMS = frozenset(map(stem, _NUMBER_WORDS))
#: Words that negate the rest of a clause.
_NEGATIONS = word_set(
    """
    no not never none nobody nothing nowhere neither nor without cannot cant dont doesnt didnt isnt arent wasnt
    werent wont wouldnt shouldnt mustnt hasnt havent hadnt couldnt except unless hardly rarely seldom
    dislike dislikes disliked hate hates hated avoid avoids avoided refuse refuses refused stop stops stopped quit quits
    forbid forbids forbidden ban bans banned unlike against former formerly
    """
)
_TOKEN = re.compile(r"(?:(?<![^\W_])-(?=\d))?[^\W_]+(?:[.,:/-]\d+|'[^\W_]+)*|[.!?;,\n]")
_WORD = re.compile(r"[^\W_]+")
_DIGIT = re.compile(r"\d")
_ENDS = frozenset(".!?;,\n")
#: Words without which a statement says the same, and the full words for short ones.
_FILLERS = _ARTICLES | {"please", "kindly", "currently", "actually", "also", "per"}
_FULL = {"'m": "am", "'re": "are", "'ve": "have", "'ll": "will", "n't": "not"} | {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())
}
#: Words that begin an adverbial, which stands at either end of a sentence.
_ADVERBIAL = frozenset(["in", "on", "at", "since", "for", "during", "every", "after", "before", "until"])
_PIECE = re.compile(r"[^\W_]+(?:[.,:/'-][^\W_]+)*|[^\s.!…\"“”]")
_SINCE = "since"
_BREAKS = frozenset([*",;:()–—", _SINCE])
#: Least cosine of the words of two texts of which one says more than the other.
_NEAR = 0.75
#: Significant decimals of a cosine; further ones depend on the machine's order of additions.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class _Features:
    """The features that distinguish similar memories."""

    setting: tuple[str | bool | None, ...]
    distinctions: tuple[frozenset[str], frozenset[str], frozenset[str]]
    words: tuple[str, ...]
    names: frozenset[str]
    keys: frozenset[str]
    subject: str | None
    object: str | None


def merge(draft: Draft, settings: ConsolidationSettings, similar: Similar, curator: Curator) -> None:
    """Merge the memories that changed on the day with their duplicates; the newer one of each pair stays.

    Entries of contexts are left alone. Duplicates have the same triple, the same words, or similar vectors, and no
    distinguishing feature: another user or key, another outcome, another subject or object, a name in each that the
    other lacks, other numbers or dates, or other negated words. A merged memory is compared with its merged content, so
    that chains end as one memory in any order.
    """
    pool: defaultdict[MemoryKind, list[DurableMemory]] = defaultdict(list)
    for memory in draft.memories.newest.values():
        if memory.is_recalled and memory.context is None:
            pool[memory.kind].append(memory)
    features = FeatureCache()
    found: dict[tuple[str, str], float] = {}
    for _, memories in sorted(pool.items()):
        memories.sort(key=lambda memory: memory.id)
        changed = [memory for memory in memories if memory.changed_at >= draft.since]
        if not changed or len(memories) < 2:
            continue
        known = {memory.id: memory for memory in memories}
        alike = ((one, other, 1.0) for one, other in _alike(changed, memories, features))
        for one, other, cosine in chain(similar(changed, memories, settings.similarity), alike):
            pair, near = (min(one, other), max(one, other)), round(cosine, _DIGITS)
            if one == other or not settings.similarity <= near > found.get(pair, 0.0):
                continue
            if pair in found or features.agree(known[one], known[other]):
                found[pair] = near
    for (one, other), cosine in sorted(found.items(), key=lambda entry: (-entry[1], entry[0])):
        _merge_pair(draft, one, other, cosine, curator, features)


def is_similar(said: Changes, memory: DurableMemory) -> bool:
    """Return whether a text to remember says what a memory says, or one of them says it and a little more.

    The words, their order, numbers, names, negations and signs must be the same. Articles, politeness and contractions
    do not count, nor whether an adverbial begins or ends a sentence. The text may add sentences, or names and numbers
    at the end of one: "in Porto, Portugal", "vegan since May". If the memory is the longer one, it may have more
    sentences or a "since"; a shorter list or a shorter instruction could mean that the rest no longer holds.
    """
    text, known = said.content or "", memory.content
    terms = ((said.subject, memory.subject), (said.predicate, memory.predicate), (said.object, memory.object))
    if any(name is not None and name_key(name) != name_key(own or "") for name, own in terms):
        return False
    if (said.is_point_in_time or False) is not memory.is_point_in_time:
        return False
    return _says_all(text, known, _BREAKS) or (
        memory.kind not in PERMANENT_KINDS and _says_all(known, text, frozenset([_SINCE]))
    )


def longest_word(content: str) -> str:
    """Return the longest word of the first sentence, before anything that a similar text may lack."""
    words: Sequence[_Said] = next((words for words in map(_said, sentences(content)) if words), ())
    end = next((place for place, word in enumerate(words) if place and word.follows in _BREAKS), len(words))
    return max((word.written for word in words[:end]), key=len, default="")


def rewritten(memory: DurableMemory, content: str) -> Changes:
    """Return the changes to a memory that gets another content. Custom titles and hooks stay."""
    if content == memory.content:
        return NOTHING_SAID
    return Changes(
        content=content,
        title=None if memory.title == title_of(memory.content) else memory.title,
        hook=None if memory.hook == one_line_summary(memory.content) else memory.hook,
    )


def union(newer: str, older: str) -> str:
    """Return the newer content, followed by the sentences that only the older one has."""
    known = {_comparable(sentence) for sentence in sentences(newer)}
    unseen: dict[str, str] = {}
    for sentence in sentences(older):
        words = _comparable(sentence)
        if words not in known:
            unseen.setdefault(words, sentence)
    if not unseen:
        return newer
    joint = " " if newer.rstrip().endswith((".", "!", "?")) else "\n"
    return f"{newer.rstrip()}{joint}{_joined(unseen.values())}"


def figures(content: str) -> frozenset[str]:
    """Return the words with a digit, in comparable form."""
    return frozenset(token for token in _tokens(content) if _DIGIT.search(token))


class FeatureCache:
    """The distinguishing features of memories, cached by version."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], _Features] = {}

    def at(self, memory: DurableMemory) -> _Features:
        """Return the features of a memory."""
        version = memory.id, memory.version
        entry = self._known.get(version)
        if entry is None:
            keys = frozenset((key_of(memory), *memory.match_keys))
            subject, thing = (None if name is None else name_key(name) for name in (memory.subject, memory.object))
            distinctions, stems, names = _distinctions(memory.content), _stems(memory), _names(memory.content)
            entry = _Features(memory.setting, distinctions, stems, names, keys, subject, thing)
            self._known[version] = entry
        return entry

    def agree(self, one: DurableMemory, other: DurableMemory) -> bool:
        """Return whether two memories have no distinguishing feature, regardless of their vectors."""
        first, second = self.at(one), self.at(other)
        if first.setting != second.setting:
            return False
        if one.key is not None:
            return True  # A user has one preference per name.
        if first.distinctions != second.distinctions:
            return False
        if not first.keys.isdisjoint(second.keys):
            return True
        is_within = _within(first.words, second.words) or _within(second.words, first.words)
        if one.kind in PERMANENT_KINDS and not is_within:
            return False  # Similar vectors do not show who should do what to whom.
        names_differ = first.names - second.names and second.names - first.names  # lunch with Ben, and with Tom
        return not (names_differ or _differ(first.subject, second.subject) or _differ(first.object, second.object))


def _merge_pair(
    draft: Draft, one_id: str, other_id: str, cosine: float, curator: Curator, features: FeatureCache
) -> None:
    memories = draft.memories
    one, other = memories.newest[memories.resolved(one_id)], memories.newest[memories.resolved(other_id)]
    if one.id == other.id or not (one.is_recalled and other.is_recalled) or not features.agree(one, other):
        return
    older, newer = sorted((one, other), key=recency)
    content, how = newer.content, "the newer one stays"
    if newer.key is None and key_of(newer) != key_of(older):
        joined = union(newer.content, older.content)
        if len(joined) > MAX_CONTENT:
            return  # Truncation would lose content.
        content, how = _merged(draft, newer, older, joined, curator)
    why = "the same words, triple or name" if cosine >= 1.0 else f"cosine {cosine:.4f}"
    reason = f"{named(newer)} and {named(older)} say the same ({why}): {how}"
    draft.act(MemoryVerb.MERGE, newer, reason, other=older, changes=rewritten(newer, content))


def _merged(draft: Draft, newer: DurableMemory, older: DurableMemory, joined: str, curator: Curator) -> tuple[str, str]:
    """Return the merged content, and how it was merged."""
    how = "the newer one stays" if joined == newer.content else "the newer one stays, with what only the older one said"
    try:
        content = curator.merge(draft.scope, newer.content, older.content, draft.day)
        content = Changes.of({"content": content}).content or joined
    except ModelError as error:
        return joined, f"{how} (the model did not help: {error.trouble})"
    except InputError:
        return joined, f"{how} (what the model wrote cannot be kept)"
    if content == joined:
        return joined, how
    return content, f"the newer one stays, and {curator.name(draft.scope)} has put both into one text"


def _alike(
    changed: Iterable[DurableMemory], memories: Iterable[DurableMemory], features: FeatureCache
) -> Iterator[tuple[str, str]]:
    """Yield pairs with the same triple, words or preference name, with at least one changed memory.

    Each memory of a group is paired only with the newest one, since all of them end up merged.
    """
    changed_ids = {memory.id for memory in changed}
    groups: dict[Hashable, list[DurableMemory]] = {key: [] for memory in changed for key in _keys(memory)}
    for memory in memories:
        for key in _keys(memory):
            if key in groups:
                groups[key].append(memory)
    for group in groups.values():
        if len(group) < 2:
            continue
        parts: defaultdict[Hashable, list[DurableMemory]] = defaultdict(list)
        for memory in group:
            entry = features.at(memory)
            parts[entry.setting, None if memory.key is not None else entry.distinctions].append(memory)
        for part in parts.values():
            newest = max(part, key=recency)
            for memory in part:
                if memory.id in changed_ids or newest.id in changed_ids:
                    yield memory.id, newest.id


def _keys(memory: DurableMemory) -> Iterator[Hashable]:
    if memory.key is not None:
        yield memory.setting
        return
    key = key_of(memory)
    if key not in memory.match_keys:
        yield key
    yield from memory.match_keys
    if memory.subject and memory.predicate and memory.object:
        yield name_key(memory.subject), memory.predicate, name_key(memory.object)


def recency(memory: DurableMemory) -> tuple[datetime, datetime, str]:
    """Return a sort key: memories that were stated later are last."""
    return memory.updated_at, memory.created_at, memory.id


class _Said(NamedTuple):
    """A word, as it is compared and as it is written, and the break that it follows."""

    word: str
    written: str
    follows: str | None


@lru_cache(maxsize=4_096)  # a text to remember is compared with many
def _said(sentence: str) -> tuple[_Said, ...]:
    found: list[_Said] = []
    follows: str | None = None
    for piece in _PIECE.findall(sentence.replace("’", "'")):
        if piece in _BREAKS:
            follows = piece
        if piece in _BREAKS and piece != _SINCE:
            continue
        parts = [_FULL.get(part, part) for part in parts_of(plain(piece))]
        found += [_Said(part, piece, follows) for part in parts if part not in _FILLERS]
        follows = None
    return tuple(found)


def _says_all(text: str, other: str, breaks: frozenset[str]) -> bool:
    """Return whether a text has each sentence of another text, with names and numbers after it at most."""
    own, others = ([said for said in map(_said, sentences(one)) if said] for one in (text, other))
    words, wanted = ({word.word for said in all_said for word in said} for all_said in (own, others))
    if not wanted or len(words & wanted) < _NEAR * (len(words) * len(wanted)) ** 0.5:
        return False
    return all(any(_says(said, short, breaks) for said in own) for short in others)


def _says(long: Sequence[_Said], short: Sequence[_Said], breaks: frozenset[str]) -> bool:
    one, other = [said.word for said in long], [said.word for said in short]
    if len(one) > len(other):
        added = long[len(other) :]
        names = added[1:] if added[0].word == _SINCE else added
        is_named = bool(names) and all(said.written[0].isupper() or said.written[0].isdigit() for said in names)
        return one[: len(other)] == other and added[0].follows in breaks and is_named
    turned = ((one, other), (other, one))
    return one == other or any(
        left[0] in _ADVERBIAL and any(left[at:] + left[:at] == right for at in range(2, len(left)))
        for left, right in turned
    )


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _stems(memory: DurableMemory) -> tuple[str, ...]:
    return tuple(stem(word) for word in spaced(plain(memory.content)).split() if word not in STOP_WORDS)


def _names(content: str) -> frozenset[str]:
    """Return the capitalized words that do not begin a sentence."""
    words = [word for sentence in sentences(content) for word in _WORD.findall(sentence)[1:]]
    capitalized = {word.casefold() for word in words if word[0].isupper() and word != "I"}
    return frozenset(word for word in capitalized if stem(word) not in _NUMBER_FORMS)


def _within(words: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Return whether `others` contains all of `words` in the same order."""
    rest = iter(others)
    return all(word in rest for word in words)


def _comparable(text: str) -> str:
    words = " ".join(word for word in spaced(plain(text)).split() if word not in _ARTICLES)
    return " ".join((words, *signs(text))) if words else text


def _distinctions(content: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the numbers and dates of a text, its negated words, and its signs."""
    numbers, denied = set[str](), set[str]()
    denies = False
    for token in _tokens(content):
        if token in _ENDS:
            denies = False
        elif _DIGIT.search(token):
            numbers.add(token)
        elif token in _NEGATIONS or token.endswith("n't"):
            denies = True
        elif (form := stem(token.partition("'")[0])) in _NUMBER_FORMS:
            numbers.add(form)
        elif denies and token not in STOP_WORDS:
            denied.add(form)
    return frozenset(numbers), frozenset(denied), frozenset(signs(content))


def _tokens(content: str) -> list[str]:
    return _TOKEN.findall(plain(content).replace("’", "'").replace("−", "-"))


def _joined(texts: Iterable[str]) -> str:
    return "".join(f"{text} " if text.endswith((".", "!", "?")) else f"{text}\n" for text in texts).rstrip()
