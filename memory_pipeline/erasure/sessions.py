"""Erase a subject from sessions and pools: entries of the database, and saved copies of sessions in the lake."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from memory_pipeline.domain.scopes import user_identity
from memory_pipeline.domain.sessions import SHARED_BY, TOLD, Container, EntryKind, json_of, micros_of, searchable
from memory_pipeline.domain.subjects import SubjectKind
from memory_pipeline.erasure.subject_matcher import PersonMentions
from memory_pipeline.sessions.saved import delete_saved
from memory_pipeline.sessions.store import existing_stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memory_pipeline.domain.sessions import Entry
    from memory_pipeline.domain.subjects import Subject
    from memory_pipeline.erasure.erasure_log import ErasureLog
    from memory_pipeline.lake import Lake
    from memory_pipeline.sessions.store import SessionStore, StoredEntry

#: Attempts to remove the values of a pool while agents change it.
_TRIES: Final = 10
#: Where entries were removed, in receipts.
PLACE = "sessions"
_POOLS = "pools of the user that agents share: forget the user for all agents of the workspace"


def entries_of(lake: Lake, subject: Subject, at: datetime) -> Iterator[tuple[SessionStore, StoredEntry]]:
    """Yield the entries of a subject that were created until the cutoff `at`."""
    for store in existing_stores(lake):
        for stored in store.stored(subject.workspace_id):
            container, entry = stored
            is_before = entry.created_at <= micros_of(at)
            if is_before and _is_of(subject, container, searchable(entry.key, entry.value)):
                yield store, stored


def remove_sessions(lake: Lake, subject: Subject, at: datetime, log: ErasureLog) -> None:
    """Remove a subject's entries and saved copies, also from the file on the disk.

    An entry that was created before the cutoff goes, even if it was changed later. A pool that names a person keeps the
    values that do not.

    Raises:
        LakeError: a database cannot be reached, or is in use for too long.
        ConfigurationError: the address of the lake's database is not set.
    """
    for store in existing_stores(lake):
        for _ in range(_TRIES):
            whole, replaced = [], []
            for one, (container, entry) in entries_of(lake, subject, at):
                if one.database is store.database:
                    kept = _kept_values(subject, container, entry)
                    if kept is None:
                        whole.append(entry)
                    else:
                        replaced.append(store.replace(entry, kept))
            log.note((entry.id for entry in whole), ())
            log.take(PLACE, "entries", store.delete(whole))
            log.take(PLACE, "pools that lost the values with the name", sum(replaced))
            if all(replaced):  # no agent has changed one meanwhile
                break
        store.database.compact()
        if subject.agent_id is not None and any(
            container.agent_id == "" and container.identity in map(user_identity, subject.user_ids)
            for container, _ in store.stored(subject.workspace_id)
        ):
            log.remark(_POOLS)
    copies = delete_saved(lake.storage, lambda record: _is_copy_of(record, subject, at))
    log.take(PLACE, "saved sessions", copies)


def _kept_values(subject: Subject, container: Container, entry: Entry) -> str | None:
    """Return the values of a pool that do not name a person, as JSON; None if the entry goes whole."""
    if not container.kind.is_pool or subject.kind is not SubjectKind.PERSON or _is_of(subject, container, ""):
        return None
    mentions, values = PersonMentions(subject), json.loads(entry.value)
    kept = {
        key: value for key, value in values.items() if not mentions.mentioned_in(searchable(key, json.dumps(value)))
    }
    return json_of(kept) if 0 < len(kept) < len(values) else None  # a name may begin in one value and end in the next


def _is_copy_of(record: Mapping[str, Any], subject: Subject, at: datetime) -> bool:
    owner = (record["workspace_id"], record["agent_id"], record["identity"])
    container = Container(*owner, EntryKind.VALUE, record["space"])
    # An agent may have saved the copy after the cutoff.
    before = [entry for entry in record["entries"] if datetime.fromisoformat(entry["created_at"]) <= at]
    texts = [searchable(entry["key"], entry["value"]) for entry in before]
    if not record["entries"] and datetime.fromisoformat(record["updated_at"]) <= at:
        texts = [""]  # its session may be the subject's
    return container.workspace_id == subject.workspace_id and any(_is_of(subject, container, text) for text in texts)


def _is_of(subject: Subject, container: Container, text: str) -> bool:
    """Return whether an entry of the subject's workspace belongs to the subject. `text` is what it says."""
    is_shared = container.section == SHARED_BY and container.kind is EntryKind.VALUE
    if subject.agent_id not in {None, container.agent_id, *([container.space] if is_shared else [])}:
        return False
    if container.kind is EntryKind.VALUE and container.section == TOLD:
        return True  # it may quote any memory; the conversation is told again
    match subject.kind:
        case SubjectKind.AGENT:
            return True
        case SubjectKind.CONVERSATION:  # the session of the same id
            is_session = not container.kind.is_pool and not is_shared
            is_own = subject.identity in {None, container.identity}
            return is_session and is_own and container.space in subject.conversation_ids
        case SubjectKind.PERSON:
            mentions = PersonMentions(subject)
            is_named = any(map(mentions.mentioned_in, (container.space, container.section, text)))
            return container.identity in map(user_identity, subject.user_ids) or is_named
