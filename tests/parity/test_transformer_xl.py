"""Transformer-XL of Hugging Face's, as `record_transformer_xl.py` recorded it; their present release has none."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from softlook import masks
from softlook.blocks import SegmentMemory
from softlook.models import TransformerXL, TransformerXLConfig
from softlook.weights.renaming import Rule, Same, Stacked, layer, read_into
from tests.parity.weights import close, maps, states

FILE = Path(__file__).with_name("transformer_xl.safetensors")
with safe_open(FILE, framework="pt") as opened:
    SETTINGS: dict[str, dict[str, Any]] = {name: json.loads(text) for name, text in sorted(opened.metadata().items())}
    RECORDED: dict[str, Tensor] = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
SEGMENTS = RECORDED["ids"].split((5, 4), dim=1)


def part(variant: str, of: str) -> dict[str, Tensor]:
    """What was recorded under a name, without it."""
    start = f"{variant}/{of}/"
    return {name.removeprefix(start): tensor for name, tensor in RECORDED.items() if name.startswith(start)}


def rules(variant: str) -> list[Rule]:
    """Their names for our tensors."""
    settings = SETTINGS[variant]
    found: list[Rule] = [
        Same("tokens.table.weight", "transformer.word_emb.emb_layers.0.weight"),
        Same("head.bias", "crit.out_layers.0.bias"),
    ]
    if not settings["tie_word_embeddings"]:
        found.append(Same("head.weight", "crit.out_layers.0.weight"))
    for number in range(settings["n_layer"]):
        ours, theirs = f"blocks.{number}", f"transformer.layers.{number}"
        found += [
            Stacked(
                tuple(f"{ours}.attend.{name}.weight" for name in ("to_query", "to_key", "to_value")),
                f"{theirs}.dec_attn.qkv_net.weight",
            ),
            *layer(f"{ours}.attend.to_relative", f"{theirs}.dec_attn.r_net", "weight"),
            *layer(f"{ours}.attend.to_out", f"{theirs}.dec_attn.o_net", "weight"),
            *layer(f"{ours}.around_attend.norm", f"{theirs}.dec_attn.layer_norm"),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.pos_ff.CoreNet.0"),
            *layer(f"{ours}.feed.to_out", f"{theirs}.pos_ff.CoreNet.3"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.pos_ff.layer_norm"),
        ]
        if settings["untie_r"] or number == 0:
            home = f"{theirs}.dec_attn" if settings["untie_r"] else "transformer"
            found += [
                Same(f"{ours}.attend.content", f"{home}.r_w_bias"),
                Same(f"{ours}.attend.position", f"{home}.r_r_bias"),
            ]
    return found


def ours(variant: str) -> TransformerXL:
    """Our model with their weights."""
    theirs = SETTINGS[variant]
    config = TransformerXLConfig(
        vocab=theirs["vocab_size"],
        dim=theirs["d_model"],
        depth=theirs["n_layer"],
        heads=theirs["n_head"],
        head_width=theirs["d_head"],
        hidden=theirs["d_inner"],
        farthest=theirs["clamp_len"] if theirs["clamp_len"] > 0 else None,
        shared_biases=not theirs["untie_r"],
        pre_norm=theirs["pre_lnorm"],
        tied=theirs["tie_word_embeddings"],
    )
    model = TransformerXL(config).eval()
    read_into(model, part(variant, "weights"), rules(variant), (), FILE)
    return model


def zeros(variant: str) -> SegmentMemory:
    """What Hugging Face starts from: states of zeros, which are looked at like any other."""
    theirs = SETTINGS[variant]
    nothing = torch.zeros(2, theirs["mem_len"], theirs["d_model"])
    return SegmentMemory(theirs["mem_len"], [nothing] * theirs["n_layer"])


def mask(variant: str) -> masks.Mask | None:
    """Their `same_length`: each query sees as many keys, itself included, as the memory is long."""
    theirs = SETTINGS[variant]
    return masks.window(theirs["mem_len"] - 1) if theirs["same_length"] else None


@pytest.mark.parametrize("variant", SETTINGS)
def test_two_segments_are_those_of_hugging_face(variant: str) -> None:
    model, memory = ours(variant), zeros(variant)
    for number, ids in enumerate(SEGMENTS):
        with maps(model) as our_maps, states(model.blocks) as our_states, torch.no_grad():
            logits = model(ids, mask=mask(variant), memory=memory)
        close(logits.log_softmax(-1), RECORDED[f"{variant}/{number}/log_probabilities"])
        for of, found in (("maps", our_maps), ("states", [model.tokens(ids), *our_states]), ("memory", memory.kept)):
            recorded = part(variant, f"{number}/{of}")
            assert len(recorded) == len(found)
            for which, tensor in enumerate(found):
                close(tensor, recorded[str(which)])


@pytest.mark.parametrize("variant", SETTINGS)
def test_gradients_are_those_of_hugging_face(variant: str) -> None:
    model, memory = ours(variant), zeros(variant)
    for ids in SEGMENTS:
        model.zero_grad()
        model(ids, mask=mask(variant), memory=memory).log_softmax(-1)[..., 0].sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    recorded = part(variant, "gradients")
    for rule in rules(variant):
        close(rule.write(found)[rule.theirs], recorded[rule.theirs])


def test_it_is_the_zeros_that_hugging_face_starts_from_that_make_the_difference() -> None:
    model = ours("as published")
    with torch.no_grad():
        empty = model(SEGMENTS[0], memory=SegmentMemory(6)).log_softmax(-1)
    assert (empty - RECORDED["as published/0/log_probabilities"]).abs().max() > 0.01
