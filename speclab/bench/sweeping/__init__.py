"""Sweeps: settings of a strategy tried one by one, the best found, every trial kept."""

from speclab.bench.sweeping.decode import Decode
from speclab.bench.sweeping.found import Sweep
from speclab.bench.sweeping.loop import sweep
from speclab.bench.sweeping.rows import Measured, Row

__all__ = ["Decode", "Measured", "Row", "Sweep", "sweep"]
