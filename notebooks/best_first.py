"""Best first: a strategy that spends a budget on the most probable paths. Lesson 8 and an elective use it."""

import heapq
from types import SimpleNamespace

from pydantic import Field

import speclab
from speclab import Draft, DraftTree, Strategy


class BestFirst(Strategy):
    """Adds the most probable candidate until the budget is spent."""

    node_budget: int = Field(6, ge=2, le=64, description="verified nodes, root included")
    needs_draft = property(lambda self: True)

    def drafter(self, pair):
        return BestFirstDrafter(self, pair)

    def weigh(self, top):
        """The draft's own log-probabilities; a subclass may change them."""
        return top


class BestFirstDrafter(speclab.DraftPassDrafter):
    """Takes the most probable waiting candidate, and lets the draft propose tokens after it."""

    children = 3  # of a node, at most

    def draft(self, context):
        size = min(self.settings.node_budget, context.max_depth + 1)
        passes = self.begin(context, 8)
        tree = SimpleNamespace(token=[context.tokens[-1]], parent=[-1])
        log_probs = [0.0]
        paths = [0.0]
        waiting = []
        while len(tree.token) < size:
            newest = len(tree.token) - 1
            (top,) = passes(tree, [newest])
            for token, log_prob in self.settings.weigh(top)[: self.children]:
                heapq.heappush(waiting, (-paths[newest] - log_prob, newest, token, log_prob))
            cost, parent, token, log_prob = heapq.heappop(waiting)
            tree.token.append(token)
            tree.parent.append(parent)
            log_probs.append(log_prob)
            paths.append(-cost)
        drawn, self.numbers = DraftTree.grown(tree.token, tree.parent, log_probs, ["draft"] * size)
        return Draft(drawn)
