"""A run explains itself, goes on when it is called again, and is never overwritten."""

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import DataError, TrainingError
from softlook.recipes import Translate, lm, translate
from softlook.recipes.carrying import rehearse
from softlook.recipes.job import Trained
from softlook.recipes.told import told
from softlook.recipes.translation import Translation
from softlook.train.events import Event, Sampled
from softlook.train.events import Started as Began
from softlook.train.events import Trained as Stepped
from softlook.train.settings import Optim
from tests.recipes.small import digits, language, said, training, translating


def stopped(asked: Translate, step: int) -> Trained:
    """A run during which somebody presses Ctrl-C."""

    def press(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == step:
            signal.raise_signal(signal.SIGINT)

    return translate(asked, [press])


def weights(trained: Trained) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}


def test_the_folder_holds_all_there_is_to_know(tmp_path: Path) -> None:
    heard: list[Event] = []
    trained = translate(translating(tmp_path, steps=4), [heard.append])
    names = {path.name for path in trained.folder.iterdir()}
    assert names >= {
        "config.json", "settings.json", "run.json", "events.jsonl", "metrics.csv", "samples.jsonl", "scores.json",
        "loss.svg", "report.html", "checkpoints", "best.json", "tokenizer.json",
    }  # fmt: skip
    with (trained.folder / "metrics.csv").open(encoding="utf-8") as file:
        assert [row["step"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]
    settings = json.loads((trained.folder / "settings.json").read_text(encoding="utf-8"))
    assert settings["task"] == "translate"
    assert settings["origins"]["size.dim"] == "given"
    assert settings["origins"]["batch.tokens"] == "chosen for the data"
    assert said(heard, Sampled)[0].samples[0].keys() == {"source", "said", "wanted"}


def test_a_run_that_is_stopped_and_called_again_ends_as_one_that_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole = translate(translating(tmp_path / "a", steps=6))
    asked = translating(tmp_path / "b", steps=6)
    broken = stopped(asked, 3)
    assert not broken.finished.complete
    assert not (broken.folder / "scores.json").exists()
    heard: list[Event] = []
    again = translate(asked, [heard.append])
    assert said(heard, Began)[0].step == 3
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(again)[name]), name


def test_a_changed_setting_is_shown_and_refused(tmp_path: Path) -> None:
    translate(translating(tmp_path))
    with pytest.raises(TrainingError, match=r"was begun otherwise:\n  optim\.lr: 0\.005 then, 0\.1 now\n"):
        translate(translating(tmp_path, optim=Optim(lr=0.1)))


def test_a_setting_that_is_no_longer_given_is_a_change_too(tmp_path: Path) -> None:
    translate(translating(tmp_path, optim=Optim(lr=0.005, beta1=0.5)))
    with pytest.raises(TrainingError, match=r"optim\.beta1: 0\.5 then, 0\.9 now"):
        translate(translating(tmp_path))


def test_changed_data_are_refused(tmp_path: Path) -> None:
    asked = translating(tmp_path)
    translate(asked)
    digits(tmp_path / "digits.tsv", 401)
    with pytest.raises(TrainingError, match="the data are not the same as when it began"):
        translate(asked)


def test_a_run_may_be_given_more_steps(tmp_path: Path) -> None:
    translate(translating(tmp_path, steps=3, train={"evaluate_every": 3}))
    longer = translate(translating(tmp_path, steps=6, train={"evaluate_every": 3}))
    assert longer.progress.step == 6


def test_what_was_chosen_stays_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slower day other sizes would be chosen, and the run could not go on."""
    asked = translating(tmp_path, steps=6).model_copy(update={"size": type(translating(tmp_path).size)()})
    asked = Translate.model_validate({**asked.model_dump(exclude_unset=True, by_alias=True)})
    first = stopped(asked, 2)
    monkeypatch.setattr("softlook.recipes.sizing._operations", lambda device, kind: 1e15)
    again = translate(asked)
    assert again.settled.settings.size == first.settled.settings.size
    assert again.progress.step == 6


def test_a_fresh_run_begins_beside_the_old_one(tmp_path: Path) -> None:
    first = translate(translating(tmp_path))
    second = translate(translating(tmp_path, fresh=True))
    third = translate(translating(tmp_path, fresh=True))
    assert [run.folder.name for run in (first, second, third)] == ["run", "run-2", "run-3"]


def test_without_a_name_a_run_is_named_after_its_task_and_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = language(tmp_path, steps=2).model_copy(update={"run": None})
    assert lm(asked).folder == Path("runs/lm-words")


def test_a_rehearsal_settles_everything_and_begins_nothing(tmp_path: Path) -> None:
    settled = rehearse(Translation(), told(translating(tmp_path))).settled
    assert settled.settings.batch.tokens
    assert not (tmp_path / "run").exists()


def test_a_minute_is_a_minute(tmp_path: Path) -> None:
    asked = translating(tmp_path, steps=1_000_000, train={"minutes": 0.02, "evaluate_every": 1_000_000})
    ended = translate(asked)
    assert ended.finished.reason == "the time is up"
    assert ended.progress.seconds < 10


@pytest.mark.parametrize("data", [(), (Path("no/such/file.tsv"),)], ids=str)
def test_no_data_are_an_error_before_anything_is_made(data: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data were given|there is no such file"):
        translate(Translate(data=data, run=tmp_path / "run", training=training(1)))
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_can_be_given(tmp_path: Path) -> None:
    first = translate(translating(tmp_path))
    second = translate(translating(tmp_path, run=tmp_path / "other", tokens={"file": first.folder / "tokenizer.json"}))
    assert second.tokenizer.vocab == first.tokenizer.vocab


def test_a_run_can_start_from_another_ones_weights(tmp_path: Path) -> None:
    first = translate(translating(tmp_path, steps=30))
    second = translate(translating(tmp_path, steps=1, run=tmp_path / "other", **{"from": first.folder}))
    assert second.scores["loss"] == pytest.approx(first.scores["loss"], abs=0.3)
    assert second.scores["loss"] < translate(translating(tmp_path, steps=1, run=tmp_path / "new")).scores["loss"] - 0.3
