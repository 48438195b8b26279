"""The page's scripts are ES modules; `joined` makes one script of them."""

from __future__ import annotations

import re

import pytest

from speclab.lab.lab import Lab
from speclab.live.export import SCRIPTS
from speclab.views.modules import joined


def test_circles_are_refused(tmp_path):
    for here, other in ("ab", "ba"):
        text = f'import {{ {other} }} from "./{other}.js";\nexport const {here} = {other};\n'
        (tmp_path / f"{here}.js").write_text(text)
    with pytest.raises(ImportError):
        joined(tmp_path / "a.js")


@pytest.mark.parametrize("script", [Lab._esm, joined(SCRIPTS / "worker.js")])
def test_names_are_unique_in_a_script(script):
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.M)
    assert len(names) == len({*names}) > 0
