"""Comparison of a softlook model with the Hugging Face model that it was imported from.

Hidden states and attention maps are recorded by hooks.
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
    """Assert that the largest difference, relative to the largest value, is within a tolerance."""
    assert actual.shape == reference.shape
    largest = reference.abs().max().clamp(min=1e-12)
    error = ((actual - reference).abs().max() / largest).item()
    assert error <= tolerance, f"relative error {error:.1e}, more than {tolerance:.0e}"


def saved(reference: PreTrainedModel, folder: Path) -> Path:
    """Save a Hugging Face model, with noise on all weights so that every one matters."""
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, reference.parameters()):  # not sinusoidal positions
            parameter.add_(torch.randn_like(parameter) * 0.1)
    reference.save_pretrained(folder)
    return folder


def import_model(reference: PreTrainedModel, folder: Path) -> Any:
    return from_hugging_face(saved(reference, folder))


def export_and_load(
    model: nn.Module, kind: type[PreTrainedModel], folder: Path, computed: frozenset[str] = frozenset()
) -> PreTrainedModel:
    """Export a model and load it with transformers, which computes the tensors named in `computed` itself."""
    back, report = kind.from_pretrained(to_hugging_face(model, folder), output_loading_info=True)  # pyright: ignore
    report["missing_keys"] -= computed
    assert not any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    return back.eval()


@contextmanager
def record_calls(modules: Iterator[nn.Module] | list[nn.Module], record: Callable[..., Any]) -> Iterator[list[Any]]:
    """The results of `record(module, args, output)` at each call of the modules, in order."""
    recorded: list[Any] = []
    hooks = [
        m.register_forward_hook(lambda module, args, output: recorded.append(record(module, args, output)))
        for m in modules
    ]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def maps(model: nn.Module) -> Iterator[list[Tensor]]:
    """The attention maps of every layer, computed from the arguments of its attention core."""

    def weights(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
        query, key, _, *rest = args
        return module.weights(query, key, *rest)

    with record_calls([m for m in model.modules() if isinstance(m, AttentionCore)], weights) as recorded:
        yield recorded


@contextmanager
def states(blocks: nn.Module) -> Iterator[list[Tensor]]:
    """The output of each block."""
    with record_calls(list(blocks.children()), lambda module, args, output: output) as recorded:
        yield recorded
