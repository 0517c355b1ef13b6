"""How an encoder-decoder of softlook's is held against the one of Hugging Face's that it was read from."""

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
PRESENT = torch.arange(7) < torch.tensor([[7], [4]])


def both(reference: PreTrainedModel, folder: Path) -> tuple[Any, Any]:
    """The same file, read by us and by them; biases of the words' scores are made to count."""
    for name, buffer in reference.named_buffers():
        if name == "final_logits_bias":
            buffer.normal_()
    saved(reference, folder)
    again: Any = type(reference).from_pretrained(folder, attn_implementation="eager")
    return from_hugging_face(folder), again.eval()


def output(reference: Any, **more: Any) -> Any:
    """What theirs says of the same sentences, padding included."""
    return reference(input_ids=SOURCE, attention_mask=PRESENT.long(), decoder_input_ids=TARGET, **more)


def compare(actual: Any, reference: Any, *, closing: bool) -> None:
    """Logits, hidden states and maps. With a closing norm, their last hidden state is behind it and ours before."""
    with maps(actual) as our_maps, torch.no_grad():
        with states(actual.encoder.blocks) as encoded, states(actual.decoder.blocks) as decoded:
            logits = actual(SOURCE, TARGET, source_padding_mask=PRESENT)
        expected = output(reference, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    looks = [*expected.encoder_attentions]
    for pair in zip(expected.decoder_attentions, expected.cross_attentions, strict=True):
        looks += pair
    for one, other in zip(our_maps, looks, strict=True):
        close(one, other)
    for our_states, their_states in (
        (encoded, expected.encoder_hidden_states),
        (decoded, expected.decoder_hidden_states),
    ):
        stop = -1 if closing else None
        for one, other in zip(our_states[:stop], their_states[1:stop], strict=True):
            close(one, other)


def compare_gradients(actual: Any, reference: Any, pairs: dict[str, str]) -> None:
    """Of a few parameters, ours -> theirs, after the same gradient came from above."""
    upstream = torch.randn(*TARGET.shape, actual.head.out_features)
    actual(SOURCE, TARGET, source_padding_mask=PRESENT).backward(upstream)
    output(reference).logits.backward(upstream)
    for our_name, their_name in pairs.items():
        close(_gradient(actual, our_name), _gradient(reference, their_name))


def compare_steps(actual: Any, reference: Any) -> None:
    """Decoding a few words at a time, each side with its own memory of the past."""
    memory, cache = KVCache(), EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        encoded = actual.encode(SOURCE, padding_mask=PRESENT)
        their_encoded = reference.get_encoder()(input_ids=SOURCE, attention_mask=PRESENT.long())
        for start, stop in ((0, 2), (2, 3), (3, 5)):
            words = TARGET[:, start:stop]
            expected = reference(
                encoder_outputs=their_encoded,
                attention_mask=PRESENT.long(),
                decoder_input_ids=words,
                past_key_values=cache,
                use_cache=True,
            )
            close(actual.decode(words, encoded, source_padding_mask=PRESENT, cache=memory), expected.logits)


def compare_again(back: Any, reference: Any) -> None:
    """What they read from what we wrote says the same."""
    with torch.no_grad():
        close(output(back).logits, output(reference).logits, 1e-6)


def _gradient(model: Any, name: str) -> Tensor:
    gradient = model.get_parameter(name).grad
    assert gradient is not None and gradient.abs().max() > 0
    return gradient
