"""`python -m benchmarks.tables FOLDER`: how exact ours are on the papers' tables, beside boosting and the authors' own.

FOLDER holds the tables as CSV. Every run (a table, who, a seed) is written to --out as soon as it is through, and what
is written there is not run again. `--table results.jsonl` prints the tables of such a file. The third part of each
table judges, the second is what everyone stops by: ours through `fit(..., eval_set=...)`.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import tables_data
from benchmarks.tables_data import FIXED, NAMES
from benchmarks.tables_peers import SAME_FOR_EVERY_SEED
from benchmarks.tables_results import Line, grouped, markdown, read, spread
from benchmarks.tables_running import TrainingContext, parsed, reader, run_all
from benchmarks.tables_who import NEURAL, WHO

GOALS: dict[tuple[str, str], tuple[float, float]] = {
    ("california", "ours"): (0.425, 0.0),
    ("california", "paper"): (0.4688, 0.004),
    ("adult", "ours"): (0.874, 0.0),
    ("adult", "paper"): (0.8574, 0.001),
    ("covertype", "ours"): (0.973, 0.0),
    ("covertype", "paper"): (0.966, 0.0),
    ("covertype", "paper-quick"): (0.966, 0.0),
    ("bank", "ours"): (0.934, 0.0),
    ("blastchar", "ours"): (0.847, 0.0),
    ("income", "ours"): (0.929, 0.0),
}
"""What is to be reached, a lower RMSE, or a higher accuracy or AUC; and how far from it counts as reached."""
LONGEST_LAST = ("blastchar", "california", "bank", "income", "adult", "covertype")


@dataclass(frozen=True)
class Task:
    """One run: a table, who learns from it, and chance."""

    table: str
    who: str
    seed: int

    @property
    def cost(self) -> tuple[int, int, int]:
        """Rough and ready: the longest are begun first, so that none is waited for in the end."""
        pace = 2 if self.who in NEURAL else 1 if self.who.startswith("catboost") else 0
        return LONGEST_LAST.index(self.table) + 2 * pace, pace, -self.seed

    @property
    def is_told_already(self) -> bool:
        """Whoever rolls no dice says the same for every seed of a split that stays."""
        return bool(self.seed) and self.table in FIXED and self.who in SAME_FOR_EVERY_SEED


def run(task: Task, setting: TrainingContext) -> list[Line]:
    """Learn and be judged."""
    table, start = setting.load(task.table, task.seed), time.perf_counter()
    fitted = WHO[task.who](table, setting.terms(task.seed))
    learned = time.perf_counter()
    found = tables_data.score(table, fitted.predict(table.test.frame))
    line = {
        "measure": table.measure,
        "score": found[table.measure],
        "fit seconds": learned - start,
        "predict seconds": time.perf_counter() - learned,
        "machine": setting.machine(task.who),
        "limit": setting.seconds,
        "scores": found,
        "rows": [len(part) for part in table.parts],
        "facts": fitted.facts,
    }
    return [line]


def tasks(words: argparse.Namespace) -> list[Task]:
    """All that is asked for, the longest first."""
    every = (Task(table, who, seed) for table in words.only for who in words.who for seed in range(words.seeds))
    return sorted((task for task in every if not task.is_told_already), key=lambda task: task.cost, reverse=True)


def table_of(lines: list[Line]) -> Iterator[str]:
    """Markdown: a table for each data set, who was best first."""
    for (table, measure), own in grouped(lines, "table", "measure").items():
        groups = {who: group for (who,), group in grouped(own, "who").items()}
        best = sorted(groups, key=lambda who: _mean(groups[who], "score"), reverse=measure != "RMSE")
        head = ["who", measure, "goal", "s to learn", "s to predict", "runs", "on"]
        yield f"### {table}\n\n{markdown(head, [_row(table, who, groups[who]) for who in best])}\n"


def _row(table: str, who: str, lines: list[Line]) -> list[str]:
    score = spread([line["score"] for line in lines])
    spent = [f"{_mean(lines, kind):.{digits}f}" for kind, digits in (("fit seconds", 0), ("predict seconds", 2))]
    where = ", ".join(sorted({line["machine"] for line in lines}))
    return [who, score, goal(table, who, lines), *spent, str(len(lines)), where]


def goal(table: str, who: str, lines: list[Line]) -> str:
    """What is to be reached, and whether the mean of these runs has."""
    if (table, who) not in GOALS:
        return ""
    lower, (targets, within) = lines[0]["measure"] == "RMSE", GOALS[table, who]
    ahead = (_mean(lines, "score") - targets) * (-1 if lower else 1)
    asked = f"{'≤' if lower else '≥'} {targets}{f' ± {within}' if within else ''}"
    return f"{asked}: {'reached' if ahead >= -within else 'missed'}"


def _mean(lines: list[Line], kind: str) -> float:
    return statistics.mean(line[kind] for line in lines)


def main() -> None:
    words = parsed(reader("tables", __doc__, only=NAMES, who=list(WHO)))
    if words.table:
        print("\n".join(table_of(read(words.table))))
    else:
        run_all(run, tasks(words), words)


if __name__ == "__main__":
    main()
