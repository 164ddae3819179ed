"""What a sentence claims: the names, numbers, dates and words that its sources must have.

Names are known by their capital letter. At the start of a sentence a capital says nothing, and in German all nouns have
one; see :func:`claim_of`. Scripts without case have no names: their characters are compared with those of the sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.thesaurus import related
from memory_pipeline.domain.text.words import STOP_WORDS, plain, stem, word_set, words_of
from memory_pipeline.models.deterministic.language.dates import DateMention, dates_in
from memory_pipeline.models.deterministic.language.grammar import Sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

#: Words that say little by themselves: a source need not have them.
WEAK = word_set(
    """
    user users agent assistant person people conversation conversations chat message talk talks talked discuss
    discusses discussed discussion speak speaks spoke mention mentions mentioned say says said state states stated tell
    tells told ask asks asked answer answers answered report reports reported describe describes described explain
    explains explained share shares shared note notes noted live lives lived living work works worked working like
    likes liked love loves loved enjoy enjoys enjoyed prefer prefers preferred preference want wants wanted need needs
    needed plan plans planned planning hope hopes hoped intend intends call calls called name named own owns owned use
    uses used know knows known think thinks thought feel feels felt become became start started currently now recently
    also new old current former previously moved moves move reside resides resided
    """
)
#: Articles, pronouns and other short words that begin sentences, beside the English ones. None of them is a name.
_SHORT = word_set(
    """
    der die das den dem des ein eine einen einem einer kein keine sie er es ihr ihre sein seine wir ich du im am zum zur
    ab bei seit nach vor und mein meine dieser diese dieses le la les un une des du elle il ils elles on nous vous sa
    son ses ce cette el los las lo unos unas su sus ella ellos al en de del y o os as uma um ele ela no na gli i uno
    lei lui het een zij hij ze den det han hon en ett och
    """
)
_GERMAN = word_set("der die das und ist hat eine einen ein nicht mit für von im am zu wird ihre ihr seine sich als auf")
#: German words before a name: "in Porto", "bei Figo", "heißt Rex".
_BEFORE_A_NAME = word_set("in nach aus bei von namens heißt heisst")
_ADJECTIVE = re.compile(r"[a-zäöüß]+(?:e|en|er|es|em)\Z")
_PRONOUNS = word_set(
    """
    i me my we us our you your he him his she her hers it its they them their there here this that these those someone
    something somebody ich mich mir wir uns du ihr er ihn ihm sie es dort je tu il elle nous vous ils
    elles lui leur yo tú él ella ellos ellas nosotros eu ele ela eles elas io lei lui loro ik hij zij wij я ты он она
    оно они мы там 我 你 他 她 它 我们 他们 她们 这里 那里 私 僕 彼 彼女 나 저 그 그녀
    """
)
_DENIES = r"n['’]t\b|\b(?:not|never|no|cannot|nicht|kein\w*|nie|niemals|pas|jamais|nunca|não|niet|geen|не)\b|[不没沒]"
#: Denials of a claim, and what supports one: "Anna avoids nuts" may rest on an allergy.
_CLAIM_DENIES = re.compile(rf"{_DENIES}|\b(?:hates?|hated|dislikes?|disliked)\b", re.IGNORECASE)
_SOURCE_DENIES = re.compile(
    rf"{_DENIES}|\b(?:none|nobody|nothing|without|neither|nor|hat(?:e|es|ed)|dislik\w+|avoid\w*|stop\w*|quit\w*|refus\w+"
    r"|allerg\w+|instead|rather|vega\w+|vegeta\w+|stand|worst|ohne|hass\w*|sans|sin|sem|non|mai|нет|ни|никогда)\b|[无無别別]",
    re.IGNORECASE,
)
#: Words that end the reach of a denial, and how far it reaches.
_REACH_ENDS, _REACH = word_set("but and because so if that when since although while who which"), 4
_ADDRESS = re.compile(
    r"[^\s@<>]+@[^\s@<>]+\w|\bhttps?://[^\s<>]+\w|\b(?=[\w.-]*[a-z])\w[\w-]+(?:\.\w[\w-]+)+", re.IGNORECASE
)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ENDS_SENTENCE = re.compile(r"(?:\A|[.!?:;…\n\"“”„«»(\[*•|—–-])\s*\Z")
#: Scripts without blanks. Hiragana is left out: it is mostly grammar.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u30a0-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_HANGUL = re.compile("[\uac00-\ud7a3]+")
#: The same with Hiragana and Hangul.
_CASELESS = re.compile(f"(?:{_UNSPACED.pattern}|[\u3040-\u309f\uac00-\ud7a3])+")
_NUMBER = re.compile(
    r"(?:\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?!\d)|\d+(?:[.,]\d+)*)"
    r"(?P<unit>\s?(?:k\b|thousand\b|tausend\b|tsd\b|mio\b|million|mill?e\b|mil\b|p\.?m\b|[千万]))?",
    re.IGNORECASE,
)
_AFTER_NOON = re.compile(r"\b(\d{1,2})[:.]\d\d\s?p\.?m", re.IGNORECASE)
_UNITS = {"k": 1e3, "thousand": 1e3, "tausend": 1e3, "tsd": 1e3, "mio": 1e6, "million": 1e6, "mille": 1e3, "mile": 1e3,
          "mil": 1e3, "千": 1e3, "万": 1e4}  # fmt: skip
#: Words for numbers; those of several languages that are also other words are left out.
_NUMBER_WORDS = {
    word: float(value)
    for value, words in {
        2: "two twice couple pair both zwei deux dos due twee två dois duas два две iki",
        3: "three thrice third drei trois tres tre três drie trzy три üç",
        4: "four fourth vier quatre cuatro quattro quatro fyra cztery четыре dört",
        5: "five fifth fünf cinq cinco cinque vijf fem pięć пять beş",
        6: "six sixth sechs seis zes шесть altı",
        7: "seven seventh sieben sept siete sette zeven sju семь yedi",
        8: "eight eighth acht huit ocho otto oito åtta восемь sekiz",
        9: "nine ninth neun neuf nueve nove negen nio девять dokuz",
        10: "ten tenth zehn dix diez dieci dez tien десять",
        11: "eleven elf onze undici одиннадцать", 12: "twelve dozen zwölf douze doce dodici doze twaalf двенадцать",
        13: "thirteen dreizehn", 14: "fourteen vierzehn", 15: "fifteen fünfzehn quinze quince", 16: "sixteen sechzehn",
        17: "seventeen siebzehn", 18: "eighteen achtzehn", 19: "nineteen neunzehn",
        20: "twenty zwanzig vingt veinte venti vinte двадцать", 30: "thirty dreißig trente trenta",
        40: "forty vierzig quarante cuarenta", 50: "fifty fünfzig cinquante cincuenta", 60: "sixty sechzig soixante",
        70: "seventy siebzig", 80: "eighty achtzig", 90: "ninety neunzig",
        100: "hundred hundert cent cien cento honderd сто", 1_000: "thousand tausend mille mil duizend тысяча",
        1_000_000: "million millions",
    }.items()
    for word in words.split()
}  # fmt: skip
_COMPOUND = re.compile(r"(?P<unit>ein|zwei|drei|vier|fünf|sechs|sieben|acht|neun)und(?P<tens>\w+)")
_HAN_NUMBER = re.compile("[〇零一二三四五六七八九十百千万两兩]+")
_HAN = {"〇": 0, "零": 0, "一": 1, "二": 2, "两": 2, "兩": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7, "八": 8,
        "九": 9, "十": 10, "百": 100, "千": 1_000, "万": 10_000}  # fmt: skip


#: Numbers that need no source: "a cat" is one, and 10:00 is at ten.
_ANY = frozenset([0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Claim:
    """The parts of a sentence that its sources must have.

    Attributes:
        names: words with a capital letter that is not explained by their place.
        numbers: the values that each number may have: "1.500" is 1,500 or 1.5.
        dates: dates, relative ones as of the day of the source.
        words: other meaningful words, without :data:`WEAK` ones.
        runs: runs of characters of scripts without blanks.
        syllables: Korean words, except the last one of a sentence, which is a verb.
        denies: whether it denies something.
        starts_with_pronoun: whether it cannot be understood alone.
        addresses: addresses of mails and pages, in lower case.
    """

    names: list[str] = field(default_factory=list)
    numbers: list[set[float]] = field(default_factory=list)
    dates: list[DateMention] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    syllables: list[str] = field(default_factory=list)
    denies: bool = False
    starts_with_pronoun: bool = False
    addresses: list[str] = field(default_factory=list)


def claim_of(text: str, said_on: date, *, is_translated: bool = False) -> Claim:
    """Return what a text claims; `said_on` is the day for which relative dates are resolved.

    At the start of a sentence a word is a name unless it is a known word. In German a noun after an article or an
    adjective is none, and in a translation only one after a word such as "in" or "bei" is.
    """
    dates = dates_in(Sentence.of(text), said_on)
    rest = text
    for mention in dates:
        rest = f"{rest[: mention.start]}{' ' * (mention.end - mention.start)}{rest[mention.end :]}"
    # Names in other letters stand out of scripts without blanks: "Anna住在Porto".
    tokens = list(_TOKEN.finditer(_CASELESS.sub(_blanks, rest)))
    lower = [token.group().lower() for token in tokens]
    is_german = len(_GERMAN.intersection(lower)) > (0 if is_translated else 1)
    claim = Claim(
        numbers=[values for values in numbers_in(rest) if values.isdisjoint(_ANY)],
        dates=dates,
        runs=_UNSPACED.findall(rest),
        syllables=_nouns_with_particles(rest),
        denies=denies(text),
        addresses=[match.group().lower() for match in _ADDRESS.finditer(text)],
        starts_with_pronoun=bool(lower) and (lower[0] in _PRONOUNS or lower[0].partition("'")[0] in _PRONOUNS),
    )
    for place, token in enumerate(tokens):
        word = token.group()
        if word[0].isdigit() or lower[place] in _NUMBER_WORDS:
            continue
        starts = _ENDS_SENTENCE.search(rest[max(0, token.start() - 8) : token.start()]) is not None
        before = lower[place - 1] if place else ""
        if not any(character.isupper() for character in word) or word in ("I", "I'm", "I'll", "I've", "I'd"):
            is_name = False
        elif starts:
            opens = lower[place].endswith("ly") and rest[token.end() : token.end() + 1] in (",", ":")
            is_name = not (opens or _is_common(lower[place]))  # "Briefly: …"
        elif is_german:
            follows_adjective = tokens[place - 1].group() == before and _ADJECTIVE.match(before) is not None
            is_noun = before in _SHORT or before in _GERMAN or before.isdigit() or follows_adjective
            is_name = before in _BEFORE_A_NAME or not (is_noun or is_translated)
        else:
            is_name = True
        if is_name:
            claim.names.append(word)
        elif len(word) > 2 and lower[place] not in STOP_WORDS and lower[place] not in WEAK:
            claim.words.append(word)
    return claim


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _is_common(word: str) -> bool:
    """Return whether a lower-case word is an ordinary one, although it begins a sentence with a capital letter."""
    bare = word.partition("'")[0]
    return bare in STOP_WORDS or bare in WEAK or bare in _SHORT or bool(related(stem(bare))) or bare.endswith("ing")


def is_pronoun(term: str) -> bool:
    """Return whether a term is a pronoun, which names nothing."""
    return term.casefold() in _PRONOUNS


def denies(text: str, *, is_source: bool = False) -> bool:
    """Return whether a text denies something; a source does so with more words than a claim."""
    return (_SOURCE_DENIES if is_source else _CLAIM_DENIES).search(text) is not None


def denied_in(text: str) -> tuple[set[str], set[str]]:
    """Return the words of an English text that follow a denial closely, and the others, by their stems."""
    denied, others, left = set[str](), set[str](), 0
    if not denies(text):
        return denied, others
    for match in re.finditer(r"[^\W_]+(?:['’][^\W_]+)*|[.!?;,\n]", text):
        word = match.group().lower().replace("’", "'")
        if denies(word):
            left = _REACH
        elif word in _REACH_ENDS or not word[0].isalnum():
            left = 0
        else:
            (denied if left else others).add(stem(word))
            left -= bool(left)
    return denied, others


def numbers_in(text: str, *, is_source: bool = False) -> list[set[float]]:
    """Return the numbers of a text, in digits or words, each as the set of values that it may have.

    Those of a source have the hours of 6:45 pm in both forms.
    """
    found = [values for match in _NUMBER.finditer(text) for values in _values(match)]
    found += [{float(match[1]) + 12} for match in _AFTER_NOON.finditer(text) if is_source]
    words = [token.group().lower() for token in _TOKEN.finditer(text)]
    total, is_open = 0.0, False
    for word in [*words, ""]:
        compound = _COMPOUND.fullmatch(word)
        value = _NUMBER_WORDS.get(compound["tens"] if compound else word)
        if value is None:
            if is_open and word not in ("and", "und"):
                found.append({total})
                total, is_open = 0.0, False
            continue
        value += _NUMBER_WORDS.get(compound["unit"], 1.0) if compound else 0.0
        if is_open and value >= 100 and total < value:  # "nine thousand"
            total *= value
        elif is_open and (value < 10 <= total or total >= 100):  # "twenty-five", "two hundred six"
            total += value
        else:
            found += [{total}] if is_open else []
            total, is_open = value, True
    return found


def han_numbers_in(text: str) -> set[float]:
    """Return the numbers in Chinese characters."""
    found = set[float]()
    for match in _HAN_NUMBER.finditer(text):
        total, section, digit = 0, 0, 0
        for character in match.group():
            value = _HAN[character]
            if value < 10:  # a digit
                digit = value
            elif value == 10_000:  # it multiplies all before it
                total, section, digit = (total + section + digit or 1) * value, 0, 0
            else:
                section, digit = section + (digit or 1) * value, 0
        found.add(float(total + section + digit))
    return found


def _values(match: re.Match[str]) -> Iterator[set[float]]:
    unit = (match["unit"] or "").strip().lower()
    digits = match.group()[: len(match.group()) - len(match["unit"] or "")]
    parts = re.split(r"[^\d]", digits)
    separators = re.findall(r"[^\d]", digits)
    is_grouped = all(len(part) == 3 for part in parts[1:])  # thousands
    whole = float("".join(parts))
    if len(digits) > 40:  # no number that anybody means
        yield {float(len(digits))}
    elif not separators:
        yield _scaled(whole, unit)
    elif is_grouped:
        yield _scaled(whole, unit) | ({float(".".join(parts))} if separators == ["."] else set())
    elif len(separators) == 1 or len(set(separators)) > 1:
        yield _scaled(float(f"{''.join(parts[:-1])}.{parts[-1]}"), unit)
    else:  # a date such as 3.5.1984
        yield from ({float(part)} for part in parts)


def _scaled(value: float, unit: str) -> set[float]:
    if unit.startswith("p") and value < 12:  # hours after noon
        return {value, value + 12}
    factor = _UNITS.get(unit)
    return {value} if factor is None else {value * factor}


def _nouns_with_particles(text: str) -> list[str]:
    words = [(match.group(), match.end()) for match in _HANGUL.finditer(text)]
    ends = [end for _, end in words]
    return [
        word
        for (word, end), following in zip(words, [*ends[1:], len(text) + 1], strict=False)
        if following <= len(text) and not re.match(r"\s*[.!?。]", text[end:])
    ]


def runs_of(text: str) -> list[str]:
    """Return the runs of characters of scripts without blanks."""
    return _UNSPACED.findall(text)


def folded(word: str) -> list[str]:
    """Return the words of a term in comparable form, without case and accents."""
    return words_of(word.replace("’", "'"))


def comparable(text: str) -> str:
    """Return a text in comparable form: its words, separated by single blanks."""
    return " ".join(words_of(plain(text)))
