"""Top tokens and their log-probabilities for each beam."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.decode.logits_processors import LogitsProcessor
from softlook.decode.outputs import SequenceView

BLOCK = 128
"""Block size of the two-level top-k on a CPU: only the blocks with the largest maxima are searched."""
MIN_VOCAB = 2048
"""Smallest vocabulary for which the two-level top-k is faster."""
ROWS = 32
"""Rows processed together, so that intermediate results stay in the CPU cache."""


@dataclass(frozen=True)
class TopTokens:
    """The top tokens after each beam, best first, (B, W) each."""

    tokens: Int[Tensor, "B W"]
    scores: Float[Tensor, "B W"]
    """Log-probabilities after logits processors."""
    logprobs: Float[Tensor, "B W"]
    """The model's log-probabilities."""


class NextTokenScores:
    """Scores of the next token after each beam: log-probabilities, changed by logits processors.

    As in Hugging Face's beam search, processors see log-probabilities, and the result is not normalized again.
    """

    def __init__(
        self,
        logits: Float[Tensor, "B V"],
        logits_processors: Sequence[LogitsProcessor] = (),
        sequences: Sequence[SequenceView] = (),
    ) -> None:
        self.logits = logits.float()
        self.logprobs = self.scores = None
        if logits_processors:
            self.logprobs = self.scores = self.logits.log_softmax(-1)
            for process in logits_processors:
                self.scores = process(self.scores, sequences)

    def top(self, width: int) -> TopTokens:
        """The best `width` tokens of each row, or as many as there are."""
        if self.logprobs is None or self.scores is None:
            scores, tokens = top_tokens(self.logits, width)
            return TopTokens(tokens, scores, scores)
        scores, tokens = self.scores.topk(min(width, self.scores.shape[-1]))
        return TopTokens(tokens, scores, self.logprobs.gather(1, tokens))

    def gather(self, tokens: Int[Tensor, "B W"]) -> TopTokens:
        """The scores of these tokens."""
        if self.logprobs is None or self.scores is None:
            self.logprobs = self.scores = self.logits.log_softmax(-1)
        return TopTokens(tokens, self.scores.gather(1, tokens), self.logprobs.gather(1, tokens))


def top_tokens(logits: Float[Tensor, "B V"], width: int) -> tuple[Float[Tensor, "B W"], Int[Tensor, "B W"]]:
    """Log-probabilities and ids of the `width` most likely tokens, best first; equal to a full top-k.

    >>> top_tokens(torch.tensor([[0.0, 0.0, 9.0]]), 1)[1]
    tensor([[2]])
    """
    width = min(width, logits.shape[-1])
    if logits.shape[-1] < max(MIN_VOCAB, 4 * width * BLOCK) or logits.device.type != "cpu":
        logprobs, tokens = logits.log_softmax(-1).topk(width)
        return logprobs, tokens
    chunks = [_block_top(chunk, width) for chunk in logits.split(ROWS)]
    if len(chunks) == 1:
        return chunks[0]
    logprobs, tokens = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(tokens)


def _block_top(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    tokens = _block_top_indices(logits, width)
    return logits.log_softmax(-1).gather(1, tokens), tokens


def _block_top_indices(logits: Tensor, width: int) -> Tensor:
    """A top token lies in a block with one of the largest maxima, or behind the last whole block."""
    count = logits.shape[-1] // BLOCK
    rest = logits[:, count * BLOCK :]
    blocks = logits[:, : count * BLOCK].unflatten(1, (count, BLOCK))
    best_blocks = blocks.amax(-1).topk(width).indices
    inside = blocks.gather(1, best_blocks[..., None].expand(-1, -1, BLOCK)).flatten(1)
    if rest.shape[1]:
        inside, best_blocks = torch.cat([inside, rest], 1), torch.nn.functional.pad(best_blocks, (0, 1), value=count)
    indices = inside.topk(width).indices
    return best_blocks.gather(1, indices.div(BLOCK, rounding_mode="floor")) * BLOCK + indices.remainder(BLOCK)
