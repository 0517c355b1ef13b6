"""ONNX export for any batch size and sequence length.

Recurrent layers are exported as scan operators: traced step by step, they would be fixed to one length.
"""

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jaxtyping
import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan  # the only loop that torch's exporters support

from softlook.base.errors import WeightsError
from softlook.blocks.alignment import EncodedSource
from softlook.blocks.attention import AttentionCore
from softlook.blocks.recurrent import BahdanauDecoder, DecoderState, LuongDecoder, RecurrentEncoder
from softlook.models import GPTConfig, LlamaConfig
from softlook.ops.backends.plan import Backend
from softlook.weights.atomic_folder import atomic_folder
from softlook.weights.tokenizer_files import copy_tokenizer


class ScanGRU(nn.Module):
    """A one-layer nn.GRU as a scan over time steps."""

    def __init__(self, units: nn.GRU) -> None:
        super().__init__()
        self.cell = nn.GRUCell(units.input_size, units.hidden_size)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(units, f"{name}_l0"))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def step(state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
            state = self.cell(word, state)
            return state, state.clone()

        last, read = scan(step, x.new_zeros(x.shape[0], self.cell.hidden_size), x.transpose(0, 1))
        return read.transpose(0, 1), last


class ScanDecoder(nn.Module):
    """A recurrent decoder as a scan over time steps."""

    def __init__(self, decoder: BahdanauDecoder | LuongDecoder) -> None:
        super().__init__()
        self.decoder, self.align, self.initial_state = decoder, decoder.align, decoder.initial_state

    def forward(self, x: Tensor, source: EncodedSource, carried: DecoderState) -> tuple[Tensor, DecoderState]:
        source = replace(source, key=source.key.clone())  # scan does not allow aliased inputs

        def step(held: tuple[Tensor, ...], embedding: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            state, number, *fed = held
            before: Any = DecoderState(state, number, *fed)  # pyright: ignore[reportArgumentType]  (the step number is a tensor here)
            output, after = self.decoder(embedding[:, None], source, before)
            held = tuple(part.clone() for part in (after.state, number + 1, after.fed) if part is not None)
            return held, output[:, 0]

        start = (carried.state, torch.tensor(carried.step), *(() if carried.fed is None else (carried.fed,)))
        _, outputs = scan(step, start, x.transpose(0, 1))
        return outputs.transpose(0, 1), carried


@contextmanager
def scan_recurrent_layers(model: nn.Module) -> Iterator[None]:
    """Context in which recurrent layers are scans."""
    changed: list[tuple[nn.Module, str, nn.Module]] = []
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, BahdanauDecoder | LuongDecoder):
                changed.append((module, name, part))
                setattr(module, name, ScanDecoder(part))
            elif isinstance(module, RecurrentEncoder) and isinstance(part, nn.GRU):
                changed.append((module, name, part))
                setattr(module, name, ScanGRU(part))
    try:
        yield
    finally:
        for module, name, part in changed:
            setattr(module, name, part)


try:
    import onnx  # noqa: F401  (torch needs both, but its error is unclear)
    import onnxscript  # noqa: F401
except ImportError as fault:
    raise ImportError("ONNX export needs: pip install softlook[onnx]") from fault

MODEL_FILE = "model.onnx"
NOISY_LOGGER = "torch.onnx._internal.exporter._registration"
"""torch's logger that reports missing optional packages."""
EXAMPLE_SIZES = {"batch": 2, "length": 5, "source_length": 6, "target_length": 7, "candidates": 3}
"""Sizes of the traced example, all different so that dynamic axes are told apart."""


@dataclass(frozen=True)
class InputSpec:
    """An input of the graph."""

    axes: tuple[str, ...]
    """Names of the leading, dynamic axes."""
    dtype: torch.dtype | None = torch.long
    """None: the dtype of the model."""
    trailing_shape: Callable[[Any], tuple[int, ...]] = lambda config: ()
    """Sizes of the other axes for a config."""
    applies: Callable[[Any], bool] = lambda config: True
    """Whether a model with this config takes the input."""


def _takes_padding_mask(config: Any) -> bool:
    """Logits of a causal decoder do not depend on right padding; class logits do."""
    return not isinstance(config, GPTConfig | LlamaConfig) or config.head == "classification"


INPUTS = {
    "ids": InputSpec(("batch", "length")),
    "token_types": InputSpec(("batch", "length"), applies=lambda config: config.token_types > 0),
    "padding_mask": InputSpec(("batch", "length"), torch.bool, applies=_takes_padding_mask),
    "source": InputSpec(("batch", "source_length")),
    "target": InputSpec(("batch", "target_length")),
    "source_padding_mask": InputSpec(("batch", "source_length"), torch.bool),
    "class_label": InputSpec(("batch",), applies=lambda config: config.num_class_labels > 0),
    "images": InputSpec(("batch",), None, lambda config: (config.channels, *config.image_size)),
    "numbers": InputSpec(("batch",), None, lambda config: (config.n_numeric,), lambda config: config.n_numeric > 0),
    "categories": InputSpec(
        ("batch",), torch.long, lambda config: (len(config.cardinalities),), lambda config: config.cardinalities
    ),
    "center": InputSpec(("batch",)),
    "candidates": InputSpec(("batch", "candidates")),
}
"""Argument of `forward` -> input. Other arguments are not exported."""


def to_onnx(model: nn.Module, folder: str | Path, *, tokenizer: str | Path | None = None) -> Path:
    """Export a model as a new folder with `model.onnx`; `tokenizer` is a tokenizer.json to copy into it.

    Inputs have the names of `forward`'s arguments and are all required: without padding, `padding_mask` is all True,
    and for a single sentence `token_types` is all 0. The output is `logits`, `hidden_states`, `pooler_output`,
    `sentence_embedding`, or `masked_lm_logits` and `next_sentence_logits`, by the head of the model. Dropout is
    disabled.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (to_onnx(model, Path(folder) / "gpt") / "model.onnx").exists()
    True
    """
    if getattr(model, "ngrams", None) is not None:
        raise WeightsError("ONNX has no n-gram model. Train a model to export with --no-ngrams.")
    example = _example(model)
    with atomic_folder(Path(folder)) as partial:
        _export(model, example).save(partial / MODEL_FILE)
        if tokenizer is not None:
            copy_tokenizer(Path(tokenizer), partial)
    return Path(folder)


def _example(model: nn.Module) -> dict[str, Tensor]:
    """Example inputs; only their shapes matter."""
    config, like = getattr(model, "config", None), next(model.parameters())
    named = [
        name for name in inspect.signature(model.forward).parameters if name in INPUTS and INPUTS[name].applies(config)
    ]
    if config is None or not named:
        raise WeightsError(f"{type(model).__name__} is not a softlook model and cannot be exported to ONNX")
    shapes = {
        name: [*(EXAMPLE_SIZES[axis] for axis in INPUTS[name].axes), *INPUTS[name].trailing_shape(config)]
        for name in named
    }
    kinds = {name: INPUTS[name].dtype or like.dtype for name in named}
    return {name: torch.zeros(shapes[name], dtype=kinds[name], device=like.device) for name in named}


def _export(model: nn.Module, example: dict[str, Tensor]) -> torch.onnx.ONNXProgram:
    free = {name: dict(enumerate(INPUTS[name].axes)) for name in example}
    with _export_mode(model), _suppress_warnings():
        try:
            program = torch.onnx.export(
                model,
                kwargs=example,
                dynamic_shapes=free,
                input_names=list(example),
                output_names=_output_names(model),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # torch raises many types here
            raise WeightsError(f"torch cannot export this {type(model).__name__} to ONNX: {str(error):.500}") from error
    assert program is not None, "torch returns a program if it does not save one"
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # source paths of this machine
    return program


def _output_names(model: Any) -> list[str]:
    head = getattr(model.config, "head", None)
    if head == "pretraining":
        return ["masked_lm_logits", "next_sentence_logits"]
    names = {"hidden_states": "hidden_states", "pooled": "pooler_output", "embedding": "sentence_embedding"}
    return [names.get(head or "", "logits")]


@contextmanager
def _export_mode(model: nn.Module) -> Iterator[None]:
    """Context with reference attention, scans and eval mode; restores the model afterwards."""
    cores: list[tuple[AttentionCore, Backend]] = [
        (m, m.backend) for m in model.modules() if isinstance(m, AttentionCore)
    ]
    training = [module for module in model.modules() if module.training]
    for module, _ in cores:
        module.backend = "reference"
    try:
        with scan_recurrent_layers(model), torch.no_grad():
            model.eval()
            yield
    finally:
        for module, backend in cores:
            module.backend = backend
        for module in training:
            module.training = True


@contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Silence torch's exporter, and jaxtyping, which would reject symbolic sizes."""
    logger, checks = logging.getLogger(NOISY_LOGGER), jaxtyping.config.jaxtyping_disable
    level = logger.level
    logger.setLevel(logging.ERROR)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*The axis name: .* will not be used")  # shared by two inputs
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            yield
    finally:
        logger.setLevel(level)
        jaxtyping.config.update("jaxtyping_disable", checks)
