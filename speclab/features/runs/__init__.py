"""The row of all runs and forks in the lab, which switches between them."""
