"""SuffixDecoding's figure: the pattern, the counted tokens in the order they were added, and the score that won."""

from __future__ import annotations

from dataclasses import replace

import pytest
from table_runner import table_pair

import speclab
from speclab import views
from speclab.errors import NotRecordedError
from speclab.views.figures import figure
from speclab.views.playback import PlaybackPosition
from speclab.views.suffix_chart import suffixes_drawing, suffixes_table, suffixes_words

REQUEST = [1, 2, 3, 5, 0, 1, 2, 4, 0, 1, 2, 3, 6, 7, 7, 1]
"""The target goes on with 2; after 1 2 came 3 twice and 4 once, then 5 or 6."""
EARLIER = [[2, 3, 5, 5], [2, 6]]


def trace_of(strategy, new=2):
    def probs(path):
        return [0.02] * 2 + [0.86 if path[-1] == 1 else 0.02, 0.86 if path[-1] == 2 else 0.02] + [0.02] * 4

    pair = replace(table_pair(probs, None, 8), shared_state={})
    if isinstance(strategy, speclab.SuffixDecoding) and strategy.max_cached_requests:
        strategy.learn(pair, EARLIER)
    session = speclab.Session(pair, strategy, REQUEST, max_new_tokens=new)
    session.run()
    return session.trace


@pytest.fixture(scope="module")
def trace():
    return trace_of(speclab.SuffixDecoding(max_spec_factor=2, max_cached_requests=9))


def texts(spec):
    """Labels and second lines of the tree's nodes."""
    found = [one for one in spec["data"] if one["mode"] == "text"]
    return [text for one in found for text in one["text"]]


def test_the_tree_has_the_pattern_and_every_follower_with_its_counts(trace):
    said, tree, read, scores = suffixes_drawing(trace, 1)
    shown = texts(tree)
    assert {"#1", "0 #2"} <= set(shown), "the pattern that was looked up"
    assert {"1 #3", "2 #4", "3 #6", "4 #5"} <= set(shown), "numbered as added"
    assert {"2/3→.67", "1/3→.33", "1/2→.33"} <= set(shown)
    assert all(figure(part, theme) for part in (tree, scores) for theme in ("light", "dark"))
    assert "D(N)" in read
    assert "found 3 times in this request: 4 tokens of at most 4" in said


def test_a_path_that_does_not_fit_is_dragged_and_has_its_notes_whole():
    def probs(path):
        return [0.93 if token == (path[-1] + 1) % 8 else 0.01 for token in range(8)]

    pair = replace(table_pair(probs, None, 8), shared_state={})
    session = speclab.Session(pair, speclab.SuffixDecoding(max_spec_factor=4), [*range(8)] * 4, max_new_tokens=8)
    session.run()
    tree = suffixes_drawing(session.trace, 1)[1]
    layout, notes = tree["layout"], [text for text in texts(tree) if "/" in text]
    assert len(notes) > 20
    assert not [note for note in notes if "…" in note]
    assert layout["dragmode"] == "pan"
    assert layout["xaxis"]["range"][1] <= layout["width"] < layout["meta"]["fit"]["x"][1]


def test_what_was_counted_and_not_drafted_is_shown_as_such():
    trace = trace_of(speclab.SuffixDecoding(max_spec_factor=2, min_token_prob=0.5))
    tree = suffixes_drawing(trace, 1)[1]
    assert "#4" in texts(tree)
    (open_ones,) = (one for one in tree["data"] if one["name"] == "counted, not drafted")
    assert len(open_ones["x"]) == 1
    assert "square-open" in open_ones["marker"]["symbol"]


def test_it_grows_with_the_levels_of_the_draft(trace):
    def numbered(level):
        tree = suffixes_drawing(trace, 1, PlaybackPosition("draft", level))[1]
        return {text for text in texts(tree) if text[0] in "1234" and " #" in text}

    assert numbered(0) == set()
    assert numbered(1) == {"1 #3", "2 #4"}
    assert numbered(2) == {"1 #3", "2 #4", "3 #6", "4 #5"}


def test_the_scores_are_of_every_pattern_length_and_the_winner_is_marked(trace):
    scores = suffixes_drawing(trace, 1)[-1]
    here, earlier = ((one["x"], one["y"]) for one in scores["data"])
    assert here == ([1, 2], [pytest.approx(1.0, abs=1e-4), pytest.approx(5 / 3, abs=1e-4)])
    assert earlier == ([1], [1.0])
    marks = [one for one in scores["layout"]["annotations"] if one["showarrow"]]
    assert [(one["x"], one["text"]) for one in marks] == [(2, "taken: 1.67, this request")]
    assert "2 pattern lengths in this request and 1 pattern length in earlier outputs" in suffixes_words(trace, 1)


def test_the_table_holds_the_same(trace):
    table = suffixes_table(trace, 1)
    assert all(fact in table for fact in ("taken", "1.667", "2 of 3", "0.667", "this request"))
    assert table.count("<tr") == 2 + 3 + 4


def test_other_strategies_have_none():
    trace = trace_of(speclab.PromptLookup(budget="fixed"))
    assert (suffixes_drawing(trace, 1), suffixes_words(trace, 1), suffixes_table(trace, 1)) == ("", "", "")
    with pytest.raises(NotRecordedError, match="SuffixDecoding"):
        views.suffixes(trace, 1)


def test_an_iteration_in_which_nothing_likely_followed_says_so():
    trace = trace_of(speclab.SuffixDecoding(max_cached_requests=9, min_token_prob=1.0))
    assert "decodes alone" in suffixes_words(trace, 1)
    assert len(suffixes_drawing(trace, 1)) == 2
