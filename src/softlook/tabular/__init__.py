"""scikit-learn estimators for tables.

They require scikit-learn and narwhals: `pip install softlook[tables]`; `tune` also requires optuna: `softlook[tune]`.
Names are imported on first use, so that `softlook.tabular.presets` is available without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softlook.tabular.classifier import FTTransformerClassifier as FTTransformerClassifier
    from softlook.tabular.classifier import TableTransformerClassifier as TableTransformerClassifier
    from softlook.tabular.classifier import TabTransformerClassifier as TabTransformerClassifier
    from softlook.tabular.importance import FeatureImportances as FeatureImportances
    from softlook.tabular.preprocessing.column_types import ColumnType as ColumnType
    from softlook.tabular.preprocessing.numeric import NumericScaler as NumericScaler
    from softlook.tabular.preprocessing.table_encoder import EncodedTable as EncodedTable
    from softlook.tabular.preprocessing.table_encoder import Feature as Feature
    from softlook.tabular.preprocessing.table_encoder import TableEncoder as TableEncoder
    from softlook.tabular.presets import PRESETS as PRESETS
    from softlook.tabular.presets import Hyperparameters as Hyperparameters
    from softlook.tabular.regressor import FTTransformerRegressor as FTTransformerRegressor
    from softlook.tabular.regressor import TableTransformerRegressor as TableTransformerRegressor
    from softlook.tabular.regressor import TabTransformerRegressor as TabTransformerRegressor
    from softlook.tabular.serialization import load as load
    from softlook.tabular.tuning import tune as tune

_MODULES = {
    "classifier": ("TableTransformerClassifier", "FTTransformerClassifier", "TabTransformerClassifier"),
    "regressor": ("TableTransformerRegressor", "FTTransformerRegressor", "TabTransformerRegressor"),
    "presets": ("PRESETS", "Hyperparameters"),
    "preprocessing.table_encoder": ("TableEncoder", "EncodedTable", "Feature"),
    "preprocessing.column_types": ("ColumnType",),
    "preprocessing.numeric": ("NumericScaler",),
    "importance": ("FeatureImportances",),
    "serialization": ("load",),
    "tuning": ("tune",),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("sklearn", "narwhals"):
            raise ImportError(
                "softlook.tabular requires scikit-learn and narwhals: pip install softlook[tables]"
            ) from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
