"""The tab of numbers over the iterations."""
