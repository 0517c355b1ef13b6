"""Random configs of encoders give the logits of Hugging Face or are rejected."""

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face
from softlook.weights.schema import ConfigWarning
from tests.parity.comparison import close, saved
from tests.parity.encoders import IDS, PADDING_MASK

SIZES: dict[str, list[Any]] = {
    "hidden_size": [16, 24],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [2, 4],
    "intermediate_size": [20, 40],
    "vocab_size": [13, 17],
}
BERT: dict[str, list[Any]] = {
    **SIZES,
    "hidden_act": ["gelu", "gelu", "gelu", "relu", "gelu_new"],
    "max_position_embeddings": [12, 32],
    "layer_norm_eps": [1e-12, 1e-3],
    "pad_token_id": [0, 1],
    "tie_word_embeddings": [True, False],
}
FIELDS: dict[str, dict[str, list[Any]]] = {
    "XLMRoberta": {**BERT, "type_vocab_size": [1, 2]},
    "MPNet": {**BERT, "relative_attention_num_buckets": [32, 32, 64]},
    "Electra": {**BERT, "embedding_size": [8, 16, 24], "type_vocab_size": [1, 2]},
    "ModernBert": {
        **SIZES,
        "hidden_activation": ["gelu", "silu", "relu"],
        "classifier_activation": ["gelu", "tanh"],
        "local_attention": [1, 2, 5, 100],
        "norm_eps": [1e-5, 1e-2],
        "norm_bias": [False, True],
        "attention_bias": [False, True],
        "mlp_bias": [False, True],
        "classifier_bias": [False, True],
        "decoder_bias": [False, True],
        "tie_word_embeddings": [True, False],
        "global_attn_every_n_layers": [1, 2, 3],
        "global_rope_theta": [160_000.0, 50.0],
        "local_rope_theta": [10_000.0, 7.0],
        "rope_scaling": [None, None, None, {"rope_type": "linear", "factor": 2.0}],
        "pad_token_id": [0],
        "bos_token_id": [1],
        "eos_token_id": [2],
        "cls_token_id": [1],
        "sep_token_id": [2],
    },
    "DebertaV2": {
        **BERT,
        "embedding_size": [16, 24, 8],
        "type_vocab_size": [0, 2],
        "relative_attention": [True, True, True, False],
        "position_biased_input": [True, False],
        "pos_att_type": [["c2p", "p2c"], "p2c|c2p", ["c2p"], ["p2c"], None],
        "max_relative_positions": [-1, 5, 40],
        "position_buckets": [-1, 4, 8],
        "share_att_key": [True, False],
        "norm_rel_ebd": ["none", "layer_norm"],
        "conv_kernel_size": [0, 0, 3, 4],
        "conv_act": ["tanh", "gelu"],
        "legacy": [True, False],
    },
}
CASES = [(kind, seed) for kind in FIELDS for seed in range(6)]


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_random_config_matches_hugging_face_or_is_rejected(kind: str, seed: int, tmp_path: Path) -> None:
    assert check(kind, seed, tmp_path) in ("equal", "rejected", "invalid")


@pytest.mark.slow
@pytest.mark.parametrize("kind", FIELDS)
def test_many_random_configs_match_hugging_face_or_are_rejected(kind: str, tmp_path: Path) -> None:
    found = [check(kind, seed, tmp_path / str(seed)) for seed in range(6, 60)]
    assert found.count("equal") >= 8


def check(kind: str, seed: int, folder: Path) -> str:
    """The outcome of one config: "equal", "rejected", or "invalid" if transformers rejects it."""
    rng = random.Random(f"{kind} {seed}")
    fields = {name: rng.choice(values) for name, values in FIELDS[kind].items()}
    torch.manual_seed(seed)
    model_class: Any = getattr(transformers, f"{kind}ForMaskedLM")
    try:
        reference = model_class._from_config(model_class.config_class(**fields), attn_implementation="eager").eval()
        ids = (IDS % 10 + 3).masked_fill(~PADDING_MASK, fields["pad_token_id"])
        with torch.no_grad():
            saved(reference, folder)
            expected = reference(ids, attention_mask=PADDING_MASK.long()).logits
    except (ValueError, RuntimeError, AttributeError, IndexError, KeyError):
        return "invalid"
    if not expected[PADDING_MASK].isfinite().all():
        return "invalid"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            actual: Any = from_hugging_face(folder)
    except WeightsError:
        return "rejected"
    with torch.no_grad():
        close(actual(ids, padding_mask=PADDING_MASK)[PADDING_MASK], expected[PADDING_MASK])
    return "equal"
