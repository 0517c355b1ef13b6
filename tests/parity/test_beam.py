"""Beam search that finds what Hugging Face's `generate` finds, by the same weights: words and scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from softlook.decode import (
    CausalLMSession,
    LogitsProcessor,
    Seq2SeqSession,
    beam_search,
    no_repeat_ngram,
    repetition_penalty,
)
from softlook.decode.beam.hypotheses import Hypothesis
from softlook.decode.cpu import prepack_for_cpu
from tests.parity.comparison import read
from tests.parity.seq2seq import both
from tests.parity.test_generate import DECODERS, PAD, TRANSLATORS, VOCAB

SOURCES = [[5, 3, 8, 1, 9], [4, 4, 7, 0, 2], [6, 0, 7, 3, 1]]
LONGEST = 8
HOW: dict[str, tuple[dict[str, Any], dict[str, Any], list[LogitsProcessor]]] = {
    "mean": ({"length_penalty": 1.0}, {"length_penalty": 1.0}, []),
    "none": ({"length_penalty": 0.0}, {"length_penalty": 0.0}, []),
    "long": ({"length_penalty": 2.0}, {"length_penalty": 2.0}, []),
    "least": ({"length_penalty": 0.6, "min_new_tokens": 4}, {"length_penalty": 0.6, "min_new_tokens": 4}, []),
    "logits_processors": (
        {"length_penalty": 1.0, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
        {"length_penalty": 1.0},
        [repetition_penalty(1.3), no_repeat_ngram(2)],
    ),
}


Wanted = list[list[tuple[list[int], float]]]


def theirs_found(reference: Any, ids: torch.Tensor, present: torch.Tensor, end: int, **how: Any) -> Wanted:
    """Their n-best lists. Theirs stops when nothing better can come only with early_stopping="never"."""
    with torch.no_grad():
        output = reference.generate(
            ids, attention_mask=present, do_sample=False, num_beams=4, num_return_sequences=4, max_new_tokens=LONGEST,
            early_stopping="never", return_dict_in_generate=True, output_scores=True, eos_token_id=end, **how,
        )  # fmt: skip
    new = output.sequences[:, 1 if reference.config.is_encoder_decoder else ids.shape[1] :].tolist()
    rows = [row[: row.index(end)] if end in row else row[:LONGEST] for row in new]
    fields = list(zip(rows, output.sequences_scores.tolist(), strict=True))
    return [fields[i : i + 4] for i in range(0, len(fields), 4)]


def held_against(actual: list[list[Hypothesis]], expected: Wanted) -> None:
    for found, other in zip(actual, expected, strict=True):
        assert [one.ids for one in found] == [ids for ids, _ in other]
        assert [one.score for one in found] == pytest.approx([score for _, score in other], abs=1e-4)


def telling_end(find: Callable[[int], Wanted]) -> tuple[int, Wanted]:
    """An end with which what is found is of many lengths, and no two are as good as each other."""
    best, most = None, 0
    for end in range(VOCAB):
        if end == PAD:
            continue
        expected = find(end)
        lengths = {len(ids) for found in expected for ids, _ in found}
        apart = all(found[i][1] - found[i + 1][1] > 2e-5 for found in expected for i in range(3))
        if apart and len(lengths) > most:
            best, most = (end, expected), len(lengths)
        if most >= 4:
            break
    assert best is not None and most > 1
    return best


def sharpened(model: Any) -> Any:
    """So that scores lie well apart."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0 if parameter.ndim > 1 else 1.0)
    return model.eval()


SEEDS = {"Marian": 2}
"""Of models whose scores lie apart with every setting."""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_and_their_scores_are_those_of_hugging_face(name: str, how: str, tmp_path: Path) -> None:
    torch.manual_seed(SEEDS.get(name, 1))
    actual, reference = both(sharpened(TRANSLATORS[name]()), tmp_path)
    (settings, own, rules), source = HOW[how], torch.tensor(SOURCES)
    present = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 5])
    end, expected = telling_end(lambda end: theirs_found(reference, source, present, end, **settings))
    start = torch.full((3, 1), PAD)
    for model in (actual, prepack_for_cpu(actual)):
        speaker = Seq2SeqSession(model, source, present.bool())
        held_against(
            beam_search(speaker, start, eos_ids=end, max_new_tokens=LONGEST, logits_processors=rules, **own), expected
        )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", DECODERS)
def test_continuations_and_their_scores_are_those_of_hugging_face(name: str, how: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    reference = sharpened(DECODERS[name]())
    actual, (settings, own, rules) = read(reference, tmp_path), HOW[how]
    prompts = [[5, 3, 8, 1, 9], [4, 4], [6, 0, 7]]

    def find(end: int) -> Wanted:
        each = [torch.tensor([prompt]) for prompt in prompts]
        return [theirs_found(reference, ids, torch.ones_like(ids), end, **settings)[0] for ids in each]

    end, expected = telling_end(find)
    for model in (actual, prepack_for_cpu(actual)):
        held_against(
            beam_search(
                CausalLMSession(model), prompts, eos_ids=end, max_new_tokens=LONGEST, logits_processors=rules, **own
            ),
            expected,
        )
