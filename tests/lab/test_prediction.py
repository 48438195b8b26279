"""A question before the run: what it shows with and without a kernel, what it says, and what counts."""

from __future__ import annotations

import numpy as np
import pytest

import speclab
from speclab.errors import SettingsError
from speclab.lab.prediction import Prediction

ASKED = "How many tokens does this pass give?"
WHY = "Two accepted, and the bonus."


@pytest.fixture(autouse=True)
def no_score_yet(monkeypatch):
    monkeypatch.setattr(Prediction, "_right", {})


@pytest.fixture
def asked():
    return speclab.Prediction(ASKED, choices=(1, 2, 3, 4))


def test_what_nobody_predicted_reads_the_same_on_every_machine(asked):
    assert repr(asked.reveal(3, WHY)) == "3. Two accepted, and the bonus."
    assert repr(Prediction.score()) == "No prediction was made."


@pytest.mark.parametrize(
    ("answer", "says", "counts"),
    [
        (3, "✓ Right, you predicted 3. Two accepted, and the bonus.", "1 of 1 predictions right."),
        (2, "✗ You predicted 2. It is 3. Two accepted, and the bonus.", "0 of 1 predictions right."),
    ],
)
def test_what_was_predicted_is_said_and_counted_once(asked, answer, says, counts):
    asked.predict(answer)
    assert asked.reveal(np.int64(3), WHY) == asked.reveal(3, WHY) == says
    assert Prediction.score() == counts
    assert asked._field.disabled, "it stands from then on"


def test_a_cell_run_again_asks_again_and_counts_once():
    for answer in (1, 2):
        again = Prediction(ASKED, (1, 2))
        again.predict(answer)
        again.reveal(2)
    Prediction("Which?", ("tree", "chain")).reveal("tree")
    assert Prediction.score() == "1 of 1 predictions right."


@pytest.mark.parametrize(
    ("typed", "echo", "says"),
    [
        ("0,4", "You predict 0.4.", "✓ Right, you predicted 0.4. It is 0.385. So."),
        (" 0.3 ", "You predict 0.3.", "✗ You predicted 0.3. It is 0.385. So."),
        ("much", "Type a number, such as 3 or 0.5.", "0.385. So."),
        ("inf", "Type a number, such as 3 or 0.5.", "0.385. So."),
        ("", "", "0.385. So."),
    ],
)
def test_a_number_is_typed_and_may_be_off_a_little(typed, echo, says):
    asked = Prediction("Which share?", within=0.05)
    asked._field.value = typed
    assert asked._note.value == echo
    assert asked.reveal(5 / 13, "So.") == says


def test_it_shows_itself_with_a_kernel_and_without(asked):
    shown = asked._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"] == f"{ASKED} (1 · 2 · 3 · 4)"
    assert ASKED in shown["text/html"]
    assert "1 · 2 · 3 · 4" in shown["text/html"]
    assert Prediction("a < b?")._repr_mimebundle_()["text/html"] == "<p><b>a &lt; b?</b> (a number)</p>"
    assert "✓" not in asked.reveal(3)._repr_html_()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Prediction(""),
        lambda: Prediction(ASKED, ()),
        lambda: Prediction(ASKED, (1, 1)),
        lambda: Prediction(ASKED).predict("many"),
        lambda: Prediction(ASKED, (1, 2)).predict(3),
        lambda: Prediction(ASKED).reveal("many"),
        lambda: Prediction(ASKED, ("tree", "chain")).reveal("trees"),
    ],
)
def test_what_cannot_be_asked_or_answered_is_said_in_one_sentence(wrong):
    with pytest.raises(SettingsError, match=r"^[^\n]{20,160}$"):
        wrong()


def test_a_truth_that_is_no_choice_is_a_wrong_prediction():
    asked = Prediction(ASKED, (1, 2))
    asked.predict(2)
    assert asked.reveal(5) == "✗ You predicted 2. It is 5."
