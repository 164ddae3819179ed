"""The phrases and words of the rules for graph facts; :mod:`assertions` applies them.

To add a predicate, add a line to :data:`_PHRASES`. To let it take other objects, add words to the set of its kind.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.text.words import word_set

#: Predicate, operation, kind of object, phrase. ``a|b`` are alternatives, ``[a]`` is optional. "be" stands for "am",
#: "is", "are" and "'s", "have" for "has" and "'ve" too. A denial ("don't", "no longer") withdraws the triple.
_PHRASES: Final = """
lives_in        UPDATE  place      live|lives|living [over|up|down|here] in
lives_in        UPDATE  place      be based [over|up|down|here] in
lives_in        UPDATE  place      lived in
lives_in        UPDATE  place      settled [down] in
lives_in        UPDATE  place      moved|relocated|emigrated [back|over|up|down|out] to
lives_in        DELETE  place      moved|relocated|emigrated [away|back|over|here] from
address         UPDATE  address    live|lives|moved|living at|to
works_at        UPDATE  employer   work|works|worked|working [full|part] [time] [full-time|part-time] [over] at|for
works_at        UPDATE  name       started|got|landed|accepted [a|my] [new] [job|position|role] [working] at|with
works_at        DELETE  name       quit|left|resigned|stopped [working] [my] [job] [at|for|from|with]
works_as        UPDATE  role       work|works|worked|working [full|part] [time] [full-time|part-time] as
works_as        UPDATE  role       be|became
is              INSERT  trait      be|became
marital_status  UPDATE  status     be|got
comes_from      INSERT  place      be|come|comes [originally] from
born_in         UPDATE  place      was born [and] [raised] in|near
born_on         UPDATE  date       was born [on|in]
age             UPDATE  age        be|turned
is_called       UPDATE  name       be called|named
is_called       UPDATE  own_name   be
also_known_as   INSERT  name       be|go|goes [also] known|by [as]
married_to      UPDATE  name       be|got [happily] married to
married_to      UPDATE  name       married
engaged_to      UPDATE  name       be|got engaged to
allergic_to     INSERT  things     be [very|severely|badly|highly|deathly] allergic to
allergic_to     INSERT  allergen   have
has             INSERT  health     have|suffer|suffers [from]
has             INSERT  health     was|be|got diagnosed with
has             INSERT  held       have
has             INSERT  pet        adopted|rescued
owns            INSERT  goods      own|owns|bought
owns            DELETE  goods      sold
runs            INSERT  goods      run|runs
rent            UPDATE  rent       pay|pays|paying [about|around|a] [rent] [of]
drives          INSERT  goods      drive|drives
speaks          INSERT  languages  speak|speaks [fluent|some|native|fluently]
speaks          INSERT  languages  be fluent in
learns          INSERT  languages  learning
studies_at      UPDATE  place      study|studies|studying|studied at
studies         INSERT  subject    study|studies|studying|studied
graduated_from  INSERT  place      graduated from
teaches         INSERT  subject    teach|teaches
likes           INSERT  likings    like|likes|love|loves|enjoy|enjoys|adore|adores
likes           INSERT  likings    be [very|really|so] fond of
likes           INSERT  likings    be [a] [big|huge|massive|great] fan of
likes           INSERT  likings    be into
dislikes        INSERT  likings    hate|hates|dislike|dislikes|detest|detests|loathe|loathes
dislikes        INSERT  likings    ca n't stand|bear
"""
#: What follows an object: its kind, the word, and the predicate and kind of the object after it.
CONTINUED: Final = {
    ("role", "at"): ("works_at", "employer"), ("role", "for"): ("works_at", "employer"),
    ("role", "from"): ("comes_from", "place"), ("employer", "as"): ("works_as", "role"),
    ("subject", "at"): ("studies_at", "place"),
}  # fmt: skip
#: What "my …" or "Tom's …" is. "My favourite …" is ``favourite_…``, "my sister's name" is ``has_sister``.
PROPERTIES: Final = {
    "name": "is_called", "nickname": "also_known_as", "birthday": "born_on", "date of birth": "born_on",
    "phone number": "phone_number", "number": "phone_number", "mobile number": "phone_number", "email": "email",
    "email address": "email", "address": "address", "home address": "address", "rent": "rent",
    "blood type": "blood_type", "native language": "speaks", "mother tongue": "speaks", "first language": "speaks",
}  # fmt: skip
#: The kind of a property's value, if it differs from the predicate.
VALUE_KINDS: Final = {"is_called": "name", "also_known_as": "name", "born_on": "date", "speaks": "languages"}
FAVOURITE: Final = word_set("favourite favorite fav fave")
NOT_FAVOURITES: Final = word_set(
    "part thing things one ones moment memory way time times bit line stuff so about of in to is from and ever"
)
CERTAIN: Final = word_set(
    "born_in born_on is_called married_to engaged_to allergic_to graduated_from phone_number email address rent"
)
UNSURE: Final = word_set("is has owns likes dislikes drives")
#: Asserting one withdraws the other, and denying the first asserts the second.
OPPOSITES: Final = {"likes": "dislikes", "dislikes": "likes"}
#: What a new state ends, whatever its object: who is divorced is married to nobody.
ENDED_BY: Final = {
    **dict.fromkeys(["single", "divorced", "widowed"], ("married_to", "engaged_to")),
    **dict.fromkeys(["retired", "unemployed"], ("works_at", "works_as")),
}
#: What "we" say is true of the speaker too.
SHARED: Final = word_set("lives_in address has owns rent")
#: Verbs whose denial withdraws nothing.
EVENTS: Final = word_set(
    """
    moved relocated emigrated started got landed accepted became turned was married adopted rescued bought graduated
    quit left resigned stopped sold hate hates dislike dislikes detest detests loathe loathes ca
    """
)
#: Verbs that need "for" or "since": "I've worked at Bosch since May".
LASTING: Final = word_set("lived worked studied")
#: Verbs before which "I" may be left out at the start of a sentence.
ELIDED: Final = word_set("moved relocated based living started got accepted studying allergic big fluent used")

# Words of clauses.

BE: Final = word_set("am is are 'm 's 're been")
HAVE: Final = word_set("have has 've")
JOINTS: Final = word_set("and but because cuz cause since though although while whereas so plus which who")
OPENERS: Final = JOINTS | word_set(
    """
    also well yes yeah yep yup no nope oh ok okay hey hi hello btw fyi actually honestly now currently anyway look right
    sure thanks basically personally lately recently nowadays finally then just please today yesterday sorry morning
    """
)
FICTION: Final = word_set("game book movie film show series play")
BEFORE_TIMES: Final = word_set("in on at by from for with since after last this these a one two three")
ADVERBS: Final = word_set(
    """
    really just also still currently now actually absolutely always totally both truly recently finally already mostly
    quite usually mainly officially only so even definitely originally proudly newly honestly
    """
)
#: A clause with one of these is not asserted, or not of the present.
DOUBTS: Final = word_set(
    """
    maybe perhaps probably possibly might may could would 'd should guess suppose somehow kinda sorta apparently
    allegedly think wish hopefully almost nearly assume believe wonder doubt 'll will shall ought never hardly rarely
    neither nor ago basically practically virtually
    """
)
#: After a clause with one of these, the speaker asserts nothing in the sentence.
STOPS: Final = word_set(
    """
    if unless supposing imagine wish whether pretend assuming when whenever said says saying told tells thinks
    thought claims claimed heard wrote writes asked joked according dreamt dreamed pretended convinced
    """
)
#: A sentence with one of these among its first words is a task for an assistant …
TASKS: Final = word_set(
    """
    write draft translate summarise summarize rewrite proofread fix act generate create compose continue paraphrase
    explain describe
    """
)
#: … and one with one of these is play.
PLAY: Final = word_set("roleplay role-play pretend imagine character protagonist novel dream")
#: Words before which an object ends.
ENDS: Final = JOINTS | word_set(
    """
    now nowadays anymore again too currently already still as until till before after during for at in on with from any
    last this next all most best especially just only btw lol haha please thanks today recently lately by either myself
    together right near via under over very much occasionally sometimes often mostly always these originally atm ever
    here there back well dude bro mate guys folks yesterday monday tuesday wednesday thursday friday saturday sunday
    """
)
#: Words after which an object is not what it seems: "I like honey to make …", "I love people who …".
SPOILS: Final = word_set(
    "every to that which who whose where when how than more less is are was were if 's do does did has have had can"
)

# Words of objects.

NO_OBJECT: Final = SPOILS | word_set(
    """
    it this these those them him her you me us everything nothing something anything everyone nobody someone anyone
    one ones both what why whatever being having here such same another each any no none not your his their its mine
    yours the we they he she i and or but at on in with for about by from off out up down doing getting seeing making
    my our way idea sound look work half lot lots stuff kind sort option part theme
    """
)
PRONOUNS: Final = word_set("my his its them him her us me our their your i you we they it n't not 'm am 're 've 'll")
VAGUE: Final = word_set(
    "way idea sound look vibe vibes feeling part kind sort option theme hard lot bit stuff things thing"
)
#: Verbs that say nothing without an object.
GENERAL: Final = word_set(
    """
    going spending holding getting making doing having being finding learning watching taking giving using keeping
    seeing looking helping trying starting running coming talking working playing
    """
)
PRAISE: Final = word_set(
    """
    good great better best bad terrible awful fantastic amazing big huge real true natural fast slow lucky happy proud
    bit lot slightly wonderful excellent decent lousy gifted talented famous
    """
)
PREPOSITIONS: Final = word_set("in with at on for about of up into down out over to like")
#: "Action and sci-fi movies" are not action.
SHARED_HEADS: Final = word_set("movies films music books games food novels shows sports flavors flavours dishes songs")
LINKS: Final = word_set("of the de da del di la le van von der den")
NOT_NAMES: Final = word_set(
    "i it this that the my our he she we you they a an and but so monday tuesday wednesday thursday friday saturday"
    " sunday"
)
NOT_PLACES: Final = word_set(
    "fear peace hope denial squalor luxury poverty halls dorms town hell home night nights tears"
    " times sin world city country village countryside suburbs"
)
BEFORE_RELATIVES: Final = word_set("older younger elder big little eldest youngest oldest best twin ex new baby")
RELATIVES: Final = word_set(
    """
    wife husband partner girlfriend boyfriend fiancé fiancée fiance fiancee mother mum mom mam father dad sister brother
    son daughter grandmother grandma granny gran grandfather grandpa grandson granddaughter aunt uncle cousin niece
    nephew twin stepmother stepfather stepson stepdaughter godmother godfather friend flatmate roommate housemate
    neighbour neighbor landlord landlady boss manager colleague teacher tutor coach therapist doctor dentist lawyer
    accountant nanny parents kids children dog cat puppy kitten rabbit parrot hamster horse pony tortoise
    fish bird
    """
)
_PETS: Final = word_set(
    "dog cat puppy kitten rabbit parrot hamster horse pony tortoise budgie greyhound donkey goat hen chicken pet fish"
)
_HELD: Final = _PETS | word_set(
    "daughter son kid child children baby brother sister sibling twin grandchild grandson granddaughter nephew niece"
)
HEALTH: Final = word_set(
    """
    asthma diabetes epilepsy migraine migraines eczema psoriasis adhd autism dyslexia cancer arthritis depression
    anxiety ptsd ocd endometriosis pacemaker parkinson alzheimer crohn dementia hypertension tinnitus vertigo insomnia
    anaemia anemia sciatica lupus gout hypothyroidism disease disorder syndrome pressure intolerance apnea
    """
)
ROLES: Final = word_set(
    """
    accountant actor actress analyst architect artist assistant baker banker barber barista bartender biologist
    bookkeeper bricklayer builder butcher carer carpenter cashier chef chemist cleaner clerk coach consultant cook
    counsellor counselor courier dancer dentist designer developer dietitian director doctor driver economist editor
    electrician engineer entrepreneur farmer firefighter fisherman florist freelancer gardener geologist guide
    hairdresser historian illustrator instructor interpreter intern janitor joiner journalist judge lawyer lead lecturer
    librarian manager mechanic midwife miner musician nanny nurse nutritionist officer operator optician painter
    paralegal paramedic pharmacist photographer physicist physiotherapist pilot plumber poet postman potter producer
    professor programmer psychiatrist psychologist rabbi receptionist researcher roofer sailor salesman scientist
    secretary singer soldier solicitor statistician student supervisor surgeon surveyor tailor teacher technician
    technologist therapist translator trainer tutor vet waiter waitress welder writer zoologist
    """
)
PARENTS: Final = word_set("mom mum dad mother father")
_LANGUAGES: Final = word_set(
    """
    arabic bengali bulgarian cantonese catalan chinese croatian czech danish dutch english estonian farsi finnish french
    gaelic german greek hausa hebrew hindi hungarian igbo indonesian irish italian japanese korean latin lithuanian
    malay mandarin nepali norwegian persian polish portuguese punjabi romanian russian serbian slovak slovenian somali
    spanish swahili swedish tagalog tamil thai tigrinya turkish twi ukrainian urdu vietnamese welsh yiddish yoruba zulu
    """
)
TRAITS: Final = (
    PARENTS
    | _LANGUAGES
    | word_set(
        """
    vegan vegetarian pescatarian diabetic asthmatic coeliac celiac epileptic autistic dyslexic deaf blind intolerant
    pregnant retired unemployed self-employed employed teetotal left-handed colourblind colorblind christian catholic
    protestant orthodox muslim jewish hindu buddhist sikh atheist agnostic republican democrat liberal conservative
    american argentinian australian austrian belgian brazilian british canadian chilean colombian egyptian ethiopian
    filipino ghanaian indian iranian iraqi israeli jamaican kenyan lebanese malaysian mexican moroccan nigerian
    pakistani peruvian scottish swiss syrian taiwanese venezuelan
    """
    )
)
_GOODS: Final = word_set(
    """
    house flat apartment car van bike bicycle motorbike boat farm cottage business shop bookshop bakery café restaurant
    cafe bar company studio gallery salon garage tractor truck lorry bus taxi scooter startup school nursery practice
    """
)
#: The last word of an object of each kind, also in the plural.
HEADS: Final = {
    "role": ROLES, "trait": TRAITS, "status": word_set("single married divorced widowed engaged separated"),
    "allergen": frozenset(["allergy"]), "health": HEALTH, "held": _HELD, "pet": _PETS, "goods": _GOODS,
    "employer": _GOODS | word_set(
        "hospital clinic firm agency bank store hotel university college library museum factory lab union charity"
        " harbour harbor airport station supermarket council church theatre cinema gym brewery mill court ministry"
    ),
    "languages": _LANGUAGES,
}  # fmt: skip
#: Most words of an object of a kind; five by default.
LONGEST: Final = {"status": 1, "languages": 1, "subject": 3, "trait": 3}
#: Kinds that may be a list: "tea, coffee and jazz".
LISTED: Final = word_set("things likings languages held health role allergen")
#: Words that are skipped before an object.
ARTICLE: Final = word_set("a an some")
ARTICLES: Final = {
    "goods": word_set("a an my our the"), "employer": word_set("a an the"),
    "languages": word_set("a bit little of some fluent native basic"),
}  # fmt: skip
#: The end of a field that somebody studies or teaches.
FIELD: Final = re.compile(
    r"(?:ology|ics|istry|onomy|graphy|sophy|engineering|sciences?|law|medicine|nursing|history|literature|architecture"
    r"|pharmacy|business|arts?|design|music|finance|accounting|education|studies|management|administration|maths?|drama"
    r"|languages?|english|french|german|spanish|journalism|marketing|dentistry|agriculture)\Z"
)
#: Before a role or trait: "a 44-year-old nurse".
AGED: Final = re.compile(r"\d{1,3}[- ]years?[- ]old ", re.IGNORECASE)
_MONTH: Final = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
)
_DAY: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR: Final = r"(?:,? \d{4}\b)?"
_VALUES: Final = {
    "date": rf"(?:the )?({_DAY}(?: of)? {_MONTH}\b{_YEAR}|{_MONTH} {_DAY}\b{_YEAR}"
    rf"|{_MONTH},? \d{{4}}\b|\d{{4}}-\d\d-\d\d|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}}|(?:19|20)\d\d\b)",
    "phone_number": r"(\+?\d[\d ()/-]{5,}\d)",
    "email": r"([\w.+-]+@[\w-]+(?:\.[\w-]+)+)",
    "address": r"((?-i:\d+\w?,? [A-Z][\w.'’-]*(?: (?:[A-Z][\w'’-]*|(?:de|des|la|van|of)\b))*"
    r"(?:, (?:\d{4,6} )?[A-Z][\w'’-]+)*"
    r"|[A-Z][\w'’-]+(?: [A-Z][\w'’-]+){0,3} \d+\w?\b)"
    r"|\d+\w? (?:[\w'’-]+ ){1,2}(?:street|st|road|rd|lane|avenue|ave|close|drive|court|square|place)\b)",
    "rent": r"((?:[€£$] ?)?\d(?:[\d.,]*\d)?k?\b(?: ?(?:euros?|pounds|dollars|eur|[€£$]))?"
    r"(?: (?:a|per) (?:month|week))?)",
    "blood_type": r"((?:A|B|AB|O|0)[ -]?(?:positive|negative|\+|-|−)?)",
}
#: Values with a form of their own.
PATTERNS: Final = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _VALUES.items()}

# Text.

#: A word. Contractions are split; names with full stops are whole: "D.C.", "Booking.com", "St. Louis".
TOKEN: Final = re.compile(
    r"(?:[^\W\d_]\.){2,}|C(?:\+\+|#)|[^\W_]+?(?=n['’]t\b)|n['’]t\b|['’](?:m|s|re|ve|ll|d)\b"
    r"|(?:Mt|St|Dr|Mr|Mrs|Ms)\.(?= [A-Z])|[^\W_]+(?:[&/.-][^\W_]+|['’](?!(?:m|s|re|ve|ll|d|t)\b)[^\W_]+)*"
)
SPLIT: Final = {
    "im": ("i", "'m"), "ive": ("i", "'ve"), "dont": ("do", "n't"), "doesnt": ("does", "n't"), "isnt": ("is", "n't"),
    "cant": ("ca", "n't"), "cannot": ("ca", "n't"), "arent": ("are", "n't"),
}  # fmt: skip
QUOTES: Final = frozenset('"“”„«»')
#: Characters between clauses.
MARKS: Final = frozenset(",;:()!?…—–[]|\n")
#: The speaker is not the user of the account: "This is Leo, I am using Mia's phone".
BORROWED: Final = re.compile(
    r"\b(?:using|borrow(?:ed|ing)|on|from) (?:[A-Z]\w+|(?:my|his|her) \w+)['’]s "
    r"(?:phone|mobile|laptop|computer|tablet|account|login)\b"
)
INTRODUCED: Final = re.compile(
    r"(?:(?:hi|hey|hello)\b[,!.]? )?"
    r"(?:(?:this is|it['’]s) (?-i:(?P<one>[A-Z]\w+))(?: (?:here|speaking|writing))?(?=[,.!]|$)"
    r"|(?-i:(?P<two>[A-Z]\w+)) here\b)",
    re.IGNORECASE,
)


class Phrase(NamedTuple):
    """A line of the table; a slot has the words for one place, and whether one of them is required."""

    predicate: str
    verb: Verb
    kind: str
    slots: tuple[tuple[frozenset[str], bool], ...]


def _phrase(line: str) -> Phrase:
    predicate, verb, kind, *texts = line.split()
    slots = [(word_set(text.strip("[]").replace("|", " ")), text[0] != "[") for text in texts]
    spelled = {"be": BE, "have": HAVE}
    return Phrase(
        predicate,
        Verb(verb),
        kind,
        tuple((words.union(*(spelled.get(word, ()) for word in words)), needed) for words, needed in slots),
    )


TABLE: Final = tuple(_phrase(line) for line in _PHRASES.strip().splitlines())
