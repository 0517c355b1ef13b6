"""D. Import time of softlook without that of torch."""

import re
import statistics
import subprocess
import sys

from benchmarks.report import Report

REPEATS = 5


def measure(report: Report, quick: bool) -> None:
    report.section("D. import time", f"`python -X importtime`, torch imported first; median of {REPEATS} runs.")
    runs = [_import_times() for _ in range(2 if quick else REPEATS)]
    table = report.table("module", "ms")
    medians = {name: statistics.median(run[name] for run in runs) for name in ("softlook", "torch")}
    table.add("softlook and its dependencies without torch", medians["softlook"])
    table.add("torch", medians["torch"])
    report.summarize(
        f"`import softlook` takes {medians['softlook']:.0f} ms in addition to torch ({medians['torch']:.0f} ms)"
    )


def _import_times() -> dict[str, float]:
    """Cumulative milliseconds of each import."""
    command = [sys.executable, "-X", "importtime", "-c", "import torch; import softlook"]
    stderr = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"import time:\s+\d+ \|\s+(\d+) \| (\S+)$", stderr, re.MULTILINE)
    return {name: int(microseconds) / 1e3 for microseconds, name in lines}
