"""The fixtures of tests that have a lab."""

from support.lab_fixtures import lab, make, page, pair, sent, small_page

__all__ = ["lab", "make", "page", "pair", "sent", "small_page"]
