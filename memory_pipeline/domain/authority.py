"""Who said something, and whether it may instruct an assistant.

Only the user who is answered and the operator instruct. The operator is the program that owns the lake: its calls of
``Memory.save``, its commands, its configuration. All else is data: it is shown with who said it, and not among what to
keep in mind. So a poisoned memory is no instruction, whatever it says.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from memory_pipeline.domain.scopes import user_identity


class Authority(StrEnum):
    """Who said something."""

    USER = "user"
    #: Another member of the group.
    MEMBER = "member"
    ASSISTANT = "assistant"
    #: Text that a user pasted; see :mod:`memory_pipeline.domain.text.foreign_text`.
    PASTED = "pasted"
    IMPORT = "import"
    TOOL = "tool"
    OPERATOR = "operator"

    @property
    def may_instruct(self) -> bool:
        """Whether it may tell an assistant what to do."""
        return self in {Authority.USER, Authority.OPERATOR}

    @property
    def attribution(self) -> str:
        """The words before a text that may not instruct. What a member said goes on with the member's name."""
        return _ATTRIBUTIONS.get(self, "")


_ATTRIBUTIONS: Final = {
    Authority.MEMBER: "another member: ",
    Authority.ASSISTANT: "the assistant noted: ",
    Authority.PASTED: "from a pasted text: ",
    Authority.IMPORT: "imported: ",
    Authority.TOOL: "a tool returned: ",
}
#: The editor of another agent's change begins with this.
OTHER_AGENT: Final = "agent:"
#: The editor of what an agent kept in a session, and the pipeline made a memory of.
SESSION: Final = "session"


def origin_of(source: str | None) -> str | None:
    """Return ``import`` if the source of a conversation is that, or begins with ``import:``; else None."""
    return Authority.IMPORT.value if source is not None and source.partition(":")[0] == Authority.IMPORT else None


def authority_of(
    source_type: str, editor: str, content: str, identity: str = "", reader: str | None = None
) -> Authority:
    """Return who said a fact, a message or a durable memory, from its stored fields.

    Of a group's memory, only what begins with the label of the reader's id is the reader's. A name proves nothing,
    because people choose it.

    Args:
        source_type: what made it: the origin, or the role of the message.
        editor: the author of a version of a durable memory; else empty.
        content: its text, which begins with the speaker.
        identity: the user or group whose memory it is; empty for the agent's own.
        reader: the id of the user who reads; None for a program.
    """
    if editor.startswith(OTHER_AGENT) or editor == SESSION:
        return Authority.ASSISTANT
    said_by = Authority(source_type) if source_type in {*Authority} else Authority.OPERATOR
    is_of_group = identity != "" and not identity.startswith("user:")
    if said_by is Authority.USER and is_of_group and reader is not None:
        return said_by if content.startswith(f"{user_identity(reader)}: ") else Authority.MEMBER
    return said_by
