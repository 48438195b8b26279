"""Pictures of a Step or a Trace: pure functions to SVG, HTML or a plotly figure; no model, no widget.

Each module draws one thing and says the same in words: ``summary`` is a sentence, ``table`` an HTML table. SVG and
HTML take their colours from JupyterLab's CSS variables, with a fallback for pages that have none.
"""
