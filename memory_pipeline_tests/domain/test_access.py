"""Grants, revokes and teams: the fold of events, and the decision who may read, write and administer a scope."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_pipeline.domain.access import AccessEvent, AccessLevel, AccessVerb, decide, fold_access
from memory_pipeline.domain.scopes import Scope
from memory_pipeline.errors import InputError
from memory_pipeline_tests.effort import examples

A, B, C = (Scope("acme", name) for name in "ABC")
ANNA = Scope("acme", "A", "user:anna", "0" * 32)
BEN = Scope("acme", "A", "user:ben", "1" * 32)
GROUP = Scope("acme", "A", "group:board", "2" * 32)
START = datetime(2024, 1, 15, tzinfo=UTC)


def event(verb: str, to: str | None = "B", scope: Scope = A, *, team: str | None = None, **fields: Any) -> AccessEvent:
    level = AccessLevel(fields.get("level", "read")) if verb == "grant" else None
    at = START + timedelta(minutes=fields.get("minute", 0))
    return AccessEvent(scope, AccessVerb(verb), to, team, level, at, None, fields.get("context"))


def allowed(
    *events: AccessEvent, agent: Scope = B, level: str = "read", target: Scope = A, context: str | None = None
) -> bool:
    return decide(agent, AccessLevel(level), target, fold_access(events), context).is_allowed


_CONTEXTS = [None, "runbooks", "board"]
_EVENTS = st.one_of(
    st.builds(
        lambda verb, to, scope, minute, level, context: event(
            verb, to, scope, minute=minute, level=level, context=context
        ),
        st.sampled_from(["grant", "revoke"]),
        st.sampled_from("BC"),
        st.sampled_from([A, ANNA, BEN]),
        st.integers(0, 3),
        st.sampled_from(list(AccessLevel)),
        st.sampled_from(_CONTEXTS),
    ),
    st.builds(
        lambda verb, minute, level, context: event(
            verb, None, team="sales", minute=minute, level=level, context=context
        ),
        st.sampled_from(["grant", "revoke"]),
        st.integers(0, 3),
        st.sampled_from(list(AccessLevel)),
        st.sampled_from(_CONTEXTS),
    ),
    st.builds(
        lambda verb, to, minute: event(verb, to, team="sales", minute=minute),
        st.sampled_from(["join", "leave"]),
        st.sampled_from("BC"),
        st.integers(0, 3),
    ),
)


def oracle(events: list[AccessEvent], agent: str, level: AccessLevel, target: Scope, context: str | None) -> bool:
    """Decide by looking at all events of each way to the scope: a second implementation, by definition."""

    def newest(
        *, is_team: bool, scope: Scope, to: str | None, team: str | None, of: str | None = None
    ) -> list[AccessEvent]:
        own = [
            one
            for one in events
            if (one.verb.is_of_team, one.scope, one.to_agent, one.to_team, one.context)
            == (is_team, scope, to, team, of)
        ]
        return [one for one in own if one.event_at == max(other.event_at for other in own)]

    def grants(to: str | None, team: str | None) -> bool:
        lasts = [newest(is_team=False, scope=target, to=to, team=team, of=of) for of in {None, context}]
        return any(
            last and all(one.level is not None and one.level.rank >= level.rank for one in last) for last in lasts
        )

    joined = newest(is_team=True, scope=A, to=agent, team="sales")
    is_member = bool(joined) and all(one.verb is AccessVerb.JOIN for one in joined)
    return grants(agent, None) or (is_member and grants(None, "sales"))


@given(st.lists(_EVENTS, max_size=12).flatmap(lambda listed: st.tuples(st.just(listed), st.permutations(listed))))
@settings(max_examples=examples(200), deadline=None)
def test_the_order_of_arrival_and_repetitions_do_not_matter(both: tuple[list[AccessEvent], list[AccessEvent]]) -> None:
    first, second = both
    access = fold_access(first)
    assert access == fold_access([*second, *second])
    for agent in (B, C):
        for level in AccessLevel:
            for target in (A, ANNA, BEN):
                for context in _CONTEXTS:
                    said = oracle(first, agent.agent_id, level, target, context)
                    assert decide(agent, level, target, access, context).is_allowed is said


@given(st.lists(_EVENTS, max_size=12), st.integers(0, 3))
@settings(max_examples=examples(100), deadline=None)
def test_the_grants_of_a_past_time_are_those_of_the_events_until_then(events: list[AccessEvent], minute: int) -> None:
    until = START + timedelta(minutes=minute)
    assert fold_access(events, until) == fold_access([one for one in events if one.event_at <= until])


def test_of_a_grant_and_a_revoke_at_the_same_time_the_revoke_wins() -> None:
    assert not allowed(event("grant"), event("revoke"))
    assert not allowed(event("revoke"), event("grant"))
    assert allowed(event("revoke"), event("grant", minute=1))
    assert not allowed(event("grant", level="read"), event("grant", level="admin"), level="write")


def test_a_level_includes_the_levels_before_it() -> None:
    for granted in AccessLevel:
        held = {level.value for level in AccessLevel if allowed(event("grant", level=granted), level=level)}
        assert held == {"read": {"read"}, "write": {"read", "write"}, "admin": {"read", "write", "admin"}}[granted]


def test_a_grant_on_an_agent_does_not_cover_its_users_nor_the_other_way_round() -> None:
    assert not allowed(event("grant"), target=ANNA)
    of_anna = event("grant", scope=ANNA)
    assert allowed(of_anna, target=ANNA)
    assert not allowed(of_anna, target=BEN)
    assert not allowed(of_anna)


def test_a_grant_of_a_context_opens_this_context_alone() -> None:
    of_context = event("grant", context="runbooks")
    assert allowed(of_context, context="runbooks")
    assert not allowed(of_context, context="board")
    assert not allowed(of_context)
    assert allowed(event("grant"), context="runbooks")
    # The grant of the whole memory is another one, and stays.
    assert allowed(event("grant"), of_context, event("revoke", context="runbooks", minute=1), context="runbooks")
    assert not allowed(of_context, event("revoke", context="runbooks"), context="runbooks")
    with pytest.raises(InputError, match="no context"):
        event("join", team="sales", context="runbooks")


def test_a_team_has_the_agents_that_its_keeper_names() -> None:
    shared = event("grant", None, team="sales")
    assert not allowed(shared)
    assert allowed(shared, event("join", team="sales"))
    assert not allowed(shared, event("join", team="sales"), agent=C)
    assert not allowed(shared, event("join", team="sales"), event("leave", team="sales", minute=1))
    # A team of the same name that another agent keeps is another team.
    assert not allowed(shared, event("join", scope=B, team="sales"))
    of_user = event("grant", None, ANNA, team="sales")
    assert allowed(of_user, event("join", team="sales"), target=ANNA)


def test_nothing_crosses_workspaces_and_no_group_is_opened() -> None:
    assert not allowed(event("grant"), agent=Scope("other", "B"))
    assert not allowed(event("grant"), target=GROUP)
    assert allowed(agent=A)
    assert allowed(agent=A, target=GROUP, level="admin")
    with pytest.raises(InputError, match="group:board"):
        event("grant", scope=GROUP)


@pytest.mark.parametrize(
    ("verb", "to", "scope", "team"),
    [
        ("grant", None, A, None),
        ("grant", "B", A, "sales"),
        ("grant", "A", A, None),
        ("revoke", "", A, None),
        ("grant", "B\n", A, None),
        ("join", "B", A, None),
        ("join", None, A, "sales"),
        ("leave", "B", ANNA, "sales"),
    ],
)
def test_invalid_events_are_refused(verb: str, to: str | None, scope: Scope, team: str | None) -> None:
    with pytest.raises(InputError):
        event(verb, to, scope, team=team)


@given(_EVENTS)
@settings(max_examples=examples(50), deadline=None)
def test_a_record_is_read_as_it_was_written(one: AccessEvent) -> None:
    keys = {scope.identity: scope.key for scope in (ANNA, BEN)}
    read = AccessEvent.from_record(
        one.to_record(), lambda workspace, agent, identity: Scope(workspace, agent, identity, keys.get(identity, ""))
    )
    assert (read, read.id) == (one, one.id)


def test_a_broken_record_names_the_value() -> None:
    record = event("grant").to_record()
    for name, value in {"access": "give", "level": "root", "timestamp": "soon", "workspace_id": ""}.items():
        with pytest.raises(InputError, match=str(value) or "workspace_id"):
            AccessEvent.from_record({**record, name: value})
    with pytest.raises(InputError, match="level"):
        AccessEvent.from_record({**record, "level": None})
