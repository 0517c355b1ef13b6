"""Muon: orthogonalized momentum for the matrices of the blocks, AdamW for everything else."""

from collections import defaultdict
from typing import Any, cast

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
ITERATIONS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)
"""Of the Newton-Schulz iteration (Jordan et al., 2024): singular values end between about 0.7 and 1.2."""
UPDATE_SCALE = 0.2
"""Root mean square of an update, in learning rates: about that of AdamW, so that both share one (Liu et al., 2025)."""


class Muon(torch.optim.AdamW):
    """AdamW, except for groups with `muon=True`: their matrices move along the orthogonalized momentum.

    It has one state per matrix element instead of two.

    >>> weight = nn.Parameter(torch.eye(3, 4))
    >>> optimizer = Muon([{"params": [weight], "muon": True}], lr=0.1, weight_decay=0.0)
    >>> weight.grad = torch.randn(3, 4)
    >>> optimizer.step()
    >>> list(optimizer.state[weight])
    ['exp_avg', 'step']
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One step of all groups. A `found_inf` of 1 on the device, as of a GradScaler, skips it."""
        groups = self.param_groups
        try:
            self.param_groups = [group for group in groups if not group.get("muon")]
            super().step(closure)
        finally:
            self.param_groups = groups
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        for group in groups:
            if group.get("muon"):
                self._step_matrices(group, found_inf)

    def _step_matrices(self, group: dict[str, Any], found_inf: Tensor | None) -> None:
        """Matrices of one shape are orthogonalized together."""
        by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for parameter in group["params"]:
            if parameter.grad is not None:
                by_shape[parameter.shape].append(parameter)
        for shape, parameters in by_shape.items():
            updates = torch.stack([self._momentum(parameter, found_inf) for parameter in parameters])
            scale = UPDATE_SCALE * max(shape) ** 0.5
            steps = orthogonalize(updates) * scale
            if found_inf is not None:
                steps = torch.where(found_inf > 0, 0.0, steps)
            for parameter, step in zip(parameters, steps, strict=True):
                decay = group["lr"] * group["weight_decay"]
                kept = 1 - decay if found_inf is None else 1 - decay * (found_inf == 0)
                parameter.mul_(kept).sub_(group["lr"] * step.to(parameter.dtype))

    def _momentum(self, parameter: nn.Parameter, found_inf: Tensor | None) -> Tensor:
        """Nesterov's momentum of a matrix; it stays as it was where the step is skipped."""
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if not state:
            state["exp_avg"], state["step"] = torch.zeros_like(parameter), torch.zeros((), device=parameter.device)
        applied = torch.ones_like(state["step"]) if found_inf is None else (found_inf == 0).to(state["step"]).squeeze()
        updated = state["exp_avg"].lerp(grad, 1 - MOMENTUM)
        state["exp_avg"].copy_(torch.where(applied > 0, updated, state["exp_avg"]))
        state["step"].add_(applied)
        return grad.lerp(updated, MOMENTUM)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Matrices (n, rows, columns) with all singular values near 1 and the same singular vectors, in bfloat16.

    >>> near = orthogonalize(torch.randn(1, 8, 16)).float()
    >>> bool((near @ near.mT - torch.eye(8)).abs().max() < 0.6)
    True
    """
    x = matrices.bfloat16()
    is_tall = x.shape[1] > x.shape[2]
    x = x.mT if is_tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if is_tall else x


def block_matrices(model: nn.Module) -> set[nn.Parameter]:
    """The weights of linear layers inside the blocks: neither embeddings nor heads."""
    blocks = [block for module in model.modules() if isinstance(module, nn.ModuleList) for block in module]
    layers = [layer for block in blocks for layer in block.modules() if isinstance(layer, nn.Linear)]
    weights = [cast(nn.Parameter, layer.weight) for layer in layers]
    return {weight for weight in weights if weight.requires_grad}
