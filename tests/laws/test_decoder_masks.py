"""What a mask given to a decoder does, the same for every model that has a causal mask of its own."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import MaskError, masks
from softlook.models import Llama, LlamaConfig
from tests.models.tiny import TINY, VOCAB, Tiny

CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-4}
MASKED = [tiny for tiny in TINY.values() if tiny.sequence and (tiny.takes("mask") or tiny.takes("mask"))]
XL = [tiny for tiny in MASKED if tiny.name.startswith("TransformerXL")]
FREE = [tiny for tiny in MASKED if tiny not in XL]
"""Models that can look ahead; a Transformer-XL has no vectors for such distances."""


def every(tinies: list[Tiny]) -> Any:
    return pytest.mark.parametrize("tiny", tinies, ids=str)


def answer(tiny: Tiny, model: Any, mask: Any, *, changed: int | None = None) -> Tensor:
    """What a model says under a mask; with another token at one position, where told."""
    inputs, name = tiny.inputs(), str(tiny.sequence)
    if changed is not None:
        inputs[name][:, changed] = (inputs[name][:, changed] + 1) % VOCAB
    argument = "mask" if tiny.takes("mask") else "mask"
    with torch.no_grad():
        return tiny.ask(model, {**inputs, argument: mask})


@every(FREE)
def test_a_prefix_is_seen_from_everywhere_and_the_rest_stays_causal(tiny: Tiny) -> None:
    model, mask = tiny.build(), masks.causal() | masks.prefix(3)
    plain = answer(tiny, model, mask)
    assert (answer(tiny, model, None) - plain)[:, :2].abs().max() > 1e-4
    assert (answer(tiny, model, mask, changed=2) - plain)[:, 0].abs().max() > 1e-4
    assert_close(answer(tiny, model, mask, changed=5)[:, :5], plain[:, :5], **CLOSE)


@every(FREE)
def test_a_mask_means_the_same_in_symbols_and_written_out(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.causal() | masks.prefix(3), masks.causal(), masks.window(2, 1)):
        written = mask.to_dense((1, 1, 7, 7))
        assert_close(answer(tiny, model, written), answer(tiny, model, mask), **CLOSE)


@every(MASKED)
def test_padding_and_documents_are_hidden_beside_the_future(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.padding([7, 4]), masks.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1]))):
        assert_close(answer(tiny, model, mask), answer(tiny, model, masks.causal() & mask), **CLOSE)
    one_row = torch.arange(7)[None, None, None] < 5
    assert_close(answer(tiny, model, one_row), answer(tiny, model, masks.causal() & one_row), **CLOSE)


@every([tiny for tiny in FREE if tiny.takes("mask")])
def test_a_prefix_lm_decodes_with_a_cache(tiny: Tiny) -> None:
    model, inputs, mask = tiny.build(), tiny.inputs(), masks.causal() | masks.prefix(3)
    assert tiny.memory is not None
    cache, name = tiny.memory(), tiny.sequence or "ids"
    parts = inputs[name].split([3, 1, 3], 1)
    with torch.no_grad():
        steps = [tiny.ask(model, {**inputs, name: part, "mask": mask, "cache": cache}) for part in parts]
    assert_close(torch.cat(steps, 1), answer(tiny, model, mask), **CLOSE)


def test_a_layer_with_a_window_keeps_it_under_any_mask() -> None:
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
def test_transformer_xl_rejects_masks_that_show_future_keys(tiny: Tiny) -> None:
    model = tiny.build()
    for mask in (masks.causal() | masks.prefix(3), masks.window(2, 1), torch.ones(7, 7, dtype=torch.bool)):
        with pytest.raises(MaskError, match=r"no embedding for keys after the query.*causal\(\) & mask"):
            answer(tiny, model, mask)
    assert_close(answer(tiny, model, masks.window(6)), answer(tiny, model, None), **CLOSE)
