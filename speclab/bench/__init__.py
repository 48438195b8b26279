"""Measuring: several methods decode the same prompts, in turn, in one run; summaries and reports of what was stored."""
