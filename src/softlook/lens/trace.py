"""Traces: queries and keys of every attention layer in a forward pass, and the residual stream between blocks."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.display import Displayed
from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.lens.attention_trace import AttentionCall as AttentionCall
from softlook.lens.attention_trace import AttentionTrace as AttentionTrace
from softlook.lens.recording import Recorder, copy_core
from softlook.lens.trace_file import read_trace, write_trace

CORE = ".core"
"""The name of the attention function inside an attention layer."""
READERS = ("", "encoder", "decoder")
"""Names of the modules whose integer inputs are recorded: the model, and those that decoding calls by themselves."""
BLOCKS = "blocks"
"""The name of the list of blocks in a model, and in an encoder and a decoder."""


@dataclass(eq=False)
class Trace(Displayed, Mapping[str, AttentionTrace]):
    """What a model computed inside `trace`: an `AttentionTrace` for each attention layer, by the path of its module."""

    layers: dict[str, AttentionTrace]
    residual: dict[str, Float[Tensor, "B T C"]]
    """The residual stream after each block, by the path of the block; that of the last call."""
    logits: Tensor | None = None
    """The output of the last call of the model; None if it is not a single tensor."""
    inputs: dict[str, list[Tensor]] = field(default_factory=dict)
    """Integer inputs of each call, such as token ids, by the name of the parameter: of the model, of its encoder, and
    of its decoder, as in "ids", "encoder.ids"."""
    tokens: Sequence[str] | None = None
    """The text of each token: of the queries, and of the keys unless there are `source_tokens`."""
    source_tokens: Sequence[str] | None = None
    """The text of each token of the encoder, the keys of cross-attention."""

    def save(self, path: str | Path, *, dtype: torch.dtype | None = None) -> None:
        """Write the trace to a new safetensors file; `dtype=torch.float16` halves the size of recorded tensors.

        A path that ends with ".html" gets a page that shows the trace, in one file that opens without a server.

        Masks, biases and scores keep their dtype. A mask that is a function is saved entry by entry; other functions
        are an error, since a file holds no code.
        """
        path = Path(path)
        if path.suffix == ".html":
            import_module("softlook.lens.trace_page").write_page(path, self)
        else:
            write_trace(path, vars(self), dtype)

    def __getitem__(self, path: str) -> AttentionTrace:
        if path not in self.layers:
            raise KeyError(f"no attention layer {path!r}: expected one of {', '.join(self.layers)}")
        return self.layers[path]

    def __iter__(self) -> Iterator[str]:
        """The layers that were called."""
        return (path for path, layer in self.layers.items() if layer.calls)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@contextmanager
def trace(
    model: nn.Module,
    *,
    values: bool = False,
    grad: bool = False,
    dtype: torch.dtype | None = None,
    tokens: Sequence[str] | None = None,
    source_tokens: Sequence[str] | None = None,
) -> Iterator[Trace]:
    """Record queries and keys of every attention layer, and the residual stream, in each forward pass of the context.

    The model is one of softlook, or of Hugging Face's transformers. The fast kernels stay in use, and no map is
    computed: `AttentionTrace.weights` computes the exact weights of any part of a map, and `AttentionTrace.look` its
    statistics, in memory linear in the length. The keys of a KV cache are stored once.

    - `values`: also record the values and the output of each head, which contributions and patches need.
    - `grad`: also keep the graph, for `AttentionTrace.gradient_times_attention`; includes `values`.
    - `dtype`: the dtype of the recorded tensors, such as `torch.float16`; default: that of the model.
    - `tokens`, `source_tokens`: texts of the tokens, kept with the trace.

    >>> from softlook.blocks import SelfAttention
    >>> layer = SelfAttention(8, heads=2)
    >>> with trace(layer) as recorded:
    ...     output = layer(torch.randn(1, 5, 8))
    >>> recorded["core"].weights().sum(-1).shape, recorded["core"].look(stats=("entropy",))
    (torch.Size([1, 2, 5]), Look(entropy 1x2x5))
    """
    recorder = Recorder(values=values, grad=grad, dtype=dtype)
    recorded = Trace({}, {}, tokens=tokens, source_tokens=source_tokens)
    with ExitStack() as hooks:
        if is_hugging_face(model):
            adapter = import_module("softlook.lens.hugging_face")
            hooks.enter_context(adapter.record_attention(model, recorder, recorded.layers))
            blocks = adapter.hidden_blocks(model)
        else:
            blocks = residual_blocks(model)
            for path, core in attention_cores(model).items():
                calls = recorded.layers.setdefault(path, AttentionTrace()).calls
                hook = _record_call(recorder, path, calls)
                hooks.callback(core.register_forward_hook(hook, with_kwargs=True).remove)
        for path, block in blocks.items():
            hooks.callback(block.register_forward_hook(_record_residual(recorder, recorded.residual, path)).remove)
        hooks.callback(model.register_forward_hook(_record_logits(recorder, recorded)).remove)
        for path, module in model.named_modules():
            if path.rpartition(".")[2] in READERS:
                hooks.callback(
                    module.register_forward_hook(_record_inputs(recorded.inputs, path), with_kwargs=True).remove
                )
        yield recorded
    for path, layer in recorded.layers.items():
        recorder.share_buffers(path, layer.calls)


def decode_tokens(decode: Callable[[list[int]], str], ids: Sequence[int] | Int[Tensor, " T"]) -> list[str]:
    """The text of each token, for `Trace.tokens`; `decode` is that of a tokenizer.

    >>> decode_tokens(lambda ids: "".join(map(chr, ids)), torch.tensor([104, 105]))
    ['h', 'i']
    """
    return [decode([int(id)]) for id in ids]


def load_trace(path: str | Path) -> Trace:
    """Read a trace that `Trace.save` wrote, without its model. A damaged file is an error; none runs code.

    >>> import tempfile
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=1, heads=2)).eval()
    >>> with torch.no_grad(), trace(model, tokens=["a", "b", "c"]) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recorded.save(f"{folder}/trace.safetensors")
    ...     loaded = load_trace(f"{folder}/trace.safetensors")
    >>> loaded.tokens, torch.equal(loaded["blocks.0.attn"].weights(), recorded["blocks.0.attn"].weights())
    (['a', 'b', 'c'], True)
    """
    return Trace(**read_trace(Path(path)))


def is_hugging_face(model: nn.Module) -> bool:
    """Whether the model is one of transformers, or wraps one."""
    return any(type(module).__module__.startswith("transformers.") for module in model.modules())


def residual_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a model, whose output is the residual stream, by their paths.

    >>> from softlook.models import GPT, GPTConfig
    >>> list(residual_blocks(GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4))))
    ['blocks.0', 'blocks.1']
    """
    return {
        path: module for path, module in model.named_modules() if path.rpartition(".")[0].rpartition(".")[2] == BLOCKS
    }


def attention_cores(model: nn.Module) -> dict[str, AttentionCore]:
    """The attention function of each attention layer, by the path of the layer."""
    cores = {path.removesuffix(CORE): m for path, m in model.named_modules() if isinstance(m, AttentionCore)}
    if not cores:
        raise ConfigError(f"{type(model).__name__} has no attention layers")
    return cores


def attention_maps(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Float[Tensor, "B H T S"]]:
    """Run a model and return the attention weights of each layer, by the path of the attention module.

    The weights are those of the forward pass, before dropout, with its masks and biases, and the scale, softcap and
    sink of each layer. The model is called with the remaining arguments, without gradients. A map has T x S entries
    per head: `trace` gives parts and statistics of long ones.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> {path: tuple(weights.shape) for path, weights in attention_maps(model, torch.tensor([[3, 1, 4]])).items()}
    {'blocks.0.attn': (1, 4, 3, 3), 'blocks.1.attn': (1, 4, 3, 3)}
    """
    with torch.no_grad(), trace(model) as recorded:
        model(*args, **kwargs)
    return {path: layer.weights() for path, layer in recorded.items()}


def _record_call(recorder: Recorder, path: str, calls: list[AttentionCall]) -> Callable[..., None]:
    """A forward hook of an attention function that appends a call."""

    def record(core: AttentionCore, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        names = ("query", "key", "value", "mask", "bias")
        given: dict[str, Any] = dict.fromkeys(names) | dict(zip(names, args, strict=False)) | kwargs
        keys, own = (given["key"], given["value"]), copy_core(core, recorder.copies)
        call = recorder.record(path, own, given["query"], keys, output, mask=given["mask"], bias=given["bias"])
        calls.append(call)

    return record


def _record_residual(recorder: Recorder, residual: dict[str, Tensor], path: str) -> Callable[..., None]:
    """A forward hook that keeps the output of a block."""

    def record(block: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        stream = output[0] if isinstance(output, tuple) else output
        if isinstance(stream, Tensor):
            residual[path] = recorder.convert(stream)

    return record


def _record_logits(recorder: Recorder, recorded: Trace) -> Callable[..., None]:
    """A forward hook that keeps the output of the model."""

    def record(model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        logits = getattr(output, "logits", output)
        recorded.logits = recorder.convert(logits) if isinstance(logits, Tensor) else None

    return record


def _record_inputs(inputs: dict[str, list[Tensor]], path: str) -> Callable[..., None]:
    """A forward hook that keeps integer inputs."""

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        given = dict(zip(inspect.signature(module.forward).parameters, args, strict=False)) | kwargs
        for name, value in given.items():
            if is_integer(value):
                inputs.setdefault(f"{path}.{name}".lstrip("."), []).append(value.detach().clone())

    return record


def is_integer(value: Any) -> bool:
    """Whether a value is a tensor of integers, such as token ids."""
    return isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
