"""`softlook train images`, and `classify` and `eval` of its runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from softlook.cli.main import main
from tests.recipes.small import squares

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: Any) -> Run:
    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(tuple(map(str, args)))
        captured = capsys.readouterr()
        return int(exited.value.code or 0), captured.out, captured.err

    return run


def test_a_folder_of_images_becomes_a_classifier(run: Run, tmp_path: Path) -> None:
    folder, trained = squares(tmp_path / "squares", 60), tmp_path / "run"
    sizes = ("--model.dim", 8, "--model.depth", 1, "--model.heads", 2, "--model.patch-size", 4, "--max-steps", 5)
    code, _, err = run("train", "images", folder, "--run-dir", trained, *sizes)
    assert code == 0 and "linear model of pixels" in err and f"softlook classify {trained} photo.png" in err
    image = folder / "left/0.png"
    code, out, _ = run("--json", "classify", trained, image, folder / "right/1.png", "--all")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and found[0]["image"] == str(image) and set(found[0]["classes"]) == {"left", "right"}
    code, out, _ = run("classify", trained, image, "--attention", tmp_path / "map.svg")
    assert code == 0 and out.split()[0] in ("left", "right")
    assert (tmp_path / "map.svg").read_text(encoding="utf-8").startswith("<svg")
    code, out, _ = run("eval", trained, folder)
    assert code == 0 and "accuracy" in out
    code, _, err = run("classify", trained)
    assert code != 0 and "no images given" in err
