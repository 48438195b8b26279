"""Do a row's bits depend on the rows beside it? For each operator of a model, from which number of rows.

    frame = rows.measure("smollm2")
    rows.picture(frame).show()

"Greedy text differs with speculation: a bug, or rounding?" A verification pass has k + 1 rows where
plain decoding has one. If every operator leaves a row its bits, a text that differs is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from os import PathLike
from typing import TYPE_CHECKING, Any

import pandas as pd

from speclab.errors import SettingsError, first_line
from speclab.views import template

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from transformers import PreTrainedModel

    from speclab.models.bits import Operator
    from speclab.models.runner import Runner

__all__ = ["ROWS", "measure", "picture", "table"]

ROWS = (1, 2, 4, 8, 12, 16, 24, 33)
DTYPES = ("float32", "bfloat16")
MASKED = "whole pass, under a mask"
OWN = "whole pass, by own path"
MOST = 512


def measure(
    model: str | PathLike[str] | PreTrainedModel,
    *,
    dtypes: Sequence[str] | None = None,
    rows: Sequence[int] = ROWS,
    device: str | None = None,
) -> pd.DataFrame:
    """One row per operator and dtype: products, norms, activations, attention in one call, and a
    whole pass over a chain, beside the same rows alone.

    | column | meaning |
    |---|---|
    | `operator`, `shape` | its place in the module, `N` for the number of a layer; of its weights |
    | `dtype`, `device`, `threads` | under which it was measured |
    | `first` | the first of `rows` at which a row's bits are others; missing if none is |
    | `tried` | `rows` |

    Args:
        model: a pair's name (its target), hub id, folder, GGUF file, or a `transformers` module.
        dtypes: by default float32 and bfloat16, of a module its own; others run on a copy.
        rows: numbers of rows to compare with one.
        device: by default CUDA if there is one; a module stays where it is.

    Raises:
        SettingsError: `rows` are no counts, or the model gives no logits for them.
    """
    counts = sorted(set(rows))
    if not counts or counts[0] < 1 or not 2 <= counts[-1] <= MOST:
        raise SettingsError(
            f"rows are numbers from 1 to {MOST}, one of them above 1, such as 1,2,4,8: "
            f"not {list(rows)[:8]}."
        )
    import torch

    frames = []
    for runner in _runners(model, dtypes, device):
        frame = pd.DataFrame(list(_operators(runner, counts)))
        frame["shape"] = ["×".join(map(str, shape)) for shape in frame["shape"]]
        frame["first"] = frame["first"].astype("Int64")
        frame["dtype"] = str(runner.dtype).removeprefix("torch.")
        frame["device"] = str(runner.device)
        frame["threads"] = torch.get_num_threads()
        frame["tried"] = [tuple(counts)] * len(frame)
        frames.append(frame.rename(columns={"name": "operator"}))
    return pd.concat(frames, ignore_index=True)


def _runners(model: Any, dtypes: Sequence[str] | None, device: str | None) -> Iterator[Runner]:
    """A runner per dtype, one at a time."""
    from speclab.loading.loader import Loader, parse_device, parse_dtype, unwrapped
    from speclab.loading.presets import PRESETS

    source: Any = model
    if isinstance(model, str) and model in PRESETS:
        source = PRESETS[model].target
    source = unwrapped(source)
    in_memory = not isinstance(source, str | PathLike)
    if dtypes is None:
        dtypes = DTYPES
        if in_memory:
            dtypes = (str(source.dtype).removeprefix("torch."),)
    for dtype in [parse_dtype(dtype) for dtype in dtypes]:
        copied = source
        if in_memory and dtype != source.dtype:
            copied = deepcopy(source)
        yield Loader(parse_device(device), dtype).runner(copied)


def _operators(runner: Runner, counts: list[int]) -> Iterator[Operator]:
    from speclab.models import bits

    try:
        yield from bits.products(runner, counts)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = first_line(error, 60)
        raise SettingsError(
            f"{runner.name} runs no pass of {counts[-1]} rows ({type(error).__name__}: {reason}): "
            "give a causal language model, or fewer rows."
        ) from None
    longest = runner.context
    if longest is not None and longest < 2 * counts[-1]:
        return
    measures: list[Callable[[], Operator]] = [
        lambda: bits.attention(runner, counts),
        lambda: bits.Operator(MASKED, (), bits.first_of_passes(runner, counts, own=False)),
        lambda: bits.Operator(OWN, (), bits.first_of_passes(runner, counts, own=True)),
    ]
    for measure in measures:
        try:
            operator = measure()
        except Exception:  # a family without exchangeable attention, or without such a cache
            continue
        yield operator


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """The first number of rows at which bits change, a row per operator, a column per dtype."""
    words = frame.assign(first=frame["first"].astype("string").fillna("none"))
    wide = words.pivot(index=["operator", "shape"], columns="dtype", values="first")
    order = words[["operator", "shape"]].drop_duplicates()
    kinds = list(dict.fromkeys(words["dtype"]))
    return wide.reindex(pd.MultiIndex.from_frame(order))[kinds].fillna("")


def picture(frame: pd.DataFrame) -> Figure:
    """A mark for each operator and number of rows: the same bits, or others; a column per dtype."""
    import plotly.express as px

    marks = []
    for row in frame.to_dict("records"):
        name = f"{row['operator']} {row['shape']}".strip()
        for count in row["tried"]:
            bits = "the same"
            if not pd.isna(row["first"]) and count >= row["first"]:
                bits = "others"
            mark = {"operator": name, "rows": str(count), "dtype": row["dtype"], "bits": bits}
            marks.append(mark)
    names = list(dict.fromkeys([mark["operator"] for mark in marks]))
    figure = px.scatter(
        pd.DataFrame(marks),
        x="rows",
        y="operator",
        color="bits",
        symbol="bits",
        facet_col="dtype",
        symbol_map={"the same": "circle", "others": "x"},
        category_orders={
            "operator": names,
            "rows": [str(count) for count in frame["tried"].iloc[0]],
            "bits": ["the same", "others"],
        },
        template=template(),
        height=120 + 24 * len(names),
        title="Bits of a row beside so many rows, and alone",
    )
    figure.update_traces(marker_size=10)
    return figure


def __dir__() -> list[str]:
    return __all__
