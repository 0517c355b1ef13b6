"""AdamW and Muon, learning-rate schedules, gradient clipping, optimizer state."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from softlook.base.errors import ConfigError, WeightsError
from softlook.train.config import OptimizerConfig, ScheduleName
from softlook.train.distributed.fsdp import full_tensor, local_tensor, read_sharded_like
from softlook.train.muon import Muon, block_matrices
from softlook.weights.tensor_files import StoredTensor

FIRST_MOMENT, SECOND_MOMENT, STEP = "exp_avg", "exp_avg_sq", "step"
"""AdamW's state of each parameter."""
EPS = 1e-9
Schedule = Callable[[float], float]
"""Step -> multiple of the peak learning rate."""


def build_optimizer(model: nn.Module, optim: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW or Muon with weight decay on matrices only: none on biases, norms and other vectors."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ConfigError("this model has nothing to train: no parameter has requires_grad=True")
    matrices = block_matrices(model) if optim.optimizer == "muon" else set[nn.Parameter]()
    if any(isinstance(p, DTensor) for p in matrices):
        raise ConfigError("optimizer=muon orthogonalizes whole matrices, which parallel=fsdp shards. Use parallel=ddp.")
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2 and p not in matrices], "weight_decay": optim.weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    fused = all(p.device.type in ("cuda", "cpu") for p in trainable)
    build = torch.optim.AdamW
    if optim.optimizer == "muon":
        muon = [p for p in trainable if p in matrices]
        groups.append({"params": muon, "weight_decay": optim.weight_decay, "muon": True})
        build = Muon
    return build(groups, lr=optim.lr, betas=(optim.beta1, optim.beta2), eps=EPS, fused=fused)


def scale_and_clip_grads_(gradients: Iterable[Tensor], scale: Tensor, max_norm: float) -> Tensor:
    """Scale gradients and clip their total norm to `max_norm`, in place. Returns the norm before clipping.

    >>> gradient = torch.tensor([30.0, 40.0])
    >>> scale_and_clip_grads_([gradient], torch.tensor(0.1), max_norm=1.0), gradient
    (tensor(5.), tensor([0.6000, 0.8000]))
    """
    grads = list(gradients)
    norm = full_tensor(nn.utils.get_total_norm(grads)) * scale
    factor = scale * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([local_tensor(grad) for grad in grads], factor.to(grads[0].dtype))  # pyright: ignore[reportPrivateImportUsage]
    return norm


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as tensors named after the parameters."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, StoredTensor]) -> None:
    """Restore what `optimizer_state` returned. Everything is checked before anything changes."""
    state: dict[str, dict[str, StoredTensor]] = {}
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        state.setdefault(name, {})[key] = tensor
    parameters = dict(model.named_parameters())
    muon = {p for group in optimizer.param_groups if group.get("muon") for p in group["params"]}
    for name, stored in state.items():
        if name not in parameters:
            raise WeightsError(f"the optimizer state has {name!r:.200}, which this model does not have")
        names = {FIRST_MOMENT, STEP} if parameters[name] in muon else {FIRST_MOMENT, SECOND_MOMENT, STEP}
        if stored.keys() != names or stored[FIRST_MOMENT].shape != parameters[name].shape:
            raise WeightsError(f"the optimizer state of {name!r:.200} does not fit this model")
    optimizer.state.clear()
    for name, stored in state.items():
        parameter = parameters[name]
        moments = {
            key: read_sharded_like(parameter, stored[key]) for key in (FIRST_MOMENT, SECOND_MOMENT) if key in stored
        }
        optimizer.state[parameter] = {**moments, STEP: stored[STEP].full().to(parameter.device, copy=True)}


def inverse_sqrt(warmup: float, steps: float) -> Schedule:
    """Linear warmup, then decay with the inverse square root of the step (Vaswani et al., 2017).

    >>> [round(inverse_sqrt(4, 100)(step), 2) for step in (1, 4, 16, 64)]
    [0.25, 1.0, 0.5, 0.25]
    """
    return lambda step: min(step / max(warmup, 1), math.sqrt(max(warmup, 1) / step))


def cosine(warmup: float, steps: float, floor: float = 0.1) -> Schedule:
    """Linear warmup, then cosine decay to `floor` (Loshchilov & Hutter, 2017).

    >>> [round(cosine(10, 110)(step), 2) for step in (5, 10, 60, 110)]
    [0.5, 1.0, 0.55, 0.1]
    """

    def multiplier(step: float) -> float:
        progress = min(max(step - warmup, 0) / max(steps - warmup, 1), 1.0)
        return min(step / max(warmup, 1), floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))

    return multiplier


def constant(warmup: float, steps: float) -> Schedule:
    """Linear warmup, then constant.

    >>> [constant(2, 10)(step) for step in (1, 2, 9)]
    [0.5, 1.0, 1.0]
    """
    return lambda step: min(step / max(warmup, 1), 1.0)


def wsd(warmup: float, steps: float, decay: float = 0.2) -> Schedule:
    """Warmup-stable-decay: linear warmup, constant, then linear decay to 0 over the last `decay` of the steps.

    The constant phase can be extended later.

    >>> [round(wsd(10, 100)(step), 2) for step in (5, 50, 80, 90, 100)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    decay_steps = max(int(steps * decay), 1)
    return lambda step: min(step / max(warmup, 1), 1.0, max(steps - step, 0) / decay_steps)


SCHEDULES: dict[ScheduleName, Callable[[float, float], Schedule]] = {
    "inverse_sqrt": inverse_sqrt,
    "cosine": cosine,
    "constant": constant,
    "wsd": wsd,
}
