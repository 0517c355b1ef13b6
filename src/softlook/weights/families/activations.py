"""Other people's names for the same bends."""

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName

THEIRS: dict[str, ActivationName] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
}
OURS: dict[ActivationName, str] = {"gelu_tanh": "gelu_new"}


def from_theirs(name: str) -> ActivationName:
    """`gelu_new` and its kin are one function; an unknown name is an error, not a guess."""
    if name not in THEIRS:
        raise WeightsError(f"no such activation is known: {name!r:.40}. Known are {', '.join(THEIRS)}.")
    return THEIRS[name]


def to_theirs(name: ActivationName) -> str:
    return OURS.get(name, name)
