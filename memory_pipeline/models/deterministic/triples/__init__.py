"""Triples by rules: what a user's message simply asserts.

Read :mod:`.operations` first; predicates are added to :mod:`.patterns`.
"""

from memory_pipeline.models.deterministic.triples.extractor import Assertions, confidence_of

__all__ = ["Assertions", "confidence_of"]
