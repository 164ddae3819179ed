"""Add to the built site what models read: ``llms.txt`` (https://llmstxt.org), and the source of each page.

``make site`` runs it. The index has the pages of the navigation, each with its line in the table of the README. Sources
lie where they lie in the repository, so that their links to each other lead to sources, too.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
#: The part of the navigation that a model can leave out.
_OPTIONAL = "Project"
_ROW = re.compile(r"^\| (\[.+\]\(.+\)) \| (.+) \|$", re.MULTILINE)
_TARGET = re.compile(r"\]\(([^)]+)\)")


def page() -> str:
    """Return the text of ``llms.txt``."""
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    described = {path: text for links, text in _ROW.findall(readme) for path in _TARGET.findall(links)}
    described["README.md"] = "see what it is, and try it"
    sections: dict[str, list[str]] = {"Docs": []}
    for title, target in _entries(site["nav"]):
        inside = [(title, target)] if isinstance(target, str) else [*_entries(target)]
        name = "Docs" if isinstance(target, str) else "Optional" if title == _OPTIONAL else title
        lines = [f"- [{label}]({path}): {described[path]}" for label, path in inside]
        sections.setdefault(name, []).extend(lines)
    found = [f"# {site['site_name']}", "", f"> {site['site_description']}.", "", "Each page, and what to read it for."]
    for name, lines in sections.items():
        found += ["", f"## {name}", "", *lines]
    return "\n".join(found) + "\n"


def _entries(nav: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for entry in nav:
        yield from entry.items()


def write(pages: Path, site: Path) -> None:
    """Write the index and the sources into a built site."""
    (site / "llms.txt").write_text(page(), encoding="utf-8")
    for source in pages.rglob("*.md"):
        target = site / source.relative_to(pages)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


if __name__ == "__main__":
    write(ROOT / "build" / "pages", ROOT / "build" / "site")
