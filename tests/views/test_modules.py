"""The page's scripts are ES modules; `joined` makes one script of them."""

from __future__ import annotations

import re

import pytest

from speclab.lab.lab import Lab
from speclab.live.export import SCRIPTS
from speclab.views.modules import joined


@pytest.mark.parametrize("other", ['import { a } from "./a.js";\nexport const b = a;\n', ""])
def test_circles_and_unknown_names_are_refused(tmp_path, other):
    entry = tmp_path / "a.js"
    entry.write_text('import { b } from "./b.js";\nexport const a = b;\n')
    (tmp_path / "b.js").write_text(other)
    with pytest.raises(ImportError):
        joined(entry)


@pytest.mark.parametrize("script", [Lab._esm, joined(SCRIPTS / "worker.js")])
def test_names_are_unique_in_a_script(script):
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.M)
    assert len(names) == len({*names}) > 0
