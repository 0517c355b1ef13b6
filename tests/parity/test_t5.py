"""T5 of Hugging Face's, v1.0 and v1.1, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

from softlook import models
from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face, to_hugging_face
from tests.parity.comparison import close, saved, there_and_back
from tests.parity.seq2seq import (
    PRESENT,
    SOURCE,
    TARGET,
    both,
    compare,
    compare_again,
    compare_gradients,
    compare_steps,
    output,
)

SIZES: dict[str, Any] = {"vocab_size": 11, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3}
BUCKETS = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 7, "num_decoder_layers": 3}


def small(**changes: Any) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(**{**SIZES, **BUCKETS, **changes}))


def with_a_head_of_its_own(folder: Path) -> None:
    """As v1.1 was published: by now, Hugging Face's code makes every new T5 with one table."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})


VARIANTS: dict[str, dict[str, Any]] = {
    "v1.0": {},
    "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated by silu": {"feed_forward_proj": "gated-silu"},
    "the exact gelu": {"feed_forward_proj": "gelu"},
}


def read(variant: str, folder: Path, *, own_head: bool = False) -> tuple[Any, Any]:
    actual, reference = both(small(**VARIANTS[variant]), folder)
    if not own_head:
        return actual, reference
    with_a_head_of_its_own(folder)
    again: Any = T5ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    return from_hugging_face(folder), again.eval()


CASES = [(variant, False) for variant in VARIANTS] + [("v1.1", True), ("v1.0", True)]


@pytest.mark.parametrize(("variant", "own_head"), CASES)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(variant: str, own_head: bool, tmp_path: Path) -> None:
    actual, reference = read(variant, tmp_path, own_head=own_head)
    assert actual.config.tie_embeddings is not own_head and actual.config.scale_decoder_outputs is (variant != "v1.1")
    compare(actual, reference, closing=True)


@pytest.mark.parametrize(("variant", "own_head"), [("v1.0", False), ("v1.1", True)])
def test_gradients_match_hugging_face(variant: str, own_head: bool, tmp_path: Path) -> None:
    inside = "wi_0" if variant == "v1.1" else "wi"
    pairs = {
        "token_embedding.weight": "shared.weight",
        "lm_head.weight": "lm_head.weight",
        "encoder.relative_bias.table.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.relative_bias.table.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.blocks.1.cross_attn.to_key.weight": "decoder.block.1.layer.1.EncDecAttention.k.weight",
        f"encoder.blocks.1.feed.{'to_gate' if variant == 'v1.1' else 'to_hidden'}.weight": (
            f"encoder.block.1.layer.1.DenseReluDense.{inside}.weight"
        ),
    }
    compare_gradients(*read(variant, tmp_path, own_head=own_head), pairs)


@pytest.mark.parametrize("variant", ["v1.0", "v1.1"])
def test_decoding_with_a_memory_is_that_of_hugging_face(variant: str, tmp_path: Path) -> None:
    compare_steps(*read(variant, tmp_path))


@pytest.mark.parametrize(("variant", "own_head"), CASES)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, own_head: bool, tmp_path: Path) -> None:
    actual, reference = read(variant, tmp_path / "hf", own_head=own_head)
    compare_again(there_and_back(actual, T5ForConditionalGeneration, tmp_path / "softlook"), reference)


def test_the_config_of_v1_1_as_it_was_published_is_neither_tied_nor_scaled(tmp_path: Path) -> None:
    saved(small(**VARIANTS["v1.1"]), tmp_path)
    with_a_head_of_its_own(tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text()) | {"tie_word_embeddings": False, "n_positions": 512}
    for new in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act"):
        fields.pop(new)
    file.write_text(json.dumps(fields))
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert not actual.config.tie_embeddings and not actual.config.scale_decoder_outputs
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), output(reference.eval()).logits)


def test_copies_of_the_table_and_an_unused_bias_are_passed_over(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.randn(6, 3)}
    save_file({**tensors, **{name: tensors["shared.weight"].clone() for name in copies}, **unused}, file)
    actual: Any = from_hugging_face(tmp_path)
    assert actual.config.tie_embeddings


def test_two_tables_for_source_and_target_are_refused(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), "decoder.embed_tokens.weight": torch.randn(11, 24)}, file)
    with pytest.raises(WeightsError, match="reads source and target with different vectors"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-gelu"}, "is_gated_act and dense_act_fn say otherwise"),
        ({"feed_forward_proj": "twice-gated-gelu"}, "feed_forward_proj wants an activation, or gated- and one"),
        ({"tie_encoder_decoder": True}, "this T5's decoder is its encoder"),
        ({"architectures": ["T5ForSequenceClassification"]}, "of T5, softlook knows T5ForConditionalGeneration"),
    ],
)
def test_what_we_cannot_express_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


def test_a_gate_bent_by_the_exact_gelu_has_no_name_at_hugging_face(tmp_path: Path) -> None:
    config = models.T5Config(
        vocab_size=11, dim=8, depth=1, heads=2, head_dim=4, hidden=8, gated=True, activation="gelu"
    )
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this T5"):
        to_hugging_face(models.T5(config), tmp_path / "softlook")
