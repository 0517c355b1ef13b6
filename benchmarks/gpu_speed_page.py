"""Writes a page of the results of `benchmarks.gpu_speed`: `python -m benchmarks.gpu_speed_page FOLDER > PAGE.md`.

FOLDER holds PART.json files, and may hold kernels.txt of `benchmarks.training_step`: the kernels of a step.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from benchmarks.gpu_parts import KERNEL_KINDS, TITLES

COLUMNS = {"device_ms": "ms on the device", "wall_ms": "ms with the host", "times": "of the first"}
"""Names of columns in the page; others keep theirs."""


def page(folder: Path, date: str) -> str:
    """The page in Markdown."""
    parts = {name: json.loads((folder / f"{name}.json").read_text()) for name in TITLES if exists(folder, name)}
    about = next(iter(parts.values()))
    lines = [f"# {about['device']}, {date}: attention, looking and tables", ""]
    lines += [
        f"torch {about['torch']}. Written by `python -m benchmarks.gpu_speed_page` from what `python -m "
        "benchmarks.gpu_speed` measured; not edited by hand.",
        "Peers and softlook ran in one process in alternating rounds; medians. The last column of times is the device "
        "time as a multiple of the first call of its case.",
        "",
    ]
    for name, part in parts.items():
        lines += [f"## {TITLES[name]}", "", part["about"].strip(), "", *table(part["rows"]), ""]
    if (kernels := folder / "kernels.txt").exists():
        lines += step_parts(kernels.read_text())
    return "\n".join(lines).rstrip() + "\n"


def exists(folder: Path, name: str) -> bool:
    return (folder / f"{name}.json").exists()


def table(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown table with the fields of all rows; lists follow it as text."""
    names = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, list)))
    lines = [
        f"| {' | '.join(COLUMNS.get(name, name.replace('_', ' ')) for name in names)} |",
        "|" + "---|" * len(names),
    ]
    lines += [f"| {' | '.join(cell(row.get(name)) for name in names)} |" for row in rows]
    for row in rows:
        for name, value in row.items():
            if isinstance(value, list):
                lines += ["", f"{row['case']}, {name}:", "", "```text", *value, "```"]
    return lines


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1e4 else f"{value:.3g}" if value < 100 else f"{value:.1f}"
    return str(value).replace("|", "/")


def step_parts(kernels: str) -> list[str]:
    """Milliseconds of a training step by kind of kernel."""
    found = re.findall(r"^ *([\d.]+) ms +[\d.]+ calls +(.*)$", kernels, re.MULTILINE)
    sums = dict.fromkeys([*KERNEL_KINDS, "element-wise"], 0.0)
    for milliseconds, name in found:
        kind = next(
            (kind for kind, words in KERNEL_KINDS.items() if any(word in name for word in words)), "element-wise"
        )
        sums[kind] += float(milliseconds)
    lines = ["## Kernels of a training step", ""]
    lines += ["GPT-2 124M, 32 x 1024 tokens, compiled, bfloat16, from the profile of `benchmarks.training_step`.", ""]
    lines += ["| kind | ms |", "|---|---|", *(f"| {kind} | {value:.2f} |" for kind, value in sums.items())]
    return [*lines, f"| all | {sum(sums.values()):.2f} |", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--date", required=True)
    options = parser.parse_args()
    print(page(options.folder, options.date), end="")


if __name__ == "__main__":
    main()
