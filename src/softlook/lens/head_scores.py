"""Scores of attention heads: previous token, induction, sink and other kinds, each measured on its own."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.lens.copying import copying_scores
from softlook.lens.head_patterns import PatternStatistics, pattern_statistics, single_call
from softlook.lens.head_table import HeadTable, merge_columns
from softlook.lens.score_decomposition import decompose_scores
from softlook.lens.trace import Trace, trace

MAX_OFFSET = 8
"""Offsets up to this distance are searched for the best one."""
RARE = 0.1
"""The fraction of tokens that counts as rare."""
DECOMPOSED = 512
"""The scores of so many first tokens are decomposed: the fit takes longer for longer texts."""
MEASURED = {
    "sink": "weight on the first token and on the sink logit, mean over the queries after it",
    "previous": "weight on key i - 1, mean over the queries that see two keys or more, as for all weights",
    "same": "weight on key i",
    "next": "weight on key i + 1",
    "local": "weight on the keys up to `window` positions away, the token itself included",
    "broad": "entropy divided by the log of the number of visible keys: 1 for equal weights",
    "offset": f"the offset i - j from -{MAX_OFFSET} to {MAX_OFFSET} with the largest mean weight",
    "offset weight": "the mean weight at that offset; syntactic heads exceed it on their relation (Voita et al. 2019)",
    "positional": f"share of the variance of the scores among the first {DECOMPOSED} tokens that depends on i - j",
    "key only": "share of the variance of these scores that depends on the key alone",
    "separator": "weight on the `separators`",
    "rare": f"weight on the rarest {RARE:.0%} of the tokens in the text, by `counts` or else by token id",
    "duplicate": "weight on the earlier occurrence of the same token, on repeated random tokens",
    "induction": "weight on the token after the earlier occurrence, on repeated random tokens (Olsson et al. 2022)",
    "copying": "sum of the eigenvalues of W_U W_O W_V W_E, divided by the sum of their absolute values",
}
"""How each score is measured."""
COPYING_TOKENS = 1024
"""Tokens that the copying score is computed for."""


def head_table(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    *,
    padding_mask: Bool[Tensor, "B T"] | None = None,
    separators: Sequence[int] = (),
    counts: Float[Tensor, " V"] | None = None,
    window: int = 4,
    repeat_length: int = 50,
    seed: int = 0,
    **inputs: Any,
) -> HeadTable:
    """Scores of every self-attention head of a model, of Hugging Face too, on a text and on repeated random tokens.

    The table says below how each score was measured; `softlook.lens.head_scores.MEASURED` holds the same. A score
    without a meaning for the model, such as `next` with a causal mask, is NaN. Memory is linear in the length.

    - `separators`: ids of special tokens, such as [SEP], a full stop or a line feed.
    - `counts`: how often each token occurs in the training text; default: a higher id is rarer, as in BPE.
    - `window`: distance up to which a key is local.
    - `repeat_length`: random tokens in each half of a repeated sequence, at most half of the model's context.

    `inputs` are further arguments of the model, such as `token_types`.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=20, context=32, dim=16, depth=2, heads=4)).eval()
    >>> table = head_table(model, torch.randint(20, (2, 12)))
    >>> table["induction"].shape, table.heads[5], table["next"].isnan().all()
    (torch.Size([8]), ('blocks.1.attn', 1), tensor(True))
    """
    if model.training:
        raise ConfigError("scores are those of inference, without dropout: call model.eval() first")
    given = inputs if padding_mask is None else {**inputs, "padding_mask": padding_mask}
    with torch.no_grad(), trace(model) as recorded:
        model(ids, **given)
    columns = text_scores(recorded, ids, padding_mask=padding_mask, separators=separators, counts=counts, window=window)
    generator = torch.Generator().manual_seed(seed)
    repeated = repeat_random_tokens(model, repeat_length, exclude=separators, generator=generator).to(ids.device)
    with torch.no_grad(), trace(model) as recorded:
        model(repeated)
    copying = _copying(model, generator, ids.device)
    for path, scores in repeat_scores(recorded, repeated.shape[1] // 2).items():
        unknown = torch.full_like(scores["induction"], torch.nan)
        columns[path] |= {**scores, "copying": copying.get(path, unknown)}
    return merge_columns(columns, MEASURED)


def text_scores(
    trace: Trace,
    ids: Int[Tensor, "B T"],
    *,
    padding_mask: Bool[Tensor, "B T"] | None = None,
    separators: Sequence[int] = (),
    counts: Float[Tensor, " V"] | None = None,
    window: int = 4,
) -> dict[str, dict[str, Float[Tensor, " H"]]]:
    """The scores that are measured on a text, of every layer of a trace."""
    valid = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask
    groups = torch.stack(_key_groups(ids, valid, separators, counts), -1).float()
    reach, part = max(window, MAX_OFFSET), slice(DECOMPOSED)
    scores = {}
    for path, layer in trace.items():
        call = single_call(path, layer, ids.shape[1])
        read = pattern_statistics(call, range(-reach, reach + 1), groups)
        shares = decompose_scores(call, rows=part, columns=part, queries=valid).shares.nanmean(0)
        scores[path] = {
            **_pattern_scores(read, groups, valid, window, has_separators=bool(separators)),
            "positional": shares[:, 0],
            "key only": shares[:, 1],
        }
        scores[path] = {name: scores[path][name] for name in MEASURED if name in scores[path]}
    return scores


def repeat_scores(trace: Trace, length: int) -> dict[str, dict[str, Float[Tensor, " H"]]]:
    """The scores that are measured on random tokens and their repetition, `length` each."""
    scores = {}
    for path, layer in trace.items():
        read = pattern_statistics(single_call(path, layer, 2 * length), [length, length - 1])
        duplicate, induction = read.offsets[:, :, length:].nanmean((0, 2)).unbind(-1)
        scores[path] = {"duplicate": duplicate, "induction": induction}
    return scores


def repeat_random_tokens(
    model: nn.Module, length: int, *, batch: int = 4, exclude: Iterable[int] = (), generator: torch.Generator
) -> Int[Tensor, "B T"]:
    """Random tokens, each sequence followed by itself: only induction can predict the second half.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=20, context=8, dim=16, depth=1, heads=4))
    >>> repeat_random_tokens(model, 50, generator=torch.Generator()).shape
    torch.Size([4, 8])
    """
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "vocab_size"):
        raise ConfigError(f"expected a model of token ids with config.vocab_size, got {type(model).__name__}")
    context = getattr(config, "context", getattr(config, "max_position_embeddings", None))  # the latter: Hugging Face
    half = length if context is None else min(length, context // 2)
    allowed = torch.ones(config.vocab_size)
    allowed[list(exclude)] = 0
    tokens = allowed.expand(batch, -1).multinomial(half, replacement=half > int(allowed.sum()), generator=generator)
    return tokens.repeat(1, 2)


def _key_groups(
    ids: Tensor, valid: Tensor, separators: Sequence[int], counts: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The first token, separators, rare tokens, and all keys, as masks. (B, T) each"""
    first = valid & (valid.cumsum(1) == 1)
    is_separator = torch.isin(ids, torch.tensor(list(separators), dtype=ids.dtype, device=ids.device)) & valid
    frequency = -ids.float() if counts is None else counts.to(ids.device)[ids].float()
    frequency = frequency.masked_fill(~valid | is_separator, torch.inf)
    number = (valid.sum(1, keepdim=True) * RARE).ceil().long().clamp(min=1)
    limit = frequency.sort(1).values.gather(1, number - 1)
    return first, is_separator, (frequency <= limit) & valid & ~is_separator, torch.ones_like(valid)


def _pattern_scores(
    read: PatternStatistics, groups: Tensor, valid: Tensor, window: int, *, has_separators: bool
) -> dict[str, Tensor]:
    """Means over the queries that are tokens and have a choice of keys, per head."""
    sees = valid[:, None] & (read.visible > 1)
    offsets = read.offsets.masked_fill(~sees[..., None], torch.nan)
    reach = offsets.shape[-1] // 2
    at = offsets.nanmean((0, 2))  # (H, offsets)
    local = offsets[..., reach - window : reach + window + 1].nansum(-1)
    first, separator, rare, every = read.groups.unbind(-1)
    sink = first + 1 - every  # the weights of a row and of the sink logit add up to 1
    best = at[:, reach - MAX_OFFSET : reach + MAX_OFFSET + 1].nan_to_num(nan=-1.0).max(-1)
    return {
        "sink": _mean(sink, sees & ~groups[:, None, :, 0].bool()),
        "previous": at[:, reach + 1],
        "same": at[:, reach],
        "next": at[:, reach - 1],
        "local": _mean(local, sees),
        "broad": _mean(read.entropy / read.visible.clamp(min=2).log(), sees),
        "offset": (best.indices - MAX_OFFSET).float(),
        "offset weight": best.values,
        "separator": _mean(separator, sees if has_separators else sees & False),
        "rare": _mean(rare, sees),
    }


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """The mean over batch and queries; NaN if nothing is chosen."""
    return values.masked_fill(~chosen, torch.nan).nanmean((0, 2))


def _copying(model: Any, generator: torch.Generator, device: torch.device) -> dict[str, Tensor]:
    """Copying scores of a decoder-only model; none for other models, whose heads are not one linear map."""
    if getattr(model, "mode", None) != "decoder-only":
        return {}
    tokens = torch.randperm(model.config.vocab_size, generator=generator)[:COPYING_TOKENS]
    try:
        return copying_scores(model, tokens.to(device))
    except ConfigError:  # post-norm, or a head that is no linear map
        return {}
