"""Estimators as folders: JSON, safetensors, and a digest of each file. Nothing is pickled, here or back."""

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
from softlook.tabular.classifier import FTTransformerClassifier, TabTransformerClassifier
from softlook.tabular.defaults import Recipe
from softlook.tabular.encoding.kinds import Said
from softlook.tabular.encoding.reading import Reading
from softlook.tabular.encoding.targets import targets_from
from softlook.tabular.estimator import TableEstimator
from softlook.tabular.learning.fitting import Epoch
from softlook.tabular.learning.making import make_model
from softlook.tabular.learning.row_memory import Memory
from softlook.tabular.regressor import FTTransformerRegressor, TabTransformerRegressor
from softlook.tabular.unlabelled.internals import is_answering
from softlook.tabular.unlabelled.pretraining_loop import Pretrained
from softlook.tabular.unlabelled.probing import Scale
from softlook.weights.checkpoint import CONFIG, describe
from softlook.weights.checkpoint import load as load_model
from softlook.weights.files import SINGLE, read_file, write_file
from softlook.weights.folders import new_folder, told
from softlook.weights.hollow import check_depth, compare, hollow, own_tensors
from softlook.weights.manifest import listed, verify, write_manifest
from softlook.weights.runs import ESTIMATOR, best_of
from softlook.weights.schema import read_json

FORMAT = 1
MEMORY = "memory."
ARRAYS = "columns.safetensors"
PRETRAINED = "pretrained.safetensors"
"""What rows without labels taught."""
WEIGHTS, MIDDLE, WIDTH = "weights.", "scale.middle", "scale.width"
LARGEST = 256 << 20
"""Bytes. The words of many columns of categories may be a book."""
KNOWN: dict[str, type[TableEstimator]] = {
    kind.__name__: kind
    for kind in (
        FTTransformerClassifier,
        FTTransformerRegressor,
        TabTransformerClassifier,
        TabTransformerRegressor,
    )
}
"""A folder chooses from this list; it can name no other code."""
CHANCE = (np.random.RandomState, np.random.Generator)


def save(estimator: TableEstimator, folder: Path) -> Path:
    """Write an estimator as a new folder; the model of a fitted one can be read by `softlook.weights.load` too."""
    with new_folder(folder) as made:
        if hasattr(estimator, "model_"):
            describe(estimator.model_, made)
            write_file(own_tensors(estimator.model_), made / SINGLE)
            write_about(estimator, made, estimator.recipe_, estimator.history_, estimator.memory_)
        else:
            _write(estimator, made, {}, {})
        write_manifest(made)
    return folder


def write_about(
    estimator: TableEstimator, folder: Path, recipe: Recipe, history: list[Epoch], memory: Memory | None
) -> None:
    """All but the model: what was learned about columns and targets, and how. It may still be learning."""
    recalled, remembered = (None, {}) if memory is None else memory.state()
    learned = {
        "recipe": asdict(recipe),
        "targets": estimator.targets_.state(),
        "memory": recalled,
        "history": history,
    }
    _write(estimator, folder, learned, {f"{MEMORY}{name}": tensor.numpy() for name, tensor in remembered.items()})


def _write_pretrained(begun: Pretrained, folder: Path) -> dict[str, Any]:
    """What rows without labels taught: the tensors as a file, and all else for JSON."""
    tensors = {f"{WEIGHTS}{name}": weights for name, weights in begun.weights.items()}
    write_file(tensors | {MIDDLE: begun.scale.middle, WIDTH: begun.scale.width}, folder / PRETRAINED)
    said = {"kinds": begun.said.kinds, "orders": _written("ordinal", begun.said.orders)}
    return {"task": begun.task, "recipe": asdict(begun.recipe), "said": said, "history": begun.history}


def _write(estimator: TableEstimator, folder: Path, learned: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """What every estimator has: what it was told, what it knows of columns, and what `pretrain` taught it, if so."""
    facts, own = estimator.reading_.state()
    begun = estimator._begun()
    content = {
        "format": FORMAT,
        "softlook": VERSION,
        "estimator": type(estimator).__name__,
        "parameters": {name: _written(name, value) for name, value in estimator.get_params(deep=False).items()},
        "reading": facts,
        **learned,
        "pretrained": None if begun is None else _write_pretrained(begun, folder),
        "features": estimator.n_features_in_,
        "names": None if (names := getattr(estimator, "feature_names_in_", None)) is None else names.tolist(),
    }
    kept = {name: np.ascontiguousarray(array) for name, array in (own | dict(arrays)).items()}
    (folder / ARRAYS).write_bytes(safetensors.numpy.save(kept))
    (folder / ESTIMATOR).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(folder: str | Path, kind: type[TableEstimator] = TableEstimator) -> Any:
    """The estimator in a folder that `save` wrote, or of a run of `softlook train table` the best one.

    Every byte is compared with its digest before any is believed.
    """
    folder = Path(folder)
    with told("read", folder):
        folder = best_of(folder)
        if not (folder / ESTIMATOR).is_file():
            raise WeightsError(
                f"{folder} holds no {ESTIMATOR}. Give the folder that an estimator's save wrote, or a run."
            )
        files = listed(folder, ESTIMATOR, ARRAYS)
        model = load_model(folder) if CONFIG in files or PRETRAINED not in files else None
        if model is None:
            verify(folder)
        content, arrays = read_json(folder / ESTIMATOR, LARGEST), read_file(folder / ARRAYS)
    try:
        found = _restored(content, {name: tensor.numpy() for name, tensor in arrays.items()})
        if PRETRAINED in files:
            found.pretrained_ = _pretrained(content["pretrained"], found.reading_, folder / PRETRAINED)
        if model is not None:
            _put_back(found, model, content, arrays)
    except WeightsError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as fault:
        raise WeightsError(f"{folder / ESTIMATOR} is not what an estimator's save wrote: {fault!r:.200}") from None
    if not isinstance(found, kind):
        raise WeightsError(f"{folder} holds a {type(found).__name__}, and no {kind.__name__}")
    return found


def _restored(content: dict[str, Any], arrays: dict[str, np.ndarray]) -> TableEstimator:
    if content["format"] != FORMAT or content["estimator"] not in KNOWN:
        known = ", ".join(KNOWN)
        raise WeightsError(
            f"{ESTIMATOR} names {content['estimator']!r:.40}, format {content['format']!r:.20}; "
            f"known are {known}, format {FORMAT}"
        )
    estimator = KNOWN[content["estimator"]]()
    BaseEstimator.set_params(estimator, **{name: _read(value) for name, value in content["parameters"].items()})
    estimator.reading_ = Reading.from_state(content["reading"], arrays)
    estimator.n_features_in_ = content["features"]
    if content["names"] is not None:
        estimator.feature_names_in_ = np.array(content["names"], dtype=object)
    return estimator


def _put_back(
    estimator: TableEstimator, model: nn.Module, content: dict[str, Any], arrays: Mapping[str, Tensor]
) -> None:
    """What a fitted estimator has beside."""
    estimator.model_, estimator.recipe_ = model, Recipe(**content["recipe"])
    estimator.targets_ = targets_from(content["targets"])
    remembered = {name.removeprefix(MEMORY): arrays[name] for name in arrays if name.startswith(MEMORY)}
    estimator.memory_ = None if content["memory"] is None else Memory(**remembered, **content["memory"])
    estimator.history_, estimator.n_iter_ = content["history"], len(content["history"])


def _pretrained(facts: dict[str, Any], reading: Reading, file: Path) -> Pretrained:
    """What rows without labels taught, after it was seen that the weights are those of the model that it names."""
    # Copies: what was read from a file may still be that file, which somebody may write to.
    tensors = {name: tensor.clone() for name, tensor in read_file(file).items()}
    scale, recipe = Scale(tensors.pop(MIDDLE), tensors.pop(WIDTH)), Recipe(**facts["recipe"])
    weights = {name.removeprefix(WEIGHTS): tensor for name, tensor in tensors.items()}
    check_depth(facts["recipe"], file)
    places = hollow(lambda: make_model(recipe, reading, None, 1), file)
    compare(
        {name: place for name, place in places.state_dict().items() if not is_answering(places, name)}, weights, file
    )
    said = Said(facts["said"]["kinds"], _read(facts["said"]["orders"]))
    return Pretrained(facts["task"], recipe, said, reading, weights, scale, facts["history"])


def _written(name: str, value: Any) -> Any:
    """A parameter as JSON has it. Dice that stand somewhere are not kept: they come back as None."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, CHANCE):
        return None
    if isinstance(value, Recipe):
        return {"recipe": asdict(value)}
    if isinstance(value, Mapping):
        return {"pairs": [[_written(name, key), _written(name, one)] for key, one in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        return [_written(name, one) for one in value]
    raise ConfigError(f"{name} is a {type(value).__name__}, which cannot be written down. Use plain values to save.")


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(one) for one in value]
    if isinstance(value, dict):
        return (
            Recipe(**value["recipe"]) if "recipe" in value else {_read(key): _read(one) for key, one in value["pairs"]}
        )
    return value
