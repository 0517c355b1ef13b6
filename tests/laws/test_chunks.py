"""Batching, padding, packing, chunking and tiling do not change the output."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from softlook import Look, look, masks
from softlook.ops.masks import Mask
from softlook.ops.merge import merge_looks, merge_outputs
from tests.ops_cases import DEVICE, Case, cases, close, small_tiles

SHAPES = {"none": None, "causal": masks.causal(), "back": masks.window(2), "both": masks.window(1, 2)}
PER_QUERY = ("lse", "entropy", "effective_keys", "max_weight", "mean_distance", "top_weights", "top_indices")
PER_KEY = ("received", "pooled_mean", "pooled_max")


def with_shape(shape: str, mask: Mask) -> Mask:
    base = SHAPES[shape]
    return mask if base is None else base & mask


def single_sequence(case: Case, batch: int, keep: slice, mask: Mask | None) -> Case:
    """A single sequence of the batch, without padding or other documents."""
    one = slice(batch, batch + 1)
    parts = (tensor[one, :, keep] for tensor in (case.query, case.key, case.value))
    return case.replace(**dict(zip(("query", "key", "value"), parts, strict=True)), mask=mask)


@given(cases(lengths="square", kinds="relative", without=("mask",)), st.sampled_from(list(SHAPES)), st.data())
def test_padding_a_sequence_does_not_change_it(case: Case, shape: str, data: st.DataObject) -> None:
    B, H, _, S = case.sizes
    lengths = data.draw(st.lists(st.integers(1, S), min_size=B, max_size=B), label="lengths")
    left = data.draw(st.booleans(), label="padding on the left")
    padding = masks.padding(lengths, side="left", length=S) if left else masks.padding(lengths)
    batched = case.attend(mask=with_shape(shape, padding))
    for b, length in enumerate(lengths):
        real = slice(S - length, S) if left else slice(0, length)
        alone = single_sequence(case, b, real, SHAPES[shape])
        close(batched[b : b + 1, :, real], alone.attend())


@given(cases(lengths="square", kinds="relative", without=("mask",)), st.sampled_from(list(SHAPES)), st.data())
def test_packed_documents_do_not_attend_to_each_other(case: Case, shape: str, data: st.DataObject) -> None:
    B, H, _, S = case.sizes
    cuts = sorted(data.draw(st.sets(st.integers(1, S)), label="ends of documents") | {S})
    starts = [0, *cuts[:-1]]
    ids = torch.cat([torch.full((stop - start,), n) for n, (start, stop) in enumerate(zip(starts, cuts, strict=True))])
    packed = case.attend(mask=with_shape(shape, masks.documents(ids.to(DEVICE))))
    for start, stop in zip(starts, cuts, strict=True):
        alone = [single_sequence(case, b, slice(start, stop), SHAPES[shape]).attend() for b in range(B)]
        close(packed[:, :, start:stop], torch.cat(alone))


@given(cases(without=("sink",)), st.data())
def test_merged_chunks_match_all_keys(case: Case, data: st.DataObject) -> None:
    S = case.sizes[3]
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, S - 1) if S > 1 else st.nothing()), label="cuts")), S]
    spans = list(zip(cuts[:-1], cuts[1:], strict=True))
    settings: dict[str, Any] = case.options | {"top_k": 3, "bins": 3}
    whole = look(case.query, case.key, stats=PER_QUERY + PER_KEY, **settings)

    def look_at(span: tuple[int, int], **changes: Any) -> Look:
        return look(case.query, case.key[:, :, slice(*span)], part=(span[0], S), **(settings | changes))

    chunks = [look_at(span, stats=PER_QUERY) for span in spans]
    merged = merge_looks(chunks)
    for name in PER_QUERY[:-1]:
        close(getattr(merged, name), getattr(whole, name), 1e-8)
    positive = whole.top_weights.gt(0) & merged.top_weights.gt(0)
    found = case.weights().gather(-1, merged.top_indices.clamp(min=0))
    close(found[positive], whole.top_weights[positive], 1e-8)

    outputs = [chunk.mix(case.value[:, :, slice(*span)]) for chunk, span in zip(chunks, spans, strict=True)]
    close(merge_outputs(outputs, [chunk.lse for chunk in chunks]), case.attend(backend="reference"), 1e-8)

    again = merge_looks([look_at(span, stats=PER_KEY, lse=merged.lse) for span in spans])
    for name in PER_KEY:
        close(getattr(again, name), getattr(whole, name), 1e-8)


@given(cases(kinds="every"))
def test_tiles_of_any_size_give_the_same_output(case: Case) -> None:
    with small_tiles():
        tiled = case.attend(backend="tiled")
    close(tiled, case.attend(backend="reference"))
