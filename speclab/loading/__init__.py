"""Loading: presets, hub ids, folders and GGUF files, tokenizers and chat templates."""
