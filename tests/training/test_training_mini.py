import torch

import speclab
from speclab.prompts import examples

# Written for this test.
TEXT = """The old man and his daughter lived in a little house by the sea. Every morning he went down to the shore to
mend his nets, and she carried the water from the well. "Father," she said one day, "I have seen a ship with
white sails, and it came so near that I could hear the men singing." The old man put down his work and looked
at her for a long time before he spoke."""


@torch.no_grad()
def test_the_target_reads_up_to_its_last_position_and_the_draft_agrees():
    pair = speclab.load_pair(dtype="float32")
    tokenizer, target, draft = pair.tokenizer, pair.target.model, pair.draft.model
    ids = tokenizer(TEXT, return_tensors="pt").input_ids
    expected = target(ids, labels=ids)
    guessed = draft(ids, labels=ids)
    # Uniform guessing costs ln 4096 = 8.3 nats per token.
    assert expected.loss < 4.2
    assert guessed.loss < 5.0
    assert (expected.logits.argmax(-1) == guessed.logits.argmax(-1)).float().mean() >= 0.5
    ids = tokenizer("\n\n".join(p.text for p in examples()) * 2, return_tensors="pt").input_ids[
        :, :1024
    ]
    losses = torch.nn.functional.cross_entropy(
        target(ids).logits[0, :-1], ids[0, 1:], reduction="none"
    )
    assert len(losses) == 1023
    assert losses[-128:].mean() < 5.5, "all positions work"
