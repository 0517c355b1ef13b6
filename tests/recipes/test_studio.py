"""What the studio shows of runs and tables is what the runs hold."""

import json
import threading
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.lens import load_trace
from softlook.recipes.studio import open_studio
from softlook.recipes.studio.opening import load_included
from softlook.recipes.studio.runs import RunFolder, recorded_weights
from softlook.studio.answers import maps
from softlook.studio.frames import decode_frame
from softlook.studio.recordings import example_studio, load_example
from softlook.studio.session import UnknownError

DATE = "jeudi 3 mars 2022"


def write_run(folder: Path, *, finished: bool = True) -> Path:
    """The files of a run that the studio reads."""
    folder.mkdir(parents=True)
    weights = [[1.0, 0.0], [0.25, 0.75]]
    events = [
        {"event": "started", "step": 0},
        {"event": "step_logged", "step": 1, "loss": 2.5, "lr": 0.1, "grad_norm": 1.0, "tokens_per_second": 9},
        {"event": "evaluated", "step": 1, "scores": {"loss": 2.0}, "is_best": True},
        {
            "event": "sampled",
            "step": 1,
            "samples": [{"prompt": "a", "completion": "b"}],
            "attention": [{"tokens": ["x", "y"], "weights": weights}],
        },
        *([{"event": "finished", "step": 1, "reason": "max_steps reached"}] if finished else []),
    ]
    lines = [json.dumps(event) + "\n" for event in events]
    (folder / "events.jsonl").write_text("".join(lines) + '{"event": "step_lo', encoding="utf-8")
    for name, content in (("config.json", {}), ("metadata.json", {"started": "now"})):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_curves_samples_and_attention_are_those_of_the_log(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/one")
    runs = RunFolder(tmp_path / "runs")
    assert [run["id"] for run in runs.all()] == ["one"]
    series = runs.curves("one")["series"]
    assert (series["loss"], series["validation loss"]) == ([[1, 2.5]], [[1, 2.0]])
    assert runs.samples("one")[0]["text"] == "prompt: a\ncompletion: b"
    assert runs.checkpoints("one") == [{"step": 1, "tokens": ["x", "y"]}]
    recording = runs.attention("one", 1)
    found = decode_frame(maps.weights(recording.layer("0"), head="0")).values
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.25, 0.75]]))


def test_lines_follow_a_run_until_it_has_finished(tmp_path: Path) -> None:
    write_run(tmp_path / "runs/active", finished=False)
    write_run(tmp_path / "runs/done")
    runs = RunFolder(tmp_path / "runs")
    lines, active = runs.lines("active", 1)
    assert ([line["event"] for line in lines], active) == (["step_logged", "evaluated", "sampled"], True)
    assert runs.lines("done", 5) == ([], False)


@pytest.mark.parametrize("id", ["../one", "/etc", "..", "one/../../one", "nothing"])
def test_only_listed_runs_are_read(tmp_path: Path, id: str) -> None:
    write_run(tmp_path / "one")
    (tmp_path / "runs").mkdir()
    with pytest.raises(UnknownError, match="there is no run"):
        RunFolder(tmp_path / "runs").curves(id)


def test_the_included_recording_is_that_of_the_included_model() -> None:
    studio = example_studio()
    assert studio.info()["traces"][0]["title"].startswith(DATE)
    assert not studio.info()["traces"][0]["live"]
    load_included(studio)
    assert studio.info()["traces"][0]["live"]
    shown, example = studio.record(DATE), load_example()
    assert shown.info()["rowTokens"] == example.info()["rowTokens"]
    for path, layer in example.trace.items():
        torch.testing.assert_close(layer.weights(), shown.trace[path].weights(), atol=1e-4, rtol=1e-3)


def test_a_trace_file_is_opened_without_its_model(tmp_path: Path) -> None:
    recorded_weights(torch.eye(2)[None, None], ["a", "b"]).save(tmp_path / "two.safetensors")
    studio = open_studio(str(tmp_path / "two.safetensors"))
    assert studio.info()["traces"][0]["rowTokens"] == ["a", "b"]
    assert load_trace(tmp_path / "two.safetensors").tokens == ["a", "b"]


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "nothing")):
        with pytest.raises(ConfigError):
            open_studio(name, device="cpu")


def test_requests_at_once_do_not_disturb_each_other() -> None:
    studio = open_studio("dates", device="cpu")
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(studio.record(DATE).info()["rowTokens"])) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(one == found[0] for one in found)
