"""Training state: weights, optimizer, EMA, RNG, LoRA adapters, progress.

The weights of a checkpoint are always those of a plain model. LoRA adapters are merged and scaled layers folded, and
their own tensors are stored separately as well: merging cannot be undone exactly.
"""

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import lora_layers, merged_tensors
from softlook.blocks.scaled_linear import folded_tensors, scaled_layers
from softlook.train.batching.batches import DataCursor
from softlook.train.distributed.fsdp import local_tensor, read_local, reshard
from softlook.train.distributed.world import World
from softlook.train.ema import EMA, trainable_tensors
from softlook.train.optimizer import load_optimizer_state, optimizer_state
from softlook.train.rng import get_rng_states, set_rng_states
from softlook.weights.meta import check_tensors_match, unique_tensors
from softlook.weights.tensor_files import SINGLE_FILE, StoredTensor

OPTIMIZER, NON_EMA, RNG_STATE = "optimizer.safetensors", "model_non_ema.safetensors", "rng_state.safetensors"
ADAPTERS = "adapters.safetensors"
StoredFiles = dict[str, dict[str, StoredTensor]]
"""Stored tensors by file and name."""


@dataclass(frozen=True)
class Progress:
    """How far a run is: everything besides tensors that resuming needs. Its repr is what people want to know.

    >>> Progress(step=200, seconds=3.5, best_loss=0.25, best_step=150)
    Progress(step=200, seconds=3.5, best_loss=0.25, best_step=150)
    """

    step: int = 0
    cursor: DataCursor = field(default_factory=DataCursor, repr=False)
    seconds: float = 0.0
    """Training time so far, over all starts of the run."""
    best_loss: float | None = None
    """The smallest held-out loss."""
    best_step: int = 0
    last_eval_step: int = field(default=0, repr=False)
    evals_since_best: int = field(default=0, repr=False)
    nonfinite_steps: int = field(default=0, repr=False)
    """Consecutive steps with NaN or infinity."""
    micro_batches: int = field(default=1, repr=False)
    """Per batch, so that one fits into memory."""
    loss_window: tuple[float, int] = field(default=(0.0, 0), repr=False)
    """The summed loss since the last log line, and the number of its targets."""
    phase_step: int = field(default=0, repr=False)
    """The step at which the current phase began: a run that gets more time after its end has several."""
    phase_seconds: float = field(default=0.0, repr=False)
    is_phase_complete: bool = field(default=False, repr=False)
    """Whether the phase reached its limit of steps or time."""
    lr_scale: float = field(default=1.0, repr=False)
    """Multiple of the configured learning rate, which is lowered if a run does not learn."""

    def start_phase(self) -> "Progress":
        """The progress at the start of a phase: a warmup and a decay of the learning rate."""
        return replace(self, phase_step=self.step, phase_seconds=self.seconds, is_phase_complete=False)

    def _repr_html_(self) -> str:
        best = "" if self.best_loss is None else f"{self.best_loss:.4g}, at step {self.best_step:,}"
        rows = {"steps": f"{self.step:,}", "seconds": f"{self.seconds:,.1f}", "best validation loss": best}
        cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows.items() if value)
        return f"<table>{cells}</table>"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Progress":
        window = tuple(content.get("loss_window", (0.0, 0)))
        return Progress(**{**content, "cursor": DataCursor(**content["cursor"]), "loss_window": window})

    def record_evaluation(self, loss: float) -> "Progress":
        """The progress after an evaluation with this loss."""
        if not math.isnan(loss) and (self.best_loss is None or loss < self.best_loss):
            return replace(self, last_eval_step=self.step, best_loss=loss, best_step=self.step, evals_since_best=0)
        return replace(self, last_eval_step=self.step, evals_since_best=self.evals_since_best + 1)


@dataclass(frozen=True)
class TrainState:
    """A model and everything that changes while it trains."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    ema: EMA | None
    device: torch.device
    world: World

    def inference_weights(self) -> dict[str, Tensor]:
        """The weights to evaluate and to keep: averaged if there is an EMA."""
        return unique_tensors(self.model) | (self.ema.shadow if self.ema is not None else {})

    @contextmanager
    def evaluation_mode(self) -> Iterator[None]:
        """Inside, the model is in eval mode with its inference weights and without gradients."""
        self.model.eval()
        try:
            with torch.no_grad(), nullcontext() if self.ema is None else self.ema.swap_in():
                yield
        finally:
            reshard(self.model)
            self.model.train()

    def state_files(self) -> dict[str, dict[str, Tensor]]:
        """All tensors of a checkpoint but the RNG states, by file and name: full, or this process's shards."""
        weights, adapters = self.inference_weights(), unmerged_tensors(self.model)
        files = {
            SINGLE_FILE: folded_tensors(self.model, merged_tensors(self.model, weights)),
            OPTIMIZER: optimizer_state(self.model, self.optimizer),
        }
        if adapters:
            files[ADAPTERS] = {name: weights[name] for name in adapters}
        if self.ema is not None:
            files[NON_EMA] = trainable_tensors(self.model)
        return files

    def write_extra(self, folder: Path) -> None:
        """Hook for subclasses: write further files into a checkpoint."""

    def rng_states(self) -> dict[str, Tensor]:
        """The RNG states of all ranks. A collective: all processes must call it."""
        return {
            f"{name}.{rank}": state
            for name, own in get_rng_states(self.device).items()
            for rank, state in enumerate(self.world.all_gather(own, self.device))
        }

    def required_files(self) -> list[str]:
        """The files that `load_state` needs."""
        optional = {ADAPTERS: bool(unmerged_tensors(self.model)), NON_EMA: self.ema is not None}
        return [SINGLE_FILE, OPTIMIZER, RNG_STATE, *(file for file, is_needed in optional.items() if is_needed)]

    def load_state(self, files: StoredFiles, folder: Path) -> None:
        """Restore a checkpoint. Everything is checked before anything changes."""
        adapters = files.get(ADAPTERS, {})
        check_tensors_match(merged_shapes(self.model), _on_meta(files[SINGLE_FILE]), folder / SINGLE_FILE)
        check_tensors_match(unmerged_tensors(self.model), _on_meta(adapters), folder / ADAPTERS)
        if self.ema is not None:
            check_tensors_match(self.ema.shadow, _on_meta(files[NON_EMA]), folder / NON_EMA)
        try:
            load_optimizer_state(self.model, self.optimizer, files[OPTIMIZER])
        except WeightsError as error:
            raise WeightsError(f"{folder / OPTIMIZER}: {error}") from None
        weights = files[SINGLE_FILE] | adapters
        self.load_weights(weights)
        if self.ema is not None:
            _copy(self.ema.shadow, weights)
            _copy(trainable_tensors(self.model), files[NON_EMA])
        own = {name: files[RNG_STATE].get(f"{name}.{self.world.rank}") for name in get_rng_states(self.device)}
        if own["cpu"] is not None:  # a rank that the checkpoint does not have keeps its own state
            set_rng_states({name: state.full() for name, state in own.items() if state is not None}, self.device)

    def load_weights(self, weights: dict[str, Tensor] | dict[str, StoredTensor]) -> None:
        """Copy weights into the model."""
        _copy(loadable_tensors(self.model), weights)


@torch.no_grad()
def _copy(targets: dict[str, Tensor], tensors: dict[str, Tensor] | dict[str, StoredTensor]) -> None:
    for name, target in targets.items():
        new = tensors[name]
        local_tensor(target).copy_(read_local(target, new) if isinstance(new, StoredTensor) else local_tensor(new))


def _on_meta(tensors: dict[str, StoredTensor]) -> dict[str, Tensor]:
    return {name: stored.meta() for name, stored in tensors.items()}


def unmerged_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of LoRA adapters and of scaled layers, by their names in the model; empty for a plain model."""
    tensors = unique_tensors(model)
    names = [f"{name}.{factor}" for name in lora_layers(model) for factor in ("lora_A", "lora_B")]
    names += [f"{name}.{tensor}" for name in scaled_layers(model) for tensor in ("weight", "bias")]
    return {name: tensors[name] for name in names}


def loadable_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that a checkpoint may change: all but the frozen base weights of LoRA layers, which it lacks."""
    base_weights = {f"{name}.base" for name in lora_layers(model)}
    return {name: tensor for name, tensor in unique_tensors(model).items() if name not in base_weights}


def merged_shapes(model: nn.Module) -> dict[str, Tensor]:
    """Tensors with the names and shapes of the model with merged adapters; their values have no meaning."""
    tensors, factors = unique_tensors(model), (".lora_A", ".lora_B")
    plain = {name: tensor for name, tensor in loadable_tensors(model).items() if not name.endswith(factors)}
    return plain | {f"{name}.weight": tensors[f"{name}.base"] for name in lora_layers(model)}


def lora_fingerprint(model: nn.Module) -> dict[str, Any]:
    """What a resumed run with LoRA must match: rank, alpha, dropout, and a digest of the base weights.

    >>> lora_fingerprint(nn.Linear(2, 2))
    {}
    """
    layers = list(lora_layers(model).values())
    if not layers:
        return {}
    base = sha256()
    for layer in layers:
        weight = layer.base.detach().cpu().contiguous()
        base.update((ctypes.c_ubyte * weight.nbytes).from_address(weight.data_ptr()))  # without a copy
    ranks, alphas, dropouts = ({m.rank for m in layers}, {m.alpha for m in layers}, {m.dropout.p for m in layers})
    lora = {"rank": sorted(ranks), "alpha": sorted(alphas), "dropout": sorted(dropouts), "base": base.hexdigest()}
    return {"lora": lora}
