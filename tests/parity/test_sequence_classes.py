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
from tests.parity.decoders import IDS, LENGTHS, LLAMA_LIKE, PAD, VOCAB
from tests.parity.weights import close, read, there_and_back

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
    theirs = kind._from_config(config(**sizes, num_labels=classes), attn_implementation="eager").eval()
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, kind, tmp_path / "ours")
    save(ours, tmp_path / "kept")
    for present in (torch.arange(9) < LENGTHS[:, None], torch.arange(9) >= 9 - LENGTHS[:, None]):
        ids = IDS.masked_fill(~present, PAD)
        with torch.no_grad():
            wanted = theirs(ids, attention_mask=present.long()).logits
            assert wanted.shape == (2, classes)
            close(ours(ids, present=present), wanted)
            close(back(ids, attention_mask=present.long()).logits, wanted, 1e-5)
            assert torch.equal(load(tmp_path / "kept")(ids, present=present), ours(ids, present=present))


@pytest.mark.parametrize("name", KINDS)
def test_a_text_that_ends_with_the_id_of_padding_is_read_as_hugging_face_reads_it(name: str, tmp_path: Path) -> None:
    kind, config, sizes = KINDS[name]
    ours = read(theirs := kind(config(**sizes)).eval(), tmp_path / "theirs")
    for row in ([5, 3, PAD], [PAD, PAD], [5, PAD, 3]):
        ids = torch.tensor([row])
        with torch.no_grad():
            close(ours(ids), theirs(ids).logits)
