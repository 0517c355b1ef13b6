"""The models that a checkpoint may name. A file chooses from this list; it can name no other code."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from softlook import models


@dataclass(frozen=True)
class Known:
    """A model and the config it is made from."""

    model: type[nn.Module]
    config: Any


MODELS: dict[str, Known] = {
    "GPT": Known(models.GPT, models.GPTConfig),
}
