"""What a prompt asks about: its subject, without the words that only ask, and whether it is small talk."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.topic import OPENING, topic_of
from memory_pipeline.domain.text.words import plain, spaced, word_set
from memory_pipeline.models.deterministic.language.lexicon import PHATIC

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Stems of words of politeness, applause and time of day, which tell nothing.
PHATIC_TERMS: Final = frozenset(
    terms(
        " ".join(PHATIC)
        + """
        afternoon anytime birthday bless chat cheer day enjoy evening free goodnight help indeed interest keep let lip
        lol love meet mention mind morning night no note problem question remember seal sir talk tell today week weekend
        helpful take care
        """
    )
) - {"kid"}  # "kidding" is phatic, kids are not
#: Words of a request that say nothing about its subject.
_GENERIC: Final = frozenset(
    terms(
        """
        know tell remember summarise summarize summary overview recap review happen happened happening news event plan
        everything anything information info detail story talk say please write give list describe explain new
        was weißt du über von erzähl erzähle mir ist sind war alles passiert geschehen fasse zusammen
        que sais tu sur de parle moi résume il est qui a passé passe eu
        qué sabes sobre del cuéntame resume pasó ocurrió es cosa sai di su parlami riassumi successo che
        o você sabe conte me resuma aconteceu wat weet je vertel vat samen gebeurde er is
        """
    )
)
#: A text to write, and to whom.
_TASK = re.compile(
    rf"{OPENING}(?:write|draft|compose|prepare|send|create|word|schreibe?)\b(?: me| us| mir| up)?(?: \w+){{0,3}}?"
    r" (?:e-?mail|mail|message|letter|note|text|reply|answer|invitation|card|speech|toast|poem|post|brief|nachricht)s?"
    r"\b(?: (?:to|for|about|on|an)\b)?\s*",
    re.IGNORECASE,
)
#: What a text that is to be written shall say: the writer says it now, and memory need not hold it.
_TO_SAY = re.compile(r"\b(?:that|saying|dass)\b.*", re.IGNORECASE | re.DOTALL)
_ASKING = re.compile(r"\b(?:happen(?:s|ed|ing)?|summari[sz]e|summary|overview|recap|remember|know)\b", re.IGNORECASE)
_ASKING_CHINESE = re.compile(
    r"请?(?:帮我)?(?:告诉我|总结|概括|回顾|介绍)(?:一下)?|你?[还還]?(?:记得|記得|知道|了解)|关于|有关"
    r"|(?:帮我)?给?(?P<whom>\w{0,12}?)写一?[封条个篇]?(?:邮件|信|短信|消息)"
    r"|(?:我们|咱们)?(?:聊|谈|说|提|发生)(?:过|到|了)+|发生|的?(?:事情|情况|信息)"
)
_WHAT_CHINESE = re.compile(r"(?:些什么|什么|哪些|哪个|啥)(?:样的)?(?:事情?)?|[吗嗎呢吧][？?。！!]*$")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_PERIOD = re.compile(
    r"(?<!\d )\b(?:(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r"(?:,? (?:of )?(?:19|20)\d\d)?|(?:19|20)\d\d)\b(?! \d)"
)
_AHEAD = re.compile(r"\b(?:will|plan(?:s|ned)?|going to|next|upcoming|scheduled|coming)\b", re.IGNORECASE)
_SPAN = re.compile(r"\b(my|our|the past|past|the previous|previous) (week|month|year)\b", re.IGNORECASE)
_HOW_ARE_YOU = re.compile(
    r"\bhow(?:['’]s| is| are| do| have)? (?:it going|you(?: doing| been| do)?(?: today)?|things|everything|life)\s*\?",
    re.IGNORECASE,
)

_WHO: Final = word_set("who what is are was s and or about of the")
#: Words of a prompt without content words that asks nothing: "Yes.", "No, not now."
_SHORT: Final = 3


def subject_of(prompt: str) -> str:
    """Return a prompt without the words that ask: of "What do you know about Elise?", "Elise?".

    Of "Write a mail to my boss", it is "my boss". A month or a year that is asked about alone is named as a time, which
    is past unless the prompt looks ahead: "was in January".
    """
    if _CHINESE.search(prompt):
        rest = _ASKING_CHINESE.sub(lambda match: match["whom"] or " ", _WHAT_CHINESE.sub("", prompt))
        return rest if rest.strip(" \t\n.,;:!?。？！、") else prompt
    task = _TASK.match(prompt)
    rest = _TO_SAY.sub("", prompt[task.end() :]) if task else _ASKING.sub("", topic_of(prompt))
    rest = _SPAN.sub(lambda match: f"{'this' if match[1].lower() in {'my', 'our'} else 'last'} {match[2]}", rest)
    period = _PERIOD.search(rest)
    if period is not None and is_generic(terms(rest.replace(period[0], ""))):
        return f"in {period[0]}" if _AHEAD.search(prompt) else f"was in {period[0]}"
    return rest if terms(rest) else prompt


def is_generic(words: Iterable[str]) -> bool:
    """Return whether the words of a question, without times, name no subject."""
    return _GENERIC.issuperset(words)


def asks_about(text: str, names: Iterable[str]) -> bool:
    """Return whether a text has only these names, and words such as "who is"."""
    words = set(spaced(plain(text)).split())
    named = words.intersection(spaced(plain(" ".join(names))).split())
    return bool(named) and words - named <= _WHO


def is_small_talk(prompt: str) -> bool:
    """Return whether a prompt only greets, thanks, agrees or takes leave, in one of 13 languages."""
    from memory_pipeline.models.deterministic.language.languages import is_courtesy  # compiles many patterns

    said = _HOW_ARE_YOU.sub("", prompt)
    words = [word for word in terms(said) if word.isalnum()]  # not an emoji
    is_phatic = PHATIC_TERMS.issuperset(words) and bool(words or len(said.split()) <= _SHORT or said != prompt)
    return not any(character.isdigit() or character in "?？" for character in said) and (is_phatic or is_courtesy(said))
