"""Merging: what parts of the keys tell is joined into what all of them tell."""

from typing import Any

import pytest
import torch

from softlook import Look, attention, look
from softlook.ops.merge import merge_looks, merge_outputs
from tests.asking import DEVICE, Made, close

MADE = Made(torch.Generator().manual_seed(19), torch.float64)
QUERY, KEY, VALUE = MADE.normal(1, 2, 3, 4), MADE.normal(1, 1, 7, 4), MADE.normal(1, 1, 7, 2)
SPANS = [(0, 3), (3, 4), (4, 7)]


def parts(*ask: str, **options: Any) -> list[Look]:
    return [look(QUERY, KEY[:, :, a:b], part=(a, 7), ask=ask, **options) for a, b in SPANS]


def test_parts_without_their_log_sum_exp_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match=r"each part must be asked for 'lse' as well; \['entropy'\] came"):
        merge_looks(parts("entropy"))


def test_parts_that_were_asked_different_things_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match=r"asked the same: \[\['lse'\], \['entropy', 'lse'\]\] came"):
        merge_looks([parts("lse")[0], parts("lse", "entropy")[1]])


def test_nothing_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="nothing to merge: no looks came"):
        merge_looks([])


def test_one_part_merges_to_itself() -> None:
    whole = look(QUERY, KEY, ask=("lse", "entropy", "effective_keys", "strongest", "distance"))
    merged = merge_looks([whole])
    for name in whole.found:
        close(merged.found[name], whole.found[name])


@pytest.mark.parametrize("name", ["entropy", "effective_keys", "strongest", "distance", "top_weights"])
def test_whatever_was_asked_for_comes_out_of_a_merge(name: str) -> None:
    asked = {name, "lse"}
    merged = merge_looks(parts(*asked, top=4))
    assert set(merged.found) == asked
    close(merged.found[name], look(QUERY, KEY, ask=(name,), top=4).found[name])


def test_places_without_their_weights_are_not_dropped_in_silence() -> None:
    with pytest.raises(ValueError, match="top_weights"):
        merge_looks(parts("lse", "top_indices"))


def test_the_largest_weights_of_all_parts_are_listed_with_their_places() -> None:
    merged = merge_looks(parts("lse", "top_weights", "top_indices", top=4))
    whole = look(QUERY, KEY, ask=("top_weights", "top_indices"), top=4)
    close(merged.top_weights, whole.top_weights)
    assert merged.top_indices.equal(whole.top_indices)


def test_what_adds_up_per_key_is_joined_with_the_whole_log_sum_exp() -> None:
    total = merge_looks(parts("lse")).lse
    merged = merge_looks(parts("received", "heat_mean", "heat_max", lse=total, bins=2))
    whole = look(QUERY, KEY, ask=("received", "heat_mean", "heat_max"), bins=2)
    for name in whole.found:
        close(merged.found[name], whole.found[name])


def test_mix_and_spread_of_parts_with_the_whole_log_sum_exp_add_up() -> None:
    total = merge_looks(parts("lse")).lse
    seen = parts("received", lse=total)
    together = sum(part.mix(VALUE[:, :, a:b]) for part, (a, b) in zip(seen, SPANS, strict=True))
    assert isinstance(together, torch.Tensor)
    close(together, attention(QUERY, KEY, VALUE))
    amounts = MADE.normal(1, 2, 3, 2)
    close(torch.cat([part.spread(amounts) for part in seen], 2), look(QUERY, KEY).spread(amounts))


def test_outputs_of_parts_merge_into_the_output_of_all() -> None:
    looks = parts("lse")
    outputs = [attention(QUERY, KEY[:, :, a:b], VALUE[:, :, a:b]) for a, b in SPANS]
    close(merge_outputs(outputs, [part.lse for part in looks]), attention(QUERY, KEY, VALUE))
    halves = [output.bfloat16() for output in outputs]
    assert merge_outputs(halves, [part.lse for part in looks]).dtype == torch.bfloat16


def test_a_part_that_sees_nothing_adds_nothing() -> None:
    zero, nothing = torch.zeros(1, 2, 3, 2, device=DEVICE).double(), torch.full((1, 2, 3), -torch.inf, device=DEVICE)
    output, lse = attention(QUERY, KEY, VALUE), look(QUERY, KEY).lse
    close(merge_outputs([output, zero], [lse, nothing.double()]), output)
    assert merge_outputs([zero, zero], [nothing, nothing]).eq(0).all()


def test_as_many_outputs_as_log_sum_exps_are_wanted() -> None:
    with pytest.raises(ValueError):
        merge_outputs([torch.zeros(1, 1, 1, 1)], [torch.zeros(1, 1, 1)] * 2)
