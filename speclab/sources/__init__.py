"""Where training-free strategies find candidates: the context, a table of transitions, a text."""
