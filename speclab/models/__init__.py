"""Models: runners with their KV caches, masks and the probe.

Import the modules themselves: this file is cheap.
"""
