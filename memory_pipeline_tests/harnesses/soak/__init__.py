"""A soak test: simulated traffic with kills and faults, then a check of all invariants.

Start it with ``python -m memory_pipeline_tests.harnesses.soak --minutes 10 --seed 7``. :mod:`.plan` derives all actions
from the seed, :mod:`.conducting` runs them, :mod:`.judging` checks the lake.
"""
