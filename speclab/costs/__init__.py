"""`budget="auto"`: the measured cost of a pass, and how many drafted nodes to verify because of it."""
