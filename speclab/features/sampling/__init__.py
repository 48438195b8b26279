"""The draw from the residual when sampling: its picture, its numbers, the rule of blocks."""
