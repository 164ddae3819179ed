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

#: Words for what is vague or of the moment.
PASSING = word_set(
    """
    agree believe bet could feel feeling felt guess hope kinda knew know maybe mean might minutes need now perhaps
    possibly probably remember see should somehow sorta suppose think thought tonight want wish wonder
    """
)
#: Words for what is not so, and for the conversation itself.
UNREAL = word_set("'d appreciate if keen ready understand wanna would")

FIRST_PERSON = word_set("i me my mine myself we us our ours ourselves")
SECOND_PERSON = word_set("you your yours yourself")
THIRD_PERSON = word_set("he she they his her their him them")

#: Words that make an instruction a standing one.
STANDING = word_set("always never every each")

#: A sentence that begins with one of these depends on the previous one.
LEANING = word_set(
    """
    alright and because but excellent fine great he her his it its lol nah no ok okay one perfect same she so sure
    thanks that their then there these they this those though when which yeah yep yes you your
    """
)

#: Words for what another sentence says.
POINTING_BACK = word_set("it that this these those they them")

#: Words of a speaker about themselves alone.
SELF = word_set("i me my mine myself")
#: A sentence that begins with one of these asks for a single service.
REQUESTS = word_set("can could give help just let please show tell write")

#: Stems of words for what lasts in a life or business: family, home, work, studies, health, animals, money, promises.
LASTING_WORDS = frozenset(
    stem(word)
    for word in word_set(
        """
        accept accident adopt allergic allergy anniversary apartment approve asthma aunt award baby birth birthday born
        bought boyfriend broken brother cancel cancer career cat child children cleaned college company contract cousin
        dad daughter deadline death debt decide decided decision degree diabetes diagnose die died disability divorce
        dog due emergency engaged engagement exam family father fiance fiancee flat forbidden founded friend fund
        funeral girlfriend goal graduate grandfather grandma grandmother grandpa grew hire hired home hometown hospital
        house husband ill illness injury install insurance interview intolerant invest job join joined kid launch lawyer
        lease licence license live lived loan lost major marathon marriage married marry medal medication migraine
        mom mortgage mother move moved mum neighbor neighbour nephew niece opened operation owe pain parent partner
        passport pension pet poisonous practise pregnant prize promise promote promotion puppy quit raised rent retire
        roommate salary school serious sick sign sister sold son speak started studied study surgery teach therapist
        therapy twins uncle university vegan vegetarian volunteer wedding wife win won work worked
        """
    )
)

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
