"""Remove words that only ask, and words about the conversation itself, from a question."""

from __future__ import annotations

import re
from typing import Final

_TALKS = (
    r"(?:(?:previous|past|earlier|recent|prior|last|other|whole|entire|many) )?(?:conversations?|chats?|discussions?)"
)
#: The start of a request that says nothing about its subject.
OPENING: Final = (
    r"^\W*(?:(?:hey|hi|hello|so|ok|okay|please|now|(?:can|could|would|will) you|i want (?:you )?to"
    r"|i need (?:you )?to|i['’]d like (?:you )?to|help me(?: to)?|let['’]?s)\b[\s,]*)*"
)
_FRAME = re.compile(
    rf"{OPENING}(?:(?:what|how much) (?:do|did) (?:you|we) (?:know|remember)|do you (?:know|remember)"
    r"|(?:tell|remind|inform|show|give) (?:me|us)|summari[sz]e|recap|what about)\b[\s,]*"
    r"(?:(?:again|anything|everything|something|more|all|what|you|know)\b[\s,]*)*(?:(?:about|of|on|for)\b\s*)?",
    re.IGNORECASE,
)
#: Where, in which order and by whom something was said. What was said has none of these words.
_OF_THE_TALK = re.compile(
    rf"\b(?:(?:in|throughout|across|during|over|from|of|based on) )?(?:all (?:of )?)?(?:our|this|these) {_TALKS}\b"
    rf"|\b(?:throughout|across) (?:all )?(?:of )?(?:(?:my|our|the|these) )?"
    rf"(?:{_TALKS}|sessions|messages|questions|requests)\b"
    r"|\bbased on the conversation\b"
    r"|\bthe (?:chronological )?order (?:in which|that)\b|\bin (?:chronological )?order\b(?! to\b)"
    r"|\b(?:i|we)(?:['’]ve| have| had| did)?(?: first| ever| also| previously| already| just)?"
    r" (?:brought up|bring up|mention(?:ed)?|discuss(?:ed)?|talk(?:ed)? about|sp(?:ea|o)ke?n? about"
    r"|(?:told|tell|asked|ask) you(?: about)?|sa(?:id|y)|covered|raised)\b"
    r"|\b(?:different |various )?aspects of\b"
    r"|\b(?:in|während|aus) (?:all )?unser(?:en|em|er) (?:Gespräch(?:en)?|Chats?|Unterhaltung(?:en)?)\b"
    r"|\b(?:en|dans|em|nas?|nelle|nella|durante) (?:todas? |toutes )?"
    r"(?:(?:las |as )?nuestras?|(?:as |a )?nossas?|nos|notre|nostr[ae]) (?:convers\w+|chats?|discussions?)\b"
    r"|(?:在)?(?:我们|咱们)(?:的|之前的|以前的)*(?:对话|聊天|谈话|交谈)(?:中|里|当中)?",
    re.IGNORECASE,
)


def topic_of(question: str) -> str:
    """Return a question without "what do you know about", and without words such as "throughout our conversations"."""
    return _OF_THE_TALK.sub(" ", _FRAME.sub("", question, count=1))
