"""Masked LM heads of BERT, RoBERTa and DistilBERT: tied to the token embedding or not, depending on the tensors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from tests.parity.comparison import close, saved

IDS = torch.tensor([[5, 3, 8, 2, 9, 2, 7], [4, 4, 6, 10, 8, 3, 2]])
SIZES: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 40}
DISTILLED: dict[str, Any] = {"dim": 24, "n_layers": 1, "n_heads": 4, "hidden_dim": 40}
HEADS: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "BertForMaskedLM": (
        "bert.",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "cls.predictions.bias",
        SIZES,
    ),
    "BertForPreTraining": (
        "bert.",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "cls.predictions.bias",
        SIZES,
    ),
    "RobertaForMaskedLM": ("roberta.", "lm_head.decoder.weight", "lm_head.decoder.bias", "lm_head.bias", SIZES),
    "DistilBertForMaskedLM": ("distilbert.", "vocab_projector.weight", "vocab_projector.bias", "", DISTILLED),
}
"""Prefix of the encoder, weight and bias of the head, second name of the bias, sizes."""


def folder_of(kind: str, path: Path, **changes: Any) -> Path:
    torch.manual_seed(0)
    model: Any = getattr(transformers, kind)
    sizes = {"vocab_size": 13, "max_position_embeddings": 16, "pad_token_id": 1, **HEADS[kind][-1], **changes}
    return saved(model(model.config_class(**sizes)).eval(), path)


def logits(kind: str, folder: Path) -> Tensor:
    model: Any = getattr(transformers, kind).from_pretrained(folder)
    with torch.no_grad():
        found = model.eval()(IDS)
    return found.prediction_logits if kind == "BertForPreTraining" else found.logits


def softlook_logits(model: Any) -> Tensor:
    with torch.no_grad():
        found = model(IDS)
    return found[0] if isinstance(found, tuple) else found


def change_folder(folder: Path, change: Callable[[dict[str, Tensor]], Any], **config: Any) -> None:
    """Change the tensors of a folder and fields of its config; None removes a field."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    content = json.loads((folder / "config.json").read_text()) | config
    content = {name: value for name, value in content.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(content))


def check(kind: str, folder: Path, *, tied: bool) -> None:
    actual: Any = from_hugging_face(folder)
    expected = logits(kind, folder)
    assert actual.config.tie_embeddings == tied
    close(softlook_logits(actual), expected)
    exported = to_hugging_face(actual, folder.with_name("exported"))
    close(logits(kind, exported), expected, 1e-6)
    close(softlook_logits(from_hugging_face(exported)), expected)
    close(softlook_logits(load(save(actual, folder.with_name("saved")))), expected)


@pytest.mark.parametrize("tie", [None, True, False])
@pytest.mark.parametrize("kind", HEADS)
def test_an_lm_head_that_differs_from_the_embedding_is_used(kind: str, tie: bool | None, tmp_path: Path) -> None:
    folder = folder_of(kind, tmp_path / "hf", tie_word_embeddings=False)
    change_folder(folder, lambda tensors: None, tie_word_embeddings=tie)
    check(kind, folder, tied=False)


@pytest.mark.parametrize("kind", [kind for kind, (*_, second, _) in HEADS.items() if second])
def test_a_bias_that_differs_from_its_second_name_is_used_with_a_tied_head(kind: str, tmp_path: Path) -> None:
    folder = folder_of(kind, tmp_path / "hf")
    change_folder(folder, lambda tensors: tensors.update({HEADS[kind][2]: torch.randn(13)}), tie_word_embeddings=None)
    check(kind, folder, tied=True)


@pytest.mark.parametrize("kind", HEADS)
def test_a_tied_embedding_may_be_stored_under_any_of_its_names(kind: str, tmp_path: Path) -> None:
    prefix, weight, bias, second, _ = HEADS[kind]
    table = f"{prefix}embeddings.word_embeddings.weight"

    def rename(tensors: dict[str, Tensor]) -> None:
        tensors[weight] = tensors.pop(table)
        if second:
            tensors[bias] = tensors.pop(second)

    folder = folder_of(kind, tmp_path / "hf")
    change_folder(folder, rename)
    check(kind, folder, tied=True)


@pytest.mark.parametrize("kind", HEADS)
def test_copies_of_tied_tensors_are_one_tensor(kind: str, tmp_path: Path) -> None:
    prefix, weight, bias, second, _ = HEADS[kind]

    def copy(tensors: dict[str, Tensor]) -> None:
        tensors[weight] = tensors[f"{prefix}embeddings.word_embeddings.weight"].clone()
        tensors[bias] = tensors[second or bias].clone()

    folder = folder_of(kind, tmp_path / "hf")
    change_folder(folder, copy)
    check(kind, folder, tied=True)


@pytest.mark.parametrize("kind", HEADS)
def test_an_untied_config_without_a_head_in_the_file_raises_an_error(kind: str, tmp_path: Path) -> None:
    folder = folder_of(kind, tmp_path / "hf")
    change_folder(folder, lambda tensors: None, tie_word_embeddings=False)
    with pytest.raises(WeightsError, match=f"lacks .*{HEADS[kind][1]}"):
        from_hugging_face(folder)
