"""What BERT and its relatives have in common, as softlook's Bert: heads, labels, and vectors of sentences."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic import PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.blocks.feed_forward import ActivationName
from softlook.heads.classify import Problem
from softlook.models.bert import Bert, BertConfig, BertHead
from softlook.models.deberta import Deberta, DebertaConfig
from softlook.models.modern_bert import ModernBertConfig
from softlook.weights.families.tables import filled, same
from softlook.weights.renaming import Copy, Rule, Same, Tensors
from softlook.weights.schema import Closed
from softlook.weights.sentence import SENTENCES, Sentence, sentence_files

Config = BertConfig | DebertaConfig | ModernBertConfig
UNPOOLED = ("states", "words", "replaced", "tags", "spans")
SAYS_WORDS = ("words", "pretraining")
PROBLEMS: dict[str | None, Problem | None] = {
    None: None,
    "single_label_classification": "single_label",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}
"""Hugging Face's names for what logits stand for -> ours."""


class ClassConfig(Closed):
    """The fields of config.json that say what classes there are, and what their logits stand for."""

    id2label: dict[str, Any] | None = None
    num_labels: PositiveInt = 2
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = None


class EncoderConfig(ClassConfig):
    """The fields of config.json that say what the head is, which all encoders share."""

    tie_word_embeddings: bool = True


def with_head(config: BertConfig, head: str, theirs: EncoderConfig) -> BertConfig:
    """The config of a model with this head, which may be one of sentence-transformers'."""
    config = replace(config, tied=theirs.tie_word_embeddings or head not in SAYS_WORDS)
    if head in SENTENCES:
        return replace(config, pooler=None, **plain_head(head))
    return replace(config, head=cast(BertHead, head), **class_fields(theirs, head))


def class_fields(theirs: ClassConfig, head: str) -> dict[str, Any]:
    """The number of classes or tags, where the head has them, and what their logits stand for."""
    if head not in ("classes", "tags"):
        return {}
    problem = {"problem": PROBLEMS[theirs.problem_type]} if head == "classes" else {}
    return {"classes": labels(theirs.id2label, theirs.num_labels), **problem}


def plain_head(head: str) -> dict[str, Any]:
    """What a config says of a head that gives vectors, with no dense layer behind the pool."""
    if head not in SENTENCES:
        return {"head": head}
    made = SENTENCES[head]
    return {"head": "embedding" if made.length_one else "pooled", "pooling": made.pooling}


@dataclass(frozen=True)
class WordNames:
    """Hugging Face's names for the last layer of a head for words."""

    table: str
    """The token embedding."""
    weight: str
    bias: str
    bias_copy: str | None = None
    """A second name of the bias, which counts where both are there and differ: the layer itself has it."""

    def settle(self, config: Any, tensors: Tensors) -> tuple[Any, Tensors]:
        """Whether the head is tied is decided by the tensors, as Hugging Face does: a head that is in the file and
        differs from the embedding is used, and a tied tensor may be there under any of its names."""
        tensors = self._one_bias(tensors)
        if not config.tie_word_embeddings:
            return config, tensors
        tensors = filled(tensors, self.table, self.weight)
        if self.table in tensors and not same(tensors, self.table, self.weight):
            return config.model_copy(update={"tie_word_embeddings": False}), tensors
        return config, {name: tensor for name, tensor in tensors.items() if name not in (self.weight, self.bias_copy)}

    def _one_bias(self, tensors: Tensors) -> Tensors:
        names = [name for name in (self.bias_copy, self.bias) if name is not None]
        kept = next((tensors[name] for name in names if name in tensors), None)
        return tensors if kept is None else tensors | dict.fromkeys(names, kept)

    def rules(self, head: str, *, tied: bool) -> list[Rule]:
        """For our head of this name."""
        ours = f"{head}.to_words"
        if tied:
            return [Same(f"{ours}.bias", self.bias)]
        biases = [name for name in (self.bias, self.bias_copy) if name is not None]
        return [Same(f"{ours}.weight", self.weight), *(Copy(f"{ours}.bias", name) for name in biases)]


def check_gelu(inside: str, head: str, name: str) -> None:
    """Of models whose head for words has a GELU, whatever the layers have."""
    if head == "words" and inside != "gelu":
        raise WeightsError(
            f"this {name} bends with {inside!r:.40} inside and with gelu in its head for words; "
            "softlook's Bert has one bend for both"
        )


def plain(c: BertConfig) -> bool:
    """Has the model nothing that only MPNet or ELECTRA has?"""
    return not c.buckets and c.embedding in (None, c.dim) and c.head != "replaced"


def labels(named: dict[str, Any] | None, count: int) -> int:
    """How many classes there are: Hugging Face counts their names, where they have names."""
    return len(named) if named else count


def label_names(c: Config) -> dict[str, Any]:
    """Hugging Face keeps the number of classes as a list of names."""
    if c.head not in ("classes", "tags"):
        return {}
    names = [f"LABEL_{i}" for i in range(c.classes)]
    problem = next(name for name, problem in PROBLEMS.items() if problem == c.problem)
    return {
        **({} if problem is None else {"problem_type": problem}),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def tie(c: Config) -> dict[str, Any]:
    """Whether the head for words is tied, where there is one."""
    return {"tie_word_embeddings": c.tied} if c.head in SAYS_WORDS else {}


def architecture(model: nn.Module, architectures: dict[str, str]) -> str:
    """Their class for our head; the bare model where there is no head."""
    bare, config = next(iter(architectures)), cast(Config, model.config)
    return next((name for name, head in architectures.items() if head == config.head), bare)


def place(model: nn.Module, *kinds: type[nn.Module]) -> str | None:
    """The name of the part that is of this kind, where the model has one."""
    return next((name for name, module in model.named_modules() if isinstance(module, kinds)), None)


def bare(model: Any) -> bool:
    return model.config.head in ("states", "pooled", "embedding")


def beside(model: Bert | Deberta) -> dict[str, Any]:
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
