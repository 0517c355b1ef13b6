"""Who learns from the tables: our estimators as they come, and the others beside them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.tables_data import Table
from benchmarks.tables_peers import PEERS, Fitted, Terms
from benchmarks.tables_rtdl import rtdl
from softlook.tabular import (
    TableTransformerClassifier,
    TableTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)
from softlook.tabular.presets import FT_PAPER

FAMILIES = {
    "ft": (TableTransformerRegressor, TableTransformerClassifier),
    "tab": (TabTransformerRegressor, TabTransformerClassifier),
}
OURS = {
    "ours": ("ft", "ours"),
    "paper": ("ft", "paper"),
    "paper-quick": ("ft", replace(FT_PAPER, half=True, compile=True)),
    "tab": ("tab", "ours"),
    "tab-paper": ("tab", "paper"),
}
"""A family and a recipe. The quick one is the paper's too, in bfloat16 and compiled, for a GPU."""


def estimator(who: str, table: Table, terms: Terms) -> Any:
    """One of ours for this table, nothing tuned."""
    family, preset = OURS[who]
    kind: Any = FAMILIES[family][bool(table.classes)]
    return kind(preset=preset, random_state=terms.seed, n_jobs=terms.limit_threads, time_limit=terms.seconds)


def predict_rows(model: Any, table: Table) -> Callable[[Any], Any]:
    """Probabilities where classes are wanted, else numbers."""
    return model.predict_proba if table.classes else model.predict


def ours(who: str) -> Callable[[Table, Terms], Fitted]:
    """Ours, told the same rows to stop by as everyone."""

    def fit(table: Table, terms: Terms) -> Fitted:
        model = estimator(who, table, terms)
        held = (table.eval_set.frame, table.eval_set.target)
        model.fit(table.train.frame, table.train.target, eval_set=held)
        return Fitted(predict_rows(model, table), {"epochs": model.n_iter_})

    return fit


WHO: dict[str, Callable[[Table, Terms], Fitted]] = {**{who: ours(who) for who in OURS}, **PEERS, "rtdl": rtdl}
NEURAL = (*OURS, "rtdl")
"""They run on the GPU where there is one."""
