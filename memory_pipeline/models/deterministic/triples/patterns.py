"""What makes a sentence a triple, as tables; :mod:`.operations` applies them.

To teach the rules a predicate, add one line to :data:`PATTERNS`::

    Pattern("knit", "knits", Verb.INSERT, Takes.THINGS, HABIT)

"I knit socks" is then ``(Anna, knits, socks)``, "Tom doesn't knit socks" withdraws it, and "I might knit socks",
"Do I knit socks?" and "She says I knit socks" give nothing. What "my … is" says ("my blood type is A") is a line of
:data:`PROPERTIES`. Both need the predicate's confidence in :data:`CONFIDENCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final

from memory_pipeline.domain.graph.operations import Verb


class Form(Flag):
    """How a verb is said."""

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
    """What may stand as an object."""

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
    """Words that say a predicate.

    Attributes:
        says: the verb in its plain form, then what must follow it; ``|`` parts alternatives, ``[…]`` may be missing.
        predicate: what it says.
        verb: what an assertion of it does.
        takes: what may stand as the object.
        forms: the forms of the verb that assert it.
        of_things: a thing ("the office") may be the subject.
        of_persons: a person may be.
        of_names: a name may be, which may be a thing's.
        denied: the negation withdraws it; otherwise it says nothing.
    """

    says: str
    predicate: str
    verb: Verb
    takes: Takes
    forms: Form
    of_things: bool = False
    of_persons: bool = True
    of_names: bool = True
    denied: bool = True


_INSERT, _UPDATE, _DELETE = Verb.INSERT, Verb.UPDATE, Verb.DELETE
#: In order: of two lines that fit the first counts.
PATTERNS: Final = (
    Pattern("live [over|up|down] in", "lives_in", _UPDATE, Takes.NAMED, ENDING),
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
#: What "my … is" and "Tom's … is" say.
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
#: How sure the rules are of each predicate; those of a family, as ``has_sister``, by what they begin with.
CONFIDENCE: Final = {
    "is": 0.7, "works_as": 0.8, "works_at": 0.8, "lives_in": 0.8, "comes_from": 0.8, "born_in": 0.9, "born_on": 0.9,
    "age": 0.8, "is_called": 0.9, "also_known_as": 0.8, "has": 0.7, "owns": 0.7, "likes": 0.7, "dislikes": 0.7,
    "prefers": 0.7, "married_to": 0.9, "engaged_to": 0.9, "speaks": 0.8, "allergic_to": 0.9, "plans_to": 0.6,
    "studies": 0.8, "studies_at": 0.8, "graduated_from": 0.9, "plays": 0.7, "uses": 0.7, "drives": 0.7,
    "phone_number": 0.9, "email": 0.9, "address": 0.9, "located_in": 0.7, "costs": 0.7, "due_on": 0.7,
    "has_": 0.8, "favourite_": 0.8,
}  # fmt: skip
#: To assert the one withdraws the other; to deny the first asserts the second.
OPPOSITES: Final = {"likes": "dislikes", "dislikes": "likes"}
#: Verbs' other forms, where they are not regular.
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
