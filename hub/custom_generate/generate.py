"""Decodes with a strategy of speclab: trees, prompt lookup, and the other drafters."""

from functools import lru_cache

from speclab import custom_generate
from speclab.drafters import from_str

prepared = lru_cache(1)(custom_generate)  # which prepares a model once, and keeps it


def generate(model, strategy="Goose", assistant_model=None, streamer=None, **arguments):
    """The text of `model.generate`; `assistant_model` is the draft, if the strategy needs one."""
    inside = prepared(from_str(strategy), assistant_model, streamer=streamer)
    # the class's own: a model whose checkpoint has this folder has this function in its place
    return type(model).generate(model, custom_generate=inside, **arguments)
