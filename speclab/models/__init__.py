"""Models: runners with their KV caches, pairs, presets. Import the modules themselves: this file is cheap."""
