"""Cross entropy of a linear layer without whole logits equals that of the logits, in value and gradient."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError
from softlook.ops.linear_cross_entropy import function, linear_cross_entropy


@dataclass(frozen=True)
class Case:
    """Sizes and options of a loss."""

    rows: int
    classes: int
    bias: bool
    smoothing: float
    device: str = "cpu"
    dtype: torch.dtype = torch.float32

    def results(self, *, fused: bool) -> list[Tensor]:
        """Both losses and the gradients of hidden states, weight and bias."""
        generator = torch.Generator().manual_seed(self.rows + self.classes)
        hidden, weight = (self.leaf(torch.randn(n, 16, generator=generator)) for n in (self.rows, self.classes))
        bias = self.leaf(torch.randn(self.classes, generator=generator)) if self.bias else None
        labels = torch.randint(-1, self.classes, (self.rows,), generator=generator)
        labels = labels.masked_fill(labels < 0, -100).to(self.device)
        if fused:
            total, plain = linear_cross_entropy(hidden, weight, bias, labels, label_smoothing=self.smoothing)
        else:
            logits = F.linear(hidden, weight, bias).float()
            total = F.cross_entropy(logits, labels, label_smoothing=self.smoothing, reduction="sum")
            plain = F.cross_entropy(logits, labels, reduction="sum")
        (2 * total).backward()
        grads = [tensor.grad for tensor in (hidden, weight, bias) if tensor is not None]
        return [total.detach(), plain.detach(), *(grad for grad in grads if grad is not None)]

    def leaf(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, self.dtype).requires_grad_()


@given(st.integers(1, 40), st.integers(2, 70), st.booleans(), st.sampled_from([0.0, 0.1]), st.integers(1, 3000))
def test_losses_and_gradients_equal_those_of_the_logits(
    rows: int, classes: int, bias: bool, smoothing: float, chunk_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function, "CHUNK_BYTES", chunk_bytes)
        case = Case(rows, classes, bias, smoothing)
        found, expected = case.results(fused=True), case.results(fused=False)
    assert len(found) == 4 + bias
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("classes", [64, 100, 50257])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_equals_the_loss_of_the_logits(
    classes: int, smoothing: float, bias: bool, dtype: torch.dtype
) -> None:
    case = Case(300, classes, bias, smoothing, "cuda", dtype)
    found, expected = case.results(fused=True), case.results(fused=False)
    tolerance = 1e-4 if dtype == torch.float32 else 0.03
    for one, other in zip(found, expected, strict=True):
        scale = other.abs().max().clamp(min=1).item()
        torch.testing.assert_close(one.float(), other.float(), atol=tolerance * scale, rtol=tolerance)


def test_labels_of_another_shape_are_an_error() -> None:
    with pytest.raises(ShapeError, match="a label for each hidden state"):
        linear_cross_entropy(torch.zeros(3, 4), torch.zeros(5, 4), None, torch.zeros(2, dtype=torch.long))
