"""Everything of `budget="auto"`: the measured cost of a pass, and how many nodes are worth verifying."""
