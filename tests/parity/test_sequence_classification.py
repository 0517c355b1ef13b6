"""Import and export of decoders that classify sequences by the last token, in Hugging Face's format."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2ForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    MistralConfig,
    MistralForSequenceClassification,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from softlook.weights import load, save
from tests.parity.comparison import close, export_and_load, import_model
from tests.parity.decoders import IDS, LENGTHS, LLAMA_LIKE, PAD, VOCAB

GPT2 = {"vocab_size": VOCAB, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 4, "pad_token_id": PAD}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gpt2": (GPT2ForSequenceClassification, GPT2Config, GPT2),
    "llama": (LlamaForSequenceClassification, LlamaConfig, LLAMA_LIKE),
    "mistral": (MistralForSequenceClassification, MistralConfig, {**LLAMA_LIKE, "sliding_window": 3}),
    "qwen2": (Qwen2ForSequenceClassification, Qwen2Config, LLAMA_LIKE),
}


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("name", KINDS)
def test_classes_match_hugging_face_with_padding_on_either_side(name: str, classes: int, tmp_path: Path) -> None:
    kind, config, sizes = KINDS[name]
    torch.manual_seed(0)
    reference = kind._from_config(config(**sizes, num_labels=classes), attn_implementation="eager").eval()
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, kind, tmp_path / "softlook")
    save(actual, tmp_path / "saved")
    for padding_mask in (torch.arange(9) < LENGTHS[:, None], torch.arange(9) >= 9 - LENGTHS[:, None]):
        ids = IDS.masked_fill(~padding_mask, PAD)
        with torch.no_grad():
            expected = reference(ids, attention_mask=padding_mask.long()).logits
            assert expected.shape == (2, classes)
            close(actual(ids, padding_mask=padding_mask), expected)
            close(back(ids, attention_mask=padding_mask.long()).logits, expected, 1e-5)
            assert torch.equal(
                load(tmp_path / "saved")(ids, padding_mask=padding_mask), actual(ids, padding_mask=padding_mask)
            )


@pytest.mark.parametrize("name", KINDS)
def test_a_text_that_ends_with_the_padding_id_matches_hugging_face(name: str, tmp_path: Path) -> None:
    kind, config, sizes = KINDS[name]
    actual = import_model(reference := kind(config(**sizes)).eval(), tmp_path / "hf")
    for row in ([5, 3, PAD], [PAD, PAD], [5, PAD, 3]):
        ids = torch.tensor([row])
        with torch.no_grad():
            close(actual(ids), reference(ids).logits)
