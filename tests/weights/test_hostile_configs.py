"""Any config.json is loaded or raises a WeightsError, and nothing else."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softlook.base.errors import WeightsError
from softlook.weights import from_hugging_face
from softlook.weights.architectures import ARCHITECTURES
from softlook.weights.architectures.base import HFArchitecture
from softlook.weights.schema import ConfigWarning
from softlook.weights.tensor_files import write_safetensors

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.sampled_from([1, 2, 4, 8, 12, 64]),
    st.floats(0, 1),
    st.sampled_from([2**31, 2**63, 10**12, 10**40, -(2**63)]),
    st.floats(),
    st.sampled_from(["", "gelu", "relu", "../../etc", "os.system", "16", "linear", "yarn", "default", "\x00"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    write_safetensors({"something": torch.ones(2)}, made / "model.safetensors")
    return made


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.name)
@settings(max_examples=settings().max_examples // 4)  # there are many architectures
@given(data=st.data())
def test_any_config_raises_a_weights_error_with_unmatched_weights(
    architecture: HFArchitecture, folder: Path, data: Any
) -> None:
    fields = data.draw(
        st.dictionaries(st.sampled_from(sorted(architecture.config_class.model_fields)), VALUES, max_size=5)
    )
    head = data.draw(st.sampled_from(sorted(architecture.head_by_class)))
    small = {
        "num_hidden_layers": 1,
        "n_layer": 1,
        "num_layers": 1,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "n_layers": 1,
    }
    content = {**small, "model_type": architecture.model_type, "architectures": [head], **fields}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        with pytest.raises(WeightsError):  # the weights match none of the configs
            from_hugging_face(folder)
