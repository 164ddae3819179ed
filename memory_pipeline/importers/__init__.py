"""Import history from other products: their exports become conversations and durable memories of an agent.

Each format is a module that says how a file is recognised by its content, and how conversations are read from it.
"""

from memory_pipeline.importers.history import FORMATS, ImportReport, import_history

__all__ = ["FORMATS", "ImportReport", "import_history"]
