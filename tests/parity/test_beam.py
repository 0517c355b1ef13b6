"""Beam search gives the tokens and scores of Hugging Face's `generate`, with the same weights."""

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
from tests.parity.comparison import import_model
from tests.parity.seq2seq import load_both
from tests.parity.test_generate import DECODERS, PAD, TRANSLATORS, VOCAB

SOURCES = [[5, 3, 8, 1, 9], [4, 4, 7, 0, 2], [6, 0, 7, 3, 1]]
MAX_NEW_TOKENS = 8
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], list[LogitsProcessor]]] = {
    "mean": ({"length_penalty": 1.0}, {"length_penalty": 1.0}, []),
    "none": ({"length_penalty": 0.0}, {"length_penalty": 0.0}, []),
    "long": ({"length_penalty": 2.0}, {"length_penalty": 2.0}, []),
    "min_new_tokens": ({"length_penalty": 0.6, "min_new_tokens": 4}, {"length_penalty": 0.6, "min_new_tokens": 4}, []),
    "logits_processors": (
        {"length_penalty": 1.0, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
        {"length_penalty": 1.0},
        [repetition_penalty(1.3), no_repeat_ngram(2)],
    ),
}


Candidates = list[list[tuple[list[int], float]]]


def run_reference(reference: Any, ids: torch.Tensor, mask: torch.Tensor, eos_id: int, **settings: Any) -> Candidates:
    """The n-best lists of `generate`, whose search is exhaustive only with early_stopping="never"."""
    with torch.no_grad():
        output = reference.generate(
            ids, attention_mask=mask, do_sample=False, num_beams=4, num_return_sequences=4,
            max_new_tokens=MAX_NEW_TOKENS, early_stopping="never", return_dict_in_generate=True, output_scores=True,
            eos_token_id=eos_id, **settings,
        )  # fmt: skip
    new = output.sequences[:, 1 if reference.config.is_encoder_decoder else ids.shape[1] :].tolist()
    rows = [row[: row.index(eos_id)] if eos_id in row else row[:MAX_NEW_TOKENS] for row in new]
    flat = list(zip(rows, output.sequences_scores.tolist(), strict=True))
    return [flat[i : i + 4] for i in range(0, len(flat), 4)]


def compare(actual: list[list[Hypothesis]], expected: Candidates) -> None:
    for found, other in zip(actual, expected, strict=True):
        assert [one.ids for one in found] == [ids for ids, _ in other]
        assert [one.score for one in found] == pytest.approx([score for _, score in other], abs=1e-4)


def choose_eos(find: Callable[[int], Candidates]) -> tuple[int, Candidates]:
    """An end-of-sequence token with which candidates have many lengths and no tied scores."""
    best, num_lengths = None, 0
    for eos_id in range(VOCAB):
        if eos_id == PAD:
            continue
        expected = find(eos_id)
        lengths = {len(ids) for found in expected for ids, _ in found}
        untied = all(found[i][1] - found[i + 1][1] > 2e-5 for found in expected for i in range(3))
        if untied and len(lengths) > num_lengths:
            best, num_lengths = (eos_id, expected), len(lengths)
        if num_lengths >= 4:
            break
    assert best is not None and num_lengths > 1
    return best


def scale_weights(model: Any) -> Any:
    """Scale the weights, so that scores differ clearly."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0 if parameter.ndim > 1 else 1.0)
    return model.eval()


SEEDS = {"Marian": 2}
"""Seeds of models without tied scores in any setting."""


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_and_their_scores_match_hugging_face(name: str, setting: str, tmp_path: Path) -> None:
    torch.manual_seed(SEEDS.get(name, 1))
    actual, reference = load_both(scale_weights(TRANSLATORS[name]()), tmp_path)
    (settings, own, processors), source = SETTINGS[setting], torch.tensor(SOURCES)
    mask = torch.tensor([[1] * 5, [1] * 3 + [0] * 2, [1] * 5])
    eos_id, expected = choose_eos(lambda eos_id: run_reference(reference, source, mask, eos_id, **settings))
    start = torch.full((3, 1), PAD)
    for model in (actual, prepack_for_cpu(actual)):
        session, options = Seq2SeqSession(model, source, mask.bool()), {"logits_processors": processors, **own}
        compare(beam_search(session, start, eos_ids=eos_id, max_new_tokens=MAX_NEW_TOKENS, **options), expected)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", DECODERS)
def test_continuations_and_their_scores_match_hugging_face(name: str, setting: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    reference = scale_weights(DECODERS[name]())
    actual, (settings, own, processors) = import_model(reference, tmp_path), SETTINGS[setting]
    prompts = [[5, 3, 8, 1, 9], [4, 4], [6, 0, 7]]

    def find(eos_id: int) -> Candidates:
        each = [torch.tensor([prompt]) for prompt in prompts]
        return [run_reference(reference, ids, torch.ones_like(ids), eos_id, **settings)[0] for ids in each]

    eos_id, expected = choose_eos(find)
    for model in (actual, prepack_for_cpu(actual)):
        session, options = CausalLMSession(model), {"logits_processors": processors, **own}
        compare(beam_search(session, prompts, eos_ids=eos_id, max_new_tokens=MAX_NEW_TOKENS, **options), expected)
