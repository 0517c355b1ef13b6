"""Logits that are no distribution fail the row that they belong to, and no other row."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook.base.errors import ConfigError, WeightsError
from softlook.decode import Continuing, Said, beam, generate, likeliest, sample, stream
from softlook.decode.captured.speaker import why_not_planned
from softlook.decode.choosing import Asked, choices, chosen
from softlook.decode.habits import Habits
from softlook.decode.picking import Pick, Sample, drawn
from softlook.decode.row_errors import LogitsError, NoTokenLeftError, RowError
from softlook.models import GPT
from tests.models.tiny import TINY

BAD = 10
"""The id after which the model's logits are broken."""
PROMPTS = [[3, 1, 4], [1, 5, BAD], [9, 2, 6], [5, 3, 5]]
BREAKAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "NaN in one place": lambda row: row.index_fill(-1, torch.tensor(2, device=row.device), torch.nan),
    "NaN throughout": lambda row: row * torch.nan,
    "+inf in one place": lambda row: row.index_fill(-1, torch.tensor(2, device=row.device), torch.inf),
    "+inf throughout": lambda row: torch.full_like(row, torch.inf),
    "-inf throughout": lambda row: torch.full_like(row, -torch.inf),
}
PICKS: dict[str, Pick] = {
    "greedy": likeliest(),
    "sampling": sample(temperature=1.3, seed=5),
    "truncated sampling": sample(temperature=0.7, top_k=5, top_p=0.9, min_p=0.01, seed=5),
    "unseeded sampling": sample(),
}
STREAM, BEAM = sys.modules["softlook.decode.stream"], sys.modules["softlook.decode.beam"]


def tiny() -> GPT:
    model = TINY["GPT"].build()
    assert isinstance(model, GPT)
    return model


def breaking(breakage: Callable[[Tensor], Tensor]) -> GPT:
    """A model whose logits are broken in rows that have just read BAD."""
    model = tiny()
    plain = model.forward

    def forward(ids: Tensor, **more: Any) -> Tensor:
        made = plain(ids, **more)
        return torch.where((ids[:, -1] == BAD)[:, None, None], breakage(made), made)

    model.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    return model


@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_a_broken_row_gets_an_error_and_the_others_their_tokens(
    breakage: Callable[[Tensor], Tensor], pick: Pick
) -> None:
    torch.manual_seed(0)
    scores, said = torch.randn(4, 300), [Said([1], (), number) for number in range(4)]
    broken = scores.clone()
    broken[1] = breakage(scores[1:2])[0]
    asked = Asked(pick, (), frozenset(), 3)
    torch.manual_seed(1)
    wanted = choices(scores, said, asked)
    torch.manual_seed(1)
    found = choices(broken, said, asked)
    assert isinstance(found[1], LogitsError) and found[1].rows == (1,)
    assert [one for place, one in enumerate(found) if place != 1] == [
        one for place, one in enumerate(wanted) if place != 1
    ]
    with pytest.raises(LogitsError, match="NaN or infinite in row 1, at new token 1") as raised:
        chosen(broken, said, asked)
    assert raised.value.rows == (1,)


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_a_drawn_id_is_always_one_of_the_vocabulary(breakage: Callable[[Tensor], Tensor]) -> None:
    scores = breakage(torch.randn(8, 50))
    for dice in (0.0, 0.5, 1 - 2**-53):
        assert int(drawn(scores, torch.full((8,), dice, dtype=torch.float64)).max()) < 50
        assert int(drawn(Sample(top_k=3, top_p=0.9).warped(scores), torch.full((8,), dice)).max()) < 50


def test_very_large_logits_at_a_low_temperature_are_still_a_distribution() -> None:
    scores = torch.tensor([[1e37, 3e37, 2e37]])
    assert sample(temperature=1e-6, seed=1)(scores, [Said([0])]).tolist() == [1]


def test_a_few_tokens_that_are_ruled_out_by_the_model_are_no_fault() -> None:
    scores = torch.zeros(2, 4)
    scores[:, 0] = scores[0, 1:3] = -torch.inf
    for pick in PICKS.values():
        tokens = chosen(scores, [Said([1]), Said([1])], Asked(pick, (), frozenset(), 0))
        assert tokens[0].id == 3 and tokens[1].id > 0


@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_the_other_prompts_of_a_batch_are_answered(breakage: Callable[[Tensor], Tensor], pick: Pick) -> None:
    if pick == PICKS["unseeded sampling"]:
        pytest.skip("draws depend on the batch")
    wanted = generate(tiny(), PROMPTS, pick=pick, longest=1)
    with pytest.raises(WeightsError, match="NaN or infinite in row 1") as raised:
        generate(breaking(breakage), PROMPTS, pick=pick, longest=1)
    assert isinstance(raised.value, RowError) and raised.value.rows == (1,)
    assert raised.value.answers == [wanted[0], None, *wanted[2:]]


def test_a_stream_ends_with_the_error_of_its_row() -> None:
    said = stream(breaking(BREAKAGES["NaN throughout"]), [BAD], longest=3)
    with pytest.raises(LogitsError, match="row 0, at new token 1"):
        next(said)


def test_a_row_to_which_rules_leave_nothing_fails_alone() -> None:
    def nothing_for_second(scores: Tensor, said: list[Said]) -> Tensor:
        return torch.stack([row - torch.inf if one.number == 1 else row for row, one in zip(scores, said, strict=True)])

    with pytest.raises(ConfigError, match="leave nothing to be said as word 1 of sequence 1") as raised:
        generate(tiny(), PROMPTS, rules=[nothing_for_second], longest=2)  # pyright: ignore[reportArgumentType]
    assert isinstance(raised.value, NoTokenLeftError)
    assert [answer is None for answer in raised.value.answers] == [False, True, False, False]


def test_a_rule_that_makes_nan_fails_its_row() -> None:
    with pytest.raises(ConfigError, match="make NaN or infinity of logits as word 1"):
        generate(tiny(), [[1]], rules=[lambda scores, said: scores * torch.nan], longest=2)


def test_a_search_to_which_rules_leave_nothing_says_so() -> None:
    habits = Habits(last=(7,), suppressed=(7,), anew=True)  # an end is forced, and suppressed
    with pytest.raises(NoTokenLeftError, match="leave no token"):
        beam(Continuing(tiny()), PROMPTS, end=7, longest=1, beams=2, rules=habits.rules(1, (7,)))


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
@pytest.mark.parametrize("rules", [(), (lambda scores, said: scores - 0.0,)], ids=["plain", "ruled"])
def test_the_other_sequences_of_a_beam_search_are_searched_on(
    breakage: Callable[[Tensor], Tensor], rules: tuple[Any, ...]
) -> None:
    how: dict[str, Any] = {"end": 0, "longest": 4, "beams": 3, "rules": rules}
    wanted = beam(Continuing(tiny()), [PROMPTS[0], *PROMPTS[2:]], **how)
    with pytest.raises(LogitsError, match="row 1") as raised:
        beam(Continuing(only_prompts(breakage)), PROMPTS, **how)
    assert raised.value.rows == (1,)
    found = [answer for answer in raised.value.answers if answer is not None]
    assert [[one.ids for one in several] for several in found] == [[one.ids for one in several] for several in wanted]


def only_prompts(breakage: Callable[[Tensor], Tensor]) -> GPT:
    """As `breaking`, but only for prompts."""
    model = breaking(breakage)
    broken, plain = model.forward, tiny()
    model.forward = lambda ids, **more: (broken if ids.shape[1] > 1 else plain)(ids, **more)  # pyright: ignore
    return model


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are captured that can be, graph or not."""
    for module in (STREAM, BEAM):
        monkeypatch.setattr(module, "why_not", lambda speaker: why_not_planned(speaker))
        monkeypatch.setattr(module, "WORTH", 1)


def broken_embedding(number: float) -> GPT:
    """A model that becomes NaN where BAD is read, and never says BAD."""
    model = TINY["GPT untied"].build()
    assert isinstance(model, GPT)
    with torch.no_grad():
        model.tokens.table.weight[BAD] = number
        model.norm.bias.fill_(1.0)  # pyright: ignore
        model.head.weight[BAD] = -100.0  # pyright: ignore
    return model


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_captured_step_fails_the_broken_row_alone(number: float, pick: Pick) -> None:
    with pytest.raises(LogitsError, match="row 1, at new token 1") as raised:
        generate(broken_embedding(number), [[1], [BAD], [2]], pick=pick, longest=6)
    assert [None if one is None else len(one.ids) for one in raised.value.answers] == [6, None, 6]


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("top", [0, 1])
@pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)
def test_a_step_that_chooses_by_itself_reports_what_is_broken(pick: Pick, top: int) -> None:
    model = broken_embedding(torch.nan)
    with torch.no_grad():
        model.head.weight[BAD] = 100.0  # now BAD is all it says  # pyright: ignore
    answers = generate(model, [[1], [2]], pick=pick, end=BAD, longest=6, top=top)
    assert [(answer.ids, answer.reason) for answer in answers] == [([], "end")] * 2, (
        "what comes after an end is nobody's"
    )
    with pytest.raises(LogitsError, match="rows 0, 1") as raised:
        generate(model, [[1], [2]], pick=pick, longest=6, top=top)
    assert raised.value.answers == [None, None]


@pytest.mark.usefixtures("captures")
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_captured_search_fails_the_broken_sequence_alone(number: float) -> None:
    model = broken_embedding(number)
    wanted = beam(Continuing(model), [[1], [2]], end=0, longest=5, beams=2)
    with pytest.raises(LogitsError, match="row 1") as raised:
        beam(Continuing(model), [[1], [BAD], [2]], end=0, longest=5, beams=2)
    assert raised.value.rows == (1,)
    found = [answer for answer in raised.value.answers if answer is not None]
    assert [[one.ids for one in several] for several in found] == [[one.ids for one in several] for several in wanted]


@pytest.mark.cuda
@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=BREAKAGES)
def test_broken_logits_on_a_gpu_leave_the_process_alive(breakage: Callable[[Tensor], Tensor]) -> None:
    scores = breakage(torch.randn(4, 300, device="cuda"))
    found = choices(scores, [Said([1])] * 4, Asked(sample(seed=1), (), frozenset(), 0))
    assert all(isinstance(one, LogitsError) for one in found)
    torch.cuda.synchronize()
