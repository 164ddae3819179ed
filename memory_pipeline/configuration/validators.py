"""Validators of single configuration values. Each raises ValueError with a message for users.

Messages never contain an API key. A value that may be one, even in the wrong place, is described by its length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from memory_pipeline.domain.graph.operations import MAX_TERM, snake_case
from memory_pipeline.errors import shown
from memory_pipeline.settings import REFERENCE_FORM, is_secret_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

DETERMINISTIC = "deterministic"
LOCAL = "fastembed"
MAX_PROMPT = 20_000

MODEL_FORM = f"{DETERMINISTIC}, or provider/name as LiteLLM has it, such as openai/gpt-5-mini"
API_KEY_FORM = f"{REFERENCE_FORM}; never the key itself"
API_BASE_FORM = "an address such as https://models.example.com/v1, without a user, password, ? or #"
PREDICATES_FORM = f"a list of predicates such as [lives_in, speaks], each of 1 to {MAX_TERM} characters"
PARAMETERS_FORM = "a mapping of names to texts, numbers, true, false, null, lists and mappings"

#: Longest text that a message shows; API keys have 32 or more characters.
_SHOWN = 30
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[\x21-\x7e]+")
_MAX_MODEL = 256

_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Suffixes of words that name secrets; not "tokens", which many harmless parameters contain.
_SECRET_WORDS = tuple(
    "key secret token password passwd passphrase authorization auth bearer credential credentials cookie".split()
)
_ADDRESS_WORDS = tuple("base url uri endpoint host proxy proxies".split())
#: Not a secret: it groups requests with a common prefix.
_HARMLESS = frozenset({"prompt_cache_key"})
#: LiteLLM's parameters that another key sets, to avoid conflicts; None if the pipeline sets them.
_SET_ELSEWHERE = {
    "model": "model",
    "temperature": "temperature",
    "timeout": "timeout_seconds",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "answer_format",
    "num_retries": "attempts",
    "max_retries": "attempts",
    "messages": None,
    "input": None,
    "stream": None,
}


def described(value: object) -> str:
    """Return a value for a message: a short one in full, the type and length of others."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return shown(value) if len(value) <= _SHOWN else f"a text of {len(value):,} characters"
    if isinstance(value, int | float):
        return text if len(text := repr(value)) <= _SHOWN else f"a number of {len(text):,} digits"
    if isinstance(value, Sequence):
        return "a list" if value else "an empty list"
    return "a mapping" if isinstance(value, Mapping) else f"a value of type {type(value).__name__}"


def hidden(value: object) -> str:
    """Return the length of a value for a message, since the value could be an API key."""
    if value is None or isinstance(value, bool | Mapping | list):
        return described(value)
    return f"a value of {len(str(value)):,} characters"


def check_model(model: str) -> str:
    """Reject names without a provider."""
    if model != DETERMINISTIC and (len(model) > _MAX_MODEL or not _MODEL.fullmatch(model)):
        raise ValueError(f"{described(model)} is not accepted; expected {MODEL_FORM}")
    return model


def check_api_key(reference: str) -> str:
    """Reject everything but a reference to a key."""
    if not is_secret_reference(reference):
        raise ValueError(f"{hidden(reference)} is not accepted; expected {API_KEY_FORM}")
    return reference


def check_api_base(address: str) -> str:
    """Reject invalid URLs, and URLs with a part that could contain a secret."""
    try:
        parts = urlsplit(address)
        wrong = (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.port == 0
            or "@" in parts.netloc
            or any(c in address for c in "?#\\")
            or not re.fullmatch(r"[\x21-\x7e]{1,2048}", address)
        )
    except ValueError:
        wrong = True
    if wrong:
        raise ValueError(f"{hidden(address)} is not accepted; expected {API_BASE_FORM}")
    return address


def check_parameters(parameters: dict[str, object]) -> dict[str, object]:
    """Reject secrets, addresses, parameters that are set elsewhere, and values that JSON cannot represent."""
    for name in parameters:
        if name in _SET_ELSEWHERE:
            replacement = _SET_ELSEWHERE[name]
            raise ValueError(
                f"{name} is not accepted here; {f'set {replacement}' if replacement else 'the pipeline sets it'}"
            )
    for path, value in _leaves((), parameters):
        name = path[-1] if path else ""
        words = _WORD.findall(_CAMEL.sub("_", name).lower())
        where = ".".join(part if len(part) <= _SHOWN and part.isprintable() else "…" for part in path)
        if any(word.endswith(_SECRET_WORDS) or word in _ADDRESS_WORDS for word in words) and name not in _HARMLESS:
            raise ValueError(f"{where} is not accepted here; set a key in api_key, an address in api_base")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where} is {value}; expected a finite number")
        if not (value is None or isinstance(value, str | bool | int | float | dict | list)):
            raise ValueError(f"{where} is {described(value)}; expected {PARAMETERS_FORM}")
    return parameters


def check_prompt(prompt: str, placeholders: tuple[str, ...]) -> str:
    """Reject prompts that are blank or too long, or that have unknown placeholders."""
    accepted = ", ".join(f"{{{name}}}" for name in placeholders)
    if not prompt.strip() or len(prompt) > MAX_PROMPT:
        raise ValueError(
            f"{'a blank text' if not prompt.strip() else described(prompt)} is not accepted; "
            f"expected 1 to {MAX_PROMPT:,} characters"
        )
    if "\x00" in prompt or any("\ud800" <= c <= "\udfff" for c in prompt):
        raise ValueError("it contains NUL or surrogate characters; expected Unicode text without them")
    try:
        fields = [(name, form, conversion) for _, name, form, conversion in Formatter().parse(prompt)]
    except ValueError:
        raise ValueError(
            f"it has an unbalanced brace; double a literal brace ({{{{ or }}}}); accepted placeholders: {accepted}"
        ) from None
    for name, form, conversion in fields:
        if name is not None and (name not in placeholders or form or conversion):
            raise ValueError(
                f"{described(name)} in braces is not a placeholder, or has a format; accepted: {accepted}; "
                "double a literal brace ({{ or }})"
            )
    return prompt


def check_pattern(pattern: str) -> str:
    """Reject a regular expression that is invalid, or that matches an empty text."""
    try:
        is_empty = re.compile(pattern).match("") is not None
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    if is_empty:
        raise ValueError("it matches a text without characters; expected a pattern of the secret")
    return pattern


def check_predicates(predicates: list[str]) -> list[str]:
    """Return predicates in snake_case without duplicates; reject those that are too long or have no letter or digit."""
    for predicate in predicates:
        name = snake_case(predicate)
        if not name or max(len(name), len(predicate)) > MAX_TERM:
            seen = described(predicate) if name else "a text without letters and digits"
            raise ValueError(f"{seen} is not accepted; expected {PREDICATES_FORM}")
    return list(dict.fromkeys(map(snake_case, predicates)))


def _leaves(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], object]]:
    yield path, value
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from _leaves((*path, str(name)), entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _leaves(path, entry)
