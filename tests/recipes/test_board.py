"""TensorBoard hears what happens, where it is installed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from softlook.recipes import lm
from softlook.recipes.board import Board
from softlook.train.events import Evaluated, Finished, Sampled, Trained
from tests.recipes.small import language


class Writer:
    """Stands in for TensorBoard's."""

    made: list["Writer"] = []

    def __init__(self, folder: str) -> None:
        self.folder, self.said = folder, list[tuple[Any, ...]]()
        Writer.made.append(self)

    def add_scalar(self, *said: Any) -> None:
        self.said.append(said)

    def add_text(self, *said: Any) -> None:
        self.said.append(said)

    def close(self) -> None:
        self.said.append(("closed",))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


def test_numbers_and_words_are_passed_on(written: list[Writer], tmp_path: Path) -> None:
    board = Board(tmp_path)
    for event in (
        Trained(3, loss=2.0, lr=0.1, gradient=1.0, tokens_per_second=9.0, seconds=1.0),
        Evaluated(3, {"loss": 1.5}, is_best=True),
        Sampled(3, [{"said": "words"}]),
        Finished(3, "done", 1.0),
    ):
        board(event)
    assert ("train/loss", 2.0, 3) in written[0].said
    assert ("held_out/loss", 1.5, 3) in written[0].said
    assert ("sample/0", "said: words", 3) in written[0].said
    assert written[0].said[-1] == ("closed",)


def test_a_run_uses_it_where_it_is_there(
    written: list[Writer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("softlook.recipes.carrying.find_spec", lambda name: object())
    lm(language(tmp_path))
    assert written[0].folder == str(tmp_path / "run" / "tensorboard")
    assert len(written[0].said) > 4
