"""A parser of HTML pages, which checks that a page is well formed and loads nothing from outside."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "base", "source", "embed"}
ACTIVE = {
    "script",
    "link",
    "iframe",
    "frame",
    "object",
    "embed",
    "img",
    "image",
    "base",
    "form",
    "audio",
    "video",
    "use",
}
"""Elements that load or run something; `use` of SVG does not if it refers to the page itself."""


class Page(HTMLParser):
    """The elements of a page, and its text by enclosing element."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open.pop() == tag, tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data.strip()))

    def text(self, tag):
        return [text for where, text in self.texts if where == tag]

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)

    def require_closed(self):
        """Assert that the page can neither run nor load anything."""
        for tag, attributes in self.elements:
            inside = (attributes.get("xlink:href") or attributes.get("href") or "").startswith("#")
            assert tag not in ACTIVE or (tag == "use" and inside), tag
            for name, value in attributes.items():
                assert not name.startswith("on") and name not in ("src", "srcset", "action", "data"), name
                assert name not in ("href", "xlink:href") or value.startswith("#"), value
                assert not re.search(r"url\(\s*['\"]?(?!#)", value or ""), value
        for style in self.text("style"):
            assert "url(" not in style and "@import" not in style
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
