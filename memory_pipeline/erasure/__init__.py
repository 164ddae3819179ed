"""Forgetting an agent, a conversation or a person, and proving it.

:func:`~memory_pipeline.erasure.forget.forget` removes a subject from everything that the lake holds, makes again
what was derived from it, and returns a receipt; :func:`~memory_pipeline.erasure.verification.verify` searches every
file of the lake for what the receipt says is gone. Why it is done so: docs/decisions/0014-erasure.md.
"""

from memory_pipeline.erasure.forget import forget, preview
from memory_pipeline.erasure.report import ErasureReport
from memory_pipeline.erasure.verification import Verification, verify

__all__ = ["ErasureReport", "Verification", "forget", "preview", "verify"]
