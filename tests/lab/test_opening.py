"""What a cell shows until its lab draws: what is awaited, above the pictures of the saved notebook."""

import json
from types import SimpleNamespace

import pytest

from speclab.drafters.dynatree import DynaTree
from speclab.lab._form import LabConfig, ModelChoice
from speclab.lab._saved import Saved
from speclab.lab._state import LabState
from speclab.settings import SessionSettings

PNG = "iVBORw0KGgo="
OF_THE_PAGE = f'<img src="data:image/png;base64,{PNG}" alt="tree and mask" width="900" style="">'


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """What a lab that loads its models shows, if the notebook has these outputs of its cell."""
    path = tmp_path / "notebook.ipynb"
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    request = {"metadata": {"cellId": "lab"}, "content": {"allow_stdin": True}}
    kernel = SimpleNamespace(get_parent=lambda _: request)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=kernel))
    published = []
    monkeypatch.setattr(
        "IPython.display.publish_display_data", lambda data, *_, **__: published.append(data)
    )

    def show(notebook: object) -> str:
        path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook))
        config = LabConfig(ModelChoice("mini"), DynaTree(), "Once", SessionSettings())
        Saved(LabState(wanted=config, busy="Loading mini")).display(None, {}, {})
        return published[-1]["text/html"]

    return show


def cell(*outputs, name="lab"):
    return {"id": name, "cell_type": "code", "outputs": [{"data": data} for data in outputs]}


def test_the_pictures_of_the_saved_cell_stay_below_what_is_awaited(shown):
    other = cell({"image/png": "b3RoZXI="}, name="other")
    html = shown({"cells": [other, cell({"image/png": PNG}, {"text/html": [OF_THE_PAGE, "text"]})]})
    assert "mini" in html
    assert html.count("<img") == html.count(PNG) == 2
    assert "b3RoZXI=" not in html


@pytest.mark.parametrize(
    "notebook",
    [
        "",
        "[]",
        "{}",
        {"cells": [cell({"text/html": '<img src="x" onerror="alert(1)"><script>1</script>'})]},
        {"cells": [{"cell_type": "code", "outputs": []}]},
    ],
)
def test_without_pictures_there_is_the_line_alone_and_nothing_foreign(shown, notebook):
    html = shown(notebook)
    assert "mini" in html
    assert "<img" not in html
    assert "script" not in html
