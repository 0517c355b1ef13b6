"""Logit lens: the logits of the residual stream after each block."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.lens.trace import Trace
from softlook.lens.unembedding import find_stack, find_unembedding


@torch.no_grad()
def logit_lens(
    model: nn.Module, trace: Trace, *, positions: slice = slice(None)
) -> dict[str, Float[Tensor, "B *logits"]]:
    """Apply final norm and head to the residual stream after each block (nostalgebraist 2020), by its path.

    After the last block these are the logits of the model, without the n-gram counts that it may add. Of an
    encoder-decoder it reads the decoder.

    - `positions`: the positions to read. Logits of all of them take blocks x positions x vocabulary numbers.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> lens = logit_lens(model, recorded)
    >>> list(lens), torch.equal(lens["blocks.1"], logits)
    (['blocks.0', 'blocks.1'], True)
    """
    unembedding, blocks = find_unembedding(model), set(find_stack(model).blocks)  # pyright: ignore[reportArgumentType]
    paths = [path for path, module in model.named_modules() if module in blocks and path in trace.residual]
    if not paths:
        raise ConfigError("the trace has no residual stream of this model's blocks: trace a forward pass of the model")
    dtype = next(model.parameters()).dtype
    return {path: unembedding.logits(trace.residual[path][:, positions].to(dtype)) for path in paths}
