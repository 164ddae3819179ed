"""The default models: rules and hashing. They run offline and give the same answers on every machine.

Their limits: :class:`~.extraction.DeterministicExtractor` splits messages into sentences and knows some English cue
words. :class:`~.embedding.HashingEmbedder` sees shared spelling, not shared meaning.
:class:`~.summarization.ExtractiveSummarizer` chooses sentences and writes none.
:class:`~.memory_rules.RuleCurator` concatenates contents.
"""
