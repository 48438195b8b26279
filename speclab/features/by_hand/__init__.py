"""A tree built by hand in the lab: a person adds and prunes nodes, and the target verifies it.

In Python: `TreeEdit` (`speclab/trace/edit.py`) and `Session.verify`.
"""
