"""Embeddings and classes of imported encoders equal those of Hugging Face."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from softlook.models import TextEncoder
from softlook.recipes.inference import classify, embed, load_pipeline
from tests.parity.comparison import close, saved
from tests.parity.test_sentence import TEXTS, WORDS, tokenizer

BLOCKS = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
BERT: dict[str, Any] = {"hidden_size": 24, "max_position_embeddings": 16, **BLOCKS}
RELATIVE = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 4, "share_att_key": True}
SPECIAL_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
SIZES: dict[str, dict[str, Any]] = {
    "XLMRoberta": {**BERT, "type_vocab_size": 1},
    "MPNet": BERT,
    "Electra": {**BERT, "embedding_size": 10},
    "ModernBert": {**BERT, "local_attention": 4, **SPECIAL_IDS},
    "DebertaV2": {**BERT, **RELATIVE, "position_biased_input": False},
    "T5Encoder": {"d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3},
}


def model(kind: str, folder: Path, **changes: Any) -> Any:
    torch.manual_seed(0)
    model_class: Any = getattr(transformers, kind)
    name = kind.replace("ForSequenceClassification", "").replace("Model", "")
    sizes = {"vocab_size": len(WORDS), "pad_token_id": 1, **SIZES[name], **changes}
    reference = model_class(model_class.config_class(**sizes)).eval()
    tokenizer(kind, saved(reference, folder))
    return reference


def rows(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    words = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    encoding = words(TEXTS, padding=True, return_tensors="pt")
    return encoding["input_ids"], encoding["attention_mask"]


@pytest.mark.parametrize("kind", SIZES)
def test_embeddings_equal_the_mean_of_hugging_face_hidden_states(kind: str, tmp_path: Path) -> None:
    reference = model(f"{kind}Model", tmp_path)
    run = load_pipeline(tmp_path, device="cpu")
    assert isinstance(run.model, TextEncoder) and run.task == "embed"
    ids, attention_mask = rows(tmp_path)
    with torch.no_grad():
        states = reference(ids, attention_mask=attention_mask).last_hidden_state * attention_mask[..., None]
    close(embed(run, TEXTS), states.sum(1) / attention_mask.sum(1, keepdim=True))
    with torch.no_grad():
        first = reference(ids, attention_mask=attention_mask).last_hidden_state[:, 0]
    close(embed(run, TEXTS, pooling="cls"), first)


@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind != "T5Encoder"])
def test_class_probabilities_equal_hugging_face(kind: str, tmp_path: Path) -> None:
    reference = model(f"{kind}ForSequenceClassification", tmp_path, num_labels=3)
    run = load_pipeline(tmp_path, device="cpu")
    ids, attention_mask = rows(tmp_path)
    with torch.no_grad():
        expected = reference(ids, attention_mask=attention_mask).logits.softmax(-1)
    for prediction, probabilities in zip(classify(run, TEXTS), expected, strict=True):
        best = int(probabilities.argmax())
        assert prediction.label == f"LABEL_{best}"
        assert prediction.probability == pytest.approx(float(probabilities[best]), abs=1e-4)
