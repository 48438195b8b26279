import lzma

import pytest
import torch

from training.data import EOT, TokenizerConfig, train_tokenizer
from training.loop import Schedule
from training.model import Shape, build

MIXTURE = {"tales": 0.75, "sums": 0.25}


def written(folder, name, documents):
    text = f"\n{EOT}\n".join(documents) + "\n"
    (folder / f"{name}.txt.xz").write_bytes(lzma.compress(text.encode()))


@pytest.fixture(scope="session")
def write_source():
    """Writes a source of a corpus."""
    return written


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    animals = ["fox", "hen", "cat", "owl", "hare"]
    tales = [
        f"The {animals[i % 5]} met the {animals[i * 7 % 5]}, day {i}.\n\nSpoke “naïvely” of {i * i} tales."
        for i in range(200)
    ]
    written(folder, "tales", tales)
    written(folder, "sums", [f"{i} + {i + 3} = {2 * i + 3}\n#### {2 * i + 3}" for i in range(240)])
    return folder


@pytest.fixture(scope="session")
def tokenizer_folder(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(TokenizerConfig(corpus=corpus, out=out, vocab_size=300, mixture=MIXTURE))
    return out


@pytest.fixture
def target():
    """Of five layers, since no head of the formats reads the last; random weights, so that a wrong pass shows."""
    model = build(Shape(hidden=16, layers=5, heads=2, context=64, vocab_size=320), 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@pytest.fixture
def resumed(monkeypatch):
    """Whether a run that was stopped after three of six steps ends with the weights of an unbroken one."""

    def check(run):
        whole = run("whole")
        progress = Schedule.progress
        with monkeypatch.context() as patch:
            patch.setattr(
                Schedule,
                "progress",
                lambda self, step, s: 1.0 if step == 3 else progress(self, step, s),
            )
            run("broken")
        again = run("broken").state_dict()
        return all(torch.equal(weight, again[name]) for name, weight in whole.state_dict().items())

    return check
