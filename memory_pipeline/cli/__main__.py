"""`python -m memory_pipeline.cli`."""

from memory_pipeline.cli import main

main()
