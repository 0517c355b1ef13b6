"""Skip-gram: words with similar contexts get similar vectors."""

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


def test_training_recovers_the_topics_of_the_corpus() -> None:
    ids = corpus()
    centers, neighbours = skipgram_pairs(ids, window=3)
    probabilities = negative_distribution(ids.flatten().bincount(minlength=VOCAB))
    model = SkipGram(SkipGramConfig(vocab_size=VOCAB, dim=16))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(300):
        batch = torch.randint(len(centers), (256,))
        negatives = torch.multinomial(probabilities, 256 * 5, replacement=True).view(256, 5)
        loss = negative_sampling(model(centers[batch], torch.cat([neighbours[batch, None], negatives], 1)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    words = torch.arange(VOCAB)
    nearest = most_similar(model.input_vectors.weight.detach(), words, WORDS - 1)
    assert_close(nearest // WORDS, (words // WORDS)[:, None].expand_as(nearest))


def test_a_logit_is_the_dot_product_of_an_input_and_an_output_vector() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    torch.nn.init.normal_(model.output_vectors.weight)
    logits = model(torch.tensor([3]), torch.tensor([[7, 1]]))
    input_vectors, output_vectors = model.input_vectors.weight, model.output_vectors.weight
    assert_close(logits, (input_vectors[3] @ output_vectors[[7, 1]].T)[None])


def test_initial_logits_are_zero() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    assert not model(torch.arange(10), torch.arange(10)[:, None]).any()


def test_a_token_id_out_of_range_raises_an_error() -> None:
    model = SkipGram(SkipGramConfig(vocab_size=10, dim=4))
    with pytest.raises(
        ShapeError, match=r"token ids must be from 0 to 9, got 10 to 10\. Were they made by the tokenizer of"
    ):
        model(torch.tensor([10]), torch.tensor([[1]]))
