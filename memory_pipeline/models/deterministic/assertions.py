"""Graph operations for what a user plainly states: "I live in Porto", "my sister Maria is a nurse".

:data:`_PHRASES` lists every phrase that is understood. A sentence is cut into clauses, at punctuation and at words such
as "and". A clause gives a triple if it has a subject ("I", "my sister", "Nadia"), then a phrase of the table, then an
object of the kind that the phrase takes. Everything else gives nothing: questions, guesses, conditions, plans, reports,
tasks, the past, and whatever is said in another way. So triples are mostly right, and many statements give none; they
stay searchable as messages. Only users' messages are read, since assistants repeat or guess.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.graph.operations import MAX_TERM, Operation, Verb, snake_case
from memory_pipeline.domain.messages import Role
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.grammar import MAX_LENGTH, is_verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memory_pipeline.domain.messages import Message
    from memory_pipeline.models.deterministic.language.grammar import Sentence

#: Predicate, operation, kind of object, phrase. ``a|b`` are alternatives, ``[a]`` is optional; "be" stands for "am",
#: "is", "are" and "'s", "have" for "has", "'ve" and "got" too. A denial ("don't", "no longer") withdraws the triple.
_PHRASES: Final = """
lives_in        UPDATE  place      live|lives|living [over|up|down|here] in
lives_in        UPDATE  place      be based|settled [over|up|down|here] in
lives_in        UPDATE  place      lived in
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
#: What "my …" or "Tom's …" is. "My favourite …" is ``favourite_…``, "my sister's name" is ``has_sister``.
_PROPERTIES: Final = {
    "name": "is_called", "nickname": "also_known_as", "birthday": "born_on", "date of birth": "born_on",
    "phone number": "phone_number", "number": "phone_number", "mobile number": "phone_number", "email": "email",
    "email address": "email", "address": "address", "home address": "address", "rent": "rent",
    "blood type": "blood_type", "native language": "speaks", "mother tongue": "speaks", "first language": "speaks",
}  # fmt: skip
_KINDS: Final = {"is_called": "name", "also_known_as": "name", "born_on": "date", "speaks": "languages"}
_CERTAIN: Final = word_set(
    "born_in born_on is_called married_to engaged_to allergic_to graduated_from phone_number email address rent"
)
_UNSURE: Final = word_set("is has owns likes dislikes drives")
#: What a new state ends, whatever its object: who is divorced is married to nobody.
_ENDS_ALL: Final = {
    **dict.fromkeys(["single", "divorced", "widowed"], ("married_to", "engaged_to")),
    **dict.fromkeys(["retired", "unemployed"], ("works_at", "works_as")),
}
_OPPOSITES: Final = {"likes": "dislikes", "dislikes": "likes"}
#: What "we" say is true of the speaker too.
_SHARED: Final = word_set("lives_in address has owns rent")
#: Events: their denial withdraws nothing.
_EVENTS: Final = word_set(
    """
    moved relocated emigrated joined started got landed accepted became turned was married adopted rescued bought
    graduated quit left resigned stopped sold hate hates dislike dislikes detest detests loathe loathes ca
    """
)
_BE: Final = word_set("am is are 'm 's 're been")
_HAVE: Final = word_set("have has 've")
_NOT: Final = word_set("not n't")
_RELATIVES: Final = word_set(
    """
    wife husband partner girlfriend boyfriend fiancé fiancée fiance fiancee mother mum mom mam father dad sister
    brother son daughter grandmother grandma granny gran grandfather grandpa grandson granddaughter aunt uncle cousin
    niece nephew twin stepmother stepfather stepson stepdaughter godmother godfather friend flatmate roommate housemate
    neighbour neighbor landlord landlady boss manager colleague teacher tutor coach therapist doctor dentist lawyer
    accountant nanny parents kids children dog cat puppy kitten rabbit parrot hamster horse pony tortoise
    """
)
_BEFORE_RELATIVES: Final = word_set("older younger elder big little eldest youngest oldest best twin ex new baby")
_FAMILY: Final = word_set(
    "daughter son kid child baby brother sister sibling twin grandchild grandson granddaughter nephew niece stepson"
)
_PETS: Final = word_set(
    "dog cat puppy kitten rabbit parrot hamster horse pony tortoise budgie greyhound donkey goat hen chicken pet"
)
_HEALTH: Final = word_set(
    """
    asthma diabetes epilepsy migraine migraines eczema psoriasis adhd autism dyslexia cancer arthritis depression
    anxiety ptsd ocd endometriosis pacemaker parkinson alzheimer crohn dementia hypertension tinnitus vertigo
    insomnia anaemia anemia sciatica lupus gout hypothyroidism disease disorder syndrome pressure intolerance apnea
    """
)
_ROLES: Final = word_set(
    """
    accountant actor actress analyst architect artist assistant baker banker barber barista bartender biologist
    bookkeeper bricklayer builder butcher carer carpenter cashier chef chemist cleaner clerk coach consultant cook
    counsellor counselor courier dancer dentist designer developer dietitian director doctor driver economist editor
    electrician engineer entrepreneur farmer firefighter fisherman florist freelancer gardener geologist guide
    hairdresser historian illustrator instructor interpreter intern janitor joiner journalist judge lawyer lead
    lecturer librarian manager mechanic midwife miner musician nanny nurse nutritionist officer operator optician
    painter paralegal paramedic pharmacist photographer physicist physiotherapist pilot plumber poet postman potter
    producer professor programmer psychiatrist psychologist rabbi receptionist researcher roofer sailor salesman
    scientist secretary singer soldier solicitor statistician student supervisor surgeon surveyor tailor teacher
    technician technologist therapist translator trainer tutor vet waiter waitress welder writer zoologist
    """
)
_TRAITS: Final = word_set(
    """
    vegan vegetarian pescatarian diabetic asthmatic coeliac celiac epileptic autistic dyslexic deaf blind intolerant
    pregnant retired unemployed self-employed employed teetotal left-handed colourblind colorblind christian catholic
    protestant orthodox muslim jewish hindu buddhist sikh atheist agnostic american argentinian australian austrian
    belgian brazilian british bulgarian canadian chilean chinese colombian croatian czech danish dutch egyptian english
    ethiopian filipino finnish french german ghanaian greek hungarian indian indonesian iranian iraqi irish israeli
    italian jamaican japanese kenyan korean lebanese lithuanian malaysian mexican moroccan nepali nigerian norwegian
    pakistani peruvian polish portuguese romanian russian scottish serbian slovak somali spanish swedish swiss syrian
    taiwanese thai turkish ukrainian venezuelan vietnamese welsh
    republican democrat liberal conservative socialist mom mum dad mother father
    """
)
_STATUSES: Final = word_set("single married divorced widowed engaged separated")
_GOODS: Final = word_set(
    """
    house flat apartment car van bike motorbike boat farm cottage business shop bookshop bakery café cafe restaurant
    bar company studio gallery salon garage tractor truck lorry bus taxi scooter startup school nursery practice
    """
)
_EMPLOYERS: Final = _GOODS | word_set(
    "hospital clinic firm agency bank store hotel university college library museum factory lab union office charity"
)
_LANGUAGES: Final = word_set(
    """
    arabic bengali bulgarian cantonese catalan chinese croatian czech danish dutch english estonian farsi finnish
    french gaelic german greek hausa hebrew hindi hungarian igbo indonesian irish italian japanese korean latin
    lithuanian malay mandarin nepali norwegian persian polish portuguese punjabi romanian russian serbian slovak
    slovenian somali spanish swahili swedish tagalog tamil thai tigrinya turkish twi ukrainian urdu vietnamese welsh
    yiddish yoruba zulu
    """
)
_JOINTS: Final = word_set("and but because cuz cause since though although while whereas so plus which who")
_OPENERS: Final = _JOINTS | word_set(
    """
    also well yes yeah yep yup no nope oh ok okay hey hi hello btw fyi actually honestly now currently anyway look right
    sure thanks basically personally lately recently nowadays finally then just please today yesterday sorry morning
    """
)
_ADVERBS: Final = word_set(
    """
    really just also still currently now actually absolutely always totally both truly recently finally already mostly
    quite usually mainly officially only so even definitely originally proudly newly honestly
    """
)
#: A clause with one of these is not asserted, or not of the present.
_DOUBTS: Final = word_set(
    """
    maybe perhaps probably possibly might may could would 'd should guess suppose somehow kinda sorta apparently
    allegedly think wish hopefully almost nearly assume believe wonder doubt 'll will shall ought never hardly rarely
    neither nor ago basically practically virtually
    """
)
#: After a clause with one of these nothing of the sentence is asserted by the speaker.
_STOPS: Final = word_set(
    """
    if unless supposing imagine wish whether pretend assuming when whenever said says saying told tells thinks
    thought claims claimed heard wrote writes asked joked according dreamt dreamed pretended convinced
    """
)
#: A sentence with one of the first among its first words is a task for an assistant; with one of the others, play.
_TASKS: Final = word_set(
    """
    write draft translate summarise summarize rewrite proofread fix act generate create compose continue paraphrase
    explain describe
    """
)
_PLAY: Final = word_set("roleplay role-play pretend imagine character protagonist novel dream")
_PLURALS: Final = word_set("we they you he she it")
#: Words before which an object ends.
_ENDS: Final = _JOINTS | word_set(
    """
    now nowadays anymore again too currently already still as until till before after during for at in on with from
    any every last this next all most best especially just only btw lol haha please thanks today recently lately by
    either myself together right near via under over very so much occasionally sometimes often mostly always these
    originally atm ever since here there back well too
    """
)
#: Words after which an object is not what it seems: "I like honey to make …", "I love people who …".
_SPOILS: Final = word_set(
    "to that which who whose where when how than more less is are was were if 's do does did has have had can will"
)
_NO_OBJECT: Final = _SPOILS | word_set(
    """
    it this these those them him her you me us everything nothing something anything everyone nobody someone anyone
    one ones both what why whatever being having here such same another each any no none not your his their its mine
    yours the we they he she i and or but at on in with for about by from off out up down doing getting seeing making
    my our way idea sound look work half lot lots stuff kind sort option part theme
    """
)
_LINKS: Final = word_set("of the de da del di la le van von der den")
_NOT_PLACES: Final = word_set(
    "fear peace hope denial squalor luxury poverty halls dorms town hell home night nights tears"
)
_NUMBERS: Final = word_set("two three four five six seven eight nine ten")
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
    "rent": r"((?:[€£$] ?)?\d[\d.,]*(?: ?(?:euros?|pounds|dollars|eur|[€£$]))?(?: (?:a|per) (?:month|week))?)",
    "blood_type": r"((?:A|B|AB|O|0)[ -]?(?:positive|negative|\+|-|−)?)",
}
_PATTERNS: Final = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _VALUES.items()}
_SPLIT: Final = {
    "im": ("i", "'m"), "ive": ("i", "'ve"), "dont": ("do", "n't"), "doesnt": ("does", "n't"), "isnt": ("is", "n't"),
    "cant": ("ca", "n't"), "cannot": ("ca", "n't"), "arent": ("are", "n't"),
}  # fmt: skip
_TOKEN: Final = re.compile(
    r"(?:[^\W\d_]\.){2,}|[^\W_]+?(?=n['’]t\b)|n['’]t\b|['’](?:m|s|re|ve|ll|d)\b"
    r"|(?:Mt|St|Dr|Mr|Mrs|Ms)\.(?= [A-Z])|[^\W_]+(?:[&/.-][^\W_]+|['’](?!(?:m|s|re|ve|ll|d|t)\b)[^\W_]+)*"
)
_QUOTES: Final = frozenset('"“”„«»')
#: Characters between clauses.
_MARKS: Final = frozenset(",;:()!?…—–[]\n")
#: A title in quotes, which are dropped: 'is "The Name of the Wind"'.
_TITLE: Final = re.compile(r"(?<=\b(?:is|re|ed) )[\"“]([A-Z][^\"”.!?]{1,60})[\"”]")
#: Verbs before which "I" may be left out at the start of a sentence.
_ELIDED: Final = word_set("moved relocated based living started joined got accepted studying allergic big fluent used")
#: Verbs that need "for" or "since": "I've worked at Bosch since May".
_LASTING: Final = word_set("lived worked studied")
_BEFORE_TIMES: Final = word_set("in on at by from for with since after last this these a one two three")
_NEW: Final = word_set("new current full own absolute all-time")
_FAVOURITE: Final = word_set("favourite favorite fav fave")
_NOT_FAVOURITES: Final = word_set(
    "part thing things one ones moment memory way time times bit line stuff so about of in to is from and ever"
)
_ARTICLE: Final = word_set("a an some")
_ARTICLES: Final = {
    "goods": word_set("a an my our the"),
    "employer": word_set("a an the"),
    "languages": word_set("a bit little of some fluent native basic"),
}
_LISTED: Final = word_set("things likings languages held health role allergen")
#: Before a role or trait: "a 44-year-old nurse".
_AGED: Final = re.compile(r"\d{1,3}[- ]years?[- ]old ", re.IGNORECASE)
_PRAISE: Final = word_set(
    """
    good great better best bad terrible awful fantastic amazing big huge real true natural fast slow lucky happy proud
    bit lot slightly wonderful excellent decent lousy gifted talented famous
    """
)
#: The last words of a noun of each kind, and the most words of one.
_HEADS: Final = {
    "role": _ROLES, "trait": _TRAITS, "status": _STATUSES, "allergen": frozenset(["allergy"]), "health": _HEALTH,
    "held": _FAMILY | _PETS | {"children"}, "pet": _PETS, "goods": _GOODS, "employer": _EMPLOYERS,
    "languages": _LANGUAGES,
}  # fmt: skip
_LONGEST: Final = {"status": 1, "languages": 1, "subject": 3, "trait": 3}
_PARENTS: Final = word_set("mom mum dad mother father")
_PRONOUNS: Final = word_set("them him her us me our their your i you we they it n't not 'm am 're 've 'll")
_VAGUE: Final = word_set(
    "way idea sound look vibe vibes feeling part kind sort option theme hard lot bit stuff things thing"
)
_NOT_NAMES: Final = word_set("i it this that the my our he she we you they a an and but so")
#: Verbs that say nothing without an object.
_GENERAL: Final = word_set(
    """
    going spending holding getting making doing having being finding learning watching taking giving using keeping
    seeing looking helping trying starting running coming talking working playing
    """
)
#: The speaker is not the user of the account: "This is Leo, I am using Mia's phone".
_BORROWED: Final = re.compile(
    r"\b(?:using|borrow(?:ed|ing)|on|from) (?:[A-Z]\w+|(?:my|his|her) \w+)['’]s "
    r"(?:phone|mobile|laptop|computer|tablet|account|login)\b"
)
_INTRODUCED: Final = re.compile(
    r"(?:(?:hi|hey|hello)\b[,!.]? )?"
    r"(?:(?:this is|it['’]s) (?-i:(?P<one>[A-Z]\w+))(?: (?:here|speaking|writing))?(?=[,.!]|$)"
    r"|(?-i:(?P<two>[A-Z]\w+)) here\b)",
    re.IGNORECASE,
)


class _Token(NamedTuple):
    """A word of a sentence: in lower case, as written, its place in the text, and the characters before it."""

    word: str
    text: str
    start: int
    end: int
    gap: str


class _Phrase(NamedTuple):
    predicate: str
    verb: Verb
    kind: str
    slots: tuple[tuple[frozenset[str], bool], ...]  # words, and whether one of them is required


class _Subject(NamedTuple):
    name: str
    end: int
    is_group: bool = False
    is_elided: bool = False


class Triple(NamedTuple):
    """What a sentence states, or ends."""

    verb: Verb
    subject: str
    predicate: str
    object: str


def _phrases() -> tuple[_Phrase, ...]:
    found = []
    for line in _PHRASES.strip().splitlines():
        predicate, verb, kind, *slots = line.split()
        words = [(frozenset(slot.strip("[]").split("|")), slot[0] != "[") for slot in slots]
        words = [
            (one | (_BE if "be" in one else one) | (_HAVE if "have" in one else one), needed) for one, needed in words
        ]
        found.append(_Phrase(predicate, Verb(verb), kind, tuple(words)))
    return tuple(found)


_TABLE: Final = _phrases()


class Assertions:
    """The assertions of one message; none unless a user wrote it. Pure: they depend on the message alone.

    `sentences` come from :func:`grammar.sentences_of`, `names` (those in each sentence) from :func:`names.names_in`.
    The attribute `sentences` has those that the user says: outside quotations, and not after somebody else began to
    write ("This is Leo, I am using Mia's phone").
    """

    def __init__(self, message: Message, sentences: Sequence[Sentence], names: Iterable[Iterable[str]]) -> None:
        is_users = message.role is Role.USER
        self.sentences = list(_own(_unquoted(sentences, message.content), message)) if is_users else []
        self._message = message
        self._names = frozenset(word for found in names for name in found for word in name.split())

    def operations(self) -> list[Operation]:
        """Return the distinct operations of the message, in order."""
        return self._operations(self.sentences)

    def operations_of(self, sentence: Sentence) -> list[Operation]:
        """Return the operations of one sentence, as if it were in the message."""
        return self._operations([sentence])

    def _operations(self, sentences: Iterable[Sentence]) -> list[Operation]:
        triples = dict.fromkeys(triple for sentence in sentences for triple in self._triples(sentence))
        return [
            Operation.of(
                triple.verb.value,
                triple.subject,
                triple.predicate,
                triple.object,
                confidence=confidence_of(triple.predicate),
                message_ids=(self._message.id,),
                event_at=self._message.sent_at,
                conversation_id=self._message.conversation_id,
            )
            for triple in triples
            if snake_case(triple.predicate) and all(len(term) <= MAX_TERM for term in triple[1:])
        ]

    def _triples(self, sentence: Sentence) -> Iterator[Triple]:
        is_readable = len(sentence.words) > 1 and len(sentence.text) <= MAX_LENGTH and not sentence.is_question
        if is_readable:
            yield from _Reader(sentence.text, self._message, self._names).triples()


def confidence_of(predicate: str) -> float:
    """Return the confidence of a predicate that the rules extract."""
    return 0.9 if predicate in _CERTAIN else 0.7 if predicate in _UNSURE else 0.8


def _own(sentences: Iterable[Sentence], message: Message) -> Iterator[Sentence]:
    """Yield the sentences before another person begins to write with the user's account, or a play begins."""
    for sentence in sentences:
        introduced = _INTRODUCED.match(sentence.text)
        name = introduced and (introduced["one"] or introduced["two"])
        is_other = message.name and name and name not in message.name.split() and name.lower() not in _OPENERS
        if is_other or _BORROWED.search(sentence.text) or not _PLAY.isdisjoint(sentence.parts[:3]):
            return
        yield sentence


def _unquoted(sentences: Sequence[Sentence], content: str) -> Iterator[Sentence]:
    """Yield the sentences outside quotations, which may span several sentences: "I like tea. I hate it," she said.

    Each sentence is searched for shortly after the previous one, so that the time stays linear. One that is not found
    there (its line breaks became blanks) counts as unquoted.
    """
    done, is_quoted = 0, False
    for sentence in sentences:
        start = content.find(sentence.text, done, done + len(sentence.text) + 2 * MAX_LENGTH)
        if start >= 0:
            for character in content[done:start]:
                if character in _QUOTES:
                    is_quoted = character in "“„«" or (character == '"' and not is_quoted)
                elif character == "\n":
                    is_quoted = False
            done = start
        if start < 0 or not is_quoted:
            yield sentence


class _Reader:
    """Reads one sentence of a message."""

    def __init__(self, text: str, message: Message, names: frozenset[str]) -> None:
        self._text = _TITLE.sub(r"\1", text)
        self._speaker, self._is_named, self._names = message.user, bool(message.name), names
        self._tokens = list(_tokens(self._text))
        self._words = [token.word for token in self._tokens]
        self._is_lower = not any(token.text[:1].isupper() and token.word != "i" for token in self._tokens[1:])
        starts = [at for at in range(len(self._words)) if at == 0 or self._begins_clause(at)]
        self._clauses = list(zip(starts, [*starts[1:], len(self._words)], strict=True))

    def triples(self) -> Iterator[Triple]:
        is_task = not _TASKS.isdisjoint(self._words[:3]) or not _PLAY.isdisjoint(self._words)
        if is_task or not _QUOTES.isdisjoint(self._text) or "?" in self._text:
            return
        before: _Subject | None = None  # of the clause before, if that stated something
        for number, (start, end) in enumerate(self._clauses):
            words = self._words[start:end]
            if ":" in self._tokens[start].gap or words[0] in _STOPS:
                return
            is_sure = _STOPS.isdisjoint(words) and not self._doubts(start, end) and not self._is_taken_back(number + 1)
            subject = None
            if is_sure:
                yield from self._relations(start, end)
                place = self._after_openers(start, end)
                if found := self._naming(place, end) or self._property(place, end) or self._favourite(place, end):
                    yield from found
                else:
                    subject = self._subject(place, end, is_first=number == 0)
                    if subject is None and before is not None and words[0] in ("and", "but"):
                        subject = before._replace(end=place)
            stated = list(self._stated(subject, end, number)) if subject else []
            yield from stated
            before = subject if stated else None
            if not _STOPS.isdisjoint(words):
                return

    # Clauses.

    def _begins_clause(self, at: int) -> bool:
        gap = self._tokens[at].gap
        is_stop = ". " in gap and len(self._words[at - 1]) > 2
        return self._words[at] in _JOINTS or not _MARKS.isdisjoint(gap) or " - " in gap or is_stop

    def _is_taken_back(self, number: int) -> bool:
        """Return whether a clause is ", I think" or ", or so they say"."""
        start, end = self._clauses[number] if number < len(self._clauses) else (0, 0)
        return self._words[start : start + (end > start)] == ["or"] or (end - start <= 4 and self._doubts(start, end))

    def _doubts(self, start: int, end: int) -> bool:
        """Return whether a clause has a word of doubt. "May" and "Will" may be names."""
        tokens = self._tokens[start:end]
        return any(one.word in _DOUBTS and not (at and one.text in ("May", "Will")) for at, one in enumerate(tokens))

    def _after_openers(self, place: int, end: int) -> int:
        """Return the position after "well", "by the way", or a time: "last week I moved to Porto"."""
        place = self._skip(place, end, _OPENERS)
        if place < end and self._words[place] in _BEFORE_TIMES:
            for at in range(place + 1, min(place + 5, end)):
                if self._words[at] in ("i", "my") and self._words[at - 1] not in _BEFORE_TIMES:
                    return at
        return place

    def _skip(self, place: int, end: int, words: frozenset[str]) -> int:
        while place < end and self._words[place] in words:
            place += 1
        return place

    # Subjects.

    def _subject(self, place: int, end: int, *, is_first: bool) -> _Subject | None:
        words = self._words
        if place >= end - 1:
            return None
        if words[place] in ("i", "we"):
            return _Subject(self._speaker, place + 1, is_group=words[place] == "we")
        if is_first and words[place] in _ELIDED:
            return _Subject(self._speaker, place, is_elided=True)
        owner, after = self._owner(place, end)
        if not owner:
            name, after = self._person(place, end)
            return _Subject(name, after) if name else None
        later = self._relation(after, end)
        if not later:
            return None
        name, named = self._person(later, end)
        relation = " ".join(words[after:later])
        return _Subject(name, named) if name else _Subject(f"{owner}'s {relation}", later)

    def _owner(self, place: int, end: int) -> tuple[str, int]:
        """Return the owner that "my" or "Tom's" names, and the position after it."""
        if place < end and self._words[place] in ("my", "our"):
            return self._speaker, place + 1
        name, after = self._person(place, end)
        return (name, after + 1) if name and self._words[after : after + 1] == ["'s"] else ("", place)

    def _relation(self, place: int, end: int) -> int:
        """Return the position after "older sister", or 0."""
        place = self._skip(place, end, _BEFORE_RELATIVES)
        return place + 1 if place < end and self._words[place] in _RELATIVES else 0

    def _person(self, place: int, end: int) -> tuple[str, int]:
        """Return a name of the message and the position after it."""
        name, after = self._name(place, end)
        is_person = not self._names.isdisjoint(name.split()) and name.lower() not in _TRAITS
        return (name, after) if is_person else ("", place)

    def _relations(self, start: int, end: int) -> Iterator[Triple]:
        """Read "my sister Maria", "my sister is called Maria", "my sister's name is Maria", "Maria is my sister"."""
        words = self._words
        for place in range(start, end):
            owner, after = self._owner(place, end)
            later = self._relation(after, end) if owner else 0
            if not later or (words[place] not in ("my", "our") and place > start):
                continue
            predicate = f"has_{words[later - 1]}"
            is_next = later < end and self._tokens[later].gap == " "
            name, named = self._person(later, end) if is_next else ("", later)
            for linking in ("'s name is", "is called", "is named", "'s called", "is"):
                link = linking.split()
                if not name and words[later : later + len(link)] == link:
                    name, named = self._person(later + len(link), end)
                    name = name if linking != "is" or (named == end and words[later + 1] not in _ROLES) else ""
            if not name and place > start + 1 and words[place - 1] in ("is", "'s") and later == end:
                name, named = self._name(self._after_openers(start, end), end)
                name = name if named == place - 1 else ""
            if name and name != owner:
                yield Triple(Verb.INSERT, owner, predicate, name)

    # What is said of a subject.

    def _naming(self, place: int, end: int) -> list[Triple]:
        """Read "call me Jo" and "everyone calls me Jo"."""
        at = next((at for at in range(place, end - 2) if self._words[at] in ("call", "calls")), end)
        if self._words[at + 1 : at + 2] != ["me"] or at - place > 3:
            return []
        name, _ = self._name(at + 2, end)
        is_asked = self._words[place] in ("call", "please", "you", "just")
        predicate = "is_called" if is_asked else "also_known_as"
        return [Triple(Verb.INSERT, self._speaker, predicate, name)] if name and name != self._speaker else []

    def _property(self, place: int, end: int) -> list[Triple]:
        """Read "my address is …", "my sister's birthday is …", "my favourite colour is …"."""
        words = self._words
        owner, place = self._owner(place, end)
        relation = self._relation(place, end) if owner else 0
        if relation and words[relation : relation + 2] == ["'s", "name"]:
            return []  # a relation
        if relation and words[relation : relation + 1] == ["'s"]:
            owner, place = f"{owner}'s {' '.join(words[place:relation])}", relation + 1
        verb = next((at for at in range(place, min(place + 5, end)) if words[at] in ("is", "are", "'s")), 0)
        if not owner or not verb:
            return []
        what = words[self._skip(place, verb, _NEW) : verb]
        after = self._skip(verb + 1, end, _ADVERBS)
        if what and what[0] in _FAVOURITE and 1 < len(what) < 4 and _NOT_FAVOURITES.isdisjoint(what):
            values, predicate = [self._value(after, end)], f"favourite_{'_'.join(what[1:])}"
        elif predicate := _PROPERTIES.get(" ".join(what), ""):
            kind = _KINDS.get(predicate, predicate)
            values, _ = self._objects(kind, self._skip(after, end, frozenset(["at", "on"])), end, None)
        else:
            return []
        return [Triple(Verb.UPDATE, owner, predicate, value) for value in values if value and value != owner]

    def _favourite(self, place: int, end: int) -> list[Triple]:
        """Read "rye is my favourite bread"."""
        words = self._words
        verb = next((at for at in range(place, min(place + 6, end)) if words[at] in ("is", "are", "'s")), end)
        if words[verb + 1 : verb + 2] != ["my"] or words[verb + 2 : verb + 3] not in ([one] for one in _FAVOURITE):
            return []
        what = words[verb + 3 : next((at for at in range(verb + 3, end) if words[at] in _ENDS), end)]
        value = self._value(place, verb)
        if not 0 < len(what) < 3 or not _NOT_FAVOURITES.isdisjoint(what) or not value:
            return []
        return [Triple(Verb.UPDATE, self._speaker, f"favourite_{'_'.join(what)}", value)]

    def _value(self, place: int, end: int) -> str:
        name, after = self._name(place + (self._words[place : place + 1] == ["the"]), end)
        if name and self._closes(after, end):
            return self._text[self._tokens[place].start : self._tokens[after - 1].end]
        noun, after = self._noun(place, end)
        return noun if self._closes(after, end) else ""

    def _stated(self, subject: _Subject, end: int, number: int) -> Iterator[Triple]:
        """Read the phrase after a subject, and its objects."""
        words = self._words
        positions, place, is_denied, is_ended = self._verb(subject.end, end)
        is_other = subject.is_group or subject.name != self._speaker
        for phrase in _TABLE if positions else ():
            after = self._matched(phrase, positions, subject)
            if not 0 <= after < end or (subject.is_group and phrase.predicate not in _SHARED):
                continue
            if is_other and (phrase.predicate == "is_called" or words[place] == "based"):
                continue  # a relation, or a company
            if words[place] in _LASTING and not self._lasts(place, end):
                continue
            objects, stop = self._objects(phrase.kind, after, end, number)
            for thing in objects:
                yield from self._stating(phrase, subject.name, thing, is_denied, is_ended, words[place])
            if objects:
                yield from self._more(phrase, subject.name, objects, stop, end)
                return

    def _verb(self, place: int, end: int) -> tuple[list[int], int, bool, bool]:
        """Return the positions of a predicate without negations and adverbs, and that of its verb.

        The others say whether it is denied ("don't") and ended ("no longer").
        """
        words, positions, is_denied = self._words, list[int](), False
        rest = " ".join(words[place:end])
        is_ended = re.search(r"\b(?:any ?more|any longer|no longer|used to)\b", rest) is not None
        while place < end:
            word = words[place]
            if word in _NOT:
                is_denied = True
            elif words[place : place + 2] in (["no", "longer"], ["used", "to"]):
                place += 1
            elif word == "been":
                positions = [place]
            elif word in _BE or word in _HAVE:
                positions.append(place)
            elif not (word in _ADVERBS or word in ("do", "does") or (word == "got" and positions)):
                break
            place += 1
        positions += range(place, end)
        return positions, min(place, len(words) - 1), is_denied, is_ended

    def _stating(
        self, phrase: _Phrase, subject: str, thing: str, is_denied: bool, is_ended: bool, word: str
    ) -> Iterator[Triple]:
        verb, predicate = phrase.verb, phrase.predicate
        opposite = _OPPOSITES.get(predicate)
        if (is_denied or is_ended) and (verb is Verb.DELETE or word in _EVENTS or (opposite and is_ended)):
            return
        if is_denied and opposite:
            predicate, opposite = opposite, predicate
        elif is_denied or is_ended:
            verb = Verb.DELETE
        if thing.casefold() != subject.casefold():
            yield Triple(verb, subject, predicate, thing)
            if opposite:
                yield Triple(Verb.DELETE, subject, opposite, thing)
            for ended in _ENDS_ALL.get(thing, ()) if verb is not Verb.DELETE else ():
                yield Triple(Verb.DELETE, subject, ended, "")

    def _more(self, phrase: _Phrase, subject: str, objects: list[str], stop: int, end: int) -> Iterator[Triple]:
        """Read on after an object: "a nurse *at Bosch*", "moved from Lyon *to Nantes*", "a dog *called Rex*"."""
        rest = self._words[stop] if stop < end else ""
        following = {
            ("role", "at"): ("works_at", "employer"), ("role", "for"): ("works_at", "employer"),
            ("role", "from"): ("comes_from", "place"), ("employer", "as"): ("works_as", "role"),
            ("subject", "at"): ("studies_at", "place"), ("place", "to"): ("lives_in", "place"),
        }.get((phrase.kind, rest))  # fmt: skip
        if following and (phrase.kind != "place" or phrase.verb is Verb.DELETE):
            values, _ = self._objects(following[1], stop + 1, end, None)
            yield from (Triple(Verb.UPDATE, subject, following[0], value) for value in values)
        if phrase.predicate == "has" and rest in ("called", "named"):
            relation = objects[-1].lower().split()[-1]
            name, _ = self._name(stop + 1, end)
            if name and relation in _RELATIVES:
                yield Triple(Verb.INSERT, subject, f"has_{relation}", name)

    # Words and objects.

    def _matched(self, phrase: _Phrase, positions: Sequence[int], subject: _Subject) -> int:
        """Return the position of the object after a phrase; -1 if its words do not follow."""
        words, slots = self._words, phrase.slots
        first, second = (words[at] for at in (*positions[:2], positions[0])[:2])
        is_auxiliary = first not in slots[0][0] and (first in _HAVE or (first in _BE and second.endswith("ing")))
        at = int(is_auxiliary)
        if subject.is_elided and "am" in slots[0][0] and words[positions[0]] not in slots[0][0]:
            slots = slots[1:]
        for slot, is_required in slots:
            if at < len(positions) and words[positions[at]] in slot:
                at += 1
            elif is_required:
                return -1
        return positions[at] if at < len(positions) else len(words)

    def _lasts(self, place: int, end: int) -> bool:
        return not {"for", "since", "years"}.isdisjoint(self._words[place:end]) and self._words[place - 1] in _HAVE

    def _closes(self, place: int, end: int) -> bool:
        """Return whether an object may end at a position."""
        word = self._words[place] if place < end else ""
        return place >= end or (word in _ENDS and word not in _SPOILS)

    def _objects(self, kind: str, place: int, end: int, number: int | None) -> tuple[list[str], int]:
        """Return the objects of a kind at a position, and the position after the first; none if there is another.

        With the number of its clause, the objects may go on in the next clauses: "tea, coffee and jazz".
        """
        words = self._words
        if place >= end:
            return [], place
        if kind in _PATTERNS and (kind != "rent" or "rent" in words):
            token = self._tokens[place]
            match = _PATTERNS[kind].match(self._text, token.start - (token.gap[-1:] in tuple("+€£$")))
            return ([match[1]], end) if match else ([], place)
        if kind in ("place", "name", "employer"):
            name, stop = self._name(place + (words[place] == "the"), end)
            if (
                name
                and name.lower() not in _TRAITS
                and (self._closes(stop, end) or words[stop] in ("from", "to", "as"))
            ):
                return [name], stop
            if kind != "employer":
                return self._lower_place(place, end) if kind == "place" else ([], place)
        first, stop = self._item(kind, place, end)
        found = [first] if first and (self._closes(stop, end) or words[stop] in ("called", "named", "as")) else []
        if found and stop == end and number is not None and kind in _LISTED:
            found += self._listed(kind, number + 1)
        return ([" and ".join(found)] if kind == "role" and found else found), stop

    def _listed(self, kind: str, number: int) -> Iterator[str]:
        """Yield the objects in the clauses from a number on, if these are a list: ", coffee and jazz"."""
        found: list[str] = []
        is_closed = False
        for start, end in self._clauses[number:]:
            is_joined = self._words[start] in ("and", "or")
            place = start + is_joined
            item, stop = self._item(kind, place, end) if self._tokens[start].gap.strip() in ("", ",") else ("", place)
            is_verb_first = place < end and is_verb(self._words[place])
            if not item or not self._closes(stop, end) or is_verb_first or self._words[place] in _OPENERS:
                break
            if not is_joined and self._tokens[start].gap.strip() != ",":
                break
            found.append(item)
            is_closed = is_joined
            if stop < end:
                break
        yield from found if is_closed or not any(item in self._names for item in found) else ()

    def _item(self, kind: str, place: int, end: int) -> tuple[str, int]:
        """Return a noun of a kind without its article, and the position after it."""
        words = self._words
        place = self._skip(place, end, _ARTICLES.get(kind, _ARTICLE))
        noun, stop = self._noun(place, end)
        if not noun:
            return "", place
        age = _AGED.match(noun) if kind in ("role", "trait") else None
        item = words[place:stop]
        if age:
            noun, item = noun[age.end() :], item[age[0].count(" ") :]
        is_named = self._tokens[stop - 1].text[:1].isupper()
        if not item or (kind == "allergen" and len(item) < 2) or not _fits(kind, item, is_named=is_named):
            return "", stop
        return (noun.split()[0] if kind == "age" else noun.rpartition(" ")[0] if kind == "allergen" else noun), stop

    def _noun(self, place: int, end: int) -> tuple[str, int]:
        """Return a noun of at most five words, and the position after it."""
        words, stop = self._words, place
        ends = _ENDS | _SPOILS | {"called", "named"}
        while stop < end and (words[stop] not in ends or (words[stop] == "'s" and words[stop - 1] in _HEALTH)):
            if stop > place and self._tokens[stop].gap not in (" ", ""):
                break
            stop += 1
        found = words[place:stop]
        if not 0 < len(found) <= 5 or found[0] in _NO_OBJECT or not _PRONOUNS.isdisjoint(found):
            return "", place
        return self._text[self._tokens[place].start : self._tokens[stop - 1].end], stop

    def _lower_place(self, place: int, end: int) -> tuple[list[str], int]:
        """Return a place in a sentence without capitals: "i live in porto"."""
        found, stop = self._noun(place, end)
        words = self._words[place:stop]
        is_place = self._is_lower and 0 < len(words) < 3 and _NOT_PLACES.isdisjoint(words)
        is_place = is_place and all(word.isalpha() and len(word) > 2 for word in words)
        return ([found] if is_place and self._closes(stop, end) else []), stop

    def _name(self, place: int, end: int) -> tuple[str, int]:
        """Return the name at a position, and the position after it."""
        tokens, stop = self._tokens, place
        for at in range(place, min(place + 6, end)):
            token = tokens[at]
            is_joined = at == place or token.gap == " " or (token.gap == ". " and len(tokens[at - 1].text) < 3)
            is_capital = token.text[:1].isupper() and token.word not in _NOT_NAMES
            if not is_joined or not (is_capital or (at > place and token.word in _LINKS)):
                break
            if is_capital:
                stop = at + 1
        return (self._text[tokens[place].start : tokens[stop - 1].end], stop) if stop > place else ("", place)


def _fits(kind: str, words: Sequence[str], *, is_named: bool) -> bool:
    """Return whether a noun is of a kind. `is_named` says whether its last word has a capital."""
    head = words[-2] if words[-1] == "'s" else words[-1]
    if kind == "age":
        return words[0].isdigit() and 0 < int(words[0][:4]) < 116 and words[1:] in ([], ["years", "old"], ["years"])
    if kind == "trait" and words[0] in _PARENTS:
        return words[1:2] == ["of"]
    if kind in ("role", "trait", "employer") and (
        words[0].endswith("ing") or not (_PRAISE | _ADVERBS | _VAGUE).isdisjoint(words)
    ):
        return False
    if len(words) > _LONGEST.get(kind, 5) or (kind in ("things", "subject", "likings") and not _is_plain(words)):
        return False
    singles = {head, head.removesuffix("s"), head[:-3] + "y" if head.endswith("ies") else head}
    heads = _HEADS.get(kind, singles)
    is_parent = head in _PARENTS and words[0] != "single"
    return (not singles.isdisjoint(heads) or (kind == "goods" and is_named)) and not is_parent


def _is_plain(words: Sequence[str]) -> bool:
    is_empty = words[0] in _GENERAL or words[0] in _ARTICLE or words[0].isdigit()
    return not is_empty and _VAGUE.isdisjoint(words)


def _tokens(text: str) -> Iterator[_Token]:
    end = 0
    for match in _TOKEN.finditer(text):
        word = match[0].lower().replace("’", "'")
        gap = text[end : match.start()]
        end = match.end()
        word = match[0] if match[0] in ("IT", "US") and not text.isupper() else word
        first, second = _SPLIT.get(word, (word, ""))
        yield _Token(first, match[0], match.start(), end, gap)
        if second:
            yield _Token(second, "", end, end, "")
