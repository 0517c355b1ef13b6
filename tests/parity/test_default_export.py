"""Models with the defaults of `softlook train`: exported to Hugging Face, or an error that names the setting."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from softlook.base.errors import WeightsError
from softlook.models import Bert, BertConfig, Transformer, TransformerConfig
from softlook.weights import from_hugging_face, to_hugging_face
from softlook.weights.hugging_face import explain_export
from tests.parity.comparison import close

SOURCE, TARGET = torch.randint(3, 37, (2, 9)), torch.randint(3, 37, (2, 6))
MASK = torch.arange(9) < torch.tensor([[9], [6]])
SIZES: dict[str, Any] = {"vocab_size": 37, "dim": 32, "depth": 2, "heads": 4}


@pytest.mark.parametrize(("norm", "architecture"), [("pre", "Pegasus"), ("post", "Marian")])
@pytest.mark.parametrize("target_vocab_size", [None, 37])
def test_a_translator_with_interleaved_positions_is_exported(
    norm: str, architecture: str, target_vocab_size: int | None, tmp_path: Path
) -> None:
    config = TransformerConfig(**SIZES, norm=norm, target_vocab_size=target_vocab_size)  # pyright: ignore[reportArgumentType]
    model = Transformer(config).eval()
    folder = to_hugging_face(model, tmp_path / "hf")
    reference = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert type(reference).__name__.startswith(architecture)
    expected = model(SOURCE, TARGET, source_padding_mask=MASK)
    close(reference(input_ids=SOURCE, attention_mask=MASK.long(), decoder_input_ids=TARGET).logits, expected)
    again = from_hugging_face(folder)
    close(again(SOURCE, TARGET, source_padding_mask=MASK), expected)


def classifier(pooling: str) -> Bert:
    return Bert(BertConfig(**SIZES, context=16, head="classification", classes=3, pooling=pooling)).eval()  # pyright: ignore[reportArgumentType]


def test_a_classifier_that_pools_by_cls_is_exported(tmp_path: Path) -> None:
    model = classifier("cls")
    reference = AutoModelForSequenceClassification.from_pretrained(to_hugging_face(model, tmp_path / "hf")).eval()
    expected = model(SOURCE, padding_mask=MASK)
    close(reference(SOURCE, attention_mask=MASK.long()).logits, expected)


def test_a_classifier_that_pools_by_mean_is_rejected_with_the_flag_to_change(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"Its pooling is 'mean': 'cls' can be exported \(--pooling cls\)"):
        to_hugging_face(classifier("mean"), tmp_path / "hf")


def test_an_error_names_several_settings() -> None:
    model = Bert(BertConfig(**SIZES, context=16, head="classification", pooling="mean", pooler="silu"))
    found = explain_export(model)
    assert "pooling is 'mean'" in found and "pooler is 'silu'" in found
