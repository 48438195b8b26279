"""Replays a text under other strategies and settings, in Python and as the curve of a slider."""
