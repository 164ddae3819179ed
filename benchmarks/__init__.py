"""Benchmarks of speed and size. Run them with ``python -m benchmarks``.

They never assert a time, because machines are noisy. Compare ratios of two figures of the same run.
"""
