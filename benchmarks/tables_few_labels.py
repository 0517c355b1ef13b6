"""`python -m benchmarks.tables_few_labels FOLDER`: 50, 200 and 500 labels, and many rows without one.

As TabTransformer's paper has it (Huang et al. 2020): five splits of 65 / 15 / 20, a few labels of the first part, and
all of it without labels for whoever can learn from such rows: ours, by filling masked cells ("mlm") or by finding
replaced ones ("rtd"). Nobody has other labels than these few: ours is told no more, and boosting, which wants rows to
stop by, takes a fifth of them. `--eval_set` gives everyone the second part to stop by, as the paper has it; but who
has 50 labels seldom has 2,000 more to look at.
"""

import copy
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import tables_data
from benchmarks.tables_data import BY_CHANCE, Table, divided
from benchmarks.tables_peers import PEERS, Fitted, Terms
from benchmarks.tables_results import Line, grouped, markdown, read, spread
from benchmarks.tables_running import TrainingContext, parsed, reader, run_all
from benchmarks.tables_who import estimator, predict_rows

LABELS = (50, 200, 500)
OURS = {f"{who}{f'-{task}' if task else ''}": (who, task) for who in ("ours", "tab") for task in (None, "mlm", "rtd")}
"""Which of ours, and what it learns from rows without labels."""
WHO = (*OURS, "lightgbm", "catboost", "histgb", "linear")
PUBLISHED = {
    "income": {"RTD": (0.840, 0.866, 0.874), "MLM": (0.862, 0.875, 0.880), "GBDT (PL)": (0.685, 0.822, 0.839)},
    "bank": {"RTD": (0.771, 0.854, 0.879), "MLM": (0.735, 0.838, 0.866), "GBDT (PL)": (0.688, 0.802, 0.838)},
    "blastchar": {"RTD": (0.806, 0.831, 0.840), "MLM": (0.822, 0.841, 0.839), "GBDT (PL)": (0.729, 0.783, 0.795)},
}
"""The paper's AUC with so many labels: TabTransformer pre-trained in both ways, and boosting with pseudo-labels."""


@dataclass(frozen=True)
class Task:
    table: str
    who: str
    seed: int
    stopped_by: str
    """"labels", the few there are; or "validation", other rows."""


def few_of(table: Table, labels: int, seed: int) -> Table:
    """The table with so many labels, each class with its share of them."""
    return replace(table, train=table.train.take(divided(table.train.target, labels, seed)[1]))


def by_itself(table: Table, seed: int) -> Table:
    """The table with a fifth of its own training rows to stop by."""
    rest, held = divided(table.train.target, 0.2, seed)
    return replace(table, train=table.train.take(rest), eval_set=table.train.take(held))


def run(task: Task, setting: TrainingContext) -> list[Line]:
    """Learn from all rows once, where that is learned; then from each number of labels, and be judged."""
    table, terms = setting.load(task.table, task.seed), setting.terms(task.seed)
    begun = pretrained(task.who, table, terms) if task.who in OURS else None
    where, lines = setting.machine(task.who.split("-")[0]), []
    for labels in LABELS:
        few = few_of(table, labels, task.seed)
        if begun is not None:
            fitted = _finished(begun, few, task.stopped_by)
        else:
            fitted = PEERS[task.who](few if task.stopped_by == "validation" else by_itself(few, task.seed), terms)
        score = tables_data.score(table, fitted.predict(table.test.frame))["AUC"]
        lines.append({"labels": labels, "score": score, "machine": where, "facts": fitted.facts})
    return lines


def pretrained(who: str, table: Table, terms: Terms) -> Any:
    """One of ours that has seen all training rows, and none of their labels."""
    name, task = OURS[who]
    model = estimator(name, table, terms)
    return model.pretrain(table.train.frame, task=task) if task else model


def _finished(begun: Any, few: Table, stopped_by: str) -> Fitted:
    model = copy.deepcopy(begun)
    held = (few.eval_set.frame, few.eval_set.target) if stopped_by == "validation" else None
    model.fit(few.train.frame, few.train.target, eval_set=held)
    return Fitted(predict_rows(model, few), {"epochs": model.n_iter_})


def table_of(lines: list[Line]) -> Iterator[str]:
    """Markdown: a table for each data set, the paper's figures below ours."""
    for (table, stopped_by), own in grouped(lines, "table", "stopped_by").items():
        rows = []
        for (who,), group in grouped(own, "who").items():
            scores = {
                labels: [line["score"] for line in found] for (labels,), found in grouped(group, "labels").items()
            }
            cells = [spread(scores[labels], 3) if labels in scores else "" for labels in LABELS]
            rows.append([who, *cells, str(max(map(len, scores.values())))])
        rows += [[f"paper: {who}", *(f"{auc:.3f}" for auc in aucs), "5"] for who, aucs in PUBLISHED[table].items()]
        head = [f"{table}, AUC, stopped by {stopped_by}", *(f"{labels} labels" for labels in LABELS), "runs"]
        yield markdown(head, rows) + "\n"
        yield _gains(own) + "\n"


def _gains(lines: list[Line]) -> str:
    """What pre-training brings: the mean difference to none, on the same labels."""
    told = []
    scores = {key: group[0]["score"] for key, group in grouped(lines, "who", "seed", "labels").items()}
    for who, (plain, task) in OURS.items():
        pairs = [
            (scores[key], scores[plain, *key[1:]]) for key in scores if key[0] == who and (plain, *key[1:]) in scores
        ]
        if task and pairs:
            better = sum(one > other for one, other in pairs)
            mean = statistics.mean(one - other for one, other in pairs)
            told.append(f"{who} {mean:+.3f} against {plain}, better in {better} of {len(pairs)}")
    return "; ".join(told)


def main() -> None:
    words = reader("tables_few_labels", __doc__, only=list(BY_CHANCE), who=WHO)
    words.add_argument("--validation", action="store_true", help="the second part to stop by, as in the paper")
    told = parsed(words)
    if not told.table:
        by = "validation" if told.eval_set else "labels"
        every = [Task(table, who, seed, by) for table in told.only for who in told.who for seed in range(told.seeds)]
        run_all(run, every, told)
    print("\n".join(table_of(read(told.table or told.out))))


if __name__ == "__main__":
    main()
