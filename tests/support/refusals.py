"""What every error that a person causes must look like."""

import contextlib

import pytest

from speclab import SpeclabError


@contextlib.contextmanager
def refused(kind, *said):
    """One sentence of that class that says each of these."""
    with pytest.raises(kind) as caught:
        yield caught
    assert isinstance(caught.value, SpeclabError)
    message = str(caught.value)
    assert "\n" not in message
    assert 20 < len(message) < 250
    assert not {"Traceback", "pydantic", "NoneType", "object at 0x"} & set(message.split())
    for word in said:
        assert word in message, message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None, (
        "the cause is in the sentence"
    )
