"""How a model of softlook's is held against the one of Hugging Face's that it was read from.

Hidden states and attention maps are taken from outside, by hooks at the module boundaries.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from softlook.blocks import AttentionCore
from softlook.weights import from_hugging_face, to_hugging_face

TOLERANCE = 1e-4


def close(actual: Tensor, reference: Tensor, tolerance: float = TOLERANCE) -> None:
    """Within a relative distance, measured against the largest number there is."""
    assert actual.shape == reference.shape
    largest = reference.abs().max().clamp(min=1e-12)
    distance = ((actual - reference).abs().max() / largest).item()
    assert distance <= tolerance, f"{distance:.1e} apart, more than {tolerance:.0e}"


def saved(reference: PreTrainedModel, folder: Path) -> Path:
    """A model of theirs on disk, its weights made large enough for differences to show."""
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, reference.parameters()):  # sinusoidal positions stay
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(folder)
    return folder


def read(reference: PreTrainedModel, folder: Path) -> Any:
    return from_hugging_face(saved(reference, folder))


def there_and_back(
    model: nn.Module, kind: type[PreTrainedModel], folder: Path, computed: frozenset[str] = frozenset()
) -> PreTrainedModel:
    """Our model, written for them and read by them. What is `computed` they work out where a file lacks it."""
    back, report = kind.from_pretrained(to_hugging_face(model, folder), output_loading_info=True)  # pyright: ignore
    report["missing_keys"] -= computed
    assert not any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    return back.eval()


@contextmanager
def seen(modules: Iterator[nn.Module] | list[nn.Module], take: Callable[..., Any]) -> Iterator[list[Any]]:
    """What `take(module, args, output)` says at each call of the modules, in turn."""
    kept: list[Any] = []
    hooks = [
        m.register_forward_hook(lambda module, args, output: kept.append(take(module, args, output))) for m in modules
    ]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def maps(model: nn.Module) -> Iterator[list[Tensor]]:
    """The attention maps of every layer, worked out beside the fast kernel from what goes into it."""

    def weights(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        query, key, _, *rest = args
        return module.weights(query, key, *rest)

    with seen([m for m in model.modules() if isinstance(m, AttentionCore)], weights) as kept:
        yield kept


@contextmanager
def states(blocks: nn.Module) -> Iterator[list[Tensor]]:
    """What comes out of each block."""
    with seen(list(blocks.children()), lambda module, args, output: output) as kept:
        yield kept
