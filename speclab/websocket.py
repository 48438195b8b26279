"""Under JupyterLab as `speclab lab` starts it, what the kernel says reaches the browser at once.

A kernel answers a click with several small messages. By TCP's own rule (Nagle) the second waits until the browser has
acknowledged the first, and a browser takes up to 40 ms for that: most of what a small change takes. Jupyter's server
leaves that rule on, so this extension of it switches it off, for the sockets of kernels alone.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: Any) -> None:
    """Whatever class of connection the server was set to use, each one of it is prompt."""
    settings = app.web_app.settings
    connection: Any = settings["kernel_websocket_connection_class"]

    class Prompt(connection):  # type: ignore[misc]
        async def connect(self) -> Any:
            self.websocket_handler.set_nodelay(True)
            return await super().connect()

    settings["kernel_websocket_connection_class"] = Prompt
