"""Every way in which a decoder generates says what Hugging Face's `generate` says, or is refused with a reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.blocks import KVCache
from softlook.decode import CausalLMSession, beam_search, generate
from softlook.decode.cpu import prepack_for_cpu
from softlook.decode.cuda_graphs.session import CudaGraphSession, unsupported_reason
from softlook.decode.sessions import create_session
from softlook.ops.masks import padding
from softlook.serve.engine.kv_cache import RaggedKVCache
from tests.parity.comparison import close, read
from tests.parity.decoders import END, FAMILIES, IDS, PAD, VARIANTS, small

PROMPTS = [[5, 3, 8, 1, 9, 4, 4], [4, 4, 7], [6, 11, 7, 3, 15]]
PLANNED = {("phi3", "a Llama"), ("opt", "plain"), ("opt", "untied, another activation"), ("opt", "norms behind")}
"""What is known to be captured; all else has to be refused."""


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_greedy_decoding_matches_generate(name: str, variant: str, tmp_path: Path) -> None:
    reference = small(name, variant)
    actual = read(reference, tmp_path / "hf")
    generated = generate(actual, PROMPTS, max_new_tokens=9, eos_ids=END)
    assert [answer.ids for answer in generated] == greedy(reference, 9)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_a_prepacked_copy_matches_step_by_step_and_in_beam_search(name: str, variant: str, tmp_path: Path) -> None:
    actual = read(small(name, variant), tmp_path / "hf")
    copy, memory = prepack_for_cpu(actual), KVCache()
    steps = [copy(IDS[:, t : t + 1], cache=memory) for t in range(IDS.shape[1])]
    close(torch.cat(steps, 1), actual(IDS))
    found, expected = (
        beam_search(CausalLMSession(model), PROMPTS, num_beams=3, max_new_tokens=6, eos_ids=END)
        for model in (copy, actual)
    )
    assert [[one.ids for one in row] for row in found] == [[one.ids for one in row] for row in expected]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_steps_are_captured_only_if_outputs_are_equal(name: str, variant: str, tmp_path: Path) -> None:
    actual = read(small(name, variant), tmp_path / "hf")
    assert (unsupported_reason(actual) is None) == ((name, variant) in PLANNED), unsupported_reason(actual)
    if unsupported_reason(actual) is not None:
        return
    plain, fast = CausalLMSession(actual), CudaGraphSession(CausalLMSession(actual))
    for words in (IDS[:, :4], *(IDS[:, t : t + 1] for t in range(4, 9))):
        close(fast.step(words), plain.step(words))


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_rows_that_join_a_running_batch_give_the_same_outputs(name: str, variant: str, tmp_path: Path) -> None:
    actual = read(small(name, variant), tmp_path / "hf")
    slots, long, short = RaggedKVCache(), IDS[:1, :8], IDS[1:, :3]
    for row in (long, short):
        kept = KVCache()
        actual(row[:, :-1], cache=kept)
        slots.add_rows(kept, [row.shape[1] - 1])
    slots.advance()
    lengths = torch.tensor(slots.lengths)
    last = torch.stack([long[0, -1:], short[0, -1:]])
    generated = actual(
        last, cache=slots, mask=padding(lengths, side="left", length=slots.width), positions=lengths[:, None] - 1
    )
    close(generated[0, -1], actual(long)[0, -1])
    close(generated[1, -1], actual(short)[0, -1])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["hidden_states", "classification"])
def test_a_model_without_an_lm_head_cannot_generate(name: str, kind: str, tmp_path: Path) -> None:
    actual = read(small(name, kind=kind), tmp_path / "hf")
    with pytest.raises(ConfigError, match=f"answers with {kind}; only a model with a head for words generates"):
        create_session(actual)
    assert unsupported_reason(actual) is not None


def greedy(reference: Any, longest: int) -> list[list[int]]:
    """What `generate` says after each prompt, up to the end."""
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS])
    generated = reference.generate(ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, eos_token_id=END)
    return [row[: row.index(END)] if END in row else row for row in generated[:, width:].tolist()]
