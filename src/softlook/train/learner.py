"""All that changes while a model learns, as files: written down together, and put back together or not at all.

The weights to answer with are always those of a plain model. Where it learns by adapters these are merged there, and
kept once more by themselves, since no merging can be undone to the last bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.lora import plain_tensors
from softlook.train.adapters import ADAPTERS, changing, detours, plain_places
from softlook.train.average import Average, learned
from softlook.train.distributed import World
from softlook.train.optimizer import remembered, remind
from softlook.train.progress import dice, set_dice
from softlook.train.sharding import gather_in, own, rows_for
from softlook.weights.files import SINGLE
from softlook.weights.hollow import compare, own_tensors
from softlook.weights.parts import Stored

OPTIMIZER, RAW, DICE = "optimizer.safetensors", "raw.safetensors", "dice.safetensors"
Files = dict[str, dict[str, Stored]]
"""What lies on disk, by file and name."""


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
            gather_in(self.model)
            self.model.train()

    def files(self) -> dict[str, dict[str, Tensor]]:
        """Everything but the dice, by file and name, as this process has it: whole, or its part of each."""
        answer = self.answer()
        kept = {SINGLE: plain_tensors(self.model, answer), OPTIMIZER: remembered(self.model, self.optimizer)}
        kept |= {ADAPTERS: {name: answer[name] for name in ways}} if (ways := detours(self.model)) else {}
        return kept | ({RAW: learned(self.model)} if self.average is not None else {})

    def leave(self, folder: Path) -> None:
        """What else there is to write into a checkpoint, for those who have more to say."""

    def dice(self) -> dict[str, Tensor]:
        """How everybody's dice lie. All processes of a run ask for it at once."""
        return {
            f"{name}.{rank}": state
            for name, mine in dice(self.device).items()
            for rank, state in enumerate(self.world.gathered(mine, self.device))
        }

    def needed(self) -> list[str]:
        """The files that `put_back` asks for."""
        beside = {ADAPTERS: bool(detours(self.model)), RAW: self.average is not None}
        return [SINGLE, OPTIMIZER, DICE, *(file for file, is_kept in beside.items() if is_kept)]

    def put_back(self, files: Files, where: Path) -> None:
        """Be as one was. Everything is compared before anything is changed."""
        adapters = files.get(ADAPTERS, {})
        compare(plain_places(self.model), _shapes(files[SINGLE]), where / SINGLE)
        compare(detours(self.model), _shapes(adapters), where / ADAPTERS)
        if self.average is not None:
            compare(self.average.tensors, _shapes(files[RAW]), where / RAW)
        try:
            remind(self.model, self.optimizer, files[OPTIMIZER])
        except WeightsError as fault:
            raise WeightsError(f"{where / OPTIMIZER}: {fault}") from None
        answer = files[SINGLE] | adapters
        self.take(answer)
        if self.average is not None:
            _copy(self.average.tensors, answer)
            _copy(learned(self.model), files[RAW])
        mine = {name: files[DICE].get(f"{name}.{self.world.rank}") for name in dice(self.device)}
        if mine["cpu"] is not None:  # one more process than there were rolls dice of its own
            set_dice({name: state.whole() for name, state in mine.items() if state is not None}, self.device)

    def take(self, weights: dict[str, Tensor] | dict[str, Stored]) -> None:
        """Answer with these weights from now on."""
        _copy(changing(self.model), weights)


@torch.no_grad()
def _copy(places: dict[str, Tensor], tensors: dict[str, Tensor] | dict[str, Stored]) -> None:
    for name, place in places.items():
        new = tensors[name]
        own(place).copy_(rows_for(place, new) if isinstance(new, Stored) else own(new))


def _shapes(tensors: dict[str, Stored]) -> dict[str, Tensor]:
    return {name: stored.hollow() for name, stored in tensors.items()}
