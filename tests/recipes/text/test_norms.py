"""Post-norm models get a longer warmup."""

from pathlib import Path

import pytest
import torch

from softlook.recipes import train_translation
from softlook.recipes.config.autosize import ComputeBudget, plan_schedule
from softlook.recipes.config.schema import TokenizerConfig, TranslationModelConfig
from softlook.train.events import Evaluated, Event
from tests.recipes.small import events_of, translation_config

BUDGET = ComputeBudget(torch.device("cpu"), 1e9, minutes=5.0, is_explicit=True)


def test_post_norm_has_a_longer_warmup() -> None:
    auto = [plan_schedule(0.1, 1e6, 1000, BUDGET, {"model.norm": norm}).values for norm in ("pre", "post")]
    assert [one["training.max_steps"] for one in auto] == [1000, 1000]
    assert [one["optim.warmup"] for one in auto] == [100, 250]


def test_a_post_norm_run_uses_the_longer_warmup_by_default(tmp_path: Path) -> None:
    size = TranslationModelConfig(dim=16, depth=1, heads=2, norm="post")
    auto = train_translation(translation_config(tmp_path, steps=12, run_dir=tmp_path / "auto", model=size))
    explicit = train_translation(
        translation_config(tmp_path, 2, run_dir=tmp_path / "explicit", model=size, optim={"warmup": 7})
    )
    assert auto.resolved.config.optim.warmup == 3
    assert explicit.resolved.config.optim.warmup == 7


@pytest.mark.slow
def test_a_deep_post_norm_model_learns_with_defaults(tmp_path: Path) -> None:
    events: list[Event] = []
    size = TranslationModelConfig(dim=64, depth=4, heads=4, dropout=0.0, norm="post")
    options = {"tokenizer": TokenizerConfig(type="characters"), "reg": {"label_smoothing": 0.0}}
    train_translation(translation_config(tmp_path, steps=150, model=size, optim={}, **options), [events.append])
    assert events_of(events, Evaluated)[-1].scores["loss"] < 0.9  # knowing only the spaces costs 1.2
