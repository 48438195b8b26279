"""What `speclab bench gpu` measures, a row each."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Row(BaseModel):
    """What every row says: on what it was measured."""

    model_config = ConfigDict(frozen=True)

    shape: str
    dtype: str
    device: str
    forward: str
    """What the target's passes went through."""


class FloorRow(Row):
    """Plain decoding beside the least time that memory allows."""

    prefix: int
    gigabytes: float
    """Read for one token: every weight but the input embeddings, and the prefix's keys and values."""
    gigabytes_a_second: float
    """Of a copy kernel, bytes read and written."""
    floor_ms: float
    token_ms: float
    """A pass of one row and the choice of its token, as the loop does it."""
    reached: float
    """`floor_ms` / `token_ms`."""


class VerifyRow(Row):
    """A pass of `rows` rows behind the prefix."""

    prefix: int
    rows: int
    pass_ms: float
    ratio: float
    """To the pass of one row, in the same rounds."""


class SpeedRow(Row):
    """One way to decode: its acceptance is modelled, its time measured."""

    way: str
    acceptance: float
    """The draft's first guess is right so often, by the model of acceptance."""
    iterations: int
    nodes: float
    """Rows of the tree, root included; mean."""
    draft_calls: float
    """An iteration."""
    tokens_per_iteration: float
    tokens_a_second: float
    speedup: float
    """To plain decoding under the same model of acceptance, in the same run."""
    milliseconds: dict[str, float]
    """By phase, means over the iterations after the warm-up."""


class WorkRow(Row):
    """What an iteration of one way asks of host and device, by the profiler's count of calls; means."""

    way: str
    iterations: int
    waits: float
    """Calls in which the host waits: for a stream, an event or the device."""
    kernels: float
    """Launched one by one, outside graphs."""
    replays: float
    copies: float
    """Between host and device, or on the device, outside graphs."""
    device_ms: float
    """In which the device computes or copies."""
    iteration_ms: float
    """Measured without the profiler, the median of the rounds."""
    host: float
    """1 - `device_ms` / `iteration_ms`: the share in which the device has nothing to do."""
