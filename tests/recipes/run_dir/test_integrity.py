"""A flipped bit in any file of a run is detected, or changes no prediction."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError, DataError, TrainingError, WeightsError
from softlook.recipes import train_classification, train_table
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.inference import GenerationParams, classify, embed, generate, load_pipeline, translate
from softlook.recipes.tabular.predict import load_predictor
from softlook.serve.loaded_model import load_model
from softlook.train.checkpoint.run_dir import write_json
from softlook.weights import load
from softlook.weights.manifest import read_checksummed, verify_run, with_checksum
from tests.recipes.small import classification_config
from tests.recipes.trained_runs import train_runs

ERRORS = (WeightsError, ConfigError, TrainingError, DataError)
LOGS = {"events.jsonl", "metrics.csv", "scores.json", "samples.jsonl", "lock.json"}
"""Files that no prediction depends on."""
INITIAL_FILES = ("config.json", "metadata.json", "settings.json", "tokenizer.json", "labels.json")


def predictions(folder: Path, task: str) -> Any:
    """Predictions of a run as plain values."""
    if task == "table":
        estimator: Any = load_predictor(folder, device="cpu").estimator
        return estimator.predict(str(folder.parent / "rows.csv")).tolist()
    run = load_pipeline(folder, device="cpu")
    if task == "lm":
        return [one.text for one in generate(run, ["the cat"], GenerationParams(seed=1, max_new_tokens=8))]
    if task == "translate":
        return [one.text for one in translate(run, ["the cat"], num_beams=1)]
    if task == "classify":
        return [(one.label, one.classes) for one in classify(run, ["film 1 was lovely", "dull"])]
    return embed(run, ["the cat sees"]).tolist()


def table_run(folder: Path) -> Path:
    folder.mkdir()
    rows = "".join(f"{n % 7},{'ab'[n % 2]},{'yes' if n % 2 else 'no'}\n" for n in range(80))
    (folder / "rows.csv").write_text(f"size,kind,target\n{rows}")
    settings: dict[str, Any] = {
        "data": (folder / "rows.csv",),
        "target": ("target",),
        "run_dir": folder / "run",
        "training": {"epochs": 1, "device": "cpu"},
        "ensemble": "single",
    }
    return train_table(TabularConfig(**settings)).run_dir


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    found = train_runs(folder, "lm", "translate", "mlm", "classify", "word2vec")
    return found | {"table": table_run(folder / "table")}


def flip_bit(path: Path, rng: random.Random) -> None:
    """Flip a bit; in JSON, one that changes a value: 1e-05 and 1E-05 are the same number."""
    original = path.read_bytes()
    while True:
        content = bytearray(original)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        if path.suffix != ".json" or parsed(bytes(content)) != parsed(original):
            return


def parsed(content: bytes) -> object:
    """The value of JSON; invalid JSON as it is."""
    try:
        return json.loads(content)
    except ValueError:
        return content


def check_flips(folder: Path, task: str, times: int) -> dict[str, int]:
    """Flip bits of every file, one at a time; the number of detected flips by file name."""
    rng, expected, found = random.Random(7), predictions(folder, task), {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        original = path.read_bytes()
        for _ in range(times):
            flip_bit(path, rng)
            try:
                assert predictions(folder, task) == expected, (
                    f"a bit of {path.relative_to(folder)} changed a prediction of {task}"
                )
            except ERRORS as error:
                found[path.name] = found.get(path.name, 0) + 1
                assert path.name in str(error) or path.parent.name in str(error), f"{path} is not named: {error}"
            finally:
                path.write_bytes(original)
    assert predictions(folder, task) == expected
    return found


TASKS = ["lm", "translate", "mlm", "classify", "word2vec", "table"]


@pytest.mark.parametrize("task", TASKS)
def test_a_flipped_bit_is_detected_or_changes_no_prediction(task: str, runs: dict[str, Path]) -> None:
    found = check_flips(runs[task], task, times=1)
    initial = {name for name in INITIAL_FILES if (runs[task] / name).is_file()}
    assert initial <= found.keys(), "every file that a run starts with is verified"
    assert not LOGS & found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_many_flipped_bits_are_detected_or_change_no_prediction(task: str, runs: dict[str, Path]) -> None:
    assert check_flips(runs[task], task, times=40)


@pytest.mark.parametrize("name", INITIAL_FILES)
def test_a_run_with_a_damaged_file_is_not_resumed_served_or_exported(name: str, tmp_path: Path) -> None:
    settings = classification_config(tmp_path)
    run = train_classification(settings).run_dir
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 4
    (run / name).write_bytes(content)
    weights = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    for use in (lambda: train_classification(settings), lambda: load_model(run), lambda: load(run)):
        with pytest.raises(ERRORS, match=name):
            use()
    assert weights == {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}


def test_a_run_without_digests_still_loads(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["classify"], tmp_path / "old"))
    for name in ("settings.json", "best.json"):
        content = read_checksummed(run / name)
        content.pop("files", None)

        write_json(run / name, content)
    assert predictions(run, "classify") == predictions(runs["classify"], "classify")


def test_digests_cannot_refer_to_other_folders(tmp_path: Path) -> None:

    write_json(tmp_path / "settings.json", with_checksum({"files": {"../x": {"bytes": 1, "sha256": ""}}}))
    with pytest.raises(WeightsError, match="which is not a file in the same folder"):
        verify_run(tmp_path)
