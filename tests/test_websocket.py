"""Small messages of a kernel reach the browser at once, under JupyterLab as `speclab lab` starts it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from types import SimpleNamespace

from speclab import host, websocket

ASK = """
from jupyter_core.paths import jupyter_config_path
from jupyter_server.extension.config import ExtensionConfigManager
print(ExtensionConfigManager(read_config_path=jupyter_config_path()).get_jpserver_extensions())
"""


class Connection:
    """Whatever the server was set to use."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.websocket_handler = SimpleNamespace(set_nodelay=self.told.append)

    async def connect(self) -> str:
        self.told.append("connected")
        return "as ever"


def test_a_connection_of_any_class_waits_for_no_acknowledgement():
    settings = {"kernel_websocket_connection_class": Connection}
    websocket._load_jupyter_server_extension(SimpleNamespace(web_app=SimpleNamespace(settings=settings)))
    made = settings["kernel_websocket_connection_class"]()
    assert isinstance(made, Connection)
    assert asyncio.run(made.connect()) == "as ever"
    assert made.told == [True, "connected"]


def test_the_server_finds_the_extension_where_speclab_starts_it():
    """Asked of Jupyter's server itself, in the environment that the command gives it."""
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=host.jupyter_environment(), capture_output=True, text=True, check=True
    )
    assert "'speclab.websocket': True" in done.stdout
    assert websocket._jupyter_server_extension_points() == [{"module": "speclab.websocket"}]
