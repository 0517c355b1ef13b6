"""AdamW, and its memory as named tensors."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, WeightsError
from softlook.train.settings import Optim
from softlook.train.sharding import as_in, own, whole
from softlook.weights.parts import Stored

FIRST, SECOND = "exp_avg", "exp_avg_sq"
"""What AdamW remembers of each weight: its gradient, and the square of it."""
EPS = 1e-9


def make_optimizer(model: nn.Module, optim: Optim) -> torch.optim.AdamW:
    """AdamW with decay on matrices only: biases, norms and single vectors are not pulled towards nought."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not learned:
        raise ConfigError("this model has nothing to learn: none of its weights asks for a gradient")
    groups = [
        {"params": [p for p in learned if p.ndim >= 2], "weight_decay": optim.weight_decay},
        {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cuda", "cpu") for p in learned)
    return torch.optim.AdamW(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=EPS, fused=fused)


def shorten(gradients: Iterable[Tensor], factor: Tensor, most: float) -> Tensor:
    """Multiply gradients by `factor`, and cut them to the length `most`. Gives the length they had before the cut.

    >>> gradient = torch.tensor([30.0, 40.0])
    >>> shorten([gradient], torch.tensor(0.1), most=1.0), gradient
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    kept = list(gradients)
    length = whole(nn.utils.get_total_norm(kept)) * factor
    cut = factor * (most / (length + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([own(gradient) for gradient in kept], cut.to(kept[0].dtype))  # pyright: ignore[reportPrivateImportUsage]
    return length


def remembered(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory under the names of the weights it is about."""
    return {
        f"{name}.{what}": value
        for name, parameter in model.named_parameters()
        for what, value in optimizer.state.get(parameter, {}).items()
    }


def remind(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Stored]) -> None:
    """Give the optimizer back what it knew: all of it, after all of it was looked at."""
    memory: dict[str, dict[str, Stored]] = {}
    for key, tensor in tensors.items():
        name, _, what = key.rpartition(".")
        memory.setdefault(name, {})[what] = tensor
    parameters = dict(model.named_parameters())
    for name, known in memory.items():
        if name not in parameters:
            raise WeightsError(f"the optimizer remembers {name!r:.200}, which this model does not have")
        if known.keys() != {FIRST, SECOND, "step"} or known[FIRST].shape != parameters[name].shape:
            raise WeightsError(f"the optimizer's memory of {name!r:.200} does not fit this model")
    optimizer.state.clear()
    for name, known in memory.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {what: as_in(parameter, known[what]) for what in (FIRST, SECOND)}
        optimizer.state[parameter]["step"] = known["step"].whole().to(parameter.device, copy=True)
