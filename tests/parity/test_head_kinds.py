"""Real models have the published kinds of heads, and induction heads are what predicts repeated tokens."""

import pytest
import torch
from torch import nn

from benchmarks.head_kinds import DECODER, ENCODER, TEXT, encoder_table, loss, sample_same_layers
from softlook.lens import HeadTable, head_table
from softlook.lens.head_scores import repeat_random_tokens
from softlook.weights import from_gguf, tokenizer_from_gguf
from tests.parity.real_weights import real_weights

pytestmark = pytest.mark.slow
Found = tuple[nn.Module, HeadTable]


@pytest.fixture(scope="module")
def decoder() -> Found:
    found = sorted(real_weights(DECODER).glob("*.gguf"))
    if not found:
        pytest.skip(f"{real_weights(DECODER)} does not exist. `make real` downloads it.")
    model, tokenizer = from_gguf(found[0]), tokenizer_from_gguf(found[0])
    return model, head_table(model, torch.tensor([tokenizer.encode(" ".join(TEXT.split())).ids]))


@pytest.mark.parametrize("kind", ["previous", "duplicate", "induction", "sink"])
def test_a_decoder_has_a_few_heads_of_each_kind(decoder: Found, kind: str) -> None:
    column = decoder[1][kind]
    assert column.max() > 0.6
    assert column.median() < 0.4


def test_an_encoder_has_heads_of_the_previous_and_of_the_next_token() -> None:
    folder = real_weights(ENCODER)
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist. `make real` downloads it.")
    table = encoder_table(folder)
    assert table["previous"].max() > 0.6 and table["next"].max() > 0.6


def test_repeated_tokens_need_induction_heads_and_not_others_of_the_same_layers(decoder: Found) -> None:
    model, table = decoder
    generator = torch.Generator().manual_seed(2)
    repeated = repeat_random_tokens(model, 50, generator=generator)
    ranked = [(layer, head) for layer, head, _ in table.top("induction", 10)]
    others = [head for head in table.heads if head not in ranked]
    costs = [loss(model, repeated, sample_same_layers(others, ranked[:3], generator)) for _ in range(3)]
    assert loss(model, repeated, ranked[:3]) > 1.5 * max(costs)
