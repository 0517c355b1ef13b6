"""What a trace records: the keys of a cache once, equal masks once, and copies that later writes do not reach."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook.base.errors import DtypeError
from softlook.blocks import AttentionCore
from softlook.blocks.cache_types import QuantizedCache, SlidingWindowCache, StaticCache
from softlook.blocks.kv_cache import KVCache, LayerCache
from softlook.decode import Seq2SeqSession, beam_search
from softlook.lens import Trace, attention_maps, trace
from softlook.lens.recording import Copies, KeyBuffer
from softlook.models import GPT, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, Transformer, TransformerConfig

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(20, (2, 24), generator=torch.Generator().manual_seed(0))


def llama(**changes: Any) -> Llama:
    torch.manual_seed(0)
    return Llama(LlamaConfig(**{**SIZES, "context": 600, "kv_heads": 2, **changes})).eval()


def run_steps(model: Any, ids: Tensor, cache: KVCache, lengths: list[int], **options: Any) -> Trace:
    with torch.no_grad(), trace(model, **options) as recorded:
        for part in ids.split(lengths, 1):
            model(part, cache=cache)
    return recorded


def held_elements(recorded: Trace) -> int:
    """Elements in the memory of all recorded tensors."""
    storages: dict[int, int] = {}
    for layer in recorded.values():
        for call in layer.calls:
            for value in (call.query, call.key, call.value_norm, call.value, call.output, call.mask, call.bias):
                for tensor in tensors_of(value):
                    storage = tensor.untyped_storage()
                    storages[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
    return sum(storages.values())


def tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return (
        [tensor for part in vars(value).values() for tensor in tensors_of(part)] if hasattr(value, "__dict__") else []
    )


CACHES: dict[str, Callable[[], LayerCache]] = {
    "static": lambda: StaticCache(24),
    "window": lambda: SlidingWindowCache(6),
    "quantized": QuantizedCache,
}


@pytest.mark.parametrize("lengths", [[24], [5, 1, 1, 3, 14], [1] * 24])
def test_a_generation_is_one_map(lengths: list[int]) -> None:
    model = llama()
    recorded = run_steps(model, IDS, KVCache(), lengths)
    for path, whole in attention_maps(model, IDS).items():
        assert_close(recorded[path].weights(), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", CACHES)
def test_every_kind_of_cache_gives_the_map_of_the_whole_text(kind: str) -> None:
    model = llama(sliding_window=6, windowed_layers=(0, 1)) if kind == "window" else llama()
    recorded = run_steps(model, IDS, KVCache(CACHES[kind]), [5, 1, 1, 1, 4, 1, 11])
    tolerance = 2e-2 if kind == "quantized" else 1e-5
    for path, whole in attention_maps(model, IDS).items():
        assert recorded[path].shape == whole.shape
        assert_close(recorded[path].weights(), whole, atol=tolerance, rtol=0)
        part = {"rows": slice(3, 20, 4), "columns": slice(2, None, 3)}
        assert_close(recorded[path].weights(**part), whole[:, :, 3:20:4, 2::3], atol=tolerance, rtol=0)


def test_the_keys_of_a_cache_are_stored_once() -> None:
    model, ids = llama(), torch.randint(20, (1, 500))
    recorded = run_steps(model, ids, KVCache(), [20] + [1] * 480, values=True)
    with torch.no_grad(), trace(model, values=True) as whole:
        model(ids)
    assert held_elements(recorded) < 1.01 * held_elements(whole)
    for path, layer in whole.items():
        rows = {"rows": slice(0, None, 7)}
        assert_close(recorded[path].weights(**rows), layer.weights(**rows), atol=1e-5, rtol=1e-4)
        last = recorded[path].calls[-1]
        assert last.value is not None
        assert_close(last.value, layer.calls[0].value, atol=1e-5, rtol=1e-4)
        assert_close(last.value_norm, layer.calls[0].value_norm, atol=1e-5, rtol=1e-4)


def test_reordered_beams_and_removed_positions_keep_the_weights_of_each_call() -> None:
    model, cache, rows = llama(), KVCache(), torch.tensor([1, 1])
    with torch.no_grad(), trace(model) as recorded:
        model(IDS[:, :5], cache=cache)
        model(IDS[:, 5:6], cache=cache)
        cache.reorder(rows)
        model(IDS[:, 6:7], cache=cache)
        cache.crop(2)
        model(IDS[:, 7:9], cache=cache)
    reordered = torch.cat([IDS[rows, :6], IDS[:, 6:7]], 1)
    cropped = torch.cat([IDS[rows, :5], IDS[:, 7:9]], 1)
    for path, whole in attention_maps(model, IDS).items():
        calls = recorded[path].calls
        assert_close(calls[1].weights(), whole[:, :, 5:6, :6], atol=1e-5, rtol=1e-4)
        assert_close(calls[2].weights(), attention_maps(model, reordered)[path][:, :, -1:], atol=1e-5, rtol=1e-4)
        assert_close(calls[3].weights(), attention_maps(model, cropped)[path][:, :, -2:], atol=1e-5, rtol=1e-4)


def test_beams_have_the_weights_of_what_they_were_given() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SIZES)).eval()
    expected: dict[str, list[Tensor]] = {}

    def record(path: str, core: AttentionCore, args: tuple[Any, ...]) -> None:
        query, key, _, mask, _ = args
        scores = query @ key.mT * query.shape[-1] ** -0.5
        visible = torch.ones_like(scores, dtype=torch.bool)
        if mask is not None:
            visible = mask.to_dense(scores.shape)
        expected.setdefault(path.removesuffix(".core"), []).append(scores.masked_fill(~visible, -torch.inf).softmax(-1))

    for path, core in model.named_modules():
        if isinstance(core, AttentionCore):
            core.register_forward_pre_hook(partial(record, path))
    source, mask = torch.tensor([[5, 6, 7, 2], [9, 4, 2, 0]]), torch.tensor([[True] * 4, [True] * 3 + [False]])
    with trace(model) as recorded:
        session = Seq2SeqSession(model, source, mask)
        found = beam_search(session, [[1], [1]], eos_ids=0, max_new_tokens=6, num_beams=3, early_stopping=True)
    assert len(found) == 2 and len(recorded) == 6
    for path, layer in recorded.items():
        for call, weights in zip(layer.calls, expected[path], strict=True):
            assert_close(call.weights(), weights, atol=1e-6, rtol=1e-5)


def test_cross_attention_records_the_keys_of_the_encoder_once() -> None:
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(**SIZES)).eval()
    with torch.no_grad(), trace(model) as recorded:
        states, cache = model.encode(IDS), KVCache()
        for part in IDS[:, :6].split(1, 1):
            model.decode(part, states, cache=cache)
    layer = recorded["decoder.blocks.0.cross_attn"]
    assert len({call.key.data_ptr() for call in layer.calls}) == 1
    whole = attention_maps(model, IDS, IDS[:, :6])["decoder.blocks.0.cross_attn"]
    assert_close(layer.weights(), whole, atol=1e-5, rtol=1e-4)


def test_layers_share_the_copy_of_one_mask() -> None:
    model = Bert(BertConfig(**SIZES, context=24)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, padding_mask=torch.ones_like(IDS, dtype=torch.bool))
    masks = [tensors_of(layer.calls[0].mask)[0] for layer in recorded.values()]
    assert masks[0].data_ptr() == masks[1].data_ptr()


def test_an_expanded_tensor_is_copied_as_it_is() -> None:
    copies, row = Copies(), torch.rand(1, 1, 1, 500) > 0.5
    copy = copies.copy(row.expand(2, 4, 500, 500))
    assert copy.untyped_storage().nbytes() == 500 and torch.equal(copy, row.expand(2, 4, 500, 500))
    row[..., 3] = ~row[..., 3]
    assert not torch.equal(copy, row.expand(2, 4, 500, 500))
    assert torch.equal(copies.copy(row.expand(2, 4, 500, 500)), row.expand(2, 4, 500, 500))


def test_numbers_beyond_the_range_of_half_precision_are_an_error() -> None:
    model: Any = GPT(GPTConfig(**SIZES, context=24)).eval()
    torch.nn.init.constant_(model.final_norm.bias, 1e6)
    message = "exceeds the range of torch.float16. Use torch.bfloat16"
    with pytest.raises(DtypeError, match=message), torch.no_grad(), trace(model, dtype=torch.float16):
        model(IDS)
    with torch.no_grad(), trace(model, dtype=torch.bfloat16) as recorded:
        model(IDS)
    assert recorded.logits is not None and recorded.logits.isfinite().all()


def test_separate_texts_are_separate_keys() -> None:
    model = GPT(GPTConfig(**SIZES, context=24)).eval()
    with torch.no_grad(), trace(model) as recorded:
        for ids in (IDS, IDS[:, :5], IDS.flip(1)):
            model(ids)
    calls = recorded["blocks.0.attn"].calls
    assert [call.first_key for call in calls] == [0, 0, 0]
    for call, ids in zip(calls, (IDS, IDS[:, :5], IDS.flip(1)), strict=True):
        assert_close(call.weights(), attention_maps(model, ids)["blocks.0.attn"])


def test_a_step_that_drops_old_keys_knows_the_position_of_its_first_key() -> None:
    buffer, keys = KeyBuffer(), torch.randn(1, 1, 9, 4)
    for stop in range(1, 10):
        part = keys[:, :, max(stop - 3, 0) : stop]
        place = buffer.append([part, part.norm(dim=-1)], queries=1)
        (key, norm), first = place.tensors(), place.first_key
        assert first == max(stop - 3, 0)
        assert torch.equal(key, part)
        assert_close(norm, part.norm(dim=-1))


def test_half_precision_keys_are_stored_once_too() -> None:
    buffer, keys = KeyBuffer(torch.float16), torch.randn(1, 1, 9, 4)
    views = []
    for stop in range(4, 10):
        part = keys[:, :, :stop]
        views.append(buffer.append([part, part.norm(dim=-1)], queries=1).tensors()[0])
    assert views[-1].data_ptr() == views[1].data_ptr() and views[-1].dtype == torch.float16
    assert torch.equal(views[-1], keys.half())
