"""Guessing what the target will accept, before it is shown."""
