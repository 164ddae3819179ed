"""Tables of English words and openings for the kinds and the importance of facts. Heuristics; sometimes wrong.

A change here changes which facts are extracted: raise the extractor's version with it.
"""

from __future__ import annotations

import re

from memory_pipeline.domain.text.words import stem, word_set


def _anywhere(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)


#: Politeness, applause and filler: a sentence of nothing else asserts nothing.
PHATIC = word_set(
    """
    absolutely adorable aha agree agreed alright amazing appreciate aw awesome aww beautiful best better bet blast
    blessed bravo brilliant bye certainly cheers clearly congrats congratulations cool correct course cute dear
    definitely delicious exactly excellent exciting excited fab fabulous fair fantastic feel feels felt fine fun
    funny glad good goodbye goodness gorgeous gosh gotcha grateful great guess guys ha haha happy hear heh hello hey
    hi hmm honestly hooray hope hopeful huge hugs huh idea important impressive incredible indeed inspiring
    interesting kidding know looks love lovely luck lucky magnificent mean neat nice nope noted ooh oops ouch
    passionate perfect powerful perfectly please pleased pleasure pretty proud right see rewarding seriously sorry
    special sound sounds splendid stoked stunning super superb sure surely sweet terrific thank thankful thanks
    think thought thrilled totally tough true truly ugh understand understandable understood welcome well whoa wish
    wonderful wonderfully worries worry wow yay yeah yep yum yummy yup ok okay oh ah
    """
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
#: A sentence that begins with a verb and one of these is an instruction ("Fix the thermostat") …
IMPERATIVE_OBJECTS = word_set("a an the it them him her me us my our your this that these those something everything")
#: … except with these verbs, where "I" is omitted ("Love the colour").
ELLIPTIC_VERBS = word_set("love like hate enjoy need want hope wish mean sound seem feel look see miss read")
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

HEDGES = word_set("maybe perhaps probably possibly might guess suppose somehow kinda sorta presumably")

FIRST_PERSON = word_set("i me my mine myself we us our ours ourselves")
SECOND_PERSON = word_set("you your yours yourself")
THIRD_PERSON = word_set("he she they his her their him them")

#: Facts that are dangerous to get wrong.
DANGERS = word_set(
    """
    allergic allergy allergies asthma danger dangerous diabetes diabetic emergency epilepsy forbidden intolerant
    overdose poison poisonous
    """
)

#: Words that make an instruction a standing one.
STANDING = word_set("always never every each")

#: A sentence that begins with one of these depends on the previous one.
LEANING = word_set("he she it they his her its their that this those these")

#: Stems of words for a turning point in a life or business, a duty or a danger.
MILESTONES = frozenset(
    stem(word)
    for word in word_set(
        """
    accept accident adopt allergic allergy anniversary approve award baby birth birthday born bought broken buy cancel
    cancer contract deadline death debt decide decided decision degree diagnose diagnosed die died divorce due
    engaged engagement exam fiance fiancee forbidden fund funeral goal graduate hire hired hospital injury install
    interview invest job join launch lawyer lease licence license loan lost marathon marriage married marry medal
    mortgage move moved opened opening operation owe passport poisonous pregnant prize promise promote promotion quit
    rent retire salary serious sign sold surgery turned twins university vegan vegetarian wedding win won
    """
    )
)
