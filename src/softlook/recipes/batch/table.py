"""Predictions of a table model for rows."""

from collections.abc import Sequence

import pyarrow as pa

from softlook.base.errors import ConfigError, DataError
from softlook.recipes.batch.parts import ParquetInput
from softlook.recipes.batch.row_predictor import BatchParams
from softlook.recipes.tabular.data import check_not_nested
from softlook.recipes.tabular.predict import TablePredictor
from softlook.tabular.io.column import CellError


class TableRowPredictor:
    """The targets of rows, and the probabilities of classes."""

    def __init__(self, table: TablePredictor, params: BatchParams) -> None:
        params.check("predict table rows", "probabilities")
        if params.probabilities and not table.classes:
            raise ConfigError(f"{table.name} is a regression model, which has no probabilities")
        self.table, self.columns = table, list(table.features)
        target_type = pa.array(table.classes).type if table.classes else pa.float64()
        self.probabilities = [f"P({label})" for label in table.classes] if params.probabilities else []
        fields = [(name, target_type) for name in table.target]
        self.schema = pa.schema([*fields, *((name, pa.float64()) for name in self.probabilities)])

    def check(self, file: ParquetInput) -> None:
        self.table.check_columns(file.schema.names, file.path)
        check_not_nested(file.schema, self.columns, file.path)

    def has_input(self, rows: pa.Table) -> pa.ChunkedArray:
        """Missing cells are valid."""
        return pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])

    def predict(self, rows: pa.Table, indices: Sequence[int]) -> pa.Table:
        fields = [
            pa.field(one.name, pa.string() if one.name in self.table.string_columns else one.type)
            for one in rows.schema
        ]
        try:
            predictions = self.table.predict(rows.cast(pa.schema(fields)))
        except CellError as error:
            raise DataError(error.message) from None  # without its row among those computed together
        values = predictions.values.reshape(rows.num_rows, len(self.table.target))
        columns = [*values.T.tolist(), *(predictions.raw.T.tolist() if self.probabilities else [])]
        return pa.table([pa.array(one) for one in columns], names=self.schema.names).cast(self.schema)
