"""A FigureWidget for pages that are built late: they get what is drawn, not what was drawn at first."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go


class LateFigure(go.FigureWidget):
    """plotly sends changes as messages, and the widget's state keeps the figure as it was made.

    A page that is built from the state, as Voilà's is, and JupyterLab's once it is loaded again, would show that.
    """

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """As of any widget; the whole state holds the traces and the layout as they are now."""
        if key is None and "_widget_data" in self._trait_values:
            drawn = self.to_plotly_json()
            self._trait_values |= {"_widget_data": drawn["data"], "_widget_layout": drawn["layout"]}
        return super().get_state(key, drop_defaults)  # type: ignore[no-any-return]
