"""Attention for tables: what the columns are, and scikit-learn's estimators over them.

It needs scikit-learn and narwhals: `pip install softlook[tables]`; `tune` also needs optuna: `softlook[tune]`.
"""

from typing import TYPE_CHECKING, Any

try:
    import narwhals as narwhals
    import sklearn as sklearn
except ImportError as fault:
    raise ImportError("for tables, install scikit-learn and narwhals: pip install softlook[tables]") from fault

from softlook.tabular.classifier import FTTransformerClassifier as FTTransformerClassifier
from softlook.tabular.classifier import TabTransformerClassifier as TabTransformerClassifier
from softlook.tabular.defaults import RECIPES as RECIPES
from softlook.tabular.defaults import Recipe as Recipe
from softlook.tabular.encoding.columns import Columns as Columns
from softlook.tabular.encoding.columns import Encoded as Encoded
from softlook.tabular.encoding.columns import Slot as Slot
from softlook.tabular.encoding.kinds import Kind as Kind
from softlook.tabular.encoding.scaling import Scaling as Scaling
from softlook.tabular.importance import Importances as Importances
from softlook.tabular.regressor import FTTransformerRegressor as FTTransformerRegressor
from softlook.tabular.regressor import TabTransformerRegressor as TabTransformerRegressor
from softlook.tabular.saving import load as load

if TYPE_CHECKING:
    from softlook.tabular.tuning import tune as tune


def __getattr__(name: str) -> Any:
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from softlook.tabular.tuning import tune  # noqa: PLC0415  (it takes a package of its own)

    return tune
