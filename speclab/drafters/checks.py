"""Settings that contradict each other, refused in one sentence."""

from __future__ import annotations

from pydantic import BaseModel


def check_order(settings: BaseModel, small: str, large: str) -> None:
    """Refuses settings whose `small` is above their `large`."""
    low, high = getattr(settings, small), getattr(settings, large)
    if low > high:
        raise ValueError(
            f"{type(settings).__name__}: {small} ({low:g}) is above {large} ({high:g}); "
            "lower the first or raise the second"
        )
