"""Small models to serve, one for each route, with a byte tokenizer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from softlook.decode import stream
from softlook.decode.chat_template import ChatTemplate
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
from softlook.recipes.text.ngram_lm import KneserNeyModel
from softlook.serve.engine.request import EngineRequest
from softlook.serve.loaded_model import LoadedModel
from softlook.tokens import TextTokenizer, train_tokenizer
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.weights.assets import SpecialTokens

TEXTS = ["she sells sea shells by the sea shore", "naïve façade, déjà vu — 日本語 🎉 ok", "and so on, and so forth"] * 3
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "
CONTEXT = 64


def words() -> TextTokenizer:
    return TextTokenizer(train_tokenizer(TEXTS, model_type="bytes"))


def with_large_weights(make: Callable[[], nn.Module]) -> Any:
    """Fixed weights, so large that no two tokens are nearly equally likely: rounding must not change the output."""
    torch.manual_seed(1)
    model = make().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def decoder(kind: str = "gpt", vocab: int | None = None) -> Any:
    """A small decoder-only model."""
    vocab = words().vocab_size if vocab is None else vocab
    sizes: dict[str, Any] = {"vocab_size": vocab, "context": CONTEXT, "dim": 32, "depth": 2, "heads": 4}
    makers = {
        "gpt": lambda: GPT(GPTConfig(**sizes)),
        "llama": lambda: Llama(LlamaConfig(**sizes, kv_heads=2)),
        "windowed": lambda: Llama(LlamaConfig(**sizes, sliding_window=5, windowed_layers=(0,))),
        "ngrams": lambda: with_ngrams(sizes),
    }
    return with_large_weights(makers[kind])


def with_ngrams(sizes: dict[str, Any]) -> GPT:
    """A GPT whose probabilities are mixed with those of the n-grams of a random text."""
    text = torch.randint(sizes["vocab_size"], (300,))
    counts = KneserNeyModel(TokenizedDocuments(text, torch.tensor([0])), vocab_size=sizes["vocab_size"], order=4)
    model = GPT(GPTConfig(**sizes, ngrams=counts.to_module().config))
    model.ngrams = counts.to_module()
    return model


def translator(kind: str = "transformer") -> Any:
    vocab = words().vocab_size
    sizes: dict[str, Any] = {"vocab_size": vocab, "dim": 32, "depth": 2, "heads": 4}
    makers = {
        "transformer": lambda: Transformer(TransformerConfig(**sizes)),
        "t5": lambda: T5(T5Config(**sizes, hidden=64)),
        "rnn": lambda: RNNSearch(
            RNNSearchConfig(source_vocab_size=vocab, target_vocab_size=vocab, dim=16, hidden=32, readout=16)
        ),
    }
    return with_large_weights(makers[kind])


def encoder(head: Any = "classification") -> Any:
    sizes: dict[str, Any] = {"vocab_size": words().vocab_size, "context": CONTEXT, "dim": 32, "depth": 2, "heads": 4}
    return with_large_weights(lambda: Bert(BertConfig(**sizes, head=head, classes=3, pooling="mean")))


def loaded_model(name: str, model: Any, **changes: Any) -> LoadedModel:
    tokenizer = words()
    translates = getattr(model, "mode", "") == "encoder-decoder"
    bos, eos = (tokenizer.bos_id,), (tokenizer.eos_id,)
    special = SpecialTokens(() if translates else bos, eos, bos, eos)
    options: dict[str, Any] = {"special_tokens": special} | changes
    return LoadedModel(name, model, tokenizer, **options)


def everything() -> list[LoadedModel]:
    """One model for each route."""
    return [
        loaded_model("gpt", decoder()),
        loaded_model("chat", decoder("llama"), chat_template=ChatTemplate(TEMPLATE)),
        loaded_model("translate", translator()),
        loaded_model("classify", encoder(), labels=["bad", "fair", "good"]),
        loaded_model("embed", encoder("embedding")),
    ]


def generate_unbatched(model: Any, request: EngineRequest) -> list[int]:
    """The ids of a request that is run without other requests."""
    tokens = stream(
        model,
        request.prompt,
        source=request.source,
        sampler=request.sampling.sampler(request.seed),
        logits_processors=request.sampling.processors(),
        eos_ids=request.eos_ids,
        max_new_tokens=request.max_new_tokens,
        index=request.sample_index,
    )
    return [token.id for token in tokens]


def prompt(rng: Any, max_length: int, vocab: int = 200) -> Sequence[int]:
    return tuple(rng.randrange(3, vocab) for _ in range(rng.randint(1, max_length)))
