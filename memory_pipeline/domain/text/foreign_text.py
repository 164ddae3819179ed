"""Separate a user's own words from text that the user pasted: mails, pages, prompts, forms, poems, logs, code.

Nobody in the conversation said what is pasted. It stays searchable as a part of its message, but it is no source of
facts, memories or instructions. **In doubt a text is foreign**: a missed fact costs less than an obeyed stranger.

The rules look at the structure of a message: fences, tags, ``>``, rulers, quotation marks, a line that ends in a colon,
labels, salutations, signatures, titles, lists, verses, length. These are the same in most languages. A few words help:
kinds of text ("email"), work on texts ("translate", in twelve languages), saying ("wrote"), and pointing ("this").
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.text.words import word_set

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Stand for a removed line, which messages never have, and for a quotation within a sentence.
_CUT, _QUOTE = "\x00", '"…"'
#: A message of three paragraphs or more with more own words is a document. A text after a title has at least so many.
_MOST_WORDS, _LEAST_ARTICLE = 300, 8
#: Longest request that points to a text, in words, and most colons of a line that are read.
_LONGEST_REQUEST, _MOST_COLONS = 30, 20


def _re(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_FENCED = re.compile(r"^[ \t]*+(```|~~~|\"\"\"|''')(?:.*\1.*|(?s:.*?)(?:^[ \t]*+\1.*|\Z))", re.MULTILINE)
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
_ITEM = _re(r"\s*+(?:[-*•–+]|\(?\d{1,3}[.)]|\(?[a-z]\))\s++(?=\S)")
_OWN_ITEM = _re(rf"{_ITEM.pattern}(?:(?:i|my|we|our)\b|call me\b)")
#: A line of a chat, a table or a form, a section of a law, JSON, a cited source, or the furniture of a page.
_RECORD = _re(
    r"\s*+(?:\[[^\]]{1,40}+\]\s++\S|\|.*\||§|[\[{].*[\]}]\s*+$|\d{1,2}[./]\d{1,2}[./]\d{2,4},? \d{1,2}:\d\d)"
    r"|.*(?:\.{4}|_{3}|…{2}|\w[.,]?\[\d{1,3}\]|\s[|·•]\s.*\s[|·•]\s|[^\W\d],[^\W\d].*[^\W\d],[^\W\d])"
)
#: A line of code, of a log or of a contract, and the line of a chat before what somebody wrote: "anna  09:41".
_CODE = re.compile(
    r"[{};]\s*+$|^\s*+(?:def|class|import|return|if \(|#include|SELECT|const|let|var|INFO|WARN|ERROR|DEBUG|Traceback)\b"
    r"|=>|==|\w\(\)|^ {8}\S|^\s*+\d{1,4}[-./:]\d{1,2}[-./:T ]\S|^\s*+\d+\.\d+(?:\.\d+)*+\.?\s++\S"
)
_SPEAKS_AT = _re(r"\s*+(?:\S{1,30}+\s++){1,3}[\[(]?(?:\S{1,12} )?(?:at )?\d{1,2}:\d\d(?:\s?[ap]\.?m\.?)?[\])]?\s*+")
_MARKED = _re(r"\s*+(?:#{1,6}\s++\S|(?:[★☆⭐]{2}|\d(?:[.,]\d)?\s?/\s?(?:5|10)\b))")
_CAPITALS = re.compile(r"(?=[^a-z]*?[A-Z]{3})[^a-z.!?]{4,60}+$")
_SUBJECT = _re(r"\s*+(?:subject|betreff|asunto|objet|oggetto|fwd?|re|aw|wg)\s?+[:：]\s")
_LABEL = re.compile(r"\s*+(?:[-*•]\s++)?+\*{0,2}(?P<label>[^\W_][^:：.!?,;*\n]{0,40}+)\*{0,2}(?::\*{0,2}\s++|：)\S")
_GREETING = _re(
    r"\s*+(?:(?P<line>[^\s,，.!?]++(?:[ ]++[^\s,，!?]++){0,4}+)[,，]\s*+$"
    r"|(?:dear|liebe[rs]?|sehr geehrte\w*|estimad[oa]s?"
    r"|querid[oa]s?|ch(?:er|ère)s?|gentile|prezad[oa]s?|geachte)\b(?P<whom>[^,\n]{0,60}+)"
    r"|(?:hey|hi|hello|hallo) (?P<all>(?:guys|team|all|every(?:one|body)|folks)\b.{0,9})$)"
)
_NAME = re.compile(r"\s*+(?!(?i:i|my|we|our)\b)[^\W\d_][^.!?,:]{0,39}+")
_SIGNED = _re(
    r"\s*+(?:(?:(?:\S+[ ]){0,2}(?:regards|sincerely)|mit freundlichen .*|viele grüße|saludos|cordialement)[,.!]?"
    r"|[-–—]{1,2}\s?(?-i:[A-Z])\w+(?:\s(?-i:[A-Z])\w+)?|(?!(?:i|we|my|please|can|how)\b)(?:\S+ ){0,9}"
    r"(?:unsubscribe\b|view (?:\w+ )?in (?:\w+ )?browser|©|all rights reserved).*)\s*+"
)
_FAREWELL = _re(r"\s*+(?:(?:\S+[ ])?(?:\S+[ ])?\S+[,，]|thx|thanks|cheers|best|br|love|lg|vg)\s*+")
#: Words before a comma that greet nobody, or an assistant.
_GREETS_NOBODY: Final = word_set(
    "hi hello hey hallo hola ciao there again good morning afternoon evening assistant bot ai claude chatgpt gpt agent"
    " ok okay well so yes no thanks thank you please btw today yesterday tomorrow now also first then finally"
)
_SELF: Final = word_set("i me my our we us about")
#: Words of labels before own words: "Note: …".
_OWN_LABELS: Final = _GREETS_NOBODY | word_set(
    "note notes reminder update updates news ps p.s fyi important correction info background edit contact details i"
    " profile about me my our we intro remember warning decision question"
)
_PERSONA = _re(
    r"\s*+(?:(?:from now on,? |system:? |now )?"
    r"you(?: are|['’]re| will be) (?:(?:an?|the|now)\b|(?-i:[A-Z])\w+,)(?![^.?]*!)"
    r"|(?:please )?(?:act|behave|respond) as\b|(?:let['’]?s )?(?:pretend|role-?play|imagine) (?:you|to|that|i\b|we\b)"
    r"|let['’]?s role-?play|(?:i want|i['’]d like) you to (?:act|pretend|be)\b|your (?:task|role|job|goal) is\b"
    r"|(?:ignore|disregard|forget) (?:(?:all|any|the|your|my) )*(?:previous|prior|above|earlier|other)\b"
    r"|(?:du bist|sie sind|eres|tu es|vous êtes|sei|você é|jij bent) (?:eine?|una?|une|uma?|een)\b|你是一|あなたは)"
)
_KIND = (
    r"\b(?:e-?mails?|mail|message|letter|text|essay|article|paragraph|sentence|passage|poem|haiku|limerick|story|tale"
    r"|jokes?|riddle|quote|lyrics|song|script|dialogue|speech|post|tweet|review|prompt|snippet|log|error|transcript|chat"
    r"|conversation|contract|abstract|chapter|draft|ticket|invite|newsletter|memo|minutes|job description|cv|resume"
    r"|subject|betreff|asunto|objet|oggetto)\b"
)
_ANY_KIND, _LAST_KIND = _re(_KIND), _re(rf"{_KIND}(?:\s\S+){{0,3}}\s*+$")
_THIS_KIND = _re(
    rf"\b(?:this|these|following)\s(?:\S+\s)?{_KIND}"
    rf"|\b(?:better|nicer|shorter|improve|polish|shorten|version)\b[^.?!]*{_KIND}"
)
_THE_KIND = _re(rf"\b(?:the|my|our|his|her|their)\s(?:\S+\s)?{_KIND}")
#: Work that a text is pasted for, in twelve languages.
_TASK = (
    r"(?:(?:summari[sz]e|sum up|translat(?:e|ion)|proof-?read|re-?write|re-?phrase|paraphrase|re-?word"
    r"|(?:fix|correct|check) (?:\w+ ){0,2}(?:grammar|spelling|typos?|punctuation)|tl;?dr"
    r"|übersetz\w*|korrigier\w*|traduc\w*|tradu[isz]\w*|corrig\w*|resum\w*|résum\w*|riassum\w*|vertaal|samenvat\w*)\b"
    r"|перевед|исправ|кратко|przetłumacz|翻译|翻譯|翻訳|总结|總結|要約|번역|요약|ترجم)"
)
_ANY_TASK = _re(rf"(?<!\w){_TASK}|[翻总總要번요]\w")
_BACK = _re(
    r"(?:(?:please|pls|now|then|ok|just|(?:can|could|would|will) you|help me|i need you to|i['’]d like you to)\s++)*+"
    rf"(?:(?P<task>{_TASK})|(?:fix|correct|improve|polish|shorten|simplify|explain|answer|reply|respond|edit|analy[sz]e"
    r"|rate|make (?:this|that|it))\b)"
    r"|what (?:does|do|is) (?:this|that|it|these) mean\b(?! to)|is this (?:correct|polite|right|fair|good)\b"
)
_ABOUT = _re(r"\b(?:this|that|it|above|these|those|text|them|grammar|spelling|typos?)\b")
_POINTER = _re(
    r"\b(?:this|these|following|below|above)\b"
    r"(?!\s(?:week|weekend|month|year|morning|afternoon|evening|time|summer|winter|spring|autumn|fall)\b)"
)
_SAID = _re(r"\b(?:said|says|wrote|writes|told|tells|texted|emailed|replied|answered|posted|quoted|according)\b")
_RECEIVED = _re(
    r"\b(?:sent|sends|got|received|found|copied|pasted|forwarded|saw|heard|reads?|goes)\b|['’]s\s(?!my\b|our\b)"
)
_STATES = _re(
    r"\s*+(?:(?:hey|hi|hello|ok|well)\b[,!]? )*"
    r"(?:i|we|my|our|he|she|they|it|the|there|this|that|these|those|so|and|but|because|for|yes|no|if|when|you)\b"
    r"(?!(?:['’]d| would) like\b| (?:need|want)\b)"
)
_OWN_INTRO = _re(
    r"\b(?:remember|note|keep in mind|fyi|know|save|memori[sz]e|don['’]?t forget|for you"
    r"|about (?:me|us|myself|ourselves))\b|^\s*+(?:i|we)\b"
    r"|^\s*+(?:(?:and|also|so|ok|here|these|this|are|is|some|all|of|here['’]s)\s+)*(?:my|our)\s"
)


class _Until(Enum):
    """Where foreign text ends."""

    NONE = "it is not foreign"
    KNOWN = "its first line tells"
    ITEMS = "at the first paragraph that is no item"
    SIGNED = "at a signature"
    BLANK = "at a blank line"
    END = "at the end"


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
    text = _FENCED.sub(_CUT, _without_tags(text))
    lines = [_CUT if line.lstrip().startswith((">", "&gt;", _CUT)) else line for line in text.splitlines()]
    rulers = [place for place, line in enumerate(lines) if _RULER.fullmatch(line)]
    first = next((place for place, line in enumerate(lines) if _BANNER.match(line)), len(lines))
    last = len(lines) - 1
    if rulers and rulers[0] < first:
        first, last = rulers[0], rulers[-1] if len(rulers) > 1 else last
        if len(rulers) == 1 and _is_request("\n".join(lines[first + 1 :])):
            first, last = 0, first
    return [*lines[:first], *[_CUT] * (last + 1 - first), *lines[last + 1 :]]


def _without_tags(text: str) -> str:
    """Cut from the first tag to the last. A tag alone in its line, without an end, reaches to the end of the text."""
    tags = [*_TAG.finditer(text)]
    ends = {tag["name"].lower(): tag.end() for tag in tags if tag["end"]}
    begun = {tag["name"].lower(): tag.start() for tag in reversed(tags) if not tag["end"]}
    first = [start for name, start in begun.items() if start < ends.get(name, 0)]
    last = max((end for name, end in ends.items() if begun.get(name, end) < end), default=0)
    alone = [
        tag.start()
        for tag in tags
        if not tag["end"] and tag.start() >= ends.get(tag["name"].lower(), 0) and _ALONE.match(text, tag.start())
        and text[tag.start() - 1 : tag.start()] in ("", "\n")
    ]  # fmt: skip
    if alone:
        first, last = [*first, alone[0]], len(text)
    return f"{text[: min(first)]}\n{_CUT}\n{text[last:]}" if first else text


def _without_quotations(text: str) -> str:
    """Cut quoted sentences. A title or a word in quotation marks stays."""
    text = _QUOTED_LINES.sub(f"\n{_CUT}\n", text)

    def cut(found: re.Match[str]) -> str:
        inner, before = found[0][1:-1].strip(), text[max(found.start() - 20, 0) : found.start()].rstrip(" \t")
        leads = (not before or before[-1] in "\n:：.!?") and (len(inner.split()) > 2 or not inner.isascii())
        is_sentence = len(inner.split()) > 4 and inner[:1].isupper() and _END.search(inner)
        return _QUOTE if leads or is_sentence else found[0]

    return _QUOTATION.sub(cut, text)


def _without_records(lines: Sequence[str]) -> list[str]:
    """Cut chats, logs, code, tables, contracts, verses, and lists that do not begin with the user's own words."""
    speaks_at = sum(_SPEAKS_AT.fullmatch(line) is not None for line in lines) > 1
    found: list[str] = []
    block: list[str] = []
    before = ""
    for line in [*lines, ""]:
        if line.strip() not in ("", _CUT):
            block.append(line)
            continue
        code = [place for place, one in enumerate(block) if _CODE.search(one)]
        last = len(block)
        if len(code) > 1 and 2 * len(code) >= len(block):
            last = code[-1] + 1
        elif not (
            (block and speaks_at and _SPEAKS_AT.fullmatch(block[0]))
            or _is_verse(block)
            or (block and _ITEM.match(block[0]) and not (before.endswith((":", "：")) or _OWN_ITEM.match(block[0])))
        ):
            last = 0
        found += [_CUT if at < last or _RECORD.match(one) else one for at, one in enumerate(block)]
        found.append(line)
        before, block = (block[-1].rstrip() if block else before), []
    return found[:-1]


def _is_verse(lines: Sequence[str]) -> bool:
    """Return whether a paragraph has four or more short lines that are no sentences, and do not tell of a user."""
    ends = [line.rstrip()[-1] for line in lines]
    are_short = all(2 <= len(line.split()) <= 10 and not _ITEM.match(line) and not _LABEL.match(line) for line in lines)
    is_open = 2 * sum(end not in ".!?…:。！？" for end in ends) >= len(ends)
    own = sum(bool(re.match(r"\s*(?:I|i|[Mm]y|[Ww]e|[Oo]ur)\b", line)) for line in lines)
    runs_on = any(end in ",;—–-，、" for end in ends) or 2 * own <= len(lines)
    return len(lines) >= 4 and are_short and is_open and runs_on


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
    until, after_blank, is_introduced = _Until.NONE, True, False
    for place, line in enumerate(lines):
        following = next((one for one in lines[place + 1 : place + 4] if one.strip()), "")
        if not line.strip():
            is_introduced &= bool(kept) and kept[-1].rstrip()[-1:] in (":", "：")
            after_blank = True
            kept.append(line)
            continue
        if line == _CUT:
            until = _Until.NONE if until is _Until.KNOWN else until
        elif until is _Until.KNOWN:
            until = _Until.ITEMS if _ITEM.match(line) else _Until.SIGNED if _greets(line, following) else _Until.END
        elif after_blank and (until is _Until.BLANK or (until is _Until.ITEMS and not _ITEM.match(line))):
            until = _Until.NONE
        own = line
        if until is _Until.NONE and line != _CUT and not is_introduced:
            if after_blank and _greets(line, following):
                until = _Until.SIGNED
            elif _opens(line, lines[place + 1 : place + 2], lines[place + 1 :], after_blank=after_blank):
                until = _Until.END
            elif _signs(line, following):
                kept, until = [], _Until.BLANK
            else:
                own, until, is_introduced = _announcing(line, has_more=bool(following))
                kept.append(own)
                after_blank = False
                continue
        if until is _Until.SIGNED and _signs(line, following):
            until = _Until.BLANK
        is_own = until is _Until.NONE or (until is _Until.ITEMS and _OWN_ITEM.match(line))
        kept.append(own if is_own else _CUT)
        after_blank = False
    return kept


def _opens(line: str, after: Sequence[str], rest: Sequence[str], *, after_blank: bool) -> bool:
    """Return whether a line begins a document, a rating, a prompt for a bot, a header, or a form of two labels."""
    labels = [found["label"] for one in (line, *after) if (found := _LABEL.match(one)) is not None]
    is_form = len(labels) > 1 and all(len(one.split()) <= 4 and not _is_own_label(one) for one in labels)
    if is_form or _SUBJECT.match(line) or _MARKED.match(line) or (after_blank and _PERSONA.match(line)):
        return True
    return after_blank and _is_title(line, after) and sum(len(one.split()) for one in rest) >= _LEAST_ARTICLE


def _is_title(line: str, after: Sequence[str]) -> bool:
    """Return whether a line is the title of what follows: "10 Tips For Better Sleep", "Ingredients", "WARNING"."""
    words = line.split()
    are_own = words[0].lower() in _GREETS_NOBODY or not _SELF.isdisjoint(line.lower().split())
    if are_own or len(words) > 10 or line.rstrip()[-1] in ".!?…:,;：，；。" or words[0][:1].islower() or not after:
        return False
    are_capital = len(words) > 1 and all(not word[:1].islower() or len(word) <= 3 for word in words)
    is_followed = are_capital and (not after[0].strip() or _LABEL.match(after[0]))
    leads_list = len(words) <= 4 and _ITEM.match(after[0]) and not _OWN_ITEM.match(after[0])
    return bool(is_followed or leads_list) or _CAPITALS.fullmatch(line) is not None


def _is_own_label(label: str) -> bool:
    return not _OWN_LABELS.isdisjoint(re.split(r"[^\w.]+", label.lower()))


def _greets(line: str, following: str) -> bool:
    """Return whether a line is the salutation of a mail to somebody else than an assistant."""
    found = _GREETING.match(line)
    if found is None or not following:
        return False
    return not _GREETS_NOBODY.issuperset((found["line"] or found["whom"] or found["all"]).lower().split() or ["?"])


def _signs(line: str, following: str) -> bool:
    """Return whether a line, perhaps with the one after it, ends a mail: "Best regards,", "Tom"."""
    is_named = _NAME.fullmatch(following) is not None and len(following.split()) <= 4
    return _SIGNED.fullmatch(line) is not None or (is_named and _FAREWELL.fullmatch(line) is not None)


def _announcing(line: str, *, has_more: bool) -> tuple[str, _Until, bool]:
    """Return the own part of a line, the end of foreign text after it, and whether own words follow."""
    start = 0
    for colon in [*_COLON.finditer(line)][:_MOST_COLONS]:
        start = max([start, *(one.end() for one in _END.finditer(line, start, colon.start()))])
        intro, after = line[start : colon.start()], line[colon.end() :].strip()
        if "[" in intro or after.startswith(_QUOTE):
            continue
        own = line[: colon.end()] if _STATES.match(intro) else line[:start]
        if not after:
            return (line, _Until.NONE, True) if _is_own_intro(intro) else (own, _Until.KNOWN, False)
        if _announces(intro) and (len(after.split()) > 3 or not after.isascii()):
            return own, _Until.END, False
        words = intro.split()
        if 0 < len(words) <= 3 and all(word[:1].isupper() for word in words) and not _is_own_label(intro):
            return line[:start], _Until.NONE, False  # perhaps a speaker
    ends = [one.end() for one in _END.finditer(line.rstrip())]
    for start, end in zip([0, *ends], ends, strict=False):
        if end < len(line.rstrip()) and _THIS_KIND.search(line, start, end) and not _STATES.match(line, start):
            return line[:start], _Until.END, False  # "What is wrong with this essay? …"
    is_ended = bool(ends) and ends[-1] == len(line.rstrip())
    start = ([0, *ends[:-1]] if is_ended else [0, *ends])[-1]
    sentence = line[start:]
    points = _POINTER.search(sentence) or _THE_KIND.search(sentence)
    states = _STATES.match(sentence) is not None
    names = not is_ended and points and any(cue.search(sentence) for cue in (_ANY_KIND, _SAID, _RECEIVED))
    asks = not states and (points or _ANY_TASK.search(sentence))
    if has_more and len(line.split()) <= _LONGEST_REQUEST and (asks or names):
        return (line if states else line[:start]), _Until.KNOWN, False
    return line, _Until.NONE, False


def _announces(intro: str) -> bool:
    """Return whether words before a colon announce a text: "Translate this", "My boss wrote", "Here is a joke"."""
    asks = not _STATES.match(intro) and _POINTER.search(intro) and not _OWN_INTRO.search(intro)
    cues = (_ANY_TASK.search, _BACK.match, _LAST_KIND.search, _SAID.search)
    return bool(asks) or any(cue(intro.lstrip()) for cue in cues)


def _is_own_intro(intro: str) -> bool:
    is_foreign = any(cue.search(intro) for cue in (_ANY_TASK, _ANY_KIND, _SAID, _RECEIVED))
    return not is_foreign and (_OWN_INTRO.search(intro) is not None or _is_own_label(intro))
