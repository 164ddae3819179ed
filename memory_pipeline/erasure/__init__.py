"""Forget an agent, a conversation or a person, and verify the erasure.

:func:`~memory_pipeline.erasure.forget.forget` removes a subject from the whole lake, recomputes derived data and
returns a receipt. :func:`~memory_pipeline.erasure.verification.verify` searches every file of the lake for the removed
data that the receipt lists. The reasons for this design are in docs/decisions/0014-erasure.md.
"""

from memory_pipeline.errors import require

require("run", "polars")

from memory_pipeline.erasure.forget import forget, preview  # noqa: E402  # it imports Polars
from memory_pipeline.erasure.report import ErasureReport  # noqa: E402
from memory_pipeline.erasure.verification import Verification, verify  # noqa: E402

__all__ = ["ErasureReport", "Verification", "forget", "preview", "verify"]
