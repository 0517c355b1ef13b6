"""Import and export of sentence-transformers folders with BERT-like encoders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import BertModel, PreTrainedTokenizerFast

from softlook.weights import from_hugging_face, read_tokenizer, to_hugging_face
from tests.parity.comparison import close, saved

WORDS = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "a", "soft", "look", "at", "every", "word", "is", "this"]
TEXTS = ["a soft look", "this is a look at every word", "word"]
BERT: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
SIZES: dict[str, dict[str, Any]] = {
    "BertModel": {**BERT, "hidden_size": 24, "pad_token_id": 1},
    "RobertaModel": {**BERT, "hidden_size": 24, "pad_token_id": 1, "type_vocab_size": 1},
    "XLMRobertaModel": {**BERT, "hidden_size": 24, "pad_token_id": 1, "type_vocab_size": 1},
    "MPNetModel": {**BERT, "hidden_size": 24, "pad_token_id": 1},
    "DistilBertModel": {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "pad_token_id": 1},
}

UNIGRAM = ("XLMRobertaModel",)


def word_level() -> Tokenizer:
    result = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    result.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    return result


def unigram() -> Tokenizer:
    """A unigram tokenizer, as converted from SentencePiece."""
    pieces = [
        (word if word.startswith("[") else f"\N{LOWER ONE EIGHTH BLOCK}{word}", -float(i))
        for i, word in enumerate(WORDS)
    ]
    result = Tokenizer(models.Unigram(pieces, unk_id=WORDS.index("[UNK]"), byte_fallback=False))
    result.pre_tokenizer = pre_tokenizers.Metaspace()  # pyright: ignore[reportAttributeAccessIssue]
    return result


def encoder(kind: str, folder: Path) -> Path:
    """A small encoder and a tokenizer of twelve words."""
    model: Any = getattr(transformers, kind)
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": 16, **SIZES[kind]}
    return tokenizer(kind, saved(model(model.config_class(**sizes)), folder))


def tokenizer(kind: str, folder: Path) -> Path:
    """Save the tokenizer of an encoder in its folder."""
    fast = unigram() if kind in UNIGRAM else word_level()
    processor: Any = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    fast.post_processor = processor
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=fast, **names).save_pretrained(folder)
    return folder


def embed_texts(folder: Path) -> Tensor:
    """softlook's embeddings of TEXTS."""
    model, tokenizer = from_hugging_face(folder), read_tokenizer(folder)
    tokenizer.enable_padding(pad_id=1, pad_token="[PAD]")
    encoded = tokenizer.encode_batch(TEXTS)
    padding_mask = torch.tensor([one.attention_mask for one in encoded]).bool()
    with torch.no_grad():
        return model(torch.tensor([one.ids for one in encoded]), padding_mask=padding_mask)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_sentence_embeddings_match_sentence_transformers(
    kind: str, pooling: Any, normalize: bool, tmp_path: Path
) -> None:
    parts = [Transformer(str(encoder(kind, tmp_path / "base"))), Pooling(24, pooling)]
    reference = SentenceTransformer(modules=[*parts, Normalize()] if normalize else parts, device="cpu")
    reference.save(str(tmp_path / "hf"), create_model_card=False)
    expected = reference.encode(TEXTS, convert_to_tensor=True)
    assert expected.shape == (3, 24)
    close(embed_texts(tmp_path / "hf"), expected)

    actual = from_hugging_face(tmp_path / "hf")
    exported = to_hugging_face(actual, tmp_path / "softlook", tokenizer=tmp_path / "hf")
    back = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    assert [type(part) for part in back] == [type(part) for part in reference]
    assert (back[1].pooling_mode, back.max_seq_length) == (
        pooling,
        16 - 2 * (kind not in ("BertModel", "DistilBertModel")),
    )  # pyright: ignore
    close(embed_texts(exported), expected, 1e-6)


def test_an_unused_pooler_is_ignored(tmp_path: Path) -> None:
    folder = encoder("BertModel", tmp_path / "hf")
    lines = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in MODULES]
    (folder / "modules.json").write_text(json.dumps(lines))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    actual: Any = from_hugging_face(folder)
    reference: Any = BertModel.from_pretrained(folder)
    assert reference.pooler is not None
    assert (actual.config.head, actual.config.pooling, actual.config.pooler) == ("pooled", "cls", None)
    ids = torch.tensor([[0, 5, 6, 2]])
    with torch.no_grad():
        close(actual(ids), reference.eval()(ids).last_hidden_state[:, 0])


MODULES = (("Transformer", ""), ("Pooling", "1_Pooling"))
