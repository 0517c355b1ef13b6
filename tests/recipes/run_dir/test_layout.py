"""Listing of runs."""

from pathlib import Path

from softlook.recipes import train_masked_lm, train_translation
from softlook.recipes.run_dir.layout import list_runs
from tests.recipes.small import masked_lm_config, translation_config


def test_every_run_is_listed_with_its_progress(tmp_path: Path) -> None:
    train_translation(translation_config(tmp_path, steps=3))
    train_masked_lm(masked_lm_config(tmp_path, steps=2, run_dir=tmp_path / "nested" / "inner"))
    found = {run.path.name: run for run in list_runs(tmp_path)}
    assert found.keys() == {"run", "inner"}
    assert (found["run"].task, found["run"].step, found["run"].steps) == ("translate", 3, 3)
    assert found["inner"].state == "max_steps reached"
    assert found["inner"].best is not None
