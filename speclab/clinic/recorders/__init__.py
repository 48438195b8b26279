"""Recorders for engines: each file needs only numpy and its engine, and writes `speclab.steps/1`.

They are off unless the environment variable `SPECLAB_RECORD` names a folder: one file per request.
"""
