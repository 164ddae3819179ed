"""The command that all others belong to."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="memory-pipeline")
def cli() -> None:
    """Long-term memory for AI agents, as a data pipeline.

    Conversations go into a journal (ingest), become facts and daily to yearly summaries (run), and are found again
    (search, recall, inject, expand), as a graph of what is known, too (graph), and by other programs (mcp). What is
    kept for good (memories) is put in order every night (upkeep). Try `memory-pipeline demo`.

    \b
    Settings: MEMORY_PIPELINE_ROOT      the lake, if --root is not given
              MEMORY_PIPELINE_START     first day of the memory, default: the lake's
              MEMORY_PIPELINE_TIMEZONE  the zone in which days begin, default UTC
    """
