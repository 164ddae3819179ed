"""Who takes part in a conversation decides whose memory it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.scopes import Audience, Scope, audience_of, scope_key
from memory_pipeline.errors import InputError

IDS = st.text(min_size=1, max_size=8)
AUDIENCES = st.one_of(
    st.tuples(IDS, st.none(), st.none()),
    st.tuples(st.none(), st.sets(IDS, min_size=1, max_size=4), st.none() | IDS),
)


@pytest.mark.parametrize(
    ("user_id", "users", "group_id", "speakers", "identity", "members"),
    [
        (None, None, None, [], "", ()),
        ("anna", None, None, [], "user:anna", ()),
        ("anna", None, None, ["anna"], "user:anna", ()),
        (None, ["anna"], None, [], "user:anna", ()),
        (None, None, None, ["anna"], "user:anna", ()),
        (None, ["ben", "anna"], "team", [], "group:team", ("anna", "ben")),
        ("anna", None, "team", [], "group:team", ("anna",)),
        (None, None, "team", ["ben"], "group:team", ("ben",)),
    ],
)
def test_the_audience_is_named_or_speaks(
    user_id: str | None,
    users: list[str] | None,
    group_id: str | None,
    speakers: list[str],
    identity: str,
    members: tuple[str, ...],
) -> None:
    assert audience_of(user_id, users, group_id, speakers) == Audience(identity, members)


def test_the_set_of_users_is_the_group() -> None:
    named = audience_of(None, ["ben", "anna"], None, ["anna"])
    assert named == audience_of(None, None, None, ["anna", "ben", "anna"])
    assert named.users == ("anna", "ben")
    assert named.identity != audience_of(None, ["anna", "ben", "cleo"], None, []).identity


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("anna", None, None, ["ben"]), "user_id 'ben' of a message does not take part"),
        ((None, ["anna", "ben"], "team", ["cleo"]), "user_id 'cleo' of a message does not take part"),
        (("anna", ["ben"], None, []), "user_id 'anna' and users are both given"),
        ((None, None, "team", []), "group_id 'team' is given without a user"),
    ],
)
def test_contradictions_are_refused(arguments: tuple[object, ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        audience_of(*arguments)  # type: ignore[arg-type]


@given(AUDIENCES, AUDIENCES)
def test_different_audiences_have_different_scopes(
    one: tuple[str | None, set[str] | None, str | None], other: tuple[str | None, set[str] | None, str | None]
) -> None:
    mine, theirs = audience_of(*one, ()), audience_of(*other, ())
    is_same = (one[2], one[1] or {str(one[0])}) == (other[2], other[1] or {str(other[0])})
    if one[2] is not None and one[2] == other[2]:
        is_same = True  # a named group, of which the members differ
    assert (mine.identity == theirs.identity) is is_same
    keys = [scope_key("secret", "acme", "support", each.identity) for each in (mine, theirs)]
    assert (keys[0] == keys[1]) is is_same
    assert len({*keys, *(scope_key("other", "acme", "support", each.identity) for each in (mine, theirs))}) == 4 - (
        2 * is_same
    )


@pytest.mark.parametrize(
    ("identity", "key"), [("anna", "0" * 32), ("user:anna", ""), ("user:anna", "x"), (7, "0" * 32), ("user:a", "../x")]
)
def test_a_scope_of_a_user_has_a_key_of_its_lake(identity: object, key: str) -> None:
    with pytest.raises(InputError, match="is not valid; expected"):
        Scope("acme", "support", identity, key)  # type: ignore[arg-type]
