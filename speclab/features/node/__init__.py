"""The tab of the node that is selected."""
