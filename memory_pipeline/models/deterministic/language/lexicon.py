"""Tables of English words and phrases for the rules of facts and durable memories.

The tables prefer missing a durable sentence to storing one by mistake. Sentences are short and the patterns have no
nested repetitions, so searches are fast. A change here changes which facts and memories are extracted: raise the
extractor's version with it.
"""

from __future__ import annotations

import re
from typing import Final

from memory_pipeline.domain.text.words import stem, word_set


def _start(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern for the start of a sentence, after openers such as "and", "please", "Juniper, …"."""
    return re.compile(rf"{_OPENERS}(?:{'|'.join(alternatives)})", re.IGNORECASE)


def _inside(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


_OPENERS = (
    r"(?:(?:and|but|so|also|then|ok|okay|well|now|oh|yes|no|please|hey|hi|one more thing|by the way|important|reminder)"
    r"\b[,:]? |(?-i:[A-Z])\w{1,30}, )*"
)
_NOT = r"(?:don['’]t|do not)"
_TASK = r"(?P<task>[a-z][a-z-]*)\b"
_ASKING = r"(?:i (?:always )?(?:want|need|expect) you to|i['’]d like you to|you (?:should|must|are to|have to))"
_FROM_NOW_ON = (
    r"(?:from (?:now|today) on(?:wards?)?|going forward|in future|henceforth|at all times|until further notice"
    r"|unless (?:i|we) (?:say|tell you|ask|write) (?:otherwise|so|not to|for it))"
)
_FIRST = rf"(?:(?:{_FROM_NOW_ON}|by default|in the future),? )?"
_EACH_TIME = r"(?:whenever|every time|each time|any ?time)"

#: A sentence without one of these words matches no cue below, so the cues are not searched.
WORDS: Final = word_set(
    """
    address again agreed all allowed always anniversary any anybody anymore anyone apparently appears assume backlog
    balance banned believe birthday blood both call code compulsory currently customer customers decided decision
    default domain drink e-mail each eat email employees ever every everybody everyone far favorite favourite
    forbidden forget forward fridays future fyi guess guests guidelines hear heard henceforth iban id inventory
    invoices limits looks mail mandatory may maybe mind moment mondays more must name never no nobody note notice
    noticed now number obligatory observed occupancy only opted orders passcode passphrase password payments perhaps
    permitted pin plate policies policy possibly prefer present presently presumably price probably prohibited queue
    rate realised realized reckon record records refer refunds regulation regulations remember requests required
    resolved rule rules saturdays seems settled shall shoe smoke sold ssid staff stand stock stop sundays suppose
    supposedly sure think thursdays time times today tuesdays turns unless url visitors voted waiting website
    wednesdays whenever
    """
)
#: Tasks for agents: the verbs of standing instructions.
TASKS: Final = word_set(
    """
    accept add address answer apologise apologize apply ask assign assume attach avoid bill book brief bring buy call
    cancel cc change charge check choose cite close confirm consult contact convert copy delete deliver deploy discuss
    disturb double-check email end escalate explain expose flag forward format greet highlight include inform
    interrupt introduce invite invoice keep label list lock log mail mark mention merge message move name notify number
    offer open order pack pay phone pick ping plan post prefer present print propose provide publish put quote
    recommend refer refund refuse reject remind reorder reply report request reserve respond reveal review round save
    say schedule send serve share ship show sign sort speak spell state store submit suggest summarise summarize switch
    tag talk tell test text translate treat update upload use verify warn write give
    """
)
STOPPED: Final = word_set(
    """
    adding apologising apologizing booking calling contacting emailing including mailing mentioning messaging
    notifying offering ordering pinging posting proposing quoting recommending reminding sending sharing showing
    suggesting texting
    """
)
#: Encouragement and idioms: "always keep going", "never give up", "never say never".
NO_TASK: Final = re.compile(
    r"(?:keep (?:it up|going|on|fighting|dreaming|smiling|believing|pushing|moving|trying|learning|in touch|that)"
    r"|keep your (?:head|chin|dreams?|spirits?|faith|eyes?|fingers|passion|hopes?|cool|balance|distance)"
    r"|say never|call (?:it|this|that)|move (?:on|forward)|(?:put|treat|tell|pick) yourself|give (?:up|in|it|your)"
    r"|talk to me|speak (?:up|from)|share your|open (?:up|to)|use your|show up)\b",
    re.IGNORECASE,
)
#: Styles that users ask for: "always be brief".
MANNERS: Final = word_set(
    "brief concise short polite formal informal honest precise clear direct friendly punctual discreet strict"
)
#: "Always quote …", "Please never suggest …", "Don't ever send …".
ORDER: Final = _start(
    rf"{_FIRST}(?:please )?(?:{_ASKING} |make sure (?:to |you )|be sure to |remember to )?"
    rf"(?:always|never(?: ever| again)?|{_NOT} ever)(?: again)? (?:please )?{_TASK}"
)
#: The same within a sentence: "…, so please never suggest it".
ORDER_INSIDE: Final = _inside(
    rf"(?:please|{_ASKING}|make sure (?:to|you)|be sure to|remember to) "
    rf"(?:always|never(?: ever| again)?|{_NOT} ever) {_TASK}"
)
#: Requests that "from now on" or "every Friday" makes lasting.
ASKED: Final = _start(rf"{_FIRST}(?:please |just |only |kindly )*(?:{_NOT} |never |always )?{_TASK}")
ASKED_INSIDE: Final = _inside(rf"(?:please|{_ASKING}) (?:{_NOT} |only |just )?{_TASK}")
WANTED: Final = _start(rf"{_FIRST}(?:i (?:only )?(?:want|need|expect)|i['’]d (?:like|prefer))\b")
LASTS: Final = _inside(rf"{_FROM_NOW_ON}\b")
LASTS_START: Final = _start(r"(?:by default|in the future),? ")
RECURS: Final = _inside(
    r"(?:every|each) (?:other |single |second |first |last )?"
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|day|morning|evening|night|week|weekend|month|quarter|year|hour"
    r"|time|weekday)\b(?! life)",
    r"on (?:mon|tues|wednes|thurs|fri|satur|sun)days\b",
)
#: Words before a description instead of a request: "write a job that runs every night".
DESCRIBED: Final = _inside(r"(?:that|which|who|whose|where|about|script|job|function|class|query|code)\b")
#: "Give me distances in kilometres, never in miles."
MANNER: Final = re.compile(
    r"(?:, | and | but )(?:always|never) "
    r"(?:in|on|with|without|by|as|before|after|at|for|from|to|more than|less than)\b",
    re.IGNORECASE,
)
#: "Whenever I ask about flour, check the stock first."
WHENEVER: Final = _start(rf"{_EACH_TIME} [^,]{{3,120}}, (?:please |always |never |just |{_NOT} )*{_TASK}")
#: "Stop sending reminders", "Don't suggest that shop ever again".
NO_LONGER: Final = _start(
    r"stop (?P<stopped>[a-z]+)\b(?! (?:that|it|this)\b)",
    rf"{_NOT} {_TASK}.{{1,200}}\b(?:ever again|ever|any ?more|again)\b",
)
#: Limits of a temporary request.
BOUNDED: Final = _inside(r"(?:until|till|before|today|tonight|this (?:week|month|time)|for (?:now|today))\b")
#: "Call me Annie"; "call me later" has no name.
CALL_ME: Final = re.compile(
    rf"(?i:{_OPENERS}{_FIRST}(?:please )?(?:always )?(?:you (?:can|may|should) |just )?"
    r"(?:call me|address me as|refer to me as)) [\"“']?(?:Dr\.? |Mr\.? |Ms\.? |Mrs\.? )?(?P<name>[A-Z][\w'’-]+)"
    r"[\"”']?(?=[.!,;]|$| (?:and|from|not|instead|please|in|because|since|as)\b)"
)
NO_NAMES: Final = word_set(
    "back later tomorrow tonight today monday tuesday wednesday thursday friday saturday sunday crazy old"
)

#: "The policy is …", "our rules say …".
POLICY: Final = _inside(
    r"(?:the|our|company|house|shop|office|team|kitchen|new|first|second) (?:\w+ ){0,2}"
    r"(?:policy|policies|rules?|regulations?|guidelines?)\b(?: (?:here|now|for|on|about|of|in)(?: \w+){0,4})?"
    r" (?:is|are|says?|states?|requires?|forbids?|prohibits?)\b"
    r"(?! (?:great|good|nice|strange|stupid|silly|crazy|so|too)\b)",
    r"it(?:['’]s| is) (?:our|the|company|house) (?:policy|rule)\b",
    r"against (?:the|our|company|house) (?:rules|policy)\b",
)
POLICY_START: Final = _start(r"as a rule\b", r"(?:(?:house|shop|kitchen|new) )?(?:rule|policy)(?: \w+)?: ")
#: "Dogs are not allowed in the shop."
ALLOWED: Final = _inside(
    r"(?P<before>[\w'’-]+) (?:is|are|isn['’]t|aren['’]t)(?: not| never| strictly| only| always| no longer)* "
    r"(?:allowed|permitted|forbidden|prohibited|mandatory|compulsory|obligatory|banned|off limits"
    r"|required (?:to|for|by|in|on|at|before))\b(?! to (?:think|feel|say|know|worry|laugh|cry|complain|ask|look|be)\b)"
)
#: Subjects that make a permission specific.
POINTING: Final = word_set("it that this you he she they i we which what who everything nothing there these those")
#: Words before a subject that point to something mentioned before: "that wholesaler is banned".
POINTED_AT: Final = re.compile(
    r"(?:\A|[,;:] |\b(?:and|but|so) )(?:that|this|these|those|his|her|its|their|the other)(?: [\w'’-]+){0,3} ?\Z",
    re.IGNORECASE,
)
#: What makes a permission a rule: a limit, a place or a purpose. "Swimming is allowed" was said of one situation.
LIMITED: Final = _inside(
    r"(?:not|never|no|no one|nobody|none|only|strictly|always|any|every|everyone|everybody|all|banned|forbidden"
    r"|prohibited|mandatory|compulsory|obligatory|required|off limits|in|on|at|into|inside|for|after|before|without"
    r"|during|unless|with|near|until)\b",
    r"\w+n['’]t\b",
)
_EVERYONE = (
    r"(?:(?:every|each|all|any|no|only|both|the|our|new|a|an|customers?|staff|employees|guests?|visitors?|orders?"
    r"|invoices?|refunds?|payments?|requests?)\b(?: [\w'’%€$-]+){0,8}|everyone|everybody|nobody|no one|anyone|anybody)"
)
#: "Every invoice must be signed": a duty. Guesses ("it must be nice") have a pronoun as subject.
MUST: Final = _start(
    rf"(?P<subject>{_EVERYONE}) (?P<must>must|shall|has to|have to|needs to|need to)"
    r"(?: not| never| always| only| also)* (?P<verb>[a-z]+)(?: (?P<participle>[a-z]+))?"
)
#: Words that make the duty of a single thing a lasting one.
EVER: Final = _inside(
    r"(?:always|never|at all times|at night|overnight|before|after|whenever|when|unless|without|only)\b"
)
MUST_EVER: Final = _inside(r"(?:we|they|there|nobody|no one|everyone) must (?:always|never)\b")
#: Subjects with which "has to" states a rule.
QUANTIFIED: Final = word_set("every each all any no only customers staff employees guests visitors")
#: Feelings and guesses after "must".
GUESSED: Final = word_set(
    "feel have love like seem look sound know think enjoy miss mean hurt taste smell bring take suck hate want cost add"
)
MAY: Final = _start(
    rf"(?:(?:no one|nobody|no \w+|only \w+(?: \w+){{0,3}}) may|(?:\w+ ){{1,4}}may (?:only|never)) {_TASK}"
)
#: Rules of a business: "we never give refunds", but not "we always have fun".
WE_NEVER: Final = _inside(rf"we (?:always|never|only ever|{_NOT} ever|only) {_TASK}")
HOUSE_TASKS: Final = word_set(
    """
    accept allow answer approve bill book charge check close confirm deliver deploy discount hire invoice lend lock log
    merge offer open order pay publish quote refund release reply require respond return review sell send serve ship
    sign store test verify
    """
)

DECIDED: Final = re.compile(
    r"\b(?:[Ww]e|(?:[Tt]he )?(?:team|board|management|committee|family|owners?|council)|[A-Z]\w+ and (?:I|[A-Z]\w+))"
    r"(?:['’]ve| have| has)?(?: now| finally| already| just| both| all| also| together)*"
    r" (?:decided|agreed|resolved|voted|opted|settled)(?:,? (?:both|all|two|three) of us)?,?"
    r" (?:to|that|on|against|not to|for|about|unanimously)\b"
    r"|\bI(?: have|['’]ve)(?: now| finally)? decided (?:to|that|against|on|not to)\b"
    r"|\b(?:[Tt]he|[Oo]ur) (?:final )?decision (?:is|was) (?:to|that|not to)\b|^[Dd]ecision: "
    r"|\b[Ii]t (?:is|was|has been) decided (?:to|that)\b"
)
#: Decisions of a moment, told as a story: "so we decided to go home".
MOMENTARY: Final = _inside(
    r"(?:decided|agreed) (?:to|on) (?:just )?(?:go (?:home|out|for|back|inside)|come|head|leave|stay|eat|get|grab|walk"
    r"|sit|turn|watch|try|wait|sleep|drive back|run|have|take a)\b"
)
GUESSES: Final = _inside(r"i (?:guess|think|suppose)\b", r"(?:maybe|perhaps|probably)\b")
#: What shows that a denied fact held before: "I'm not a nurse anymore".
HELD_BEFORE: Final = _inside(
    r"(?:no longer|any ?more|any longer|used to|stopp(?:ed|ing)|quit|left|leaves?|leaving|sold|moved|relocated"
    r"|emigrated)\b"
)
#: Connectives at the start of a sentence that mean nothing without the one before it.
CONNECTIVE: Final = re.compile(
    r"(?:(?:and|but|plus|anyway|oh|well|also|so|then|yes|yeah|no|ok|okay)[,:] |(?:and|but|plus) "
    r"|so (?=(?:please|never|always|don['’]t|do not|i|we|the|my|our|from|no)\b))+",
    re.IGNORECASE,
)
#: Words in an order or rule that refer to the sentence before it, and reminders that do not say of what.
REFERS: Final = _inside(r"(?:it|them|him|they|those|these)\b")
UNSAID: Final = re.compile(
    rf"{_OPENERS}remind me (?:on|every|each|at|in|again)\b(?!.*\b(?:to|that|about)\b)", re.IGNORECASE
)

#: Lasting predicates, besides families such as ``has_sister``.
LASTING: Final = word_set(
    """
    address allergic_to also_known_as born_in born_on comes_from drives email engaged_to graduated_from is is_called
    learns lives_in marital_status married_to phone_number rent speaks studies studies_at works_as works_at
    """
)
LASTING_FAMILY: Final = "has_"
#: Lasting predicates that may also hold only for now.
CHANGING: Final = word_set("drives is lives_in rent studies studies_at works_as works_at")
#: Predicates of suppositions. "I think I am …" is mostly not a supposition.
SUPPOSABLE: Final = LASTING - {"is", "is_called"}
#: Objects of lasting "has": family, pets, illnesses.
HELD: Final = word_set(
    """
    daughter daughters son sons kid kids child children twin twins brother brothers sister sisters sibling siblings dog
    dogs cat cats grandchild grandchildren grandson granddaughter nephew nephews niece nieces asthma diabetes epilepsy
    adhd arthritis dyslexia migraine migraines allergy allergies pacemaker
    """
)
LIKINGS: Final = word_set("likes dislikes")
LIKING_FAMILY: Final = "favourite_"
#: Objects of a momentary liking.
IN_PASSING: Final = _inside(
    r"(?:how|seeing|hearing|your|new|being|having|it|idea|that|this|these|those|here|there|pics?|photos?|vibes?|look"
    r"|feeling|way|sound|chatting|talking|you)\b"
)
PREFERENCE: Final = _inside(
    r"i (?:always |usually |generally |much |really |still |strongly |normally )*prefer\b"
    r"(?! (?:it|that|this|those|these|them|not|you|the (?:\w+ one|one|first|second|third|last|other|latter|former))\b)"
    r"(?= \w)",
    r"(?<!what )(?<!which )my (?:all-time |absolute |own )?favou?rite \w+"
    r"(?: (?!(?:but|and|it|that|which|so|because)\b)\w+){0,3} (?:is|are)\b"
    r"(?! (?:when|the one|that|this|it|one|how|seeing|being)\b)",
    r"(?!(?:it|that|this|here|there|one|which|who|was)\b)[\w'’]+ (?:is|are) my (?:all-time |absolute )?favou?rite\b",
    r"i (?:really |absolutely |just )?(?:can['’]t|cannot) stand\b(?! (?:it|that|this|up|here|there|by)\b)",
    rf"i (?:{_NOT}|never) (?:eat|drink|smoke)\b(?! (?:it|that|this|much|there|yet|enough|alone)\b)",
    r"i only (?:eat|drink)\b",
)
#: "The alarm code is 4411": names and numbers of things.
_OWNER = r"(?:my|our|the|(?-i:[A-Z])\w+['’]s)"
_VALUE = r"(?=[\"“']?(?:[\w+./:-]*\d|[\w.+-]+@|https?:|www\.|[a-z0-9-]+\.[a-z]{2,6}\b))"
IDENTIFIED: Final = _inside(
    rf"{_OWNER}(?: [\w'’-]+){{0,3}}? (?:password|passcode|passphrase|pin|iban|ssid|blood type|shoe size"
    r"|(?:licen[cs]e|number) plate|(?:alarm|door|gate|entry|access|postal|post|zip|area|safe|garage|lock|customer) code"
    r"|(?:tax|vat|account|customer|passport|membership|policy|registration|licen[cs]e|serial|insurance|fax|mobile|phone"
    r"|bank|routing|house|emergency) (?:number|id))"
    rf"(?: (?:for|of|at|to|in) [\w'’ -]{{1,40}}?)? (?:is|are) (?:{_VALUE}|(?-i:A|B|AB|O)\b)",
    rf"(?:my|our|(?-i:[A-Z])\w+['’]s)(?: [\w'’-]+){{0,2}}? (?:address|website|url|domain|e-?mail) is {_VALUE}",
    rf"{_OWNER}(?: [\w'’-]+){{0,2}}? (?:birthday|anniversary|name day) (?:is|falls) (?:always )?(?:on |in )?(?:the )?"
    r"(?:\d|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
)

NOW: Final = _inside(
    r"(?:currently|right now|at the moment|at present|presently|as of (?:now|today|this)|today|tonight"
    r"|this (?:morning|afternoon|evening|week|month)|just now|for now|for the moment|in stock|out of stock|sold out)\b"
)
_QUANTITY = r"\b[^,;]{0,60}\d"
STANDS: Final = _inside(
    r"(?:is|are|have|has|there['’]s|['’]ve got|got)\b[^,;]{0,80}\b(?:in stock|out of stock|sold out)\b",
    r"(?:balance|stock|inventory|price|exchange rate|queue|backlog|occupancy|waiting time)\b[^,;]{0,60}"
    rf"\b(?:is|are|stands? at|reads|shows){_QUANTITY}",
    rf"(?:is|are|have|has|holds?){_QUANTITY}[^,;]{{0,60}}\b(?:right now|at the moment|currently|as of (?:now|today))\b",
    r"(?:currently|right now|at the moment|as of (?:now|today)),?\b[^;]{0,60}"
    rf"\b(?:is|are|have|has|holds?|costs?|stands? at){_QUANTITY}",
)

#: "I have noticed that …", before a regularity.
NOTICED: Final = _start(
    r"(?:i|we)(?:['’]ve| have)? (?:noticed|observed|realised|realized)\b",
    r"(?:it (?:seems|looks like|appears)|apparently|it turns out)\b",
)
REGULAR: Final = _inside(
    r"(?:always|usually|often|never|tends? to|whenever|mostly|every (?:day|week|month|spring|summer|autumn|winter|time"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day)|on (?:mon|tues|wednes|thurs|fri|satur|sun)days)\b"
)
#: Words that make an assertion a supposition, at its start and inside. Without them the sentence asserts.
SUPPOSED_START: Final = _start(
    r"(?:i (?:think|believe|guess|suppose|assume|reckon|hear|heard)(?: that)?|it seems(?: that)?|apparently|maybe"
    r"|perhaps|probably|possibly|supposedly|as far as i know|if i remember (?:right|rightly|correctly)"
    r"|i['’]m not sure,? but|i['’]m (?:pretty|fairly|quite|almost) sure(?: that)?),? "
)
SUPPOSED_INSIDE: Final = re.compile(r" (?:probably|apparently|possibly|supposedly|presumably|maybe)(?= [a-z])")

#: Jokes and fiction.
NOT_MEANT: Final = _inside(
    r"(?:joke|joking|kidding|jk|haha|lol|hypothetically|imagine|pretend|song|movie|lyrics|dream(?:ed|t)?|would have"
    r"|once upon)\b"
)
CONDITION: Final = _start(r"(?:if|unless|suppose|when i was|back when|as if)\b")
#: "Remember that the alarm code is 4411": durable, whatever it says.
REMEMBER: Final = _start(
    r"(?:remember|note|keep in mind|bear in mind|don['’]t forget|do not forget|for the record|fyi|for your records)"
    r"(?: that|:|,) "
    r"(?=(?:i|i['’]m|i['’]ve|we|we['’]re|my|our|the|all|every|no|nobody|he|she|they|(?-i:[A-Z])[\w'’]+)\b)"
)


# Words and openings for kinds and importance of facts. These are heuristics and sometimes wrong.


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

#: A list item that begins with one of these is a statement.
SELF = word_set("i my we our i'm i've")

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
