"""SIGKILL at random moments, with a save at every step: every run resumes and equals the uninterrupted one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each attempt is a fork")
@pytest.mark.parametrize("kills", [30, pytest.param(500, marks=pytest.mark.slow)])
def test_a_run_killed_at_any_moment_resumes_exactly(kills: int, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.train.crashing", str(tmp_path), str(kills)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(result.stdout)
    assert (report["kills"], report["failed"]) == (kills, 0), result.stderr
    assert (report["corrupt"], report["lost"], report["left"]) == (0, 0, 0)
    assert report["finished"] == report["equal"] >= 1
    assert report["during_save"] >= kills // 10, "too few kills hit a save for the test to be meaningful"
