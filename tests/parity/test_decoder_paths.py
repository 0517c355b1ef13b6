"""Every way in which a decoder generates says what Hugging Face's `generate` says, or is refused with a reason."""

from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.base.errors import ConfigError
from softlook.blocks import Memory
from softlook.decode import Continuing, beam, generate
from softlook.decode.captured.plan import why_not
from softlook.decode.captured.speaker import Captured
from softlook.decode.packed import packed
from softlook.decode.speakers import speaker_for
from softlook.ops.masks import padding
from softlook.serve.slots import Slots
from tests.parity.decoders import END, FAMILIES, IDS, PAD, VARIANTS, small
from tests.parity.weights import close, read

PROMPTS = [[5, 3, 8, 1, 9, 4, 4], [4, 4, 7], [6, 11, 7, 3, 15]]
PLANNED = {("phi3", "a Llama"), ("opt", "plain"), ("opt", "untied, another activation"), ("opt", "norms behind")}
"""What is known to be captured; all else has to be refused."""


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_greedy_words_are_those_of_generate(name: str, variant: str, tmp_path: Path) -> None:
    theirs = small(name, variant)
    ours = read(theirs, tmp_path / "theirs")
    said = generate(ours, PROMPTS, longest=9, end=END)
    assert [answer.ids for answer in said] == greedy(theirs, 9)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_a_packed_copy_says_the_same_step_by_step_and_in_a_beam_search(name: str, variant: str, tmp_path: Path) -> None:
    ours = read(small(name, variant), tmp_path / "theirs")
    copy, memory = packed(ours), Memory()
    steps = [copy(IDS[:, t : t + 1], memory=memory) for t in range(IDS.shape[1])]
    close(torch.cat(steps, 1), ours(IDS))
    found, wanted = (beam(Continuing(model), PROMPTS, beams=3, longest=6, end=END) for model in (copy, ours))
    assert [[one.ids for one in row] for row in found] == [[one.ids for one in row] for row in wanted]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_steps_are_captured_only_where_they_say_the_same(name: str, variant: str, tmp_path: Path) -> None:
    ours = read(small(name, variant), tmp_path / "theirs")
    assert (why_not(ours) is None) == ((name, variant) in PLANNED), why_not(ours)
    if why_not(ours) is not None:
        return
    plain, fast = Continuing(ours), Captured(Continuing(ours))
    for words in (IDS[:, :4], *(IDS[:, t : t + 1] for t in range(4, 9))):
        close(fast.next(words), plain.next(words))


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
@torch.no_grad()
def test_rows_that_join_a_running_batch_say_the_same(name: str, variant: str, tmp_path: Path) -> None:
    ours = read(small(name, variant), tmp_path / "theirs")
    slots, long, short = Slots(), IDS[:1, :8], IDS[1:, :3]
    for row in (long, short):
        kept = Memory()
        ours(row[:, :-1], memory=kept)
        slots.join(kept, [row.shape[1] - 1])
    slots.step()
    lengths = torch.tensor(slots.lengths)
    last = torch.stack([long[0, -1:], short[0, -1:]])
    said = ours(last, memory=slots, mask=padding(lengths, left_of=slots.width), positions=lengths[:, None] - 1)
    close(said[0, -1], ours(long)[0, -1])
    close(said[1, -1], ours(short)[0, -1])


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("kind", ["states", "classes"])
def test_a_model_without_a_head_for_words_does_not_generate(name: str, kind: str, tmp_path: Path) -> None:
    ours = read(small(name, kind=kind), tmp_path / "theirs")
    with pytest.raises(ConfigError, match=f"answers with {kind}; only a model with a head for words generates"):
        speaker_for(ours)
    assert why_not(ours) is not None


def greedy(theirs: Any, longest: int) -> list[list[int]]:
    """What `generate` says after each prompt, up to the end."""
    width = max(map(len, PROMPTS))
    ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in PROMPTS])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS])
    said = theirs.generate(ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, eos_token_id=END)
    return [row[: row.index(END)] if END in row else row for row in said[:, width:].tolist()]
