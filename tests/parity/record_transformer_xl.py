"""Records the outputs of Hugging Face's Transformer-XL, in an environment that still has it.

The last working release is transformers 4.35.2; later ones raise an error or do not have it. In a separate environment:

    pip install torch transformers==4.35.2 safetensors sacremoses
    python tests/parity/record_transformer_xl.py tests/parity/transformer_xl.safetensors

Weights are random with a fixed seed. For each variant the file has the weights and, for two consecutive segments, ids,
hidden states, attention maps, log-probabilities and the resulting memory; and the gradients of the log-probabilities of
token 0, summed over the second segment. The configs are metadata.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers.models.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel  # pyright: ignore

SIZES: dict[str, Any] = {
    "vocab_size": 9,
    "d_model": 8,
    "d_embed": 8,
    "n_head": 2,
    "d_head": 5,
    "d_inner": 10,
    "n_layer": 2,
    "mem_len": 6,
    "cutoffs": [],
    "div_val": 1,
    "clamp_len": -1,
    "same_length": False,
    "untie_r": True,
    "pre_lnorm": False,
    "tie_word_embeddings": True,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "shared biases": {"untie_r": False},
    "pre-norm": {"pre_lnorm": True},
    "pre-norm, shared biases": {"pre_lnorm": True, "untie_r": False},
    "far distances alike": {"clamp_len": 3},
    "as many keys for each query": {"same_length": True},
    "another matrix to say words": {"tie_word_embeddings": False},
}
SEGMENTS = ((0, 5), (5, 9))


def main(path: Path) -> None:
    """Write the file."""
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    ids = torch.randint(SIZES["vocab_size"], (2, SEGMENTS[-1][1]))
    tensors = {"ids": ids}
    for name, changes in VARIANTS.items():
        tensors |= {f"{name}/{key}": tensor for key, tensor in recorded(SIZES | changes, ids).items()}
    metadata = {name: json.dumps(SIZES | changes) for name, changes in VARIANTS.items()}
    save_file({key: tensor.detach().contiguous().clone() for key, tensor in tensors.items()}, path, metadata)


def recorded(settings: dict[str, Any], ids: Tensor) -> dict[str, Tensor]:
    """The weights and outputs of one model."""
    model = TransfoXLLMHeadModel(TransfoXLConfig(**settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # noise, so that every weight matters
            parameter.add_(torch.randn_like(parameter) * 0.3)
    tensors = {f"weights/{name}": parameter for name, parameter in model.named_parameters()}
    memory, scores = None, ids.new_empty(0)
    for number, (start, stop) in enumerate(SEGMENTS):
        output = model(ids[:, start:stop], mems=memory, output_hidden_states=True, output_attentions=True)
        memory, scores = output.mems, output.prediction_scores
        tensors[f"{number}/log_probabilities"] = scores
        kept = [states.transpose(0, 1) for states in memory]
        parts = {"states": output.hidden_states, "maps": output.attentions, "memory": kept}
        for part, layers in parts.items():
            tensors |= {f"{number}/{part}/{layer}": tensor for layer, tensor in enumerate(layers)}
    scores[..., 0].sum().backward()
    return tensors | {f"gradients/{name}": parameter.grad for name, parameter in model.named_parameters()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
