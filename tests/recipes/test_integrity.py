"""A bit that changes in any file of a run is noticed, or changes no answer."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softlook.base.errors import ConfigError, DataError, TrainingError, WeightsError
from softlook.recipes import classify as learn_classes
from softlook.recipes import table
from softlook.recipes.answering import Manner, classify, embed, generate, opened, translate
from softlook.recipes.settings import Table
from softlook.recipes.tables_asking import opened_table
from softlook.serve.served import load_served
from softlook.train.folder import write_json
from softlook.weights import load
from softlook.weights.runs import read_sealed, sealed, verify_run
from tests.recipes.asked import made_runs
from tests.recipes.small import classifying

LOUD = (WeightsError, ConfigError, TrainingError, DataError)
LOGS = {"events.jsonl", "metrics.csv", "scores.json", "samples.jsonl", "lock.json"}
"""What people read, and no answer comes from."""
BEGUN_WITH = ("config.json", "run.json", "settings.json", "tokenizer.json", "labels.json")
Ask = Callable[[Path], Any]


def said(folder: Path, task: str) -> Any:
    """Answers of a run as plain values."""
    if task == "table":
        estimator: Any = opened_table(folder, device="cpu").estimator
        return estimator.predict(str(folder.parent / "rows.csv")).tolist()
    run = opened(folder, device="cpu")
    if task == "lm":
        return [one.text for one in generate(run, ["the cat"], Manner(seed=1, longest=8))]
    if task == "translate":
        return [one.text for one in translate(run, ["the cat"], beams=1)]
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
        "run": folder / "run",
        "training": {"epochs": 1, "device": "cpu"},
    }
    return table(Table(**settings)).folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    found = made_runs(place, "lm", "translate", "fill", "classify", "vectors")
    return found | {"table": table_run(place / "table")}


def flipped(path: Path, dice: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def check_flips(folder: Path, task: str, times: int) -> dict[str, int]:
    """Flips bits of every file, one at a time; how many were noticed, by the file's name."""
    dice, wanted, found = random.Random(7), said(folder, task), {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size):
        whole = path.read_bytes()
        for _ in range(times):
            flipped(path, dice)
            try:
                assert said(folder, task) == wanted, f"a bit of {path.relative_to(folder)} changed an answer of {task}"
            except LOUD as fault:
                found[path.name] = found.get(path.name, 0) + 1
                assert path.name in str(fault) or path.parent.name in str(fault), f"{path} is not named: {fault}"
            finally:
                path.write_bytes(whole)
    assert said(folder, task) == wanted
    return found


TASKS = ["lm", "translate", "fill", "classify", "vectors", "table"]


@pytest.mark.parametrize("task", TASKS)
def test_a_changed_bit_is_noticed_or_changes_no_answer(task: str, runs: dict[str, Path]) -> None:
    found = check_flips(runs[task], task, times=1)
    begun = {name for name in BEGUN_WITH if (runs[task] / name).is_file()}
    assert begun <= found.keys(), "every file that a run was begun with is verified"
    assert not LOGS & found.keys()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_many_changed_bits_are_noticed_or_change_no_answer(task: str, runs: dict[str, Path]) -> None:
    assert check_flips(runs[task], task, times=40)


@pytest.mark.parametrize("name", BEGUN_WITH)
def test_a_run_with_a_changed_file_is_neither_resumed_served_nor_exported(name: str, tmp_path: Path) -> None:
    settings = classifying(tmp_path)
    run = learn_classes(settings).folder
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 4
    (run / name).write_bytes(content)
    weights = {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}
    for ask in (lambda: learn_classes(settings), lambda: load_served(run), lambda: load(run)):
        with pytest.raises(LOUD, match=name):
            ask()
    assert weights == {path: path.read_bytes() for path in (run / "checkpoints").rglob("*") if path.is_file()}


def test_a_run_of_an_earlier_version_without_digests_still_opens(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs["classify"], tmp_path / "old"))
    for name in ("settings.json", "best.json"):
        kept = read_sealed(run / name)
        kept.pop("files", None)

        write_json(run / name, kept)
    assert said(run, "classify") == said(runs["classify"], "classify")


def test_a_seal_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:

    write_json(tmp_path / "settings.json", sealed({"files": {"../x": {"bytes": 1, "sha256": ""}}}))
    with pytest.raises(WeightsError, match="which is not a file beside it"):
        verify_run(tmp_path)
