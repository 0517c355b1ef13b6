"""Comparison of softlook's encoder-decoder models with the Hugging Face models that they were imported from."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from softlook.blocks import KVCache
from softlook.weights import from_hugging_face
from tests.parity.comparison import close, maps, saved, states

SOURCE = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])
TARGET = torch.tensor([[2, 6, 0, 3, 8], [2, 9, 9, 1, 4]])
PADDING_MASK = torch.arange(7) < torch.tensor([[7], [4]])


def load_both(reference: PreTrainedModel, folder: Path) -> tuple[Any, Any]:
    """The same folder, loaded by softlook and by transformers, with random biases of the logits."""
    for name, buffer in reference.named_buffers():
        if name == "final_logits_bias":
            buffer.normal_()
    saved(reference, folder)
    again: Any = type(reference).from_pretrained(folder, attn_implementation="eager")
    return from_hugging_face(folder), again.eval()


def run_reference(reference: Any, **more: Any) -> Any:
    """The output of the reference for SOURCE and TARGET, with padding."""
    return reference(input_ids=SOURCE, attention_mask=PADDING_MASK.long(), decoder_input_ids=TARGET, **more)


def compare(actual: Any, reference: Any, *, final_norm: bool) -> None:
    """Compare logits, hidden states and attention maps. The reference applies a final norm to its last hidden state."""
    with maps(actual) as actual_maps, torch.no_grad():
        with states(actual.encoder.blocks) as encoded, states(actual.decoder.blocks) as decoded:
            logits = actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK)
        expected = run_reference(reference, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    expected_maps = [*expected.encoder_attentions]
    for pair in zip(expected.decoder_attentions, expected.cross_attentions, strict=True):
        expected_maps += pair
    for one, other in zip(actual_maps, expected_maps, strict=True):
        close(one, other)
    for actual_states, expected_states in (
        (encoded, expected.encoder_hidden_states),
        (decoded, expected.decoder_hidden_states),
    ):
        stop = -1 if final_norm else None
        for one, other in zip(actual_states[:stop], expected_states[1:stop], strict=True):
            close(one, other)


def compare_gradients(actual: Any, reference: Any, pairs: dict[str, str]) -> None:
    """Compare the gradients of some parameters: softlook's names -> transformers' names."""
    upstream = torch.randn(*TARGET.shape, actual.lm_head.out_features)
    actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK).backward(upstream)
    run_reference(reference).logits.backward(upstream)
    for name, reference_name in pairs.items():
        close(_gradient(actual, name), _gradient(reference, reference_name))


def compare_steps(actual: Any, reference: Any) -> None:
    """Compare decoding in chunks, each model with its own cache."""
    cache, reference_cache = KVCache(), EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        encoded = actual.encode(SOURCE, padding_mask=PADDING_MASK)
        encoder_outputs = reference.get_encoder()(input_ids=SOURCE, attention_mask=PADDING_MASK.long())
        for start, stop in ((0, 2), (2, 3), (3, 5)):
            ids = TARGET[:, start:stop]
            expected = reference(
                encoder_outputs=encoder_outputs,
                attention_mask=PADDING_MASK.long(),
                decoder_input_ids=ids,
                past_key_values=reference_cache,
                use_cache=True,
            )
            close(actual.decode(ids, encoded, source_padding_mask=PADDING_MASK, cache=cache), expected.logits)


def compare_export(back: Any, reference: Any) -> None:
    """Compare the logits of an exported model, loaded by transformers, with those of the original."""
    with torch.no_grad():
        close(run_reference(back).logits, run_reference(reference).logits, 1e-6)


def _gradient(model: Any, name: str) -> Tensor:
    gradient = model.get_parameter(name).grad
    assert gradient is not None and gradient.abs().max() > 0
    return gradient
