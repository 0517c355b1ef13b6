"""`HeadTable`: values of every head of a model, as aligned text and as HTML."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError

MISSING = "-"
"""A cell without a value."""


@dataclass(frozen=True, eq=False)
class HeadTable:
    """Values of attention heads: a row per head, named columns, and how each column was measured.

    >>> columns = {"previous": torch.tensor([0.9, 0.1]), "next": torch.tensor([torch.nan, 0.5])}
    >>> table = HeadTable((("blocks.0.attn", 0), ("blocks.0.attn", 1)), columns, {"previous": "weight on key i - 1"})
    >>> print(table)
    layer          head  previous   next
    blocks.0.attn     0     0.900      -
    blocks.0.attn     1     0.100  0.500
    previous: weight on key i - 1
    >>> table.top("previous", 1)
    [('blocks.0.attn', 0, 0.8999999761581421)]
    """

    heads: tuple[tuple[str, int], ...]
    """The path of the attention layer and the index of each head."""
    columns: Mapping[str, Float[Tensor, " heads"]]
    """The values by the name of the column; NaN where there is none."""
    measured: Mapping[str, str]
    """How the values of a column were measured."""

    def __post_init__(self) -> None:
        for name, column in self.columns.items():
            if column.shape != (len(self.heads),):
                raise ShapeError(f"{name} has a value for each of {len(self.heads)} heads, got {tuple(column.shape)}")

    def __getitem__(self, name: str) -> Float[Tensor, " heads"]:
        if name not in self.columns:
            raise ConfigError(f"no column {name!r}: expected one of {', '.join(self.columns)}")
        return self.columns[name]

    def layer(self, path: str, name: str) -> Float[Tensor, " H"]:
        """One column for the heads of one layer."""
        chosen = [row for row, (layer, _) in enumerate(self.heads) if layer == path]
        if not chosen:
            raise ConfigError(f"no layer {path!r}: expected one of {', '.join(dict(self.heads))}")
        return self[name][chosen]

    def grids(self) -> dict[str, Float[Tensor, "L H"]]:
        """Every column by layer and head, for `head_scores_figure`; all layers need the same number of heads."""
        layers = len(dict(self.heads))
        if len(self.heads) % layers or self.heads != tuple(
            (layer, head) for layer in dict(self.heads) for head in range(len(self.heads) // layers)
        ):
            raise ConfigError("a grid of layers and heads needs the same number of heads in every layer")
        return {name: column.unflatten(0, (layers, -1)) for name, column in self.columns.items()}

    def top(self, name: str, count: int = 5) -> list[tuple[str, int, float]]:
        """The heads with the largest values of a column: layer, head and value."""
        values = self[name].nan_to_num(nan=-torch.inf)
        rows = values.argsort(descending=True, stable=True)[:count].tolist()
        return [(*self.heads[row], float(values[row])) for row in rows if values[row] > -torch.inf]

    def __str__(self) -> str:
        notes = [f"{name}: {text}" for name, text in self.measured.items()]
        return "\n".join([*_align([("layer", "head", *self.columns), *self._rows()]), *notes])

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th title="{escape(self.measured.get(name, ""))}">{escape(name)}</th>'
            for name in ("layer", "head", *self.columns)
        )
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in self._rows())
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"

    def _rows(self) -> Iterable[tuple[str, ...]]:
        columns = [column.tolist() for column in self.columns.values()]
        for (layer, head), *values in zip(self.heads, *columns, strict=True):
            yield layer, str(head), *map(format_value, values)


def merge_columns(layers: Mapping[str, Mapping[str, Tensor]], measured: Mapping[str, str]) -> HeadTable:
    """The table of values given as {layer: {column: (H,)}}."""
    names = list(next(iter(layers.values())))
    heads = tuple((path, head) for path, columns in layers.items() for head in range(len(columns[names[0]])))
    merged = {name: torch.cat([columns[name].float().cpu() for columns in layers.values()]) for name in names}
    return HeadTable(heads, merged, {name: measured[name] for name in names if name in measured})


def format_value(value: float) -> str:
    """Three decimals; small values in scientific notation.

    >>> [format_value(value) for value in (0.25, 12.0, 0.00001, 0.0, float("nan"))]
    ['0.250', '12.000', '1.0e-05', '0.000', '-']
    """
    if value != value:
        return MISSING
    return f"{value:.3f}" if value == 0 or abs(value) >= 5e-4 else f"{value:.1e}"


def _align(rows: list[tuple[str, ...]]) -> list[str]:
    """The first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return lines
