"""Extract triples from users' messages by rules.

Read :mod:`.extractor` first. Add predicates to :mod:`.patterns`.
"""

from memory_pipeline.models.deterministic.triples.extractor import Assertions, confidence_of

__all__ = ["Assertions", "confidence_of"]
