"""Pictures of many nodes: whether stated probabilities came true, and ranks by depth."""

from speclab.features.nodes.marginals_picture import marginals as marginals
from speclab.features.nodes.ranks_picture import ranks as ranks
