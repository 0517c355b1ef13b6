"""Memory does not grow with data that is cached on disk."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import sys
from pathlib import Path
import torch
from softlook.recipes import train_classification, train_translation
from softlook.recipes.config.schema import BatchConfig, TokenizerConfig, TranslationBatchConfig
from tests.memory import peak
from tests.recipes.small import classification_config, translation_config

torch.set_num_threads(1)
task, data, run = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
more = {"data": (data,), "run_dir": run, "tokenizer": TokenizerConfig(type="words", vocab_size=2000)}
if task == "translate":
    train_translation(translation_config(run.parent, 3, batch=TranslationBatchConfig(max_tokens=512), **more))
else:
    train_classification(classification_config(run.parent, 3, batch=BatchConfig(max_tokens=512), **more))
print(peak())
"""
SMALL, LARGE = 2_000_000, 120_000_000
MAX_GROWTH = 150_000_000
"""Bytes. As Python strings and lists the large data takes more than 1 GB."""


def write_data(path: Path, task: str, size: int) -> Path:
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 8))) for _ in range(500)]
    with path.open("w", encoding="utf-8") as file:
        file.write("text\tlabel\n" if task == "classify" else "")
        while file.tell() < size:
            rows = [" ".join(rng.choices(words, k=rng.randint(4, 60))) for _ in range(2000)]
            others = rng.choices("xyz", k=2000) if task == "classify" else reversed(rows)
            file.writelines(f"{one}\t{other}\n" for one, other in zip(rows, others, strict=True))
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a child process is measured on Linux")
@pytest.mark.parametrize("task", ["translate", "classify"])
def test_large_data_needs_no_more_memory(task: str, tmp_path: Path) -> None:
    peaks = []
    for name, size in (("small", SMALL), ("large", LARGE)):
        data = write_data(tmp_path / f"{name}.tsv", task, size)
        command = [sys.executable, "-c", CHILD, task, str(data), str(tmp_path / name / "run")]
        (tmp_path / name).mkdir()
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
    assert (tmp_path / "large" / ".tokens").is_dir()
    assert peaks[1] - peaks[0] < MAX_GROWTH
