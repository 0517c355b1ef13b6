"""Documentation of the parameters and attributes of the estimators."""

import inspect

import numpy as np
import pytest
from sklearn.utils._repr_html.common import get_docstring

from softlook.tabular.parameters import ATTRIBUTES, DOCS
from softlook.tabular.presets import HELP
from tests.tabular.estimators import ALL, CLASSIFIERS, small

X = np.linspace(-1, 1, 60)[:, None]


@pytest.mark.parametrize("estimator_class", ALL)
def test_every_parameter_is_documented_where_scikit_learn_finds_it(estimator_class: type) -> None:
    for name, parameter in inspect.signature(estimator_class).parameters.items():
        text = get_docstring(estimator_class, "Parameters", name)
        assert text is not None and f"default={parameter.default}" in text.replace("&#x27;", "")


def test_only_existing_parameters_and_hyperparameters_are_documented() -> None:
    parameters = {name for estimator_class in ALL for name in inspect.signature(estimator_class).parameters}
    assert set(DOCS) == parameters | set(HELP)


@pytest.mark.parametrize("estimator_class", ALL)
def test_a_fitted_estimator_has_every_documented_attribute(estimator_class: type) -> None:
    model = small(estimator_class, epochs=1).fit(X, X[:, 0] > 0)
    documented = {name for name in ATTRIBUTES if get_docstring(estimator_class, "Attributes", name)}
    assert documented == set(ATTRIBUTES) - (set() if estimator_class in CLASSIFIERS else {"classes_"})
    assert {name for name in documented if not hasattr(model, name)} == {"feature_names_in_"}  # these columns have none
