"""`python -m speclab` is `speclab`."""

from speclab.cli import app

if __name__ == "__main__":
    app()
