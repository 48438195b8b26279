"""Plain decoding of a transformers model: a fresh full pass over the whole text for every token, no cache."""

import math

import torch


def next_logits(model, ids):
    """Logits of the token after `ids`: one full pass, no cache, the model's own causal mask."""
    with torch.no_grad():
        return model(torch.tensor([list(ids)]), use_cache=False).logits[0, -1].double().tolist()


def softmax(logits):
    high = max(logits)
    weights = [math.exp(value - high) for value in logits]
    return [weight / sum(weights) for weight in weights]


def argmax(values):
    return max(range(len(values)), key=lambda token: values[token])


def transformed(logits, temperature, top_k, top_p):
    """Temperature, then the `top_k` likeliest, then the fewest of them that reach `top_p`; renormalised."""
    if temperature == 0:
        best = argmax(logits)
        return [float(token == best) for token in range(len(logits))]
    probs = softmax([value / temperature for value in logits])
    order = sorted(range(len(probs)), key=lambda token: -probs[token])[: top_k or len(probs)]
    mass = sum(probs[token] for token in order)
    kept = []
    reached = 0.0
    for token in order:
        kept.append(token)
        reached += probs[token] / mass
        if top_p is not None and reached >= top_p:
            break
    mass = sum(probs[token] for token in kept)
    return [probs[token] / mass if token in kept else 0.0 for token in range(len(probs))]
