"""The graph as a fold of operations: comparison with a naive model, and invariants of all histories."""

from __future__ import annotations

import random
import sys
import time
import unicodedata
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.graph.operations import MAX_TERM, Operation
from memory_pipeline.domain.graph.triples import (
    ALIASES,
    NOBODY,
    Names,
    Triple,
    Vocabulary,
    about,
    fold_operations,
    name_key,
    standing,
)
from memory_pipeline.domain.scopes import Scope
from memory_pipeline_tests.domain.graph_oracle import AT, NAMING, PLAIN, SPELLINGS, compared, histories, model

SCOPE = Scope("acme", "support")
HISTORIES, CHUNKS = 10_000, 40


def smallest(operations: list[Operation], vocabulary: Vocabulary) -> list[Operation]:
    """Reduce a history on which the model and the fold differ to the operations that matter."""
    for index in range(len(operations)):
        fewer = operations[:index] + operations[index + 1 :]
        if fold_operations(SCOPE, fewer, vocabulary) != model(SCOPE, fewer, vocabulary):
            return smallest(fewer, vocabulary)
    return operations


def operation(text: str, *, hours: float = 0, message: str | None = None, confidence: float = 1.0) -> Operation:
    """Return the operation of a text ``VERB subject predicate object``, by default with its own message."""
    verb, subject, predicate, *rest = text.split(" ")
    at = AT + timedelta(hours=hours)
    ids = [message or f"m{hours}"]
    return Operation.of(verb, subject, predicate, " ".join(rest), confidence=confidence, message_ids=ids, event_at=at)


def folded(*texts: str) -> list[Triple]:
    """Return the triples of operations, one hour apart."""
    return fold_operations(SCOPE, [operation(text, hours=hour) for hour, text in enumerate(texts)])


def spans(triples: list[Triple]) -> list[tuple[str, float, float | None]]:
    """Return triples with the hours of their start and end."""

    def hour(at: datetime) -> float:
        return (at - AT) / timedelta(hours=1)

    return [(str(one), hour(one.valid_from), None if one.valid_to is None else hour(one.valid_to)) for one in triples]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_fold_equals_the_naive_model(chunk: int) -> None:
    for operations, vocabulary in histories(chunk, HISTORIES // CHUNKS, PLAIN + NAMING if chunk % 2 else PLAIN):
        if fold_operations(SCOPE, operations, vocabulary) != model(SCOPE, operations, vocabulary):
            fewest = smallest(operations, vocabulary)
            assert fold_operations(SCOPE, fewest, vocabulary) == model(SCOPE, fewest, vocabulary), fewest


def test_the_random_histories_cover_all_cases_of_the_fold() -> None:
    """Otherwise the comparison would be empty."""
    seen: defaultdict[str, int] = defaultdict(int)
    for operations, vocabulary in histories(1, 500, PLAIN + NAMING):
        triples = fold_operations(SCOPE, operations, vocabulary)
        names = Names.of(operations, vocabulary)
        by_id = {one.id: one for one in triples}
        seen["alias"] += bool(names.aliases)
        seen["chain"] += any(name in names.aliases.values() for name in names.aliases)
        for one in triples:
            successor = by_id.get(one.superseded_by or "")
            seen["current"] += one.valid_to is None
            seen["replaced"] += successor is not None and vocabulary.holds_one(one.label)
            seen["withdrawn for another"] += successor is not None and not vocabulary.holds_one(one.label)
            seen["withdrawn"] += one.valid_to is not None and successor is None
            seen["of no length"] += one.valid_to == one.valid_from
            seen["much evidence"] += len(one.evidence) > 2
            seen["resolved source"] += one.source_id != name_key(one.source)
    # An alias of an alias resolves to the end of the chain.
    assert seen.pop("chain") == 0
    assert {name: count for name, count in seen.items() if count < 10} == {}
    assert len(seen) == 8


@pytest.mark.parametrize("chunk", range(4))
def test_the_order_of_arrival_does_not_matter(chunk: int) -> None:
    chance = random.Random(chunk)
    for operations, vocabulary in histories(f"order {chunk}", 25, PLAIN + NAMING):
        expected = fold_operations(SCOPE, operations, vocabulary)
        for _ in range(100):
            chance.shuffle(operations)
            assert fold_operations(SCOPE, operations, vocabulary) == expected


def test_duplicate_operations_do_not_matter() -> None:
    chance = random.Random(5)
    for operations, vocabulary in histories("repeated", 300, PLAIN + NAMING):
        expected = fold_operations(SCOPE, operations, vocabulary)
        repeated = operations + chance.choices(operations, k=10) if operations else []
        assert fold_operations(SCOPE, repeated, vocabulary) == expected
        assert fold_operations(SCOPE, iter(operations * 2), vocabulary) == expected
        assert fold_operations(SCOPE, frozenset(operations), vocabulary) == expected


def test_further_source_messages_of_an_operation_do_not_matter() -> None:
    """The table stores only the turn of the first message."""
    for operations, vocabulary in histories("further", 300, PLAIN + NAMING):
        first = [replace(one, message_ids=one.message_ids[:1]) for one in operations]
        assert fold_operations(SCOPE, first, vocabulary) == fold_operations(SCOPE, operations, vocabulary)


def test_sources_and_predicates_are_independent_without_aliases() -> None:
    for operations, vocabulary in histories("groups", 500, PLAIN):
        groups: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
        for one in operations:
            groups[compared(one.subject), one.predicate].append(one)
        apart = [triple for group in sorted(groups) for triple in fold_operations(SCOPE, groups[group], vocabulary)]
        assert apart == fold_operations(SCOPE, operations, vocabulary)


def test_sources_and_predicates_are_independent_with_given_aliases() -> None:
    for operations, vocabulary in histories("given", 500, PLAIN + NAMING):
        names = Names.of(operations, vocabulary)
        groups: defaultdict[tuple[str, str], list[Operation]] = defaultdict(list)
        for one in operations:
            groups[names.key(one.subject), one.predicate].append(one)
        apart = [
            triple for group in sorted(groups) for triple in fold_operations(SCOPE, groups[group], vocabulary, names)
        ]
        assert apart == fold_operations(SCOPE, operations, vocabulary)


def test_later_statements_do_not_change_the_past() -> None:
    for operations, vocabulary in histories("later", 300, PLAIN):
        whole = fold_operations(SCOPE, operations, vocabulary)
        for at in {one.event_at for one in operations}:
            until = fold_operations(SCOPE, [one for one in operations if one.event_at <= at], vocabulary)
            assert sorted(one.id for one in standing(until)) == sorted(one.id for one in whole if one.holds_at(at))


def test_every_graph_keeps_its_invariants() -> None:
    for operations, vocabulary in histories("sound", 1500, PLAIN + NAMING):
        triples = fold_operations(SCOPE, operations, vocabulary)
        by_id = {one.id: one for one in triples}
        assert len(by_id) == len(triples)
        assert all(one.id.startswith(f"graph:{one.valid_from:%Y-%m-%dT%H}:") for one in triples)
        order = [(one.source_id, one.label, one.valid_from, one.target_id) for one in triples]
        assert order == sorted(order)
        instants = sorted({at for one in triples for at in (one.valid_from, one.valid_to) if at is not None})
        instants += [at + timedelta(minutes=1) for at in instants]
        for one in triples:
            assert one.valid_to is None or one.valid_from <= one.updated_at <= one.valid_to
            assert len(set(one.evidence)) == len(one.evidence) > 0
            assert 0 <= one.weight <= 1
            if one.superseded_by is not None:
                following = by_id[one.superseded_by]
                assert (following.source_id, following.label) == (one.source_id, one.label)
                assert following.target_id != one.target_id
                assert following.valid_from <= (one.valid_to or one.valid_from) <= following.updated_at
        for at in instants:
            held = [one for one in triples if one.holds_at(at)]
            assert len({(one.source_id, one.label, one.target_id) for one in held}) == len(held)
            single = [(one.source_id, one.label) for one in held if vocabulary.holds_one(one.label)]
            assert len(set(single)) == len(single)
        intervals: defaultdict[tuple[str, str, str], list[Triple]] = defaultdict(list)
        for one in triples:
            intervals[one.source_id, one.label, one.target_id].append(one)
        for several in intervals.values():
            ordered = sorted(several, key=lambda one: (one.valid_from, one.valid_to is None, one.valid_to))
            assert all(
                before.valid_to is not None and before.valid_to <= after.valid_from
                for before, after in pairwise(ordered)
            )


def test_no_operations_give_no_triples() -> None:
    assert fold_operations(SCOPE, []) == []
    assert (
        fold_operations(SCOPE, [operation("DELETE Anna likes tea"), operation("DELETE Anna is_called", hours=1)]) == []
    )


def test_an_assertion_of_a_single_valued_predicate_ends_the_previous_object() -> None:
    for verb in ("ADD", "UPDATE"):
        oslo, rome, porto = folded("ADD Anna lives_in Oslo", "UPDATE Anna lives_in Rome", f"{verb} ANNA lives_in Porto")
        assert spans([oslo, rome, porto]) == [
            ("Anna lives_in Oslo", 0, 1), ("Anna lives_in Rome", 1, 2), ("ANNA lives_in Porto", 2, None),
        ]  # fmt: skip
        assert [oslo.superseded_by, rome.superseded_by, porto.superseded_by] == [rome.id, porto.id, None]
        assert spans(folded("ADD Anna likes tea", f"{verb} Anna likes figs")) == [
            ("Anna likes tea", 0, None), ("Anna likes figs", 1, None),
        ]  # fmt: skip


def test_a_deleted_object_is_superseded_by_the_first_assertion_of_its_message() -> None:
    said = [operation("ADD Anna likes tea"), operation("ADD Anna likes figs")]
    change = ["DELETE Anna likes", "ADD Anna likes rum", "ADD Anna likes ale", "ADD Anna owns ale"]
    triples = {str(one): one for one in fold_operations(SCOPE, [*said, *(operation(text, hours=1) for text in change)])}
    ale = triples["Anna likes ale"]
    assert triples["Anna likes tea"].superseded_by == triples["Anna likes figs"].superseded_by == ale.id
    assert {str(one) for one in standing(triples.values())} == {"Anna likes ale", "Anna likes rum", "Anna owns ale"}
    # An object that was open before, of another message or of another source supersedes nothing.
    opened = operation("ADD Anna likes ale", hours=0.5)
    for again in ("UPDATE Anna likes ale", "UPDATE Anna likes TEA", "UPDATE Ben likes rum", "UPDATE Anna owns rum"):
        withdrawal = operation("DELETE Anna likes tea", hours=1)
        triples = {
            str(one): one
            for one in reversed(fold_operations(SCOPE, [*said, opened, withdrawal, operation(again, hours=1)]))
        }
        assert triples["Anna likes tea"].valid_to == withdrawal.event_at
        assert triples["Anna likes tea"].superseded_by is None
    others = operation("ADD Anna likes rum", hours=1, message="m9")
    assert all(one.superseded_by is None for one in fold_operations(SCOPE, [*said, withdrawal, others]))


def test_evidence_makes_a_triple_stronger() -> None:
    first, second = operation("ADD Anna likes tea", confidence=0.9), operation("ADD anna likes Tea", hours=1)
    weaker = replace(operation("UPDATE ANNA likes tea", hours=2, confidence=0.2), conversation_id="c1")
    [one] = fold_operations(SCOPE, [first, replace(second, confidence=0.5), replace(second, confidence=0.4), weaker])
    assert (one.confidence, one.weight, one.evidence) == (0.9, 0.875, ("m0", "m1", "m2"))
    assert (str(one), one.conversation_id) == ("ANNA likes tea", "c1")
    assert (one.valid_from, one.updated_at) == (AT, AT + timedelta(hours=2))
    [one] = fold_operations(SCOPE, [first, replace(second, weight=0.3), weaker])
    assert one.weight == 0.3
    [one] = fold_operations(SCOPE, [first, replace(second, weight=0.3), replace(weaker, weight=0)])
    assert one.weight == 0
    ended, anew = folded("ADD Anna likes tea", "DELETE Anna likes tea", "ADD Anna likes tea")
    assert (ended.weight, ended.evidence, anew.weight, anew.evidence) == (0.5, ("m0",), 0.5, ("m2",))
    assert ended.id != anew.id


def test_a_triple_holds_from_its_beginning_until_its_end() -> None:
    [ended, open_] = folded("ADD Anna lives_in Oslo", "ADD Anna lives_in Rome")
    instant = timedelta(microseconds=1)
    held = [ended.holds_at(AT + timedelta(hours=hours) + off) for hours in (0, 1) for off in (-instant, 0 * instant)]
    assert held == [False, True, True, False]
    assert [open_.holds_at(ended.valid_to or AT), open_.holds_at(datetime.max.replace(tzinfo=UTC))] == [True, True]
    assert not open_.holds_at(AT)
    assert not replace(ended, valid_to=AT).holds_at(AT)


def test_single_valued_predicates_are_recognized() -> None:
    built_in = Vocabulary()
    for name in ("lives_in", "is_called", "favourite_colour", "favorite_food", "current_city", "main_office"):
        assert built_in.holds_one(name)
    for name in ("likes", "owns", "favourites", "mainly_eats", "my_favourite_food", "", "also_known_as", "pet"):
        assert not built_in.holds_one(name)
    declared = Vocabulary(single=frozenset({"pet", "rents"}), multi=frozenset({"lives_in", "favourite_food", "rents"}))
    held = {name: declared.holds_one(name) for name in ("pet", "rents", "lives_in", "favourite_food", "favourite_tea")}
    assert held == {"pet": True, "rents": False, "lives_in": False, "favourite_food": False, "favourite_tea": True}


def test_the_digest_of_a_vocabulary_changes_with_its_declarations() -> None:
    ways = [
        Vocabulary(),
        Vocabulary(single=frozenset({"pet"})),
        Vocabulary(multi=frozenset({"pet"})),
        Vocabulary(single=frozenset({"pet"}), multi=frozenset({"pet"})),
        Vocabulary(single=frozenset({"pet", "rents"})),
    ]
    assert len({one.digest for one in ways}) == len(ways)
    assert Vocabulary(single=frozenset(["rents", "pet"])).digest == ways[-1].digest


@pytest.mark.parametrize("group", SPELLINGS)
def test_different_spellings_are_one_name(group: list[str]) -> None:
    assert len({name_key(name) for name in group}) == 1
    [one] = fold_operations(SCOPE, [operation(f"ADD {name.replace(' ', chr(0x2003))} likes tea") for name in group])
    assert one.source_id == compared(group[0])


def test_names_that_differ_by_more_than_case_are_different() -> None:
    names = [group[0] for group in SPELLINGS]
    names += [
        "\u0308",
        "\u093f",
        "\u093e",
        "كتاب",
        "كتب",
        "\u202eanna",
        "🙂",
        "🙃",
        "👩\u200d👧",
        "👩👧",
        "a b",
        "ab",
        "e",
        "é",
    ]
    names += ["x" * MAX_TERM, "x" * (MAX_TERM - 1) + "y", "ﷺ" * MAX_TERM, "कु", "कू", "No", "N", "a-b", "a_b", "\ud800"]
    assert len({name_key(name) for name in names}) == len(names)
    triples = fold_operations(SCOPE, [operation(f"ADD Anna knows {name.replace(' ', chr(0xA0))}") for name in names])
    assert len({one.target_id for one in triples}) == len(names)
    assert len({one.id for one in triples}) == len(names)


@given(st.text(max_size=12) | st.text("aA ÄßİıK\u0308\u0345\u0301ϓΣςﬁ\u00a0\u3000\u00b4", max_size=12))
def test_normalizing_a_name_is_idempotent(name: str) -> None:
    key = name_key(name)
    assert name_key(key) == key
    if name.strip():
        assert name_key(f" {name}\n") == key == compared(name) != ""


def test_normalizing_any_letter_is_idempotent() -> None:
    known = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in {"Cn", "Co"}]
    form = name_key.__wrapped__
    odd = [one for one in known if one.strip() and not form(form(one)) == form(one) == compared(one)]
    assert odd == []


def named(*texts: str, vocabulary: Vocabulary | None = None) -> dict[str, str]:
    """Return the aliases after operations, one hour apart."""
    operations = [operation(text, hours=hour) for hour, text in enumerate(texts)]
    return Names.of(operations, vocabulary or Vocabulary()).aliases


def test_an_alias_belongs_to_the_only_entity_that_claims_it() -> None:
    assert sorted(NAMING) == sorted(ALIASES)
    for predicate in ALIASES:
        assert named(f"ADD Anna {predicate} Annie") == {"annie": "anna"}
    assert named("ADD Anna likes Annie", "ADD Anna is Annie") == {}
    assert named("ADD Anna alias Ann", "UPDATE Anna alias Annie") == {"ann": "anna", "annie": "anna"}
    assert named("ADD Anna alias Ann", "ADD ANNA nickname ANN") == {"ann": "anna"}
    assert named("ADD Anna alias Ann", "ADD Ben nickname ann") == {}
    assert named("ADD Anna alias Ann", "ADD Ben nickname Ann", "DELETE Ben nickname") == {"ann": "anna"}
    assert named("ADD Anna alias Ann", "DELETE anna alias ANN") == {}
    assert named("ADD Anna alias Ann", "ADD Anna nickname Ann", "DELETE Anna alias Ann") == {"ann": "anna"}
    single = Vocabulary(single=frozenset({"alias"}))
    assert named("ADD Anna alias Ann", "ADD Anna alias Annie", vocabulary=single) == {"annie": "anna"}
    assert named("ADD Anna is_called ANNA") == {}


def test_aliases_are_resolved_through_chains_and_cycles() -> None:
    chain = ["ADD c alias d", "ADD a alias b", "ADD b alias c"]
    assert named(*chain) == {"b": "a", "c": "a", "d": "a"}
    assert named(*chain, "ADD d alias a") == {"b": "a", "c": "a", "d": "a"}
    assert named("ADD c alias b", "ADD b alias c", "ADD b alias a") == {"c": "b", "a": "b"}
    assert named("ADD z alias y", "ADD y alias z", "ADD y alias a", "ADD a alias q") == {"z": "y", "a": "y", "q": "y"}
    names = Names({"annie": "anna"})
    assert [names.key(name) for name in ("ANNIE", " Anna ", "Ann")] == ["anna", "anna", "ann"]


def test_an_alias_joins_facts_stated_before_and_after_it() -> None:
    said = ["ADD Annie lives_in Oslo", "ADD Anna lives_in Rome", "ADD Ben knows Annie", "ADD Ben knows anna"]
    apart = [(one.source_id, one.target_id) for one in folded(*said)]
    assert apart == [("anna", "rome"), ("annie", "oslo"), ("ben", "annie"), ("ben", "anna")]
    triples = {(one.source_id, one.label, one.target_id): one for one in folded(*said, "ADD Anna is_called Annie")}
    assert set(triples) == {
        ("anna", "lives_in", "oslo"), ("anna", "lives_in", "rome"),
        ("anna", "is_called", "annie"), ("ben", "knows", "anna"),
    }  # fmt: skip
    oslo, rome = triples["anna", "lives_in", "oslo"], triples["anna", "lives_in", "rome"]
    assert (oslo.source, oslo.superseded_by) == ("Annie", rome.id)
    assert triples["ben", "knows", "anna"].evidence == ("m2", "m3")


def test_aliases_are_derived_from_their_claims() -> None:
    claims = [("annie", "anna"), ("ann", "annie"), ("ben", "anna"), ("ben", "bob"), ("zoë", "zoë")]
    for order in (claims, claims[::-1], claims * 2):
        assert Names.claimed(order).aliases == {"annie": "anna", "ann": "anna"}
    assert Names.claimed([]).aliases == NOBODY.aliases == {}
    names = Names.claimed(claims)
    assert names.all_of(["anna"]) == {"anna", "annie", "ann"}
    assert names.all_of({"ben", "ann"}) == {"ben", "ann"}
    assert names.all_of([]) == set()


def test_names_are_not_resolved_without_aliases() -> None:
    said = [operation("ADD Anna alias Annie"), operation("ADD Annie likes tea", hours=1)]
    assert [one.source_id for one in fold_operations(SCOPE, said)] == ["anna", "anna"]
    assert [one.source_id for one in fold_operations(SCOPE, said, None, NOBODY)] == ["anna", "annie"]
    assert [one.source_id for one in fold_operations(SCOPE, said[1:], None, Names({"annie": "bob"}))] == ["bob"]


def test_user_and_agent_are_never_aliases() -> None:
    assert named("ADD Ben is_called User", "ADD Ben is_called agent", "ADD User is_called Anna") == {"anna": "user"}


def test_an_alias_that_is_the_name_of_another_claimant_is_ignored() -> None:
    assert named("ADD Anna is_called Anna", "ADD Ben is_called Anna") == {}


def test_a_long_chain_of_aliases_is_resolved_quickly() -> None:
    chain = [operation(f"ADD n{link} alias n{link + 1}") for link in range(700)]
    began = time.process_time()
    assert set(Names.of(chain, Vocabulary()).aliases.values()) == {"n0"}
    assert time.process_time() - began < 0.3


def test_ids_differ_between_scopes() -> None:
    for operations, vocabulary in histories("scopes", 20, PLAIN):
        several = [fold_operations(Scope(*ids), operations, vocabulary) for ids in (("a", "b"), ("b", "a"), ("a", "c"))]
        assert len({one.id for triples in several for one in triples}) == sum(map(len, several))
        assert len({tuple(map(str, triples)) for triples in several}) == 1


def test_valid_triples_are_in_the_order_of_their_last_statement() -> None:
    said = [f"ADD {name} likes tea" for name in ("Zoë", "Anna", "Ben", "Zoë")]
    triples = folded(*said, "DELETE Ben likes")
    assert [str(one) for one in standing(triples)] == ["Anna likes tea", "Zoë likes tea"]
    assert standing(reversed(triples)) == standing(triples)
    at_once = fold_operations(SCOPE, [operation(f"ADD Anna likes {name}") for name in ("tea", "figs", "rum", "ale")])
    assert standing(reversed(at_once)) == standing(at_once)


def current(*texts: str) -> list[str]:
    """Return the current facts after operations, one hour apart."""
    return [str(one) for one in standing(folded(*texts))]


def test_an_insert_keeps_existing_objects() -> None:
    said = ["Anna likes tea", "Anna likes figs", "Ben likes tea"]
    assert current(*(f"ADD {text}" for text in said)) == said
    again = ["Anna likes figs", "anna likes Tea"]
    assert current("ADD Anna likes tea", "ADD Anna likes figs", "ADD anna likes Tea") == again


def test_an_update_replaces_only_the_object_of_a_single_valued_predicate() -> None:
    others = ["Ben lives_in Rome", "Anna works_in Rome"]
    said = ["ADD Anna lives_in Rome", "ADD Anna lives_in Oslo", *(f"ADD {other}" for other in others)]
    assert current(*said, "UPDATE ANNA lives_in Porto") == [*others, "ANNA lives_in Porto"]
    assert current(*said, "UPDATE Anna works_in Porto") == ["Anna lives_in Oslo", *others, "Anna works_in Porto"]
    assert current("UPDATE Anna lives_in Porto") == ["Anna lives_in Porto"]


def test_a_delete_ends_one_object_or_without_an_object_all() -> None:
    said = ["ADD Anna likes tea", "ADD Anna likes figs", "ADD Anna owns tea"]
    assert current(*said, "DELETE anna likes TEA") == ["Anna likes figs", "Anna owns tea"]
    assert current(*said, "DELETE Anna likes") == ["Anna owns tea"]
    assert current(*said, "DELETE Anna likes rum") == ["Anna likes tea", "Anna likes figs", "Anna owns tea"]
    assert current("DELETE Anna likes tea", "ADD Anna likes tea") == ["Anna likes tea"]


@pytest.mark.parametrize("predicate", ["likes", "lives_in"])
def test_an_object_deleted_and_asserted_by_one_message_is_valid(predicate: str) -> None:
    for withdrawal in (f"DELETE Anna {predicate} tea", f"DELETE Anna {predicate}"):
        for before in ([], [operation(f"ADD Anna {predicate} tea", hours=-1)]):
            said = [operation(f"UPDATE Anna {predicate} tea"), operation(withdrawal), *before]
            triples = fold_operations(SCOPE, said)
            assert len(triples) == len(before) + 1
            assert [(str(one), one.valid_from) for one in standing(triples)] == [(f"Anna {predicate} tea", AT)]
            assert all(one.superseded_by is None for one in triples)


STEPS = st.tuples(
    st.sampled_from(["INSERT", "UPDATE", "DELETE"]),
    st.sampled_from(["Anna", "anna", "Ben"]),
    st.sampled_from(["likes", "lives_in"]),
    st.sampled_from(["tea", "Tea", "figs", ""]),
)


@given(st.lists(STEPS, max_size=12))
def test_stored_operations_give_the_same_valid_triples(steps: list[tuple[str, str, str, str]]) -> None:
    table: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    operations = []
    for hour, (verb, subject, predicate, drawn) in enumerate(steps):
        value = drawn if verb == "DELETE" else drawn or "rum"
        operations.append(operation(f"{verb} {subject} {predicate} {value}", hours=hour))
        row = table[subject.casefold(), predicate]
        if not value or (verb != "DELETE" and predicate == "lives_in"):
            row.clear()
        if verb == "DELETE":
            row.discard(value.casefold())
        else:
            row.add(value.casefold())
    held = [(one.source_id, one.label, one.target_id) for one in standing(fold_operations(SCOPE, operations))]
    assert sorted(held) == sorted((*key, value) for key, values in table.items() for value in values)


KNOWN = standing(
    folded("ADD Ann likes tea", "ADD Anna lives_in New York", "ADD User likes Jo", "ADD Zoë owns Bruno")
    + fold_operations(SCOPE, [operation("ADD Ben works_at O'Neill's", hours=9)])
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nothing of note.", []),
        ("", []),
        ("ANNA called.", ["Anna lives_in New York"]),
        ("Annabel and Joanna called, Annas too.", []),
        ("The flight to new york, again!", ["Anna lives_in New York"]),
        ("A new flat in York", []),
        ("new\nYORK", ["Anna lives_in New York"]),
        ("(zoë's dog)", ["Zoë owns Bruno"]),
        ("is it bruno?", ["Zoë owns Bruno"]),
        ("I bought it at o'neill's.", ["Ben works_at O'Neill's"]),
        ("ann, jo", ["Ann likes tea", "User likes Jo"]),
        ("the user_s name", ["User likes Jo"]),
        ("who likes what?", []),
    ],
)
def test_about_matches_whole_words(text: str, found: list[str]) -> None:
    assert sorted(str(one) for one in about(KNOWN, text, 10)) == found


def test_about_returns_first_what_shares_most_words_then_the_newest() -> None:
    text = "Ann, Anna, Zoë"
    newest = sorted(about(KNOWN, text, 10), key=lambda one: one.updated_at, reverse=True)
    assert about(KNOWN, text, 2) == newest[:2]
    assert [one.source for one in about(KNOWN, "Ann, Anna, Zoë owns", 1)] == ["Zoë"]
    assert about(KNOWN, text, 0) == []


def test_a_name_without_letters_matches_nothing() -> None:
    assert about(folded("ADD ??? likes !", "ADD 🙂 likes 🙃"), "What ??? ! is 🙂 this", 5) == []


@pytest.mark.parametrize("written", ["Zoe\u0308", "Ｚｏë"])
def test_a_name_is_found_in_every_unicode_form(written: str) -> None:
    assert [str(one) for one in about(KNOWN, f"I saw {written} today", 10)] == ["Zoë owns Bruno"]


@pytest.mark.parametrize(("name", "text"), [("काली", "काला"), ("Zoe", "Zoe\u0301"), ("กิน", "กัน")])
def test_names_that_differ_in_a_mark_are_not_confused(name: str, text: str) -> None:
    triples = folded(f"ADD {name} likes tea")
    assert about(triples, f"a {name} b", 1) == triples
    assert about(triples, f"a {text} b", 1) == []
