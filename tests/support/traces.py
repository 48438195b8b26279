"""A trace with something in every field."""

from speclab.trace.metrics import Counts
from speclab.trace.records import Adaptation, CacheRecord, Event, ExtraRow, NodeRecord, Step, Trace
from speclab.tree import DraftTree


def step_of(tree, index=0, prefix=3):
    """A step with something in every field, whose drafted root alone was accepted; the text ends inside every other."""
    n = len(tree)
    bonus = None if index else 1
    committed = (int(tree.token[0]), *([] if bonus is None else [bonus]))
    nodes = tuple(
        NodeRecord(
            index=i,
            token=int(tree.token[i]),
            draft_prob=0.1 + i / 97,
            path_prob=1 / 3,
            target_prob=0.25,
            target_choice=i % 5,
            verdict="rejected" if i else "accepted",
            kv_slot=prefix + i,
            entropy=1.5,
            choice_prob=0.5,
            target_top=((2, 0.5), (1, 0.25)),
            draft_top=((2, 0.75),) if i else (),
        )
        for i in range(n)
    )
    return Step(
        index=index,
        prefix_length=prefix,
        tree=tree,
        nodes=nodes,
        accepted=(0,),
        committed=committed,
        bonus=bonus,
        root_choice=int(tree.token[0]),
        settings={
            "base_depth": 5,
            "high_confidence": 0.9,
            "history": True,
            "root": "verified",
            "top_k": None,
        },
        events=(Event("expand", 0, {"confidence": 0.5, "branches": 2}), Event("route", None)),
        caches=(CacheRecord("target", prefix, n + 2, (3, 4), ((4, 3),), 5, 5, 64, 1024),),
        seconds={"draft": 0.25, "verify": 1e-9},
        adaptation=Adaptation("bolder", {"mean": 0.9}, {"base_depth": 5}, {"base_depth": 6}),
        counts=Counts(1, len(committed), n, 1, 3, 1, 2, 0.1),
        mask=tree.ancestor_mask(),
        prefix_seen=(prefix,) * n,
        texts={3: " the", 1: "\n", 0: "<0xE2>"},
        note="x",
        extra=(ExtraRow(3, 1, (0, n), prefix, 1), ExtraRow(0, 2, (0, n, n + 1), prefix, 3)),
    )


def trace_of(*steps):
    return Trace(
        prompt_ids=(1, 2, 3),
        first_token=4,
        steps=steps,
        settings={"strategy": "DynaTree", "temperature": 0.0, "top_p": None},
        models={"target": "mini", "threads": 1, "parameters": 11_000_000},
        texts={1: "a", 2: "\u2028", 3: "</script>"},
        prefill_seconds=0.5,
        finished="max_new_tokens",
    )


TREE = DraftTree.of(
    [4, 5, 6, 5], [-1, 0, 0, 2], [0.0, -0.25, -1.5, -2.0], ["target", "draft", "draft", "draft"]
)


def place_in(data, chance, deeper):
    """A list or object of parsed JSON and a key of it; it lies deeper with a probability."""
    while True:
        key = chance.choice([*range(len(data))] if isinstance(data, list) else [*data])
        inner = data[key]
        if not (isinstance(inner, dict | list) and inner and chance.random() < deeper):
            return data, key
        data = inner
