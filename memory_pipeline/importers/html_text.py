"""The text of pages in HTML."""

from __future__ import annotations

from html.parser import HTMLParser


class _Html(HTMLParser):
    """Collects the text of a page, without quotations."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_quote = any(key == "class" and "gmail_quote" in (value or "") for key, value in attrs)
        if self._hidden:
            self._hidden += tag in ("blockquote", "style", "script", "head", "title", "div")
        elif tag in ("blockquote", "style", "script", "head", "title") or is_quote:
            self._hidden = 1
        elif tag in ("br", "p", "div", "tr", "li", "h1", "h2", "h3"):
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag in ("blockquote", "style", "script", "head", "title", "div"):
            self._hidden -= 1

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data if data.strip() else " ")


def text_of_page(page: str) -> str:
    """Return the text of a page in HTML, without what it quotes of an earlier mail."""
    parser = _Html()
    parser.feed(page)
    parser.close()
    text = "".join(parser.parts).replace("\xa0", " ")
    return "\n".join(" ".join(line.split()) for line in text.split("\n"))
