"""Small words of English by which the rules for triples find clauses, hedges and the ends of objects, as tables."""

from __future__ import annotations

from typing import Final

from memory_pipeline.domain.text.words import word_set


def _by_first_word(phrases: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return phrases as words, by their first."""
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    for phrase in phrases:
        words = tuple(phrase.split())
        found[words[0]] = (*found.get(words[0], ()), words)
    return found


#: Stand between subject and verb and change nothing.
ADVERBS = word_set(
    """
    really just also still currently now actually absolutely always totally both truly recently finally already
    mostly honestly quite generally usually mainly officially basically very only so even genuinely definitely
    properly happily normally often all technically originally proudly literally secretly newly simply
    """
)
#: May open a clause before its subject.
OPENERS = word_set(
    """
    and but so also well yes yeah yep yup no nope oh ok okay hey hi hello hiya btw fyi actually honestly now
    currently anyway anyways plus look right sure thanks basically personally lately recently nowadays today
    yesterday then because cause cuz since though although as while whereas finally obviously luckily unfortunately
    sadly morning evening greetings ah um er hmm haha lol update fact
    """
)
#: Openings of several words.
_OPENINGS = (
    "by the way", "to be honest", "at the moment", "these days", "right now", "of course", "in fact",
    "just so you know", "as you know", "for the record", "even though", "good morning", "good evening",
    "good afternoon", "for context", "for reference", "for what it 's worth", "other than that", "at work", "at home",
    "at school", "on top of that", "after all", "in case you forgot", "guess what", "heads up",
)  # fmt: skip
OPENINGS: Final = _by_first_word(_OPENINGS)
#: Words of a time that may stand before a subject: "last week I moved to Porto".
TIME_WORDS = word_set(
    """
    in on since last this next ago for after at a an the two three four five six seven eight nine ten few couple of
    day days week weeks month months year years spring summer autumn fall winter morning evening night weekend
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday yesterday today
    """
)
#: Any of these in a clause: it is not sure.
HEDGES = word_set(
    """
    maybe perhaps probably possibly might may could would 'd should guess suppose somehow kinda sorta presumably
    apparently supposedly seemingly allegedly reportedly think wish hopefully almost nearly pretend imagine assume
    believe reckon wonder doubt unless if whether would've 'll will shall unsure ought never hardly rarely seldom
    barely scarcely neither nor
    """
)
#: Begin what holds only under a condition, or what is only thought of: nothing after them in the sentence counts.
CONDITIONS = word_set("if unless suppose supposing imagine wish whether pretend provided assuming lest")
#: Others say so: what follows in the sentence is theirs.
REPORTS = word_set(
    """
    said says saying told tells thinks thought claims claimed heard reckons believes believed assumed assumes swears
    swore insists insisted wrote writes asked suggested joked jokes jokingly rumour rumor according pretends
    pretended dreamt dreamed convinced
    """
)
#: An object ends before these.
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
#: So do these runs of words.
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
#: Never objects, nor the first word of one.
NOT_OBJECTS = word_set(
    """
    it that this these those them him her you me us everything nothing something anything everyone nobody someone
    anyone one ones both what how when where why who whatever which to being having there here so such more less
    most same all some other another each every any no none not if myself yourself himself herself itself ourselves
    your his their its mine yours ours theirs hers we they he she i and or but at on in with for about by from off
    out up down around over into through my-self doing getting seeing making nor as than
    """
)
#: Verbs that say a passing wish or manner of speaking after "I want to" and "I'm going to".
PASSING_ACTIONS = word_set(
    """
    be say thank ask know cry see scream sleep sit let do have hear think believe feel go talk tell share show keep
    look give make sure try die puke vomit throw point add clarify note mention apologise apologize explain
    understand hug kiss punch kill eat use need miss remember focus stay help want live like love enjoy take hope
    wait get lose stop bed work school church sea town gym court pass assume admit check savor savour hit come put
    """
)
#: Verbs after "going to", beside the common ones.
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
#: Words that point to what was said before or to who is spoken to: no name of anything.
POINTING = word_set(
    """
    this that these those your yours his their its it them him her you me us he she they we 's-me here there
    """
)
#: A phrase ends or hangs on these.
PREPOSITIONS = word_set("of in on at with for from by about near to into over under around through like between as")
#: What is owned ends before these; where it stands ("a house in Porto") stays.
OWNED_ENDS = word_set("at for from on with to by about called named like near through coming going waiting living")
ARTICLES = word_set("a an the my our own some")
#: An object before one of these holds only then.
WEAKENING = word_set("if unless when whenever provided until till once")
#: An action ends before these.
ACTION_ENDS = word_set(
    """
    because which but so if unless cause cuz i we he she they though although when whenever while since hopefully
    too instead anyway eventually someday really badly again than
    """
)
#: May follow an age.
AFTER_AGE = word_set(
    """
    last yesterday in on and but now so today already this next soon with years yrs yo y/o who as going turning
    because
    """
)
#: The verbs of things.
THING_VERBS = word_set("is 's costs cost are")
#: A clause may begin with one of these.
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
#: With one of these a sentence is about words, or is no earnest.
NOT_MEANT = word_set("kidding jk hypothetically roleplay pretend pretending")
#: With one of these at its beginning, too.
TASKS = word_set("translate proofread rephrase paraphrase rewrite")
#: A state that lasts: "I've lived here since …".
LASTING = word_set("for since always all")
PRONOUNS = word_set("i he she we they it you this that there")
#: Any verb after a subject, so that a clause is known as one.
ANY_VERBS = word_set(
    """
    is was has had will can would could did does do n't 's 'm 're 've 'd 'll am are were have says thinks wants asks
    gets makes takes goes comes keeps needs knows
    """
)
#: After "and" these may be nouns.
ALSO_NOUNS = word_set("use play drive plan study move work cost start stop land love")
CALLERS = word_set("people everyone everybody friends they folks")
#: After a name with 's that is whole: "I work at McDonald's in town".
AFTER_NAMES = word_set("and or in on at with for from by as near of to")
#: What may stand before a colon and what the speaker says.
BEFORE_COLONS = OPENERS | word_set(
    """
    important note reminder ps intro info details contact correction quick background profile about
    """
)
