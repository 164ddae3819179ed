"""Rules for durable memories: which sentences of a user are durable, of which kind, and how memories are curated.

- *Instruction*: a request to the agent that lasts: "Always quote prices in euros", "From now on …", "Whenever I ask …",
  "Call me Annie", "Answer in German". What belongs to a single task lasts no longer than the task.
- *Decision*: "We have decided to …".
- A triple whose predicate the table of :mod:`memory_pipeline.domain.memories.permanence` lists, or its end: a
  *preference* if users say what they like, else a *fact*.
- *Fact*: whatever users ask to remember.

A memory must be understood alone: a sentence with a pronoun that it does not explain gives none. Everything else stays
searchable as a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import floor
from typing import TYPE_CHECKING, Final

from memory_pipeline.domain.graph.operations import Verb
from memory_pipeline.domain.graph.triples import Vocabulary
from memory_pipeline.domain.memories.decay import days_between
from memory_pipeline.domain.memories.deduplication import union
from memory_pipeline.domain.memories.permanence import permanence_of_predicate
from memory_pipeline.domain.memories.record import ENDED, MemoryKind
from memory_pipeline.domain.text.words import word_set
from memory_pipeline.models.deterministic.language.grammar import Sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from memory_pipeline.domain.graph.operations import Operation
    from memory_pipeline.domain.memories.record import DurableMemory
    from memory_pipeline.domain.periods import Period
    from memory_pipeline.domain.scopes import Scope

_VOCABULARY: Final = Vocabulary()
_OPENERS: Final = (
    r"(?:(?:and|but|so|also|then|ok|okay|well|now|oh|yes|no|please|hey|hi|one more thing|by the way|important|reminder)"
    r"\b[,:]? |(?-i:[A-Z])\w{1,30}, |(?:(?:an?|one|another|my|our|the|last|first|second|final|more|small|quick|simple"
    r"|golden|general|important) ){0,3}(?:rules?|requests?|notes?|things?|preferences?|instructions?"
    r"|wish(?:es)?)(?: for you| number)?(?: one| two| three| \d)?: )*"
)
_ON: Final = (
    r"(?:from (?:now|today|here) on(?:wards?)?|going forward|in (?:the )?future|henceforth|at all times|by default"
    r"|until further notice|unless (?:i|we) (?:say|tell you|ask|write) (?:otherwise|so|not to|for it))"
)
_NOT: Final = r"(?:don['’]t|do not)"
_ASKING: Final = r"(?:i (?:always )?(?:want|need|expect) you to|i['’]d like you to|you (?:should|must|are to|have to))"
_TASK: Final = r"(?P<task>[a-z][a-z-]*)\b"
_ASK: Final = r"(?:i|we) (?:ask|say|mention|write|type|send|share|request|talk|speak|upload|paste|post)\b"


def _start(*alternatives: str) -> re.Pattern[str]:
    """Return a pattern for the start of a sentence, after openers such as "and", "please", "Juniper, …"."""
    return re.compile(rf"{_OPENERS}(?:{_ON},? )?(?:please |just )*(?:{'|'.join(alternatives)})", re.IGNORECASE)


def _inside(*alternatives: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


#: What agents are asked to do. Other verbs after "always" are advice, or idioms.
_TASKS: Final = word_set(
    """
    accept add address answer apologise apologize apply ask assume attach avoid bill book brief bring buy call cancel
    cc change charge check choose cite close combine compare confirm consider consult contact convert copy create
    delete deliver deploy describe discuss display double-check email end escalate explain expose flag follow
    format forward generate give greet highlight ignore include inform interrupt introduce invite invoice keep label
    limit list log mail maintain make mark mention message name notify number offer open order output pack pay phone
    pick ping plan post prefer present prioritise prioritize produce propose provide publish put quote read recommend
    refer refund refuse reject remember remind remove reorder repeat reply report request reserve respond return reveal
    review round save say schedule send serve share ship show sign skip sort speak specify spell start state stick
    store submit suggest summarise summarize switch tag tailor talk tell test text translate treat update upload use
    verify warn wish write
    """
)
_IDIOMS: Final = re.compile(
    r"(?:keep (?:it up|going|on|fighting|dreaming|smiling|believing|pushing|moving|trying|learning|in touch|that)"
    r"|cancel (?:any |all |my |the )*instructions|keep your (?:head|chin|eyes?|cool|faith|hopes?|spirits?)"
    r"|say never|(?:put|treat|tell|pick|ask|consider) yourself|give (?:up|in|your)|do (?:your|what)|(?:share|use) your"
    r"|remember (?:me|that|how|who|why)|follow (?:your|through)|talk to me|speak (?:up|from)|open (?:up|to)|show up)\b",
    re.IGNORECASE,
)
_MANNERS: Final = word_set(
    "brief concise short polite formal informal honest precise clear direct friendly punctual discreet strict"
)
_ALWAYS: Final = _start(
    rf"(?:{_ASKING} |make sure (?:to |you )|be sure to |remember to )?"
    rf"(?:always|never(?: ever| again)?|{_NOT} ever)(?: again)? (?:please )?{_TASK}"
)
_ALWAYS_INSIDE: Final = _inside(rf"(?:please|{_ASKING}) (?:always|never(?: ever| again)?|{_NOT} ever) {_TASK}")
_ASKED: Final = _start(rf"(?:{_ASKING} )?(?:only |kindly |{_NOT} |never |always )*{_TASK}")
_ASKED_INSIDE: Final = _inside(rf"(?:please|{_ASKING}) (?:{_NOT} |only |just )?{_TASK}")
_WANTED: Final = _start(r"i (?:only )?(?:want|need|expect)\b", r"i['’]d (?:like|prefer)\b")
#: Words that make a request a lasting one.
_LASTS: Final = _inside(
    rf"{_ON}\b",
    r"(?:whenever|every time|each time) (?:i|we|you|someone|anyone)\b",
    rf"when {_ASK}",
    rf"(?:{_NOT}|never|stop)\b.*\b(?:ever again|any ?more)(?=[.!]|$)",
)
_WHENEVER: Final = _start(
    rf"(?:(?:whenever|every time|each time|any ?time) [^,]{{3,120}}|(?:if|when) {_ASK}[^,]{{2,120}})(?:,| then) "
    rf"(?:then |please |always |never |just |only |{_NOT} )*{_TASK}"
)
#: "Give me distances in kilometres, never in miles."
_MANNER: Final = re.compile(
    r"(?:, | and | but )(?:always|never) (?:in|on|with|without|by|as|before|after|more than|less than)\b", re.IGNORECASE
)
#: "Send me a summary every Friday."
_RECURS: Final = _start(
    r"(?:remind(?=.*\b(?:to|about)\b)|send|message|notify|ping|email|text|brief|update|wake) me\b"
    r"(?!.*\b(?:that|which|who|script|job|code)\b).*\b(?:(?:every|each) (?:other |second |first |last )?"
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|day|morning|evening|night|week|weekend|month|quarter|year|hour)"
    r"|on (?:mon|tues|wednes|thurs|fri|satur|sun)days)\b"
)
#: "Answer in German", but not "write it in German".
_LANGUAGE: Final = re.compile(
    rf"(?i:{_OPENERS}(?:please |{_ASKING} |only |always |just )*(?:answer|reply|respond|speak|talk|write)"
    r"(?: to me| to us| me)?(?: only)? (?:only )?in) [A-Z][a-z]{3,}(?=[.!,]|$| (?:please|only|from|not|instead)\b)"
)
#: "Call me Annie"; "call me later" has no name.
_CALL_ME: Final = re.compile(
    rf"(?i:{_OPENERS}(?:{_ON},? )?(?:please |always |just |you (?:can|may|should) )*"
    r"(?:call me|address me as|refer to me as)) [\"“']?(?:Dr\.? |Mr\.? |Ms\.? |Mrs\.? )?(?P<name>[A-Z][\w'’-]+)"
    r"[\"”']?(?=[.!,;]|$| (?:and|from|not|instead|please|in|because|since|as)\b)"
)
_NO_NAMES: Final = word_set(
    "back later tomorrow tonight today monday tuesday wednesday thursday friday saturday sunday crazy old"
)
#: A single task: "always" beside it is a part of the task.
_ONE_TASK: Final = _start(
    r"(?:(?:can|could|would|will) you (?:please )?|i(?:['’]d| would)? (?:want|need|like) you to |help me (?:to )?"
    r"|let['’]s )?(?:write|draft|create|generate|make(?! sure)|design|compose|translate|summari[sz]e|rewrite|rephrase"
    r"|paraphrase|edit|proofread|correct|fix|build|develop|act|pretend|imagine|roleplay|play|plan|prepare|produce|explain"
    r"|describe|outline|brainstorm|list|convert|code|implement|continue|suggest|recommend"
    r"|give (?:me |us )?(?:an?|the|some|your|\d+|two|three|four|five|ten))\b",
    r"(?:you are|you['’]re) (?:an?|the)\b",
    r"(?:your|the) (?:task|role|job|goal)\b",
)
_DECIDED: Final = re.compile(
    rf"{_OPENERS}(?:(?i:we|i|(?:the |our )(?:team|board|management|committee|family|owners?|council))"
    r"|[A-Z]\w+ and (?:I|[A-Z]\w+))(?:['’]ve| have| has)?"
    r"(?: now| finally| already| just| both| all| also| together)* (?:decided|agreed)(?: together)?,?"
    r" (?:to|that|on|against|not to)(?: \S+){2}"
)
#: Decisions of a moment: "so we decided to go home".
_MOMENTARY: Final = _inside(
    r"i(?:['’]ve| have)? agreed\b",
    r"(?:decided|agreed) (?:to|on) (?:just )?(?:go (?:home|out|for|back|inside)|come|head|leave|stay|eat|get|grab|walk"
    r"|sit|turn|watch|try|wait|sleep|drive back|run|have|take a)\b",
)
#: "Remember that the alarm code is 4411."
_REMEMBER: Final = _start(
    r"(?:remember|note|keep in mind|bear in mind|don['’]t forget|do not forget|for the record|for your records)"
    r"(?: that|:|,) (?=(?:i|i['’]m|i['’]ve|we|we['’]re|my|our|the|all|every|no|nobody|(?-i:[A-Z])[\w'’]+)\b)"
)
#: What is soon over, and what shows that a denied fact held before: "I'm not a nurse anymore".
_BRIEF: Final = _inside(
    r"(?:today|tonight|tomorrow|for now|for the moment|temporarily|until|till|this (?:time|morning|afternoon|evening"
    r"|week|weekend|month))\b"
)
_HELD_BEFORE: Final = _inside(
    r"(?:no longer|any ?more|any longer|used to|stopp(?:ed|ing)|quit|left|leaves?|leaving|resigned|sold|moved|relocated"
    r"|emigrated)\b"
)
#: Jokes, fiction, guesses.
_NOT_MEANT: Final = _inside(
    r"(?:jok(?:e|ing)|kidding|jk|haha|lol|hypothetically|imagine|pretend|dream(?:ed|t)?|would have|once upon"
    r"|i (?:guess|think|suppose)|maybe|perhaps|probably)\b"
)
_CONDITION: Final = _start(r"(?:if|unless|suppose|when i was|back when|as if)\b")
#: Objects of a liking of the moment.
_IN_PASSING: Final = _inside(
    r"(?:how|seeing|hearing|your|new|being|having|idea|here|pics?|photos?|vibes?|look|feeling|way|sound|chatting"
    r"|talking|you)\b"
)
_WHEN: Final = word_set("when whenever if every")
#: Connectives at the start of a sentence that mean nothing without the one before it.
_CONNECTIVE: Final = re.compile(
    r"(?:(?:and|but|plus|anyway|oh|well|also|so|then|yes|yeah|no|ok|okay)[,:] |(?:and|but|plus) "
    r"|so (?=(?:please|never|always|don['’]t|do not|i|we|the|my|our|from|no)\b))+",
    re.IGNORECASE,
)
#: Words that mean something only beside another sentence, wherever they stand …
_POINTS_BACK: Final = _inside(
    r"(?:(?:that|the|the \w+|another) ones?|the (?:same|latter|former|above|following|rest|other)"
    r"|(?:like|do|doing|did|about|with|of) (?:that|so)|(?:after|at|before|by|for|from|in|on) that|that['’]s|these|those"
    r"|as (?:above|before|usual)"
    r"|this(?! (?:year|month|spring|summer|autumn|winter)\b))\b"
)
#: … and unless an earlier clause says of what.
_PRONOUNS: Final = word_set("it its it's them they they're their he he's him his she she's her there")
_CLAUSES: Final = word_set(", ; : – — and but or if when whenever because before after who which that so unless while")
_DETERMINERS: Final = word_set("a an the my our your every each any all some no two three four five both")
#: A longer sentence is about something else.
_MOST_WORDS: Final = 30
_OWN: Final = word_set("my our")
#: People who are not family.
_ACQUAINTANCES: Final = word_set(
    """
    friend flatmate roommate housemate neighbour neighbor landlord landlady boss manager colleague teacher tutor coach
    therapist doctor dentist lawyer accountant nanny
    """
)
#: Rules ask the same of a sentence several times.
_RECENT: Final = 256
_TOKEN: Final = re.compile(r"[\w'’-]+|[,;:–—]")


@dataclass(frozen=True, slots=True)
class Durable:
    """The durable memory that a sentence becomes; `triple` is subject, predicate and object, if it asserts one."""

    kind: MemoryKind
    triple: tuple[str, str, str] | None = None


def gives_task(sentences: Iterable[Sentence]) -> bool:
    """Return whether a message gives a single task, such as "Write a story about …". Pure."""
    return any(_ONE_TASK.match(sentence.text) for sentence in sentences)


def without_connective(text: str) -> str:
    """Return a sentence without a connective at its start."""
    connective = _CONNECTIVE.match(text)
    return text if connective is None else text[connective.end() :][:1].upper() + text[connective.end() + 1 :]


def durable_in(
    sentence: Sentence,
    speaker: str,
    operations: Callable[[Sentence], Sequence[Operation]],
    *,
    in_task: bool = False,
) -> Durable | None:
    """Return the durable memory that a user's sentence states, or None. Pure.

    The sentence must be neither a question nor a quotation. `speaker` is the user's name in triples. `operations`
    returns the graph operations of a sentence of the same message. `in_task` says whether the message gives a single
    task (:func:`gives_task`).
    """
    text = sentence.text
    if _NOT_MEANT.search(text) or not stands_alone(text):
        return None
    if _instructs(text, in_task=in_task):
        return Durable(MemoryKind.INSTRUCTION, _triple(operations(sentence), only="is_called"))
    remember = _REMEMBER.match(text)
    if remember is not None:
        rest = Sentence.of(text[remember.end() :])
        is_lasting = not (in_task or _BRIEF.search(rest.text) or "you" in rest.parts)
        return (durable_in(rest, speaker, operations) or Durable(MemoryKind.FACT)) if is_lasting else None
    if _DECIDED.match(text) and not (_MOMENTARY.search(text) or _BRIEF.search(text)):
        return Durable(MemoryKind.DECISION)
    if _CONDITION.match(text) or len(sentence.words) > _MOST_WORDS:
        return None
    found = [one for one in operations(sentence) if _is_own(one, sentence, speaker)]
    triple = _triple(found) or _ended(text, found)
    return (
        None if triple is None else Durable(MemoryKind.PREFERENCE if _is_liking(triple[1]) else MemoryKind.FACT, triple)
    )


def lasting_triple(sentence: Sentence, operations: Sequence[Operation]) -> tuple[str, str, str] | None:
    """Return the lasting fact about anybody, no liking, that a sentence with these graph operations states. Pure."""
    text = sentence.text
    found = [one for one in operations if not _is_liking(one.predicate)]
    if not found or _NOT_MEANT.search(text) or _BRIEF.search(text) or _CONDITION.match(text) or not stands_alone(text):
        return None
    return _triple(found) or _ended(text, found)


def _instructs(text: str, *, in_task: bool) -> bool:
    """Return whether a user gives an agent an instruction that lasts."""
    name = _CALL_ME.match(text)
    if name is not None:
        return name["name"].lower() not in _NO_NAMES
    lasts = _LASTS.search(text)
    cues = [_WHENEVER.match(text)]
    if lasts:
        cues += [_ASKED.match(text), _ASKED_INSIDE.search(text)]
    elif in_task or _BRIEF.search(text):
        return False
    else:
        cues += [_ALWAYS.match(text), _ALWAYS_INSIDE.search(text)]
    if any(cue is not None and _is_task(text, cue) for cue in cues) or (lasts and _WANTED.match(text)):
        return True
    if in_task:
        return False
    asked = _ASKED.match(text) if _MANNER.search(text) else None
    is_manner = asked is not None and _is_task(text, asked)
    return is_manner or _LANGUAGE.match(text) is not None or _RECURS.match(text) is not None


def _is_task(text: str, cue: re.Match[str]) -> bool:
    task = cue["task"].lower()
    if task == "be":
        return text[cue.end("task") :].strip(" .!").partition(" ")[0].lower() in _MANNERS
    return task in _TASKS and not _IDIOMS.match(text, cue.start("task"))


def _is_own(operation: Operation, sentence: Sentence, speaker: str) -> bool:
    """Return whether a triple is about the speaker, or about somebody of theirs: "my sister Maria".

    Likings are only the speaker's own, and not of the moment.
    """
    if _is_liking(operation.predicate):
        is_passing = _IN_PASSING.match(operation.object) or not _WHEN.isdisjoint(sentence.parts)
        return operation.subject == speaker and not is_passing
    if operation.subject == speaker:
        return operation.predicate.removeprefix("has_") not in _ACQUAINTANCES
    return not _OWN.isdisjoint(sentence.parts)


def _triple(found: Iterable[Operation], only: str | None = None) -> tuple[str, str, str] | None:
    """Return the durable triple among operations. Among several, prefer one whose predicate has a single value."""
    durable = [
        (one.subject, one.predicate, one.object)
        for one in found
        if one.verb is not Verb.DELETE
        and (permanence_of_predicate(one.predicate) if only is None else one.predicate == only)
    ]
    return next((one for one in durable if _VOCABULARY.holds_one(one[1])), durable[0] if durable else None)


def _ended(text: str, found: Iterable[Operation]) -> tuple[str, str, str] | None:
    """Return the end of a durable triple. "I'm not Polish" ends nothing."""
    if _HELD_BEFORE.search(text):
        for one in found:
            lasts = permanence_of_predicate(one.predicate)
            if one.verb is Verb.DELETE and one.object and lasts and not _is_liking(one.predicate):
                return one.subject, f"{ENDED}{one.predicate}", one.object
    return None


def _is_liking(predicate: str) -> bool:
    return predicate in {"likes", "dislikes"} or predicate.startswith("favourite_")


@lru_cache(_RECENT)
def stands_alone(text: str) -> bool:
    """Return whether a sentence is understood alone: each pronoun has something in an earlier clause to refer to."""
    if _POINTS_BACK.search(text):
        return False
    is_named = names = False
    for place, token in enumerate(_TOKEN.findall(_LASTS.sub("", text))):
        word = token.lower().replace("’", "'")
        if word in _CLAUSES:
            is_named = is_named or names
        elif word in _PRONOUNS and not is_named:
            return False
        else:
            is_name = place > 0 and token[0].isupper() and not word.startswith("i'") and word != "i"
            is_plural = len(word) > 4 and word[-1] == "s" and word != "always"
            names = names or is_name or is_plural or word in _DETERMINERS
    return True


class RuleCurator:
    """Curate durable memories by rules; a :class:`memory_pipeline.domain.memories.draft.Curator`.

    Contents are joined sentence by sentence. Age alone makes a memory stale.
    """

    def name(self, scope: Scope) -> str:
        """Return name and version of the rules."""
        del scope
        return "rules-1"

    def confirms(self, scope: Scope) -> bool:
        """Return False: no model confirms that a memory is stale."""
        del scope
        return False

    def merge(self, scope: Scope, newer: str, older: str, day: Period) -> str:
        """Return the newer content, followed by the older one's sentences that it lacks."""
        del scope, day
        return union(newer, older)

    def contradicted(
        self, scope: Scope, pairs: Sequence[tuple[DurableMemory, DurableMemory]], day: Period
    ) -> dict[int, str]:
        """Return nothing: the rules compare triples alone, not texts."""
        del scope, pairs, day
        return {}

    def stale(self, scope: Scope, memories: Sequence[DurableMemory], at: datetime, day: Period) -> dict[str, str]:
        """Return all memories, each with a reason: the candidates are already old and unconfirmed."""
        del scope, day
        return {memory.id: _reason(memory, at) for memory in memories}


def _reason(memory: DurableMemory, at: datetime) -> str:
    what = "a snapshot of one moment" if memory.is_point_in_time else f"{memory.kind} that nobody confirmed"
    return f"{what}, last heard {floor(days_between(memory.updated_at, at)):,} days ago"
