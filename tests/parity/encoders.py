"""How BERT, RoBERTa and DistilBERT of Hugging Face's are asked the same questions as softlook's Bert."""

from typing import Any

import torch
from torch import Tensor, nn

from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.meta import unique_tensors
from tests.parity.comparison import close, maps, states

IDS = torch.tensor([[5, 3, 8, 2, 9, 2, 7], [4, 4, 6, 10, 8, 3, 2]])
"""Two rows, or two choices, without the padding's id."""
SEGMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1]])
PRESENT = torch.arange(7) < torch.tensor([[7], [4]])
UNFELT = ("key.bias", "k_lin.bias", "attn.k.bias", "pos_key_proj.bias")
"""Their gradients are zero but for rounding: a softmax ignores what is the same for all keys."""
SIZES: dict[str, Any] = {"vocab_size": 13, "num_labels": 3}


def ask(reference: nn.Module, head: str, ids: Tensor, **more: Any) -> tuple[tuple[Tensor, ...], Any]:
    """Their answers in the form of ours, and everything else that they say."""
    if head == "multiple_choice":  # theirs takes the choices of each question together
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


def answers(scores: Any) -> tuple[Tensor, ...]:
    return tuple(scores) if isinstance(scores, tuple) else (scores,)


def check_answers(actual: Any, reference: nn.Module, segments: dict[str, Tensor]) -> None:
    """The answers themselves, what goes into the blocks and comes out of each, and every attention map."""
    layers = nn.ModuleList([actual.project_in, *actual.blocks])
    with maps(actual) as our_maps, states(layers) as our_states, torch.no_grad():
        output = answers(actual(IDS, **({"token_types": SEGMENTS} if segments else {})))
        expected, more = ask(reference, actual.config.head, IDS, **segments)
    for one, other in zip(output, expected, strict=True):
        close(one, other)
    for one, other in zip(our_maps, more.attentions, strict=True):
        close(one, other)
    for one, other in zip(our_states, more.hidden_states, strict=True):
        close(one, other)


def check_gradients(actual: Any, reference: nn.Module, family: HFArchitecture) -> None:
    """The gradient of every single parameter."""
    expected, _ = ask(reference, actual.config.head, IDS)
    output = answers(actual(IDS))
    upstream = [torch.randn_like(one) for one in output]
    torch.autograd.backward(output, upstream)
    torch.autograd.backward(expected, upstream)
    found = {name: own.grad for name, own in unique_tensors(actual).items() if own.grad is not None}
    their_names = dict(reference.named_parameters(remove_duplicate=False))
    assert their_names
    for rule in family.tensor_map(actual):
        for name, gradient in rule.write(found).items():
            parameter = their_names.get(name)
            parameter = their_names[name.removeprefix(family.base_model_prefix)] if parameter is None else parameter
            assert parameter.grad is not None
            if name.endswith(UNFELT):
                assert gradient.abs().max() < 1e-4
            else:
                close(gradient, parameter.grad)


def check_padding(
    actual: Any, reference: nn.Module, pad: int, present: Tensor = PRESENT, positions: Tensor | None = None
) -> None:
    """Answers at the places where there are tokens. Positions are told as we count them: theirs have the offset."""
    ids = IDS.masked_fill(~present, pad)
    more = {} if positions is None else {"position_ids": positions + getattr(actual.config, "offset", 0)}
    with torch.no_grad():
        output = answers(actual(ids, padding_mask=present, positions=positions))
        expected, _ = ask(reference, actual.config.head, ids, attention_mask=present.long(), **more)
    for one, other in zip(output, expected, strict=True):
        close(*((one[present], other[present]) if one.shape[:2] == present.shape else (one, other)))


def check_back(back: nn.Module, reference: nn.Module, head: str) -> None:
    """What we wrote and they read gives the answers of what they wrote and we read."""
    with torch.no_grad():
        for one, other in zip(ask(back, head, IDS)[0], ask(reference, head, IDS)[0], strict=True):
            close(one, other, 1e-5)
