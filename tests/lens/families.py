"""A small model of every family, and a forward pass of it, with the kind of attention that the family has."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from softlook import masks, positions
from softlook.blocks import AllAttention, AttentionCore
from softlook.blocks.segments import SegmentCache
from softlook.models import (
    GPT,
    T5,
    Bert,
    BertConfig,
    Deberta,
    DebertaConfig,
    FTTransformer,
    FTTransformerConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    ModernBert,
    ModernBertConfig,
    RNNSearch,
    RNNSearchConfig,
    T5Config,
    TableTransformer,
    TableTransformerConfig,
    TabTransformer,
    TabTransformerConfig,
    Transformer,
    TransformerConfig,
    TransformerXL,
    TransformerXLConfig,
    ViT,
    ViTConfig,
)
from softlook.ops.scores import cosine

SIZES: dict[str, Any] = {"vocab_size": 20, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(3, 20, (2, 9), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(3, 20, (2, 5), generator=torch.Generator().manual_seed(1))
PADDING = torch.arange(9) < torch.tensor([[9], [6]])
TABLE: dict[str, Any] = {"n_numeric": 3, "cardinalities": (4, 5), "dim": 32, "heads": 4}
ROW = torch.randn(6, 3), torch.tensor([[1, 2]] * 6)


def segments(model: Any) -> None:
    cache = SegmentCache(4)
    for part in IDS.split([3, 3, 3], 1):
        model(part, cache=cache)


def rnn(**changes: Any) -> RNNSearch:
    sizes: dict[str, Any] = {"source_vocab_size": 20, "target_vocab_size": 20, "dim": 16, "hidden": 16, "readout": 16}
    return RNNSearch(RNNSearchConfig(**{**sizes, **changes}))


class Layer(nn.Module):
    """One attention function with a score, a sink and a softcap, or one with persistent keys."""

    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.attn = attn


def call_core(model: Any) -> None:
    query, key, value = torch.randn(3, 2, 4, 9, 8, requires_grad=True)
    model.attn(query, key[:, :2], value[:, :2], masks.window(3, 1), positions.alibi(4))


def run(*args: Any, **kwargs: Any) -> Callable[[Any], None]:
    return lambda model: model(*args, **kwargs)


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], None]]] = {
    "gpt": (lambda: GPT(GPTConfig(**SIZES, context=16)), run(IDS)),
    "gpt, packed": (
        lambda: GPT(GPTConfig(**SIZES, context=16)),
        run(IDS, mask=masks.documents(torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2]))),
    ),
    "gpt, padded on the left": (
        lambda: GPT(GPTConfig(**SIZES, context=16)),
        run(IDS, mask=masks.padding([9, 6], side="left", length=9)),
    ),
    "bert, padded": (lambda: Bert(BertConfig(**SIZES, context=16)), run(IDS, padding_mask=PADDING)),
    "llama, grouped, softcap and windows": (
        lambda: Llama(
            LlamaConfig(
                **SIZES,
                context=16,
                kv_heads=2,
                attention_logit_softcap=2.0,
                sliding_window=3,
                windowed_layers=(0,),
            )
        ),
        run(IDS),
    ),
    "modern bert": (lambda: ModernBert(ModernBertConfig(**SIZES, context=16, hidden=64)), run(IDS)),
    "deberta": (lambda: Deberta(DebertaConfig(**SIZES, context=16)), run(IDS, padding_mask=PADDING)),
    "transformer": (
        lambda: Transformer(TransformerConfig(**SIZES)),
        run(IDS, TARGET, source_padding_mask=PADDING),
    ),
    "t5": (
        lambda: T5(T5Config(**SIZES, head_dim=8, hidden=64)),
        run(IDS, TARGET, source_padding_mask=PADDING),
    ),
    "transformer-xl, with its memory": (
        lambda: TransformerXL(TransformerXLConfig(**SIZES, hidden=64, dropout=0.0)),
        segments,
    ),
    "rnnsearch": (rnn, run(IDS, TARGET)),
    "luong, local": (lambda: rnn(decoder="luong", score="general", window_type="local-m", window=2), run(IDS, TARGET)),
    "vit": (
        lambda: ViT(ViTConfig(image_size=(8, 12), patch_size=4, dim=32, depth=2, heads=4, classes=5)),
        run(torch.randn(2, 3, 8, 12)),
    ),
    "ft-transformer": (lambda: FTTransformer(FTTransformerConfig(**TABLE, depth=2)), run(*ROW)),
    "tabtransformer": (lambda: TabTransformer(TabTransformerConfig(**TABLE, depth=2)), run(*ROW)),
    "tabletransformer": (lambda: TableTransformer(TableTransformerConfig(**TABLE, depth=2)), run(*ROW)),
    "softcap, sink and cosine": (
        lambda: Layer(AttentionCore(softcap=3.0, sink=0.5, score=cosine(0.2))),
        call_core,
    ),
    "persistent keys": (
        lambda: Layer(AllAttention(32, 4, persistent=5)),
        lambda model: model.attn(torch.randn(2, 9, 32), mask=masks.window(3), bias=positions.alibi(4)),
    ),
}


def build(name: str) -> tuple[nn.Module, Callable[[Any], None]]:
    """The model of a family in evaluation mode, and its forward pass."""
    torch.manual_seed(0)
    make, forward = FAMILIES[name]
    return make().eval(), forward


def kernel_maps(model: nn.Module) -> dict[str, list[Tensor]]:
    """Filled in each forward pass: the map of each call, by its kernel from values that are unit vectors."""
    maps: dict[str, list[Tensor]] = {}

    def record(path: str, core: AttentionCore, args: tuple[Any, ...]) -> None:
        query, key, value, *rest = args
        units = torch.eye(key.shape[2], dtype=value.dtype, device=value.device).expand(*value.shape[:2], -1, -1)
        maps.setdefault(path.removesuffix(".core"), []).append(core.forward(query, key, units, *rest))

    for path, core in model.named_modules():
        if isinstance(core, AttentionCore):
            core.register_forward_pre_hook(partial(record, path))
    return maps
