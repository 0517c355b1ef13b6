"""`python -m benchmarks.tables_importance FOLDER`: is what [CLS] looks at what the answers depend on?

On California, as in the FT-Transformer paper (section 5.3): how far attention and permutation importance of the
training rows agree in their ranks (Spearman; the paper has 0.81 ± 0.05). And a probe whose answer is known: of four
columns one alone decides, and it has to come first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas

from benchmarks.tables_data import Table, TableTensors
from benchmarks.tables_results import Line, grouped, markdown, read, spread
from benchmarks.tables_running import TrainingContext, parsed, reader, run_all
from benchmarks.tables_who import estimator

GOAL = 0.81
PLANTED = "a"
REPEATS = 5


@dataclass(frozen=True)
class Task:
    table: str
    who: str
    seed: int


def fit_linear_probe(seed: int, rows: int = 2000) -> Table:
    """Two numbers and two categories; the first number alone decides, but for one row in thirty.

    Numbers are taken for tokens before categories are, so that whoever mixes up the two names the wrong one.
    """
    dice = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "c": dice.choice(["red", "green", "blue"], rows),
            PLANTED: dice.normal(size=rows),
            "d": dice.choice(["yes", "no"], rows),
            "b": dice.normal(size=rows),
        }
    )
    targets = (frame[PLANTED].to_numpy() > 0) ^ (dice.random(rows) < 1 / 30)
    every, cuts = TableTensors(frame, targets.astype(np.int64)), np.split(np.arange(rows), [rows * 6 // 10, rows * 8 // 10])
    return Table("probe", "accuracy", *(every.take(cut) for cut in cuts))


def run(task: Task, setting: TrainingContext) -> list[Line]:
    """Learn, and compare what is looked at with what is missed when it is shuffled."""
    table = fit_linear_probe(task.seed).first(setting.rows) if task.table == "probe" else setting.load(task.table, task.seed)
    model = estimator(task.who, table, setting.terms(task.seed))
    model.fit(table.train.frame, table.train.target, eval_set=(table.eval_set.frame, table.eval_set.target))
    found = model.importances(table.train.frame, table.train.target, repeats=REPEATS, random_state=task.seed)
    return [
        {
            "score": found.correlation,
            "test": float(model.score(table.test.frame, table.test.target)),
            "first by attention": found.names[int(found.attention.argmax())],
            "first by permutation": found.names[int(found.permutation.argmax())],
            "attention": dict(zip(found.names, found.attention.tolist(), strict=True)),
            "permutation": dict(zip(found.names, found.permutation.tolist(), strict=True)),
        }
    ]


def table_of(lines: list[Line]) -> Iterator[str]:
    """Markdown: agreement in ranks, then the probe, then what each column got."""
    ranks = [line for line in lines if line["table"] != "probe"]
    rows = []
    for (table, who), group in grouped(ranks, "table", "who").items():
        mean = float(np.mean([line["score"] for line in group]))
        goal = f"≥ {GOAL}: {'reached' if mean >= GOAL else 'missed'}"
        rows.append([table, who, spread([line["score"] for line in group], 2), goal, str(len(group))])
    yield markdown(["table", "who", "Spearman, attention and permutation", "goal", "runs"], rows) + "\n"
    rows = []
    for (who,), group in grouped((line for line in lines if line["table"] == "probe"), "who").items():
        right = [sum(line[f"first by {way}"] == PLANTED for line in group) for way in ("attention", "permutation")]
        share = spread([line["attention"][PLANTED] for line in group], 2)
        rows.append([who, *(f"{count} of {len(group)}" for count in right), share])
    yield (
        markdown(["probe", "right column first by attention", "by permutation", "its share of attention"], rows) + "\n"
    )
    for (table, who), group in grouped(lines, "table", "who").items():
        yield _columns(table, who, group)


def _columns(table: str, who: str, group: list[Line]) -> str:
    means = {way: {name: float(np.mean([line[way][name] for line in group])) for name in group[0][way]} for way in WAYS}
    order = sorted(means["permutation"], key=lambda name: means["permutation"][name], reverse=True)
    rows = [[name, *(f"{means[way][name]:.4f}" for way in WAYS)] for name in order]
    return markdown([f"{table}, {who}", *WAYS], rows) + "\n"


WAYS = ("attention", "permutation")


def main() -> None:
    words = parsed(reader("tables_importance", __doc__, only=("california", "probe"), who=("ours", "paper")))
    if not words.table:
        every = [Task(table, who, seed) for table in words.only for who in words.who for seed in range(words.seeds)]
        run_all(run, every, words)
    print("\n".join(table_of(read(words.table or words.out))))


if __name__ == "__main__":
    main()
