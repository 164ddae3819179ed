"""Models without a model: rules, hashes and arithmetic that run anywhere, offline, and always answer alike.

They are the default, and they are no more than they seem. :class:`DeterministicExtractor` cuts messages into
sentences and knows some English cue words; :class:`HashingEmbedder` sees shared spelling, not shared meaning;
:class:`ExtractiveSummarizer` chooses sentences and writes none; :class:`RuleCurator` puts them after one another. Each
puts its name into every row it makes.
"""

from memory_pipeline.models.deterministic.embedding import HashingEmbedder
from memory_pipeline.models.deterministic.extraction import DeterministicExtractor
from memory_pipeline.models.deterministic.memory_rules import RuleCurator
from memory_pipeline.models.deterministic.summarization import ExtractiveSummarizer

__all__ = ["DeterministicExtractor", "ExtractiveSummarizer", "HashingEmbedder", "RuleCurator"]
