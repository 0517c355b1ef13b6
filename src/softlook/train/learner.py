"""All that changes while a model learns, as files: written down together, and put back together or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.train.average import Average, learned
from softlook.train.distributed import World
from softlook.train.optimizer import remembered, remind
from softlook.train.progress import dice, set_dice
from softlook.train.sharding import as_in, whole
from softlook.weights.files import SINGLE
from softlook.weights.hollow import compare, own_tensors

OPTIMIZER, RAW, DICE = "optimizer.safetensors", "raw.safetensors", "dice.safetensors"
Files = dict[str, dict[str, Tensor]]


@dataclass(frozen=True)
class Learner:
    """A model, and what it takes to go on teaching it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    average: Average | None
    device: torch.device
    world: World

    def answer(self) -> dict[str, Tensor]:
        """The weights to answer with: averaged where there is an average."""
        return own_tensors(self.model) | (self.average.tensors if self.average is not None else {})

    @contextmanager
    def answering(self) -> Iterator[None]:
        """The model answers inside, with the weights to answer with, and learns on afterwards."""
        self.model.eval()
        try:
            with torch.no_grad(), nullcontext() if self.average is None else self.average.in_place():
                yield
        finally:
            self.model.train()

    def files(self) -> Files:
        """Everything, by file and name. All processes of a run ask for it at once, and the first one gets it."""
        kept = {SINGLE: self.answer(), OPTIMIZER: remembered(self.model, self.optimizer)}
        kept |= {RAW: learned(self.model)} if self.average is not None else {}
        return {file: self._whole(tensors) for file, tensors in kept.items()} | {DICE: self._dice()}

    def _whole(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One after the other, so that no more than one has to fit beside the parts."""
        if not self.world.is_parted:
            return tensors
        return {
            name: whole(tensor).detach().to("cpu" if self.world.first else "meta") for name, tensor in tensors.items()
        }

    def _dice(self) -> dict[str, Tensor]:
        return {
            f"{name}.{rank}": state
            for name, own in dice(self.device).items()
            for rank, state in enumerate(self.world.gathered(own, self.device))
        }

    def needed(self) -> list[str]:
        """The files that `put_back` asks for."""
        return [SINGLE, OPTIMIZER, DICE] + ([RAW] if self.average is not None else [])

    def put_back(self, files: Files, where: Path) -> None:
        """Be as one was. Everything is compared before anything is changed."""
        compare(own_tensors(self.model), files[SINGLE], where / SINGLE)
        if self.average is not None:
            compare(self.average.tensors, files[RAW], where / RAW)
        try:
            remind(self.model, self.optimizer, files[OPTIMIZER])
        except WeightsError as fault:
            raise WeightsError(f"{where / OPTIMIZER}: {fault}") from None
        self.take(files[SINGLE])
        if self.average is not None:
            _copy(self.average.tensors, files[SINGLE])
            _copy(learned(self.model), files[RAW])
        own = {name: files[DICE].get(f"{name}.{self.world.rank}") for name in dice(self.device)}
        if own["cpu"] is not None:  # one more process than there were rolls dice of its own
            set_dice({name: state for name, state in own.items() if state is not None}, self.device)

    def take(self, weights: dict[str, Tensor]) -> None:
        """Answer with these weights from now on."""
        _copy(own_tensors(self.model), weights)


@torch.no_grad()
def _copy(places: dict[str, Tensor], tensors: dict[str, Tensor]) -> None:
    for name, place in places.items():
        place.copy_(as_in(place, tensors[name]))
