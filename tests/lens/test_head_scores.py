"""The head table recognizes heads that are built by hand, and its statistics are those of the dense map."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from softlook import masks
from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import AttentionCore
from softlook.lens import trace
from softlook.lens.copying import copying_scores
from softlook.lens.head_patterns import pattern_statistics
from softlook.lens.head_scores import MEASURED, head_table, repeat_random_tokens, repeat_scores, text_scores
from softlook.lens.head_table import HeadTable
from softlook.lens.trace import AttentionCall, AttentionTrace, Trace
from softlook.models import GPT, T5, Bert, BertConfig, GPTConfig, Llama, LlamaConfig, T5Config
from softlook.weights import from_hugging_face

SIZES: dict[str, Any] = {"vocab_size": 30, "dim": 32, "depth": 2, "heads": 4}
IDS = torch.randint(30, (2, 14), generator=torch.Generator().manual_seed(0))
PADDING = torch.arange(14) < torch.tensor([[14], [9]])


def gpt(**changes: Any) -> GPT:
    options: dict[str, Any] = SIZES | {"context": 64} | changes
    return GPT(GPTConfig(**options)).eval()


def built(visible: Tensor, mask: Any = None, sink: float | None = None) -> Trace:
    """A trace of one layer with one head that attends to the keys given by a (T, T) or (B, 1, T, T) mask."""
    bias = torch.where(visible, 30.0, 0.0).expand(2, 1, *visible.shape[-2:])
    key = torch.zeros(2, 1, visible.shape[-1], 4)
    call = AttentionCall(AttentionCore(sink=sink), key, key, mask, bias, key.norm(dim=-1))
    return Trace({"blocks.0.attn": AttentionTrace([call])}, {})


def offset_map(offset: int, length: int = 14) -> Tensor:
    return torch.arange(length)[:, None] - torch.arange(length) == offset


@pytest.mark.parametrize(("offset", "name"), [(1, "previous"), (0, "same"), (-1, "next")])
def test_heads_that_attend_at_an_offset_are_recognized(offset: int, name: str) -> None:
    scores = text_scores(built(offset_map(offset)), IDS)["blocks.0.attn"]
    assert scores[name].item() > 0.999
    assert scores["offset"].item() == offset and scores["offset weight"].item() > 0.999
    assert scores["local"].item() > 0.9
    assert scores["positional"].item() > 0.99
    others = {"previous", "same", "next"} - {name}
    assert all(scores[other].item() < 0.1 for other in others)


def test_a_head_that_attends_far_away_is_not_local_and_has_its_offset() -> None:
    scores = text_scores(built(offset_map(6), masks.causal()), IDS)["blocks.0.attn"]
    assert scores["offset"].item() == 6
    assert text_scores(built(offset_map(6)), IDS, window=6)["blocks.0.attn"]["local"] > scores["local"]
    assert scores["next"].isnan()


def test_sinks_are_the_first_token_and_the_sink_logit() -> None:
    first = torch.zeros(14, 14).index_fill(1, torch.tensor(0), 1).bool()
    assert text_scores(built(first), IDS)["blocks.0.attn"]["sink"].item() > 0.999
    nothing = torch.zeros(14, 14).bool()
    assert text_scores(built(nothing, sink=30.0), IDS)["blocks.0.attn"]["sink"].item() > 0.999
    even = text_scores(built(nothing), IDS)["blocks.0.attn"]
    torch.testing.assert_close(even["sink"], torch.tensor([1 / 14]))
    torch.testing.assert_close(even["broad"], torch.tensor([1.0]))
    left_padded = PADDING.flip(1)
    second = torch.zeros(2, 1, 14, 14)
    second[0, ..., 0] = second[1, ..., 5] = 1
    recorded = built(second.bool(), masks.dense(left_padded[:, None, None]))
    assert text_scores(recorded, IDS, padding_mask=left_padded)["blocks.0.attn"]["sink"].item() > 0.999


def test_separators_and_rare_tokens_are_keys_by_their_ids() -> None:
    ids = torch.tensor([[5, 3, 9, 3, 7, 29, 8, 3, 6, 4, 1, 2, 1, 2]]).expand(2, -1)
    on_separators = built((ids == 3)[:, None, None].expand(2, 1, 14, 14))
    scores = text_scores(on_separators, ids, separators=[3])["blocks.0.attn"]
    assert scores["separator"].item() > 0.999 and scores["rare"].item() < 0.001
    assert text_scores(on_separators, ids)["blocks.0.attn"]["separator"].isnan()
    on_largest_ids = built(((ids == 29) | (ids == 9))[:, None, None].expand(2, 1, 14, 14))
    assert text_scores(on_largest_ids, ids)["blocks.0.attn"]["rare"].item() > 0.999
    counts = torch.full((30,), 5.0)
    counts[8] = counts[6] = 1
    assert text_scores(on_largest_ids, ids, counts=counts)["blocks.0.attn"]["rare"].item() < 0.001


def test_duplicate_and_induction_heads_are_recognized_on_repeated_tokens() -> None:
    duplicate = repeat_scores(built(offset_map(7), masks.causal()), 7)["blocks.0.attn"]
    assert duplicate["duplicate"].item() > 0.999 and duplicate["induction"].item() < 0.001
    induction = repeat_scores(built(offset_map(6), masks.causal()), 7)["blocks.0.attn"]
    assert induction["induction"].item() > 0.999 and induction["duplicate"].item() < 0.001


@pytest.mark.parametrize("sign", [1, -1])
def test_a_head_that_passes_embeddings_on_copies_and_its_negative_suppresses(sign: int) -> None:
    model = gpt(heads=1, depth=1)
    attn: Any = model.blocks[0].attn  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad():
        attn.to_value.weight.copy_(torch.eye(32))
        attn.to_out.weight.copy_(sign * torch.eye(32))
    scores = copying_scores(model, torch.arange(30))["blocks.0.attn"]
    torch.testing.assert_close(scores, torch.tensor([float(sign)]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("make", [gpt, lambda: Llama(LlamaConfig(**SIZES, kv_heads=2)).eval()])
def test_the_copying_score_is_that_of_the_whole_circuit(make: Any) -> None:
    model = make()
    scores = copying_scores(model, torch.arange(30))["blocks.1.attn"]
    block, head = model.blocks[1], 3
    group = head // (4 // (block.attn.to_value.out_features // 8))
    embedded = block.attn_norm(model.token_embedding.weight)
    value = embedded @ block.attn.to_value.weight[8 * group : 8 * group + 8].T
    output = value @ block.attn.to_out.weight[:, 8 * head : 8 * head + 8].T
    if isinstance(model, GPT):
        output = output - output.mean(-1, keepdim=True)
    eigenvalues = torch.linalg.eigvals((output * model.final_norm.weight) @ model.lm_head.weight.T)
    expected = (eigenvalues.real.sum() / eigenvalues.abs().sum()).detach()
    torch.testing.assert_close(scores[head], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(3), masks.padding([9, 14])])
def test_pattern_statistics_are_those_of_the_dense_map(mask: Any) -> None:
    query, key = torch.randn(2, 2, 4, 14, 8)
    call = AttentionCall(AttentionCore(), query, key[:, :2], mask, None, key[:, :2].norm(dim=-1))
    groups = torch.rand(2, 14, 3)
    read = pattern_statistics(call, [2, 0, -13], groups)
    weights = call.row_look.weights()
    torch.testing.assert_close(read.groups, weights @ groups[:, None])
    torch.testing.assert_close(read.entropy, -torch.xlogy(weights, weights).sum(-1))
    torch.testing.assert_close(read.visible, (weights > 0).sum(-1).float())
    dense = weights.masked_fill(weights == 0, torch.nan)
    expected = dense.diagonal(-2, dim1=2, dim2=3)
    torch.testing.assert_close(read.offsets[:, :, 2:, 0], expected, equal_nan=True)
    torch.testing.assert_close(read.offsets[..., 1], dense.diagonal(dim1=2, dim2=3), equal_nan=True)
    assert read.offsets[:, :, :2, 0].isnan().all() and read.offsets[:, :, 1:, 2].isnan().all()


def test_the_table_has_every_score_of_every_head() -> None:
    table = head_table(gpt(), IDS, separators=[3])
    assert list(table.columns) == list(MEASURED) == list(table.measured)
    assert table.heads == tuple((f"blocks.{layer}.attn", head) for layer in range(2) for head in range(4))
    assert [name for name, column in table.columns.items() if column.isnan().any()] == ["next"]
    encoder = head_table(Bert(BertConfig(**SIZES, context=64)).eval(), IDS, padding_mask=PADDING)
    assert [name for name, column in encoder.columns.items() if column.isnan().any()] == ["separator", "copying"]


def test_a_hugging_face_model_has_the_scores_of_its_softlook_twin(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=30,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=24,
        bos_token_id=None,
        eos_token_id=None,
    )
    original = transformers.LlamaForCausalLM(config).eval()
    original.save_pretrained(tmp_path)
    own, other = head_table(from_hugging_face(tmp_path), IDS), head_table(original, IDS)
    assert [head for _, head in own.heads] == [head for _, head in other.heads]
    for name in set(own.columns) - {"copying", "offset"}:
        torch.testing.assert_close(own[name], other[name], equal_nan=True, atol=1e-4, rtol=1e-3)


def test_padding_does_not_change_the_scores() -> None:
    model = Bert(BertConfig(**SIZES, context=64)).eval()
    short = head_table(model, IDS[1:, :9])
    padded = head_table(model, IDS[1:], padding_mask=PADDING[1:])
    for name, column in short.columns.items():
        torch.testing.assert_close(padded[name], column, equal_nan=True, atol=1e-4, rtol=1e-3)


def test_repeated_tokens_fit_the_context_and_avoid_excluded_ones() -> None:
    tokens = repeat_random_tokens(gpt(context=20), 50, exclude=range(15), generator=torch.Generator().manual_seed(0))
    assert tokens.shape == (4, 20) and torch.equal(tokens[:, :10], tokens[:, 10:])
    assert tokens.min() >= 15


def test_tables_select_sort_and_print() -> None:
    heads = (("a", 0), ("a", 1), ("b<", 0))
    table = HeadTable(heads, {"x": torch.tensor([0.1, torch.nan, 0.7])}, {"x": "how"})
    assert [row[:2] for row in table.top("x")] == [("b<", 0), ("a", 0)]
    torch.testing.assert_close(table.layer("b<", "x"), torch.tensor([0.7]))
    assert str(table).splitlines()[2:] == ["a         1      -", "b<        0  0.700", "x: how"]
    assert "<td>b&lt;</td><td>0</td><td>0.700</td>" in table._repr_html_()
    with pytest.raises(ConfigError, match="no column 'y': expected one of x"):
        table["y"]
    with pytest.raises(ConfigError, match="no layer 'c': expected one of a, b<"):
        table.layer("c", "x")
    with pytest.raises(ShapeError, match="x has a value for each of 3 heads"):
        HeadTable(heads, {"x": torch.zeros(2)}, {})


def test_grids_have_a_row_per_layer_and_a_column_per_head() -> None:
    table = head_table(gpt(), IDS)
    grids = table.grids()
    assert list(grids) == list(table.columns) and grids["sink"].shape == (2, 4)
    torch.testing.assert_close(grids["sink"][1], table.layer("blocks.1.attn", "sink"))
    uneven = HeadTable((("a", 0), ("a", 1), ("b", 0), ("c", 0)), {"x": torch.zeros(4)}, {})
    with pytest.raises(ConfigError, match="the same number of heads in every layer"):
        uneven.grids()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_give_close_scores(dtype: torch.dtype) -> None:
    model = gpt()
    plain, other = head_table(model, IDS), head_table(model.to(dtype), IDS)
    for name in ("sink", "previous", "induction", "copying", "rare"):
        torch.testing.assert_close(other[name], plain[name], atol=0.05, rtol=0)


@pytest.mark.cuda
def test_a_gpu_gives_the_scores_of_the_cpu() -> None:
    model = gpt()
    plain, other = head_table(model, IDS, separators=[3]), head_table(model.cuda(), IDS.cuda(), separators=[3])
    for name in set(plain.columns) - {"offset"}:
        torch.testing.assert_close(other[name], plain[name], atol=1e-3, rtol=1e-3, equal_nan=True)


def test_cross_attention_training_mode_and_other_inputs_are_errors() -> None:
    with pytest.raises(ConfigError, match=r"call model.eval\(\) first"):
        head_table(gpt().train(), IDS)
    model = T5(T5Config(**SIZES, head_dim=8, hidden=64)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS, IDS[:, :5])
    with pytest.raises(ConfigError, match=r"among 14 tokens, but decoder.blocks.0.attn has 5 queries and 5 keys"):
        text_scores(recorded, IDS)
    with pytest.raises(ConfigError, match="expected a model of token ids with config.vocab_size, got Linear"):
        repeat_random_tokens(torch.nn.Linear(2, 2), 5, generator=torch.Generator())
