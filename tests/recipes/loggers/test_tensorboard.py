"""The TensorBoard logger."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.recipes.loggers.fake_run import CRASHED, RESUMED, log_run


class Writer:
    """A fake SummaryWriter."""

    instances: list["Writer"] = []

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step, self.calls = folder, purge_step, list[tuple[Any, ...]]()
        Writer.instances.append(self)

    def add_scalar(self, *call: Any) -> None:
        self.calls.append(call)

    def add_text(self, *call: Any) -> None:
        self.calls.append(call)

    def flush(self) -> None:
        self.calls.append(("flushed",))

    def close(self) -> None:
        self.calls.append(("closed",))


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "instances", [])
    return Writer.instances


def test_metrics_and_samples_are_written(writers: list[Writer], tmp_path: Path) -> None:
    log_run("tensorboard", tmp_path, CRASHED)
    log_run("tensorboard", tmp_path, RESUMED)
    first, second = writers
    assert first.folder == str(tmp_path / "tensorboard")
    assert (first.purge_step, second.purge_step) == (None, 2)
    assert (
        "settings",
        "| setting | value |\n|---|---|\n| optim.lr | 0.001 |\n| training.max_steps | 4 |",
        0,
    ) in first.calls
    for call in (
        ("train/loss", 8.0, 2),
        ("validation/loss", 1.0, 4),
        ("sample/0", "prediction: words 4\n\nlabel: w", 4),
        ("final/test.bleu", 40.0, 4),
    ):
        assert call in second.calls
    assert first.calls[-1] == second.calls[-1] == ("closed",)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_shows_each_step_once_and_every_sample(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    log_run("tensorboard", tmp_path, CRASHED)
    log_run("tensorboard", tmp_path, RESUMED)
    accumulator = EventAccumulator(str(tmp_path / "tensorboard"))
    accumulator.Reload()
    losses = [(event.step, event.value) for event in accumulator.Scalars("train/loss")]
    assert losses == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert [event.step for event in accumulator.Scalars("validation/loss")] == [2, 4]
    assert [event.value for event in accumulator.Scalars("final/test.bleu")] == [40.0]
    texts = accumulator.Tensors("sample/0/text_summary")
    assert [(event.step, event.tensor_proto.string_val[0]) for event in texts] == [
        (2, b"prediction: words 2\n\nlabel: w"),
        (4, b"prediction: words 4\n\nlabel: w"),
    ]
    assert b"optim.lr" in accumulator.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]
