"""Check that what a model derives is founded on its sources; what is not is rejected, with a reason.

A model may return a valid answer that is wrong: an invented name or amount, what only the assistant guessed, or the
example of the prompt. In doubt a text is rejected: the messages themselves stay.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memory_pipeline.domain.graph.triples import name_key
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.text.foreign_text import own_text
from memory_pipeline.domain.text.words import STOP_WORDS, spaced
from memory_pipeline.models.hosted import claims
from memory_pipeline.models.hosted.claims import claim_of
from memory_pipeline.models.hosted.evidence import SHARE_OF_SUMMARY, SOME_DAY, SourceText, SourceTexts, Unfounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from zoneinfo import ZoneInfo

    from memory_pipeline.domain.graph.triples import Triple
    from memory_pipeline.domain.messages import Message

#: Messages before a cited one that it may refer to.
_REACH = 10
#: Fewest words of a prompt's text by which it is recognised.
_LEAST_QUOTE = 4
_I = re.compile(
    r"\b(?:i|me|my|mine|we|our|us|ich|mich|mir|mein\w*|wir|uns\w*|je|moi|mon|ma|mes|nous|notre|yo|mi|mis|nosotros|eu|meu"
    r"|minha|io|mio|mia|ik|mijn|я|мой|моя|мы)\b|[我私僕저나내]",
    re.IGNORECASE,
)
_REFERS = re.compile(
    r"\b(?:she|he|they|it|her|him|his|their|them|there|that|this|these|those|sie|er|ihr|ihm|ihn|sein\w*|dort|elle|il|lui"
    r"|leur|ella|él|ellos|allí|lei|egli|lì|она|он|там)\b|[它他她那]",
    re.IGNORECASE,
)
_YES = re.compile(
    r"\W*(?:(?:yes|yeah|yep|right|correct|exactly|true|indeed|ja|genau|stimmt|oui|exact|sí|si|claro|exacto|sim|da|да|tak"
    r"|evet)\b|[是对對]|はい|네|예)",
    re.IGNORECASE,
)
_TRUTHS = frozenset(["true", "yes", "false", "no"])


class Grounds:
    """The sources of a question about messages: what each part of its answer may rest on.

    What a user said founds everything. What an assistant said founds only what is told of it, and what the user's next
    message affirms. `earlier` and the users' messages before a cited one explain whom it refers to ("she", "there").
    `known` are the known facts that the question shows; they explain names such as that of "Mum". `sources` are those
    of messages by id, to share them among the questions of a passage.
    """

    def __init__(
        self,
        messages: Sequence[Message],
        known: Sequence[Triple],
        prompt: str,
        zone: ZoneInfo,
        sources: dict[str, SourceText] | None = None,
        *,
        may_translate: bool = False,
    ) -> None:
        self._messages = messages
        self._places = {message.id: place for place, message in enumerate(self._messages)}
        self._known, self._zone, self._may_translate = known, zone, may_translate
        self._prompt = f" {claims.comparable(prompt)} "
        self._sources = {} if sources is None else sources
        self._users = {message.speaker for message in self._messages if message.role is Role.USER}

    def refuse_fact(
        self, content: str, cited: Sequence[Message], *, instructs: bool = False, is_durable: bool = False
    ) -> Unfounded | None:
        """Return why a fact is not founded on the cited messages; None if it is."""
        if self._quotes_prompt(content, cited):
            return Unfounded.PROMPT
        if claim_of(content, SOME_DAY).starts_with_pronoun:
            return Unfounded.PRONOUN
        users = [message for message in cited if message.role is Role.USER]
        tells_of_agent = self._names_agent(content, cited)
        if not users and (instructs or (not tells_of_agent and self._names_user(content))):
            return Unfounded.INSTRUCTION if instructs else Unfounded.ASSISTANT
        is_lasting = instructs or is_durable
        with_agent = not users or (tells_of_agent and not is_lasting)
        refused = self._evidence(cited, with_agent=with_agent, own=is_lasting).refuse(content)
        if refused is None:
            return None
        if self._evidence(cited, with_agent=with_agent).refuse(content) is None:
            return Unfounded.PASTED
        is_said = self._evidence(cited, with_agent=True).refuse(content) is None
        return Unfounded.ASSISTANT if is_said else refused

    def refuse_gist(self, content: str, cited: Sequence[Message]) -> Unfounded | None:
        """Return why a summary of messages is not founded on them; None if it is."""
        if self._quotes_prompt(content, cited):
            return Unfounded.PROMPT
        names, known = (message.speaker for message in self._messages), map(SourceText, map(str, self._known))
        evidence = SourceTexts(map(self._source, cited), names, known, may_translate=self._may_translate)
        return evidence.refuse(content, SHARE_OF_SUMMARY)

    def refuse_terms(
        self,
        terms: tuple[str, str, str],
        cited: Sequence[Message],
        replaced: Triple | None = None,
        *,
        ends: bool = False,
    ) -> Unfounded | None:
        """Return why a triple is not founded on the cited messages; None if it is.

        `replaced` is the known fact that the answer replaces or withdraws. If it only `ends` one, the messages must
        mention its predicate or object.
        """
        subject, predicate, thing = terms
        if claims.is_pronoun(subject) or claims.is_pronoun(thing):
            return Unfounded.PRONOUN
        users = [message for message in cited if message.role is Role.USER]
        is_agent = name_key(subject) in {"agent", *(name_key(m.speaker) for m in cited if m.role is Role.ASSISTANT)}
        if not users and not is_agent:
            return Unfounded.ASSISTANT
        evidence = self._evidence(cited, with_agent=is_agent, own=True, known=replaced)
        if not evidence.has_term(subject):
            return Unfounded.NAME
        if ends:
            texts = SourceTexts(self._source(message, own=True) for message in users)
            ended = [
                fact.target
                for fact in self._known
                if (name_key(fact.source), fact.label) == (name_key(subject), predicate)
            ]
            words = [
                word
                for word in spaced(" ".join([predicate, thing or " ".join(ended)])).split()
                if word not in STOP_WORDS
            ]
            return None if any(map(texts.has, words)) else Unfounded.WORDS
        speakers = [message.speaker for message in cited]
        said = SourceTexts(self._told(cited, with_agent=is_agent, own=True), speakers)
        value = predicate.replace("_", " ") if thing.casefold() in _TRUTHS else thing
        if not (said.has_term(value) or (evidence.has_term(value) and value[:1].isupper())):
            return Unfounded.NUMBER if any(character.isdigit() for character in value) else Unfounded.WORDS
        is_exact = any(character.isdigit() or character == "@" for character in value)
        return None if is_exact or evidence.relates(predicate) else Unfounded.WORDS

    def has_name(self, name: str, cited: Sequence[Message]) -> bool:
        """Return whether the sources of cited messages have a name."""
        return self._evidence(cited, with_agent=True).has_term(name)

    def _evidence(
        self, cited: Sequence[Message], *, with_agent: bool, own: bool = False, known: Triple | None = None
    ) -> SourceTexts:
        told = list(self._told(cited, with_agent=with_agent, own=own))
        names, context = [message.speaker for message in cited], list[SourceText]()
        joined = " ".join(source.text for source in told)
        context += [SourceText(str(fact)) for fact in self._known if _is_linked(fact, told, names)]
        if _REFERS.search(joined) or not _I.search(joined):
            last = max((self._places[message.id] for message in cited), default=0)
            before = self._messages[max(0, last - _REACH) : last]
            context += [self._source(message) for message in before if message.role is Role.USER]
            context += [] if known is None else [SourceText(known.source)]
        return SourceTexts(told, names, context, may_translate=self._may_translate)

    def _told(self, cited: Sequence[Message], *, with_agent: bool, own: bool) -> Iterable[SourceText]:
        """Yield the sources: what users said and affirmed, and with `with_agent` what an assistant stated.

        With `own`, texts that users pasted are left out.
        """
        has_user = any(message.role is Role.USER for message in cited)
        for message in cited:
            if message.role is Role.USER:
                yield self._source(message, own=own)
                place = self._places[message.id]
                before = self._messages[place - 1] if place else None
                if before is not None and before.role is Role.ASSISTANT and _YES.match(message.content):
                    yield self._source(before)
            elif with_agent:
                yield self._source(message) if has_user else self._statements(message)

    def _source(self, message: Message, *, own: bool = False) -> SourceText:
        key = f"own {message.id}" if own else message.id
        if key not in self._sources:
            text = own_text(message.content) if own else message.content
            self._sources[key] = SourceText(text, message.said_at(self._zone).date())
        return self._sources[key]

    def _statements(self, message: Message) -> SourceText:
        """Return the source of an assistant's message without its questions, which may be guesses."""
        parts = re.split(r"(?<=[.!?\n])\s", message.content)
        stated = " ".join(part for part in parts if "?" not in part)
        return SourceText(stated, message.said_at(self._zone).date())

    def _names_agent(self, content: str, cited: Sequence[Message]) -> bool:
        names = ["agent", "assistant", *(message.speaker for message in cited if message.role is Role.ASSISTANT)]
        words = SourceText(content).words
        return any(words.issuperset(claims.folded(name)) for name in names)

    def _names_user(self, content: str) -> bool:
        names = SourceText(content)
        return any(names.words.issuperset(claims.folded(name)) for name in [*self._users, "user"])

    def _quotes_prompt(self, content: str, cited: Sequence[Message]) -> bool:
        words = claims.comparable(content)
        if words.count(" ") < _LEAST_QUOTE - 1 or f" {words} " not in self._prompt:
            return False
        return not any(words in claims.comparable(message.content) for message in cited)


def _is_linked(known: Triple, told: Sequence[SourceText], speakers: Sequence[str]) -> bool:
    """Return whether the messages mention what a known fact says of a speaker or of somebody they name: "Mum"."""
    evidence = SourceTexts(told)
    is_about = any(
        name_key(name) in map(name_key, speakers) or evidence.names(name) for name in (known.source, known.target)
    )
    return is_about and any(evidence.has(word) for word in known.label.split("_") if word not in STOP_WORDS)
