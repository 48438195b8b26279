"""The command line."""

from typer.testing import CliRunner

from speclab.cli import app


def speclab_command(*words):
    """What `speclab` with these words gives: `exit_code`, `output`, `stdout` and `stderr`."""
    return CliRunner().invoke(app, [str(word) for word in words])
