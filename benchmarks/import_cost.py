"""D. What `import softlook` costs beside torch."""

import re
import statistics
import subprocess
import sys

from benchmarks.report import Report

TIMES = 5


def measure(report: Report, quick: bool) -> None:
    report.section("D. import", f"`python -X importtime`, torch imported first; median of {TIMES}.")
    runs = [_import_times() for _ in range(2 if quick else TIMES)]
    table = report.table("what", "ms")
    middle = {name: statistics.median(run[name] for run in runs) for name in ("softlook", "torch")}
    table.add("softlook and all it brings, beyond torch", middle["softlook"])
    table.add("torch itself", middle["torch"])
    report.in_short(f"`import softlook` takes {middle['softlook']:.0f} ms beyond torch ({middle['torch']:.0f} ms)")


def _import_times() -> dict[str, float]:
    """Milliseconds of each top-level import, with everything it imports in turn."""
    command = [sys.executable, "-X", "importtime", "-c", "import torch; import softlook"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"import time:\s+\d+ \|\s+(\d+) \| (\S+)$", told, re.MULTILINE)
    return {name: int(microseconds) / 1e3 for microseconds, name in lines}
