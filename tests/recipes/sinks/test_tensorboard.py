"""TensorBoard reads what a run tells, each step once."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.recipes.sinks.story import BROKEN_OFF, GOING_ON, tell


class Writer:
    """Stands in for TensorBoard's."""

    made: list["Writer"] = []

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step, self.said = folder, purge_step, list[tuple[Any, ...]]()
        Writer.made.append(self)

    def add_scalar(self, *said: Any) -> None:
        self.said.append(said)

    def add_text(self, *said: Any) -> None:
        self.said.append(said)

    def flush(self) -> None:
        self.said.append(("flushed",))

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
    tell("tensorboard", tmp_path, BROKEN_OFF)
    tell("tensorboard", tmp_path, GOING_ON)
    first, second = written
    assert first.folder == str(tmp_path / "tensorboard")
    assert (first.purge_step, second.purge_step) == (None, 2)
    assert ("settings", "| setting | value |\n|---|---|\n| optim.lr | 0.001 |\n| training.steps | 4 |", 0) in first.said
    for said in (
        ("train/loss", 8.0, 2),
        ("held_out/loss", 1.0, 4),
        ("sample/0", "said: words 4\n\nwanted: w", 4),
        ("final/test.bleu", 40.0, 4),
    ):
        assert said in second.said
    assert first.said[-1] == second.said[-1] == ("closed",)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_each_step_once_and_every_sample(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    tell("tensorboard", tmp_path, BROKEN_OFF)
    tell("tensorboard", tmp_path, GOING_ON)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    losses = [(event.step, event.value) for event in read.Scalars("train/loss")]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert [event.step for event in read.Scalars("held_out/loss")] == [2, 4]
    assert [event.value for event in read.Scalars("final/test.bleu")] == [40.0]
    texts = read.Tensors("sample/0/text_summary")
    assert [(event.step, event.tensor_proto.string_val[0]) for event in texts] == [
        (2, b"said: words 2\n\nwanted: w"),
        (4, b"said: words 4\n\nwanted: w"),
    ]
    assert b"optim.lr" in read.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]
