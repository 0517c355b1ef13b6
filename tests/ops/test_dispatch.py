"""Which path is taken, and that softlook says so."""

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from softlook import BackendError, attention, explain, masks, positions, scores
from softlook.ops import apart, cpu, dispatch, gpu
from softlook.ops.question import ask
from tests.asking import DEVICE, Made

MADE = Made(torch.Generator().manual_seed(23), torch.float32)
QUERY, KEY, VALUE = MADE.normal(1, 4, 6, 8), MADE.normal(1, 2, 6, 8), MADE.normal(1, 2, 6, 8)
ON_CPU = pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU has other paths to choose from")

CHOICES: dict[str, tuple[dict[str, Any], str, str]] = {
    "plain": ({}, "sdpa", "a plain soft look-up is what torch's fused kernels do best"),
    "causal": ({"mask": masks.causal()}, "sdpa", "a causal mask is built into torch's fused kernels"),
    "window": ({"mask": masks.window(2)}, "sdpa", "mask and bias are written out"),
    "dense bias": ({"bias": MADE.normal(6, 6)}, "sdpa", "mask and bias are written out"),
    "cosine": ({"score": scores.cosine()}, "sdpa", "a plain soft look-up"),
    "cap": ({"softcap": 5.0}, "blocks", "torch's kernels have no soft cap"),
    "sink": ({"sink": 0.0}, "blocks", "torch's kernels have no sink"),
    "alibi": ({"bias": positions.alibi(4)}, "blocks", "bias alibi would have to be written out"),
    "relative values": (
        {"bias": positions.shaw(MADE.normal(3, 8), MADE.normal(3, 8))},
        "blocks",
        "torch's kernels have no relative values",
    ),
    "additive": (
        {"score": scores.additive(MADE.normal(8, 3), MADE.normal(8, 3), MADE.normal(3))},
        "blocks",
        "torch's kernels know dot products only",
    ),
}


@ON_CPU
@pytest.mark.parametrize("name", CHOICES)
def test_the_path_and_the_reason_are_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "FEW", 0)
    options, backend, reason = CHOICES[name]
    choice = explain(QUERY, KEY, VALUE, **options)
    assert choice.backend == backend
    assert reason in choice.reason
    assert str(choice).startswith(f"{backend}: ") and " MiB" in str(choice)


@ON_CPU
@pytest.mark.parametrize("name", CHOICES)
def test_the_path_that_is_told_is_the_path_that_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, backend, _ = CHOICES[name]
    taken = []
    for path, attend in dispatch.PATHS.items():
        spy = lambda *args, path=path, attend=attend: (taken.append(path), attend(*args))[1]  # noqa: E731
        monkeypatch.setitem(dispatch.PATHS, path, spy)
    attention(QUERY, KEY, VALUE, **options)
    assert taken == [backend]


@pytest.mark.parametrize("backend", ["reference", "sdpa", "blocks"])
def test_a_pinned_path_is_taken_because_it_was_asked_for(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = explain(QUERY, KEY, VALUE, backend=backend)
    assert (choice.backend, choice.reason) == (backend, "asked for")
    monkeypatch.setitem(dispatch.PATHS, backend, lambda *_: torch.full_like(QUERY, 7))
    assert attention(QUERY, KEY, VALUE, backend=backend).eq(7).all()


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "cap": ("sdpa", {"softcap": 5.0}, "torch's kernels have no soft cap"),
    "sink": ("sdpa", {"sink": 0.0}, "torch's kernels have no sink"),
    "own score": ("sdpa", {"score": lambda q, k: q @ k.mT}, "torch's kernels know dot products only"),
    "relative values": (
        "sdpa",
        {"bias": positions.shaw(MADE.normal(3, 8), MADE.normal(3, 8))},
        "torch's kernels have no relative values",
    ),
    "compiled score": ("flex", {"score": lambda q, k: q @ k.mT}, "it knows dot products only"),
    "compiled dropout": ("flex", {"dropout": 0.1}, "it has no dropout"),
    "compiled content": ("flex", {"bias": positions.shaw(MADE.normal(3, 8))}, "the bias shaw depends on the content"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_path_that_cannot_answer_says_why_and_names_one_that_can(name: str) -> None:
    backend, options, reason = REFUSED[name]
    for call in (attention, explain):
        with pytest.raises(BackendError, match=f"backend='{backend}' cannot answer this: {reason}.*Leave backend out"):
            call(QUERY, KEY, VALUE, **options, backend=backend)


def test_the_compiled_path_refuses_double_precision_and_empty_sizes() -> None:
    with pytest.raises(BackendError, match="it has no float64"):
        attention(QUERY.double(), KEY.double(), VALUE.double(), backend="flex")
    with pytest.raises(BackendError, match="a size is 0"):
        attention(QUERY[:, :, :0], KEY, VALUE, backend="flex")


@ON_CPU
def test_the_compiled_path_refuses_gradients_and_sinks_on_the_cpu() -> None:
    with pytest.raises(BackendError, match="on the CPU it gives no gradient.*it takes 'sdpa'"):
        attention(QUERY.clone().requires_grad_(), KEY, VALUE, backend="flex")
    with pytest.raises(BackendError, match="on the CPU it gives no log-sum-exp, which a sink needs.*it takes 'blocks'"):
        attention(QUERY, KEY, VALUE, sink=0.0, backend="flex")


@pytest.mark.usefixtures("no_shape_checks")
def test_an_unknown_path_is_refused_with_the_known_ones() -> None:
    unknown: Any = "flash"
    with pytest.raises(BackendError, match="backend wants one of auto, reference, sdpa, flex, blocks.*; 'flash' came"):
        attention(QUERY, KEY, VALUE, backend=unknown)


def test_the_bytes_of_the_reference_are_those_of_its_maps() -> None:
    assert explain(QUERY, KEY, VALUE, backend="reference").bytes >= 4 * 6 * 6 * 4
    doubled = (torch.cat([tensor, tensor], 2) for tensor in (QUERY, KEY, VALUE))
    assert explain(*doubled, backend="reference").bytes == 4 * explain(QUERY, KEY, VALUE, backend="reference").bytes


def test_a_plain_call_needs_nothing_beside_its_inputs_and_a_written_mask_does() -> None:
    long = torch.zeros(1, 1, 200, 8, device=DEVICE)
    assert explain(long, long, long).bytes == 0
    assert explain(long, long, long, mask=masks.causal()).bytes == 0
    assert explain(long, long, long, mask=masks.window(150, 150)).bytes >= 200 * 200


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a CPU's way")
def test_a_few_queries_need_their_weights() -> None:
    assert explain(QUERY, KEY, VALUE, backend="sdpa").bytes >= QUERY.shape[2] * KEY.shape[2] * 4


def test_blocks_need_less_than_the_map_as_soon_as_it_is_large() -> None:
    long = torch.zeros(1, 1, 1, 8, device=DEVICE).expand(1, 1, 1 << 17, 8)
    assert explain(long, long, long, backend="blocks").bytes < explain(long, long, long, backend="reference").bytes / 50


@pytest.mark.parametrize("backend", ["auto", "reference", "sdpa", "blocks"])
def test_explaining_allocates_nothing_large(backend: Any) -> None:
    long = torch.zeros(1, 1, 1, 8, device=DEVICE).expand(1, 1, 1 << 20, 8)
    assert explain(long, long, long, mask=masks.window(3), backend=backend).bytes > 0


STEPS = {
    "attend_in_three": "three plain steps",
    "attend_fused": "torch's fused kernel",
    "attend_plainly": "no fused kernel",
}
LENGTHS = [(1, 40), (33, 33), (40, 129)]
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.causal()},
    "padding": {"mask": masks.padding([20])},
    "dropout": {"dropout": 0.1},
    "learned bias": {"bias": True},
}


@ON_CPU
@pytest.mark.parametrize("switched_off", [False, True], ids=["", "flash switched off"])
@pytest.mark.parametrize("layout", ["side by side", "gapped"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_the_steps_that_are_told_are_the_steps_that_run(
    *, name: str, learning: bool, dtype: torch.dtype, layout: str, switched_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    for step in STEPS:
        usual = getattr(cpu, step)
        spy = lambda *args, step=step, usual=usual, **named: (taken.append(step), usual(*args, **named))[1]  # noqa: E731
        monkeypatch.setattr(cpu, step, spy)
    for T, S in LENGTHS:
        taken.clear()
        query, key = torch.randn(1, 2, T, 16, dtype=dtype), torch.randn(1, 2, S, 16, dtype=dtype)
        if layout == "gapped":
            query, key = query[..., ::2], key[..., ::2]
        options = dict(WAYS[name])
        if "bias" in options:
            options["bias"] = torch.randn(T, S, dtype=dtype, requires_grad=learning)
        query.requires_grad_(learning)
        backends = [SDPBackend.MATH] if switched_off else [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
        with sdpa_kernel(backends):
            choice = explain(query, key, key, **options)
            attention(query, key, key, **options)
        told = [step for step, words in STEPS.items() if words in choice.reason]
        assert (choice.backend, taken) == ("sdpa", told) or (choice.backend, taken) == ("blocks", [])
        assert choice.bytes >= 2 * 2 * T * S * query.element_size() or taken in (["attend_fused"], [])


@pytest.mark.parametrize("backend", ["auto", "sdpa", "blocks", "reference"])
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0)], ids=str)
def test_where_a_size_is_0_the_path_that_is_told_is_taken_too(
    backend: Any, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key = MADE.normal(1, 2, sizes[0], 4), MADE.normal(1, 2, sizes[1], 4)
    monkeypatch.setitem(dispatch.PATHS, "reference", lambda *_: torch.full_like(query, 7))
    choice = explain(query, key, key, backend=backend)
    assert choice.backend == "reference" and (backend == "reference" or "a size is 0" in choice.reason)
    assert attention(query, key, key, backend=backend).eq(7).all()


@ON_CPU
def test_documents_that_are_answered_apart_are_said_to_be() -> None:
    query = MADE.normal(1, 2, 64, 4)
    mask = masks.documents(torch.arange(64) // 32)
    assert apart.lengths(ask(query, query, mask=mask)) == [32, 32]
    assert "each document goes to torch's kernels on its own" in explain(query, query, query, mask=mask).reason


@pytest.mark.cuda
@pytest.mark.skipif(DEVICE.type != "cuda", reason="runs with SOFTLOOK_DEVICE=cuda")
def test_the_memory_efficient_kernel_is_not_asked_where_it_is_switched_off() -> None:
    query = torch.randn(1, 2, 8, 16, device=DEVICE, dtype=torch.bfloat16)
    assert gpu.suits_efficient(query, query, None)
    with sdpa_kernel([SDPBackend.MATH]):
        assert not gpu.suits_efficient(query, query, None)
        with profile() as seen:
            attention(query, query, query)
    assert not any("efficient" in event.key for event in seen.key_averages())
