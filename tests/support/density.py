"""How densely code is written, in the package and in the lessons."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

DENSEST = {
    "splats in displays": 6,
    "conditional expressions": 15,
    "comprehensions": 25,
    "comprehensions with two for": 0.5,
    "assignments of tuples": 0.5,
    "truth used as a number": 0,
}
"""Most of each per 1,000 lines of code: one statement is read at a time."""

COUNTED = {
    tokenize.NAME,
    tokenize.OP,
    tokenize.NUMBER,
    tokenize.STRING,
    getattr(tokenize, "FSTRING_START", -1),
}
"""Tokens that are code."""


def _dense(node):
    """What makes a line hard to read aloud, if the node does."""
    if isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load):
        return "splats in displays"
    if isinstance(node, ast.IfExp):
        return "conditional expressions"
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        several = len(node.generators) > 1
        return "comprehensions with two for" if several else "comprehensions"
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
        several = any(isinstance(target, ast.Tuple) for target in node.targets)
        return "assignments of tuples" if several else None
    if isinstance(node, ast.BinOp):
        sides = [side for side in (node.left, node.right) if isinstance(side, ast.Compare)]
        # `|` and `&` of arrays compare them element by element
        bitwise = isinstance(node.op, ast.BitOr | ast.BitAnd)
        return "truth used as a number" if sides and not bitwise else None
    return None


def too_dense(texts):
    """What packs the lines of modules or cells more often than it may, with how often it does."""
    found = Counter[str]()
    lines = 0
    for text in texts:
        tree = ast.parse(text)
        handed = {arg for node in ast.walk(tree) if isinstance(node, ast.Call) for arg in node.args}
        for node in ast.walk(tree):
            kind = _dense(node)
            if kind and node not in handed:
                found[kind] += 1
                if "two for" in kind:
                    found["comprehensions"] += 1
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        lines += len({token.start[0] for token in tokens if token.type in COUNTED})
    density = {kind: 1000 * count / lines for kind, count in found.items()}
    return {kind: most for kind, most in density.items() if most > DENSEST[kind]}
