"""Experiments whose numbers and figure are stored in docs/figures and shown by the book."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from softlook.lens.figures.figure import Figure

FIGURES = Path(__file__).parents[1] / "docs/figures"
Results = dict[str, Any]


def record(name: str, run: Callable[[], Results], draw: Callable[[Results], Figure]) -> None:
    """Run an experiment, or with --draw only draw its stored numbers again; write NAME.json and NAME.svg."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, default=FIGURES)
    parser.add_argument("--draw", action="store_true", help="draw the stored numbers again")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    results = load(name, args.folder) if args.draw else run()
    (args.folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (args.folder / f"{name}.svg").write_text(draw(results).svg(), encoding="utf-8")
    print(f"The figure is {args.folder / f'{name}.svg'}")


def load(name: str, folder: Path = FIGURES) -> Results:
    """The stored numbers of an experiment."""
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
