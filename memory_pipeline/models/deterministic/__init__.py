"""The default models: rules and hashing. They run offline and give the same answers on every machine.

Their limits: :class:`DeterministicExtractor` splits messages into sentences and knows some English cue words.
:class:`HashingEmbedder` sees shared spelling, not shared meaning. :class:`ExtractiveSummarizer` chooses sentences and
writes none. :class:`RuleCurator` concatenates contents.
"""

from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer

__all__ = ["DeterministicExtractor", "ExtractiveSummarizer", "HashingEmbedder", "RuleCurator"]
