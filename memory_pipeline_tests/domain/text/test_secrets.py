"""Secrets are found by their format or by the name before them, and ordinary text stays as it is."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_pipeline.domain.text.secret_formats import FORMATS, own_format, secrets_in
from memory_pipeline.domain.text.secrets import Redactor, kinds_in, without_private
from memory_pipeline_tests.secret_samples import SECRETS

REDACTOR = Redactor(lambda: "key of a lake")


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_in_a_sentence_in_code_and_in_json(kind: str) -> None:
    secret = SECRETS[kind]
    for text in (
        f"Here it is: {secret}.", f'client = Client("{secret}")', f'{{"note": "use {secret}"}}', f"({secret})\n",
        f"export KEY={secret}", f"https://example.com/a?key={secret}&b=1", f"KEY='{secret}'",
    ):  # fmt: skip
        left = REDACTOR.text(text)
        assert secret not in left
        assert kind in kinds_in(left)


def test_every_format_has_a_sample() -> None:
    assert {one.kind for one in FORMATS} <= SECRETS.keys() | {"url-password", "authorization"}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password: hunter2", "hunter2"),
        ("my password is Tr0ub4dor&3, ok?", "Tr0ub4dor&3"),
        ("The wifi password for the guest house is sunny1234.", "sunny1234"),
        ("Password: swordfish", "swordfish"),
        ("DB_PASSWORD=s3cr3t!x", "s3cr3t!x"),
        ('{"password": "correct horse"}', None),
        ('{"password": "hunter"}', "hunter"),
        (r"{\"password\": \"hunter2\"}", "hunter2"),
        ("dbPassword = 'qwertz'", "qwertz"),
        ("Passwort: Geheim123", "Geheim123"),
        ("mi contraseña es Perro2024", "Perro2024"),
        ("密码是abc12345", "abc12345"),
        ("api_key = 'a1B2c3D4e5F6g7H8'", "a1B2c3D4e5F6g7H8"),
        ("aws_secret_access_key = wJalrXUtnFEMIK7MDENGbPxRfiCY9", "wJalrXUtnFEMIK7MDENGbPxRfiCY9"),
        ("token: 550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("postgres://bob:pa55w0rd@db:5432/app", "pa55w0rd"),
        ("Authorization: Bearer abcdef0123456789abcdef", "abcdef0123456789abcdef"),
        ("curl -H 'X-Api-Key: 9f86d081884c7d65'", "9f86d081884c7d65"),
    ],
)
def test_a_secret_is_found_by_the_name_before_it(text: str, secret: str | None) -> None:
    left = REDACTOR.text(text)
    assert left == text if secret is None else (secret not in left and "[secret:" in left)


@pytest.mark.parametrize(
    "text",
    [
        "I forgot my password again.", "The password was changed.", "Password: incorrect", "password: string",
        "password: required, at least 8 characters", "password = request.form['password']", "password=password",
        "self.token = token", "token: 4096", "max_tokens=4096", "api_key=os.environ['KEY']", "api_key: ${API_KEY}",
        "token: <your token here>", "The secret is that we never give up.", "secret santa is 12 people",
        "pin the tail on 1234 donkeys", "A token is needed for that.", "const token = jwt.sign({id}, SECRET)",
        "key: 9f86d081884c7d65", "postgresql://user:password@localhost/db", "password: ********", "password: xxxxxxxx",
        "https://example.com/a/b?token", "pat on the back, glad you came", "The keyword is important: password.",
        " see <privateer> ", "sk-learn-something-about-machine-learning-today", "password: 8 characters",
    ],
)  # fmt: skip
def test_ordinary_text_is_the_same_object(text: str) -> None:
    assert REDACTOR.text(text) is text


def test_hashes_uuids_and_images_are_ordinary() -> None:
    source = random.Random(7)
    made = []
    for _ in range(500):
        data = source.randbytes(600)
        made += [
            f"commit {data[:20].hex()}", str(uuid.UUID(bytes=data[:16])), hashlib.sha256(data).hexdigest(),
            f"data:image/png;base64,{base64.b64encode(data).decode()}", base64.b64encode(data).decode(),
            base64.urlsafe_b64encode(data).decode(), f"order {source.randrange(10**12)}",
        ]  # fmt: skip
    assert [one for one in made if REDACTOR.text(one) is not one] == []


@given(st.text(st.sampled_from(string.ascii_letters + string.digits + " :=\"'\\{}[]/.-_\nПк是"), max_size=200))
def test_a_redacted_text_stays_the_same(text: str) -> None:
    once = REDACTOR.text(f"password: {text} token={text}")
    assert REDACTOR.text(once) == once


@given(st.lists(st.sampled_from([*SECRETS.values(), " and ", "password: ", "\n", "hunter2 ", '"'])))
def test_nothing_overlaps_and_everything_is_in_order(parts: list[str]) -> None:
    text = "".join(parts)
    found = secrets_in(text)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert all(0 <= one.start < one.end <= len(text) for one in found)


def test_equal_secrets_have_equal_markers_in_one_lake_and_others_in_another() -> None:
    text = f"password: {SECRETS['github-token']}"
    assert REDACTOR.text(text) == REDACTOR.text(text)
    assert REDACTOR.text(text) != Redactor(lambda: "another lake").text(text)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ({"password": "hunter"}, "password"),
        ({"nested": [{"apiKey": "a1B2c3D4e5F6g7H8"}]}, "apikey"),
        ({"key": "wifi password", "value": "sunny"}, "password"),
        ({"db.PASSWORD": "sunny"}, "password"),
        ({"subject": "Anna", "predicate": "password", "object": "sunny"}, "password"),
    ],
)
def test_the_name_of_a_field_tells_that_its_value_is_a_secret(value: Any, left: str) -> None:
    assert f"[secret:{left}:" in str(REDACTOR.value(value))


def test_values_without_secrets_are_the_same_objects_and_ids_stay() -> None:
    form = {"password": "Please enter it twice", "../etc/passwd": "sunny", "passwords": 3, "password_hint": "my dog"}
    assert REDACTOR.value(form) is form
    value = {"id": SECRETS["github-token"], "messages": [{"content": "Hello.", "n": 1, "x": None}], "tags": ("a",)}
    assert REDACTOR.value(value) is value


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("I like tea. <private>I owe Ben money.</private> And cake.", "I like tea.  And cake."),
        ("Tea. <PRIVATE reason='x'>secret\nlines</Private > Cake.", "Tea.  Cake."),
        ("Tea. <private>all of the rest", "Tea."),
        ("<private>a</private><private>b</private>", ""),
        ("<private>a <private>b</private> c", "c"),
        ("The tag is called privateer.", "The tag is called privateer."),
    ],
)
def test_private_text_is_removed(text: str, left: str) -> None:
    assert without_private(text) == left


def test_a_format_of_ones_own_may_mark_a_part() -> None:
    formats = (own_format("employee", r"EMP-(?P<secret>\d{6})"),)
    left = Redactor(str, formats=formats).text("I am EMP-123456.")
    assert left.startswith("I am EMP-[secret:employee:")
    assert "123456" not in left


def test_off_removes_private_text_alone() -> None:
    assert Redactor(str, is_on=False).text("password: hunter2 <private>x</private>") == "password: hunter2"


def test_long_texts_take_linear_time() -> None:
    for part in (
        "password",
        "password: ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJ" + "a" * 100,
        "<private>",
        "http://a:b",
        "sk-",
    ):
        REDACTOR.text(part * (200_000 // len(part)))
