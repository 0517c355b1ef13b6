"""What `help` says of an estimator."""

import inspect

import numpy as np
import pytest
from sklearn.utils._repr_html.common import get_docstring

from softlook.tabular.parameters import ATTRIBUTES, DOCS
from tests.tabular.estimators import ALL, CLASSIFIERS, small

X = np.linspace(-1, 1, 60)[:, None]


@pytest.mark.parametrize("kind", ALL)
def test_every_parameter_is_explained_where_scikit_learn_looks_for_it(kind: type) -> None:
    for name, parameter in inspect.signature(kind).parameters.items():
        found = get_docstring(kind, "Parameters", name)
        assert found is not None and f"default={parameter.default}" in found.replace("&#x27;", "")


def test_no_parameter_is_explained_that_there_is_not() -> None:
    assert set(DOCS) == {name for kind in ALL for name in inspect.signature(kind).parameters}


@pytest.mark.parametrize("kind", ALL)
def test_a_fitted_estimator_has_every_attribute_that_is_explained(kind: type) -> None:
    model = small(kind, epochs=1).fit(X, X[:, 0] > 0)
    told = {name for name in ATTRIBUTES if get_docstring(kind, "Attributes", name)}
    assert told == set(ATTRIBUTES) - (set() if kind in CLASSIFIERS else {"classes_"})
    assert {name for name in told if not hasattr(model, name)} == {"feature_names_in_"}  # these columns have none
