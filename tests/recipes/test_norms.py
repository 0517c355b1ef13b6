"""Norms behind the layers get the warm-up that they want."""

from pathlib import Path

import pytest
import torch

from softlook.recipes import translate
from softlook.recipes.settings import Tokens, TranslateSizes
from softlook.recipes.sizing import Room, timed
from softlook.train.events import Evaluated, Event
from tests.recipes.small import said, translating

ROOM = Room(torch.device("cpu"), 1e9, minutes=5.0, is_told=True)


def test_norms_behind_are_warmed_up_for_longer() -> None:
    chosen = [timed(0.1, 1e6, 1000, ROOM, {"size.norm": norm}).values for norm in ("pre", "post")]
    assert [one["training.steps"] for one in chosen] == [1000, 1000]
    assert [one["optim.warmup"] for one in chosen] == [100, 250]


def test_a_run_with_norms_behind_is_warmed_up_so_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    size = TranslateSizes(dim=16, depth=1, heads=2, norm="post")
    chosen = translate(translating(tmp_path, steps=12, run=tmp_path / "chosen", size=size))
    told = translate(translating(tmp_path, 2, run=tmp_path / "told", size=size, optim={"warmup": 7}))
    assert chosen.settled.settings.optim.warmup == 3
    assert told.settled.settings.optim.warmup == 7


@pytest.mark.slow
def test_a_deep_model_with_norms_behind_learns_without_being_told_how(tmp_path: Path) -> None:
    heard: list[Event] = []
    size = TranslateSizes(dim=64, depth=4, heads=4, dropout=0.0, norm="post")
    spelled = {"tokens": Tokens(kind="characters"), "batch": {"smoothing": 0.0}}
    translate(translating(tmp_path, steps=150, size=size, optim={}, **spelled), [heard.append])
    assert said(heard, Evaluated)[-1].scores["loss"] < 0.9  # who knows only that every other character is a space: 1.2
