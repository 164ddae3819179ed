"""Separate a user's own words from text that the user pasted: mails, pages, prompts, forms, poems, logs, code.

Nobody in the conversation said what is pasted. It stays searchable as a part of its message, but it is no source of
facts, memories or instructions. **In doubt a text is foreign**: a missed fact costs less than an obeyed stranger.

The rules look at the structure of a message: fences, tags, ``>``, rulers, quotation marks, a line that ends in a colon,
labels, salutations, signatures, headings, verses, length. These are the same in most languages. A few English words
help: kinds of text ("email"), work on texts ("translate"), saying ("wrote"), and pointing ("this", "below").
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.words import word_set

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Stands for a removed line. Messages never have this character.
_CUT: Final = "\x00"
#: Stands for a quotation within a sentence.
_QUOTE: Final = '"…"'
#: A message of three paragraphs or more with more own words is a document.
_MOST_WORDS: Final = 300
#: A document's title is followed by at least this many words.
_LEAST_ARTICLE: Final = 60
#: Longest request that points to a text.
_LONGEST_REQUEST: Final = 30
#: Most colons of a line that are read.
_MOST_COLONS: Final = 20

_FENCE = re.compile(r"\s*+(```|~~~|\"\"\"|''')")
_RULER = re.compile(r"\s*+([-=_*~#+—–])(?:\s*+\1){2,}\s*+")
_BANNER = re.compile(r"\s*+[-=_]{3,}+\s*+[^\W_]")
_TAG = re.compile(r"[<\[](?P<end>/?)(?P<name>[A-Za-z_][\w.:-]{0,40})(?:[\s=][^<>\[\]\n]{0,400})?[>\]]")
_ALONE = re.compile(r"<[^<>\n]*+>[ \t]*+(?:\n|\Z)")
_QUOTED_LINES = re.compile(r"(?:^|(?<=[:：]))[ \t]*+\"[^\"]{1,8000}+\"[ \t]*+$", re.MULTILINE)
_QUOTATION = re.compile(
    r"(?<![^\s(\[:：])(?:\"(?=\S)[^\"\n]{1,2000}+\"|“[^“”]{1,4000}+”|„[^„“”]{1,4000}+[“”]|«[^«»]{1,4000}+»|「[^「」]{1,4000}+」)"
)
_END = re.compile(r"[.!?…]++[\"'”’»)\]]*+(?=\s|$)|[。！？؟]")
_COLON = re.compile(r":(?=\s|$)|：")
_ITEM = re.compile(r"\s*+(?:[-*•–+]|\(?\d{1,3}[.)]|\(?[a-z]\))\s++(?=\S)")
#: A line of a chat or a table, or a section of a law.
_RECORD = re.compile(r"\s*+(?:\[[^\]]{1,40}+\]\s++\S|\|.*\||§)")
#: A line of code, of a log or of a contract.
_CODE = re.compile(
    r"[{};]\s*+$|^\s*+(?:def|class|import|return|if \(|#include|SELECT|const|let|var|INFO|WARN|ERROR|DEBUG|Traceback)\b"
    r"|=>|==|\w\(\)|^ {8}\S|^\s*+\d{1,4}[-./:]\d{1,2}[-./:T ]\S|^\s*+\d+\.\d+(?:\.\d+)*+\.?\s++\S"
)
_SUBJECT = re.compile(r"\s*+(?:subject|betreff|asunto|objet|oggetto|fwd?|re|aw|wg)\s?+[:：]\s", re.IGNORECASE)
_RATING = re.compile(r"\s*+(?:[★☆⭐]{2}|\d(?:[.,]\d)?\s?/\s?(?:5|10)\b)")
_HEADING = re.compile(r"\s*+(?:#{1,6}\s++\S|(?=[^a-z]*?[A-Z]{3})[^a-z.!?]{4,60}+$)")
_LABEL = re.compile(r"\s*+(?:[-*•]\s++)?+\*{0,2}(?P<label>[^\W_][^:：.!?,;*\n]{0,40}+)\*{0,2}(?::\*{0,2}\s++|：)\S")
_GREETING = re.compile(
    r"\s*+(?:(?P<line>[^\s,，.!?]++(?:[ ]++[^\s,，!?]++){0,4}+)[,，]\s*+$|(?:dear|liebe[rs]?|sehr geehrte\w*"
    r"|estimad[oa]s?|querid[oa]s?|ch(?:er|ère)s?|gentile|prezad[oa]s?|geachte)\b(?P<whom>[^,\n]{0,60}+))",
    re.IGNORECASE,
)
_FAREWELL = re.compile(r"\s*+(?:\S+[ ])?(?:\S+[ ])?\S+[,，]\s*+")
_SIGNATURE = re.compile(r"\s*+(?!(?:i|my|we|our)\b)[^\W\d_][^.!?,:]{0,39}+", re.IGNORECASE)
_SIGNED = re.compile(
    r"\s*+(?:(?:\S+[ ]){0,2}(?:regards|sincerely)|mit freundlichen .*|viele grüße|saludos|cordialement)[,.!]?\s*+"
    r"|\s*+[-–—]{1,2}\s?[A-Z]\w+(?:\s[A-Z]\w+)?\s*+",
    re.IGNORECASE,
)
#: Words before a comma that greet nobody, or an assistant.
_GREETS_NOBODY: Final = word_set(
    "hi hello hey hallo hola ciao there again good morning afternoon evening assistant bot ai claude chatgpt gpt agent"
    " ok okay well so yes no thanks thank you please btw today yesterday tomorrow now also first then finally"
)
_PERSONA = re.compile(
    r"\s*+(?:(?:from now on,? |system:? |now )?you(?: are|['’]re| will be) (?:an?|the|now)\b(?![^.?]*!)"
    r"|(?:please )?(?:act|behave|respond) as\b|(?:let['’]?s )?(?:pretend|role-?play|imagine) (?:you|to|that|i\b|we\b)"
    r"|let['’]?s role-?play|(?:i want|i['’]d like) you to (?:act|pretend|be)\b|your (?:task|role|job|goal) is\b"
    r"|(?:du bist|sie sind|eres|tu es|vous êtes|sei|você é|jij bent) (?:eine?|una?|une|uma?|een)\b|你是一|あなたは)",
    re.IGNORECASE,
)
_KIND = (
    r"\b(?:e-?mails?|mail|message|letter|text|essay|article|paragraph|sentence|passage|poem|haiku|limerick|story|tale"
    r"|jokes?|riddle|quote|lyrics|song|script|dialogue|speech|post|tweet|review|prompt|snippet|log|error|transcript|chat"
    r"|conversation|contract|abstract|chapter|draft|ticket|invite|newsletter|memo|minutes|job description|cv|resume"
    r"|subject|betreff|asunto|objet|oggetto)\b"
)
_ANY_KIND = re.compile(_KIND, re.IGNORECASE)
_LAST_KIND = re.compile(rf"{_KIND}(?:\s\S+){{0,3}}\s*+$", re.IGNORECASE)
_THIS_KIND = re.compile(rf"\b(?:this|these|following)\s(?:\S+\s)?{_KIND}", re.IGNORECASE)
_THE_KIND = re.compile(rf"\b(?:the|my|our|his|her|their)\s(?:\S+\s)?{_KIND}", re.IGNORECASE)
_TASK = (
    r"(?:summari[sz]e|sum up|translat(?:e|ion)|proof-?read|re-?write|re-?phrase|paraphrase|re-?word"
    r"|(?:fix|correct|check) (?:\w+ ){0,2}(?:grammar|spelling|typos?|punctuation)|tl;?dr)\b"
)
_ANY_TASK = re.compile(rf"\b{_TASK}", re.IGNORECASE)
_BACK = re.compile(
    r"(?:(?:please|pls|now|then|ok|just|(?:can|could|would|will) you|help me|i need you to|i['’]d like you to)\s++)*+"
    rf"(?:{_TASK}|(?:fix|correct|improve|polish|shorten|simplify|explain|answer|reply|respond|edit|analy[sz]e|rate"
    r"|make (?:this|that|it))\b)"
    r"|what (?:does|do|is) (?:this|that|it|these) mean\b(?! to)|is this (?:correct|polite|right|fair|good)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(r"\b(?:this|that|it|above|these|those|text|them)\b", re.IGNORECASE)
_POINTER = re.compile(
    r"\b(?:this|these|following|below|above)\b"
    r"(?!\s(?:week|weekend|month|year|morning|afternoon|evening|time|summer|winter|spring|autumn|fall)\b)",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"\b(?:said|says|wrote|writes|told|tells|texted|emailed|replied|answered|posted|quoted|according)\b",
    re.IGNORECASE,
)
_RECEIVED = re.compile(
    r"\b(?:sent|sends|got|received|found|copied|pasted|forwarded|saw|heard|reads?|goes)\b|['’]s\s(?!my\b|our\b)",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"\s*+(?:i|we|my|our|he|she|they|it|the|there|this|that|these|those|so|and|but|because|for|yes|no|if|when|you)\b"
    r"(?!(?:['’]d| would) like\b| (?:need|want)\b)",
    re.IGNORECASE,
)
_OWN_INTRO = re.compile(
    r"\b(?:remember|note|keep in mind|fyi|know|save|memori[sz]e|don['’]?t forget|about (?:me|us|myself|ourselves))\b"
    r"|^\s*+(?:i|we)\b|^\s*+(?:(?:and|also|so|ok|here|these|this|are|is|some|all|of|here['’]s)\s+)*(?:my|our)\s",
    re.IGNORECASE,
)
_OWN_ITEM = re.compile(rf"{_ITEM.pattern}(?:i|my|we|our)\b", re.IGNORECASE)
#: Words of labels before own words: "Note: …".
_OWN_LABELS: Final = word_set(
    "note notes reminder update updates news ps p.s fyi important correction info background btw edit contact details"
    " profile about me my our i we intro also well yes no ok okay remember warning decision"
)


class _State(Enum):
    OWN = "own"
    #: After words that announce a text.
    ANNOUNCED = "announced"
    #: In an announced list.
    LIST = "list"
    #: In a mail, before its signature.
    MAIL = "mail"
    SIGNATURE = "signature"
    #: Foreign to the end of the message.
    REST = "rest"


def own_text(text: str) -> str:
    """Return a user's message without what the user pasted, in linear time. Paragraphs stay apart."""
    lines = _without_records(_without_blocks(_without_quotations(text)))
    own = "" if _asks_back(lines) else _joined(_without_announced(lines))
    return "" if len(own.split()) > _MOST_WORDS and own.count("\n\n") > 1 else own


def without_blocks(text: str) -> str:
    """Return a message of any role without fences, tags, quoted lines, and text between rulers."""
    return _joined(_without_blocks(text))


def _joined(lines: Sequence[str]) -> str:
    return "\n".join("" if line == _CUT else line for line in lines).strip("\n")


def _without_blocks(text: str) -> list[str]:
    lines: list[str] = []
    fence = ""
    for line in _without_tags(text).splitlines():
        opened = _FENCE.match(line)
        if fence:
            fence = "" if opened and opened[1] == fence else fence
        elif opened:
            fence = "" if opened[1] in line[opened.end() :] else opened[1]
        elif not line.lstrip().startswith((">", "&gt;")):
            lines.append(line)
            continue
        lines.append(_CUT)
    rulers = [place for place, line in enumerate(lines) if _RULER.fullmatch(line)]
    first = next((place for place, line in enumerate(lines) if _BANNER.match(line)), len(lines))
    last = len(lines) - 1
    if rulers and rulers[0] < first:
        first, last = rulers[0], rulers[-1] if len(rulers) > 1 else last
        if len(rulers) == 1 and _is_request("\n".join(lines[first + 1 :])):
            first, last = 0, first
    return [*lines[:first], *[_CUT] * (last + 1 - first), *lines[last + 1 :]]


def _without_tags(text: str) -> str:
    """Cut each tag with its content. A tag alone in its line, without an end, reaches to the end of the text."""
    opened: list[tuple[str, int]] = []
    names: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if not tag["end"]:
            opened.append((name, tag.start()))
            names[name] = names.get(name, 0) + 1
        elif names.get(name):
            found = ""
            while found != name:
                found, start = opened.pop()
                names[found] -= 1
            spans.append((start, tag.end()))
    spans += [
        (start, len(text)) for _, start in opened if text[start - 1 : start] in ("", "\n") and _ALONE.match(text, start)
    ]
    pieces, end = [], 0
    for start, stop in sorted(spans):
        if stop > end:
            pieces += [text[end : max(start, end)], f"\n{_CUT}\n" if "\n" in text[start:stop] or not start else " "]
            end = stop
    return "".join([*pieces, text[end:]])


def _without_quotations(text: str) -> str:
    """Cut quoted sentences. A title or a word in quotation marks stays."""
    text = _QUOTED_LINES.sub(f"\n{_CUT}\n", text)

    def cut(found: re.Match[str]) -> str:
        inner, before = found[0][1:-1].strip(), text[max(found.start() - 20, 0) : found.start()].rstrip(" \t")
        leads = (not before or before[-1] in "\n:：.!?") and (len(inner.split()) > 2 or not inner.isascii())
        is_sentence = len(inner.split()) > 4 and inner[:1].isupper() and _END.search(inner)
        return _QUOTE if leads or is_sentence else found[0]

    return _QUOTATION.sub(cut, text)


def _without_records(lines: list[str]) -> list[str]:
    """Cut logs, code, tables, contracts and verses."""
    found: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip() not in ("", _CUT):
            block.append(line)
            continue
        code = sum(bool(_CODE.search(one)) for one in block)
        is_cut = (code > 1 and 2 * code >= len(block)) or _is_verse(block)
        found += [_CUT if is_cut or _RECORD.match(one) else one for one in block]
        found.append(line)
        block = []
    return found[:-1]


def _is_verse(lines: Sequence[str]) -> bool:
    """Return whether a paragraph has four or more short lines that are no sentences, and some run on."""
    ends = [line.rstrip()[-1] for line in lines]
    are_short = all(2 <= len(line.split()) <= 10 and not _ITEM.match(line) and not _LABEL.match(line) for line in lines)
    is_open = 2 * sum(end not in ".!?…:。！？" for end in ends) >= len(ends)
    return len(lines) >= 4 and are_short and is_open and any(end in ",;—–-，、" for end in ends)


def _asks_back(lines: Sequence[str]) -> bool:
    """Return whether the last sentence asks for work on the text before it."""
    text = "\n".join(lines).rstrip()
    ends = [one.end() for one in _END.finditer(text) if one.end() < len(text)]
    start = max(ends[-1] if ends else 0, text.rfind("\n") + 1)
    return text[:start].strip(f"{_CUT}\n ") != "" and _is_request(text[start:])


def _is_request(text: str) -> bool:
    """Return whether a text is one request about a text before it: "Summarise this.", "What does it mean?"."""
    text = text.strip()
    is_short = len(text.split()) <= _LONGEST_REQUEST and "\n" not in text and not text.endswith((":", "："))
    found = _BACK.match(text) if is_short else None
    return found is not None and (_ABOUT.search(text) is not None or len(text.split()) <= 3)


def _without_announced(lines: Sequence[str]) -> list[str]:
    """Cut mails, prompts, forms and documents, and what the lines before a text announce."""
    kept: list[str] = []
    state, after_blank, is_introduced = _State.OWN, True, False
    is_document = _is_document(lines)
    for place, line in enumerate(lines):
        following = next((one for one in lines[place + 1 : place + 4] if one.strip()), "")
        if not line.strip():
            is_introduced &= bool(kept) and kept[-1].rstrip()[-1:] in (":", "：")
            after_blank = True
            kept.append(line)
            continue
        if state is _State.ANNOUNCED:
            state = (
                _State.OWN if line == _CUT
                else _State.LIST if _ITEM.match(line)
                else _State.MAIL if _greets(line, following)
                else _State.REST
            )  # fmt: skip
        elif after_blank and (state is _State.SIGNATURE or (state is _State.LIST and not _ITEM.match(line))):
            state = _State.OWN
        if state is _State.OWN and line != _CUT and not is_introduced:
            if is_document and (place == 0 or _HEADING.match(line)):
                state = _State.REST
            elif after_blank and _greets(line, following):
                state = _State.MAIL
            elif _opens_rest(line, lines[place + 1 : place + 2], after_blank=after_blank):
                state = _State.REST
            elif _signs(line, following):
                kept, state = [], _State.SIGNATURE
            else:
                own, state, is_introduced = _announcing(line, has_more=bool(following))
                kept.append(own)
                after_blank = False
                continue
        if state is _State.MAIL and _signs(line, following):
            state = _State.SIGNATURE
        is_own = state is _State.OWN or (state is _State.LIST and _OWN_ITEM.match(line))
        kept.append(line if is_own else _CUT)
        after_blank = False
    return kept


def _is_document(lines: Sequence[str]) -> bool:
    """Return whether a message has two headings, or a title and a long text."""
    if sum(bool(_HEADING.match(line)) for line in lines) > 1:
        return True
    title, *rest = lines or [""]
    is_title = 1 <= len(title.split()) <= 10 and title.rstrip()[-1] not in f".!?…:,：，{_CUT}" and title[:1].isupper()
    return is_title and not "".join(rest[:1]).strip() and sum(len(line.split()) for line in rest) >= _LEAST_ARTICLE


def _opens_rest(line: str, after: Sequence[str], *, after_blank: bool) -> bool:
    """Return whether a line begins a rating, a persona for a bot, or a header, form or dialogue of two labels."""
    labels = [found["label"] for one in (line, *after) if (found := _LABEL.match(one)) is not None]
    is_form = len(labels) > 1 and all(len(one.split()) <= 4 and not _is_own_label(one) for one in labels)
    return (
        is_form
        or (_RATING.match(line) or _SUBJECT.match(line)) is not None
        or (after_blank and _PERSONA.match(line) is not None)
    )


def _is_own_label(label: str) -> bool:
    return not _OWN_LABELS.isdisjoint(label.lower().replace("'", " ").split())


def _greets(line: str, following: str) -> bool:
    """Return whether a line is the salutation of a mail to somebody else than an assistant."""
    found = _GREETING.match(line)
    if found is None or not following:
        return False
    return not _GREETS_NOBODY.issuperset((found["line"] or found["whom"]).lower().split() or ["?"])


def _signs(line: str, following: str) -> bool:
    """Return whether a line, perhaps with the one after it, ends a mail: "Best regards,", "Tom"."""
    is_named = _SIGNATURE.fullmatch(following) is not None and len(following.split()) <= 4
    return _SIGNED.fullmatch(line) is not None or (is_named and _FAREWELL.fullmatch(line) is not None)


def _announcing(line: str, *, has_more: bool) -> tuple[str, _State, bool]:
    """Return the own part of a line, the state after it, and whether own words follow."""
    start = 0
    for colon in [*_COLON.finditer(line)][:_MOST_COLONS]:
        start = max([start, *(one.end() for one in _END.finditer(line, start, colon.start()))])
        intro, after = line[start : colon.start()], line[colon.end() :].strip()
        if "[" in intro or after.startswith(_QUOTE):
            continue
        if not after:
            return (line, _State.OWN, True) if _is_own_intro(intro) else (line[:start], _State.ANNOUNCED, False)
        if _announces(intro) and (len(after.split()) > 3 or not after.isascii()):
            return line[:start], _State.REST, False
        words = intro.split()
        if 0 < len(words) <= 3 and all(word[:1].isupper() for word in words) and not _is_own_label(intro):
            return line[:start], _State.OWN, False  # perhaps a speaker
    ends = [one.end() for one in _END.finditer(line.rstrip())]
    for start, end in zip([0, *ends], ends, strict=False):
        if end < len(line.rstrip()) and _THIS_KIND.search(line, start, end) and not _STATES.match(line, start):
            return line[:start], _State.REST, False  # "What is wrong with this essay? …"
    is_ended = bool(ends) and ends[-1] == len(line.rstrip())
    start = ([0, *ends[:-1]] if is_ended else [0, *ends])[-1]
    sentence = line[start:]
    points = _POINTER.search(sentence) or _THE_KIND.search(sentence)
    asks = not _STATES.match(sentence) and (points or _ANY_TASK.search(sentence))
    names = not is_ended and points and any(cue.search(sentence) for cue in (_ANY_KIND, _SAID, _RECEIVED))
    announces = has_more and len(line.split()) <= _LONGEST_REQUEST and (asks or names)
    return (line[:start], _State.ANNOUNCED, False) if announces else (line, _State.OWN, False)


def _announces(intro: str) -> bool:
    """Return whether words before a colon announce a text: "Translate this", "My boss wrote", "Here is a joke"."""
    asks = not _STATES.match(intro) and _POINTER.search(intro) and not _OWN_INTRO.search(intro)
    return bool(
        asks
        or _ANY_TASK.search(intro)
        or _BACK.match(intro.lstrip())
        or _LAST_KIND.search(intro)
        or _SAID.search(intro)
    )


def _is_own_intro(intro: str) -> bool:
    is_foreign = any(cue.search(intro) for cue in (_ANY_TASK, _ANY_KIND, _SAID, _RECEIVED))
    return not is_foreign and (_OWN_INTRO.search(intro) is not None or _is_own_label(intro))
