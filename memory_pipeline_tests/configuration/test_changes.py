"""Changing the embedder in the text of a configuration."""

from __future__ import annotations

import pytest
import yaml

from memory_pipeline.configuration import EXAMPLE, Configuration
from memory_pipeline.configuration.changes import with_embedding
from memory_pipeline.errors import ConfigurationError

SETTINGS = {"model": "openai/new", "dimension": 64}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing yet\n",
        "defaults:\n",
        "defaults: {}\nworkspaces: {}\n",
        "defaults: {max_concurrency: 2}\n",
        "defaults: {embedding: {model: openai/old, dimension: 8}, max_concurrency: 2}\n",
        "defaults:\n  embedding:\n",
        "defaults:\n  embedding: {model: openai/old, dimension: 8}  # the old one\n  max_concurrency: 2\n",
        "workspaces:\n  acme: {}\n",
        "defaults:\n  max_concurrency: 2  # few\n",
        "defaults:\n    embedding:\n        model: openai/old\n        parameters: {}\nworkspaces: {}\n",
        EXAMPLE,
    ],
)
def test_only_the_embedder_changes(text: str) -> None:
    changed = with_embedding(text, SETTINGS)
    before, after = (yaml.safe_load(each) or {} for each in (text, changed))
    assert after.pop("defaults")["embedding"] == SETTINGS
    defaults = before.pop("defaults", None) or {}
    assert (yaml.safe_load(changed)["defaults"], before) == ({**defaults, "embedding": SETTINGS}, after)
    assert Configuration.parse(changed, "test").embedding.dimension == 64
    assert with_embedding(changed, SETTINGS) == changed


def test_comments_and_the_order_of_all_else_stay() -> None:
    text = (
        "# ours\ndefaults:\n  embedding:\n    model: openai/old\n    dimension: 8\n\n  # at most\n"
        "  budget: {usd_per_month: 3}\nworkspaces:\n  acme: {}  # us\n"
    )
    assert with_embedding(text, {"model": "deterministic"}) == (
        '# ours\ndefaults:\n  embedding: {"model": "deterministic"}\n\n  # at most\n'
        "  budget: {usd_per_month: 3}\nworkspaces:\n  acme: {}  # us\n"
    )


def test_a_form_that_cannot_be_changed_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="config --put"):
        with_embedding("defaults: &all\n  embedding: {model: openai/old}\nworkspaces: *all\n", SETTINGS)
