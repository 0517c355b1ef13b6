"""N-gram language models beside attention: distributions, causality, caches, packed rows, saving."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.blocks.kv_cache import KVCache
from softlook.decode import ContextShift, beam_search, create_session, generate, stream
from softlook.decode.cuda_graphs.session import model_unsupported_reason
from softlook.decode.sessions import CausalLMSession
from softlook.heads.ngram_lm import NEIGHBOR_KINDS, NGramLM
from softlook.models import GPT, Bert, BertConfig, GPTConfig, Llama, LlamaConfig
from softlook.ops import masks
from softlook.recipes.inference.pipeline import replace_head
from softlook.recipes.text.neighbor_model import NeighborModel
from softlook.recipes.text.ngram_lm import KneserNeyModel
from softlook.serve.engine.kv_cache import RaggedKVCache
from softlook.train.batching.packed_stream import TokenizedDocuments
from softlook.weights import load, save, to_hugging_face, to_onnx

V = 7
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
ROW = st.lists(st.integers(0, V - 1), min_size=1, max_size=12)


def documents(rows: list[list[int]]) -> TokenizedDocuments:
    lengths = torch.tensor([len(row) for row in rows])
    return TokenizedDocuments(torch.tensor(sum(rows, [])), lengths.cumsum(0) - lengths)


def ngram_lm(order: int = 4, seed: int = 0) -> NGramLM:
    """The n-grams of a random text, and a random gate."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(0, V - 1, (300,), generator=generator)  # the last token does not occur
    made = KneserNeyModel(TokenizedDocuments(text, torch.tensor([0, 100])), vocab_size=V, order=order).to_module()
    made.gate.copy_(torch.randn(made.gate.shape, generator=generator) / 2)
    return made


def language_model(kind: str = "gpt", ngrams: NGramLM | None = None, context: int = 32) -> GPT | Llama:
    torch.manual_seed(0)
    made = ngrams or ngram_lm()
    sizes: dict[str, Any] = {"vocab_size": V, "context": context, "dim": 16, "depth": 2, "heads": 2}
    options = {**sizes, "dropout": 0.0, "ngrams": made.config}
    model = GPT(GPTConfig(**options)) if kind == "gpt" else Llama(LlamaConfig(**options))
    model.ngrams = made
    return model.eval()


@settings(max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=5), ROW, st.integers(1, 5))
def test_probabilities_equal_those_of_the_counts(train: list[list[int]], text: list[int], order: int) -> None:
    counted = KneserNeyModel(documents(train), vocab_size=V, order=order)
    ids, made = torch.tensor([text]), counted.to_module()
    own, length = made.logprobs(ids, torch.arange(len(text))[None])
    torch.testing.assert_close(own.exp().sum(-1), torch.ones(1, len(text)))
    assert (length <= torch.arange(1, len(text) + 1)).all() and int(length.max()) < order
    torch.testing.assert_close(
        own[0, :-1].gather(-1, ids[0, 1:, None])[:, 0].double(), counted.logprobs(documents([text])), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("kind", ["gpt", "llama"])
@pytest.mark.parametrize("device", DEVICES)
def test_the_mix_is_a_distribution_between_both(kind: str, device: str) -> None:
    model = language_model(kind).to(device)
    ids = torch.randint(0, V, (3, 9), device=device)
    mixed = model(ids).softmax(-1)
    model.ngrams.enabled = False  # pyright: ignore[reportOptionalMemberAccess]
    attention = model(ids).softmax(-1)
    own = model.ngrams.logprobs(ids, torch.arange(9, device=device).expand(3, 9))[0].exp()  # pyright: ignore[reportOptionalMemberAccess]
    torch.testing.assert_close(mixed.sum(-1), torch.ones(3, 9, device=device))
    assert (mixed <= torch.maximum(attention, own) + 1e-6).all()
    assert (mixed >= torch.minimum(attention, own) - 1e-6).all()


def test_training_ignores_the_ngrams() -> None:
    model = language_model().train()
    ids = torch.randint(0, V, (2, 5))
    expected = model(ids)
    assert {"ngrams." in name for name, _ in model.named_parameters()} == {False}
    model.ngrams = None
    assert torch.equal(model(ids), expected)


def test_changing_the_future_does_not_change_the_past() -> None:
    model, ids = language_model(), torch.randint(0, V, (2, 8))
    changed = ids.clone()
    changed[:, 5:] = (ids[:, 5:] + 1) % V
    torch.testing.assert_close(model(changed)[:, :5], model(ids)[:, :5])
    assert not torch.allclose(model(changed)[:, 5:], model(ids)[:, 5:])


@pytest.mark.parametrize("kind", ["gpt", "llama"])
@pytest.mark.parametrize("sizes", [[8], [1] * 8, [3, 4, 1]])
def test_a_cache_changes_speed_not_answers(kind: str, sizes: list[int]) -> None:
    model, ids, cache = language_model(kind), torch.randint(0, V, (2, 8)), KVCache()
    steps = torch.cat([model(part, cache=cache) for part in ids.split(sizes, 1)], 1)
    torch.testing.assert_close(steps, model(ids), atol=1e-4, rtol=1e-4)
    cache.crop(2)
    cache.reorder(torch.tensor([1, 0]))
    last = model(ids.flip(0)[:, 6:], cache=cache, logits_to_keep=1)
    torch.testing.assert_close(last, model(ids.flip(0))[:, -1:], atol=1e-4, rtol=1e-4)


def test_packed_documents_equal_each_alone() -> None:
    model, ids = language_model(), torch.randint(0, V, (1, 9))
    document_ids, positions = torch.tensor([[0] * 4 + [1] * 5]), torch.tensor([[*range(4), *range(5)]])
    packed = model(ids, mask=masks.documents(document_ids), positions=positions)
    alone = torch.cat([model(ids[:, :4]), model(ids[:, 4:])], 1)
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-4)


PROMPTS = [[1, 2, 3], [4], [5, 0, 1, 2, 3, 4]]


def test_a_batch_of_prompts_equals_each_alone_and_no_cache() -> None:
    model = language_model()
    outputs = [output.ids for output in generate(model, PROMPTS, max_new_tokens=6)]
    assert outputs == [[token.id for token in stream(model, prompt, max_new_tokens=6)] for prompt in PROMPTS]
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        assert output == greedy(model, prompt, 6)


def greedy(model: GPT | Llama, prompt: list[int], count: int) -> list[int]:
    """Greedy decoding without a cache."""
    row = list(prompt)
    for _ in range(count):
        row.append(int(model(torch.tensor([row]))[0, -1].argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("num_beams", [1, 3])
def test_beams_are_scored_by_the_mix(num_beams: int) -> None:
    model, prompt = language_model(), PROMPTS[0]
    found = beam_search(create_session(model), [prompt], num_beams=num_beams, eos_ids=V - 1, max_new_tokens=5)[0]
    for hypothesis in found:
        end = [] if hypothesis.eos_id is None else [hypothesis.eos_id]
        row = torch.tensor([[*prompt, *hypothesis.ids, *end]])
        logprobs = model(row).log_softmax(-1)[0, len(prompt) - 1 : -1].gather(-1, row[0, len(prompt) :, None])
        assert hypothesis.logprob == pytest.approx(logprobs.sum().item(), abs=1e-3)


def test_speculative_decoding_gives_the_same_output() -> None:
    model = language_model()
    tokens = stream(model, PROMPTS[0], max_new_tokens=8, draft=lambda ids: [1, 2, 3])
    assert [token.id for token in tokens] == greedy(model, PROMPTS[0], 8)


def test_generation_continues_beyond_the_context() -> None:
    model = language_model(context=8)
    tokens = list(stream(model, PROMPTS[0], max_new_tokens=20, context_shift=ContextShift(0)))
    assert len(tokens) == 20


def test_rows_of_a_running_batch_equal_each_alone() -> None:
    model, cache = language_model(), RaggedKVCache()
    for prompt in PROMPTS:
        prefilled = KVCache()
        model(torch.tensor([prompt]), cache=prefilled)
        cache.add_rows(prefilled, [len(prompt)])
    cache.advance()
    lengths = torch.tensor(cache.lengths)
    mask = masks.padding(lengths, side="left", length=cache.width)
    logits = model(torch.tensor([[0], [1], [2]]), cache=cache, mask=mask, positions=lengths[:, None] - 1)
    alone = [model(torch.tensor([[*prompt, new]]))[:, -1:] for new, prompt in enumerate(PROMPTS)]
    torch.testing.assert_close(logits, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_a_saved_model_gives_equal_logits(tmp_path: Path) -> None:
    model, ids = language_model("llama"), torch.randint(0, V, (2, 6))
    loaded = load(save(model, tmp_path / "model"))
    assert loaded.config == model.config
    assert torch.equal(loaded(ids), model(ids))


@pytest.mark.parametrize("export", [to_hugging_face, to_onnx])
def test_a_model_with_ngrams_cannot_be_exported(export: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="--no-ngrams"):
        export(language_model(), tmp_path / "exported")


def test_cuda_graphs_leave_a_model_with_ngrams_out() -> None:
    assert model_unsupported_reason(CausalLMSession(language_model())) == "it has an n-gram model"


MASK, END = 1, 0


@settings(max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=5), ROW)
def test_neighbor_probabilities_equal_those_of_the_counts(train: list[list[int]], text: list[int]) -> None:
    counted = NeighborModel(documents(train), vocab_size=V)
    made, ids = counted.to_module(mask_id=MASK, special_ids=(END, MASK)), torch.tensor([text])
    own, kind = made.logprobs(ids, torch.ones_like(ids, dtype=torch.bool))
    seen = [V, *(NeighborModel.UNKNOWN if id == MASK else V if id == END else id for id in text), V]
    for place in range(len(text)):
        expected = counted.distribution(seen[place], seen[place + 2])
        torch.testing.assert_close(own[place].exp().double(), expected, atol=1e-5, rtol=1e-4)
    assert ((kind >= NEIGHBOR_KINDS) == (ids[0] == MASK)).all()


def test_a_masked_language_model_mixes_its_neighbors_and_is_saved(tmp_path: Path) -> None:
    counted = NeighborModel(documents([[2, 3, 4, 5] * 5, [3, 4, 6]]), vocab_size=V)
    made = counted.to_module(mask_id=MASK, special_ids=(END, MASK))
    sizes: dict[str, Any] = {"vocab_size": V, "context": 8, "dim": 16, "depth": 1, "heads": 2}
    model = Bert(BertConfig(**sizes, neighbors=made.config)).eval()
    model.ngrams = made
    made.gate.fill_(-20.0)  # the neighbors alone
    ids = torch.tensor([[2, 3, MASK, 5]])
    assert int(model(ids)[0, 2].argmax()) == 4
    loaded = load(save(model, tmp_path / "bert"))
    assert loaded.config == model.config and torch.equal(loaded(ids), model(ids))
    with pytest.raises(WeightsError, match="--no-ngrams"):
        to_hugging_face(model, tmp_path / "hf")
    encoder = replace_head(model, head="hidden_states")
    assert encoder.config.neighbors is None and encoder.ngrams is None


def test_half_precision_weights_give_similar_probabilities() -> None:
    ids: Tensor = torch.randint(0, V, (2, 6))
    expected = language_model()(ids).softmax(-1)
    torch.testing.assert_close(language_model().bfloat16()(ids).float().softmax(-1), expected, atol=0.05, rtol=0.1)
