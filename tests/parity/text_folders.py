"""Small Hugging Face folders with an encoder and a word-level tokenizer."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tests.parity.comparison import saved

SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
WORDS = [*SPECIAL, "a", "soft", "look", "at", "every", "word", "is", "this", "query", ":", "A"]
BERT: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40, "hidden_size": 24}
SIZES: dict[str, dict[str, Any]] = {
    "Bert": BERT,
    "Roberta": {**BERT, "type_vocab_size": 1},
    "DistilBert": {"dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40},
}
PAIRS = {"Roberta": "[CLS] $A [SEP] [SEP] $B [SEP]"}


def encoder_folder(kind: str, folder: Path, *, positions: int = 16, **changes: Any) -> Path:
    """An encoder of this class with random weights, and a tokenizer with the special tokens of its architecture."""
    torch.manual_seed(0)
    model: Any = getattr(transformers, kind)
    family = next(name for name in ("DistilBert", "Roberta", "Bert") if kind.startswith(name))
    sizes = {"vocab_size": len(WORDS), "max_position_embeddings": positions, "pad_token_id": 1, **SIZES[family]}
    saved(model(model.config_class(**sizes, **changes)).eval(), folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.NFC()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    pair = PAIRS.get(family, "[CLS] $A [SEP] $B:1 [SEP]:1")
    processor: Any = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=pair, special_tokens=[("[CLS]", 0), ("[SEP]", 2)]
    )
    tokenizer.post_processor = processor
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **names)  # pyright: ignore
    fast.save_pretrained(folder)
    return folder
