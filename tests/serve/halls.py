"""Small models to serve: one of each kind, with words of their own."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from softlook.decode import stream
from softlook.models import (
    GPT,
    T5,
    Bert,
    BertConfig,
    GPTConfig,
    Llama,
    LlamaConfig,
    RNNSearch,
    RNNSearchConfig,
    T5Config,
    Transformer,
    TransformerConfig,
)
from softlook.serve.asking import Ask
from softlook.serve.choosing import pick_of
from softlook.serve.served import Served
from softlook.serve.template import ChatTemplate
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.weights.beside import Signs

TEXTS = ["she sells sea shells by the sea shore", "naïve façade, déjà vu — 日本語 🎉 ok", "and so on, and so forth"] * 3
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
CONTEXT = 64


def words() -> TextTokenizer:
    return TextTokenizer(train_tokenizer(TEXTS, kind="bytes"))


def lively(make: Callable[[], nn.Module]) -> Any:
    """Always the same weights, so large that no two words are about as likely: rounding must not decide."""
    torch.manual_seed(1)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def speaker(kind: str = "gpt", vocab: int | None = None) -> Any:
    """A small decoder-only model."""
    vocab = words().vocab if vocab is None else vocab
    sizes: dict[str, Any] = {"vocab": vocab, "context": CONTEXT, "dim": 32, "depth": 2, "heads": 4}
    makers = {
        "gpt": lambda: GPT(GPTConfig(**sizes)),
        "llama": lambda: Llama(LlamaConfig(**sizes, kv_heads=2)),
        "windowed": lambda: Llama(LlamaConfig(**sizes, window=5, windowed=(0,))),
    }
    return lively(makers[kind])


def translator(kind: str = "transformer") -> Any:
    vocab = words().vocab
    sizes: dict[str, Any] = {"vocab": vocab, "dim": 32, "depth": 2, "heads": 4}
    makers = {
        "transformer": lambda: Transformer(TransformerConfig(**sizes)),
        "t5": lambda: T5(T5Config(**sizes, hidden=64)),
        "rnn": lambda: RNNSearch(
            RNNSearchConfig(source_vocab=vocab, target_vocab=vocab, dim=16, hidden=32, readout=16)
        ),
    }
    return lively(makers[kind])


def encoder(head: Any = "classes") -> Any:
    sizes: dict[str, Any] = {"vocab": words().vocab, "context": CONTEXT, "dim": 32, "depth": 2, "heads": 4}
    return lively(lambda: Bert(BertConfig(**sizes, head=head, classes=3, pooling="mean")))


def served(name: str, model: Any, **changes: Any) -> Served:
    own = words()
    translates = getattr(model, "mode", "") == "encoder-decoder"
    signs = Signs(() if translates else (own.begin,), (own.end,), (own.begin,), (own.end,))
    told: dict[str, Any] = {"signs": signs}
    return Served(name, model, own, **(told | changes))


def everything() -> list[Served]:
    """One model for each page."""
    return [
        served("gpt", speaker()),
        served("chat", speaker("llama"), template=ChatTemplate(TEMPLATE)),
        served("translate", translator()),
        served("classify", encoder(), labels=["bad", "fair", "good"]),
        served("embed", encoder("embedding")),
    ]


def alone(model: Any, ask: Ask) -> list[int]:
    """What is said where nobody else is there."""
    told = stream(
        model,
        ask.prompt,
        source=ask.source,
        pick=pick_of(ask.manner, ask.seed),
        rules=ask.manner.rules(),
        end=ask.end,
        longest=ask.limit,
        number=ask.number,
    )
    return [token.id for token in told]


def prompt(dice: Any, longest: int, vocab: int = 200) -> Sequence[int]:
    return tuple(dice.randrange(3, vocab) for _ in range(dice.randint(1, longest)))
