"""Draft heads: small modules that read the target's states; their runners, folders and formats."""
