"""Who learns from the tables: our estimators as they come, and the others beside them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.tables_data import Table
from benchmarks.tables_peers import PEERS, Fitted, Terms
from benchmarks.tables_rtdl import rtdl
from softlook.tabular import (
    FTTransformerClassifier,
    FTTransformerRegressor,
    TabTransformerClassifier,
    TabTransformerRegressor,
)
from softlook.tabular.defaults import FT_PAPER

FAMILIES = {
    "ft": (FTTransformerRegressor, FTTransformerClassifier),
    "tab": (TabTransformerRegressor, TabTransformerClassifier),
}
OURS = {
    "ours": ("ft", "ours"),
    "paper": ("ft", "paper"),
    "paper-quick": ("ft", replace(FT_PAPER, half=True, compiled=True)),
    "tab": ("tab", "ours"),
    "tab-paper": ("tab", "paper"),
}
"""A family and a recipe. The quick one is the paper's too, in bfloat16 and compiled, for a GPU."""


def estimator(who: str, table: Table, terms: Terms) -> Any:
    """One of ours for this table, nothing tuned."""
    family, recipe = OURS[who]
    kind: Any = FAMILIES[family][bool(table.classes)]
    return kind(recipe=recipe, random_state=terms.seed, n_jobs=terms.threads, time_limit=terms.seconds)


def answers(model: Any, table: Table) -> Callable[[Any], Any]:
    """Probabilities where classes are wanted, else numbers."""
    return model.predict_proba if table.classes else model.predict


def ours(who: str) -> Callable[[Table, Terms], Fitted]:
    """Ours, told the same rows to stop by as everyone."""

    def fit(table: Table, terms: Terms) -> Fitted:
        model = estimator(who, table, terms)
        held = (table.validation.frame, table.validation.wanted)
        model.fit(table.train.frame, table.train.wanted, validation=held)
        return Fitted(answers(model, table), {"epochs": model.n_iter_})

    return fit


WHO: dict[str, Callable[[Table, Terms], Fitted]] = {**{who: ours(who) for who in OURS}, **PEERS, "rtdl": rtdl}
NEURAL = (*OURS, "rtdl")
"""They run on the GPU where there is one."""
