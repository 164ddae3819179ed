"""Remove secrets, and what a person marked as private, from all that is stored.

A secret becomes a marker such as ``[secret:github-token:3f2a9c01]``. Its digest is keyed with the lake's own secret:
equal secrets of one lake have equal markers, and nobody can find the secret by trying without that key. It is in the
lake's manifest. Text between ``<private>`` and ``</private>`` is removed; without an end, all of the rest is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from memory_pipeline.domain.chat_messages import as_mapping
from memory_pipeline.domain.text.secret_formats import MARKER, SecretFormat, SecretPlace, kind_of_field, secrets_in

#: Fields that identify a record or a person. They stay as they are, or nothing could be found again.
_IDS: Final = frozenset([
    "id", "workspace_id", "agent_id", "user_id", "users", "group_id", "conversation_id", "memory_id", "other_id",
    "role", "type", "timestamp", "utc_offset", "timezone", "editor", "identity", "edit_of", "received_at", "ordered_at",
])  # fmt: skip
#: Fields of which one names what the other holds: a preference, an entry of a context, a triple.
_PAIRS: Final = (("key", "value"), ("key", "content"), ("predicate", "object"))
_PRIVATE = re.compile(
    r"<private\b[^<>]{0,100}>(?:(?!</?private\b)[\s\S])*+(?:</private\s{0,8}>|(?=<private\b)|\Z)", re.IGNORECASE
)
_MOST_LEVELS = 100
#: What stands for a text that was private as a whole.
_NOTHING_LEFT = "<private></private>"


@dataclass(frozen=True)
class Redactor:
    """Removes the secrets of one workspace.

    Attributes:
        key: returns the key of digests. It is called when a secret was found.
        is_on: whether secrets are removed. What is marked as private always is.
        formats: formats beside the built-in ones.
    """

    key: Callable[[], str]
    is_on: bool = True
    formats: tuple[SecretFormat, ...] = ()

    def text(self, text: str) -> str:
        """Return a text without private parts, and with a marker in place of each secret.

        A text without either is returned as the same object.
        """
        left = without_private(text)
        text = text if left is text else left or _NOTHING_LEFT
        found = _found(text, self.formats) if self.is_on else ()
        for kind, start, end in reversed(found):
            text = text[:start] + self._marker(kind, text[start:end]) + text[end:]
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """Return JSON, or what is like it, with all of its texts redacted.

        A value is also a secret if the `name` of its field says so, such as ``password``. The ids of records and
        persons stay. Something without secrets is returned as the same object.
        """
        return self._value(value, name, _MOST_LEVELS)

    def _value(self, value: Any, name: str, levels: int) -> Any:
        if isinstance(value, str):
            cleaned = self.text(value)
            kind = kind_of_field(name, value) if self.is_on and name and cleaned is value else None
            return self._marker(kind, value) if kind else cleaned
        if value is None or isinstance(value, bool | int | float | bytes) or not levels:
            return value
        fields = value if isinstance(value, dict | list | tuple) else as_mapping(value)
        if isinstance(fields, Mapping):
            names = {of: fields[key] for key, of in _PAIRS if key in fields and isinstance(fields[key], str)}
            changed = {
                key: item
                for key, old in fields.items()
                if key not in _IDS and (item := self._value(old, str(names.get(key, key)), levels - 1)) is not old
            }
            return {**fields, **changed} if changed else value
        if isinstance(value, list | tuple):
            items = [self._value(item, name, levels - 1) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return items if isinstance(value, list) else tuple(items)
        return value

    def _marker(self, kind: str, secret: str) -> str:
        keyed = blake2b(secret.encode("utf-8", "surrogatepass"), key=self.key().encode()[:64], digest_size=4)
        return f"[secret:{kind}:{keyed.hexdigest()}]"


#: Removes private texts, and no secrets.
REMOVES_NONE: Final = Redactor(str, is_on=False)


@lru_cache(maxsize=4_096)  # a conversation is sent again with each turn
def _found(text: str, formats: tuple[SecretFormat, ...]) -> tuple[SecretPlace, ...]:
    return tuple(secrets_in(text, formats))


def without_private(text: str) -> str:
    """Return a text without its private parts; the same object if it has none."""
    if "<" not in text or "<private" not in text.lower() or not _PRIVATE.search(text):
        return text
    return _PRIVATE.sub("", text).strip()


def kinds_in(text: str) -> set[str]:
    """Return the kinds of the secrets that were removed from a text."""
    return {match["kind"] for match in MARKER.finditer(text)} if "[secret:" in text else set()
