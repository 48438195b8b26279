"""Measuring: ways to decode the same prompts, side by side in one run."""
