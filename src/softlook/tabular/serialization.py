"""Saving and loading estimators: JSON and safetensors, no pickle."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from softlook.base.errors import ConfigError, WeightsError
from softlook.base.version import VERSION
from softlook.models.optimize import optimize_for_cpu
from softlook.tabular.classifier import FTTransformerClassifier, TableTransformerClassifier, TabTransformerClassifier
from softlook.tabular.ensemble.ensemble import TableEnsemble
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.preprocessing.column_types import ColumnOverrides
from softlook.tabular.preprocessing.preprocessor import TablePreprocessor
from softlook.tabular.preprocessing.table_encoder import select_prefix
from softlook.tabular.preprocessing.target import target_from_state
from softlook.tabular.presets import Hyperparameters
from softlook.tabular.pretraining.linear_probe import FeatureScale, is_head_parameter
from softlook.tabular.pretraining.pretrain import Pretrained
from softlook.tabular.regressor import FTTransformerRegressor, TableTransformerRegressor, TabTransformerRegressor
from softlook.tabular.training.autosize import build_model
from softlook.tabular.training.retrieval import RowRetrieval
from softlook.tabular.training.runtime import Epoch
from softlook.weights.atomic_folder import atomic_folder, disk_errors
from softlook.weights.checkpoint import CONFIG_FILE, write_config
from softlook.weights.checkpoint import load as load_model
from softlook.weights.manifest import (
    ENSEMBLE_FOLDER,
    ESTIMATOR_FILE,
    best_checkpoint,
    read_manifest,
    verify_manifest,
    write_manifest,
)
from softlook.weights.meta import build_on_meta, check_depth, check_tensors_match, unique_tensors
from softlook.weights.schema import read_json
from softlook.weights.tensor_files import SINGLE_FILE, read_safetensors, write_safetensors

FORMAT = 2
RETRIEVAL_PREFIX, ENSEMBLE_PREFIX = "retrieval.", "ensemble."
ARRAYS_FILE = "preprocessor.safetensors"
PRETRAINED_FILE = "pretrained.safetensors"
WEIGHTS_PREFIX, SCALE_MEAN, SCALE = "weights.", "scale.mean", "scale.scale"
MAX_JSON_BYTES = 256 << 20
"""Categories of many columns may be large."""
ESTIMATORS: dict[str, type[TableEstimator]] = {
    estimator.__name__: estimator
    for estimator in (
        TableTransformerClassifier,
        TableTransformerRegressor,
        FTTransformerClassifier,
        FTTransformerRegressor,
        TabTransformerClassifier,
        TabTransformerRegressor,
    )
}
"""The classes that a folder may name; no other code is loaded."""
RANDOM_STATES = (np.random.RandomState, np.random.Generator)


def save(estimator: TableEstimator, folder: Path) -> Path:
    """Save an estimator to a new folder; `softlook.weights.load` can read the model of a fitted one too."""
    with atomic_folder(folder) as partial:
        if hasattr(estimator, "model_"):
            write_config(estimator.model_, partial)
            write_safetensors(unique_tensors(estimator.model_), partial / SINGLE_FILE)
            write_metadata(
                estimator,
                partial,
                estimator.hyperparameters_,
                estimator.history_,
                estimator.retrieval_,
                estimator.ensemble_,
            )
        else:
            _write(estimator, partial, {}, {})
        write_manifest(partial)
    return folder


def write_metadata(
    estimator: TableEstimator,
    folder: Path,
    hparams: Hyperparameters,
    history: list[Epoch],
    retrieval: RowRetrieval | None,
    ensemble: TableEnsemble | None = None,
) -> None:
    """Write all but the model: preprocessing, target, hyperparameters and history. Training may still be running."""
    values, tensors = (None, {}) if retrieval is None else retrieval.state()
    models, model_tensors = (None, {}) if ensemble is None else ensemble.state()
    fitted = {
        "hyperparameters": asdict(hparams),
        "target": estimator.target_.state(),
        "retrieval": values,
        "ensemble": models,
        "feature_importances": _to_list(getattr(estimator, "feature_importances_", None)),
        "residuals": _to_list(getattr(estimator, "residuals_", None)),
        "history": history,
    }
    arrays = {f"{RETRIEVAL_PREFIX}{name}": tensor.numpy() for name, tensor in tensors.items()}
    arrays |= {f"{ENSEMBLE_PREFIX}{name}": tensor.numpy() for name, tensor in model_tensors.items()}
    _write(estimator, folder, fitted, arrays)


def _write_pretrained(pretrained: Pretrained, folder: Path) -> dict[str, Any]:
    """Write the tensors of a pretrained model; returns its JSON values."""
    tensors = {f"{WEIGHTS_PREFIX}{name}": weights for name, weights in pretrained.weights.items()}
    scale = {SCALE_MEAN: pretrained.scale.mean, SCALE: pretrained.scale.scale}
    write_safetensors(tensors | scale, folder / PRETRAINED_FILE)
    return {
        "task": pretrained.task,
        "hyperparameters": asdict(pretrained.hparams),
        "column_types": pretrained.overrides.column_types,
        "orders": _to_json("ordinal_categories", pretrained.overrides.orders),
        "history": pretrained.history,
    }


def _write(estimator: TableEstimator, folder: Path, fitted: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write what every estimator has: parameters, preprocessing, and pretrained weights if there are any."""
    preprocessor, own = estimator.preprocessor_.state()
    pretrained = estimator._get_pretrained()
    content = {
        "format": FORMAT,
        "softlook": VERSION,
        "estimator": type(estimator).__name__,
        "parameters": {name: _to_json(name, value) for name, value in estimator.get_params(deep=False).items()},
        "preprocessor": preprocessor,
        **fitted,
        "pretrained": None if pretrained is None else _write_pretrained(pretrained, folder),
        "n_features": estimator.n_features_in_,
        "feature_names": None if (names := getattr(estimator, "feature_names_in_", None)) is None else names.tolist(),
    }
    contiguous = {name: np.ascontiguousarray(array) for name, array in (own | dict(arrays)).items()}
    (folder / ARRAYS_FILE).write_bytes(safetensors.numpy.save(contiguous))
    (folder / ESTIMATOR_FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path, kind: type[TableEstimator] = TableEstimator) -> Any:
    """Load an estimator from a folder written by `save`, or that of a run of `softlook train table`.

    Of a run it is the ensemble; without one, the model of the best checkpoint. All digests are verified first.
    """
    folder = Path(folder)
    ensemble = folder / ENSEMBLE_FOLDER
    with disk_errors("read", folder):
        folder = best_checkpoint(folder)
        folder = ensemble if (ensemble / ESTIMATOR_FILE).is_file() else folder
        if not (folder / ESTIMATOR_FILE).is_file():
            raise WeightsError(
                f"{folder} has no {ESTIMATOR_FILE}. Expected a folder written by an estimator's save, or a run."
            )
        files = read_manifest(folder, ESTIMATOR_FILE, ARRAYS_FILE)
        model = load_model(folder) if CONFIG_FILE in files or PRETRAINED_FILE not in files else None
        if model is None:
            verify_manifest(folder)
        content, arrays = read_json(folder / ESTIMATOR_FILE, MAX_JSON_BYTES), read_safetensors(folder / ARRAYS_FILE)
    try:
        estimator = _restore(content, {name: tensor.numpy() for name, tensor in arrays.items()})
        if PRETRAINED_FILE in files:
            pretrained = _restore_pretrained(content["pretrained"], estimator.preprocessor_, folder / PRETRAINED_FILE)
            estimator.pretrained_ = pretrained
        if model is not None:
            _restore_fitted(estimator, model, content, arrays)
    except WeightsError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise WeightsError(
            f"{folder / ESTIMATOR_FILE} was not written by an estimator's save: {error!r:.200}"
        ) from None
    if not isinstance(estimator, kind):
        raise WeightsError(f"{folder}: expected a {kind.__name__}, got a {type(estimator).__name__}")
    return estimator


def _restore(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> TableEstimator:
    if content["format"] != FORMAT or content["estimator"] not in ESTIMATORS:
        raise WeightsError(
            f"{ESTIMATOR_FILE}: expected one of {', '.join(ESTIMATORS)} in format {FORMAT}; "
            f"got {content['estimator']!r:.40} in format {content['format']!r:.20}"
        )
    estimator = ESTIMATORS[content["estimator"]]()
    BaseEstimator.set_params(estimator, **{name: _from_json(value) for name, value in content["parameters"].items()})
    estimator.preprocessor_ = TablePreprocessor.from_state(content["preprocessor"], arrays)
    estimator.n_features_in_ = content["n_features"]
    if content["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(content["feature_names"], dtype=object)
    return estimator


def _restore_fitted(
    estimator: TableEstimator, model: nn.Module, content: dict[str, Any], arrays: Mapping[str, Tensor]
) -> None:
    """Restore the attributes of a fitted estimator."""
    estimator.model_ = optimize_for_cpu(model)  # as a fitted one: the same predictions, bit for bit
    estimator.hyperparameters_ = Hyperparameters(**content["hyperparameters"])
    estimator.target_ = target_from_state(content["target"])
    tensors = select_prefix(RETRIEVAL_PREFIX, arrays)
    estimator.retrieval_ = None if content["retrieval"] is None else RowRetrieval(**tensors, **content["retrieval"])
    models, own = content.get("ensemble"), select_prefix(ENSEMBLE_PREFIX, arrays)  # absent before version 0.2
    own = {name: tensor.clone() for name, tensor in own.items()}  # tensors read from a file may be memory-mapped
    parts = (own, estimator.preprocessor_, estimator.target_)
    estimator.ensemble_ = None if models is None else TableEnsemble.from_state(models, *parts)
    estimator.feature_importances_ = np.array(content.get("feature_importances"), dtype=np.float64)
    residuals = content.get("residuals")
    estimator.residuals_ = None if residuals is None else np.array(residuals, dtype=np.float64)
    estimator.history_, estimator.n_iter_ = content["history"], len(content["history"])


def _restore_pretrained(values: dict[str, Any], preprocessor: TablePreprocessor, file: Path) -> Pretrained:
    """Restore a pretrained model, after checking that the weights match it."""
    # clones, because tensors read from a file may be memory-mapped
    tensors = {name: tensor.clone() for name, tensor in read_safetensors(file).items()}
    scale = FeatureScale(tensors.pop(SCALE_MEAN), tensors.pop(SCALE))
    hparams = Hyperparameters(**values["hyperparameters"])
    weights = {name.removeprefix(WEIGHTS_PREFIX): tensor for name, tensor in tensors.items()}
    check_depth(values["hyperparameters"], file)
    model = build_on_meta(lambda: build_model(hparams, preprocessor, None, 1), file)
    expected = {name: tensor for name, tensor in model.state_dict().items() if not is_head_parameter(name)}
    check_tensors_match(expected, weights, file)
    overrides = ColumnOverrides(values["column_types"], _from_json(values["orders"]))
    return Pretrained(values["task"], hparams, overrides, preprocessor, weights, scale, values["history"])


def _to_list(array: np.ndarray | None) -> Any:
    return None if array is None else array.tolist()


def _to_json(name: str, value: Any) -> Any:
    """A parameter as JSON. A numpy random state is not stored: it is loaded as None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, RANDOM_STATES):
        return None
    if isinstance(value, Hyperparameters):
        return {"hyperparameters": asdict(value)}
    if isinstance(value, Mapping):
        return {"pairs": [[_to_json(name, key), _to_json(name, one)] for key, one in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        return [_to_json(name, one) for one in value]
    raise ConfigError(f"{name} is a {type(value).__name__}, which cannot be saved. Use plain values.")


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(one) for one in value]
    if isinstance(value, dict):
        if "hyperparameters" in value:
            return Hyperparameters(**value["hyperparameters"])
        return {_from_json(key): _from_json(one) for key, one in value["pairs"]}
    return value
