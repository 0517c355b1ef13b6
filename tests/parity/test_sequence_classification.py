"""Decoders of Hugging Face's that classify sequences by their last token, read and written."""

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
from tests.parity.comparison import close, read, there_and_back
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
def test_classes_are_those_of_hugging_face_with_padding_on_either_side(name: str, classes: int, tmp_path: Path) -> None:
    kind, config, sizes = KINDS[name]
    torch.manual_seed(0)
    reference = kind._from_config(config(**sizes, num_labels=classes), attn_implementation="eager").eval()
    actual = read(reference, tmp_path / "hf")
    back = there_and_back(actual, kind, tmp_path / "softlook")
    save(actual, tmp_path / "kept")
    for present in (torch.arange(9) < LENGTHS[:, None], torch.arange(9) >= 9 - LENGTHS[:, None]):
        ids = IDS.masked_fill(~present, PAD)
        with torch.no_grad():
            expected = reference(ids, attention_mask=present.long()).logits
            assert expected.shape == (2, classes)
            close(actual(ids, padding_mask=present), expected)
            close(back(ids, attention_mask=present.long()).logits, expected, 1e-5)
            assert torch.equal(load(tmp_path / "kept")(ids, padding_mask=present), actual(ids, padding_mask=present))


@pytest.mark.parametrize("name", KINDS)
def test_a_text_that_ends_with_the_id_of_padding_is_read_as_hugging_face_reads_it(name: str, tmp_path: Path) -> None:
    kind, config, sizes = KINDS[name]
    actual = read(reference := kind(config(**sizes)).eval(), tmp_path / "hf")
    for row in ([5, 3, PAD], [PAD, PAD], [5, PAD, 3]):
        ids = torch.tensor([row])
        with torch.no_grad():
            close(actual(ids), reference(ids).logits)
