"""Tables of the patterns that turn a sentence into a triple. ``extractor`` applies them.

To add a predicate, add one line to :data:`PATTERNS`::

    Pattern("knit", "knits", Verb.INSERT, Takes.THINGS, HABIT)

"I knit socks" is then ``(Anna, knits, socks)``, "Tom doesn't knit socks" withdraws ``(Tom, knits, socks)``, and "I
might knit socks", "Do I knit socks?" and "She says I knit socks" give nothing. For "my … is" ("my blood type is A"),
add a line to :data:`PROPERTIES`. Both need the predicate's confidence in :data:`CONFIDENCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.text.words import word_set


class Form(Flag):
    """The form of a verb."""

    PRESENT = auto()  # I live, Tom lives, I don't live
    GOING = auto()  # I'm living
    LASTING = auto()  # I've been living; I've lived … since March
    PERFECT = auto()  # I've moved
    PAST = auto()  # I moved
    USED = auto()  # I used to live: withdraws
    WAS = auto()  # I was born


HABIT: Final = Form.PRESENT | Form.LASTING
ONGOING: Final = Form.PRESENT | Form.GOING | Form.LASTING
ENDING: Final = ONGOING | Form.USED
EVENT: Final = Form.PAST | Form.PERFECT


class Takes(Enum):
    """The kind of an object."""

    THINGS = "one or several things: tea and long walks"
    PREFERRED = "the same, cut before what they are preferred to"
    ACTIVITIES = "things without where, with whom and what for: football"
    OWNED = "what one has for long: two dogs, asthma; not a look, an idea or a great day"
    GOODS = "what one bought or sold and may keep: a house"
    VEHICLE = "a car or the like: an old Skoda"
    ROLE = "what somebody is for long: a nurse, vegetarian, Polish; not tired"
    JOB = "an occupation, said to be one: a baker"
    NAMED = "something with a name: Porto, Siemens, Tom"
    EMPLOYER = "something with a name, or a thing with an article: the harbour"
    LANGUAGES = "names of languages: Polish and German"
    SUBJECTS = "what is studied: physics, civil engineering"
    ACTION = "a verb in the infinitive and what belongs to it: visit Rome in June"
    AGE = "a number of years: 34"
    DATE = "a date as written: 3 May 1990"
    AMOUNT = "a number with its unit: 40 euros"
    ALLERGY = "nut of: a nut allergy"
    PHONE = "a telephone number"
    EMAIL = "an address of e-mail"
    ADDRESS = "an address with a number"
    VALUE = "whatever follows, in one piece"


@dataclass(frozen=True, slots=True)
class Pattern:
    """Words that assert a predicate.

    Attributes:
        phrase: the verb's base form and the words that must follow; ``|`` separates alternatives, ``[…]`` is optional.
        verb: the operation of an assertion.
        forms: the forms of the verb that assert it.
        of_things, of_persons: whether a thing ("the office") or a person may be the subject.
        of_names: whether a name may be the subject, even one of a thing.
        denied: whether a negation withdraws the triple; otherwise it gives nothing.
    """

    phrase: str
    predicate: str
    verb: Verb
    takes: Takes
    forms: Form
    of_things: bool = False
    of_persons: bool = True
    of_names: bool = True
    denied: bool = True


_INSERT, _UPDATE, _DELETE = Verb.INSERT, Verb.UPDATE, Verb.DELETE
#: In order of precedence: the first line that matches counts.
PATTERNS: Final = (
    Pattern("live [over|up|down] in", "lives_in", _UPDATE, Takes.NAMED, ENDING),
    Pattern("live at", "address", _UPDATE, Takes.ADDRESS, ENDING),
    Pattern("move to", "address", _UPDATE, Takes.ADDRESS, EVENT),
    Pattern("move|relocate|emigrate [back|over|up|down|out|away] to", "lives_in", _UPDATE, Takes.NAMED, EVENT),
    Pattern("move|relocate|emigrate [back|over|here|up|down|away] from", "lives_in", _DELETE, Takes.NAMED, EVENT),
    Pattern("settle [down] in", "lives_in", _UPDATE, Takes.NAMED, EVENT),
    Pattern("work [full|part] [time] as", "works_as", _INSERT, Takes.JOB, ENDING),
    Pattern("work [full|part] [time] [over] at|for", "works_at", _UPDATE, Takes.EMPLOYER, ENDING),
    Pattern("start [working|work] at|for", "works_at", _UPDATE, Takes.NAMED, EVENT),
    Pattern("start [working|work] as", "works_as", _INSERT, Takes.JOB, EVENT),
    Pattern("get|land|accept|take a|my [new] job|position|role at|with", "works_at", _UPDATE, Takes.NAMED, EVENT),
    Pattern("stop working at|for", "works_at", _DELETE, Takes.EMPLOYER, EVENT),
    Pattern("stop working as", "works_as", _DELETE, Takes.JOB, EVENT),
    Pattern("quit|leave my job at|with", "works_at", _DELETE, Takes.EMPLOYER, EVENT),
    Pattern("quit|leave", "works_at", _DELETE, Takes.NAMED, EVENT),
    Pattern("be [originally] from", "comes_from", _INSERT, Takes.NAMED, HABIT),
    Pattern("come [originally] from", "comes_from", _INSERT, Takes.NAMED, Form.PRESENT),
    Pattern("be born [and] [raised|bred] in|near", "born_in", _UPDATE, Takes.NAMED, Form.WAS),
    Pattern("be born [on|in]", "born_on", _UPDATE, Takes.DATE, Form.WAS),
    Pattern("be also known as", "also_known_as", _INSERT, Takes.NAMED, HABIT, of_things=True),
    Pattern("be known as", "also_known_as", _INSERT, Takes.NAMED, HABIT, of_things=True),
    Pattern("go by", "also_known_as", _INSERT, Takes.NAMED, Form.PRESENT),
    Pattern("be called|named", "is_called", _INSERT, Takes.NAMED, Form.PRESENT, of_things=True),
    Pattern("be [very|severely|badly|highly|deathly] allergic to", "allergic_to", _INSERT, Takes.ACTIVITIES, HABIT),
    Pattern("have [got] a|an", "allergic_to", _INSERT, Takes.ALLERGY, HABIT),
    Pattern("be [very|really|quite|so] fond of", "likes", _INSERT, Takes.THINGS, HABIT),
    Pattern("be a [big|huge|massive|great|real|lifelong|keen] fan of", "likes", _INSERT, Takes.THINGS, HABIT),
    Pattern("be [happily|recently] married to", "married_to", _UPDATE, Takes.NAMED, HABIT),
    Pattern("marry", "married_to", _UPDATE, Takes.NAMED, EVENT),
    Pattern("get married to", "married_to", _UPDATE, Takes.NAMED, EVENT),
    Pattern("be [newly] engaged to", "engaged_to", _UPDATE, Takes.NAMED, HABIT),
    Pattern("get engaged to", "engaged_to", _UPDATE, Takes.NAMED, EVENT),
    Pattern("be located|based|situated in|at|on|near", "located_in", _UPDATE, Takes.NAMED, HABIT, True, False),
    Pattern("be in|at", "located_in", _UPDATE, Takes.NAMED, Form.PRESENT, True, False, False),
    Pattern("cost [me|us] [about|around|roughly]", "costs", _UPDATE, Takes.AMOUNT, Form.PRESENT, True, False),
    Pattern("be due [back|in] on|by", "due_on", _UPDATE, Takes.DATE, Form.PRESENT, True, False),
    Pattern("be due", "due_on", _UPDATE, Takes.DATE, Form.PRESENT, True, False),
    Pattern("be", "age", _UPDATE, Takes.AGE, Form.PRESENT, denied=False),
    Pattern("turn", "age", _UPDATE, Takes.AGE, EVENT, denied=False),
    Pattern("be", "is", _INSERT, Takes.ROLE, HABIT),
    Pattern("have [got]", "has", _INSERT, Takes.OWNED, HABIT),
    Pattern("own", "owns", _INSERT, Takes.OWNED, HABIT),
    Pattern("buy", "owns", _INSERT, Takes.GOODS, EVENT),
    Pattern("sell", "owns", _DELETE, Takes.GOODS, EVENT),
    Pattern("like|love|enjoy|adore", "likes", _INSERT, Takes.THINGS, HABIT),
    Pattern("hate|dislike|detest|loathe", "dislikes", _INSERT, Takes.THINGS, HABIT, denied=False),
    Pattern("prefer", "prefers", _INSERT, Takes.PREFERRED, HABIT),
    Pattern("speak [fluent|some|native]", "speaks", _INSERT, Takes.LANGUAGES, HABIT),
    Pattern("plan|intend|want to", "plans_to", _INSERT, Takes.ACTION, Form.PRESENT | Form.GOING),
    Pattern("go to", "plans_to", _INSERT, Takes.ACTION, Form.GOING),
    Pattern("study|read [for] [a] [degree] [in] at", "studies_at", _UPDATE, Takes.NAMED, ENDING),
    Pattern("study", "studies", _INSERT, Takes.SUBJECTS, ENDING),
    Pattern("graduate from", "graduated_from", _INSERT, Takes.NAMED, EVENT, denied=False),
    Pattern("play", "plays", _INSERT, Takes.ACTIVITIES, HABIT),
    Pattern("use", "uses", _INSERT, Takes.ACTIVITIES, ONGOING),
    Pattern("drive", "drives", _INSERT, Takes.VEHICLE, HABIT),
)
#: Predicates of "my … is" and "Tom's … is".
PROPERTIES: Final = {
    "name": Pattern("", "is_called", _UPDATE, Takes.NAMED, HABIT),
    "nickname": Pattern("", "also_known_as", _INSERT, Takes.NAMED, HABIT),
    "birthday": Pattern("", "born_on", _UPDATE, Takes.DATE, HABIT),
    "date of birth": Pattern("", "born_on", _UPDATE, Takes.DATE, HABIT),
    "phone number": Pattern("", "phone_number", _UPDATE, Takes.PHONE, HABIT),
    "number": Pattern("", "phone_number", _UPDATE, Takes.PHONE, HABIT),
    "telephone number": Pattern("", "phone_number", _UPDATE, Takes.PHONE, HABIT),
    "mobile number": Pattern("", "phone_number", _UPDATE, Takes.PHONE, HABIT),
    "email": Pattern("", "email", _UPDATE, Takes.EMAIL, HABIT),
    "email address": Pattern("", "email", _UPDATE, Takes.EMAIL, HABIT),
    "e-mail": Pattern("", "email", _UPDATE, Takes.EMAIL, HABIT),
    "e-mail address": Pattern("", "email", _UPDATE, Takes.EMAIL, HABIT),
    "address": Pattern("", "address", _UPDATE, Takes.ADDRESS, HABIT),
    "home address": Pattern("", "address", _UPDATE, Takes.ADDRESS, HABIT),
}
#: Confidence of each predicate; that of a family, such as ``has_sister``, by its prefix.
CONFIDENCE: Final = {
    "is": 0.7, "works_as": 0.8, "works_at": 0.8, "lives_in": 0.8, "comes_from": 0.8, "born_in": 0.9, "born_on": 0.9,
    "age": 0.8, "is_called": 0.9, "also_known_as": 0.8, "has": 0.7, "owns": 0.7, "likes": 0.7, "dislikes": 0.7,
    "prefers": 0.7, "married_to": 0.9, "engaged_to": 0.9, "speaks": 0.8, "allergic_to": 0.9, "plans_to": 0.6,
    "studies": 0.8, "studies_at": 0.8, "graduated_from": 0.9, "plays": 0.7, "uses": 0.7, "drives": 0.7,
    "phone_number": 0.9, "email": 0.9, "address": 0.9, "located_in": 0.7, "costs": 0.7, "due_on": 0.7,
    "has_": 0.8, "favourite_": 0.8,
}  # fmt: skip
#: Asserting one withdraws the other. Denying the first asserts the second.
OPPOSITES: Final = {"likes": "dislikes", "dislikes": "likes"}
#: Forms of irregular verbs: s, ing, past, participle.
IRREGULAR = {
    "be": ("is", "being", "was", "been"),
    "have": ("has", "having", "had", "had"),
    "buy": ("buys", "buying", "bought", "bought"),
    "sell": ("sells", "selling", "sold", "sold"),
    "leave": ("leaves", "leaving", "left", "left"),
    "quit": ("quits", "quitting", "quit", "quit"),
    "speak": ("speaks", "speaking", "spoke", "spoken"),
    "drive": ("drives", "driving", "drove", "driven"),
    "get": ("gets", "getting", "got", "got"),
    "take": ("takes", "taking", "took", "taken"),
    "go": ("goes", "going", "went", "gone"),
    "come": ("comes", "coming", "came", "come"),
    "read": ("reads", "reading", "read", "read"),
    "cost": ("costs", "costing", "cost", "cost"),
    "plan": ("plans", "planning", "planned", "planned"),
    "stop": ("stops", "stopping", "stopped", "stopped"),
    "prefer": ("prefers", "preferring", "preferred", "preferred"),
}


# Function words that mark clauses, hedges and the ends of objects.


def _by_first_word(phrases: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], ...]]:
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for phrase in phrases:
        words = tuple(phrase.split())
        found[words[0]] = (*found.get(words[0], ()), words)
    return found


#: Adverbs between subject and verb that do not change the meaning.
ADVERBS = word_set(
    """
    really just also still currently now actually absolutely always totally both truly recently finally already
    mostly honestly quite generally usually mainly officially basically very only so even genuinely definitely
    properly happily normally often all technically originally proudly literally secretly newly simply now
    """
)
OPENERS = word_set(
    """
    and but so also well yes yeah yep yup no nope oh ok okay hey hi hello hiya btw fyi actually honestly now
    currently anyway anyways plus look right sure thanks basically personally lately recently nowadays today
    yesterday then because cause cuz since though although as while whereas finally obviously luckily unfortunately
    sadly morning evening greetings ah um er hmm haha lol update fact
    """
)
_OPENINGS = (
    "by the way", "to be honest", "at the moment", "these days", "right now", "of course", "in fact",
    "just so you know", "as you know", "for the record", "even though", "good morning", "good evening",
    "good afternoon", "for context", "for reference", "for what it 's worth", "other than that", "at work", "at home",
    "at school", "on top of that", "after all", "in case you forgot", "guess what", "heads up",
)  # fmt: skip
OPENINGS: Final = _by_first_word(_OPENINGS)
#: Words of a time that may precede a subject: "last week I moved to Porto".
TIME_WORDS = word_set(
    """
    in on since last this next ago for after at a an the two three four five six seven eight nine ten few couple of
    day days week weeks month months year years spring summer autumn fall winter morning evening night weekend
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday yesterday today
    """
)
#: A clause with one of these is uncertain.
HEDGES = word_set(
    """
    maybe perhaps probably possibly might may could would 'd should guess suppose somehow kinda sorta presumably
    apparently supposedly seemingly allegedly reportedly think wish hopefully almost nearly pretend imagine assume
    believe reckon wonder doubt unless if whether would've 'll will shall unsure ought never hardly rarely seldom
    barely scarcely neither nor
    """
)
#: Start of a condition or of something imagined: the rest of the sentence is not asserted.
CONDITIONS = word_set("if unless suppose supposing imagine wish whether pretend provided assuming lest")
#: Start of reported speech: the rest of the sentence is another person's.
REPORTS = word_set(
    """
    said says saying told tells thinks thought claims claimed heard reckons believes believed assumed assumes swears
    swore insists insisted wrote writes asked suggested joked jokes jokingly rumour rumor according pretends
    pretended dreamt dreamed convinced
    """
)
OBJECT_ENDS = word_set(
    """
    because which who whom whose that where when whenever while so but if unless since now nowadays anymore again
    too either though although currently today yesterday tomorrow tonight ago already still lately recently until
    till before after during cause cuz i we he she they it you as than except despite once via without yet then
    right anyways anyway obviously honestly actually sometimes almost always usually mostly together thanks lol haha
    btw instead fine however whereas what how why even especially occasionally ever is are was were am has had did
    does do will would can could should just alone myself himself herself
    """
)
_END_PHRASES = (
    "any more", "any longer", "these days", "at the moment", "right now", "for now", "as well", "at all", "a lot",
    "so much", "very much", "last week", "last month", "last year", "last night", "last spring", "last summer",
    "last autumn", "last winter", "last monday", "last friday", "this week", "this month", "this year", "this summer",
    "this spring", "this morning", "next week", "next month", "next year", "every day", "every week", "all the time",
    "the most", "of course", "to be honest", "in case", "with my", "with his", "with her", "in my", "on my own",
    "at home", "by myself", "at work", "on weekends", "at weekends", "on sundays", "in the morning",
    "in the mornings", "in the evening", "in the evenings", "most days", "every morning", "every evening",
    "each week", "every weekend", "every sunday", "every saturday", "every summer", "twice a", "once a", "more than",
    "to be fair", "just fine", "the other day", "a while", "all my life", "my whole life", "to work", "from scratch",
    "in general", "on the side",
)  # fmt: skip
OBJECT_END_PHRASES: Final = _by_first_word(_END_PHRASES)
#: A time begins with one of these and one of :data:`TIME_NOUNS`.
BEFORE_TIMES = word_set("for on in since at this last next every each by around from over")
TIME_NOUNS = word_set(
    """
    january february march april may june july august september october november december jan feb mar apr jun jul
    aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays
    thursdays fridays saturdays sundays spring summer autumn fall winter years year months month weeks week days day
    ages decades hours hour minutes weekends christmas easter
    """
)
#: Words that are not an object and do not begin or end one.
NOT_OBJECTS = word_set(
    """
    it that this these those them him her you me us everything nothing something anything everyone nobody someone
    anyone one ones both what how when where why who whatever which to being having there here so such more less
    most same all some other another each every any no none not if myself yourself himself herself itself ourselves
    your his their its mine yours ours theirs hers we they he she i and or but at on in with for about by from off
    out up down around over into through my-self doing getting seeing making nor as than
    """
)
#: Verbs of a momentary wish or idiom after "I want to" and "I'm going to".
PASSING_ACTIONS = word_set(
    """
    be say thank ask know cry see scream sleep sit let do have hear think believe feel go talk tell share show keep
    look give make sure try die puke vomit throw point add clarify note mention apologise apologize explain
    understand hug kiss punch kill eat use need miss remember focus stay help want live like love enjoy take hope
    wait get lose stop bed work school church sea town gym court pass assume admit check savor savour hit come put
    """
)
ACTION_VERBS = word_set(
    """
    move visit marry adopt apply retire graduate renovate paint redecorate emigrate relocate enrol enroll register
    rent build sell buy train study learn propose resign launch migrate refactor rewrite plant hike climb sail
    repaint extend convert record audition compete specialise specialize teach volunteer tour invest upgrade swap
    foster divorce publish host cycle drive fly
    """
)
NUMBER_WORDS = word_set(
    """
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety
    """
)
#: Words that refer to the context or the addressee.
POINTING = word_set(
    """
    this that these those your yours his their its it them him her you me us he she they we 's-me here there em
    """
)
#: Prepositions; the head noun of a phrase precedes them.
PREPOSITIONS = word_set("of in on at with for from by about near to into over under around through like between as")
#: A possession ends before these. Its place stays: "a house in Porto".
OWNED_ENDS = word_set("at for from on with to by about called named like near through coming going waiting living")
ARTICLES = word_set("a an the my our own some")
#: Quantities before "of" that say nothing about the thing: "a lot of films".
QUANTITIES = word_set("lot lots bunch ton tons loads plenty couple handful load heap heaps variety range bit")
#: Verbs after the last of several things, which then begin a clause: "I like tea, and coffee is fine".
AFTER_SUBJECTS = word_set("is are was were 's has have had does do did will can 're")
#: A statement before one of these is limited.
WEAKENING = word_set("if unless when whenever provided until till once")
ACTION_ENDS = word_set(
    """
    because which but so if unless cause cuz i we he she they though although when whenever while since hopefully
    too instead anyway eventually someday really badly again than
    """
)
AFTER_AGE = word_set(
    """
    last yesterday in on and but now so today already this next soon with years yrs yo y/o who as going turning
    because
    """
)
THING_VERBS = word_set("is 's costs cost are")
#: Words that may begin a clause.
JOINTS = word_set("and but so because cause cuz since though although while whereas plus yet")
#: "In winter I …", "for the receipt my …".
BEFORE_SUBJECTS = word_set(
    """
    in on at for since last this next with before after during to from by as two three four five a
    """
)
NOT_BEFORE_SUBJECTS = word_set(
    """
    role game story novel play exercise film movie dream dreams is are was were if when that who which dreamed
    """
)
#: Words of jokes and fiction: the sentence gives nothing.
NOT_MEANT = word_set("kidding jk hypothetically roleplay pretend pretending")
#: Language tasks: a sentence with one of these among its first words gives nothing.
TASKS = word_set("translate proofread rephrase paraphrase rewrite")
#: Words of a lasting state: "I've lived here since …".
LASTING = word_set("for since always all")
PRONOUNS = word_set("i he she we they it you this that there")
#: Verbs that mark a clause.
ANY_VERBS = word_set(
    """
    is was has had will can would could did does do n't 's 'm 're 've 'd 'll am are were have says thinks wants asks
    gets makes takes goes comes keeps needs knows
    """
)
#: Verbs that may be nouns after "and".
ALSO_NOUNS = word_set("use play drive plan study move work cost start stop land love")
CALLERS = word_set("people everyone everybody friends they folks")
#: Words after a complete name with 's: "I work at McDonald's in town".
AFTER_NAMES = word_set("and or in on at with for from by as near of to")
#: Words that may precede a colon before the speaker's own statement.
BEFORE_COLONS = OPENERS | word_set(
    """
    important note reminder ps intro info details contact correction quick background profile about
    """
)
