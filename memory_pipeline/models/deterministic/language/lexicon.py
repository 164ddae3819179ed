"""Lists of English words (``words.txt``), and openings of sentences by what these do. Heuristics; sometimes wrong.

A change here changes which facts are extracted: raise the extractor's version with it.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

from memory_pipeline.domain.text.words import stem


def _lists(text: str) -> dict[str, frozenset[str]]:
    lists: dict[str, frozenset[str]] = {}
    for name, words in re.findall(r"^(\w+): (.*(?:\n  .*)*)", text, re.MULTILINE):
        own = words.split()
        others = (lists[word[1:]] for word in own if word[0] == "@")
        lists[name] = frozenset(word for word in own if word[0] != "@").union(*others)
    return lists


#: The lists of words.txt by name.
WORDS: Final = _lists(files(__package__).joinpath("words.txt").read_text(encoding="utf-8"))
PHATIC: Final = WORDS["phatic"]
IMPERATIVE_OBJECTS: Final = WORDS["imperative_objects"]
ELLIPTIC_VERBS: Final = WORDS["elliptic_verbs"]
PASSING: Final = WORDS["passing"]
ABSTRACT: Final = WORDS["abstract"]
TRIFLES: Final = WORDS["trifles"]
HABITS: Final = WORDS["habits"]
NEGATION: Final = WORDS["negation"]
UNREAL: Final = WORDS["unreal"]
FIRST_PERSON: Final = WORDS["first_person"]
SECOND_PERSON: Final = WORDS["second_person"]
THIRD_PERSON: Final = WORDS["third_person"]
STANDING: Final = WORDS["standing"]
LEANING: Final = WORDS["leaning"]
CONNECTIVES: Final = WORDS["connectives"]
POINTING_BACK: Final = WORDS["pointing_back"]
OWN: Final = WORDS["own"]
SELF: Final = WORDS["self"]
REQUESTS: Final = WORDS["requests"]
LASTING_WORDS: Final = frozenset(map(stem, WORDS["lasting"]))


def _anywhere(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


#: The opening of a question, which may lack its mark.
QUESTION = re.compile(
    r"(?:(?:and|so|but|ok|okay),? )?(?:how|what|when|where|which|who|why)\s"
    r"(?:are|can|could|did|do|does|is|should|was|were|will|would)\s(?:i|it|my|our|the|this|that|these|there|we|you)\b"
    r"|(?:are|can|could|did|do|does|should|will|would) (?:i|they|we|you)\b",
    re.IGNORECASE,
)

#: Openings of questions, offers, consolation and goodbyes.
PROMPT = re.compile(
    r"(?:(?:just|please|and|so|but|well|ok|okay|anyway|wow|by the way),? )?(?:let me know|thank(?:s| you) for|feel free"
    r"|how about|what about|what an?|tell me (?:about|how|what|when|if|more|where|why|in)|keep me (?:posted|updated)"
    r"|have (?:a|an|fun)|take care|take a look|talk to you|good luck|best of luck|enjoy|see you|see ya"
    r"|(?:i )?hope(?:fully)? (?:you|it|that)|check (?:it|this|them) out|don['’]t hesitate|looking forward to hearing"
    r"|happy to help|you['’]re welcome|no worries|no problem|(?:that |it |this )?(?:sounds|looks) |keep (?:it )?up"
    r"|(?:i['’]m )?(?:so |really |very )?(?:glad|happy|proud|sorry)(?: to hear| for| of| that)? (?:you|that|it))\b",
    re.IGNORECASE,
)

#: Openings of instructions, single or standing.
INSTRUCTION_START = re.compile(
    r"(?:(?:and|but|so|also|then|ok|okay|well|now|oh|yes|no),? )*(?:please|always|never|don['’]t|do not|from now on"
    r"|make sure|remember (?:to|that)|remind|note (?:that|down)|stop|call me|give me|send me|avoid|no more"
    r"|write (?:that|this|it) down)\b",
    re.IGNORECASE,
)
INSTRUCTION_INSIDE = _anywhere(
    "i want you to", "i['’]d like you to", "i need you to", "remind me", "tell me to", "never (?:again )?suggest",
    "please (?:always|never|don['’]t|do|give|send|keep|add|remind|call|write|use|tell|stop)",
    "you (?:should|must) (?:always|never)",
)  # fmt: skip

#: Likes, dislikes, diets and allergies.
PREFERENCE_OPENING = _anywhere(
    "(?:i|we|you|he|she|they)(?: (?:really|absolutely|just|also|both|always|still|do))? (?:like|love|adore|prefer|hate|"
    "dislike|enjoy|don['’]t (?:like|eat|drink)|likes|loves|adores|prefers|hates|enjoys)",
    "favou?rite", "fave", "allergic", "allergy", "vegetarian", "vegan", "intolerant", "fond of", "fan of",
    "can['’]t stand", "would rather", "obsessed with", "keen on",
)  # fmt: skip

#: Plans. The future tense and a future date count as well.
PLAN = _anywhere(
    "(?:going|planning|hoping|about) to", "planning", "thinking (?:of|about)", "considering", "looking into",
    "(?:plans?|intends?|hopes?|wants?) to", "(?:love|like) to", "looking forward", "can['’]t wait", "let['’]s",
    "signed up",
)  # fmt: skip

#: Words about what the speaker is doing with the listener just now.
TASK_AT_HAND = _anywhere(
    "trying to", "make sure", "not sure", "no idea", "looking for", "having (?:some )?(?:trouble|issues|problems)",
    "would like", "i(?:['’]ll| will| need| want| do not| don['’]t| can['’]t)", "ready to", "let['’]s", "based on",
    "as i (?:mentioned|said)", "(?:i|we|you) (?:clarified|discussed|listed|mentioned|practiced|talked about)",
    "columns?|option|output|paragraphs?|prompt|template|version", "the (?:answers?|drafts?|list|question|steps?|table)",
)  # fmt: skip

#: What an assistant has done: "I've booked …", "Your table is reserved".
DONE = re.compile(
    r"\b(?:(?:I|[Ww]e)(?:['’]ve| have)?(?: just| now| already)?|(?:is|are|been|it['’]s)(?: now| all)?)"
    r" (?:added|arranged|booked|cancelled|canceled|changed|confirmed|moved|ordered|paid|placed|rescheduled|reserved"
    r"|scheduled|sent|signed|updated)\b"
)
#: The start of a message that accepts what the assistant did.
ACCEPTS = re.compile(
    r"(?:(?:ok|okay|yes|yeah|great|good|perfect|excellent|wonderful|super)\b[,.!]* ?)*"
    r"(?:thanks|thank you|perfect|great|yes|yeah|ok|okay|agreed|deal|(?:that |it )?(?:works|sounds good)|go ahead"
    r"|book it|do (?:it|that)|let['’]s (?:do|go|take|book))\b",
    re.IGNORECASE,
)
