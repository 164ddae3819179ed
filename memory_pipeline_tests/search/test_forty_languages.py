"""A question in any language finds the message that has its words, among messages in all others.

The sentences are in forty_languages.txt. Most questions use other forms of the words: endings,
prefixes and parts of compounds.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from memory_pipeline.client.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory_pipeline_tests.conftest import SharedFolder

_DATE = re.compile(r" ?\[\d{4}-\d{2}-\d{2}\]")


#: Letters that Unicode does not decompose, as they are typed without diacritics.
_BARE = str.maketrans("łŁıİ", "lLiI")


def _without_marks(text: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFD", text) if unicodedata.category(one) != "Mn")


class Asked(NamedTuple):
    """A question, and the sentence that answers it."""

    language: str
    question: str
    sentence: str


def _read() -> tuple[list[str], list[Asked]]:
    sentences: list[str] = []
    asked: list[Asked] = []
    language = ""
    text = Path(__file__).with_name("forty_languages.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        language, *lines = block.splitlines()
        for line in lines:
            if line.startswith("? "):
                asked.append(Asked(language, line[2:], sentences[-1]))
            else:
                sentences.append(line)
    return sentences, asked


SENTENCES, ASKED = _read()
LANGUAGES = list(dict.fromkeys(one.language for one in ASKED))


def _written(root: Path, *, run: bool) -> None:
    memory = Memory(root)
    for number, sentence in enumerate(SENTENCES):
        memory.add(sentence, conversation_id=f"talk {number}")
    if run:
        memory.run()


@pytest.fixture(scope="module", params=["pending", "stored"])
def memory(request: pytest.FixtureRequest, shared_folder: SharedFolder) -> Memory:
    """All sentences, each a conversation: as they were written, or after a run of the pipeline."""
    is_run = request.param == "stored"
    return Memory(shared_folder(f"languages-{request.param}", lambda root: _written(root, run=is_run)))


def _first(memory: Memory, question: str) -> str:
    return _DATE.sub("", memory.search(question, 1)[0].content)


def test_there_are_enough_languages_and_messages() -> None:
    assert len(LANGUAGES) >= 40
    assert len(SENTENCES) > 200


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_question_finds_the_message_with_its_words(memory: Memory, language: str) -> None:
    for one in ASKED:
        if one.language == language:
            assert one.sentence in _first(memory, one.question), one.question
            assert one.sentence in _DATE.sub("", str(memory.context(one.question, 2_000))), one.question


@pytest.mark.parametrize(
    ("typed", "languages"),
    [
        (lambda text: unicodedata.normalize("NFD", text), "Vietnamese Korean Greek Czech Hindi Japanese"),
        (str.upper, "Greek German Czech Polish Russian Georgian Armenian Vietnamese"),
        (lambda text: _without_marks(text).translate(_BARE), "Polish Czech Romanian Vietnamese Greek French Turkish"),
        (lambda text: "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text), "Dutch Italian"),
        (lambda text: text.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue").replace("ß", "ss"), "German"),
        (lambda text: re.sub("([\u0628-\u064a])", "\\1\u064f", text), "Arabic"),  # with vowels
        (
            lambda text: re.sub("([\u0628-\u064a])(?=[\u0628-\u064a])", "\\1\u0640", text, count=3),
            "Arabic",
        ),  # stretched
        (lambda text: text.replace("أ", "ا").replace("ة", "ه").replace("ى", "ي"), "Arabic"),
        (lambda text: text.replace("ی", "ي").replace("ک", "ك"), "Persian Urdu"),  # with an Arabic keyboard
        (lambda text: re.sub("([\u05d0-\u05ea])", "\\1\u05b8", text), "Hebrew"),  # with vowels
        (lambda text: text.replace("\u093c", ""), "Hindi"),  # without nukta
    ],
)
def test_a_question_may_be_typed_otherwise(memory: Memory, typed: Callable[[str], str], languages: str) -> None:
    for one in ASKED:
        if one.language in languages.split():
            assert one.sentence in _first(memory, typed(one.question)), typed(one.question)
