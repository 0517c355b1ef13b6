"""Models as graphs that ONNX runtimes run, for any batch and any length."""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jaxtyping
import torch
from torch import Tensor, nn

from softlook.base.errors import WeightsError
from softlook.blocks.attention import Mixing
from softlook.models import GPTConfig, LlamaConfig
from softlook.ops.dispatch import Backend
from softlook.weights.folders import new_folder
from softlook.weights.loops import looped
from softlook.weights.tokenizer import copy_tokenizer

try:
    import onnx  # noqa: F401  (torch asks for both, and says less clearly what is missing)
    import onnxscript  # noqa: F401
except ImportError as fault:
    raise ImportError("to write for ONNX, install its packages: pip install softlook[onnx]") from fault

NAME = "model.onnx"
LOUD = "torch.onnx._internal.exporter._registration"
"""This logger of torch's reports every package that it could use and does not find."""
SIZES = {"batch": 2, "length": 5, "source_length": 6, "target_length": 7, "candidates": 3}
"""Sizes of the example that is traced, all different, so that none is taken for another."""


@dataclass(frozen=True)
class Input:
    """One input of a graph."""

    axes: tuple[str, ...]
    """Its first axes, which may have any size."""
    kind: torch.dtype | None = torch.long
    """What it holds; None for numbers in the model's own precision."""
    rest: Callable[[Any], tuple[int, ...]] = lambda config: ()
    """The sizes of its other axes, by the model's config."""
    asked: Callable[[Any], bool] = lambda config: True
    """Does a model with this config take it?"""


def _reads_padding(config: Any) -> bool:
    """A decoder's scores of words do not depend on what stands behind them; its classes do."""
    return not isinstance(config, GPTConfig | LlamaConfig) or config.head == "classes"


INPUTS = {
    "ids": Input(("batch", "length")),
    "segments": Input(("batch", "length"), asked=lambda config: config.segments > 0),
    "present": Input(("batch", "length"), torch.bool, asked=_reads_padding),
    "source": Input(("batch", "source_length")),
    "target": Input(("batch", "target_length")),
    "source_present": Input(("batch", "source_length"), torch.bool),
    "label": Input(("batch",), asked=lambda config: config.labels > 0),
    "images": Input(("batch",), None, lambda config: (config.channels, *config.image)),
    "numbers": Input(("batch",), None, lambda config: (config.numbers,), lambda config: config.numbers > 0),
    "categories": Input(
        ("batch",), torch.long, lambda config: (len(config.categories),), lambda config: config.categories
    ),
    "centre": Input(("batch",)),
    "candidates": Input(("batch", "candidates")),
}
"""By the name of the argument of `forward`. Other arguments have no place in a graph."""


def to_onnx(model: nn.Module, folder: str | Path, *, tokenizer: str | Path | None = None) -> Path:
    """Write a model as a new folder with a `model.onnx`; `tokenizer` is a tokenizer.json to keep beside it.

    Inputs have the names of `forward`'s arguments, and all of them have to be given: where no token is missing,
    `present` is True everywhere, and in a single sentence all `segments` are 0. The output is called `logits`, or,
    where the model's head makes something else, `states`, `vector`, or `words` and `next`. Nothing is dropped, even
    from a model that is still training.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=1, heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (to_onnx(model, Path(folder) / "gpt") / "model.onnx").exists()
    True
    """
    example = _example(model)
    with new_folder(Path(folder)) as made:
        _exported(model, example).save(made / NAME)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), made)
    return Path(folder)


def _example(model: nn.Module) -> dict[str, Tensor]:
    """What the model may be called with. Only the shapes count."""
    config, like = getattr(model, "config", None), next(model.parameters())
    named = [
        name for name in inspect.signature(model.forward).parameters if name in INPUTS and INPUTS[name].asked(config)
    ]
    if config is None or not named:
        raise WeightsError(
            f"softlook writes its own models as ONNX; how to call a {type(model).__name__} it does not know"
        )
    shapes = {name: [*(SIZES[axis] for axis in INPUTS[name].axes), *INPUTS[name].rest(config)] for name in named}
    kinds = {name: INPUTS[name].kind or like.dtype for name in named}
    return {name: torch.zeros(shapes[name], dtype=kinds[name], device=like.device) for name in named}


def _exported(model: nn.Module, example: dict[str, Tensor]) -> torch.onnx.ONNXProgram:
    free = {name: dict(enumerate(INPUTS[name].axes)) for name in example}
    with _as_it_answers(model), _quiet():
        try:
            program = torch.onnx.export(
                model,
                kwargs=example,
                dynamic_shapes=free,
                input_names=list(example),
                output_names=_outputs(model),
                dynamo=True,
                verbose=False,
            )
        except Exception as fault:  # torch has no common kind for what may go wrong on the way
            raise WeightsError(f"torch cannot write this {type(model).__name__} as ONNX: {str(fault):.500}") from fault
    assert program is not None, "torch gives one back where it is not told to write it down"
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # where each step stands in the source, by paths of this machine
    return program


def _outputs(model: Any) -> list[str]:
    head = getattr(model.config, "head", None)
    if head == "pretraining":
        return ["words", "next"]
    return [{"states": "states", "pooled": "vector", "embedding": "vector"}.get(head or "", "logits")]


@contextmanager
def _as_it_answers(model: nn.Module) -> Iterator[None]:
    """Plain steps that every runtime knows, and nothing dropped; afterwards all is as it was before."""
    looks: list[tuple[Mixing, Backend]] = [(m, m.backend) for m in model.modules() if isinstance(m, Mixing)]
    training = [module for module in model.modules() if module.training]
    for module, _ in looks:
        module.backend = "reference"
    try:
        with looped(model), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, backend in looks:
            module.backend = backend
        for module in training:
            module.training = True


@contextmanager
def _quiet() -> Iterator[None]:
    """Torch's exporter warns about its own old ways and tells of packages that it does not find; and where somebody
    has shapes checked, sizes that are symbols would be taken for faults."""
    logger, checks = logging.getLogger(LOUD), jaxtyping.config.jaxtyping_disable
    level = logger.level
    logger.setLevel(logging.ERROR)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*The axis name: .* will not be used")  # two inputs share it
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
        jaxtyping.config.update("jaxtyping_disable", checks)
