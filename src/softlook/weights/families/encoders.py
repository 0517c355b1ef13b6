"""What BERT, RoBERTa and DistilBERT have in common, as softlook's Bert: heads, labels, and vectors of sentences."""

from dataclasses import replace
from typing import Any, cast

from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.models.bert import Bert, BertConfig, BertHead
from softlook.weights.sentence import SENTENCES, Sentence, sentence_files

UNPOOLED = ("states", "words", "tags", "spans")


def with_head(config: BertConfig, head: str, classes: int) -> BertConfig:
    """The config of a model with this head, which may be one of sentence-transformers'."""
    if head in SENTENCES:
        made = SENTENCES[head]
        return replace(config, head="embedding" if made.length_one else "pooled", pooling=made.pooling, pooler=None)
    return replace(config, head=cast(BertHead, head), classes=classes if head in ("classes", "tags") else 2)


def refuse_untied(head: str, tied: bool) -> None:
    if not tied and head in ("words", "pretraining"):
        raise WeightsError("this model says words with other vectors than it reads them with; softlook's Bert does not")


def labels(named: dict[str, Any] | None, count: int) -> int:
    """How many classes there are: Hugging Face counts their names, where they have names."""
    return len(named) if named else count


def label_names(c: BertConfig) -> dict[str, Any]:
    """Hugging Face keeps the number of classes as a list of names."""
    if c.head not in ("classes", "tags"):
        return {}
    names = [f"LABEL_{i}" for i in range(c.classes)]
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def architecture(model: Bert, architectures: dict[str, str]) -> str:
    """Their class for our head; the bare model where there is no head."""
    bare = next(iter(architectures))
    return next((name for name, head in architectures.items() if head == model.config.head), bare)


def place(model: nn.Module, *kinds: type[nn.Module]) -> str | None:
    """The name of the part that is of this kind, where the model has one."""
    return next((name for name, module in model.named_modules() if isinstance(module, kinds)), None)


def bare(model: Bert) -> bool:
    return model.config.head in ("states", "pooled", "embedding")


def beside(model: Bert) -> dict[str, Any]:
    """What makes the folder one of sentence-transformers', where the model gives plain vectors of sentences."""
    c = model.config
    if c.head not in ("pooled", "embedding") or c.pooler is not None:
        return {}
    return sentence_files(Sentence(c.pooling, length_one=c.head == "embedding"), c.dim, c.context)


def pools_alike(c: BertConfig, bend: ActivationName) -> bool:
    """Do Hugging Face, with this bend behind the first token, or sentence-transformers, with none, pool like this?"""
    if c.head in UNPOOLED:
        return True
    if c.pooler is None:
        return c.head in ("pooled", "embedding")
    return c.head != "embedding" and (c.pooling, c.pooler) == ("first", bend)
