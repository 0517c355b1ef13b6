"""The delta rule: fast weights that replace what a key returns, recurrent and chunked.

The error of the current weights is written instead of the value (Widrow and Hoff, 1960; Schlag et al., 2021). Within a
chunk, the values written depend on each other through a triangular system (Yang et al., 2024).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.fast_weights import LinearAttentionState, check_steps


def delta_rule(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B H T D"],
    value: Float[Tensor, "B H T E"],
    rate: Float[Tensor, "B H T"],
    *,
    chunk: int = 64,
    state: LinearAttentionState | None = None,
) -> Float[Tensor, "B H T E"]:
    """Fast weights by the delta rule: W_t = W_(t-1) + rate_t k_t (v_t - k_t W_(t-1)), y_t = q_t W_t.

    A `rate` of 1 with a key of length 1 replaces what the key returned, 0 writes nothing. Keys longer than 1 may let
    the state grow without bound: normalize them. `chunk` steps are computed at once; `chunk=1` is the recurrence. A
    `state` is read first and holds all steps afterwards.

    >>> key, value = torch.tensor([[[[1.0, 0.0]] * 2]]), torch.tensor([[[[5.0], [7.0]]]])
    >>> delta_rule(key, key, value, torch.ones(1, 1, 2)).flatten()
    tensor([5., 7.])
    """
    check_steps(query, key, value, chunk)
    if rate.shape != key.shape[:3]:
        raise ShapeError(f"delta_rule expects a rate for each step, {tuple(key.shape[:3])}, got {tuple(rate.shape)}")
    state, outputs = LinearAttentionState() if state is None else state, []
    if state.weights is None:
        state.weights = key.new_zeros(*key.shape[:2], key.shape[3], value.shape[3])
    for start in range(0, query.shape[2], chunk):
        steps = slice(start, start + chunk)
        written = _changes(state.weights, key[:, :, steps], value[:, :, steps], rate[:, :, steps])
        within = (query[:, :, steps] @ key[:, :, steps].mT).tril()
        outputs.append(state.read(query[:, :, steps]) + within @ written)
        state.weights = state.weights + key[:, :, steps].mT @ written
    return torch.cat(outputs, 2) if outputs else torch.zeros_like(value)


def _changes(weights: Tensor, key: Tensor, value: Tensor, rate: Tensor) -> Tensor:
    """What each step of a chunk adds under its key: u_t = rate_t (v_t - k_t W - sum over s < t of (k_t . k_s) u_s)."""
    system = rate[..., None] * (key @ key.mT).tril(-1)  # the diagonal of ones is implied
    return torch.linalg.solve_triangular(
        system, rate[..., None] * (value - key @ weights), upper=False, unitriangular=True
    )
