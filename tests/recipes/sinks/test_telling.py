"""A run tells its sinks what happens, and comes to no harm by them."""

import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError
from softlook.recipes import lm
from softlook.recipes.sinks import choice, telling
from softlook.recipes.sinks.choice import sinks_of
from softlook.recipes.sinks.sink import About
from softlook.recipes.sinks.telling import Telling
from softlook.train.events import Event, Started, Warned
from tests.recipes.sinks.story import BROKEN_OFF, GOING_ON, SCORES, trained
from tests.recipes.small import language


class Heard:
    """A sink that remembers."""

    said, forgets = "", False

    def __init__(self, about: About, heard: list[Any], *, fails_at: str = "", forgets: bool = False) -> None:
        self.id, self.about, self.heard, self.fails_at = about.known or "mine", about, heard, fails_at
        self.forgets = forgets
        self._hear("open", about.step, about.known)

    def _hear(self, *words: Any) -> None:
        if words[0] == self.fails_at:
            raise OSError("the network is gone\nand more")
        self.heard.append(words)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self._hear("numbers", step, dict(values))

    def samples(self, step: int, samples: Sequence[Mapping[str, str]]) -> None:
        self._hear("samples", step, samples)

    def close(self, step: int, scores: Mapping[str, float], *, complete: bool) -> None:
        self._hear("close", step, dict(scores), complete)


def tell(folder: Path, events: Sequence[Event], scores: Mapping[str, Any], **more: Any) -> list[Any]:
    heard: list[Any] = []
    one = Telling("heard", lambda about: Heard(about, heard, **more), About(folder, {}))
    for event in events:
        one(event)
    one.end(events[-1].step, scores, complete=bool(scores))
    return heard


def steps(heard: list[Any], kind: str) -> list[int]:
    return [words[1] for words in heard if words[0] == "numbers" and f"{kind}/loss" in words[2]]


def test_numbers_samples_and_scores_arrive_in_order(tmp_path: Path) -> None:
    heard = tell(tmp_path, GOING_ON, SCORES)
    kinds = ["open", "numbers", "numbers", "samples", "numbers", "numbers", "numbers", "samples", "close"]
    assert [words[0] for words in heard] == kinds
    assert heard[1][2] == {"train/loss": 8.0, "train/lr": 0.1, "train/gradient": 1.0, "train/tokens_per_second": 9.0}
    assert heard[2][2] == {"held_out/loss": 3.0}
    assert heard[-1] == ("close", 4, {"final/loss": 0.5, "final/test.bleu": 40.0}, True)


def test_steps_that_are_done_again_after_a_crash_are_told_once(tmp_path: Path) -> None:
    before = tell(tmp_path, BROKEN_OFF, {})
    after = tell(tmp_path, GOING_ON, SCORES)
    assert (before[0], after[0]) == (("open", 0, ""), ("open", 1, "mine"))
    assert steps(before + after, "train") == [1, 2, 3, 4]
    assert steps(before + after, "held_out") == [2, 4]
    again = tell(tmp_path, [Started(4, 4, "cpu", "float32", 10)], SCORES)
    assert again[-1] == ("close", 4, {}, True)


def test_what_was_not_told_before_the_crash_is_told_after_it(tmp_path: Path) -> None:
    before = tell(tmp_path, BROKEN_OFF[:3], {})  # killed between a step and the look behind it
    after = tell(tmp_path, GOING_ON, SCORES)
    assert steps(before + after, "train") == [1, 2, 3, 4]
    assert steps(before + after, "held_out") == [2, 4]


def test_a_sink_that_forgets_by_itself_is_told_all_numbers_again(tmp_path: Path) -> None:
    tell(tmp_path, BROKEN_OFF, {}, forgets=True)
    after = tell(tmp_path, GOING_ON, SCORES, forgets=True)
    assert steps(after, "train") == [2, 3, 4]
    assert [words[1] for words in after if words[0] == "samples"] == [4]


@pytest.mark.parametrize("where", ["open", "numbers", "samples", "close"])
def test_a_sink_that_fails_is_left_out_and_that_is_said_once(
    where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = tell(tmp_path, BROKEN_OFF + GOING_ON[1:], SCORES, fails_at=where)
    assert [record.getMessage() for record in caplog.records] == [
        f"heard hears no more of this run: OSError: the network is gone. All of it is in {tmp_path}."
    ]
    assert where not in [words[0] for words in heard]


def test_a_sink_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telling, "PATIENCE", 0.05)
    monkeypatch.setattr(telling, "MOST_BEHIND", 5)
    for count, why in ((2, "not done 0.05 s after the end"), (9, "5 events behind")):
        free = threading.Event()
        one = Telling("slow", lambda about, free=free: free.wait() and Heard(about, []), About(tmp_path, {}))  # pyright: ignore[reportArgumentType]
        one(Started(0, 9, "cpu", "float32", 1))
        for step in range(count):
            one(trained(step))
        one.end(count, {}, complete=True)
        assert why in caplog.records[-1].getMessage()
        free.set()
        one.worker.join(5)
        assert not one.worker.is_alive()
    assert len(caplog.records) == 2


def test_a_run_that_never_began_opens_nothing(tmp_path: Path) -> None:
    assert tell(tmp_path, [Warned(0, "a checkpoint is damaged")], {}) == []


def test_a_run_is_carried_out_whatever_its_sink_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(about: About) -> Heard:
        raise RuntimeError("no")

    monkeypatch.setattr(choice, "_class_of", lambda name: broken)
    monkeypatch.setattr(choice, "lacking", lambda name: [])
    (tmp_path / "plain").mkdir()
    trained = lm(language(tmp_path, sinks=("mlflow", "wandb")))
    plain = lm(language(tmp_path / "plain", sinks=("none",)))
    assert trained.finished.complete
    assert trained.scores["loss"] == plain.scores["loss"]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert sorted(words.split()[0] for words in said) == ["mlflow", "wandb"]


def test_a_run_goes_on_with_other_sinks_than_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(choice, "_class_of", lambda name: lambda about: Heard(about, heard))
    monkeypatch.setattr(choice, "lacking", lambda name: [])
    lm(language(tmp_path, sinks=("none",)))
    assert heard == []
    lm(language(tmp_path, steps=6, train={"evaluate_every": 4}, sinks=("trackio",)))
    assert heard[0][:2] == ("open", 4)
    assert steps(heard, "train") == [5, 6]
    assert heard[-1][2]["final/held_out.perplexity"] > 1


def test_tensorboard_is_the_only_one_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "lacking", lambda name: [])
    assert sinks_of([]) == ("tensorboard",)
    assert sinks_of(["none"]) == ()
    assert sinks_of(["wandb", "mlflow", "wandb"]) == ("wandb", "mlflow")
    with pytest.raises(ConfigError, match="none and others do not go together; none, mlflow came"):
        sinks_of(["none", "mlflow"])


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_a_sink_that_is_not_installed_is_refused_before_anything_begins(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(choice, "find_spec", lambda package: None)
    assert sinks_of([]) == ()
    with pytest.raises(ConfigError, match=rf"not installed: {name}.* pip install 'softlook\[{name}\]'"):
        lm(language(tmp_path, sinks=(name,)))
    assert not (tmp_path / "run").exists()


def test_the_small_mlflow_needs_no_database_where_a_server_keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "find_spec", lambda package: None if package in ("sqlalchemy", "alembic") else object())
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert choice.lacking("mlflow") == ["sqlalchemy", "alembic"]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://localhost:5000")
    assert choice.lacking("mlflow") == []
