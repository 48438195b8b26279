"""Where accepted tokens came from, and what routing between two drafts cost."""
