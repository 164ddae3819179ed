"""Terms in comparable form, and the analysis of queries."""

from __future__ import annotations

import string
import unicodedata
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.text.ranking import RELATED, WEIGHTS, Query, date_terms, terms, weights_for
from memory_pipeline.domain.text.spelling import Spellings, kin, pieces_of
from memory_pipeline.domain.text.words import STOP_WORDS

names = st.text(alphabet="abnö.*+?()[]\\^$|'’ 日", min_size=1, max_size=8)
words = st.text(alphabet="abcdef", min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cities", "city"),
        ("CAFÉ", "cafe"),
        ("Curaçao", "curacao"),
        ("cafe\u0301", "café"),
        ("moved", "moving"),
        ("Straße", "STRASSE"),
        ("ﬁsh", "fish"),
        ("２０２４", "2024"),
        ("Anna's", "Anna"),
        ("Anna’s", "ANNA"),
        ("İstanbul", "istanbul"),
        ("Zoe\u0308", "Zoë"),
        ("Ａｎｎａ", "anna"),
        ("Ελένη", "ΕΛΕΝΗ"),
        ("Йод", "йод"),
    ],
)
def test_words_are_compared_without_case_accents_and_endings(one: str, other: str) -> None:
    assert terms(one) == terms(other) != []


@pytest.mark.parametrize(("one", "other"), [("𝐀nna", "anna"), ("№", "no"), ("℃", "°c")])
def test_stylized_letters_are_compared_like_plain_ones(one: str, other: str) -> None:
    assert terms(one) == terms(other)


@pytest.mark.parametrize(
    "text",
    [
        "What did you do there, and why?!",
        "",
        "  \n",
        "I'll, don't, she's",
        "...",
        "'",
        "_ __",
        "’’",
    ],
)
def test_stop_words_and_punctuation_are_not_terms(text: str) -> None:
    assert terms(text) == []


@pytest.mark.parametrize(
    ("text", "pictures"),
    [("🚲", ["🚲"]), ("my🚲!🚲", ["🚲", "🚲"]), ("❤️ ❤", ["❤", "❤"]), ("👍🏽 👍", ["👍", "👍"]), ("👩‍👧", ["👩", "👧"])],
)
def test_an_emoji_is_a_term(text: str, pictures: list[str]) -> None:
    assert terms(text) == pictures


def test_terms_are_in_order_and_repeated() -> None:
    assert terms("Porto, then Oslo, then Porto again: 3 days!") == ["porto", "oslo", "porto", "3", "day"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("日本語", ["日本", "本語"]),
        ("日本", ["日本"]),
        ("猫", ["猫"]),
        ("私は東京に住む", ["私は", "は東", "東京", "京に", "に住", "住む"]),
        ("日本語X線", ["日本", "本語", "x", "線"]),
        ("iPhone15を買う", ["iphone15", "を買", "買う"]),
        ("猫 cats 犬", ["猫", "cat", "犬"]),
    ],
)
def test_scripts_without_spaces_are_split_into_pairs(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_scripts_with_spaces_keep_their_words() -> None:
    assert len(terms("Я живу в Порту")) == 4
    assert len(terms("한국어 공부")) == 2
    assert terms("한국어") == terms(unicodedata.normalize("NFD", "한국어"))


@given(st.text(max_size=40))
def test_no_term_of_any_text_is_empty(text: str) -> None:
    assert all(terms(text))


@given(st.lists(st.sampled_from(sorted(word for word in STOP_WORDS if "'" not in word)), max_size=9))
def test_stop_words_are_removed_in_any_order(listed: list[str]) -> None:
    assert terms(" ".join(listed)) == terms("; ".join(listed).upper()) == []


@given(st.text(alphabet=string.ascii_letters + " .,'éüñß", max_size=40))
def test_neither_case_nor_the_way_accents_are_written_matters(text: str) -> None:
    assert terms(text) == terms(text.upper()) == terms(unicodedata.normalize("NFD", text))


@given(one=st.text(max_size=20), other=st.text(max_size=20))
def test_the_terms_of_lines_are_independent(one: str, other: str) -> None:
    assert terms(f"{one}\n{other}") == terms(one) + terms(other)


@pytest.mark.parametrize(
    ("query", "day"),
    [("July 2024", 4), ("7 july", 7), ("in 2024", 9), ("on 31 July, 2024", 31), ("JULY", 1)],
)
def test_a_day_is_found_by_its_month_year_and_number(query: str, day: int) -> None:
    assert set(terms(query)) <= set(date_terms(datetime(2024, 7, day, 23, 59, tzinfo=UTC)))


def test_each_month_has_a_distinct_name() -> None:
    assert len({date_terms(datetime(2024, month, 1, tzinfo=UTC))[0] for month in range(1, 13)}) == 12


def test_words_with_similar_spelling_are_kin() -> None:
    vocabulary = sorted(["adopt", "adoption", "adoptive", "adorn", "adopts", "pottery", "potter", "potte", "zebra"])
    assert kin("adopt", vocabulary) == ["adoption", "adoptive", "adopts"]
    assert kin("adoption", vocabulary) == ["adopt", "adopts"]
    assert kin("pottery", vocabulary) == ["potte", "potter"]


@pytest.mark.parametrize(
    ("word", "sentence"),
    [("กาแฟ", "ฉันชอบกาแฟ"), ("ວຽງຈັນ", "ຂ້ອຍຢູ່ວຽງຈັນ"), ("ភ្នំពេញ", "ខ្ញុំរស់នៅភ្នំពេញ"), ("ရန်ကုန်", "ရန်ကုန်မှာနေတယ်")],
)
def test_all_pieces_of_a_word_are_in_a_sentence_without_blanks_that_holds_it(word: str, sentence: str) -> None:
    [short], [long] = terms(word), terms(sentence)
    assert set(pieces_of(short)) < set(pieces_of(long))
    assert Query.of(word, []).terms == tuple(pieces_of(short))


@pytest.mark.parametrize("word", ["coffee", "дом", "牙医", "กา", "က", ""])
def test_other_words_have_no_pieces(word: str) -> None:
    assert pieces_of(word) == [word]


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        ("talossa", "talo", 0.7),  # an ending
        ("kızım", "kizim", 1.0),  # without diacritics that Unicode does not decompose
        ("kız", "kiz", 1.0),
        ("zahnarzttermin", "termin", 0.6),  # a compound
        ("الجيران", "جيراننا", 0.7),  # a prefix and an ending
        ("مـدرسة", "مدرسه", 1.0),
        ("majirani", "jirani", 0.8),
    ],
)
def test_words_of_any_language_are_alike(one: str, other: str, least: float) -> None:
    assert Spellings(["a", other, "z"]).alike(one)[other] >= least
    assert Spellings([one]).alike(other)[one] >= least


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("anahtarlarimi", "kitaplarimi"),  # only endings
        ("ضاعت", "ساعت"),  # too few letters after another prefix
        ("on", "oni"),  # too short
        ("牙医", "医院"),
        ("dentist", "dent" + "x" * 20),
    ],
)
def test_other_words_are_not_alike(one: str, other: str) -> None:
    assert not Spellings([other]).alike(one)
    assert not Spellings([one]).alike(other)


@given(term=words, others=st.lists(words, max_size=30))
def test_words_alike_are_found_anywhere_in_the_vocabulary(term: str, others: list[str]) -> None:
    found = Spellings(others).alike(term)
    assert found == {word: likeness for other in others for word, likeness in Spellings([other]).alike(term).items()}
    assert all(0.5 <= likeness <= 1 for likeness in found.values())
    assert [word in Spellings(others) for word in [*others, term]] == [True] * len(others) + [term in others]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("inter", "international"),  # less than three fifths of the longer
        ("universe", "university" * 2),
        ("contract", "contrary"),  # less than four fifths of the shorter
        ("four", "fours"),  # too short
        ("porto", "porto"),
    ],
)
def test_words_with_different_spelling_are_not_kin(one: str, other: str) -> None:
    assert kin(one, [other]) == kin(other, [one]) == []


@given(term=words, others=st.lists(words, max_size=30))
def test_kin_are_symmetric_and_found_anywhere_in_the_vocabulary(term: str, others: list[str]) -> None:
    vocabulary = sorted({*others, term})
    found = kin(term, vocabulary)
    assert found == [word for word in vocabulary if kin(term, [word])]
    assert all(term in kin(word, vocabulary) for word in found)
    assert term not in found


def test_an_empty_vocabulary_has_no_kin() -> None:
    assert kin("adoption", []) == []


def test_a_query_has_each_word_once_in_order() -> None:
    assert Query.of("tea, milk, tea and sugar", []).terms == ("tea", "milk", "sugar")


@pytest.mark.parametrize(
    ("query", "about"),
    [
        ("What does Anna drink?", ("Anna Lee",)),
        ("What does lee drink?", ("Anna Lee", "Bruce Lee")),
        ("What does ANNA LEE drink?", ("Anna Lee", "Bruce Lee")),  # all speakers with the name match
        ("Did Zoë meet Anna?", ("Zoë", "Anna Lee")),
        ("Did Anna meet Zoe?", ("Anna Lee", "Zoë")),
        ("Is this Zoe\u0308’s?", ("Zoë",)),
        ("What is Anna's tea?", ("Anna Lee",)),
        ("Who is Annabel?", ()),
        ("田中さん", ()),
        ("", ()),
        ("?", ()),
    ],
)
def test_speakers_are_recognized_by_part_of_their_name_in_query_order(query: str, about: tuple[str, ...]) -> None:
    assert Query.of(query, ["Zoë", "Bruce Lee", "Anna Lee", "Ben"]).about == about


def test_speakers_named_by_the_same_word_are_sorted_by_name() -> None:
    assert Query.of("Lee", ["B Lee", "C Lee", "A Lee"]).about == ("A Lee", "B Lee", "C Lee")


def test_a_name_in_a_script_without_spaces_is_recognized() -> None:
    assert Query.of("田中さんはどこ", ["田中", "鈴木"]).about == ("田中",)


@pytest.mark.parametrize("query", ["What is O'Brien's dog called?", "What is O’Brien’s dog called?"])
def test_a_name_with_an_apostrophe_is_recognized_in_the_possessive(query: str) -> None:
    assert Query.of(query, ["O'Brien", "Ann"]).about == ("O'Brien",)


def test_a_name_with_a_curly_apostrophe_is_recognized() -> None:
    assert Query.of("What does O’Brien drink?", ["O'Brien", "Ann"]).about == ("O'Brien",)


@pytest.mark.parametrize("name", ["Will", "May"])
def test_a_name_that_is_a_common_word_is_recognized(name: str) -> None:
    assert Query.of(f"What did {name} drink?", [name, "Ann"]).about == (name,)


@pytest.mark.parametrize(
    ("query", "bare"),
    [
        ("What is Anna's  dog called?", "What is dog called?"),
        ("What is Anna’s dog called?", "What is dog called?"),
        ("Did Anna Lee meet Ben?", "Did meet ?"),
        ("Did ANNA adopt a dog?", "Did adopt a dog?"),
        ("Annabel's dog", "Annabel's dog"),
        ("a dog", "a dog"),
        ("", ""),
    ],
)
def test_names_are_removed_from_the_embedded_text(query: str, bare: str) -> None:
    found = Query.of(query, ["Anna Lee", "Ben"]).bare
    assert found == (bare if terms(bare) else query)


def test_only_names_are_removed() -> None:
    assert Query.of("Which film does Anna like?", ["Anna", "Ben"]).bare == "Which film does like?"


@pytest.mark.parametrize("query", ["Anna", "Anna Lee?", "Who is Anna?", "Anna and Ben", "anna's"])
def test_a_question_of_names_alone_keeps_its_text(query: str) -> None:
    assert Query.of(query, ["Anna Lee", "Ben"]).bare == query


def test_a_name_with_a_combining_accent_is_removed() -> None:
    assert Query.of("Where does Ze\u0301lia live?", ["Zélia", "Ann"]).bare == "Where does live?"


@given(query=st.text(max_size=30) | names, speakers=st.lists(names | st.text(max_size=6), max_size=4))
def test_any_text_is_accepted_as_query_and_name(query: str, speakers: list[str]) -> None:
    asked = Query.of(query, speakers)
    assert set(asked.about) <= set(speakers)
    assert len(set(asked.about)) == len(asked.about)
    assert asked.terms == tuple(dict.fromkeys(terms(query)))
    assert bool(terms(asked.bare)) == bool(terms(query))
    for speaker in filter(terms, set(speakers)):
        assert (speaker in asked.about) == bool(set(terms(speaker)) & set(asked.terms))


@given(name=names)
def test_regular_expression_characters_in_names_are_escaped(name: str) -> None:
    asked = Query.of(f"tea {name} milk", [name, "(.*)+$", "[", "\\"])
    assert asked.bare.startswith("tea")
    assert asked.bare.endswith("milk")


@pytest.mark.parametrize(
    "query",
    [
        "What did you recommend?",
        "How did you suggest that I start?",
        "What was your advice?",
        "Summarize our talks",
        "你推荐了什么？",
        "Was hast du mir empfohlen?",
    ],
)
def test_a_question_about_the_assistants_words_is_recognized(query: str) -> None:
    assert Query.of(query, []).asks_the_assistant


@pytest.mark.parametrize("query", ["What would you suggest?", "Can you recommend a book?", "What did Anna say?", ""])
def test_a_request_for_advice_is_not_about_the_assistants_words(query: str) -> None:
    asked = Query.of(query, [])
    assert not asked.asks_the_assistant
    assert asked.seeks_advice == ("you" in query)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Muhhamed", "Muhammad Ali"), ("Mohammed", "Muhammad Ali"), ("Faheem", "Fahim Khan"), ("Mel", "Melanie"),
        ("Melani", "Melanie"), ("Jon", "John"),
    ],
)  # fmt: skip
def test_a_speaker_matches_another_spelling_and_a_short_form(name: str, meant: str) -> None:
    asked = Query.of(f"Where does {name} live?", ["Muhammad Ali", "Fahim Khan", "Melanie", "John"], is_known=never)
    assert asked.about == (meant,)
    assert asked.bare == "Where does live?"


@pytest.mark.parametrize("name", ["Peter", "Joan", "melanie's", "Mia", "Can"])
def test_other_names_match_no_speaker(name: str) -> None:
    assert Query.of(f"{name} lives where?", ["Muhammad", "Candice B", "Candy", "John"], is_known=never).about == ()


def test_a_known_name_is_not_confused_with_a_similar_speaker() -> None:
    assert Query.of("Where does Hannah live?", ["Hanna"], is_known=lambda word: word == "hannah").about == ()
    assert Query.of("Where does Hannah live?", ["Hanna"], is_known=never).about == ("Hanna",)


def never(word: str) -> bool:
    del word
    return False


@pytest.mark.parametrize("query", ["How many?", "how much tea", "HOW OLD is she", "How often?", "Well, how far is it?"])
def test_a_question_for_a_number_is_recognized(query: str) -> None:
    assert Query.of(query, []).asks_how_many


@pytest.mark.parametrize("query", ["How are you?", "many", "show many", "how manyfold", "how", ""])
def test_another_question_does_not_ask_for_a_number(query: str) -> None:
    assert not Query.of(query, []).asks_how_many


@pytest.mark.parametrize(
    ("query", "several"),
    [
        ("List all of the cities I visited.", True),
        ("How many times did I swim?", True),
        ("In which order did I buy them?", True),
        ("Which books has Anna read?", True),
        ("¿Cuántas veces fui a Lisboa?", True),
        ("我去过哪些城市？", True),
        ("Where does Anna live?", False),
        ("What is her dog called?", False),
    ],
)
def test_hits_of_a_list_are_of_several_conversations(query: str, several: bool) -> None:
    asked = Query.of(query, [])
    assert (WEIGHTS.for_query(asked).repeats < WEIGHTS.repeats) == several


def test_alternatives_are_related_words_and_kin_without_query_words() -> None:
    vocabularies = [Spellings(["adopt", "movi"]), Spellings(["adoption"])]
    assert Query.of("is it the film", []).alternatives("film", vocabularies)["movi"] == RELATED
    assert "movi" not in Query.of("film or movie", []).alternatives("film", vocabularies)
    assert Query.of("did the zadopt adopt", []).alternatives("adopt", vocabularies)["adoption"] == RELATED


def test_spelling_is_compared_more_freely_in_other_languages() -> None:
    stored = [Spellings(["talossa", "talo"])]
    assert not Query.of("what was the talon", []).alternatives("talon", stored)
    assert Query.of("mikä talon väri", []).alternatives("talon", stored) == pytest.approx(
        {"talo": 8 / 9, "talossa": 8 / 12}
    )
    # less so if memory has the word itself
    assert Query.of("mikä talo", []).alternatives("talo", stored) == pytest.approx({"talossa": RELATED * 8 / 11})


@pytest.mark.parametrize(
    "query", ["When do I see the dentist?", "Where's my café?", "have we met", "Porto", "green tea"]
)
def test_english_is_recognized(query: str) -> None:
    assert Query.of(query, []).is_english


@pytest.mark.parametrize(
    "query", ["Missä avain on hukassa?", "Cad is ainm do mhadraí?", "牙医 is", "เมื่อไหร่", "Hoe is het?"]
)
def test_other_languages_are_not_taken_for_english(query: str) -> None:
    assert not Query.of(query, []).is_english


def test_vectors_that_compare_only_spelling_count_less() -> None:
    hashed, other = weights_for("hashed-ngrams-1"), weights_for("some/model")
    assert 0 < hashed.vector < other.vector
    assert other == WEIGHTS
    changed = {name for name in WEIGHTS.__slots__ if getattr(hashed, name) != getattr(other, name)}
    assert "vector" in changed <= {"vector", "nearby"}


def test_only_replies_and_repeats_have_negative_weights() -> None:
    taken = {name for name in WEIGHTS.__slots__ if getattr(WEIGHTS, name) < 0}
    assert taken == {"replies", "repeats"}
