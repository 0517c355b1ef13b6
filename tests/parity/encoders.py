"""Comparison of softlook's encoders with those of Hugging Face, for every head."""

from typing import Any

import torch
from torch import Tensor, nn

from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.meta import unique_tensors
from tests.parity.comparison import close, maps, states

IDS = torch.tensor([[5, 3, 8, 2, 9, 2, 7], [4, 4, 6, 10, 8, 3, 2]])
"""Two rows, or two choices, without the padding id."""
TOKEN_TYPES = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1]])
PADDING_MASK = torch.arange(7) < torch.tensor([[7], [4]])
ZERO_GRADIENT = ("key.bias", "k_lin.bias", "attn.k.bias", "pos_key_proj.bias")
"""Parameters whose gradients are zero up to rounding: softmax is invariant to a constant over the keys."""
SIZES: dict[str, Any] = {"vocab_size": 13, "num_labels": 3}


def run_reference(reference: nn.Module, head: str, ids: Tensor, **more: Any) -> tuple[tuple[Tensor, ...], Any]:
    """The outputs of the reference in softlook's form, and its whole output."""
    if head == "multiple_choice":  # transformers takes the choices of each question together
        ids, more = ids[None], {name: value[None] for name, value in more.items()}
    output = reference(ids, output_attentions=True, output_hidden_states=True, **more)
    if head == "hidden_states":
        return (output.last_hidden_state,), output
    if head == "pooled":
        return (output.pooler_output,), output
    if head == "pretraining":
        return (output.prediction_logits, output.seq_relationship_logits), output
    if head == "question_answering":
        return (torch.stack([output.start_logits, output.end_logits], -1),), output
    return (output.logits.mT if head == "multiple_choice" else output.logits,), output


def as_tuple(scores: Any) -> tuple[Tensor, ...]:
    return tuple(scores) if isinstance(scores, tuple) else (scores,)


def check_outputs(actual: Any, reference: nn.Module, token_types: dict[str, Tensor]) -> None:
    """Compare outputs, all hidden states and all attention maps."""
    layers = nn.ModuleList([actual.project_in, *actual.blocks])
    with maps(actual) as actual_maps, states(layers) as actual_states, torch.no_grad():
        output = as_tuple(actual(IDS, **({"token_types": TOKEN_TYPES} if token_types else {})))
        expected, more = run_reference(reference, actual.config.head, IDS, **token_types)
    for one, other in zip(output, expected, strict=True):
        close(one, other)
    for one, other in zip(actual_maps, more.attentions, strict=True):
        close(one, other)
    for one, other in zip(actual_states, more.hidden_states, strict=True):
        close(one, other)


def check_gradients(actual: Any, reference: nn.Module, architecture: HFArchitecture) -> None:
    """Compare the gradients of all parameters."""
    expected, _ = run_reference(reference, actual.config.head, IDS)
    output = as_tuple(actual(IDS))
    upstream = [torch.randn_like(one) for one in output]
    torch.autograd.backward(output, upstream)
    torch.autograd.backward(expected, upstream)
    found = {name: own.grad for name, own in unique_tensors(actual).items() if own.grad is not None}
    parameters = dict(reference.named_parameters(remove_duplicate=False))
    assert parameters
    for rule in architecture.tensor_map(actual):
        for name, gradient in rule.write(found).items():
            parameter = parameters.get(name)
            parameter = (
                parameters[name.removeprefix(architecture.base_model_prefix)] if parameter is None else parameter
            )
            assert parameter.grad is not None
            if name.endswith(ZERO_GRADIENT):
                assert gradient.abs().max() < 1e-4
            else:
                close(gradient, parameter.grad)


def check_padding(
    actual: Any, reference: nn.Module, pad: int, mask: Tensor = PADDING_MASK, positions: Tensor | None = None
) -> None:
    """Compare the outputs of real tokens. Positions are softlook's; those of transformers include the offset."""
    ids = IDS.masked_fill(~mask, pad)
    more = {} if positions is None else {"position_ids": positions + getattr(actual.config, "position_offset", 0)}
    with torch.no_grad():
        output = as_tuple(actual(ids, padding_mask=mask, positions=positions))
        expected, _ = run_reference(reference, actual.config.head, ids, attention_mask=mask.long(), **more)
    for one, other in zip(output, expected, strict=True):
        close(*((one[mask], other[mask]) if one.shape[:2] == mask.shape else (one, other)))


def check_export(back: nn.Module, reference: nn.Module, head: str) -> None:
    """Compare the outputs of an exported model, loaded by transformers, with those of the original."""
    with torch.no_grad():
        for one, other in zip(run_reference(back, head, IDS)[0], run_reference(reference, head, IDS)[0], strict=True):
            close(one, other, 1e-5)
