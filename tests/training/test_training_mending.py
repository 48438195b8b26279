from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_source
from hypothesis import given
from hypothesis import strategies as st

from speclab.training.corpus import read_documents
from speclab.training.mending import mended


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("It â€“ the tie â€” was daddyâ€™s.", "It – the tie — was daddy’s."),
        ("He said, â€œThatâ€™s wise.â€ Then â€œGo!â€, again.", "He said, “That’s wise.” Then “Go!”, again."),
        ("â€œOne.\nTwo.â€", "“One.\nTwo.â€"),
        ('"What we can find.â€', '"What we can find.â€'),
        ("â€é and â€日", "â€é and â€日"),
    ],
    ids=["one mark", "closing", "closed in another line", "opened otherwise", "no mark of cp1252"],
)
def test_marks_that_were_encoded_twice(broken, whole):
    assert mended(broken) == whole


@pytest.mark.parametrize("text", ["“café…”", "„Spaß“", "naïvely, â la carte", "5 €, â", "日本 “ƒ”"])
def test_true_text_stays(text):
    assert mended(text) == text


def twice(text: str) -> str:
    """What reading UTF-8 as cp1252 makes of a text; a byte that is no character there is lost."""
    return text.encode().decode("cp1252", errors="ignore")


@given(st.lists(st.sampled_from(["said ", "it’s", "“Yes!”", " – ", "—", "\n", "“No…”"])).map("".join))
def test_what_was_broken_is_whole_again(text):
    assert mended(twice(text)) == text
    assert mended(text) == text


def test_documents_are_mended_as_they_are_read(tmp_path: Path):
    write_source(tmp_path, "tales", ["â€œHello.â€", "Plain."])
    assert read_documents(tmp_path, "tales") == ["“Hello.”", "Plain."]
