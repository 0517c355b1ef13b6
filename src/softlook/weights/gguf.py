"""Models as llama.cpp keeps them: weights, sizes and words in one GGUF file, which the `gguf` package reads."""

import logging
import math
from pathlib import Path
from typing import Any

import torch
from pydantic import FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt
from tokenizers import Tokenizer
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.embed.rotary import Stretch
from softlook.models.llama import Llama, LlamaConfig
from softlook.ops.positions.frequencies import llama3
from softlook.weights.byte_level import Parts, put_together
from softlook.weights.folders import told
from softlook.weights.hollow import check_depth, hollow
from softlook.weights.renaming import Rule, Same, layer, read_into
from softlook.weights.schema import Closed, validated

try:
    from gguf import GGUFReader, dequantize
except ImportError as fault:
    raise ImportError("to read GGUF files, install the package that knows them: pip install softlook[gguf]") from fault

log = logging.getLogger("softlook.weights")

ARCHITECTURES = ("llama", "qwen2")
"""As general.architecture says it. Mistral is written as "llama"."""
PLAIN = "F32 F16 BF16 "
QUANTISED = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S IQ4_NL "
KINDS = (PLAIN + QUANTISED + "IQ4_XS TQ1_0 TQ2_0 MXFP4").split()
"""Kinds of numbers that are read, all as float32."""
NAMES = {
    "attend.to_query": "attn_q",
    "attend.to_key": "attn_k",
    "attend.to_value": "attn_v",
    "attend.to_out": "attn_output",
    "around_attend.norm": "attn_norm",
    "around_feed.norm": "ffn_norm",
    "feed.to_gate": "ffn_gate",
    "feed.to_hidden": "ffn_up",
    "feed.to_out": "ffn_down",
}
PIECES = 8_000_000
"""How many pieces the metadata may have. A vocabulary of 250,000 words takes two million."""
TURNS = "rope_freqs.weight"
"""By how much each pair of a head is slowed down, in a Llama 3."""


class Sizes(Closed):
    """The metadata of an architecture, as far as they change the numbers; dots in their names are written as _."""

    block_count: PositiveInt
    context_length: PositiveInt
    embedding_length: PositiveInt
    feed_forward_length: PositiveInt
    vocab_size: PositiveInt | None = None
    attention_head_count: PositiveInt
    attention_head_count_kv: PositiveInt | None = None
    attention_key_length: PositiveInt | None = None
    attention_value_length: PositiveInt | None = None
    attention_layer_norm_rms_epsilon: PositiveFloat
    attention_sliding_window: NonNegativeInt | None = None
    attention_causal: bool = True
    rope_freq_base: PositiveFloat = 10_000.0
    rope_dimension_count: PositiveInt | None = None
    rope_scale_linear: PositiveFloat = 1.0
    rope_scaling_type: str = "linear"  # as llama.cpp takes a file that does not say
    rope_scaling_factor: PositiveFloat | None = None
    rope_scaling_original_context_length: PositiveInt | None = None
    rope_scaling_attn_factor: FiniteFloat = 1.0
    rope_scaling_finetuned: bool = False  # a note on how it was trained
    expert_count: NonNegativeInt = 0
    expert_used_count: NonNegativeInt = 0


class Careful(GGUFReader):
    """The package's reader, which would walk on beyond the end of a file for as long as a broken length tells it to."""

    pieces = 0

    def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
        self.pieces += 1
        got = super()._get(offset, dtype, count, override_order)
        if len(got) != count or self.pieces > PIECES:
            raise ValueError("it ends too early, or never")
        return got


def from_gguf(path: str | Path) -> Llama:
    """The model in a GGUF file, as softlook's, ready to answer: Llama, Mistral and Qwen2, quantised or not.

    >>> from_gguf("no/such/file.gguf")
    Traceback (most recent call last):
    softlook.base.errors.WeightsError: no/such/file.gguf is not a file. Give the GGUF file itself.
    """
    path = Path(path)
    reader = opened(path)
    architecture = found(reader, "general.architecture", path)
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{path} holds a {architecture!r:.40}; of GGUF files, softlook knows {', '.join(ARCHITECTURES)}"
        )
    fields = {name.replace(".", "_"): value for name, value in under(reader, f"{architecture}.", path).items()}
    sizes = validated(Sizes, fields, frozenset(), path)
    check_depth({"layers": sizes.block_count}, path)
    tensors = {tensor.name: numbers(tensor, path) for tensor in reader.tensors}
    stretch = stretch_of(sizes, tensors.pop(TURNS, None), path)
    model = hollow(lambda: Llama(config_of(architecture, sizes, tensors, stretch)), path)
    read_into(model, tensors, rules(model), (), path)
    if architecture == "llama":
        halve(model)
    log.info("%s: %s, read as softlook's %s", path, architecture, type(model).__name__)
    return model.eval()


def tokenizer_from_gguf(path: str | Path) -> Tokenizer:
    """The tokenizer that a GGUF file carries, where it works on bytes, as those of GPT-2 and its kin do."""
    path = Path(path)
    reader = opened(path)
    said = under(reader, "tokenizer.ggml.", path)
    if said.get("model") != "gpt2":
        raise WeightsError(f"{path} carries a tokenizer of the kind {said.get('model')!r:.40}; softlook knows 'gpt2'")
    cut = said.get("pre", "default")
    first = said.get("bos_token_id") if said.get("add_bos_token", cut == "llama-bpe") else None
    lists = {name: said.get(name, []) for name in ("tokens", "merges", "token_type")}
    if not all(isinstance(part, list) for part in lists.values()) or not isinstance(cut, str):
        raise WeightsError(f"{path}: tokens, merges and token_type of a tokenizer are lists, and pre is a name")
    return put_together(Parts(lists["tokens"], lists["merges"], lists["token_type"], cut, first))


def opened(path: Path) -> GGUFReader:
    """A GGUF file, read as far as its list of tensors."""
    if not path.is_file():
        raise WeightsError(f"{path} is not a file. Give the GGUF file itself.")
    with told("read", path):
        try:
            reader = Careful(path)
        except OSError:
            raise
        except Exception as fault:  # the package answers a broken file with whatever it stumbles over
            raise WeightsError(f"{path} is damaged or no GGUF file: {fault!r:.200}") from None
    if under(reader, "split.", path).get("count", 1) != 1:
        raise WeightsError(f"{path} is one of several parts. Join them first, with llama-gguf-split --merge.")
    return reader


def under(reader: GGUFReader, prefix: str, path: Path) -> dict[str, Any]:
    """The metadata whose names begin so, without that beginning."""
    try:
        return {
            name.removeprefix(prefix): field.contents()
            for name, field in reader.fields.items()
            if name.startswith(prefix)
        }
    except Exception as fault:
        raise WeightsError(f"{path} is damaged: its metadata cannot be read: {fault!r:.200}") from None


def found(reader: GGUFReader, name: str, path: Path) -> Any:
    return under(reader, name, path).get("")


def numbers(tensor: Any, path: Path) -> Tensor:
    """A tensor of the file in float32, whatever it is kept in."""
    kind = tensor.tensor_type.name
    if kind not in KINDS:
        raise WeightsError(f"{path}: {tensor.name!r:.200} is kept as {kind}; softlook reads {', '.join(KINDS)}")
    try:
        return torch.tensor(dequantize(tensor.data, tensor.tensor_type))
    except Exception as fault:
        raise WeightsError(f"{path}: {tensor.name!r:.200} cannot be read: {fault!r:.200}") from None


def config_of(architecture: str, sizes: Sizes, tensors: dict[str, Tensor], stretch: Stretch | None) -> LlamaConfig:
    """The metadata in our words."""
    width = sizes.attention_key_length or sizes.embedding_length // sizes.attention_head_count
    if (sizes.attention_value_length or width) != width or (sizes.rope_dimension_count or width) != width:
        raise WeightsError("its keys, values and turning parts of a head are not equally wide; softlook's Llama's are")
    window = sizes.attention_sliding_window or None
    if sizes.expert_count or (window and (architecture != "llama" or not sizes.attention_causal)):
        raise WeightsError("it has experts, a window in some layers or one ahead; softlook reads no such Llama")
    words = tensors.get("token_embd.weight")
    return LlamaConfig(
        vocab=sizes.vocab_size or (1 if words is None else len(words)),
        context=sizes.context_length,
        dim=sizes.embedding_length,
        depth=sizes.block_count,
        heads=sizes.attention_head_count,
        kv_heads=sizes.attention_head_count_kv,
        head_width=width,
        hidden=sizes.feed_forward_length,
        eps=sizes.attention_layer_norm_rms_epsilon,
        base=sizes.rope_freq_base,
        stretch=stretch,
        window=window,
        causal=sizes.attention_causal,
        biases=architecture == "qwen2",
        tied="output.weight" not in tensors,
    )


def stretch_of(sizes: Sizes, slowed: Tensor | None, path: Path) -> Stretch | None:
    """How positions are stretched."""
    kind, factor = sizes.rope_scaling_type, sizes.rope_scaling_factor or sizes.rope_scale_linear
    factor = 1.0 if kind == "none" else factor  # which llama.cpp then does not look at
    if kind not in ("none", "linear", "yarn") or sizes.rope_scaling_attn_factor != 1:
        raise WeightsError(
            f"{path} stretches its positions as {kind!r:.40}; softlook knows none, linear and plain yarn"
        )
    if slowed is not None:
        if factor != 1:
            raise WeightsError(f"{path} stretches its positions twice, by {TURNS} and as {kind!r:.40}")
        return fitted(slowed, sizes.rope_freq_base, path)
    if kind == "yarn":
        first = sizes.rope_scaling_original_context_length or sizes.context_length
        return Stretch(kind="yarn", factor=factor, context=first)
    return None if factor == 1 else Stretch(kind="linear", factor=factor)


def fitted(slowed: Tensor, base: float, path: Path) -> Stretch | None:
    """How a Llama 3 stretches its positions, from how much slower each pair turns: that is all the file keeps of it.

    Every Llama 3 blends between one and four turns in its first context, which leaves the length of that to be found.
    """
    slowed, factor = slowed.double().flatten(), slowed.max().item()
    frequencies = base ** -(torch.arange(len(slowed), dtype=torch.float64) / len(slowed))
    if factor == 1:
        return None
    kept = (1 / slowed - 1 / factor) / (1 - 1 / factor)
    blended = (kept > 1e-3) & (kept < 1 - 1e-3)
    contexts = (2 * math.pi * (1 + 3 * kept) / frequencies)[blended]
    context = round(contexts.median().item()) if len(contexts) else 1
    again = llama3(factor, context=context).stretch(frequencies, base)
    if not torch.allclose(again, frequencies / slowed, rtol=1e-4, atol=0):
        raise WeightsError(f"{path} stretches its positions by {TURNS} in a way that no Llama 3 does")
    return Stretch(kind="llama3", factor=factor, context=context)


def rules(model: Llama) -> list[Rule]:
    """Which of our tensors is which of theirs."""
    made: list[Rule] = [Same("tokens.table.weight", "token_embd.weight"), Same("norm.weight", "output_norm.weight")]
    if not model.config.tied:
        made += layer("head", "output", "weight")
    for i in range(model.config.depth):
        for ours, theirs in NAMES.items():
            biased = model.config.biases and theirs in ("attn_q", "attn_k", "attn_v")
            made += layer(f"blocks.{i}.{ours}", f"blk.{i}.{theirs}", *(("weight", "bias") if biased else ("weight",)))
    return made


@torch.no_grad()
def halve(model: Llama) -> None:
    """llama.cpp turns neighbours, softlook's Llama the halves of a head: rows of queries and keys change places."""
    for name, weight in model.named_parameters():
        if name.endswith(("to_query.weight", "to_key.weight")):
            heads = weight.unflatten(0, (-1, model.head_width // 2, 2))
            weight.copy_(heads.transpose(1, 2).flatten(0, 2))
