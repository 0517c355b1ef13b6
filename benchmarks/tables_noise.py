"""`python -m benchmarks.tables_noise FOLDER`: what noisy and missing cells cost, ours beside boosting.

A share of all cells, 0 to 70 %, is dealt a value that another row has in the same column, or is taken away. Once in the
test rows alone, after learning from clean ones; and once in all rows, those that are learned from too. `--table FILE`
prints what a file of results has, and `--figure noise.svg` draws it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas

from benchmarks import tables_data
from benchmarks.tables_data import Table, TableTensors
from benchmarks.tables_figure import Panel, figure
from benchmarks.tables_results import Line, grouped, markdown, read, spread
from benchmarks.tables_running import TrainingContext, parsed, reader, run_all
from benchmarks.tables_who import WHO

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
HARMS = ("noisy", "missing")
TAUGHT = ("clean", *HARMS)
TABLES = ("adult", "bank", "blastchar")
ORDER = list(WHO)


@dataclass(frozen=True)
class Task:
    """A table, who learns from it, and how many of the cells it learns from are harmed, and how."""

    table: str
    who: str
    seed: int
    taught: str
    """"clean", or which harm is in the training rows as well."""
    taught_share: float


def harmed(frame: pandas.DataFrame, harm: str, share: float, seed: int) -> pandas.DataFrame:
    """A frame of which this share of cells is noise, or missing; the smaller shares are within the larger ones."""
    dice = np.random.default_rng(seed)
    columns = {}
    for name in frame.columns:
        which, others = dice.random(len(frame)) < share, dice.permutation(len(frame))
        column = frame[name]
        mixed = column.iloc[others].reset_index(drop=True)
        columns[name] = column.mask(which, mixed) if harm == "noisy" else column.mask(which)
    return pandas.DataFrame(columns)


def with_harm(table: Table, harm: str, share: float, seed: int) -> Table:
    """Training and validation rows harmed alike; the test rows stay as they are."""
    train, eval_set = (
        TableTensors(harmed(part.frame, harm, share, 2 * seed + place), part.target)
        for place, part in enumerate((table.train, table.eval_set))
    )
    return replace(table, train=train, eval_set=eval_set)


def run(task: Task, setting: TrainingContext) -> list[Line]:
    """Learn once; be judged at every share, or at the share that was taught."""
    table = setting.load(task.table, task.seed)
    taught = table if task.taught == "clean" else with_harm(table, task.taught, task.taught_share, task.seed)
    fitted = WHO[task.who](taught, setting.terms(task.seed))
    if task.taught == "clean":
        asked = [(harm, share) for harm in HARMS for share in SHARES]
    else:
        asked = [(task.taught, task.taught_share)]
    lines = []
    for harm, share in asked:
        frame = harmed(table.test.frame, harm, share, 1000 + task.seed)
        found = tables_data.score(table, fitted.predict(frame))
        lines.append({"harm": harm, "share": share, "measure": table.measure, "score": found[table.measure]})
    return lines


def table_of(lines: list[Line]) -> Iterator[str]:
    """Markdown: for every table and harm a row for each share."""
    for (table, harm, where), own in grouped(placed(lines), "table", "harm", "where").items():
        who = list(dict.fromkeys(line["who"] for line in own))
        cells = {key: spread([line["score"] for line in group]) for key, group in grouped(own, "share", "who").items()}
        rows = [[f"{share:.0%}", *(cells.get((share, name), "") for name in who)] for share in SHARES]
        yield f"### {table}: {harm} cells {where} ({own[0]['measure']})\n\n{markdown(['share', *who], rows)}\n"


def panels(lines: list[Line]) -> list[Panel]:
    """The same as curves."""
    found = []
    for (table, harm, where), own in grouped(placed(lines), "table", "harm", "where").items():
        curves = {}
        for (who,), group in grouped(own, "who").items():
            points = grouped(group, "share")
            curves[who] = [
                (share, float(np.mean([line["score"] for line in points[share,]]))) for (share,) in sorted(points)
            ]
        found.append(Panel(f"{table}, {own[0]['measure']}: {harm} {where}", curves))
    return found


def placed(lines: list[Line]) -> list[Line]:
    """Each with where the harm was, ours before others; where there was none, that is the beginning of both curves."""
    clean = [line | {"where": "at test"} for line in lines if line["taught"] == "clean"]
    taught = [line | {"where": "in training too"} for line in lines if line["taught"] != "clean"]
    begun = {(line["table"], line["harm"]) for line in taught}
    begins = [line for line in clean if not line["share"] and (line["table"], line["harm"]) in begun]
    every = clean + taught + [line | {"where": "in training too"} for line in begins]
    return sorted(every, key=lambda line: (line["table"], line["where"], ORDER.index(line["who"])))


def tasks(words: argparse.Namespace) -> Iterator[Task]:
    """Clean ones first: they give half of the curves."""
    every = [("clean", 0.0), *((harm, share) for harm in HARMS for share in SHARES[1:])]
    for seed in range(words.seeds):
        for taught, share in (each for each in every if each[0] in words.taught):
            yield from (Task(table, name, seed, taught, share) for table in words.only for name in words.who)


def main() -> None:
    words = reader("tables_noise", __doc__, only=TABLES, who=ORDER)
    words.set_defaults(who=["ours", "lightgbm", "histgb"], seeds=3)
    words.add_argument("--figure", type=Path, help="draw what is in --table, or was just measured")
    words.add_argument("--taught", nargs="+", choices=TAUGHT, default=list(TAUGHT), help="what is learned from")
    told = parsed(words)
    if not told.table:
        run_all(run, list(tasks(told)), told)
    lines = read(told.table or told.out)
    print("\n".join(table_of(lines)))
    if told.figure:
        sample_params = figure(panels(lines), title="Noisy and missing cells", across="share of cells")
        told.figure.write_text(sample_params, encoding="utf-8")


if __name__ == "__main__":
    main()
