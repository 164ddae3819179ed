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
    agree believe bet could feel feeling felt figured forget forgot guess hope hoping kinda knew know maybe mean might
    minutes need now perhaps possibly probably realize realized remember see seems should somehow sorta suppose think
    thought want wish wonder wondering
    """
)
#: Words for time, degree and what is vague. A sentence of such words alone says little.
ABSTRACT = word_set(
    """
    ability able achievements actually afternoon ago anyway attitude awful bad balance basically beauty big bit brain
    bunch case chance community connection connections couple crazy crucial currently dream dreams dude easy effort
    energy entire especially evening experience experiences fact feeling feelings finally freedom full fully goal goals
    guy guys hard head heart help home hour hours important inspiration inspired journey joy key kinda kindness last
    lately life lives long longer luckily mainly man matter memories memory mind minute minutes moment moments month
    months morning mostly motivated motivates motivation new next night old opportunities opportunity part parts passion
    passionate past patience people person place plus point power progress purpose ready reason recently reminder
    reminds sadly sense side sort special spirit stage step steps strength stuff super support supportive thing things
    time times today tomorrow tonight tough value vital way ways week weekend weeks well whole wild word words world
    year years yesterday
    """
)

#: Words for meals, sleep, weather and rest: trifles, unless the sentence says more.
TRIFLES = word_set(
    """
    asleep ate bed bored breakfast brunch burger chill chilling chilly chores coffee cold dinner eat eaten eating
    errands exhausted fries hot hungry lunch meal meals nap noodles pancakes pasta phone pizza rain rained raining relax
    relaxing rest salad sandwich shower sleep sleepy slept sluggish snack snacks snow snowing soup sunny tired traffic
    warm weather woke
    """
)

HABITS = word_set("always every often regularly usually weekly")

#: Words about what the speaker is doing with the listener just now.
TASK_AT_HAND = _anywhere(
    "trying to", "make sure", "not sure", "no idea", "looking for", "having (?:some )?(?:trouble|issues|problems)",
    "would like", "i(?:['’]ll| will| need| want| do not| don['’]t| can['’]t)", "ready to", "let['’]s", "based on",
    "as i (?:mentioned|said)", "(?:i|we|you) (?:clarified|discussed|listed|mentioned|practiced|talked about)",
    "columns?|option|output|paragraphs?|prompt|template|version", "the (?:answers?|drafts?|list|question|steps?|table)",
)  # fmt: skip

NEGATION = word_set("n't not no never nothing")
#: Words for what is not so, and for the conversation itself.
UNREAL = word_set("'d appreciate dreamed dreamt if imagine keen pretend ready understand wanna would")

FIRST_PERSON = word_set("i me my mine myself we us our ours ourselves")
SECOND_PERSON = word_set("you your yours yourself")
THIRD_PERSON = word_set("he she they his her their him them")

#: Words that make an instruction a standing one.
STANDING = word_set("always never every each")

#: A sentence that begins with one of these depends on the previous one …
LEANING = word_set(
    """
    almost alright another excellent fine great he her his it its like lol nah no ok okay one perfect regarding same she
    sure thanks that their there these they this those when which yeah yep yes you your
    """
)
#: … and with one of these a little.
CONNECTIVES = word_set("also and because but however or so then though")

#: Words for what another sentence says.
POINTING_BACK = word_set("it that this these those they them")

#: Words for what is the speaker's.
OWN = word_set("my our")
#: Words of a speaker about themselves alone.
SELF = word_set("i me my mine myself")
#: A sentence that begins with one of these asks for a single service.
REQUESTS = word_set(
    """
    add analyze answer assume be calculate can change check choose compare consider continue convert could create define
    describe develop discuss do draft edit expand explain fill find fix forget format generate give help identify
    imagine include just keep let list make now please provide put refer remove replace respond review rewrite show
    suggest summarize tell translate use write
    """
)

#: Stems of words for what lasts in a life or business: family, home, work, studies, health, animals, money, promises.
LASTING_WORDS = frozenset(
    stem(word)
    for word in word_set(
        """
        accident adopt allergic allergy anniversary apartment approve asthma aunt award baby birth birthday born bought
        boyfriend broken brother cancel cancer career cat child children cleaned college company contract cousin dad
        daughter deadline death debt decide decided decision degree diabetes diagnose die died disability divorce dog
        emergency engaged engagement exam family father fiance fiancee flat forbidden founded fund funeral girlfriend
        graduate grandfather grandma grandmother grandpa grew hire hired hometown hospital house husband ill illness
        injury install insurance interview intolerant invest job join joined kid launch lawyer lease licence license
        live lived loan lost marathon marriage married marry medal medication migraine mom mortgage mother move moved
        mum neighbor neighbour nephew niece opened operation owe pain parent partner passport pension pet poisonous
        practise pregnant prize promise promote promotion puppy quit raised rent retire roommate salary school serious
        sick sign sister sold son studied study surgery teach therapist therapy twins uncle university vegan vegetarian
        volunteer wedding wife win won work worked
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
