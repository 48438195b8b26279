"""The tab of the KV caches."""
