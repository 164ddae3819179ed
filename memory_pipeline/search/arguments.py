"""Validate the arguments of readers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from memory_pipeline.domain.attributes import labels_of_attributes
from memory_pipeline.domain.chat_messages import readable
from memory_pipeline.domain.conversations import CLOCK_SKEW
from memory_pipeline.domain.facts import SOURCES, FactKind
from memory_pipeline.domain.fields import FactFilters, check_names
from memory_pipeline.domain.messages import metadata_of
from memory_pipeline.domain.periods import Grain
from memory_pipeline.domain.scopes import MAX_ID, optional_label
from memory_pipeline.domain.text.recalled_text import without_recalled
from memory_pipeline.domain.values import one_of, share_of
from memory_pipeline.errors import InputError, shown
from memory_pipeline.lake.index.filters import Filter

if TYPE_CHECKING:
    from memory_pipeline.domain.periods import Calendar, When

MAX_DAYS_AGO = 36_525  # a century
MAX_RESULTS, MAX_OFFSET = 100, 10_000
MAX_QUERY = 10_000
MAX_TOKENS = 1_000_000
#: Number of the last messages of a conversation that are searched for, and the roles of those that nobody says.
_LAST = 6
_UNSAID = ("system", "tool")


def filter_of(
    calendar: Calendar,
    now: When | None,
    filters: FactFilters,
    grain: Grain = Grain.WORKING,
    minimum_days_ago: float = 0,
    maximum_days_ago: float = MAX_DAYS_AGO,
) -> Filter:
    """Return the filter of a search. Raise InputError if an argument is invalid.

    The arguments are those of :meth:`MemoryReader.search_memory`. Results that end after `now` are left out. Clocks
    differ: without `now`, those that end at most :data:`CLOCK_SKEW` after the current time pass.
    """
    check_names(filters, FactFilters)
    at = calendar.moment("now", datetime.now(UTC) if now is None else now)
    since, until = filters.get("since"), filters.get("until")
    for name, days in (("minimum_days_ago", minimum_days_ago), ("maximum_days_ago", maximum_days_ago)):
        whole = isinstance(days, int) and not isinstance(days, bool)
        if not whole and not (isinstance(days, float) and math.isfinite(days)):
            raise InputError(f"{name} {shown(days)} is not a number of days; expected 0 to {MAX_DAYS_AGO}")
        if not 0 <= days <= MAX_DAYS_AGO:
            raise InputError(f"{name} {shown(days)} is out of range; accepted: 0 to {MAX_DAYS_AGO}")
    if since is None and until is None and minimum_days_ago > maximum_days_ago:
        raise InputError(
            f"minimum_days_ago {minimum_days_ago} is greater than maximum_days_ago {maximum_days_ago}; swap them"
        )
    first = None if since is None else calendar.instant("since", since)
    last = None if until is None else calendar.instant("until", until, is_end=True)
    if first is not None and last is not None and first > last:
        raise InputError(f"since {since} is later than until {until}; swap them")
    newest = at + CLOCK_SKEW if now is None else at
    if last is None and minimum_days_ago:
        newest = at - timedelta(days=minimum_days_ago)
    if grain is not Grain.WORKING:
        newest = min(newest, calendar.bounds(calendar.last_closed(grain, at))[1])
    kind, importance = filters.get("kind"), filters.get("minimum_importance")
    return Filter(
        since=first,
        until=last,
        ends_since=at - timedelta(days=maximum_days_ago) if first is None else None,
        ends_until=newest,
        kind=None if kind is None else one_of(FactKind, "kind", kind),
        minimum_importance=None if importance is None else share_of("minimum_importance", importance),
        person=optional_label("person", filters.get("person")),
        conversation_id=optional_label("conversation_id", filters.get("conversation_id")),
        tag=optional_label("tag", filters.get("tag")),
        labels=labels_of_attributes(
            optional_label("source", filters.get("source")), metadata_of(filters.get("metadata")) or None
        ),
    )


def sources_of(value: str | Collection[str]) -> frozenset[str]:
    """Return the sources that an argument names; ``all`` is all of them.

    Raises:
        InputError: a source is unknown, or none is named.
    """
    named = SOURCES if value == "all" else (value,) if isinstance(value, str) else value
    if not isinstance(named, Collection) or not named or not set(SOURCES).issuperset(named):
        raise InputError(f"sources {shown(value)} are not accepted; expected some of {', '.join(SOURCES)}, or all")
    return frozenset(named)


def validate_query(query: str | None, query_text: str | None = None) -> str | None:
    """Return a query without white space around it, or None. `query_text` is its earlier name.

    Raise InputError if both are given, or if it is not a text of at most 10,000 characters.
    """
    if query is not None and query_text is not None:
        raise InputError("query and query_text are both given; give query alone")
    text = query_text if query is None else query
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > MAX_QUERY:
        raise InputError(f"query {shown(text)} is not accepted; expected a text of at most {MAX_QUERY:,} characters")
    _unicode("query", text)
    return text.replace("\x00", " ").strip() or None


def query_in(given: object) -> str | None:
    """Return the part of a message to search for, without recalled lines; None if it is blank.

    Of a long message, this is its beginning and end. Of a list of messages, oldest first, it is what the user and the
    assistant said in the last ones. Raise InputError if `given` is neither valid text nor a list.
    """
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        said = [one.get("content") for one in readable(given) if one.get("role") not in _UNSAID]
        given = "\n".join([text for text in said if isinstance(text, str) and text.strip()][-_LAST:])
    if not isinstance(given, str):
        raise InputError(f"query {shown(given)} is not accepted; expected a text or a list of messages")
    text = without_recalled(given)  # context injected earlier is not part of the question
    half = MAX_QUERY // 2 - 1
    return validate_query(text if len(text) <= MAX_QUERY else f"{text[:half]}\n{text[-half:]}")


def question_in(query: str | Sequence[object] | None) -> str | None:
    """Return a query as :func:`validate_query` does, or that of a list of messages as :func:`query_in` does."""
    return validate_query(query) if query is None or isinstance(query, str) else query_in(query)


def validate_ids(name: str, values: object) -> frozenset[str]:
    """Return ids as a set. Raise InputError unless there are at most 10,000, each a text of at most 256 characters."""
    if isinstance(values, str | bytes) or not isinstance(values, Collection):
        raise InputError(f"{name} {shown(values)} is not accepted; expected a list of ids")
    if len(values) > MAX_OFFSET:
        raise InputError(f"{name} has {len(values):,} entries; expected at most {MAX_OFFSET:,}")
    for value in values:
        if not isinstance(value, str) or len(value) > MAX_ID:
            raise InputError(f"{name} holds {shown(value)}; expected ids, as searches return them")
        _unicode(name, value)
    return frozenset(values)


def _unicode(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name} {shown(text)} is not valid Unicode text") from None
