"""A page taken apart."""

from __future__ import annotations

from html.parser import HTMLParser

# What a browser may fetch, or run, by itself.
LOADS = {"src", "href", "srcset", "data", "action", "poster", "style", "background"}


class Read(HTMLParser):
    """The elements of a page, its texts, and what stands in its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "json": []}
        self.words: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._in = "json" if dict(attrs).get("type") == "application/json" else tag
            self.inside[self._in].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = "" if tag in ("script", "style") else self._in

    def handle_data(self, data: str) -> None:
        if self._in:
            self.inside[self._in][-1] += data
        else:
            self.words.append(data)
