"""A question before the run: what it shows with and without a kernel, what it says, and what counts."""

from __future__ import annotations

import numpy as np
import pytest

from speclab.lab.prediction import Prediction

ASKED = "How many tokens does this pass give?"


def test_what_was_predicted_is_said_however_often_the_cell_runs():
    assert repr(Prediction("Which?", ("tree", "chain")).reveal("tree", "So.")) == "tree. So.", (
        "nobody predicted"
    )
    for answer, sign in ((3, "✓"), (2, "✗"), (9, "✗")):
        asked = Prediction(ASKED, (2, 3, 9))
        asked.predict(answer)
        says = asked.reveal(np.int64(3), "Two accepted, and the bonus.")
        assert says.startswith(sign)
        assert says.endswith("3. Two accepted, and the bonus.")
        assert asked.reveal(3, "Two accepted, and the bonus.") == says
        assert asked._field.disabled, "the answer is final"
    worded = Prediction("Which?", ("tree", "chain"))
    worded.predict("tree")
    assert worded.reveal("tree").startswith("✓")


@pytest.mark.parametrize(
    ("typed", "read", "says"),
    [
        ("0,4", True, "✓ Right, you predicted 0.4. It is 0.385. So."),
        (" 0.3 ", True, "✗ You predicted 0.3. It is 0.385. So."),
        ("much", False, "0.385. So."),
        ("inf", False, "0.385. So."),
    ],
)
def test_a_number_is_typed_and_may_be_off_a_little(typed, read, says):
    asked = Prediction("Which share?", within=0.05)
    asked._field.value = typed
    assert (asked._note.value == "") == read, "a hint if it is no number"
    assert asked.reveal(5 / 13, "So.") == says


def test_it_shows_itself_with_a_kernel_and_without():
    shown = Prediction("a < b?", (1, 2))._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"] == "a < b? (1 · 2)"
    assert "a &lt; b?" in shown["text/html"]
    assert "✓" not in Prediction(ASKED).reveal(3)._repr_html_()
