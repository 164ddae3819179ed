"""The phrases of the rules for graph facts; :mod:`assertions` applies them.

To add a predicate, add a line to :data:`_PHRASES`. To let it take other objects, add words to the list of its kind in
``words.txt``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.lexicon import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Predicate, operation, kind of object, phrase. ``a|b`` are alternatives, ``[a]`` is optional. "be" stands for "am",
#: "is", "are" and "'s", "have" for "has" and "'ve" too. A denial ("don't", "no longer") withdraws the triple.
_PHRASES: Final = """
lives_in         UPDATE  place      live|lives|living [over|up|down|here] in
lives_in         UPDATE  place      be based [over|up|down|here] in
lives_in         UPDATE  place      lived in
lives_in         UPDATE  place      settled [down] in
lives_in         UPDATE  place      moved|relocated|emigrated [back|over|up|down|out] to
lives_in         DELETE  place      moved|relocated|emigrated [away|back|over|here] from
-                UPDATE  dwelling   moved into
address          UPDATE  address    live|lives|moved|living at|to
works_at         UPDATE  employer   work|works|worked|working [full|part] [time] [full-time|part-time] [over] at|for
works_at         UPDATE  name       started|got|landed|accepted [a|my] [new] [job|position|role] [working] at|with
works_at         DELETE  name       quit|left|resigned|stopped|lost [working] [my] [job] [at|for|from|with]
works_as         DELETE  role       lost|quit my job as
works_as         UPDATE  role       work|works|worked|working [full|part] [time] [full-time|part-time] as
works_as         UPDATE  role       be|became
is               INSERT  trait      be|became
marital_status   UPDATE  status     be|got
comes_from       INSERT  place      be|come|comes [originally] from
born_in          UPDATE  place      was born [and] [raised] in|near
born_on          UPDATE  date       was born [on|in]
age              UPDATE  age        be|turned
is_called        UPDATE  name       be called|named
is_called        UPDATE  own_name   be
also_known_as    INSERT  name       be|go|goes [also] known|by [as]
married_to       UPDATE  name       be|got [happily] married to
married_to       UPDATE  name       married
engaged_to       UPDATE  name       be|got engaged to
allergic_to      INSERT  things     be [very|severely|badly|highly|deathly] allergic to
allergic_to      INSERT  allergen   have
has              INSERT  health     have|suffer|suffers [from]
has              INSERT  health     was|be|got diagnosed with
has              INSERT  held       have
has              INSERT  pet        adopted|rescued
takes_medication INSERT  medicine   take|takes|taking
takes_medication INSERT  medicine   be on
takes_medication INSERT  medicine   was|be|got prescribed
owns             INSERT  goods      own|owns|bought
owns             DELETE  goods      sold
runs             INSERT  goods      run|runs
rent             UPDATE  rent       pay|pays|paying [about|around|a] [rent] [of]
drives           INSERT  goods      drive|drives
speaks           INSERT  languages  speak|speaks [fluent|some|native|fluently]
speaks           INSERT  languages  be fluent in
learns           INSERT  languages  learning
studies_at       UPDATE  place      study|studies|studying|studied at
studies          INSERT  subject    study|studies|studying|studied
studies          INSERT  subject    doing|do [a|my] degree|phd|masters|master|bachelor|bachelors ['s] [degree] in
studies          INSERT  subject    be in my first|second|third|fourth|fifth|final|last year of|at
studies          INSERT  subject    majoring|major in
graduated_from   INSERT  place      graduated from
teaches          INSERT  subject    teach|teaches
likes            INSERT  likings    like|likes|love|loves|enjoy|enjoys|adore|adores
likes            INSERT  likings    be [very|really|so] fond of
likes            INSERT  likings    be [a] [big|huge|massive|great] fan of
likes            INSERT  fandom     be [a] [big|huge|massive|great|total|real|true|lifelong|longtime|old|new|avid|super]
likes            INSERT  likings    be into
dislikes         INSERT  likings    hate|hates|dislike|dislikes|detest|detests|loathe|loathes
dislikes         INSERT  likings    ca n't stand|bear
"""
#: What follows an object: its kind, the word, and the predicate and kind of the object after it.
CONTINUED: Final = {
    ("role", "at"): ("works_at", "employer"), ("role", "for"): ("works_at", "employer"),
    ("role", "from"): ("comes_from", "place"), ("employer", "as"): ("works_as", "role"),
    ("subject", "at"): ("studies_at", "place"), ("dwelling", "in"): ("lives_in", "place"),
    ("date", "in"): ("born_in", "place"), ("status", "with"): ("has", "held"),
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
SHARED: Final = word_set("lives_in address has owns rent -")

#: Lists with the last words of objects of each kind, also in the plural.
HEADS: Final = {
    "role": WORDS["roles"], "trait": WORDS["traits"], "status": WORDS["statuses"], "allergen": frozenset(["allergy"]),
    "health": WORDS["health"], "held": WORDS["held"], "pet": WORDS["pets"], "goods": WORDS["goods"],
    "employer": WORDS["employers"], "languages": WORDS["languages"], "medicine": WORDS["medicines"],
    "fandom": frozenset(["fan"]), "dwelling": word_set("flat apartment house place room studio cottage"),
}  # fmt: skip
#: Last words of other objects of a kind.
ENDINGS: Final = {
    "role": re.compile(r"(?:ologist|[^s]ician|ographer|keeper|smith|worker)\Z"),
    "medicine": re.compile(
        r"(?:formin|pril|sartan|statin|[tn]olol|prazole|cillin|oxetine|traline|dipine|zepam|zolam|profen|glutide|gliptin"
        r"|isone|solone|thyroxine|triptyline|cycline|mycin|lukast|azepine|opram|epoetin|umab)\Z"
    ),
    "subject": re.compile(
        r"(?:ology|ics|istry|onomy|graphy|sophy|engineering|sciences?|law|medicine|nursing|history|literature"
        r"|architecture|pharmacy|business|arts?|design|music|finance|accounting|education|studies|management"
        r"|administration|maths?|drama|languages?|english|french|german|spanish|journalism|marketing|dentistry"
        r"|agriculture)\Z"
    ),
}
#: Most words of an object of a kind; five by default.
LONGEST: Final = {"status": 1, "languages": 1, "medicine": 2, "subject": 3, "trait": 3}
#: Kinds that may be a list: "tea, coffee and jazz".
LISTED: Final = word_set("things likings languages held health role allergen medicine")
#: Words that are skipped before an object; by default an article.
ARTICLES: Final = {
    "goods": word_set("a an my our the"), "employer": word_set("a an the"),
    "languages": word_set("a bit little of some fluent native basic"),
}  # fmt: skip
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
    spelled = {"be": WORDS["be"], "have": WORDS["have"]}
    return Phrase(
        predicate,
        Verb(verb),
        kind,
        tuple((words.union(*(spelled.get(word, ()) for word in words)), needed) for words, needed in slots),
    )


TABLE: Final = tuple(_phrase(line) for line in _PHRASES.strip().splitlines())


_Slots = tuple[tuple[frozenset[str], bool], ...]


def _first_words(slots: _Slots) -> set[str]:
    """Return the words with which slots may begin: those of the slots up to the first required one."""
    needed = next((place for place, (_, is_required) in enumerate(slots) if is_required), len(slots))
    return {word for words, _ in slots[: needed + 1] for word in words}


def _may_be_bare(slots: _Slots) -> bool:
    """Return whether any word may follow if "be" is left out: "[I am] allergic to nuts"."""
    return slots[0][0] >= WORDS["be"] and not any(is_required for _, is_required in slots[1:])


#: The places in the table of the phrases that may begin with a word, also without their first slot.
_BEGINNING: Final[dict[str, list[int]]] = {}
for _place, _row in enumerate(TABLE):
    for _word in _first_words(_row.slots) | _first_words(_row.slots[1:]):
        _BEGINNING.setdefault(_word, []).append(_place)
_BARE: Final = [_place for _place, _row in enumerate(TABLE) if _may_be_bare(_row.slots)]


def beginning_with(words: Iterable[str], *, is_elided: bool) -> list[Phrase]:
    """Return the phrases that may begin with one of the words, in the order of the table."""
    places = {place for word in words for place in _BEGINNING.get(word, ())}
    return [TABLE[place] for place in sorted(places.union(_BARE) if is_elided else places)]
