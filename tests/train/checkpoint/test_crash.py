"""kill -9 at any moment, with a save at every step: every run goes on, and ends as the uninterrupted one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each life of a run is a fork")
@pytest.mark.parametrize("kills", [30, pytest.param(500, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_resumes_exactly(kills: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.crashing", str(tmp_path), str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert (report["kills"], report["failed"]) == (kills, 0), done.stderr
    assert (report["corrupt"], report["lost"], report["left"]) == (0, 0, 0)
    assert report["finished"] == report["equal"] >= 1
    assert report["inside"] >= kills // 10, "hardly any kill came in the middle of a save: this proves little"
