"""A table model for the studio: a row to edit, its prediction, attention between features, importances."""

import math
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from softlook.base.errors import ConfigError, DataError
from softlook.lens.trace import trace
from softlook.models import TabTransformer
from softlook.recipes.config.tabular_schema import TabularConfig
from softlook.recipes.run_dir.layout import SETTINGS_FILE, load_run_config, load_scores
from softlook.recipes.tabular.predict import TablePredictor, load_predictor
from softlook.recipes.tabular.scores import COLUMNS, IMPORTANCES
from softlook.recipes.tabular.serving import ServedTableModel
from softlook.serve.loaded_model import Cell
from softlook.studio.recording import StudioTrace
from softlook.tabular.importance import ExplainableEstimator, FeatureImportances

CLS = "[CLS]"
MAX_VALUES = 200
"""Values of a category that are listed."""
MAX_FEATURES, MAP_ROWS = 200, 512
"""Features of a map between features, and the rows of which it is the mean."""


def open_table(run: Path, device: str = "auto") -> tuple["StudioTable", StudioTrace]:
    """The table model of a run, and the trace of a first row."""
    table = StudioTable(run, load_predictor(run, device=device))
    return table, table.predict(table.columns()["row"])[1]


class StudioTable:
    """A run of `softlook train table`, or the folder of an estimator."""

    def __init__(self, run: Path, predictor: TablePredictor) -> None:
        self.run, self.predictor = run, predictor
        self.model = ServedTableModel(predictor)
        self.lock = threading.Lock()
        """Held during a forward pass: a trace is made of hooks of the model."""

    def columns(self) -> dict[str, Any]:
        """The columns with their values, and a row to begin with: the first of the training data, if it is there."""
        listed = [_describe(name, kind, one.values) for (name, kind), one in self._columns()]
        return {"columns": listed, "row": self._first_row(), "target": list(self.predictor.target)}

    def predict(self, row: Mapping[str, Cell]) -> tuple[dict[str, Any], StudioTrace]:
        """The prediction for a row, and the attention between its features."""
        if unknown := sorted(set(row) - set(self.model.columns)):
            raise DataError(f"there is no column {unknown[0]!r:.80}: expected {', '.join(self.model.columns)}")
        chunks = self.model.encode({name: [row.get(name)] for name in self.model.columns}, 1)
        with self.lock:
            outputs, recording = self.model.predict(chunks), self._trace(chunks, row)
        (prediction,) = self.model.decode(outputs)
        names = [str(one) for one in self.model.classes]
        probabilities = [list(pair) for pair in zip(names, outputs[0].tolist(), strict=True)] if names else None
        return {"prediction": prediction, "probabilities": probabilities}, recording

    def importance(self) -> dict[str, Any]:
        """Attention and permutation importance, measured at the end of training, the most important column first."""
        scores = load_scores(self.run).get(IMPORTANCES)
        if scores is None:
            raise ConfigError(f"{self.run} has no importances: they are measured at the end of `softlook train table`")
        names = tuple(one["name"] for one in scores[COLUMNS])
        attention, permutation = (
            np.array([math.nan if one[name] is None else one[name] for one in scores[COLUMNS]], float)
            for name in ("attention", "permutation")
        )
        found = FeatureImportances(names, attention, permutation, np.zeros(len(names)), scores["rows"])
        return {
            "names": list(names),
            "attention": _known(attention),
            "permutation": _known(permutation),
            "permutation_std": [None] * len(names),
            "disagreement": found.disagreement.tolist(),
            "rows": scores["rows"],
            "metric": scores["metric"],
            **self._between_features(),
        }

    def _between_features(self) -> dict[str, Any]:
        """Attention between features, the mean over rows of the training data, heads and blocks, if it can be had."""
        chunk, estimator = self._first_chunk(), self.model.estimator
        if chunk is None or not isinstance(estimator, ExplainableEstimator) or len(self.model.columns) > MAX_FEATURES:
            return {}
        try:
            with self.lock:
                maps = estimator.attention_maps(chunk.slice(0, MAP_ROWS).select(list(self.predictor.features)))
        except ConfigError:  # one block only, in which no feature attends
            return {}
        return {"features": list(self.model.columns), "attention_matrix": [_known(one) for one in maps]}

    def _first_chunk(self) -> pa.Table | None:
        """The first rows of the training data, if they are there."""
        config = load_run_config(self.run) if (self.run / SETTINGS_FILE).is_file() else None
        if not isinstance(config, TabularConfig) or not all(Path(file).exists() for file in config.data):
            return None
        return next(iter(self.predictor.read_chunks(config.data)), None)

    def _trace(self, chunks: Any, row: Mapping[str, Cell]) -> StudioTrace:
        """The attention of the model for one row."""
        model, rows = self.model.estimator.model_, self.model._to_rows(chunks)
        with torch.no_grad(), trace(model.eval(), tokens=self._tokens()) as recorded:
            model(rows.numbers, rows.categories)
        recorded.source_tokens = recorded.tokens
        title = ", ".join(f"{name}: {cell}" for name, cell in list(row.items())[:4])
        return StudioTrace(recorded, title, self.predictor.name, "table", made_live=True)

    def _tokens(self) -> list[str]:
        """The names of the columns that each token comes from; first [CLS], where the model has it."""
        preprocessor, names = self.model.estimator.preprocessor_, tuple(self.model.columns)
        is_tab = isinstance(self.model.estimator.model_, TabTransformer)
        shares = preprocessor.token_columns[preprocessor.n_numbers if is_tab else 0 :]
        found = [" + ".join(names[column] for column in np.flatnonzero(share)) for share in shares]
        return found if is_tab else [CLS, *found]

    def _columns(self) -> Any:
        return zip(self.model.columns.items(), self.model.json_columns, strict=True)

    def _first_row(self) -> dict[str, Cell]:
        row: dict[str, Cell] = {name: one.values[0] if one.values else None for (name, _), one in self._columns()}
        chunk = self._first_chunk()
        known = {} if chunk is None or not len(chunk) else chunk.slice(0, 1).to_pylist()[0]
        return {
            name: _cell(known.get(name, value), kind)
            for (name, kind), value in zip(self.model.columns.items(), row.values(), strict=True)
        }


def _describe(name: str, kind: str, values: tuple[str, ...]) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": "number" if kind == "number" else "category", "kind": kind}
    return column | ({"values": list(values[:MAX_VALUES])} if values else {})


def _cell(value: Any, kind: str) -> Cell:
    """A cell as JSON has it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return (
        float(value) if kind == "number" and not isinstance(value, int) else value if kind == "number" else str(value)
    )


def _known(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]
