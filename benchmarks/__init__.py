"""What is measured: speed of ingest, backfill and search, and size on disk. Run it with ``python -m benchmarks``.

Nothing in here asserts a time: machines are noisy, and a ratio of two figures of one run says more than either.
"""
