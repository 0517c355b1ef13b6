"""Decoding on a GPU compared with transformers' `generate`, with the same weights in the same run.

`python -m benchmarks.decoding_gpu` runs all parts: gpt1, gpt64, translation, float32 and compiled. The implementations
take turns; times are medians after a warm-up round.
"""

import argparse
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.decoding_profile import print_kernels, print_parts, print_steps
from softlook.decode import CausalLMSession, Seq2SeqSession, beam_search, explain, generate
from softlook.weights import from_hugging_face

PROMPT_LENGTH, NEW_TOKENS = 128, 256
BEAMS, LENGTH, SENTENCES = 4, 24, 1024
VOCAB, EOS = 32000, 0
ROUNDS = 3
GOALS = {"gpt1": "4,000 tokens/s", "gpt64": "100,000 tokens/s", "translation": "15 times transformers"}
TokenRows = list[list[int]]
Runner = Callable[[], TokenRows]


def gpt() -> tuple[Any, Any]:
    """GPT-2 124M with random weights and distinct logits: of transformers and of softlook."""
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415  (optional comparison)

    torch.manual_seed(0)
    reference: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, pad_token_id=0)).eval()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.mul_(2.0) if weight.ndim > 1 else None
    return reference, to_softlook(reference)


def marian() -> tuple[Any, Any]:
    """A translation model of Marian's base size with random weights: of transformers and of softlook."""
    from transformers import MarianConfig, MarianMTModel  # noqa: PLC0415  (optional comparison)

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": VOCAB, "max_position_embeddings": 512, "d_model": 512}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 6, f"{side}_attention_heads": 8, f"{side}_ffn_dim": 2048}
    sizes |= {"pad_token_id": VOCAB - 1, "decoder_start_token_id": VOCAB - 1, "eos_token_id": EOS}
    sizes |= {"scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": None}
    reference: Any = MarianMTModel(MarianConfig(**sizes)).eval()
    with torch.no_grad():
        reference.get_input_embeddings().weight.mul_(4.0)
    return reference, to_softlook(reference)


def to_softlook(reference: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        return from_hugging_face(Path(folder)).eval()


def to_cuda(dtype: torch.dtype, *models: Any) -> list[Any]:
    return [model.to("cuda", dtype) for model in models]


def prompts(rows: int) -> torch.Tensor:
    return torch.randint(1, 50000, (rows, PROMPT_LENGTH), generator=torch.Generator().manual_seed(1)).cuda()


def continuations(rows: int, model: Any, reference: Any) -> dict[str, Runner]:
    """Prompts of 128 tokens, 256 new tokens each."""
    ids = prompts(rows)
    prompt_rows: TokenRows = ids.tolist()
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(ids)}
    return {
        "softlook": lambda: [output.ids for output in generate(model, prompt_rows, max_new_tokens=NEW_TOKENS)],
        "transformers": without_cudnn_sdp(lambda: reference.generate(ids, **options)[:, PROMPT_LENGTH:].tolist()),
    }


def without_cudnn_sdp(run: Runner) -> Runner:
    """Disable cuDNN attention, which builds a plan for every length: transformers is several times faster without."""

    def run_without() -> TokenRows:
        torch.backends.cuda.enable_cudnn_sdp(False)
        try:
            return run()
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)

    return run_without


def compiled(rows: int, reference: Any) -> Runner:
    """transformers with a static cache, compiled."""
    ids = prompts(rows)
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False}
    options |= {"attention_mask": torch.ones_like(ids), "cache_implementation": "static"}
    return without_cudnn_sdp(lambda: reference.generate(ids, **options)[:, PROMPT_LENGTH:].tolist())


def sources() -> TokenRows:
    """Sentences of 8 to 40 tokens, longest first, as in file translation."""
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(8, 41, (SENTENCES,), generator=generator).sort(descending=True).values.tolist()
    return [torch.randint(2, VOCAB - 1, (length,), generator=generator).tolist() for length in lengths]


def translations(model: Any, reference: Any, sizes: dict[str, int]) -> dict[str, Runner]:
    """All sentences, in batches of each size."""
    rows = sources()
    return {
        name: lambda name=name, size=size: [
            tokens
            for first in range(0, SENTENCES, size)
            for tokens in (_softlook if "softlook" in name else _transformers)(
                model if "softlook" in name else reference, rows[first : first + size]
            )
        ]
        for name, size in sizes.items()
    }


def _pad(rows: TokenRows) -> tuple[torch.Tensor, torch.Tensor]:
    max_length = max(map(len, rows))
    ids = torch.tensor([[*row, *[VOCAB - 1] * (max_length - len(row))] for row in rows])
    source_mask = torch.arange(max_length) < torch.tensor([[len(row)] for row in rows])
    return ids.cuda(), source_mask.cuda()


def _softlook(model: Any, rows: TokenRows) -> TokenRows:
    ids, source_mask = _pad(rows)
    start = torch.full((len(rows), 1), VOCAB - 1, device="cuda")
    options: dict[str, Any] = {"eos_ids": EOS, "max_new_tokens": LENGTH, "min_new_tokens": LENGTH, "num_beams": BEAMS}
    return [found[0].ids for found in beam_search(Seq2SeqSession(model, ids, source_mask), start, **options)]


def _transformers(model: Any, rows: TokenRows) -> TokenRows:
    ids, source_mask = _pad(rows)
    options: dict[str, Any] = {"num_beams": BEAMS, "do_sample": False, "early_stopping": "never", "length_penalty": 1.0}
    options |= {"min_new_tokens": LENGTH, "max_new_tokens": LENGTH, "attention_mask": source_mask.long()}
    return without_cudnn_sdp(lambda: model.generate(ids, **options)[:, 1:].tolist())()


def compare(title: str, runners: dict[str, Runner], tokens: int, rounds: int = ROUNDS) -> None:
    """Time the implementations in turns and print one row each."""
    print(
        f"\n### {title}\n\n| implementation | first call, s | s | tokens/s | ratio | identical |\n"
        "|---|---|---|---|---|---|",
        flush=True,
    )
    first_calls, outputs, times = {}, {}, {name: [] for name in runners}
    for number in range(rounds + 1):
        for name, run in runners.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            outputs[name] = run()
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            if number == 0:
                first_calls[name] = spent
            else:
                times[name].append(spent)
    softlook = next(iter(runners))
    for name in runners:
        median = statistics.median(times[name])
        identical = _identical(outputs[softlook], outputs[name])
        ratio = median / statistics.median(times[softlook])
        print(
            f"| {name} | {first_calls[name]:.2f} | {median:.3f} | {tokens / median:,.0f} | {ratio:.1f} | {identical} |",
            flush=True,
        )


def _identical(some: TokenRows, others: TokenRows) -> str:
    rows = sum(one == other for one, other in zip(some, others, strict=True)) / len(some)
    pairs = [a == b for one, other in zip(some, others, strict=True) for a, b in zip(one, other, strict=False)]
    return f"{rows:.0%} of rows, {sum(pairs) / max(len(pairs), 1):.0%} of tokens"


def run_gpt(rows: int) -> None:
    reference, model = gpt()
    model, reference = to_cuda(torch.bfloat16, model, reference)
    print(explain(model))
    compare(
        f"GPT-2 124M, bfloat16, {rows} x ({PROMPT_LENGTH} + {NEW_TOKENS})",
        continuations(rows, model, reference),
        rows * NEW_TOKENS,
    )


def run_compiled() -> None:
    reference, model = gpt()
    model, reference = to_cuda(torch.bfloat16, model, reference)
    runners = {
        "softlook": continuations(1, model, reference)["softlook"],
        "transformers, compiled": compiled(1, reference),
    }
    compare("GPT-2 124M, bfloat16, 1 x (128 + 256), transformers compiled", runners, NEW_TOKENS, rounds=2)


def run_float32() -> None:
    """The same tokens as transformers and as eager decoding, in float32."""
    reference, model = gpt()
    model, reference = to_cuda(torch.float32, model, reference)
    runners = continuations(3, model, reference)
    runners["softlook eager"] = lambda: _eager(model, prompts(3))
    compare(f"GPT-2 124M, float32, 3 x ({PROMPT_LENGTH} + {NEW_TOKENS})", runners, 3 * NEW_TOKENS, rounds=1)
    reference, model = marian()
    model, reference = to_cuda(torch.float32, model, reference)
    rows = sources()[:64]
    pair: dict[str, Runner] = {
        "softlook": lambda: _softlook(model, rows),
        "transformers": lambda: _transformers(reference, rows),
    }
    compare("translation, float32, 64 sentences", pair, 64 * LENGTH, rounds=1)


@torch.no_grad()
def _eager(model: Any, ids: torch.Tensor) -> TokenRows:
    session, outputs = CausalLMSession(model), []
    for _ in range(NEW_TOKENS):
        ids = session.step(ids).argmax(-1, keepdim=True)
        outputs.append(ids)
    return torch.cat(outputs, 1).tolist()


def run_translation(profile: bool) -> None:
    reference, model = marian()
    model, reference = to_cuda(torch.bfloat16, model, reference)
    sizes = {"softlook, 1024 per batch": 1024, "softlook, 256 per batch": 256}
    sizes |= {"transformers, 64 per batch": 64, "transformers, 1024 per batch": 1024}
    runners = translations(model, reference, sizes)
    compare(f"translation, {BEAMS} beams, {SENTENCES} sentences, bfloat16", runners, SENTENCES * LENGTH, rounds=2)
    if profile:
        own = {name: run for name, run in runners.items() if "softlook" in name}
        for name, run in own.items():
            print_parts(name, run)
        print_steps(model)
        print_kernels(next(iter(own.values())))


PARTS: dict[str, Callable[[bool], None]] = {
    "gpt1": lambda _: run_gpt(1),
    "gpt64": lambda _: run_gpt(64),
    "translation": run_translation,
    "float32": lambda _: run_float32(),
    "compiled": lambda _: run_compiled(),
}


def main() -> None:
    args = _parse_args()
    from transformers.utils import logging  # noqa: PLC0415  (optional comparison)

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(f"# Decoding on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name in args.parts:
        start = time.perf_counter()
        try:
            PARTS[name](args.profile)
        except Exception:  # the other parts still run
            traceback.print_exc()
        print(f"\n({name}: {time.perf_counter() - start:.0f} s; goal: {GOALS.get(name, 'none')})", flush=True)


def _parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding_gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--profile", action="store_true", help="add a profile of softlook's translation")
    args = parser.parse_args()
    if unknown := [name for name in args.parts if name not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    return args


if __name__ == "__main__":
    main()
