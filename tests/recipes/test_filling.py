"""Hidden words are found, alone and in pairs of sentences."""

from pathlib import Path

import pytest

from softlook.recipes import evaluate, fill
from softlook.recipes.settings import Tokens
from softlook.train.events import Evaluated, Event, Sampled
from tests.recipes.small import filling, said


@pytest.mark.parametrize("pairs", [False, True])
def test_hidden_words_are_found_more_often_than_by_chance(pairs: bool, tmp_path: Path) -> None:
    heard: list[Event] = []
    asked = filling(tmp_path, steps=60, pairs=pairs, tokens=Tokens(kind="words", vocab=60), train={"average": 0.0})
    trained = fill(asked, [heard.append])
    again = evaluate(trained.folder, asked.data, device="cpu")  # of what is held out, a single word is asked for
    assert again["found"] > 0.2 and again["loss"] > 0  # of some 25 words
    assert ("pairs_right" in trained.scores) == pairs
    assert said(heard, Sampled)[-1].samples[0].keys() == {"text", "said", "wanted"}


def test_the_same_words_are_hidden_at_every_look(tmp_path: Path) -> None:
    heard: list[Event] = []
    fill(filling(tmp_path, steps=4, optim={"lr": 1e-12}, train={"evaluate_every": 1}), [heard.append])
    losses = [event.scores["loss"] for event in said(heard, Evaluated)]
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-5)
