r"""Formats of API keys, tokens and passwords, and where a text has them.

A secret is found by the format that its issuer documents (a prefix, an alphabet, a length), or by the name before it,
such as ``password: …``. A random text without either, such as a hash, a UUID or an image in base64, is no secret.

The formats were checked against the documentation of each issuer, `GitHub's supported secret scanning patterns
<https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns>`_ and the
`rules of Gitleaks <https://github.com/gitleaks/gitleaks/blob/master/config/gitleaks.toml>`_ (MIT license).

All patterns take linear time: they begin with a literal, and repetitions are bounded or of one class of characters.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


class SecretFormat(NamedTuple):
    """The format of a kind of secret.

    Attributes:
        kind: its name, in lower case with hyphens.
        literals: a text without all of these, in lower case, has no such secret. It is looked for before the pattern.
        pattern: matches the secret; only its group ``secret``, if it has one.
    """

    kind: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


class SecretPlace(NamedTuple):
    """A secret in a text: its kind, and where it starts and ends, in characters."""

    kind: str
    start: int
    end: int


#: Nothing that belongs to a longer token may stand before a secret.
_BEGINS = r"(?<![A-Za-z0-9_+-])"
_ENDS = r"(?![A-Za-z0-9_])"


def _format(kind: str, pattern: str, *literals: str) -> SecretFormat:
    return SecretFormat(kind, literals, re.compile(f"{_BEGINS}(?:{pattern}){_ENDS}"))


_WORD = r"[A-Za-z0-9_-]"
FORMATS: Final = (
    _format("age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{58}", "age-secret-key-1"),
    _format("airtable-token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}", "pat"),
    _format("anthropic-key", rf"sk-ant-[a-z0-9]{{2,10}}-{_WORD}{{20,200}}", "sk-ant-"),
    _format("atlassian-token", rf"ATATT3{_WORD}{{50,300}}=?[0-9A-F]{{0,8}}", "atatt3"),
    _format("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}", "akia", "asia", "abia", "acca"),
    _format("azure-storage-key", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{40,100}={0,2})", "accountkey="),
    _format("databricks-token", r"dapi[0-9a-f]{32}(?:-\d)?", "dapi"),
    _format("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64}", "_v1_"),
    _format("discord-token", rf"[MNO][A-Za-z0-9]{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,45}}", "."),
    _format(
        "discord-webhook",
        rf"https://(?:canary\.|ptb\.)?discord(?:app)?\.com/api/webhooks/\d{{10,25}}/(?P<secret>{_WORD}{{40,100}})",
        "/api/webhooks/",
    ),
    _format("docker-token", rf"dckr_[po]at_{_WORD}{{20,60}}", "dckr_"),
    _format("doppler-token", r"dp\.(?:pt|st|ct|scim|audit|said)\.[A-Za-z0-9_.-]{40,80}", "dp."),
    _format("figma-token", rf"fig[dou]_?r?_{_WORD}{{35,80}}", "fig"),
    _format("github-token", r"gh[pousr]_[A-Za-z0-9]{36,255}", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _format("github-token", r"github_pat_\w{22,255}", "github_pat_"),
    _format("gitlab-token", r"gl(?:pat|rt|dt|cbt|ptt|ft|soat|agent|oas|ffct|imt)-[A-Za-z0-9_=.-]{20,300}", "gl"),
    _format("google-api-key", rf"AIza{_WORD}{{35}}", "aiza"),
    _format("google-oauth-secret", rf"GOCSPX-{_WORD}{{28}}", "gocspx-"),
    _format("google-oauth-token", rf"ya29\.{_WORD}{{20,500}}", "ya29."),
    _format("grafana-token", r"gl(?:sa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|c_[A-Za-z0-9+/]{32,400}={0,2})", "glsa_", "glc_"),
    _format("groq-key", r"gsk_[A-Za-z0-9]{40,80}", "gsk_"),
    _format("heroku-key", rf"HRKU-{_WORD}{{36,80}}", "hrku-"),
    _format("huggingface-token", r"(?:hf|api_org)_[A-Za-z0-9]{30,60}", "hf_", "api_org_"),
    _format("jwt", rf"eyJ{_WORD}{{10,4000}}\.eyJ{_WORD}{{10,8000}}\.{_WORD}{{10,2000}}", "eyj"),
    _format("linear-key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}", "lin_"),
    _format("mailchimp-key", r"[0-9a-f]{32}-us\d{1,2}", "-us"),
    _format("mailgun-key", r"key-[0-9a-f]{32}", "key-"),
    _format("newrelic-key", r"NRAK-[A-Z0-9]{27}", "nrak-"),
    _format("notion-token", r"(?:ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{43})", "ntn_", "secret_"),
    _format("npm-token", r"npm_[A-Za-z0-9]{36}", "npm_"),
    _format("openai-key", rf"sk-(?:proj|svcacct|admin|None)-{_WORD}{{20,300}}", "sk-"),
    _format("openai-key", r"sk-[A-Za-z0-9]{32,64}", "sk-"),
    _format("openrouter-key", r"sk-or-v1-[0-9a-f]{64}", "sk-or-v1-"),
    _format("perplexity-key", r"pplx-[A-Za-z0-9]{40,64}", "pplx-"),
    _format("planetscale-token", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.-]{32,64}", "pscale_"),
    _format("postman-key", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}", "pmak-"),
    _format("pypi-token", rf"pypi-AgE[A-Za-z0-9]{{5,20}}{_WORD}{{50,1000}}", "pypi-age"),
    _format("replicate-token", r"r8_[A-Za-z0-9]{37}", "r8_"),
    _format("rubygems-key", r"rubygems_[0-9a-f]{48}", "rubygems_"),
    _format("sendgrid-key", rf"SG\.{_WORD}{{16,32}}\.{_WORD}{{16,64}}", "sg."),
    _format("sentry-token", r"sntry[su]_[A-Za-z0-9+/=_]{40,500}", "sntry"),
    _format("shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", "shp"),
    _format("slack-token", r"xox[abceoprs]-[A-Za-z0-9-]{10,250}", "xox"),
    _format("slack-token", r"xapp-\d-[A-Z0-9]{5,20}-\d{5,20}-[0-9a-f]{32,100}", "xapp-"),
    _format(
        "slack-webhook",
        r"https://hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/]{20,200})",
        "hooks.slack.com/",
    ),
    _format("square-token", rf"(?:sq0[a-z]{{3}}-{_WORD}{{22,60}}|EAAA{_WORD}{{60}})", "sq0", "eaaa"),
    _format("stripe-key", r"[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,250}", "k_live_", "k_test_", "k_prod_"),
    _format("stripe-webhook-secret", r"whsec_[A-Za-z0-9+/=]{24,80}", "whsec_"),
    _format("supabase-key", rf"sb(?:p_[0-9a-f]{{40}}|_secret_{_WORD}{{20,80}})", "sbp_", "sb_secret_"),
    _format("telegram-token", rf"(?:bot)?(?P<secret>\d{{8,10}}:AA{_WORD}{{33}})", ":aa"),
    _format("terraform-token", rf"[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{60,80}}", ".atlasv1."),
    _format("twilio-key", r"SK[0-9a-f]{32}", "sk"),
    _format("vault-token", rf"hv[sbr]\.{_WORD}{{24,300}}", "hvs.", "hvb.", "hvr."),
    _format("xai-key", r"xai-[A-Za-z0-9]{60,100}", "xai-"),
    SecretFormat(
        "private-key",
        ("private key",),
        # A block without its end is cut off: all of the rest is the key.
        re.compile(
            r"-----BEGIN (?P<of>(?:[A-Z0-9]{1,12} ){0,3}?)PRIVATE KEY(?P<block> BLOCK)?-----"
            r"(?:(?!-----END )[\s\S])*+(?:-----END [A-Z0-9 ]{0,60}-----)?"
        ),
    ),
    SecretFormat(
        "url-password",
        ("://",),
        re.compile(
            r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s:/?#@\"'<>\[\]]{0,100}:(?P<secret>[^\s/?#@\"'<>]{3,200})@[\w.\[-]"
        ),
    ),
    SecretFormat(
        "authorization",
        ("bearer ", "basic ", "authorization"),
        re.compile(
            r"\b(?:authorization[\\\"'`]{0,4}\s{0,4}[:=]\s{0,4}[\\\"'`]{0,4}(?:(?:bearer|basic|token|apikey)\s{1,4})?"
            r"|bearer\s{1,4}|basic\s{1,4}(?=[A-Za-z0-9+/]{20,500}={0,2}(?:[\s\"'`\\,;]|$)))"
            r"(?P<secret>[A-Za-z0-9+/=_.~-]{16,4000})(?![A-Za-z0-9])",
            re.IGNORECASE,
        ),
    ),
)

#: Names of passwords, and of other secrets, as programs and people write them. The second kind has random values only.
_PASSWORDS = (
    "password", "passwd", "passphrase", "passcode", "pass phrase", "pwd", "passwort", "kennwort", "mot de passe",
    "contraseña", "contrasena", "senha", "wachtwoord", "hasło", "lösenord", "пароль", "密码", "密碼", "パスワード",
    "비밀번호",
)  # fmt: skip
_KEYS = (
    "secret", "token", "api key", "access key", "secret key", "private key", "auth key", "account key",
    "signing key", "encryption key", "master key", "client secret", "credential", "credentials",
)  # fmt: skip


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name).replace(r"\ ", "[ _.-]?") for name in sorted(names, key=len, reverse=True))


#: The literals with the places of their formats: most texts have none.
_BY_LITERAL = [(literal, place) for place, one in enumerate(FORMATS) for literal in one.literals]

_QUOTES = r"\\{0,4}[\"'`“”„«»]?"
#: Between a name and its value: ``: ``, ``=``, ``" is "``, or a few words on what it is for.
_IS = (
    rf"{_QUOTES}\s{{0,4}}(?:(?:for|of|to|on|at|für|de|del|du)\s[^\n:=,.;!?\"]{{1,40}}?)?"
    r"(?P<sign>\s?(?:[:：=]{1,2}>?|:=|=>)\s{0,4}"
    r"|\s(?:is|was|are|ist|war|lautet|es|est|è|é|jest)\s{1,4}(?:now\s|jetzt\s|set to\s)?:?\s?|是|は|は、)"
)
#: A name may be the end of a longer one, such as ``DB_PASSWORD`` or ``dbPassword``.
_NAMED: Final = re.compile(
    rf"(?:(?<![A-Za-z])|(?<=[_-])|(?<=[a-z](?=[A-Z])))(?:(?P<password>{_any_of(_PASSWORDS)})|(?P<key>{_any_of(_KEYS)}))"
    rf"(?:[ _]?(?:value|string))?{_IS}(?P<quote>{_QUOTES})(?P<value>[^\s\"'`“”„«»]{{4,500}})(?P<closed>[\"'`“”„«»]?)",
    re.IGNORECASE,
)
_NAME_LITERALS = tuple(sorted({name.split()[-1] for name in (*_PASSWORDS, *_KEYS)}))
#: The name of a field whose value is a secret, such as ``DB_PASSWORD`` or ``apiKey``.
_FIELD: Final = re.compile(
    rf"(?:[\w .-]*(?:[\W_]|[a-z](?=[A-Z])))?(?:(?P<password>{_any_of(_PASSWORDS)})|(?P<key>{_any_of(_KEYS)}))",
    re.IGNORECASE | re.DOTALL,
)
_FIELD_VALUE = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]{4,500}")
#: What stands for a secret, or describes one.
_PLACEHOLDER = re.compile(
    r"[\[<{($%*&#@].*|.*[(\[{]|(?:x{3,}|\*{3,}|\.{3,}|…|_{3,}|-{3,}).*|.*(?:\.\.\.|…|\*\*\*)|your[_-]?.*|my[_-]?(?:password|secret|token|key).*"
    r"|(?:example|changeme|change[_-]me|placeholder|redacted|dummy|todo|insert|replace)[\w-]*|.*[_-]here",
    re.IGNORECASE | re.DOTALL,
)
#: Words that follow the name of a password in forms, errors and code, without being one.
_WORDS = frozenset(
    "string bytes number integer boolean undefined required optional hidden incorrect invalid wrong correct missing "
    "empty expired changed reset protected secret password passwords forgotten forgot unknown default getpass input "
    "prompt request please protect always never either something nothing stored encrypted hashed secure strong short "
    "longer simple different the same needed generated updated accepted rejected enabled disabled confirm confirmed "
    "confirmation manager policy field length minimum maximum username email login false".split()
)
#: Passwords of addresses in documentation.
_IN_EXAMPLES = frozenset("password passwd pass pwd pw secret test tiger postgres root admin guest user".split())
_TRAILING = ".,;:!?)]}>"
#: Least length, and least bits of a character (Shannon), of the value of a token or key.
_LEAST_RANDOM, _LEAST_BITS = 12, 2.8
_UNIT = re.compile(r"\d{1,5}|\d+[.,][\d.,]*|\d{1,4}[a-zA-Z%+]{1,3}")
#: What replaces a secret: its kind, and a digest of it.
MARKER: Final = re.compile(r"\[secret:(?P<kind>[a-z0-9-]{1,40}):[0-9a-f]{8}\]")


@lru_cache(maxsize=256)
def own_format(kind: str, pattern: str) -> SecretFormat:
    """Return a format of a workspace's own. Raise re.error if the pattern is no regular expression."""
    return SecretFormat(kind, (), re.compile(pattern))


def secrets_in(text: str, own: Iterable[SecretFormat] = ()) -> list[SecretPlace]:
    """Return the secrets in a text, in order, without overlaps. `own` are formats beside the built-in ones."""
    lower = text.lower()
    found = [SecretPlace("", *match.span()) for match in MARKER.finditer(text)] if "[secret:" in lower else []
    possible = dict.fromkeys(place for literal, place in _BY_LITERAL if literal in lower)
    found += [
        SecretPlace(one.kind, *_place(match))
        for one in (*own, *(FORMATS[place] for place in possible))
        for match in one.pattern.finditer(text)
        if one.kind not in _CHECKS or _CHECKS[one.kind](match["secret"])
    ]
    if any(literal in lower for literal in _NAME_LITERALS):
        found += _named(text)  # last: of two with one start, the first stays
    return [one for one in _without_overlaps(found) if one.kind]


def kind_of_field(name: str, value: str) -> str | None:
    """Return the kind of secret that the value of a field is by the name of the field, or None."""
    match = _named_field(name)
    if match is None or not _FIELD_VALUE.fullmatch(value) or _PLACEHOLDER.fullmatch(value):
        return None
    if match["password"]:
        return "password" if _is_password(value, is_quoted=True) else None
    return _kind(match["key"]) if _is_random(value) else None


@lru_cache(maxsize=1_024)
def _named_field(name: str) -> re.Match[str] | None:
    return _FIELD.fullmatch(name)


def _place(match: re.Match[str]) -> tuple[int, int]:
    return match.span("secret" if "secret" in match.re.groupindex else 0)


def _named(text: str) -> Iterator[SecretPlace]:
    """Yield the values that follow the names of secrets."""
    place = 0
    while match := _NAMED.search(text, place):
        value = match["value"]
        is_quoted = bool(match["quote"].strip("\\")) and bool(match["closed"])
        if not is_quoted:
            value = value.rstrip("\\").rstrip(_TRAILING)
        value = value.rstrip("\\")
        place = match.start("value")
        if len(value) < 4 or _PLACEHOLDER.fullmatch(value):
            continue
        is_stated = not match["sign"].strip() or match["sign"].strip()[0].isalpha()
        if match["password"]:
            kind = (
                "password"
                if _is_password(value, is_quoted=is_quoted, is_stated=is_stated, rest=text[match.end("value") :][:2])
                else None
            )
        else:
            kind = _kind(match["key"]) if _is_random(value) else None
        if kind:
            yield SecretPlace(kind, place, place + len(value))
            place += len(value)


def _kind(name: str) -> str:
    return re.sub(r"[ _.]", "-", name.lower())


def _is_password(value: str, *, is_quoted: bool, is_stated: bool = False, rest: str = "") -> bool:
    """Return whether a value can be a password.

    Words of a sentence or of code cannot: `is_stated` if it follows "is", `rest` is what follows it.
    """
    if value.lower() in _WORDS or _is_code(value):
        return False
    has_digit = any(map(str.isdigit, value))
    if is_quoted or (has_digit and len(value) >= 5 and not _UNIT.fullmatch(value)):
        return True
    if any(not (one.isalnum() or one in "_-.'’") for one in value):
        return len(value) >= 6
    is_word = value.isalpha() and value.islower() and len(value) >= 6
    return is_word and not is_stated and (not rest.strip(" .,;!?") and (not rest or rest[0] != " " or "\n" in rest))


def _is_random(value: str) -> bool:
    """Return whether a value is long, has letters and digits, and repeats little."""
    if len(value) < _LEAST_RANDOM or _is_code(value) or _PLACEHOLDER.fullmatch(value):
        return False
    if not any(map(str.isdigit, value)) or not any(map(str.isalpha, value)):
        return False
    counts = Counter(value)
    return -sum(n / len(value) * log2(n / len(value)) for n in counts.values()) >= _LEAST_BITS


_CODE = re.compile(
    r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Za-z_$][\w$]*(?:(?:\.|->|::)[A-Za-z_$][\w$]*)+[;,)]*|[A-Za-z_$][\w$.]*[(\[].*|https?://.*|/[\w./-]+|[A-Za-z_]+=.*"
)


def _is_code(value: str) -> bool:
    """Return whether a value is an expression of a program, such as ``config.password``, an address or a path."""
    return _CODE.fullmatch(value) is not None and not re.search(r"[A-Za-z]\d[A-Za-z]|\d[A-Za-z]\d", value)


#: Formats that match more than secrets, and what their secrets are.
_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "authorization": _is_random,
    "url-password": lambda value: value.lower() not in _IN_EXAMPLES and not _PLACEHOLDER.fullmatch(value),
}


def _without_overlaps(found: list[SecretPlace]) -> list[SecretPlace]:
    """Return what was found, in the order of the text. Of overlapping ones the first stays."""
    kept: list[SecretPlace] = []
    for one in sorted(found, key=lambda each: each.start):
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
    return kept
