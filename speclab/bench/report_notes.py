"""The small print of a report: what each figure and table means."""

from __future__ import annotations

COST = (
    "Median of every verification of that many rows, all contenders together: the pass of the target and what prepares "
    "it. A larger mark stands for more passes."
)
LOOPS = (
    "A text loops when more than half of its last 64 tokens end a 4-gram that it held before. Small models loop in "
    "greedy decoding, and a loop is easy to guess: it flatters every kind of drafting."
)
TRADE = (
    "Each dashed ray joins equal speeds, as multiples of plain decoding's. More tokens an iteration help only as far "
    "as the iteration does not cost as much more. From the first token on; means."
)
WHERE = (
    "Host: everything outside forward passes, such as building trees and masks, choosing, keeping caches in order. The "
    "prefill is in the first figure and not in the second."
)
SPEED = (
    "Tokens a second of the whole call, prefill included. The mark is the median over prompts of the median over "
    "rounds, the bar its quartiles, the dashed rule the baseline."
)
ACCEPTANCE = (
    "The paper's acceptance is DynaTree's: committed tokens, the target's own included, over the longest drafted path, "
    "so it may exceed 100%. The path before the bonus is in tokens an iteration."
)
MEMORY = (
    "On a CPU it is what the process has resident, freed memory included that the system has not taken back: small "
    "differences tell nothing."
)
GROWTH = (
    "Speed from the call up to so many new tokens, over the baseline's up to the same place of the same prompt; the "
    "fastest of ours and of the peers."
)
HOW = (
    "All contenders decode each prompt in turn, the order changed every round; a first round warms up and is not kept.",
    "The device is waited for before each reading of the clock.",
    "A ratio is of two calls on the same prompt in the same round.",
    "Every text is compared with the target's own greedy decoding.",
)
