"""Reads a page as a person without pictures would: tables by row, figures by their labels."""

from __future__ import annotations

from html.parser import HTMLParser

LIBRARY = "* plotly.js v"
_OPEN = {"meta", "br", "img", "input"}


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables, self.labels, self.headings, self.links = [], [], [], []
        self.text, self._stack, self._cell = [], [], None

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag not in _OPEN:
            self._stack.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self._cell = []
        elif tag == "figure":
            self.labels.append(known.get("aria-label"))
        self.links += [known[name] for name in ("src", "href") if name in known]

    def handle_endtag(self, tag):
        assert self._stack.pop() == tag, f"{tag} closes what it did not open"
        if tag in {"td", "th"}:
            self.tables[-1][-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data):
        if "script" in self._stack or "style" in self._stack:
            return
        self.text.append(data)
        if self._cell is not None:
            self._cell.append(data)
        if self._stack and self._stack[-1] in {"h1", "h2", "h3", "h4"}:
            self.headings.append(data)


def without_library(html):
    """The page without plotly itself, which is a hundred times as long as the rest."""
    before, script, rest = html.partition("<script>")
    library, _, after = rest.partition("</script>")
    return f"{before}{after}" if LIBRARY in library else f"{before}{script}{rest}"


def read(html):
    """The page, with `tables`, `labels`, `headings`, `links` and all its `text`."""
    reader = _Reader()
    reader.feed(without_library(html))
    reader.close()
    assert reader._stack == []
    reader.text = " ".join(reader.text)
    return reader


def table(page, *heads):
    """The rows by name of the table that has all these headings."""
    found = [rows for rows in page.tables if set(heads) <= {cell for row in rows for cell in row}]
    assert found, f"no table has {heads}"
    return {row[0]: row[1:] for row in found[0] if row}
