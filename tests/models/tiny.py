"""Every model, small enough to be asked a hundred times, with questions that fit it.

@pytest.mark.parametrize("tiny", TINY.values(), ids=str)
def test_a_law(tiny: Tiny) -> None:
    model = tiny.build()
    answer = tiny.ask(model, tiny.inputs(batch=3, length=5))
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softlook import models
from softlook.blocks import Memory
from softlook.blocks.recurrent import RecurrentMemory
from softlook.blocks.segments import SegmentMemory

Inputs = dict[str, Any]
VOCAB, CONTEXT = 11, 16


@dataclass(frozen=True)
class Tiny:
    """A model, and how it is asked."""

    name: str
    model: type[nn.Module]
    config: Any
    question: Callable[[int, int], Inputs]
    """(batch, length) -> what `forward` is called with, by name."""
    memory: Callable[[], Any] | None = None
    """Makes the memory it takes from step to step; None where it takes none."""
    any_length: bool = True
    """Does it take sequences of any length, or things of one size only?"""

    def __str__(self) -> str:
        return self.name

    @property
    def mode(self) -> str | None:
        """decoder-only, encoder-only, encoder-decoder, or None for a model that is none of these."""
        return getattr(self.model, "mode", None)

    @property
    def sequence(self) -> str | None:
        """The input along which it says something for each place, past before future, if it does so."""
        return {"decoder-only": "ids", "encoder-decoder": "target"}.get(self.mode or "")

    def takes(self, name: str) -> bool:
        """Does `forward` have an argument of this name: memory, mask, positions, present, source_present, label ...?"""
        return name in inspect.signature(self.model.forward).parameters

    def build(self, seed: int = 0) -> Any:
        """The model, ready to answer, with weights large enough for differences to show and no two alike."""
        torch.manual_seed(seed)
        model = self.model(self.config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    def inputs(self, batch: int = 2, length: int = 7, seed: int = 0) -> Inputs:
        """A question of this size; the same one for the same seed."""
        torch.manual_seed(seed)
        return self.question(batch, length)

    def ask(self, model: Any, inputs: Inputs | None = None) -> Tensor:
        """What it says, as one tensor. Gradients flow."""
        said = model(**(self.inputs() if inputs is None else inputs))
        return said if isinstance(said, Tensor) else torch.cat([part.flatten(1) for part in said], 1)


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length))


def present(batch: int, length: int) -> Tensor:
    """Rows filled up on the right, none of them empty; the first is full."""
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    return torch.arange(length) < lengths[:, None]


def words(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length)}


def labelled(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length), "label": torch.randint(0, 3, (batch,))}


def read(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length), "present": present(batch, length)}


def pair(batch: int, length: int) -> Inputs:
    return {**read(batch, length), "segments": torch.randint(0, 2, (batch, length))}


def translation(batch: int, length: int) -> Inputs:
    source = length + 2
    return {
        "source": ids(batch, source),
        "target": ids(batch, length),
        "source_present": present(batch, source),
    }


def pictures(batch: int, length: int) -> Inputs:
    return {"images": torch.randn(batch, 3, 8, 12)}


def row(batch: int, length: int) -> Inputs:
    categories = torch.stack([torch.randint(0, size, (batch,)) for size in (2, 5)], 1)
    return {"numbers": torch.randn(batch, 3), "categories": categories}


def row_with_gaps(batch: int, length: int) -> Inputs:
    """Every column misses a number in one row or another, and no row misses all."""
    whole = row(batch, length)
    gaps = torch.arange(batch)[:, None] % 4 == torch.arange(3)
    return {**whole, "numbers": whole["numbers"].masked_fill(gaps, torch.nan)}


SMALL: dict[str, Any] = {"vocab": VOCAB, "dim": 16, "depth": 2, "heads": 2}
GROUPED: dict[str, Any] = {**SMALL, "heads": 4, "kv_heads": 2}
BERT: dict[str, Any] = {**SMALL, "context": CONTEXT}
ROW: dict[str, Any] = {"numbers": 3, "categories": (2, 5), "classes": 4, "dim": 16, "depth": 2, "heads": 2}
PICTURE: dict[str, Any] = {"image": (8, 12), "patch": 4, "dim": 16, "depth": 2, "heads": 2, "classes": 5}
SEARCH: dict[str, Any] = {"source_vocab": VOCAB, "target_vocab": VOCAB, "dim": 8, "hidden": 16, "readout": 8}
ONE_WAY: dict[str, Any] = {**SEARCH, "hidden": 8, "bidirectional": False}

ALL = (
    Tiny("GPT", models.GPT, models.GPTConfig(**SMALL, context=CONTEXT), words, Memory),
    Tiny("GPT with labels", models.GPT, models.GPTConfig(**SMALL, context=CONTEXT, labels=3), labelled, Memory),
    Tiny("GPT untied", models.GPT, models.GPTConfig(**SMALL, context=CONTEXT, tied=False, hidden=24), words, Memory),
    Tiny("Bert", models.Bert, models.BertConfig(**BERT), pair),
    Tiny("Bert without segments", models.Bert, models.BertConfig(**BERT, segments=0, offset=2), read),
    Tiny("Bert for both", models.Bert, models.BertConfig(**BERT, head="pretraining"), pair),
    Tiny("Bert for classes", models.Bert, models.BertConfig(**BERT, head="classes", classes=3, pooling="mean"), pair),
    Tiny("Bert for sentences", models.Bert, models.BertConfig(**BERT, head="embedding", pooler=None), pair),
    Tiny("Bert feels distances", models.Bert, models.BertConfig(**BERT, segments=0, offset=2, buckets=8), read),
    Tiny("Bert widens", models.Bert, models.BertConfig(**BERT, embedding=6, head="replaced"), pair),
    Tiny("Deberta", models.Deberta, models.DebertaConfig(**BERT, reach=8, buckets=4), read),
    Tiny(
        "Deberta with a convolution",
        models.Deberta,
        models.DebertaConfig(
            **BERT,
            reach=5,
            buckets=0,
            shared=False,
            absolute=True,
            segments=2,
            embedding=6,
            convolution=models.Convolution(),
            head="classes",
        ),
        pair,
    ),
    Tiny("ModernBert", models.ModernBert, models.ModernBertConfig(**BERT, hidden=24, window=2), read),
    Tiny(
        "ModernBert for classes",
        models.ModernBert,
        models.ModernBertConfig(
            **BERT, hidden=24, window=1, local=(0,), norm_biases=True, attention_biases=True, head="classes"
        ),
        read,
    ),
    Tiny("T5Encoder", models.T5Encoder, models.T5EncoderConfig(**SMALL, head_width=8, hidden=32), read),
    Tiny(
        "Llama",
        models.Llama,
        models.LlamaConfig(**GROUPED, hidden=24),
        words,
        Memory,
    ),
    Tiny(
        "Llama through windows",
        models.Llama,
        models.LlamaConfig(
            **SMALL, window=4, windowed=(1,), stretch=models.Stretch(kind="llama3", factor=4.0, context=8), biases=True
        ),
        words,
        Memory,
    ),
    Tiny("Transformer", models.Transformer, models.TransformerConfig(**SMALL), translation, Memory),
    Tiny(
        "Transformer pre-norm",
        models.Transformer,
        models.TransformerConfig(
            **SMALL, target_vocab=VOCAB, norm="pre", places="learned", context=24, offset=2, head_bias=True, tied=False
        ),
        translation,
        Memory,
    ),
    Tiny("T5", models.T5, models.T5Config(**SMALL, head_width=8, hidden=32), translation, Memory),
    Tiny(
        "T5 v1.1",
        models.T5,
        models.T5Config(
            **SMALL,
            head_width=6,
            hidden=24,
            gated=True,
            activation="gelu_tanh",
            tied=False,
            scaled=False,
            max_distance=16,
        ),
        translation,
        Memory,
    ),
    Tiny(
        "TransformerXL",
        models.TransformerXL,
        models.TransformerXLConfig(**SMALL, hidden=32),
        words,
        lambda: SegmentMemory(length=CONTEXT),
    ),
    Tiny(
        "TransformerXL with shared biases",
        models.TransformerXL,
        models.TransformerXLConfig(**SMALL, hidden=32, shared_biases=True, pre_norm=True, farthest=5),
        words,
        lambda: SegmentMemory(length=CONTEXT),
    ),
    Tiny("RNNSearch", models.RNNSearch, models.RNNSearchConfig(**SEARCH), translation, RecurrentMemory),
    Tiny(
        "RNNSearch by Luong",
        models.RNNSearch,
        models.RNNSearchConfig(
            **SEARCH, decoder="luong", score="general", span="local-p", window=2, input_feeding=True
        ),
        translation,
        RecurrentMemory,
    ),
    Tiny(
        "RNNSearch at one pace",
        models.RNNSearch,
        models.RNNSearchConfig(**ONE_WAY, decoder="luong", score="dot", span="local-m", window=3),
        translation,
        RecurrentMemory,
    ),
    Tiny("ViT", models.ViT, models.ViTConfig(**PICTURE), pictures, any_length=False),
    Tiny(
        "ViT by mean", models.ViT, models.ViTConfig(**PICTURE, pooling="mean", biases=False), pictures, any_length=False
    ),
    Tiny("FTTransformer", models.FTTransformer, models.FTTransformerConfig(**ROW), row, any_length=False),
    Tiny(
        "TableTransformer",
        models.TableTransformer,
        models.TableTransformerConfig(**ROW, members=3, bins=4),
        row_with_gaps,
        any_length=False,
    ),
    Tiny(
        "TableTransformer of waves",
        models.TableTransformer,
        models.TableTransformerConfig(**ROW, members=3, bins=4, number_tokens="periodic", shared=0),
        row_with_gaps,
        any_length=False,
    ),
    Tiny("TabTransformer", models.TabTransformer, models.TabTransformerConfig(**ROW), row, any_length=False),
    Tiny(
        "ConvolutionalLM",
        models.ConvolutionalLM,
        models.ConvolutionalLMConfig(vocab=VOCAB, dim=16, depth=4, cycle=3),
        words,
    ),
    Tiny(
        "SkipGram",
        models.SkipGram,
        models.SkipGramConfig(vocab=VOCAB, dim=4),
        lambda batch, length: {"centre": ids(batch, 1)[:, 0], "candidates": ids(batch, length)},
    ),
)
TINY: dict[str, Tiny] = {tiny.name: tiny for tiny in ALL}
