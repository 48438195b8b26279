"""Guessing in the lab: each iteration stops after drafting, until the person has guessed."""

from __future__ import annotations

from speclab.lab._commands import command
from speclab.lab._parts import Part


class Guess(Part):
    """Whether the person guesses. The page itself judges the guess."""

    @command(at_once=True)
    def on_guess(self, on: bool | int) -> None:
        """Ask for a guess from now on, or no more."""
        self.state.guess = bool(on)  # a number of iterations is for the live page


PARTS = (Guess,)
