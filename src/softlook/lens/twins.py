"""Twins: two inputs of one length, what differs between their attention, and which heads carry the difference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.lens.effects import Metric, check_metric
from softlook.lens.head_table import HeadTable, merge_columns
from softlook.lens.patching import patch
from softlook.lens.trace import Trace, trace

MEASURED = {
    "share": "(metric of the first input with this head's output from the second - metric of the first) / (metric of "
    "the second - metric of the first): 1 if the head alone carries the difference"
}


@dataclass(frozen=True, eq=False)
class Twins:
    """The traces of two inputs that are aligned position by position."""

    model: nn.Module
    first: Int[Tensor, "B T"]
    second: Int[Tensor, "B T"]
    first_trace: Trace
    second_trace: Trace
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the model, the same for both."""

    @property
    def changed(self) -> list[int]:
        """The positions where the inputs differ."""
        return (self.first != self.second).any(0).nonzero()[:, 0].tolist()

    def difference(
        self, layer: str, *, heads: slice = slice(None), rows: slice = slice(None), columns: slice = slice(None)
    ) -> Float[Tensor, "B h t s"]:
        """Attention weights of the second input minus those of the first. Only the selected part is computed."""
        one, other = (
            recorded[layer].weights(heads=heads, rows=rows, columns=columns)
            for recorded in (self.first_trace, self.second_trace)
        )
        return other - one

    def distance(self) -> dict[str, Float[Tensor, "B T"]]:
        """How far the residual streams are apart after each block, by the Euclidean norm: where the change arrives."""
        streams, others = self.first_trace.residual, self.second_trace.residual
        return {path: (others[path] - stream).float().norm(dim=-1) for path, stream in streams.items()}

    def patching_table(self, metric: Metric) -> HeadTable:
        """How much of the difference of a metric each head carries: one forward pass of the first input per head.

        The output of a head is replaced at all positions by that for the second input. Shares need not add up to 1:
        heads pass information on to later ones, and several can carry the same.

        - `metric`: computes one number from the output of the model, such as a difference of two logits.
        """
        baseline, total = self._metrics(metric)
        layers: dict[str, dict[str, Tensor]] = {}
        for path, layer in self.first_trace.items():
            count = layer.calls[0].query.shape[1]
            shares = [(self._patched(metric, path, heads=head) - baseline) / total for head in range(count)]
            layers[path] = {"share": torch.stack(shares)}
        return merge_columns(layers, MEASURED)

    def patched_blocks(self, metric: Metric) -> dict[str, Float[Tensor, " T"]]:
        """The same share for the residual stream after each block, position by position (causal tracing)."""
        baseline, total = self._metrics(metric)
        return {
            path: torch.stack(
                [(self._patched(metric, path, positions=[i]) - baseline) / total for i in range(stream.shape[1])]
            )
            for path, stream in self.first_trace.residual.items()
        }

    @torch.no_grad()
    def _patched(self, metric: Metric, path: str, **options: Any) -> Tensor:
        with patch(self.model, self.second_trace, path, **options):
            return check_metric(metric(self.model(self.first, **self.inputs)))

    @torch.no_grad()
    def _metrics(self, metric: Metric) -> tuple[Tensor, Tensor]:
        """The metric of the first input, and the difference to that of the second."""
        one, other = (check_metric(metric(self.model(ids, **self.inputs))) for ids in (self.first, self.second))
        if one == other:
            raise ConfigError(f"both inputs have the metric {one.item():g}: there is no difference that a head carries")
        return one, other - one


@torch.no_grad()
def twins(model: nn.Module, first: Int[Tensor, "B T"], second: Int[Tensor, "B T"], **inputs: Any) -> Twins:
    """Trace two inputs that differ in a few tokens, such as "... because it was too tired" and "... too wide".

    The texts need the same number of tokens, so that every position has a counterpart.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> pair = twins(model, torch.tensor([[3, 1, 4]]), torch.tensor([[3, 9, 4]]))
    >>> pair.changed, pair.difference("blocks.0.attn", rows=slice(0, 1)).abs().max()
    ([1], tensor(0.))
    >>> pair.patching_table(lambda logits: logits[0, -1, 7])["share"].shape
    torch.Size([8])
    """
    if first.shape != second.shape:
        raise ShapeError(
            f"twins are aligned position by position: expected inputs of one shape, got {tuple(first.shape)} and "
            f"{tuple(second.shape)}. Choose texts with the same number of tokens."
        )
    with trace(model, values=True) as first_trace:
        model(first, **inputs)
    with trace(model, values=True) as second_trace:
        model(second, **inputs)
    return Twins(model, first, second, first_trace, second_trace, inputs)
