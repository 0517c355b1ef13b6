"""Words that keep the same company end up close together."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import ShapeError
from softlook.losses import negative_sampling
from softlook.models import SkipGram, SkipGramConfig
from softlook.ops.word2vec import most_similar, negative_distribution, skipgram_pairs

TOPICS, WORDS = 5, 6
VOCAB = TOPICS * WORDS


def corpus(sentences: int = 400, length: int = 8) -> Tensor:
    """Each sentence keeps to one topic; word v belongs to topic v // WORDS."""
    topics = torch.randint(TOPICS, (sentences, 1))
    return topics * WORDS + torch.randint(WORDS, (sentences, length))


def test_training_finds_the_planted_neighbours() -> None:
    ids = corpus()
    centres, neighbours = skipgram_pairs(ids, window=3)
    drawn = negative_distribution(ids.flatten().bincount(minlength=VOCAB))
    model = SkipGram(SkipGramConfig(vocab_size=VOCAB, dim=16))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(300):
        batch = torch.randint(len(centres), (256,))
        wrong = torch.multinomial(drawn, 256 * 5, replacement=True).view(256, 5)
        loss = negative_sampling(model(centres[batch], torch.cat([neighbours[batch, None], wrong], 1)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    words = torch.arange(VOCAB)
    near = most_similar(model.input_vectors.weight.detach(), words, WORDS - 1)
    assert_close(near // WORDS, (words // WORDS)[:, None].expand_as(near))


def test_a_score_is_the_dot_product_of_a_centre_and_a_neighbour() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    torch.nn.init.normal_(model.output_vectors.weight)
    scores = model(torch.tensor([3]), torch.tensor([[7, 1]]))
    words, neighbours = model.input_vectors.weight, model.output_vectors.weight
    assert_close(scores, (words[3] @ neighbours[[7, 1]].T)[None])


def test_it_starts_undecided() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    assert not model(torch.arange(10), torch.arange(10)[:, None]).any()


def test_a_word_it_does_not_know_is_refused() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    with pytest.raises(
        ShapeError, match=r"token ids must be from 0 to 9, got 10 to 10\. Were they made by the tokenizer of"
    ):
        model(torch.tensor([10]), torch.tensor([[1]]))
