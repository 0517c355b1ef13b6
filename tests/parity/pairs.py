"""How an encoder-decoder of softlook's is held against the one of Hugging Face's that it was read from."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel

from softlook.blocks import Memory
from softlook.weights import from_hugging_face
from tests.parity.weights import close, maps, saved, states

SOURCE = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])
TARGET = torch.tensor([[2, 6, 0, 3, 8], [2, 9, 9, 1, 4]])
PRESENT = torch.arange(7) < torch.tensor([[7], [4]])


def both(theirs: PreTrainedModel, folder: Path) -> tuple[Any, Any]:
    """The same file, read by us and by them; biases of the words' scores are made to count."""
    for name, buffer in theirs.named_buffers():
        if name == "final_logits_bias":
            buffer.normal_()
    saved(theirs, folder)
    again: Any = type(theirs).from_pretrained(folder, attn_implementation="eager")
    return from_hugging_face(folder), again.eval()


def said(theirs: Any, **more: Any) -> Any:
    """What theirs says of the same sentences, padding included."""
    return theirs(input_ids=SOURCE, attention_mask=PRESENT.long(), decoder_input_ids=TARGET, **more)


def compare(ours: Any, theirs: Any, *, closing: bool) -> None:
    """Logits, hidden states and maps. With a closing norm, their last hidden state is behind it and ours before."""
    with maps(ours) as our_maps, torch.no_grad():
        with states(ours.encoder.blocks) as encoded, states(ours.decoder.blocks) as decoded:
            logits = ours(SOURCE, TARGET, source_present=PRESENT)
        wanted = said(theirs, output_attentions=True, output_hidden_states=True)
    close(logits, wanted.logits)
    looks = [*wanted.encoder_attentions]
    for pair in zip(wanted.decoder_attentions, wanted.cross_attentions, strict=True):
        looks += pair
    for one, other in zip(our_maps, looks, strict=True):
        close(one, other)
    for our_states, their_states in (
        (encoded, wanted.encoder_hidden_states),
        (decoded, wanted.decoder_hidden_states),
    ):
        stop = -1 if closing else None
        for one, other in zip(our_states[:stop], their_states[1:stop], strict=True):
            close(one, other)


def compare_gradients(ours: Any, theirs: Any, pairs: dict[str, str]) -> None:
    """Of a few parameters, ours -> theirs, after the same gradient came from above."""
    upstream = torch.randn(*TARGET.shape, ours.head.out_features)
    ours(SOURCE, TARGET, source_present=PRESENT).backward(upstream)
    said(theirs).logits.backward(upstream)
    for our_name, their_name in pairs.items():
        close(_gradient(ours, our_name), _gradient(theirs, their_name))


def compare_steps(ours: Any, theirs: Any) -> None:
    """Decoding a few words at a time, each side with its own memory of the past."""
    memory, cache = Memory(), EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        encoded = ours.encode(SOURCE, present=PRESENT)
        their_encoded = theirs.get_encoder()(input_ids=SOURCE, attention_mask=PRESENT.long())
        for start, stop in ((0, 2), (2, 3), (3, 5)):
            words = TARGET[:, start:stop]
            wanted = theirs(
                encoder_outputs=their_encoded,
                attention_mask=PRESENT.long(),
                decoder_input_ids=words,
                past_key_values=cache,
                use_cache=True,
            )
            close(ours.decode(words, encoded, source_present=PRESENT, memory=memory), wanted.logits)


def compare_again(back: Any, theirs: Any) -> None:
    """What they read from what we wrote says the same."""
    with torch.no_grad():
        close(said(back).logits, said(theirs).logits, 1e-6)


def _gradient(model: Any, name: str) -> Tensor:
    gradient = model.get_parameter(name).grad
    assert gradient is not None and gradient.abs().max() > 0
    return gradient
