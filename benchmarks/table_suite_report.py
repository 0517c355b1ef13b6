"""The page of a suite: mean ranks, win rates, losses, and a critical difference diagram."""

from pathlib import Path

from benchmarks.tables_results import Result


def report(results: list[Result], figure: Path | None) -> str:
    return ""
