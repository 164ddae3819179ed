"""The thesaurus: parsing of lines, and consistency of the shipped ones."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.text.ranking import terms
from memory_pipeline.domain.text.thesaurus import parse_thesaurus, related

words = st.text(alphabet="abcdefgh", min_size=1, max_size=6)
SHIPPED = files("memory_pipeline.domain.text").joinpath("thesaurus.txt").read_text(encoding="utf-8")


def entries() -> list[list[str]]:
    """Return the words and signs of each line of the shipped thesaurus."""
    split = [line.partition("#")[0].split() for line in SHIPPED.splitlines()]
    return [entry for entry in split if entry]


def test_words_with_an_equals_sign_are_synonyms() -> None:
    found = parse_thesaurus("tea = brew = cuppa")
    assert found == {"tea": {"brew", "cuppa"}, "brew": {"tea", "cuppa"}, "cuppa": {"tea", "brew"}}


def test_a_general_word_matches_specific_ones_and_not_vice_versa() -> None:
    assert parse_thesaurus("pet > dog cat") == {"pet": {"dog", "cat"}}


def test_words_are_stored_as_stems() -> None:
    assert parse_thesaurus("movies = filmed") == {"movi": {"film"}, "film": {"movi"}}
    assert parse_thesaurus("pets > dogs walking") == {"pet": {"dog", "walk"}}


def test_entries_of_several_lines_are_combined() -> None:
    found = parse_thesaurus("tea = brew\ntea > oolong\n\nbrew = ale")
    assert found == {"tea": {"brew", "oolong"}, "brew": {"tea", "ale"}, "ale": {"brew"}}


@pytest.mark.parametrize("text", ["", "\n\n", "# tea = brew", "   # x", "#"])
def test_comments_and_blank_lines_are_ignored(text: str) -> None:
    assert parse_thesaurus(text) == {}


def test_a_comment_ends_a_line() -> None:
    assert parse_thesaurus("tea = brew # = ale > x\n") == {"tea": {"brew"}, "brew": {"tea"}}


@pytest.mark.parametrize(
    "line",
    [
        "tea", "tea brew", "tea =", "= tea", "tea = brew =", "tea = brew ale", "tea = = brew", "tea >", "> tea", ">",
        "=", "tea > brew > ale", "tea > brew = ale", "tea = brew > ale", "tea brew = ale", "tea=brew", "tea>brew",
        "tea == brew", "tea : brew", "tea, = brew ,", "tea > =", "tea > >", "tea = # brew",
    ],
)  # fmt: skip
def test_a_malformed_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 3: .* is neither 'word = word' nor 'word > word word'$"):
        parse_thesaurus(f"# comment\n\n{line}\nfilm = movie")


@pytest.mark.parametrize("line", ["tea = >", "> = tea", "> > tea", "= > tea"])
def test_punctuation_is_not_a_word(line: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_thesaurus(line)


@given(st.lists(words, min_size=2, max_size=5))
def test_synonyms_are_symmetric(listed: list[str]) -> None:
    found = parse_thesaurus(" = ".join(listed))
    assert all(term in found[other] for term, others in found.items() for other in others)


@given(st.lists(st.tuples(st.sampled_from(["=", ">"]), st.lists(words, min_size=2, max_size=5)), max_size=6))
def test_no_word_is_related_to_itself(lines: list[tuple[str, list[str]]]) -> None:
    text = "\n".join(
        " = ".join(listed) if sign == "=" else f"{listed[0]} > {' '.join(listed[1:])}" for sign, listed in lines
    )
    assert all(term not in others for term, others in parse_thesaurus(text).items())


def test_the_shipped_thesaurus_is_parsed() -> None:
    found = parse_thesaurus(SHIPPED)
    assert len(found) > 1_000
    assert all(others and term not in others for term, others in found.items())
    assert {term: related(term) for term in found} == found


def test_every_shipped_word_is_a_single_lower_case_term() -> None:
    wrong = [
        word
        for entry in entries()
        for word in entry
        if word not in "=>" and (word != word.lower() or len(terms(word)) != 1)
    ]
    assert wrong == []


def test_shipped_words_have_synonyms_and_narrower_words() -> None:
    assert "movi" in related("film")
    assert "film" in related("movi")
    assert "dog" in related("pet")
    assert "pet" not in related("dog")
    assert "bought" in related("buy")


def test_an_unknown_word_is_related_to_nothing() -> None:
    assert related("qwertz") == related("") == frozenset()


def test_only_a_search_loads_the_thesaurus() -> None:
    """Neither an import of the library nor the write path does."""
    code = (
        "import memory_pipeline.client.memory, memory_pipeline.domain.text.ranking as r;"
        "import memory_pipeline.domain.text.thesaurus as t;"
        "r.terms('I saw a film'); print(t._relations.cache_info().currsize, bool(t.related('film')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]
