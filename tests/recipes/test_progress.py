"""The recipes show one progress bar, unless they are asked not to; the command line shows its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softlook.cli.main import main
from softlook.recipes import train_classification, train_table
from tests.recipes.small import classification_config, tabular_config


class Recorder:
    """A display that records what is shown."""

    opened: list["Recorder"] = []

    def __init__(self) -> None:
        self.texts, self.is_closed = list[str](), False
        self.opened.append(self)

    def show(self, share: float | None, text: str) -> None:
        self.texts.append(text)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def displays(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    monkeypatch.setattr("softlook.train.progress.find_display", lambda: Recorder)
    monkeypatch.setattr(Recorder, "opened", [])
    return Recorder.opened


RECIPES = [(train_classification, classification_config), (train_table, tabular_config)]


@pytest.mark.parametrize(("train", "make_config"), RECIPES)
def test_a_recipe_shows_one_bar(
    train: Callable[..., Any], make_config: Callable[..., Any], displays: list[Recorder], tmp_path: Path
) -> None:
    config = make_config(tmp_path)
    result = train(config)
    (display,) = displays
    assert display.is_closed and result.finished.reason in display.texts[-1] and "validation loss" in display.texts[-1]
    train(config, progress=False)
    assert displays == [display]


def test_the_command_line_shows_its_own_bar(displays: list[Recorder], tmp_path: Path) -> None:
    config = tabular_config(tmp_path)
    files = ["--data", str(config.data[0]), "--run-dir", str(tmp_path / "cli")]
    with pytest.raises(SystemExit, match="0"):
        single = ("--training.epochs", "1", "--no-baseline", "--ensemble", "single")
        main(["train", "table", *files, "--target", "buys", *single])
    assert displays == []
