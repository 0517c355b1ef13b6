"""Boosted trees as tensors, predicted by torch.

The nodes of all trees are arrays, so that trees are saved without pickle and predict on any device.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from softlook.tabular.ensemble.base_model import State, class_probabilities
from softlook.tabular.preprocessing.rows import TableTensors

MAX_VALUES = 1 << 20
"""Rows times trees that are predicted at a time."""
NUMERIC = -1
"""Index of the bitset of a node that splits a number."""


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """The nodes of all trees, one after another. A leaf is its own child."""

    roots: Tensor
    """(T,) the first node of each tree."""
    columns: Tensor
    thresholds: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    """Whether a missing value goes left."""
    values: Tensor
    """The value of a leaf."""
    bitset_indices: Tensor
    """Of nodes that split categories; `NUMERIC` for the others."""
    bitsets: Tensor
    """(B, 8) the categories that go left, 32 in each word."""

    def leaves(self, features: Tensor, depth: int) -> Tensor:
        """(N, T): the value of the leaf that each row reaches in each tree."""
        node = self.roots.expand(len(features), -1)
        for _ in range(depth):
            cells = features.gather(1, self.columns[node])
            goes_left = torch.where(cells.isnan(), self.missing_left[node], self._goes_left(cells, node))
            node = torch.where(goes_left, self.left[node], self.right[node])
        return self.values[node]

    def _goes_left(self, cells: Tensor, node: Tensor) -> Tensor:
        is_below = cells <= self.thresholds[node]
        if not len(self.bitsets):
            return is_below
        code, index = cells.nan_to_num().clamp(0, 255).long(), self.bitset_indices[node]
        word = self.bitsets[index.clamp(min=0), code >> 5]
        return torch.where(index == NUMERIC, is_below, (word >> (code & 31)) & 1 == 1)


@dataclass(frozen=True, eq=False)
class TreesModel:
    """Boosted trees: a base model."""

    nodes: TreeNodes
    counts: tuple[int, ...]
    """Trees of each output; trees are sorted by output."""
    depth: int
    baseline: Tensor
    """(outputs,) the prediction without trees."""
    ranks: Tensor
    """The rank of every category of every column among those of the training rows; NaN for others."""
    offsets: Tensor
    """(columns,) where the ranks of a categorical column begin."""
    classes: Tensor | None = None
    """The classes of the training rows."""
    n_classes: int = 0
    is_multilabel: bool = False
    """Whether outputs are logits of labels."""

    kind: ClassVar[str] = "trees"

    def predict(self, rows: TableTensors) -> Tensor:
        scores = self.scores(tree_features(rows, self.ranks, self.offsets))
        if self.classes is not None:
            return class_probabilities(scores, self.classes, self.n_classes)
        return scores.sigmoid() if self.is_multilabel else scores

    def scores(self, features: Tensor) -> Tensor:
        """(N, outputs): sums of leaves."""
        size = max(1, MAX_VALUES // max(1, sum(self.counts)))
        parts = [self.nodes.leaves(part, self.depth) for part in features.split(size)]
        by_output = torch.cat(parts).split(self.counts, 1)
        return torch.stack([leaves.sum(1) for leaves in by_output], 1) + self.baseline

    def to(self, device: torch.device) -> "TreesModel":
        nodes = TreeNodes(**{name: tensor.to(device) for name, tensor in vars(self.nodes).items()})
        own = {name: tensor.to(device) for name, tensor in vars(self).items() if isinstance(tensor, Tensor)}
        return replace(self, nodes=nodes, **own)

    def state(self) -> State:
        tensors = {f"nodes.{name}": tensor.cpu() for name, tensor in vars(self.nodes).items()}
        tensors |= {name: tensor.cpu() for name, tensor in vars(self).items() if isinstance(tensor, Tensor)}
        values = {name: getattr(self, name) for name in ("counts", "depth", "n_classes", "is_multilabel")}
        return values, tensors

    @staticmethod
    def from_state(values: dict[str, Any], tensors: dict[str, Tensor]) -> "TreesModel":
        nodes = {one.name: tensors[f"nodes.{one.name}"] for one in fields(TreeNodes)}
        own: dict[str, Any] = {**values, "counts": tuple(values["counts"])}
        own |= {name: tensor for name, tensor in tensors.items() if not name.startswith("nodes.")}
        return TreesModel(TreeNodes(**nodes), **own)


def tree_features(rows: TableTensors, ranks: Tensor, offsets: Tensor) -> Tensor:
    """(N, columns) in double precision: the ranks of categories, then numbers; NaN for missing ones."""
    return torch.cat([ranks[rows.categories + offsets], rows.numbers.double()], 1)
