"""Two iterations side by side."""

from __future__ import annotations

from support.view_samples import five_nodes, runs

from speclab.views.drawing import call


def test_trees_side_by_side_are_whole_and_on_the_same_columns():
    step = next(step for step in runs()["two trees"].steps if len(step.accepted) > 1)
    drawn = call("pairFigure", step, five_nodes(), ["As it was", "With depth 2"])
    marks = [trace for trace in drawn["data"] if trace.get("name") == "nodes"]
    assert [len(trace["x"]) for trace in marks] == [len(step.tree) + 1, 6]
    assert "With depth 2: 4 drafted, 2 accepted" in drawn["layout"]["annotations"][1]["text"]
    assert {*marks[1]["x"]} <= {*marks[0]["x"]}
    titles = [note["text"] for note in call("draftsFigure", step)["layout"]["annotations"]]
    others = [proposal.name for proposal in step.proposals if not proposal.chosen]
    assert [title.removeprefix("<b>").split(":")[0] for title in titles] == others
