"""A soak test: simulated traffic with kills and faults, then a check of all invariants.

``python -m memory_pipeline_tests.harnesses.soak --minutes 10 --seed 7`` starts it. :mod:`.course` plans it
from the seed alone, :mod:`.conducting` runs it, :mod:`.judging` checks the lake.
"""
