"""Write ``docs/openapi.json``, the description of the service, from its routes.

``make docs`` runs it, and writes the types of the TypeScript client from it. A test fails when one is out of date.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from memory_pipeline.lake import Lake
from memory_pipeline.service.app import service_app

PAGE = Path(__file__).with_name("openapi.json")


def page() -> str:
    """Return the text of the document."""
    with TemporaryDirectory() as folder:
        document = service_app(Lake(folder)).openapi()
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
