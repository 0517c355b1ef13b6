"""Effects of heads: how much a metric changes when a head is ablated, exactly or estimated from one gradient."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.lens.ablation import Replacement, ablate, ablated_output
from softlook.lens.head_table import HeadTable, merge_columns
from softlook.lens.trace import attention_cores

Method = Literal["exact", "gradient"]
Metric = Callable[[Any], Tensor]
"""A number computed from the output of a model, such as a loss or a logit."""
MEASURED: dict[str, str] = {
    "exact": "metric with this head ablated, minus the metric of the model: one forward pass per head",
    "gradient": "(ablated output - output) times the gradient of the metric: first-order estimate from one backward",
}


def head_effects(
    model: nn.Module,
    metric: Metric,
    *args: Any,
    methods: tuple[Method, ...] = ("exact", "gradient"),
    replacement: Replacement = "zero",
    **kwargs: Any,
) -> HeadTable:
    """The leave-one-out effect of every head: the change of a metric when this head alone is ablated.

    The estimate (attribution patching, Nanda 2023) takes one forward and one backward pass for all heads together.
    It is precise for small effects and misses saturation, such as that of a softmax. The model is called with the
    remaining arguments.

    - `metric`: computes one number from the output of the model.
    - `replacement`: as in `ablate`.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> table = head_effects(model, lambda logits: logits[0, -1, 7], torch.tensor([[3, 1, 4]]))
    >>> table["exact"].shape, torch.allclose(table["exact"], table["gradient"], atol=0.05)
    (torch.Size([8]), True)
    """
    if unknown := [method for method in methods if method not in get_args(Method)] or not methods:
        raise ConfigError(f"methods must be some of {', '.join(get_args(Method))}, got {unknown or methods}")

    def run() -> Tensor:
        return check_metric(metric(model(*args, **kwargs)))

    computed: dict[Method, dict[str, Tensor]] = {}
    if "exact" in methods:
        computed["exact"] = _exact_effects(model, run, replacement)
    if "gradient" in methods:
        computed["gradient"] = _estimated_effects(model, run, replacement)
    layers = {path: {method: computed[method][path] for method in methods} for path in computed[methods[0]]}
    return merge_columns(layers, MEASURED)


@torch.no_grad()
def _exact_effects(model: nn.Module, run: Callable[[], Tensor], replacement: Replacement) -> dict[str, Tensor]:
    with _record_outputs(model) as outputs:
        baseline = run()
    effects = {}
    for path, (output, _) in outputs.items():
        changes = []
        for head in range(output.shape[1]):
            with ablate(model, path, head, replacement):
                changes.append(run() - baseline)
        effects[path] = torch.stack(changes)
    return effects


def _estimated_effects(model: nn.Module, run: Callable[[], Tensor], replacement: Replacement) -> dict[str, Tensor]:
    with torch.enable_grad(), _record_outputs(model) as outputs:
        value = run()
    gradients = torch.autograd.grad(value, [probe for _, probe in outputs.values()])
    return {
        path: ((ablated_output(output, replacement) - output) * gradient).sum((0, 2, 3))
        for (path, (output, _)), gradient in zip(outputs.items(), gradients, strict=True)
    }


@contextmanager
def _record_outputs(model: nn.Module) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """The output of the heads of each layer that is called, and zeros added to it, whose gradient is that of it."""
    outputs: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(path: str) -> Callable[[AttentionCore, Any, Tensor], Tensor]:
        def add_probe(core: AttentionCore, args: Any, output: Tensor) -> Tensor:
            if path in outputs:
                raise ConfigError(f"{path} was called twice: the effect of a head is that in a single forward pass")
            probe = torch.zeros_like(output, requires_grad=True)
            outputs[path] = output.detach(), probe
            return output + probe

        return add_probe

    with ExitStack() as hooks:
        for path, core in attention_cores(model).items():
            hooks.callback(core.register_forward_hook(hook(path)).remove)
        yield outputs


def check_metric(value: Any) -> Tensor:
    """The value of a metric as a tensor without dimensions."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise ConfigError(f"a metric is one number as a tensor, got {getattr(value, 'shape', type(value).__name__)}")
    return value.reshape(())
