"""Llama, Mistral and Qwen2 of Hugging Face's, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MistralConfig,
    MistralForCausalLM,
    MistralModel,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
)

from softlook import masks
from softlook.base.errors import WeightsError
from softlook.blocks import Memory
from softlook.models import Llama, Stretch
from softlook.models import LlamaConfig as OurConfig
from softlook.weights import from_hugging_face, to_hugging_face
from tests.parity.weights import close, maps, read, saved, states, there_and_back

IDS = torch.tensor([[5, 3, 8, 1, 9, 2, 7, 7, 0], [4, 4, 0, 6, 1, 3, 2, 10, 5]])
SIZES = {
    "vocab_size": 11,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 0.5, "high_freq_factor": 3.0, "original_max_position_embeddings": 8}
YARN = {"factor": 4.0, "original_max_position_embeddings": 8}
SOME_LAYERS = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2}
EVERY_OTHER = {
    "use_sliding_window": True,
    "sliding_window": 3,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

Kind = tuple[type[PreTrainedModel], type[Any], dict[str, Any]]
LLAMAS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied, with wide heads": {"tie_word_embeddings": True, "head_dim": 10},
    "llama with GELU": {"hidden_act": "gelu"},
    "llama, one key head": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "llama, another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "llama, linear": {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0}},
    "llama 3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 50.0, **LLAMA3}},
    "llama, yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 50.0, **YARN}},
    "llama, yarn in detail": {
        "rope_parameters": {"rope_type": "yarn", "beta_fast": 2.0, "beta_slow": 0.25, "attention_factor": 0.7, **YARN}
    },
    "llama, yarn with its scales": {
        "rope_parameters": {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 1.3, **YARN}
    },
}
KINDS: dict[str, Kind] = {
    **{name: (LlamaForCausalLM, LlamaConfig, changes) for name, changes in LLAMAS.items()},
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 4}),
    "mistral without a window": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "mistral that sees only itself": (MistralForCausalLM, MistralConfig, {"sliding_window": 1}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen2, a window in some layers": (Qwen2ForCausalLM, Qwen2Config, SOME_LAYERS),
    "qwen2, a window in every other": (Qwen2ForCausalLM, Qwen2Config, EVERY_OTHER),
}
ONE_OF_EACH = ["llama", "mistral", "qwen2, a window in some layers"]


def small(name: str) -> PreTrainedModel:
    model, config, changes = KINDS[name]
    torch.manual_seed(0)
    return model._from_config(config(**{**SIZES, **changes}), attn_implementation="eager").eval()  # pyright: ignore


@pytest.mark.parametrize("name", KINDS)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    with maps(ours) as our_maps, states(ours.blocks) as our_states, torch.no_grad():
        logits = ours(IDS)
        wanted = theirs(IDS, output_attentions=True, output_hidden_states=True)
    close(logits, wanted.logits)
    for one, other in zip(our_maps, wanted.attentions, strict=True):
        close(one, other)
    for one, other in zip(our_states[:-1], wanted.hidden_states[1:-1], strict=True):  # their last one is normed
        close(one, other)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_gradients_are_those_of_hugging_face(name: str, tmp_path: Path) -> None:
    theirs: Any = small(name)
    ours = read(theirs, tmp_path / "theirs")
    upstream = torch.randn(2, 9, 11)
    ours(IDS).backward(upstream)
    theirs(IDS).logits.backward(upstream)
    block, their_block = ours.blocks[1], theirs.model.layers[1]
    pairs = [
        (ours.tokens.table, theirs.model.embed_tokens),
        (ours.head, theirs.lm_head),
        (block.attend.to_query, their_block.self_attn.q_proj),
        (block.attend.to_key, their_block.self_attn.k_proj),
        (block.attend.to_value, their_block.self_attn.v_proj),
        (block.feed.to_gate, their_block.mlp.gate_proj),
        (block.around_feed.norm, their_block.post_attention_layernorm),
    ]
    for one, other in pairs:
        close(one.weight.grad, other.weight.grad)
    if ours.config.biases:
        close(block.attend.to_key.bias.grad, their_block.self_attn.k_proj.bias.grad)


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "llama 3"])
def test_decoding_with_a_memory_is_that_of_hugging_face_beyond_the_window_too(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    memory, cache = Memory(), DynamicCache(config=theirs.config)
    with torch.no_grad():
        for start, stop in ((0, 2), (2, 3), (3, 7), (7, 8), (8, 9)):
            wanted = theirs(IDS[:, start:stop], past_key_values=cache, use_cache=True).logits
            close(ours(IDS[:, start:stop], memory=memory), wanted)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_left_padding_is_that_of_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    lengths = torch.tensor([9, 5])
    present = torch.arange(9) >= 9 - lengths[:, None]
    positions = (present.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        logits = ours(IDS, mask=masks.padding(lengths, left_of=9), positions=positions)
        wanted = theirs(IDS, attention_mask=present.long(), position_ids=positions).logits
    close(logits[present], wanted[present])


@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_is_read_by_hugging_face_with_the_same_logits(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs), tmp_path / "ours")
    with torch.no_grad():
        close(back(IDS).logits, theirs(IDS).logits, 1e-6)


@pytest.mark.parametrize(
    ("kind", "config"), [(LlamaModel, LlamaConfig), (MistralModel, MistralConfig), (Qwen2Model, Qwen2Config)]
)
def test_a_model_without_a_head_gives_its_states(kind: Any, config: Any, tmp_path: Path) -> None:
    theirs = kind(config(**SIZES)).eval()
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, kind, tmp_path / "ours")
    with torch.no_grad():
        wanted = theirs(IDS).last_hidden_state
        close(ours(IDS), wanted)
        close(back(IDS).last_hidden_state, wanted, 1e-6)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_heads_that_do_not_share_the_width_evenly_are_written_as_something_that_is_read(
    window: int | None, biases: bool, tmp_path: Path
) -> None:
    sizes: Any = {"vocab": 11, "context": 32, "dim": 22, "depth": 2, "heads": 4, "kv_heads": 2, "head_width": 6}
    ours = Llama(OurConfig(**sizes, window=window, biases=biases)).eval()
    back = there_and_back(ours, AutoModelForCausalLM, tmp_path / "ours")  # pyright: ignore
    with torch.no_grad():
        close(ours(IDS), back(IDS).logits)


def test_a_larger_base_is_written_as_such(tmp_path: Path) -> None:
    stretch = Stretch(kind="ntk", factor=4.0)
    ours = Llama(OurConfig(vocab=11, context=32, dim=24, depth=2, heads=4, base=50.0, stretch=stretch)).eval()
    with torch.no_grad():
        close(ours(IDS), there_and_back(ours, LlamaForCausalLM, tmp_path / "ours")(IDS).logits)


def changed(folder: Path, **fields: Any) -> Path:
    """A folder whose config says something else."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | fields
    path.write_text(json.dumps({name: field for name, field in content.items() if field is not None}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["llama, another base", "llama, linear", "llama 3", "llama, yarn"])
def test_older_files_say_the_same_in_other_words(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    folder = saved(theirs, tmp_path / "theirs")
    wanted = from_hugging_face(folder)(IDS)
    rope = dict(KINDS[name][2]["rope_parameters"])
    kind, base = rope.pop("rope_type"), rope.pop("rope_theta")
    scaling = {"type": kind, **rope} if rope else None
    changed(folder, rope_parameters=None, rope_theta=base, rope_scaling=scaling)
    close(from_hugging_face(folder)(IDS), wanted, 0.0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "biases": ({"attention_bias": True}, "this Llama has biases"),
    "biases inside": ({"mlp_bias": True}, "this Llama has biases"),
    "an unknown activation": ({"hidden_act": "laplace"}, "no such activation is known: 'laplace'"),
    "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "as 'dynamic'.*knows default, linear"),
    "yarn, not rounded": ({"rope_parameters": {"rope_type": "yarn", "truncate": False, **YARN}}, "truncate=False"),
    "no factor": ({"rope_parameters": {"rope_type": "linear"}}, "as 'linear', with factor=None"),
    "a part of each head": ({"partial_rotary_factor": 0.5}, "rotates only a part of each head"),
    "something unheard of": (
        {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 2]}},
        "rope_parameters.mrope_section: Extra inputs are not permitted",
    ),
    "a size below zero": ({"hidden_size": -8}, "hidden_size: Input should be greater than 0; -8 came"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_expressed_is_refused(what: str, tmp_path: Path) -> None:
    fields, message = REFUSED[what]
    folder = changed(saved(small("llama"), tmp_path / "theirs"), **fields)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(folder)


def test_a_qwen2_that_does_not_say_what_its_layers_are_is_refused(tmp_path: Path) -> None:
    folder = saved(small("qwen2, a window in some layers"), tmp_path / "theirs")
    with pytest.raises(WeightsError, match="layer_types should name 3 layers, and names 1"):
        from_hugging_face(changed(folder, layer_types=["full_attention"]))
    with pytest.raises(WeightsError, match="does not say how wide it is"):
        from_hugging_face(changed(folder, layer_types=["sliding_attention"] * 3, use_sliding_window=False))


def test_a_window_in_some_layers_without_biases_has_no_architecture_of_theirs(tmp_path: Path) -> None:
    ours = Llama(OurConfig(vocab=11, context=32, dim=24, depth=2, heads=4, window=3, windowed=(1,)))
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this Llama"):
        to_hugging_face(ours, tmp_path / "ours")


def test_a_head_of_its_own_in_the_file_is_kept_whatever_the_config_says(tmp_path: Path) -> None:
    theirs = small("llama")
    folder = changed(saved(theirs, tmp_path / "theirs"), tie_word_embeddings=True)
    with torch.no_grad():
        close(from_hugging_face(folder)(IDS), LlamaForCausalLM.from_pretrained(folder)(IDS).logits)
        close(from_hugging_face(folder)(IDS), theirs(IDS).logits)
