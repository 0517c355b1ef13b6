"""Whole runs: the only place where everything is wired together. Each recipe is a function of its settings.

A name is fetched when it is first asked for, so that settings can be shown without waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.recipes.classification import classify as classify
    from softlook.recipes.evaluation import evaluate as evaluate
    from softlook.recipes.filling import fill as fill
    from softlook.recipes.job import Trained as Trained
    from softlook.recipes.language import lm as lm
    from softlook.recipes.settings import Classify as Classify
    from softlook.recipes.settings import Fill as Fill
    from softlook.recipes.settings import Lm as Lm
    from softlook.recipes.settings import Table as Table
    from softlook.recipes.settings import Translate as Translate
    from softlook.recipes.settings import Vectors as Vectors
    from softlook.recipes.tables import table as table
    from softlook.recipes.translation import translate as translate
    from softlook.recipes.word_vectors import vectors as vectors

HOMES = {
    "Trained": "job",
    "classify": "classification",
    "evaluate": "evaluation",
    "fill": "filling",
    "lm": "language",
    "table": "tables",
    "translate": "translation",
    "vectors": "word_vectors",
}
HOMES |= dict.fromkeys(("Classify", "Fill", "Lm", "Table", "Translate", "Vectors"), "settings")
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'softlook.recipes' has no attribute {name!r}")
    return getattr(import_module(f"softlook.recipes.{HOMES[name]}"), name)
