"""Verbs of English: is there one, and does it look back or ahead?

There is no grammar here, only word forms that are rarely anything else.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from memory_pipeline.domain.text.words import word_set

if TYPE_CHECKING:
    from collections.abc import Sequence


class Tense(Enum):
    """Where a sentence looks."""

    PAST = "past"
    FUTURE = "future"
    PRESENT = "present"
    NONE = "none"


#: Whatever follows one of these as the next word, or the one after it, is nearly always a verb.
SUBJECTS = word_set("i we he she they it you who there that this")

BE = word_set("am is are 'm 're be")
_BE_OR_S = BE | {"'s"}
_WAS = word_set("was were had did been")
_HAVE = word_set("have has 've")
_MODALS = word_set("can could should may might must do does")
_CONDITIONAL = frozenset(["would", "'d"])
_FUTURE = word_set("will 'll gonna shall")

#: Past forms that are not made with -ed. Forms equal to the present one (put, cut, let) tell nothing and are left out.
IRREGULAR_PAST = word_set(
    """
    ate became began bent bit blew bought bound broke brought built burnt came caught chose dealt drank drove dug
    fed fell felt flew forgot forgave fought found froze gave got grew heard held hid hung kept knew laid lay learnt
    led left lent lost made meant met overheard paid ran rang read rode rose said sang sank sat saw sent shone shook
    shot slept smelt sold sought spent spoke sprang stole stood stuck struck stung swam swore swung taught told took
    thought threw tore understood undertook upset went woke won wore wove wrote proved quit
    """
)
#: Participles, which follow a form of "have" or "be".
_PARTICIPLES = word_set(
    """
    beaten become begun bitten blown broken chosen done drawn driven drunk eaten fallen flown forgotten forgiven
    frozen given gone got grown hidden known lain ridden risen run rung seen shaken shown sung sunk spoken stolen
    sworn swum taken thrown torn woken worn written born come put cut set let hit hurt cost read
    """
)
#: Common verbs in their plain form; their -s form counts as well.
_PLAIN = word_set(
    """
    accept add agree allow arrive ask attend bake become begin believe belong book break bring build buy call carry
    celebrate change charge choose clean close collect come confirm consider contain continue cook cost cover create
    cut decide deliver depend do draw drink drive earn eat end enjoy expect fall feed feel find finish fit fix fly
    follow forget get give go grow handle happen hate have hear help hire hold hope include insist join keep know
    last learn leave lend let like live look lose love make matter mean meet move need offer open order own pay plan
    play practise practice prefer prepare promise provide pull push put quit reach read receive recommend remain
    remember remind replace report require rise run save say see seem sell send serve set share show sign sing sit
    sleep smell sound speak spend stand start stay stop study suggest support suppose switch take talk taste teach
    tell tend think train travel try turn understand use visit wait wake walk want watch wear weigh win wish work
    worry write
    """
)
_NOT_PAST = word_set("need feed bed red seed speed hundred indeed wed shed breed embed exceed proceed naked")


def is_verb(word: str) -> bool:
    """Tell whether a lower-case word (or part of a contraction) is, or may well be, a verb."""
    return (
        word in BE or word in _WAS or word in _HAVE or word in _MODALS or word in _FUTURE
        or word in _CONDITIONAL or word in IRREGULAR_PAST or is_plain_verb(word) or is_regular_past(word)
    )  # fmt: skip


def is_plain_form(word: str) -> bool:
    """Tell whether a lower-case word is the plain form of a common verb, as in a command."""
    return word in _PLAIN


def is_plain_verb(word: str) -> bool:
    """Tell whether a lower-case word is a common verb in the present."""
    return word in _PLAIN or (
        word[-1:] == "s"
        and (
            word[:-1] in _PLAIN
            or (word.endswith("es") and word[:-2] in _PLAIN)
            or (word.endswith("ies") and word[:-3] + "y" in _PLAIN)
        )
    )


def has_verb(parts: Sequence[str]) -> bool:
    """Tell whether a sentence, as :attr:`Sentence.parts`, has a verb, or a subject that must have one."""
    last = len(parts) - 1
    return any(
        is_verb(part) or (place < last and part in SUBJECTS and part not in ("this", "that"))
        for place, part in enumerate(parts)
    )


def tense_of(parts: Sequence[str]) -> Tense:
    """Return where a sentence, as :attr:`Sentence.parts`, looks: ahead, if it has a word of the future at all.

    "is closed" is no past; "has closed" is one. What would be ("I thought I'd go") looks ahead from now.
    """
    past = present = False
    before = ""
    for place, part in enumerate(parts):
        if part in _FUTURE:
            return Tense.FUTURE
        if part == "going" and parts[place + 1 : place + 2] == ("to",):
            return Tense.FUTURE
        if part in _WAS or (part in IRREGULAR_PAST and before not in BE):
            past = True
        elif part in BE or part in _MODALS or part in _HAVE or part == "'s":
            present = True
        elif part in _CONDITIONAL:
            after = parts[place + 1] if place + 1 < len(parts) else ""
            if part == "'d" and (after in _PARTICIPLES or after in _WAS or is_regular_past(after)):
                past = True  # "I'd gone"
            else:
                return Tense.PRESENT
        elif (before in _HAVE and part in _PARTICIPLES) or (is_regular_past(part) and before not in _BE_OR_S):
            past = True
        elif is_plain_verb(part):
            present = True
        if part not in ("not", "n't", "just", "already", "also", "never", "always", "so", "all", "both", "still"):
            before = part
    return Tense.PAST if past else Tense.PRESENT if present else Tense.NONE


def is_regular_past(word: str) -> bool:
    """Tell whether a lower-case word looks like a past form with -ed."""
    return len(word) > 3 and word.endswith("ed") and word not in _NOT_PAST
