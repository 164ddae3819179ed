"""The effort of a test run: usual, or thorough with `make test-thorough`.

The thorough run has large versions of tests and ten times as many examples, different ones each time. The usual run
always has the same examples, so that only a code change can make it fail.
"""

from __future__ import annotations

import os

from hypothesis import settings

#: Whether this is the thorough run.
IS_THOROUGH = os.environ.get("MEMORY_PIPELINE_THOROUGH") == "1"

# No deadlines: a busy machine exceeds them without a fault in the code.
settings.register_profile("usual", max_examples=40, deadline=None, derandomize=True, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None)


def load_profile() -> None:
    """Load the Hypothesis profile of this run."""
    settings.load_profile("thorough" if IS_THOROUGH else "usual")


def examples(usual: int) -> int:
    """Return the number of examples for a property that has `usual` in the usual run."""
    return 10 * usual if IS_THOROUGH else usual
