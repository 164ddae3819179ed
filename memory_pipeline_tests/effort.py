"""How much a run of the tests looks at: the usual amount, or with `make test-thorough` far more.

The thorough run has large versions of tests, ten times as many examples, and new ones each time. The usual run has
the same examples every time, so that a change fails for what it changed.
"""

from __future__ import annotations

import os

from hypothesis import settings

#: Whether this is the thorough run.
IS_THOROUGH = os.environ.get("MEMORY_PIPELINE_THOROUGH") == "1"

# No deadlines: a busy machine exceeds them, which says nothing about the code.
settings.register_profile("usual", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None)


def load_profile() -> None:
    """Load the Hypothesis profile of this run."""
    settings.load_profile("thorough" if IS_THOROUGH else "usual")


def examples(usual: int) -> int:
    """Return how many examples a property is tried with, where the usual run tries it with `usual`."""
    return 10 * usual if IS_THOROUGH else usual
