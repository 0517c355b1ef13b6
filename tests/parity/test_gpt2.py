"""GPT-2 of Hugging Face's, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from softlook import masks
from softlook.blocks import KVCache
from softlook.weights import from_hugging_face
from tests.parity.comparison import close, maps, read, saved, states, there_and_back

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7], [4, 4, 0, 6, 1, 3, 2]])


def small(**changes: Any) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=11, n_positions=16, n_embd=24, n_layer=3, n_head=4, **changes)
    return GPT2LMHeadModel._from_config(config, attn_implementation="eager").eval()  # pyright: ignore


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_word_embeddings": False},
    "another width and bend inside": {"n_inner": 40, "activation_function": "relu"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(variant: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[variant])
    actual = read(reference, tmp_path / "hf")
    with maps(actual) as our_maps, states(actual.blocks) as our_states, torch.no_grad():
        logits = actual(IDS)
        expected = reference(IDS, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(our_maps, expected.attentions, strict=True):
        close(one, other)
    for one, other in zip(our_states[:-1], expected.hidden_states[1:-1], strict=True):  # their last one is normed
        close(one, other)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = read(reference, tmp_path / "hf")
    upstream = torch.randn(2, 7, 11)
    actual(IDS).backward(upstream)
    reference(IDS).logits.backward(upstream)
    their_block: Any = reference.transformer.h[0]
    their_table: Any = reference.transformer.wte
    stacked = torch.cat(
        [getattr(actual.blocks[0].attend, name).weight.grad for name in ("to_query", "to_key", "to_value")]
    )
    close(stacked, their_block.attn.c_attn.weight.grad.T)
    close(actual.token_embedding.weight.grad, their_table.weight.grad)


def test_decoding_with_a_memory_is_that_of_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = read(reference, tmp_path / "hf")
    memory, cache = KVCache(), DynamicCache()
    with torch.no_grad():
        for start, stop in ((0, 3), (3, 4), (4, 7)):
            expected = reference(IDS[:, start:stop], past_key_values=cache, use_cache=True).logits
            close(actual(IDS[:, start:stop], cache=memory), expected)


def test_left_padding_is_that_of_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = read(reference, tmp_path / "hf")
    lengths = torch.tensor([7, 4])
    present = torch.arange(7) >= 7 - lengths[:, None]
    positions = (present.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = actual(IDS, mask=masks.padding(lengths, side="left", length=7), positions=positions)
        expected = reference(IDS, attention_mask=present.long(), position_ids=positions).logits
    close(logits[present], expected[present])


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[variant])
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, GPT2LMHeadModel, tmp_path / "softlook")
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-6)


def test_an_lm_head_in_the_file_is_used_whatever_the_config(tmp_path: Path) -> None:
    reference = small(tie_word_embeddings=False)
    folder = saved(reference, tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), GPT2LMHeadModel.from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), reference(IDS).logits)
