"""Every decoding path of a decoder matches Hugging Face's `generate`, or is rejected with a reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.blocks import KVCache
from softlook.decode import CausalLMSession, beam_search, generate
from softlook.decode.cpu import prepack_for_cpu
from softlook.decode.cuda_graphs.session import CudaGraphSession
from softlook.decode.cuda_graphs.weights import unsupported_reason
from softlook.decode.sessions import create_session
from softlook.ops.masks import padding
from softlook.serve.engine.kv_cache import RaggedKVCache
from tests.parity.comparison import close, import_model
from tests.parity.decoders import END, FAMILIES, IDS, PAD, VARIANTS, small

PROMPTS = [[5, 3, 8, 1, 9, 4, 4], [4, 4, 7], [6, 11, 7, 3, 15]]
CAPTURED = {("phi3", "a Llama"), ("opt", "plain"), ("opt", "untied, another activation"), ("opt", "post-norm")}
"""Models that CUDA graphs support; all others must be rejected."""


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_greedy_decoding_matches_generate(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = import_model(reference, tmp_path / "hf")
    outputs = generate(actual, PROMPTS, max_new_tokens=9, eos_ids=END)
    assert [output.ids for output in outputs] == greedy(reference, 9)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_a_prepacked_copy_matches_step_by_step_and_in_beam_search(name: str, variant: str, tmp_path: Path) -> None:
    actual = import_model(small(name, variant), tmp_path / "hf")
    copy, cache = prepack_for_cpu(actual), KVCache()
    steps = [copy(IDS[:, t : t + 1], cache=cache) for t in range(IDS.shape[1])]
    close(torch.cat(steps, 1), actual(IDS))
    found, expected = (
        beam_search(CausalLMSession(model), PROMPTS, num_beams=3, max_new_tokens=6, eos_ids=END)
        for model in (copy, actual)
    )
    assert [[one.ids for one in row] for row in found] == [[one.ids for one in row] for row in expected]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_steps_are_captured_only_if_outputs_are_equal(name: str, variant: str, tmp_path: Path) -> None:
    actual = import_model(small(name, variant), tmp_path / "hf")
    assert (unsupported_reason(actual) is None) == ((name, variant) in CAPTURED), unsupported_reason(actual)
    if unsupported_reason(actual) is not None:
        return
    plain, fast = CausalLMSession(actual), CudaGraphSession(CausalLMSession(actual))
    for ids in (IDS[:, :4], *(IDS[:, t : t + 1] for t in range(4, 9))):
        close(fast.step(ids), plain.step(ids))


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_rows_that_join_a_running_batch_give_the_same_outputs(name: str, variant: str, tmp_path: Path) -> None:
    actual = import_model(small(name, variant), tmp_path / "hf")
    cache, long, short = RaggedKVCache(), IDS[:1, :8], IDS[1:, :3]
    for row in (long, short):
        prefilled = KVCache()
        actual(row[:, :-1], cache=prefilled)
        cache.add_rows(prefilled, [row.shape[1] - 1])
    cache.advance()
    lengths = torch.tensor(cache.lengths)
    last = torch.stack([long[0, -1:], short[0, -1:]])
    logits = actual(
        last, cache=cache, mask=padding(lengths, side="left", length=cache.width), positions=lengths[:, None] - 1
    )
    close(logits[0, -1], actual(long)[0, -1])
    close(logits[1, -1], actual(short)[0, -1])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["hidden_states", "classification"])
def test_a_model_without_an_lm_head_cannot_generate(name: str, kind: str, tmp_path: Path) -> None:
    actual = import_model(small(name, kind=kind), tmp_path / "hf")
    with pytest.raises(ConfigError, match=f"has a '{kind}' head: only a language-modeling head generates text"):
        create_session(actual)
    assert unsupported_reason(actual) is not None


def greedy(reference: Any, max_new_tokens: int) -> list[list[int]]:
    """The new tokens of `generate` for each prompt, without the end-of-sequence token."""
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS])
    output = reference.generate(
        ids, attention_mask=mask, max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=END
    )
    return [row[: row.index(END)] if END in row else row for row in output[:, width:].tolist()]
