"""Masked language models, with and without next-sentence prediction."""

from pathlib import Path

import pytest

from softlook.recipes import evaluate, train_masked_lm
from softlook.recipes.config.schema import TokenizerConfig
from softlook.train.events import Evaluated, Event, Sampled
from tests.recipes.small import events_of, masked_lm_config


@pytest.mark.parametrize("next_sentence", [False, True])
def test_masked_tokens_are_predicted_better_than_by_chance(next_sentence: bool, tmp_path: Path) -> None:
    events: list[Event] = []
    config = masked_lm_config(
        tmp_path,
        steps=60,
        next_sentence=next_sentence,
        tokenizer=TokenizerConfig(type="words", vocab_size=60),
        train={"ema_decay": 0.0},
    )
    trained = train_masked_lm(config, [events.append])
    scores = evaluate(trained.run_dir, config.data, device="cpu")  # the validation split masks a single token
    assert scores["accuracy"] > 0.2 and scores["loss"] > 0  # of about 25 words
    assert ("next_sentence_accuracy" in trained.scores) == next_sentence
    assert events_of(events, Sampled)[-1].samples[0].keys() == {"text", "prediction", "label"}


def test_the_same_tokens_are_masked_in_every_evaluation(tmp_path: Path) -> None:
    events: list[Event] = []
    train_masked_lm(
        masked_lm_config(tmp_path, steps=4, optim={"lr": 1e-12}, train={"evaluate_every": 1}), [events.append]
    )
    losses = [event.scores["loss"] for event in events_of(events, Evaluated)]
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-5)
