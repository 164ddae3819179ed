"""Which memories last, and how much each weighs in the hot index: by its predicate, or else by its kind.

A memory that lasts does not decay, does not become stale, and is not archived for its age.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from memory_pipeline.domain.memories.record import ENDED, MemoryKind
from memory_pipeline.domain.text.words import word_set

if TYPE_CHECKING:
    from memory_pipeline.domain.memories.record import DurableMemory


class Permanence(NamedTuple):
    """Permanence of a kind or a predicate.

    Attributes:
        weight: weight in the hot index, relative to a fact; 0 excludes.
        lasts: whether it holds until it is revoked or superseded.
    """

    weight: float
    lasts: bool


#: Of facts, and of kinds that are not listed.
_FACT: Final = Permanence(1.0, lasts=False)
#: Tool output and observations are not indexed: there they could never become stale.
_KINDS: Final = {
    MemoryKind.INSTRUCTION: Permanence(4.0, lasts=True),
    MemoryKind.RULE: Permanence(4.0, lasts=True),
    MemoryKind.PREFERENCE: Permanence(2.0, lasts=True),
    MemoryKind.PLAN: Permanence(0.8, lasts=False),
    MemoryKind.REFLECTION: Permanence(0.5, lasts=False),
    MemoryKind.CONVERSATION_SUMMARY: Permanence(0.5, lasts=False),
    MemoryKind.OBSERVATION: Permanence(0.0, lasts=False),
    MemoryKind.TOOL_OUTPUT: Permanence(0.0, lasts=False),
}
_IDENTITY_AND_HEALTH: Final = """
    age alias also_known_as birth_date birth_place birthday birthplace born_in born_on comes_from date_of_birth
    first_name full_name gender is is_a is_called is_named last_name maiden_name name nationality native_language
    nickname pronouns religion speaks surname
    allergic_to blood_group blood_type diagnosed_with intolerant_to suffers_from takes_medication
    """
_HOME_WORK_AND_FAMILY: Final = """
    address current_address email home_address home_town hometown lives_at lives_in phone phone_number resides_in
    time_zone timezone
    current_job employed_as employed_by employer graduated_from job job_title occupation profession reports_to role
    studied_at studies studies_at works_as works_at works_for works_in
    child_of cousin_of daughter_of divorced_from engaged_to grandchild_of grandparent_of has is_married_to
    marital_status married_to parent_of partner_of related_to relationship_status sibling_of son_of spouse spouse_of
    widow_of widower_of
    """
#: Of facts and preferences. The family "has_" (``has_sister``) tells of relatives, pets, illnesses.
_PREDICATES: Final = (
    dict.fromkeys(word_set(_IDENTITY_AND_HEALTH), Permanence(5.0, lasts=True))
    | dict.fromkeys(word_set(_HOME_WORK_AND_FAMILY), Permanence(3.0, lasts=True))
    | dict.fromkeys(word_set("likes loves enjoys dislikes hates"), Permanence(0.5, lasts=False))
)
_FAMILIES: Final = {
    "has_": Permanence(3.0, lasts=True),
    "favourite_": Permanence(2.0, lasts=True),
    "favorite_": Permanence(2.0, lasts=True),
}
#: What no longer holds matters less than what does.
_ENDED_WEIGHT: Final = 0.5
#: Predicates of a family that change.
_CHANGING: Final = frozenset(["has_status"])

#: Kinds that last, whatever they are about.
PERMANENT_KINDS: Final = frozenset(kind for kind, permanence in _KINDS.items() if permanence.lasts)


def permanence_of_predicate(predicate: str) -> Permanence | None:
    """Return the permanence of a predicate; None if it decides nothing."""
    if predicate in _CHANGING:
        return None
    families = (permanence for prefix, permanence in _FAMILIES.items() if predicate.startswith(prefix))
    return _PREDICATES.get(predicate) or next(families, None)


def permanence_of(memory: DurableMemory) -> Permanence:
    """Return the permanence of a memory.

    The predicate of a fact or a preference decides, unless the memory describes one moment or is a named preference.
    Entries of contexts last.
    """
    is_of_context, is_named = memory.context is not None, memory.key is not None
    return _permanence(memory.kind, memory.predicate or "", is_of_context, is_named or memory.is_point_in_time)


@lru_cache(maxsize=4_096)  # each pass asks for each memory
def _permanence(kind: MemoryKind, predicate: str, is_of_context: bool, is_of_its_kind: bool) -> Permanence:
    by_kind = _KINDS.get(kind, _FACT)
    if is_of_context:
        return by_kind._replace(lasts=True)
    if is_of_its_kind or kind not in {MemoryKind.FACT, MemoryKind.PREFERENCE}:
        return by_kind
    found = permanence_of_predicate(predicate.removeprefix(ENDED))
    if found is None:
        return by_kind
    return found._replace(weight=_ENDED_WEIGHT) if predicate.startswith(ENDED) else found


def lasts(memory: DurableMemory) -> bool:
    """Return whether a memory does not decay: it holds until it is revoked or superseded."""
    return permanence_of(memory).lasts
