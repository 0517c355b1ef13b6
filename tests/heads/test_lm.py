"""Language modeling heads."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.heads import (
    ClassificationHead,
    ClsPool,
    LastPool,
    MaskedLMHead,
    PretrainingHead,
    SoftcappedLMHead,
    build_decoder_head,
)
from softlook.heads.pooling import non_padding


def test_masked_lm_head_is_tied_to_the_embedding() -> None:
    embedding = nn.Embedding(10, 8)
    head, x = MaskedLMHead(embedding, F.gelu), torch.randn(2, 5, 8)
    hidden = F.layer_norm(F.gelu(head.dense(x)), (8,), head.norm.weight, head.norm.bias, 1e-12)
    torch.testing.assert_close(head(x), hidden @ embedding.weight.T + head.to_logits.bias)
    head(x).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.abs().sum() > 0


def test_pretraining_head_gives_the_logits_of_both_tasks() -> None:
    masked_lm, next_sentence = MaskedLMHead(nn.Embedding(10, 8), F.gelu), ClassificationHead(ClsPool(), 8, 2)
    x = torch.randn(2, 5, 8)
    logits = PretrainingHead(masked_lm, next_sentence)(x)
    torch.testing.assert_close(logits.masked_lm, masked_lm(x))
    torch.testing.assert_close(logits.next_sentence, next_sentence(x))


def test_decoder_heads_are_built_by_name() -> None:
    embedding = nn.Embedding(10, 4)
    lm_head = build_decoder_head("causal_lm", 4, 10, classes=2, tie_to=embedding, softcap=3.0)
    assert isinstance(lm_head, SoftcappedLMHead) and lm_head.weight is embedding.weight
    assert isinstance(build_decoder_head("classification", 4, 10, classes=2), ClassificationHead)
    assert isinstance(build_decoder_head("hidden_states", 4, 10, classes=2), nn.Identity)
    with pytest.raises(ConfigError, match="causal_lm, hidden_states or classification, got 'tags'"):
        build_decoder_head("tags", 4, 10, classes=2)


def test_last_pool_reads_the_last_token_wherever_padding_is() -> None:
    x = torch.arange(8.0).view(1, 4, 2)
    for mask, last in (([0, 1, 1, 0], 2), ([0, 0, 1, 1], 3), ([1, 0, 0, 0], 0), ([0, 0, 0, 0], 0)):
        assert LastPool()(x, torch.tensor([mask]).bool()).equal(x[:, last])
    assert LastPool()(x).equal(x[:, -1])


def test_tokens_with_the_id_of_padding_are_excluded() -> None:
    ids, mask = torch.tensor([[5, 0, 7, 0]]), torch.tensor([[True, True, False, False]])
    assert non_padding(ids, None, None) is None
    assert non_padding(ids, mask, None) is mask
    assert non_padding(ids, None, 0).tolist() == [[True, False, True, False]]  # pyright: ignore
    assert non_padding(ids, mask, 0).tolist() == [[True, False, False, False]]  # pyright: ignore


def test_softcapped_logits_keep_their_order_and_stay_below_the_cap() -> None:
    torch.manual_seed(0)
    head = SoftcappedLMHead(8, 20, cap=2.0)
    x = torch.randn(5, 8)
    plain, capped = F.linear(x, head.weight), head(x)
    assert capped.abs().max() < 2.0
    assert capped.argsort(-1).equal(plain.argsort(-1))
