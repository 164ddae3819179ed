"""The newest state of a scope: stored rows, overlaid with the pending journal."""

from memory_pipeline.overlay.overlays import Derived, Overlay, Sources
from memory_pipeline.overlay.pending import PendingFile, PendingJournal
from memory_pipeline.overlay.reads import found_once, journal_entries, one_read

__all__ = [
    "Derived",
    "Overlay",
    "PendingFile",
    "PendingJournal",
    "Sources",
    "found_once",
    "journal_entries",
    "one_read",
]
