"""Every model in a tiny configuration, with inputs that fit it.

@pytest.mark.parametrize("tiny", TINY.values(), ids=str)
def test_an_invariant(tiny: Tiny) -> None:
    model = tiny.build()
    output = tiny.ask(model, tiny.inputs(batch=3, length=5))
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from softlook import models
from softlook.blocks import FastWeightCache, KVCache
from softlook.blocks.recurrent import RecurrentCache
from softlook.blocks.segments import SegmentCache
from softlook.models import optimize_for_cpu

Inputs = dict[str, Any]
VOCAB, CONTEXT = 11, 16


@dataclass(frozen=True)
class Tiny:
    """A model class, a tiny config, and factories for its inputs and its cache."""

    name: str
    model: type[nn.Module]
    config: Any
    make_inputs: Callable[[int, int], Inputs]
    """(batch, length) -> keyword arguments of `forward`."""
    make_cache: Callable[[], Any] | None = None
    """Builds the cache that `forward` takes; None if it takes none."""
    any_length: bool = True
    """Whether it takes sequences of any length."""

    def __str__(self) -> str:
        return self.name

    @property
    def mode(self) -> str | None:
        """decoder-only, encoder-only, encoder-decoder, or None."""
        return getattr(self.model, "mode", None)

    @property
    def sequence(self) -> str | None:
        """The input along which the outputs are causal, if they are."""
        return {"decoder-only": "ids", "encoder-decoder": "target"}.get(self.mode or "")

    def takes(self, name: str) -> bool:
        """Whether `forward` has an argument of this name."""
        return name in inspect.signature(self.model.forward).parameters

    def build(self, seed: int = 0) -> Any:
        """The model in evaluation mode, with noise on all weights so that every one matters."""
        torch.manual_seed(seed)
        model = optimize_for_cpu(self.model(self.config)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    def inputs(self, batch: int = 2, length: int = 7, seed: int = 0) -> Inputs:
        """Inputs of this size; the same for the same seed."""
        torch.manual_seed(seed)
        return self.make_inputs(batch, length)

    def ask(self, model: Any, inputs: Inputs | None = None) -> Tensor:
        """The outputs as one tensor, with gradients."""
        output = model(**(self.inputs() if inputs is None else inputs))
        return output if isinstance(output, Tensor) else torch.cat([part.flatten(1) for part in output], 1)


def ids(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length))


def padding_mask(batch: int, length: int) -> Tensor:
    """A padding mask of right-padded rows, none of them empty; the first is full."""
    lengths = torch.randint(1, length + 1, (batch,))
    lengths[0] = length
    return torch.arange(length) < lengths[:, None]


def token_inputs(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length)}


def labelled_inputs(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length), "class_label": torch.randint(0, 3, (batch,))}


def padded_inputs(batch: int, length: int) -> Inputs:
    return {"ids": ids(batch, length), "padding_mask": padding_mask(batch, length)}


def pair_inputs(batch: int, length: int) -> Inputs:
    return {**padded_inputs(batch, length), "token_types": torch.randint(0, 2, (batch, length))}


def seq2seq_inputs(batch: int, length: int) -> Inputs:
    source = length + 2
    return {
        "source": ids(batch, source),
        "target": ids(batch, length),
        "source_padding_mask": padding_mask(batch, source),
    }


def image_inputs(batch: int, length: int) -> Inputs:
    return {"images": torch.randn(batch, 3, 8, 12)}


def row_inputs(batch: int, length: int) -> Inputs:
    categories = torch.stack([torch.randint(0, size, (batch,)) for size in (2, 5)], 1)
    return {"numbers": torch.randn(batch, 3), "categories": categories}


def row_inputs_with_missing(batch: int, length: int) -> Inputs:
    """Rows with missing numbers in every column."""
    whole = row_inputs(batch, length)
    missing = torch.arange(batch)[:, None] % 4 == torch.arange(3)
    return {**whole, "numbers": whole["numbers"].masked_fill(missing, torch.nan)}


SMALL: dict[str, Any] = {"vocab_size": VOCAB, "dim": 16, "depth": 2, "heads": 2}
GROUPED: dict[str, Any] = {**SMALL, "heads": 4, "kv_heads": 2}
BERT: dict[str, Any] = {**SMALL, "context": CONTEXT}
ROW: dict[str, Any] = {"n_numeric": 3, "cardinalities": (2, 5), "classes": 4, "dim": 16, "depth": 2, "heads": 2}
VIT: dict[str, Any] = {"image_size": (8, 12), "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "classes": 5}
RNN_SEARCH: dict[str, Any] = {
    "source_vocab_size": VOCAB,
    "target_vocab_size": VOCAB,
    "dim": 8,
    "hidden": 16,
    "readout": 8,
}
UNIDIRECTIONAL: dict[str, Any] = {**RNN_SEARCH, "hidden": 8, "bidirectional": False}

ALL = (
    Tiny("GPT", models.GPT, models.GPTConfig(**SMALL, context=CONTEXT), token_inputs, KVCache),
    Tiny(
        "GPT with labels",
        models.GPT,
        models.GPTConfig(**SMALL, context=CONTEXT, num_class_labels=3),
        labelled_inputs,
        KVCache,
    ),
    Tiny(
        "GPT untied",
        models.GPT,
        models.GPTConfig(**SMALL, context=CONTEXT, tie_embeddings=False, hidden=24),
        token_inputs,
        KVCache,
    ),
    Tiny("Bert", models.Bert, models.BertConfig(**BERT), pair_inputs),
    Tiny(
        "Bert without segments", models.Bert, models.BertConfig(**BERT, token_types=0, position_offset=2), padded_inputs
    ),
    Tiny("Bert for both", models.Bert, models.BertConfig(**BERT, head="pretraining"), pair_inputs),
    Tiny(
        "Bert for classes",
        models.Bert,
        models.BertConfig(**BERT, head="classification", classes=3, pooling="mean"),
        pair_inputs,
    ),
    Tiny("Bert for sentences", models.Bert, models.BertConfig(**BERT, head="embedding", pooler=None), pair_inputs),
    Tiny(
        "Bert feels distances",
        models.Bert,
        models.BertConfig(**BERT, token_types=0, position_offset=2, buckets=8),
        padded_inputs,
    ),
    Tiny("Bert widens", models.Bert, models.BertConfig(**BERT, embedding_dim=6, head="replaced_token"), pair_inputs),
    Tiny("Deberta", models.Deberta, models.DebertaConfig(**BERT, max_distance=8, buckets=4), padded_inputs),
    Tiny(
        "Deberta with a convolution",
        models.Deberta,
        models.DebertaConfig(
            **BERT,
            max_distance=5,
            buckets=0,
            share_projections=False,
            absolute_positions=True,
            token_types=2,
            embedding_dim=6,
            convolution=models.ConvolutionConfig(),
            head="classification",
        ),
        pair_inputs,
    ),
    Tiny("ModernBert", models.ModernBert, models.ModernBertConfig(**BERT, hidden=24, sliding_window=2), padded_inputs),
    Tiny(
        "ModernBert for classes",
        models.ModernBert,
        models.ModernBertConfig(
            **BERT,
            hidden=24,
            sliding_window=1,
            windowed_layers=(0,),
            norm_bias=True,
            attention_bias=True,
            head="classification",
        ),
        padded_inputs,
    ),
    Tiny("T5Encoder", models.T5Encoder, models.T5EncoderConfig(**SMALL, head_dim=8, hidden=32), padded_inputs),
    Tiny(
        "Llama",
        models.Llama,
        models.LlamaConfig(**GROUPED, hidden=24),
        token_inputs,
        KVCache,
    ),
    Tiny(
        "Llama through windows",
        models.Llama,
        models.LlamaConfig(
            **SMALL,
            sliding_window=4,
            windowed_layers=(1,),
            rope_scaling=models.RopeScaling(rope_type="llama3", factor=4.0, original_context=8),
            qkv_bias=True,
        ),
        token_inputs,
        KVCache,
    ),
    Tiny("Transformer", models.Transformer, models.TransformerConfig(**SMALL), seq2seq_inputs, KVCache),
    Tiny(
        "Transformer pre-norm",
        models.Transformer,
        models.TransformerConfig(
            **SMALL,
            target_vocab_size=VOCAB,
            norm="pre",
            positions="learned",
            context=24,
            position_offset=2,
            head_bias=True,
            tie_embeddings=False,
        ),
        seq2seq_inputs,
        KVCache,
    ),
    Tiny("T5", models.T5, models.T5Config(**SMALL, head_dim=8, hidden=32), seq2seq_inputs, KVCache),
    Tiny(
        "T5 v1.1",
        models.T5,
        models.T5Config(
            **SMALL,
            head_dim=6,
            hidden=24,
            gated=True,
            activation="gelu_tanh",
            tie_embeddings=False,
            scale_decoder_outputs=False,
            max_distance=16,
        ),
        seq2seq_inputs,
        KVCache,
    ),
    Tiny(
        "TransformerXL",
        models.TransformerXL,
        models.TransformerXLConfig(**SMALL, hidden=32),
        token_inputs,
        lambda: SegmentCache(length=CONTEXT),
    ),
    Tiny(
        "TransformerXL with shared biases",
        models.TransformerXL,
        models.TransformerXLConfig(**SMALL, hidden=32, share_biases=True, pre_norm=True, max_distance=5),
        token_inputs,
        lambda: SegmentCache(length=CONTEXT),
    ),
    Tiny("RNNSearch", models.RNNSearch, models.RNNSearchConfig(**RNN_SEARCH), seq2seq_inputs, RecurrentCache),
    Tiny(
        "RNNSearch by Luong",
        models.RNNSearch,
        models.RNNSearchConfig(
            **RNN_SEARCH, decoder="luong", score="general", window_type="local-p", window=2, input_feeding=True
        ),
        seq2seq_inputs,
        RecurrentCache,
    ),
    Tiny(
        "RNNSearch at one pace",
        models.RNNSearch,
        models.RNNSearchConfig(**UNIDIRECTIONAL, decoder="luong", score="dot", window_type="local-m", window=3),
        seq2seq_inputs,
        RecurrentCache,
    ),
    Tiny("ViT", models.ViT, models.ViTConfig(**VIT), image_inputs, any_length=False),
    Tiny(
        "ViT by mean",
        models.ViT,
        models.ViTConfig(**VIT, pooling="mean", qkv_bias=False),
        image_inputs,
        any_length=False,
    ),
    Tiny("FTTransformer", models.FTTransformer, models.FTTransformerConfig(**ROW), row_inputs, any_length=False),
    Tiny(
        "TableTransformer",
        models.TableTransformer,
        models.TableTransformerConfig(**ROW, ensemble_size=3, bins=4),
        row_inputs_with_missing,
        any_length=False,
    ),
    Tiny(
        "TableTransformer of waves",
        models.TableTransformer,
        models.TableTransformerConfig(**ROW, ensemble_size=3, bins=4, num_embeddings="periodic", shared_blocks=0),
        row_inputs_with_missing,
        any_length=False,
    ),
    Tiny("TabTransformer", models.TabTransformer, models.TabTransformerConfig(**ROW), row_inputs, any_length=False),
    Tiny(
        "ConvolutionalLM",
        models.ConvolutionalLM,
        models.ConvolutionalLMConfig(vocab_size=VOCAB, dim=16, depth=4, dilation_cycle=3),
        token_inputs,
    ),
    Tiny("FastWeightLM", models.FastWeightLM, models.FastWeightLMConfig(**SMALL), token_inputs, FastWeightCache),
    Tiny(
        "FastWeightLM by sums",
        models.FastWeightLM,
        models.FastWeightLMConfig(**SMALL, rule="sum", tie_embeddings=False),
        token_inputs,
        FastWeightCache,
    ),
    Tiny(
        "SkipGram",
        models.SkipGram,
        models.SkipGramConfig(vocab_size=VOCAB, dim=4),
        lambda batch, length: {"center": ids(batch, 1)[:, 0], "candidates": ids(batch, length)},
    ),
)
TINY: dict[str, Tiny] = {tiny.name: tiny for tiny in ALL}
