"""The check of a run in the lab, and its comparison with another run (`speclab.clinic`)."""
