"""The published SmolLM2-135M-Instruct: its logits and continuations of 50 prompts match transformers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from softlook.blocks import KVCache
from softlook.models import Llama
from softlook.weights.formats.gguf import from_gguf
from softlook.weights.formats.gguf_assets import tokenizer_from_gguf
from tests.parity.comparison import close
from tests.parity.real_weights import real_weights

pytestmark = pytest.mark.slow
FOLDER = real_weights("SmolLM2-135M-Instruct")
MAX_NEW_TOKENS = 12
PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "Water boils at",
    "The three states of matter are solid, liquid and",
    "To be, or not to be, that is",
    "Dear Sir or Madam,\n\nI am writing to",
    "The opposite of hot is",
    "My favourite season is autumn because",
    "In 1969, the first human being to walk on the Moon was",
    "A recipe for pancakes:\n1. Mix the flour with",
    "Roses are red, violets are",
    "The mitochondria is the powerhouse of the",
    "She opened the door slowly and saw",
    "He said, \"I can't believe it's",
    "Photosynthesis is the process by which plants",
    "WARNING: DO NOT OPEN THIS",
    "Q: What is the largest planet in our solar system?\nA:",
    "If it rains tomorrow, we will",
    "The quick brown fox jumps over the lazy",
    "Attention is a soft look-up: a query is compared with",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "for i in range(10):\n    print(",
    "import numpy as np\n\nx = np.",
    "SELECT name, age FROM people WHERE",
    "<html>\n<head>\n<title>",
    "#include <stdio.h>\n\nint main(void) {\n\tprintf(",
    "const add = (a, b) => a + b;\nconsole.log(add(2, 3)); // prints",
    '{"name": "Ada", "born": 1815, "languages": ["',
    'git commit -m "',
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n        ",
    "1, 2, 3, 4, 5,",
    "2, 4, 8, 16, 32,",
    "12 + 30 =",
    "3.14159265",
    "The year 2024 has 366 days, and the year 2023 has",
    "1000000 divided by 1000 is",
    "Phone: +49 30 1234567, room 42, floor",
    "Die Hauptstadt von Deutschland ist",
    "Il était une fois une petite fille qui",
    "El sol sale por el este y se pone por el",
    "La vita è bella perché",
    "Москва — столица",
    "日本の首都は",
    "你好，我叫",
    "안녕하세요, 제 이름은",
    "مرحبا، كيف",
    "Ένα, δύο, τρία,",
    "I ❤️ pizza 🍕 and",
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou answer in one word.<|im_end|>\n<|im_start|>user\nIs the sky blue?<|im_end|>\n",
)


@pytest.fixture(scope="module")
def path() -> Path:
    found = sorted(FOLDER.glob("*.gguf"))
    if not found:
        pytest.skip(f"{FOLDER} holds no GGUF file. `make real` downloads it.")
    return found[0]


@pytest.fixture(scope="module")
def actual(path: Path) -> Llama:
    return from_gguf(path)


@pytest.fixture(scope="module")
def reference(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, local_files_only=True
    ).eval()


@pytest.fixture(scope="module")
def prompts(path: Path) -> list[Tensor]:
    tokenizer = tokenizer_from_gguf(path)
    return [torch.tensor([tokenizer.encode(prompt).ids]) for prompt in PROMPTS]


def test_there_are_fifty_distinct_prompts() -> None:
    assert len(set(PROMPTS)) == 50


def test_tokenization_matches_transformers(path: Path, prompts: list[Tensor]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    again = tokenizer_from_gguf(path)
    for prompt, ids in zip(PROMPTS, prompts, strict=True):
        assert ids[0].tolist() == tokenizer(prompt).input_ids, prompt
        assert again.decode(ids[0].tolist(), skip_special_tokens=False) == prompt


@torch.no_grad()
def test_logits_of_the_next_token_match_transformers(actual: Llama, reference: Any, prompts: list[Tensor]) -> None:
    for ids in prompts:
        close(actual(ids)[:, -1], reference(ids).logits[:, -1], 1e-3)


@torch.no_grad()
def test_greedy_continuations_match_transformers(actual: Llama, reference: Any, prompts: list[Tensor]) -> None:
    for prompt, ids in zip(PROMPTS, prompts, strict=True):
        cache, reference_cache = KVCache(), DynamicCache(config=reference.config)
        output = greedy(ids, lambda new, cache=cache: actual(new, cache=cache))
        expected = greedy(
            ids, lambda new, cache=reference_cache: reference(new, past_key_values=cache, use_cache=True).logits
        )
        assert output == expected, prompt


def greedy(ids: Tensor, step: Callable[[Tensor], Tensor]) -> list[int]:
    """Greedy decoding; `step` gets the new tokens only and returns their logits."""
    found: list[int] = []
    for _ in range(MAX_NEW_TOKENS):
        ids = step(ids)[:, -1].argmax(-1, keepdim=True)
        found.append(int(ids))
    return found
