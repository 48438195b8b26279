"""One measured call as a record: the only form in which anything is measured, stored and reported.

A folder of results holds `run.json` (a `RunInfo`: machine, versions, arguments) and `results.jsonl` (`Result`s).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
"""Grows when a field changes its meaning or goes; a field may be added, with a default, without that."""

Group = Literal["ours", "transformers"]
Memory = Literal["cuda allocator", "rss"]


class _Record(BaseModel):
    """Frozen; a field that this version does not know is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class VerifyCost(_Record):
    """Verification passes over so many rows: how many there were, and the median seconds of one."""

    nodes: int
    passes: int
    seconds: float


class SourceCount(_Record):
    """Drafted tokens of one source; the meaning of each count is `attribution.SourceRate`'s."""

    drafted: int
    tried: int
    places: int
    accepted: int
    first: int


class Paths(_Record):
    """Accepted tokens by the kind of their path; each count is `attribution.Attribution`'s (GOOSE, section 4.2)."""

    spine_only: int
    spine_continuation: int
    branch_only: int
    continued: int


class Bound(_Record):
    """What Proposition 1 of GOOSE expects at least of the verified trees, beside what they gave.

    Over the same iterations, those that the end of the text did not cut. `expected`: tokens an iteration with the
    sources' accepted / drafted; `by_rate`: with accepted / tried; `isotropic`: of the best tree of one width, from
    branches alone, with as many nodes as the largest verified; `measured`: committed tokens an iteration.
    """

    iterations: int
    expected: float
    by_rate: float
    isotropic: float
    measured: float


class Head(_Record):
    """One of two routed parts; the meaning of each figure is `routing.Part`'s."""

    name: str
    chosen: int
    accepted: int
    committed: int
    confidence: float
    share: float
    expected: float
    followed: float


class Result(_Record):
    """One call of one contender on one prompt. Times are seconds; None is "not known of this contender".

    `seconds` is the whole call, prefill included, the device waited for at both ends. A contender of transformers has
    no phases and no drafted or accepted tokens; its passes are counted at the modules.
    """

    schema_version: int = SCHEMA_VERSION
    protocol: str
    contender: str
    group: Group = "ours"
    settings: dict[str, Any] = Field(default_factory=dict)
    """Of the strategy, with its name under "strategy"; of a peer, the arguments of its `generate`."""
    x: float | None = None
    """The swept value; `RunInfo.x_name` says of what. A contender that does not depend on it has None."""
    x2: float | None = None
    """A second swept value, of `RunInfo.x2_name`."""

    workload: str
    kind: str
    prompt_id: str
    repeat: int
    """From 0; the warm-up before it is not kept."""
    place: int = 0
    """Which one of its round this call was, from 0."""
    prompt_tokens: int = 0
    max_new_tokens: int = 0
    new_tokens: int = 0
    finished: str = ""

    seconds: float = 0.0
    ttft: float | None = None
    """From the call to the first token at hand, prefill included."""
    progress: tuple[tuple[int, float], ...] = ()
    """(new tokens, seconds since the call), at some 32 places over the text, the last one included."""
    target_seconds: float = 0.0
    draft_seconds: float = 0.0
    """Inside the passes of the target; of draft model and heads."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Of all iterations together; the prefill is in none."""

    iterations: int = 0
    """Verification passes; of a peer, all its target's passes."""
    target_calls: int = 0
    """The prefill included."""
    draft_calls: int = 0
    committed: int = 0
    """New tokens of the iterations: all but the prefill's first; of a peer, all."""
    drafted: int | None = None
    accepted: int | None = None
    longest_path: int | None = None
    nodes: int | None = None
    """Rows verified, roots included."""
    depth_drafted: tuple[int, ...] = ()
    """For each depth from 1, the iterations whose tree went so deep; `depth_accepted`: whose accepted path did."""
    depth_accepted: tuple[int, ...] = ()
    verify_cost: tuple[VerifyCost, ...] = ()
    """By number of rows, ascending."""

    sources: dict[str, SourceCount] | None = None
    """By source, in the protocols that ask where tokens came from; so `paths`, `bound` and `heads`."""
    paths: Paths | None = None
    bound: Bound | None = None
    heads: tuple[Head, ...] | None = None

    equal: bool | None = None
    """Whether the text is the target's own greedy one; None where it was not compared."""
    first_difference: int | None = None
    """Index of the first new token that differs."""
    tie: bool | None = None
    """In half precision: whether that difference is one that rounding explains (`exactness.TOLERANCE`)."""
    looping: bool = False
    """`training.looping.loops`: more than half of its last 64 tokens end a 4-gram that it held before."""
    peak_memory_bytes: int | None = None
    memory_kind: Memory | None = None
    failed: str | None = None
    """One sentence that says why there is no text; then every figure is its default."""

    @property
    def ok(self) -> bool:
        """Whether there is a text."""
        return self.failed is None

    @property
    def key(self) -> tuple[str, float | None, float | None, str, str, str, int]:
        """What makes a call the same call: contender, x, x2, workload, kind, prompt, repeat."""
        return (self.contender, self.x, self.x2, self.workload, self.kind, self.prompt_id, self.repeat)

    @property
    def throughput(self) -> float:
        """New tokens / seconds of the whole call (DynaTree, section 4.2)."""
        return self.new_tokens / self.seconds if self.seconds else 0.0

    @property
    def decode_throughput(self) -> float | None:
        """New tokens after the first / seconds after it: prefill excluded."""
        tpot = self.tpot
        return 1 / tpot if tpot else None

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first one; None for a text of one token."""
        if self.ttft is None or self.new_tokens < 2:
            return None
        return (self.seconds - self.ttft) / (self.new_tokens - 1)

    @property
    def model_seconds(self) -> float:
        """Inside forward passes."""
        return self.target_seconds + self.draft_seconds

    @property
    def host_seconds(self) -> float:
        """Outside forward passes."""
        return self.seconds - self.model_seconds

    @property
    def tokens_per_iteration(self) -> float | None:
        """Committed tokens / verification passes (L̄, τ); of a peer, new tokens / target passes."""
        return self.committed / self.iterations if self.iterations else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted drafted tokens / drafted tokens, 0…1."""
        return None if self.accepted is None or not self.drafted else self.accepted / self.drafted

    @property
    def path_acceptance(self) -> float | None:
        """Accepted drafted tokens / tokens on the longest drafted path, 0…1."""
        return None if self.accepted is None or not self.longest_path else self.accepted / self.longest_path

    @property
    def paper_acceptance(self) -> float | None:
        """DynaTree's figure (Table 3): committed tokens, bonus included, / longest drafted path; may exceed 1."""
        return self.committed / self.longest_path if self.longest_path else None

    @property
    def path_length(self) -> float | None:
        """Accepted drafted tokens an iteration: the committed path before the bonus token (ℓ̄ of DynaTree)."""
        return None if self.accepted is None or not self.iterations else self.accepted / self.iterations


class RunInfo(_Record):
    """What a folder of results was measured on, and with which arguments."""

    schema_version: int = SCHEMA_VERSION
    protocol: str
    title: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """All that decides what is measured, workload and pair included; a run goes on only with the same."""
    contenders: tuple[str, ...] = ()
    baseline: str | None = None
    """The contender that speedups are ratios to."""
    x_name: str | None = None
    x2_name: str | None = None
    pair: dict[str, Any] = Field(default_factory=dict)
    """As `ModelPair.describe` tells it."""
    machine: dict[str, str] = Field(default_factory=dict)
    """Processor, cores, memory, device, system."""
    versions: dict[str, str] = Field(default_factory=dict)
    threads: int = 1
    started: datetime
    ended: datetime | None = None
    """None while it runs, and where it was cut short."""
    notes: tuple[str, ...] = ()
    """Sentences on what differs from what was asked: lengths cut, prompts left out."""
