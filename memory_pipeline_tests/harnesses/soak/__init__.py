"""A soak: simulated traffic with kills and faults, and at the end all that must hold is looked at.

``python -m memory_pipeline_tests.harnesses.soak --minutes 10 --seed 7`` starts it. :mod:`.course` says what is done, by
the seed alone, :mod:`.conducting` does it, :mod:`.judging` looks.
"""
