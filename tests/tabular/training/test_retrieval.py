"""A memory of rows: a soft look at what was learned from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from softlook.models import TableTransformer, TableTransformerConfig
from softlook.tabular import TableTransformerRegressor, load
from softlook.tabular.preprocessing.rows import TableTensors
from softlook.tabular.preprocessing.target import ClassTarget, RegressionTarget
from softlook.tabular.training.retrieval import MIN_VALIDATION_ROWS, RowRetrieval, fit_retrieval, mean_states
from softlook.tabular.training.trainer import predict_rows

AMOUNTS = RegressionTarget(np.zeros(1), np.ones(1), ())


def model() -> TableTransformer:
    torch.manual_seed(0)
    return TableTransformer(TableTransformerConfig(n_numeric=2, n_members=3, dim=16, depth=2, heads=2, bins=8)).eval()


def rows(count: int, targets: Tensor | None = None, seed: int = 0) -> TableTensors:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    found = cells[:, :1] * 3 if targets is None else targets
    return TableTensors(cells, torch.zeros(count, 0).long(), found, torch.ones(count))


def make_retrieval(
    keys: Tensor, values: Tensor, *, bandwidth: float, mix: float = 1.0, weight: Tensor | None = None
) -> RowRetrieval:
    return RowRetrieval(keys.half(), values, torch.ones(len(keys)) if weight is None else weight, bandwidth, mix)


def test_a_narrow_look_at_what_is_known_finds_what_was_wanted_of_it() -> None:
    keys = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).half().float()
    values = torch.arange(50.0)[:, None]
    found = make_retrieval(keys, values, bandwidth=1e-6).combine(torch.zeros(50, 1).double(), keys)
    torch.testing.assert_close(found, values.double())


def test_a_look_is_the_kernel_regression_of_nadaraya_and_watson() -> None:
    random = torch.Generator().manual_seed(1)
    keys, states = (torch.randn(count, 3, generator=random).half().double() for count in (20, 5))
    values, weight = torch.randn(20, 2, generator=random), torch.rand(20, generator=random) + 0.5
    kernel = weight * (-torch.cdist(states, keys).square() / 0.7).exp()
    targets = kernel @ values.double() / kernel.sum(1, keepdim=True)
    found = make_retrieval(keys, values, bandwidth=0.7, weight=weight).combine(torch.zeros(5, 2).double(), states)
    torch.testing.assert_close(found, targets)


def test_the_share_is_how_much_of_the_answer_it_makes_up() -> None:
    keys, said = torch.zeros(1, 2), torch.tensor([[2.0]]).double()
    found = make_retrieval(keys, torch.tensor([[10.0]]), bandwidth=1.0, mix=0.25).combine(said, torch.ones(1, 2))
    assert found.item() == pytest.approx(4.0)


def test_rows_are_remembered_where_they_help_those_held_out() -> None:
    made, held = model(), rows(MIN_VALIDATION_ROWS, seed=1)
    found = fit_retrieval(made, rows(500), held, target=AMOUNTS, max_rows=10_000, seed=0)
    assert found is not None and 0 < found.mix <= 1 and len(found.keys) == 500
    assert held.target is not None
    with_it, without = (
        (predict_rows(made, held, AMOUNTS, each) - held.target).square().mean().item() for each in (found, None)
    )
    assert with_it < 0.5 * without


def test_rows_that_say_nothing_are_not_remembered() -> None:
    made, held = model(), rows(MIN_VALIDATION_ROWS, seed=1)
    said = predict_rows(made, held, AMOUNTS).float()
    noise = rows(500, targets=100 * torch.randn(500, 1, generator=torch.Generator().manual_seed(2)))
    assert fit_retrieval(made, noise, replace(held, targets=said), target=AMOUNTS, max_rows=10_000, seed=0) is None


@pytest.mark.parametrize(("signal", "is_worth_it"), [(1.0, True), (0.08, False)])
def test_rows_are_remembered_only_where_that_saves_a_hundredth_of_the_loss(signal: float, is_worth_it: bool) -> None:
    made, learned, held = model(), rows(2000), rows(MIN_VALIDATION_ROWS, seed=1)
    noise = torch.randn(MIN_VALIDATION_ROWS, 1, generator=torch.Generator().manual_seed(2))

    def beyond(some: TableTensors) -> Tensor:
        """What the model says, and something that it does not know."""
        return predict_rows(made, some, AMOUNTS).float() + signal * some.numbers[:, :1]

    learned, held = replace(learned, targets=beyond(learned)), replace(held, targets=beyond(held) + noise)
    found = fit_retrieval(made, learned, held, target=AMOUNTS, max_rows=10_000, seed=0)
    assert (found is not None) is is_worth_it


def test_few_judges_are_not_asked() -> None:
    assert (
        fit_retrieval(model(), rows(500), rows(MIN_VALIDATION_ROWS - 1), target=AMOUNTS, max_rows=100, seed=0) is None
    )


def test_of_many_rows_some_are_remembered_by_chance() -> None:
    made, many = model(), rows(500)
    found = fit_retrieval(made, many, rows(MIN_VALIDATION_ROWS, seed=1), target=AMOUNTS, max_rows=64, seed=0)
    assert found is not None and len(found.keys) == 64
    assert (torch.cdist(found.keys.float(), mean_states(made, many)).amin(1) < 0.1).all()


def test_classes_are_remembered_as_what_is_certain() -> None:
    torch.testing.assert_close(
        ClassTarget(np.array(["a", "b"])).as_prediction(torch.tensor([1, 0])), torch.eye(2).flip(0)
    )


def test_an_estimator_with_a_memory_is_saved_and_loaded_to_the_bit(tmp_path: object) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = TableTransformerRegressor(dim=16, n_members=1, epochs=1, random_state=0).fit(X, X[:, 0])
    plain = fitted.predict(X)
    fitted.retrieval_ = make_retrieval(torch.randn(9, 16), torch.randn(9, 1), bandwidth=2.0, mix=0.5)
    assert not np.allclose(fitted.predict(X), plain)
    np.testing.assert_array_equal(load(fitted.save(f"{tmp_path}/kept")).predict(X), fitted.predict(X))
