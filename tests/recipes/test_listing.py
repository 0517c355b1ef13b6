"""Runs can be found again."""

from pathlib import Path

from softlook.recipes import fill, translate
from softlook.recipes.listing import runs_in
from tests.recipes.small import filling, translating


def test_every_run_is_listed_with_how_far_it_got(tmp_path: Path) -> None:
    translate(translating(tmp_path, steps=3))
    fill(filling(tmp_path, steps=2, run=tmp_path / "deep" / "down"))
    found = {run.path.name: run for run in runs_in(tmp_path)}
    assert found.keys() == {"run", "down"}
    assert (found["run"].task, found["run"].step, found["run"].steps) == ("translate", 3, 3)
    assert found["down"].state == "all steps are done"
    assert found["down"].best is not None
