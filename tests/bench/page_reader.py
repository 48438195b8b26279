"""Reads a page as a person without pictures would: tables by row, figures by their labels."""

from __future__ import annotations

from types import SimpleNamespace

from bs4 import BeautifulSoup

LIBRARY = "* plotly.js v"


def without_library(html):
    """The page without plotly itself, which is a hundred times as long as the rest."""
    before, _, rest = html.partition("<script>")
    library, _, after = rest.partition("</script>")
    return f"{before}{after}" if LIBRARY in library else html


def read(html):
    """The page's `tables`, `labels` of figures, `headings`, `links`, `ids` and all its `text`."""
    soup = BeautifulSoup(without_library(html), "html.parser")
    ids = [tag["id"] for tag in soup.find_all(id=True)]
    for script in soup.find_all(["script", "style"]):
        script.decompose()
    tables = [[[cell.text for cell in row.find_all(["th", "td"])] for row in t.find_all("tr")]
              for t in soup.find_all("table")]  # fmt: skip
    return SimpleNamespace(
        tables=tables, labels=[figure["aria-label"] for figure in soup.find_all("figure")], ids=ids,
        headings=[tag.text for tag in soup.find_all(["h1", "h2", "h3", "h4"])],
        links=[tag.get(name) for tag in soup.find_all(True) for name in ("src", "href") if tag.get(name)],
        text=soup.get_text(" "),
    )  # fmt: skip


def rows(page, *heads):
    """Of every table with these headings."""
    return [row for table in page.tables if set(heads) <= {cell for row in table for cell in row} for row in table]


def table(page, *heads):
    """The rows by name of the first table that has all these headings."""
    found = [table for table in page.tables if set(heads) <= {cell for row in table for cell in row}]
    assert found, f"no table has {heads}"
    return {row[0]: row[1:] for row in found[0] if row}
