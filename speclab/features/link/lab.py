"""Links in the lab: it opens them, and draws the QR code of one."""

from __future__ import annotations

from speclab.errors import SpeclabError
from speclab.features.link import open_link, page_address
from speclab.lab._commands import command
from speclab.lab._messages import ToPage
from speclab.lab._parts import Part


class Address(ToPage):
    """The page that links open in."""

    kept = True
    page: str


class Phones(ToPage):
    """The QR code of a link: a row of signs for each row of modules, 1 if it is dark."""

    text: str
    rows: list[str]


class LinkPart(Part):
    """Links of this lab."""

    @command("Opening")
    def on_link(self, text: str) -> None:
        """Show the run of a link; the row of runs switches back."""
        self.runs.open_trace(open_link(text), "link")

    @command()
    def on_phones(self, text: str) -> None:
        """Send the page the QR code of a link."""
        self.state.post("phones", text=text, rows=qr_rows(text))

    def decoded(self) -> None:
        if "address" not in self.state.panels:
            self.state.show("address", page=page_address())


def qr_rows(text: str) -> list[str]:
    """The modules of a QR code with the least correction, row by row.

    Raises:
        SpeclabError: segno is not installed, or the text has more than 2,953 bytes.
    """
    try:
        import segno
    except ImportError:
        raise SpeclabError("A QR code needs segno: `pip install segno`.") from None
    try:
        code = segno.make(text, error="l", boost_error=False, micro=False)
    except segno.DataOverflowError:
        raise SpeclabError(
            f"The link has {len(text):,} characters, and a QR code has room for 2,953: show an "
            "iteration with fewer nodes."
        ) from None
    return ["".join(map(str, row)) for row in code.matrix]


PARTS = (LinkPart,)
