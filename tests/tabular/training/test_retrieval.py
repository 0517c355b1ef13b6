"""Retrieval: kernel regression over training rows."""

from dataclasses import replace
from pathlib import Path

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

TARGET = RegressionTarget(np.zeros(1), np.ones(1), ())


def model() -> TableTransformer:
    torch.manual_seed(0)
    return TableTransformer(
        TableTransformerConfig(n_numeric=2, ensemble_size=3, dim=16, depth=2, heads=2, bins=8)
    ).eval()


def rows(count: int, targets: Tensor | None = None, seed: int = 0) -> TableTensors:
    cells = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    targets = cells[:, :1] * 3 if targets is None else targets
    return TableTensors(cells, torch.zeros(count, 0).long(), targets, torch.ones(count))


def make_retrieval(
    keys: Tensor, values: Tensor, *, bandwidth: float, mix: float = 1.0, weight: Tensor | None = None
) -> RowRetrieval:
    return RowRetrieval(keys.half(), values, torch.ones(len(keys)) if weight is None else weight, bandwidth, mix)


def test_with_a_small_bandwidth_stored_states_retrieve_their_own_values() -> None:
    keys = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).half().float()
    values = torch.arange(50.0)[:, None]
    retrieved = make_retrieval(keys, values, bandwidth=1e-6).combine(torch.zeros(50, 1).double(), keys)
    torch.testing.assert_close(retrieved, values.double())


def test_retrieval_is_nadaraya_watson_kernel_regression() -> None:
    generator = torch.Generator().manual_seed(1)
    keys, states = (torch.randn(count, 3, generator=generator).half().double() for count in (20, 5))
    values, weight = torch.randn(20, 2, generator=generator), torch.rand(20, generator=generator) + 0.5
    kernel = weight * (-torch.cdist(states, keys).square() / 0.7).exp()
    expected = kernel @ values.double() / kernel.sum(1, keepdim=True)
    retrieval = make_retrieval(keys, values, bandwidth=0.7, weight=weight)
    torch.testing.assert_close(retrieval.combine(torch.zeros(5, 2).double(), states), expected)


def test_mix_is_the_weight_of_the_retrieval_in_the_prediction() -> None:
    retrieval = make_retrieval(torch.zeros(1, 2), torch.tensor([[10.0]]), bandwidth=1.0, mix=0.25)
    predictions = torch.tensor([[2.0]]).double()
    assert retrieval.combine(predictions, torch.ones(1, 2)).item() == pytest.approx(4.0)


def test_rows_are_stored_if_they_improve_the_validation_loss() -> None:
    fitted, validation = model(), rows(MIN_VALIDATION_ROWS, seed=1)
    retrieval = fit_retrieval(fitted, rows(500), validation, target=TARGET, max_rows=10_000, seed=0)
    assert retrieval is not None and 0 < retrieval.mix <= 1 and len(retrieval.keys) == 500
    assert validation.targets is not None
    with_it, without = (
        (predict_rows(fitted, validation, TARGET, each) - validation.targets).square().mean().item()
        for each in (retrieval, None)
    )
    assert with_it < 0.5 * without


def test_rows_without_information_are_not_stored() -> None:
    fitted, validation = model(), rows(MIN_VALIDATION_ROWS, seed=1)
    perfect = replace(validation, targets=predict_rows(fitted, validation, TARGET).float())
    noise = rows(500, targets=100 * torch.randn(500, 1, generator=torch.Generator().manual_seed(2)))
    assert fit_retrieval(fitted, noise, perfect, target=TARGET, max_rows=10_000, seed=0) is None


@pytest.mark.parametrize(("signal", "is_worth_it"), [(1.0, True), (0.08, False)])
def test_rows_are_stored_only_if_they_save_a_hundredth_of_the_loss(signal: float, is_worth_it: bool) -> None:
    fitted, train, validation = model(), rows(2000), rows(MIN_VALIDATION_ROWS, seed=1)
    noise = torch.randn(MIN_VALIDATION_ROWS, 1, generator=torch.Generator().manual_seed(2))

    def with_signal(some: TableTensors) -> Tensor:
        """The prediction of the model, and a signal that it does not know."""
        return predict_rows(fitted, some, TARGET).float() + signal * some.numbers[:, :1]

    train = replace(train, targets=with_signal(train))
    validation = replace(validation, targets=with_signal(validation) + noise)
    retrieval = fit_retrieval(fitted, train, validation, target=TARGET, max_rows=10_000, seed=0)
    assert (retrieval is not None) is is_worth_it


def test_there_is_no_retrieval_with_few_validation_rows() -> None:
    few = rows(MIN_VALIDATION_ROWS - 1)
    assert fit_retrieval(model(), rows(500), few, target=TARGET, max_rows=100, seed=0) is None


def test_of_many_rows_a_random_sample_is_stored() -> None:
    fitted, train = model(), rows(500)
    validation = rows(MIN_VALIDATION_ROWS, seed=1)
    retrieval = fit_retrieval(fitted, train, validation, target=TARGET, max_rows=64, seed=0)
    assert retrieval is not None and len(retrieval.keys) == 64
    assert (torch.cdist(retrieval.keys.float(), mean_states(fitted, train)).amin(1) < 0.1).all()


def test_classes_are_stored_as_one_hot_probabilities() -> None:
    torch.testing.assert_close(
        ClassTarget(np.array(["a", "b"])).as_prediction(torch.tensor([1, 0])), torch.eye(2).flip(0)
    )


def test_a_loaded_estimator_with_retrieval_predicts_bitwise_equal(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    fitted = TableTransformerRegressor(ensemble="single", dim=16, n_members=1, epochs=1, random_state=0).fit(X, X[:, 0])
    plain = fitted.predict(X)
    fitted.retrieval_ = make_retrieval(torch.randn(9, 16), torch.randn(9, 1), bandwidth=2.0, mix=0.5)
    assert not np.allclose(fitted.predict(X), plain)
    np.testing.assert_array_equal(load(fitted.save(tmp_path / "model")).predict(X), fitted.predict(X))
