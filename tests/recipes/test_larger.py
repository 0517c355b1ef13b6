"""Memory does not grow with the data: what is larger than `LARGE` is learned from as it lies on disk."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
from pathlib import Path
import torch
from softlook.recipes import classify, translate
from softlook.recipes.settings import LabelBatch, PairBatch, Tokens
from tests.memory import peak
from tests.recipes.small import classifying, translating

torch.set_num_threads(1)
task, data, run = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
more = {"data": (data,), "run": run, "tokens": Tokens(kind="words", vocab=2000)}
if task == "translate":
    translate(translating(run.parent, 3, batch=PairBatch(tokens=512), **more))
else:
    classify(classifying(run.parent, 3, batch=LabelBatch(tokens=512), **more))
print(peak())
"""
SMALL, LARGE = 2_000_000, 120_000_000
MORE = 150_000_000
"""Bytes. As Python's own strings and lists the large data take over a thousand million."""


def made(path: Path, task: str, size: int) -> Path:
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghijklmnop", k=dice.randint(2, 8))) for _ in range(500)]
    with path.open("w", encoding="utf-8") as file:
        file.write("text\tlabel\n" if task == "classify" else "")
        while file.tell() < size:
            rows = [" ".join(dice.choices(words, k=dice.randint(4, 60))) for _ in range(2000)]
            others = dice.choices("xyz", k=2000) if task == "classify" else reversed(rows)
            file.writelines(f"{one}\t{other}\n" for one, other in zip(rows, others, strict=True))
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what a process alone took at most")
@pytest.mark.parametrize("task", ["translate", "classify"])
def test_data_larger_than_large_take_no_more_memory(task: str, tmp_path: Path) -> None:
    found = []
    for name, size in (("small", SMALL), ("large", LARGE)):
        data = made(tmp_path / f"{name}.tsv", task, size)
        told = [sys.executable, "-c", CHILD, task, str(data), str(tmp_path / name / "run")]
        (tmp_path / name).mkdir()
        found.append(int(subprocess.run(told, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
    assert (tmp_path / "large" / ".tokens").is_dir()
    assert found[1] - found[0] < MORE
