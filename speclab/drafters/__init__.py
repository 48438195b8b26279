"""Strategies: one file each. `strategies()` finds them; nothing else lists them."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from speclab.drafters.base import Strategy

__all__ = ["Strategy", "setting_names", "strategies"]


@lru_cache(maxsize=1)
def strategies() -> dict[str, type[Strategy]]:
    """Every strategy by name: the registry that widgets, command line and docs read."""
    found: dict[str, type[Strategy]] = {}
    for module in iter_modules(__path__):
        for value in vars(import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Strategy) and value is not Strategy:
                found[value.__name__] = value
    return dict(sorted(found.items()))


def setting_names() -> tuple[str, ...]:
    """The settings of every strategy, those defined outside the package included."""
    strategies()  # imports them all
    kinds: list[type[Strategy]] = [Strategy]
    for kind in kinds:  # grows on the way
        kinds += kind.__subclasses__()
    return ("strategy", *sorted({name for kind in kinds for name in kind.model_fields}))
