"""The `mask` of a decoder: the same semantics for every model with a causal mask."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import MaskError, masks
from softlook.models import Llama, LlamaConfig
from tests.models.tiny import TINY, VOCAB, Tiny

CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}
MASKED = [tiny for tiny in TINY.values() if tiny.sequence and tiny.takes("mask")]
XL = [tiny for tiny in MASKED if tiny.name.startswith("TransformerXL")]
BIDIRECTIONAL = [tiny for tiny in MASKED if tiny not in XL]
"""Models that can attend to later positions; Transformer-XL has no relative embeddings for them."""


def every(tinies: list[Tiny]) -> Any:
    return pytest.mark.parametrize("tiny", tinies, ids=str)


def logits(tiny: Tiny, model: Any, mask: Any, *, changed: int | None = None) -> Tensor:
    """The logits under a mask, optionally with another token at position `changed`."""
    inputs, name = tiny.inputs(), str(tiny.sequence)
    if changed is not None:
        inputs[name][:, changed] = (inputs[name][:, changed] + 1) % VOCAB
    with torch.no_grad():
        return tiny.ask(model, {**inputs, "mask": mask})


@every(BIDIRECTIONAL)
def test_a_prefix_is_visible_to_every_query_and_the_rest_stays_causal(tiny: Tiny) -> None:
    model, mask = tiny.build(), masks.causal() | masks.prefix(3)
    plain = logits(tiny, model, mask)
    assert (logits(tiny, model, None) - plain)[:, :2].abs().max() > 1e-4
    assert (logits(tiny, model, mask, changed=2) - plain)[:, 0].abs().max() > 1e-4
    assert_close(logits(tiny, model, mask, changed=5)[:, :5], plain[:, :5], **CLOSE)


@every(BIDIRECTIONAL)
def test_a_symbolic_mask_equals_its_dense_form(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.causal() | masks.prefix(3), masks.causal(), masks.window(2, 1)):
        dense = mask.to_dense((1, 1, 7, 7))
        assert_close(logits(tiny, model, dense), logits(tiny, model, mask), **CLOSE)


@every(MASKED)
def test_padding_and_document_masks_are_combined_with_the_causal_mask(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.padding([7, 4]), masks.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1]))):
        assert_close(logits(tiny, model, mask), logits(tiny, model, masks.causal() & mask), **CLOSE)
    one_row = torch.arange(7)[None, None, None] < 5
    assert_close(logits(tiny, model, one_row), logits(tiny, model, masks.causal() & one_row), **CLOSE)


@every(BIDIRECTIONAL)
def test_a_prefix_lm_decodes_with_a_cache(tiny: Tiny) -> None:
    model, inputs, mask = tiny.build(), tiny.inputs(), masks.causal() | masks.prefix(3)
    assert tiny.make_cache is not None
    cache, name = tiny.make_cache(), tiny.sequence or "ids"
    parts = inputs[name].split([3, 1, 3], 1)
    with torch.no_grad():
        steps = [tiny.ask(model, {**inputs, name: part, "mask": mask, "cache": cache}) for part in parts]
    assert_close(torch.cat(steps, 1), logits(tiny, model, mask), **CLOSE)


def test_a_sliding_window_applies_under_any_mask() -> None:
    torch.manual_seed(0)
    model = Llama(LlamaConfig(vocab_size=VOCAB, dim=16, depth=1, heads=2, sliding_window=2)).eval()
    ids = torch.randint(0, VOCAB, (2, 7))
    other = ids.clone()
    other[:, 0] = (other[:, 0] + 1) % VOCAB
    for mask in (masks.causal(), masks.causal() | masks.prefix(3), masks.padding([7, 7])):
        with torch.no_grad():
            one, two = model(ids, mask=mask), model(other, mask=mask)
        assert torch.equal(one[:, 2:], two[:, 2:])


@every(XL)
def test_transformer_xl_rejects_masks_with_visible_future_keys(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.causal() | masks.prefix(3), masks.window(2, 1), torch.ones(7, 7, dtype=torch.bool)):
        with pytest.raises(MaskError, match=r"no embedding for keys after the query.*causal\(\) & mask"):
            logits(tiny, model, mask)
    assert_close(logits(tiny, model, masks.window(6)), logits(tiny, model, None), **CLOSE)
