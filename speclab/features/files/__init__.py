"""A run as a file: the lab saves it, as a trace or as a page, and opens one."""
