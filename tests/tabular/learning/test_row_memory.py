"""A memory of rows: a soft look at what was learned from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from softlook.models import TableTransformer, TableTransformerConfig
from softlook.tabular import FTTransformerRegressor, load
from softlook.tabular.encoding.rows import Rows
from softlook.tabular.encoding.targets import Amounts, Classes
from softlook.tabular.learning.fitting import answers
from softlook.tabular.learning.row_memory import FEW_JUDGES, Memory, remember, states_of

AMOUNTS = Amounts(np.zeros(1), np.ones(1), ())


def model() -> TableTransformer:
    torch.manual_seed(0)
    return TableTransformer(TableTransformerConfig(numbers=2, members=3, dim=16, depth=2, heads=2, bins=8)).eval()


def rows(count: int, wanted: Tensor | None = None, seed: int = 0) -> Rows:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    found = cells[:, :1] * 3 if wanted is None else wanted
    return Rows(cells, torch.zeros(count, 0).long(), found, torch.ones(count))


def memory(keys: Tensor, values: Tensor, *, width: float, share: float = 1.0, weight: Tensor | None = None) -> Memory:
    return Memory(keys.half(), values, torch.ones(len(keys)) if weight is None else weight, width, share)


def test_a_narrow_look_at_what_is_known_finds_what_was_wanted_of_it() -> None:
    keys = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).half().float()
    values = torch.arange(50.0)[:, None]
    found = memory(keys, values, width=1e-6).joined(torch.zeros(50, 1).double(), keys)
    torch.testing.assert_close(found, values.double())


def test_a_look_is_the_kernel_regression_of_nadaraya_and_watson() -> None:
    random = torch.Generator().manual_seed(1)
    keys, states = (torch.randn(count, 3, generator=random).half().double() for count in (20, 5))
    values, weight = torch.randn(20, 2, generator=random), torch.rand(20, generator=random) + 0.5
    kernel = weight * (-torch.cdist(states, keys).square() / 0.7).exp()
    wanted = kernel @ values.double() / kernel.sum(1, keepdim=True)
    found = memory(keys, values, width=0.7, weight=weight).joined(torch.zeros(5, 2).double(), states)
    torch.testing.assert_close(found, wanted)


def test_the_share_is_how_much_of_the_answer_it_makes_up() -> None:
    keys, said = torch.zeros(1, 2), torch.tensor([[2.0]]).double()
    found = memory(keys, torch.tensor([[10.0]]), width=1.0, share=0.25).joined(said, torch.ones(1, 2))
    assert found.item() == pytest.approx(4.0)


def test_rows_are_remembered_where_they_help_those_held_out() -> None:
    made, held = model(), rows(FEW_JUDGES, seed=1)
    found = remember(made, rows(500), held, targets=AMOUNTS, most=10_000, seed=0)
    assert found is not None and 0 < found.share <= 1 and len(found.keys) == 500
    assert held.wanted is not None
    with_it, without = (
        (answers(made, held, AMOUNTS, each) - held.wanted).square().mean().item() for each in (found, None)
    )
    assert with_it < 0.5 * without


def test_rows_that_say_nothing_are_not_remembered() -> None:
    made, held = model(), rows(FEW_JUDGES, seed=1)
    said = answers(made, held, AMOUNTS).float()
    noise = rows(500, wanted=100 * torch.randn(500, 1, generator=torch.Generator().manual_seed(2)))
    assert remember(made, noise, replace(held, wanted=said), targets=AMOUNTS, most=10_000, seed=0) is None


@pytest.mark.parametrize(("signal", "is_worth_it"), [(1.0, True), (0.08, False)])
def test_rows_are_remembered_only_where_that_saves_a_hundredth_of_the_loss(signal: float, is_worth_it: bool) -> None:
    made, learned, held = model(), rows(2000), rows(FEW_JUDGES, seed=1)
    noise = torch.randn(FEW_JUDGES, 1, generator=torch.Generator().manual_seed(2))

    def beyond(some: Rows) -> Tensor:
        """What the model says, and something that it does not know."""
        return answers(made, some, AMOUNTS).float() + signal * some.numbers[:, :1]

    learned, held = replace(learned, wanted=beyond(learned)), replace(held, wanted=beyond(held) + noise)
    found = remember(made, learned, held, targets=AMOUNTS, most=10_000, seed=0)
    assert (found is not None) is is_worth_it


def test_few_judges_are_not_asked() -> None:
    assert remember(model(), rows(500), rows(FEW_JUDGES - 1), targets=AMOUNTS, most=100, seed=0) is None


def test_of_many_rows_some_are_remembered_by_chance() -> None:
    made, many = model(), rows(500)
    found = remember(made, many, rows(FEW_JUDGES, seed=1), targets=AMOUNTS, most=64, seed=0)
    assert found is not None and len(found.keys) == 64
    assert (torch.cdist(found.keys.float(), states_of(made, many)).amin(1) < 0.1).all()


def test_classes_are_remembered_as_what_is_certain() -> None:
    torch.testing.assert_close(Classes(np.array(["a", "b"])).as_answer(torch.tensor([1, 0])), torch.eye(2).flip(0))


def test_an_estimator_with_a_memory_is_saved_and_loaded_to_the_bit(tmp_path: object) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = FTTransformerRegressor(dim=16, members=1, epochs=1, random_state=0).fit(X, X[:, 0])
    plain = fitted.predict(X)
    fitted.memory_ = memory(torch.randn(9, 16), torch.randn(9, 1), width=2.0, share=0.5)
    assert not np.allclose(fitted.predict(X), plain)
    np.testing.assert_array_equal(load(fitted.save(f"{tmp_path}/kept")).predict(X), fitted.predict(X))
