"""Secrets in the documented formats, made at random: none of them was ever valid."""

from __future__ import annotations

import random
import string

_SOURCE = random.Random(54)
_WORD = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"


def _of(alphabet: str, length: int) -> str:
    return "".join(_SOURCE.choice(alphabet) for _ in range(length))


def _word(length: int) -> str:
    return _of(_WORD, length)


def _hex(length: int) -> str:
    return _of(_HEX, length)


#: One of each kind.
SECRETS = {
    "age-key": f"AGE-SECRET-KEY-1{_of(string.ascii_uppercase + string.digits, 58)}",
    "airtable-token": f"pat{_word(14)}.{_hex(64)}",
    "anthropic-key": f"sk-ant-api03-{_word(93)}",
    "atlassian-token": f"ATATT3{_word(180)}",
    "aws-access-key": f"AKIA{_of(string.ascii_uppercase + '234567', 16)}",
    "azure-storage-key": f"AccountKey={_word(86)}==",
    "databricks-token": f"dapi{_hex(32)}",
    "digitalocean-token": f"dop_v1_{_hex(64)}",
    "discord-token": f"M{_word(25)}.{_word(6)}.{_word(38)}",
    "discord-webhook": f"https://discord.com/api/webhooks/{_of(string.digits, 18)}/{_word(68)}",
    "docker-token": f"dckr_pat_{_word(27)}",
    "doppler-token": f"dp.pt.{_word(43)}",
    "figma-token": f"figd_{_word(40)}",
    "github-token": f"ghp_{_word(36)}",
    "gitlab-token": f"glpat-{_word(20)}",
    "google-api-key": f"AIza{_word(35)}",
    "google-oauth-secret": f"GOCSPX-{_word(28)}",
    "google-oauth-token": f"ya29.{_word(120)}",
    "grafana-token": f"glsa_{_word(32)}_{_hex(8)}",
    "groq-key": f"gsk_{_word(52)}",
    "heroku-key": f"HRKU-{_word(60)}",
    "huggingface-token": f"hf_{_word(34)}",
    "jwt": f"eyJ{_word(33)}.eyJ{_word(60)}.{_word(43)}",
    "linear-key": f"lin_api_{_word(40)}",
    "mailchimp-key": f"{_hex(32)}-us12",
    "mailgun-key": f"key-{_hex(32)}",
    "newrelic-key": f"NRAK-{_of(string.ascii_uppercase + string.digits, 27)}",
    "notion-token": f"ntn_{_word(46)}",
    "npm-token": f"npm_{_word(36)}",
    "openai-key": f"sk-proj-{_word(100)}",
    "openrouter-key": f"sk-or-v1-{_hex(64)}",
    "perplexity-key": f"pplx-{_word(48)}",
    "planetscale-token": f"pscale_tkn_{_word(43)}",
    "postman-key": f"PMAK-{_hex(24)}-{_hex(34)}",
    "private-key": f"-----BEGIN EC PRIVATE KEY-----\n{_word(64)}\n{_word(40)}\n-----END EC PRIVATE KEY-----",
    "pypi-token": f"pypi-AgEIcHlwaS5vcmc{_word(140)}",
    "replicate-token": f"r8_{_word(37)}",
    "rubygems-key": f"rubygems_{_hex(48)}",
    "sendgrid-key": f"SG.{_word(22)}.{_word(43)}",
    "sentry-token": f"sntrys_{_word(120)}",
    "shopify-token": f"shpat_{_hex(32)}",
    "slack-token": f"xoxb-{_of(string.digits, 12)}-{_of(string.digits, 12)}-{_word(24)}",
    "slack-webhook": f"https://hooks.slack.com/services/T{_word(8).upper()}/B{_word(8).upper()}/{_word(24)}",
    "square-token": f"sq0atp-{_word(22)}",
    "stripe-key": f"sk_live_{_word(48)}",
    "stripe-webhook-secret": f"whsec_{_word(32)}",
    "supabase-key": f"sbp_{_hex(40)}",
    "telegram-token": f"{_of(string.digits[1:], 10)}:AA{_word(33)}",
    "terraform-token": f"{_word(14)}.atlasv1.{_word(67)}",
    "twilio-key": f"SK{_hex(32)}",
    "vault-token": f"hvs.{_word(90)}",
    "xai-key": f"xai-{_word(80)}",
}
