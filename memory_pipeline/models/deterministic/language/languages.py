"""The language of a message: whether the English rules can judge it, and what they must not drop otherwise."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from memory_pipeline.domain.text.words import STOP_WORDS, spaced
from memory_pipeline.models.deterministic.language.grammar import CASUAL, MOST_WORDS, is_verb
from memory_pipeline.models.deterministic.language.lexicon import PHATIC, REQUESTS, WORDS

_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_CONTRACTED: Final = ("n't", "'m", "'re", "'ve", "'ll")
#: Smallest share of English words, less those of other languages.
_LEAST_SHARE: Final = 0.25
#: Fewest letters of a statement; letters of the East Asian scripts, which are words or syllables, count as three.
_LEAST_LETTERS: Final = 10
#: Most words of a fragment: without a full stop, and without a word of another language.
_LONGEST_FRAGMENT: Final = 3
_EAST_ASIAN: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
#: Greetings, thanks and assent, with what may follow them.
_COURTESY: Final = re.compile(
    r"(?:谢谢|多谢|感谢|你好|您好|早上好|晚安|再见|不用谢|ありがとう|こんにちは|おはよう|こんばんは|고마워|감사합니다|안녕"
    r"|ขอบคุณ|สวัสดี|(?:gracias|hola|buen[oa]s|adiós|danke|vielen dank|hallo|guten|merci|bonjour|bonsoir|salut"
    r"|obrigad[oa]|olá|bom dia|boa|grazie|ciao|buongiorno|bedankt|dank|dag|goed|спасибо|привет|здравствуйте|شكرا|مرحبا"
    r"|السلام|sí|vale|claro|ja|okay|oui|d['’]accord|sim|sì|va bene|да|хорошо|نعم|حسنا|好的?|嗯+|是的|对|はい|そう|네|ใช่"
    r")(?!\w))(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)


def is_english(text: str) -> bool:
    """Return whether a message is in English, by the share of its words that are common in English.

    One such word is enough if no word is of another language. A message without words is judged as English; one of
    names and nouns only is not.
    """
    words = [word.lower().replace("’", "'") for word in _WORD.findall(_without_addresses(text))]
    evidence = [*map(_evidence, words)]
    return sum(evidence) >= _LEAST_SHARE * len(words) or (min(evidence) >= 0 and max(evidence) == 1)


@lru_cache(MOST_WORDS)
def _evidence(word: str) -> float:
    word = word if word.endswith(_CONTRACTED) else word.partition("'")[0]
    if word in WORDS["shared_words"]:
        return 0.5
    if word in WORDS["anywhere"]:
        return 0.0
    if word in STOP_WORDS or word in PHATIC | REQUESTS or word in CASUAL or is_verb(word) or word.endswith(_CONTRACTED):
        return 1.0
    return -1.0 if word in WORDS["others"] or not word.isascii() else 0.0


def may_state(sentence: str) -> bool:
    """Return whether a sentence in another language may say something.

    It is long enough without its courtesies. Names and short answers ("Generally cheaper") have no full stop.
    """
    courtesy = _COURTESY.match(sentence)
    said = _without_addresses(courtesy["rest"] if courtesy else sentence)
    words = _WORD.findall(said)
    is_fragment = said.isascii() and said[-1:].isalnum() and WORDS["others"].isdisjoint(map(str.lower, words))
    return not (is_fragment and len(words) <= _LONGEST_FRAGMENT) and _is_long(said)


def is_courtesy(text: str) -> bool:
    """Return whether a text in another language greets, thanks or agrees, and says nothing else."""
    courtesy = _COURTESY.match(text.strip())
    return courtesy is not None and not _is_long(courtesy["rest"])


def _is_long(said: str) -> bool:
    return len(spaced(said).replace(" ", "")) + 2 * len(_EAST_ASIAN.findall(said)) >= _LEAST_LETTERS


def _without_addresses(text: str) -> str:
    return " ".join(run for run in text.split() if "://" not in run and "@" not in run)
