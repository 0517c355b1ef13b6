"""Effects of heads and patching tables equal the same computed with contexts one by one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from softlook.base.errors import ConfigError, ShapeError
from softlook.lens import (
    ablate,
    attention_flow,
    attention_maps,
    attention_temperature,
    head_effects,
    logit_contributions,
    mask_keys,
    patch,
    trace,
    twins,
)
from softlook.models import GPT, Bert, BertConfig, GPTConfig, Llama, LlamaConfig

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
OTHER = IDS.index_fill(1, torch.tensor([3, 4]), 7)
REPLACEMENTS: Any = ("zero", "mean", "resample")


def randomize(model: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def gpt() -> GPT:
    return randomize(GPT(GPTConfig(**SIZES, context=16)))


def loss(logits: Tensor) -> Tensor:
    return logits[:, -1].logsumexp(-1).mean() - logits[:, -1, 5].mean()


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_exact_effects_are_those_of_ablation_one_by_one(replacement: Any) -> None:
    model = gpt()
    table = head_effects(model, loss, IDS, methods=("exact",), replacement=replacement)
    with torch.no_grad():
        baseline = loss(model(IDS))
        for (layer, head), effect in zip(table.heads, table["exact"], strict=True):
            with ablate(model, layer, head, replacement):
                torch.testing.assert_close(loss(model(IDS)) - baseline, effect)
    assert list(table.columns) == list(table.measured) == ["exact"]


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_the_gradient_estimate_is_the_slope_of_a_partial_ablation(replacement: Any) -> None:
    model = randomize(Llama(LlamaConfig(**SIZES, kv_heads=2))).double()
    model.requires_grad_(False)  # as of a model that is loaded for inference
    table = head_effects(model, loss, IDS, methods=("gradient",), replacement=replacement)
    for (layer, head), effect in zip(table.heads, table["gradient"], strict=True):
        with torch.no_grad(), ablate(model, layer, head, replacement, amount=1e-4):
            changed = loss(model(IDS))
        slope = (changed - loss(model(IDS))) / 1e-4
        torch.testing.assert_close(slope.float(), effect, atol=1e-3, rtol=1e-2)


def test_effects_leave_gradients_and_hooks_alone() -> None:
    model = gpt()
    with torch.no_grad():
        head_effects(model, loss, IDS)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.cuda
def test_a_gpu_gives_the_effects_and_contributions_of_the_cpu() -> None:
    model = gpt()
    effects, parts = head_effects(model, loss, IDS), logit_contributions(model, IDS, token=3)
    shares, flow = twins(model, IDS, OTHER).patching_table(loss), recorded_flow(model, IDS)
    model, ids, other = model.cuda(), IDS.cuda(), OTHER.cuda()
    for name, column in head_effects(model, loss, ids).columns.items():
        torch.testing.assert_close(column, effects[name], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(logit_contributions(model, ids, token=3).total.cpu(), parts.total, atol=1e-3, rtol=1e-3)
    table = twins(model, ids, other).patching_table(loss)
    torch.testing.assert_close(table["share"], shares["share"], atol=1e-2, rtol=1e-2)
    torch.testing.assert_close(recorded_flow(model, ids), flow, atol=1e-3, rtol=0)
    with torch.no_grad(), mask_keys(model, [2]), attention_temperature(model, "blocks.0.attn", 1, 2.0):
        changed = model(ids).cpu()
    model = model.cpu()
    with torch.no_grad(), mask_keys(model, [2]), attention_temperature(model, "blocks.0.attn", 1, 2.0):
        torch.testing.assert_close(changed, model(IDS), atol=1e-3, rtol=1e-3)


def recorded_flow(model: GPT, ids: Tensor) -> Tensor:
    with torch.no_grad(), trace(model) as recorded:
        model(ids)
    return attention_flow(recorded)


def test_wrong_metrics_and_methods_are_errors() -> None:
    model = gpt()
    with pytest.raises(ConfigError, match="methods must be some of exact, gradient, got"):
        head_effects(model, loss, IDS, methods=("both",))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=r"a metric is one number as a tensor, got torch.Size\(\[2, 9, 20\]\)"):
        head_effects(model, lambda logits: logits, IDS)
    with pytest.raises(ConfigError, match="a metric is one number as a tensor, got float"):
        head_effects(model, lambda logits: 1.0, IDS)  # pyright: ignore[reportArgumentType]


# --- twins -----------------------------------------------------------------------------------------------------------


def test_twins_know_where_they_differ_and_by_how_much() -> None:
    model = gpt()
    pair = twins(model, IDS, OTHER)
    assert pair.changed == [3, 4]
    one, other = (attention_maps(model, ids)["blocks.1.attn"] for ids in (IDS, OTHER))
    torch.testing.assert_close(pair.difference("blocks.1.attn"), other - one)
    part = pair.difference("blocks.1.attn", heads=slice(1, 2), rows=slice(4, 6), columns=slice(0, 3))
    torch.testing.assert_close(part, (other - one)[:, 1:2, 4:6, :3])
    distance = pair.distance()
    assert list(distance) == ["blocks.0", "blocks.1"]
    assert not distance["blocks.1"][:, :3].any() and (distance["blocks.1"][:, 3:] > 0).all()


def test_the_patching_table_is_that_of_patches_one_by_one() -> None:
    model = gpt()
    pair = twins(model, IDS, OTHER)
    table = pair.patching_table(loss)
    with torch.no_grad(), trace(model, values=True) as source:
        model(OTHER)
    with torch.no_grad():
        start, end = loss(model(IDS)), loss(model(OTHER))
        for (layer, head), share in zip(table.heads, table["share"], strict=True):
            with patch(model, source, layer, heads=head):
                torch.testing.assert_close((loss(model(IDS)) - start) / (end - start), share)


def test_blocks_patched_at_all_positions_carry_everything_and_the_past_carries_nothing() -> None:
    model = gpt()
    pair = twins(model, IDS, OTHER)
    shares = pair.patched_blocks(lambda logits: logits[:, -1, 5].sum())
    assert list(shares) == ["blocks.0", "blocks.1"] and shares["blocks.0"].shape == (9,)
    assert not shares["blocks.0"][:3].any() and not shares["blocks.1"][:-1].any()
    torch.testing.assert_close(shares["blocks.1"][-1], torch.tensor(1.0))
    kept = pair.patched_blocks(lambda logits: logits[:, -1:, 5].sum(0))  # a number with a dimension
    torch.testing.assert_close(kept["blocks.0"], shares["blocks.0"])


def test_both_twins_get_the_same_further_inputs() -> None:
    model = randomize(Bert(BertConfig(**SIZES)))
    padding = torch.arange(9) < torch.tensor([[9], [6]])
    pair = twins(model, IDS, OTHER, padding_mask=padding)
    assert not pair.difference("blocks.0.attn")[1, ..., 6:].any()
    assert pair.patching_table(lambda logits: logits[:, 0, 5].sum())["share"].isfinite().all()


def test_inputs_of_other_lengths_and_equal_metrics_are_errors() -> None:
    model = gpt()
    with pytest.raises(ShapeError, match=r"inputs of one shape, got \(2, 9\) and \(2, 5\). Choose texts"):
        twins(model, IDS, OTHER[:, :5])
    with pytest.raises(ConfigError, match="there is no difference that a head carries"):
        twins(model, IDS, OTHER).patching_table(lambda logits: logits[:, 0, 5].sum())
    with pytest.raises(ConfigError, match="a metric is one number as a tensor, got torch.Size"):
        twins(model, IDS, OTHER).patching_table(lambda logits: logits)
