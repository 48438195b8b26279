"""What the tests of the course's exercises call."""

from speclab.course.answers import check, expect, own, plain

__all__ = ["check", "expect", "own", "plain"]
